//! Whether two programs say the same.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{
    AtomKind, ContextId, Effect, EffectsId, Eqn, EqnData, ForeignId, LiteralData, ParamValue,
    ParamsId, PrimitiveId, Subprogram, Type, TypeId, Var,
};

use super::{Constants, Nested, Objects};

/// Whether two programs are equal, those within them included.
///
/// # Errors
/// Objects cannot be compared.
pub fn equal<O: Objects>(
    one: Nested<O>,
    another: Nested<O>,
    constants: Constants,
) -> Result<bool, O::Error> {
    // A pair is assumed to be equal until one of all pairs is found not to be.
    let mut assumed: FxHashSet<(usize, usize)> = FxHashSet::default();
    let mut pending = vec![(one, another)];
    while let Some((one, another)) = pending.pop() {
        if one.key == another.key || !assumed.insert((one.key, another.key)) {
            continue;
        }
        let mut pair = Pair {
            one: &one,
            another: &another,
            constants,
            vars: SecondaryMap::with_default(u32::MAX),
            other_vars: SecondaryMap::with_default(u32::MAX),
            next: 0,
            types: FxHashMap::default(),
            params: FxHashMap::default(),
            contexts: FxHashMap::default(),
            primitives: FxHashMap::default(),
            within: Vec::new(),
        };
        if !pair.is_equal()? {
            return Ok(false);
        }
        pending.append(&mut pair.within);
    }
    Ok(true)
}

/// Two programs side by side.
struct Pair<'a, O> {
    one: &'a Nested<O>,
    another: &'a Nested<O>,
    constants: Constants,
    /// The place of each variable in the order of definition.
    vars: SecondaryMap<Var, u32>,
    other_vars: SecondaryMap<Var, u32>,
    next: u32,
    /// Whether rows of tables, which many equations share, are equal.
    types: FxHashMap<(TypeId, TypeId), bool>,
    params: FxHashMap<(ParamsId, ParamsId), bool>,
    contexts: FxHashMap<(ContextId, ContextId), bool>,
    primitives: FxHashMap<(PrimitiveId, PrimitiveId), bool>,
    /// Programs within that have to be equal.
    within: Vec<(Nested<O>, Nested<O>)>,
}

impl<O: Objects> Pair<'_, O> {
    fn is_equal(&mut self) -> Result<bool, O::Error> {
        let (one, another) = (&self.one.program, &self.another.program);
        if one.constvars().len() != another.constvars().len()
            || one.invars().len() != another.invars().len()
            || one.num_eqns() != another.num_eqns()
            || one.outvars().len() != another.outvars().len()
        {
            return Ok(false);
        }
        for (&(var, value), &(other_var, other)) in one.constvars().iter().zip(another.constvars())
        {
            if !self.define(var, other_var)? {
                return Ok(false);
            }
            if self.constants == Constants::ByValue
                && !self.one.objects.same_constant(value, &self.another.objects, other)?
            {
                return Ok(false);
            }
        }
        for (&var, &other) in one.invars().iter().zip(another.invars()) {
            if !self.define(var, other)? {
                return Ok(false);
            }
        }
        for (eqn, other) in one.eqns().zip(another.eqns()) {
            if !self.eqn(eqn, other)? {
                return Ok(false);
            }
        }
        for (atom, other) in one.outvars().iter().zip(another.outvars()) {
            if !self.atom(atom.kind(), other.kind())? {
                return Ok(false);
            }
        }
        self.effects(one.effects(), another.effects())
    }

    fn define(&mut self, var: Var, other: Var) -> Result<bool, O::Error> {
        self.vars[var] = self.next;
        self.other_vars[other] = self.next;
        self.next += 1;
        self.ty(self.one.program.var_type(var), self.another.program.var_type(other))
    }

    fn eqn(&mut self, eqn: Eqn, other: Eqn) -> Result<bool, O::Error> {
        let (one, another) = (&self.one.program, &self.another.program);
        // A new field has to be decided on here.
        let EqnData {
            primitive,
            params,
            effects,
            source: _,
            context,
            invars: _,
            first_outvar: _,
            num_outvars,
        } = *one.eqn(eqn);
        let data = another.eqn(other);
        let (operands, other_operands) = (one.eqn_invars(eqn), another.eqn_invars(other));
        if num_outvars != data.num_outvars || operands.len() != other_operands.len() {
            return Ok(false);
        }
        if !self.primitive(primitive, data.primitive)?
            || !self.params(params, data.params)?
            || !self.context(context, data.context)?
        {
            return Ok(false);
        }
        for (operand, other) in operands.iter().zip(other_operands) {
            if !self.atom(operand.kind(), other.kind())? {
                return Ok(false);
            }
        }
        for (var, other) in one.eqn_outvars(eqn).zip(another.eqn_outvars(other)) {
            if !self.define(var, other)? {
                return Ok(false);
            }
        }
        self.effects(effects, data.effects)
    }

    fn atom(&mut self, atom: AtomKind, other: AtomKind) -> Result<bool, O::Error> {
        match (atom, other) {
            (AtomKind::Var(var), AtomKind::Var(other)) => {
                Ok(self.vars[var] == self.other_vars[other])
            }
            (AtomKind::Literal(literal), AtomKind::Literal(other)) => {
                let LiteralData { ty, object } = *self.one.program.literal(literal);
                let other = *self.another.program.literal(other);
                Ok(self.ty(ty, other.ty)? && self.same(object, other.object)?)
            }
            _ => Ok(false),
        }
    }

    fn same(&self, own: ForeignId, other: ForeignId) -> Result<bool, O::Error> {
        self.one.objects.same(own, &self.another.objects, other)
    }

    fn primitive(&mut self, id: PrimitiveId, other: PrimitiveId) -> Result<bool, O::Error> {
        if let Some(&known) = self.primitives.get(&(id, other)) {
            return Ok(known);
        }
        let (own, others) = (self.one.program.primitive(id), self.another.program.primitive(other));
        let equal = self.same(own.object, others.object)?;
        self.primitives.insert((id, other), equal);
        Ok(equal)
    }

    fn context(&mut self, id: ContextId, other: ContextId) -> Result<bool, O::Error> {
        if let Some(&known) = self.contexts.get(&(id, other)) {
            return Ok(known);
        }
        let equal = self.same(self.one.program.context(id), self.another.program.context(other))?;
        self.contexts.insert((id, other), equal);
        Ok(equal)
    }

    /// Those of one have to be those of the other, in any order.
    fn effects(&self, effects: EffectsId, others: EffectsId) -> Result<bool, O::Error> {
        let effects = self.one.program.effect_list(effects);
        let mut others: Vec<&Effect> = self.another.program.effect_list(others).iter().collect();
        if effects.len() != others.len() {
            return Ok(false);
        }
        for Effect { name, input, object } in effects {
            let place = input.map(|var| self.vars[var]);
            let mut found = None;
            for (index, other) in others.iter().enumerate() {
                if other.name == *name
                    && other.input.map(|var| self.other_vars[var]) == place
                    && self.same(*object, other.object)?
                {
                    found = Some(index);
                    break;
                }
            }
            let Some(found) = found else { return Ok(false) };
            others.swap_remove(found);
        }
        Ok(true)
    }

    fn ty(&mut self, id: TypeId, other: TypeId) -> Result<bool, O::Error> {
        if let Some(&known) = self.types.get(&(id, other)) {
            return Ok(known);
        }
        let (own, others) = (self.one.program.ty(id), self.another.program.ty(other));
        let equal = same_type(own, &self.one.objects, others, &self.another.objects)?;
        self.types.insert((id, other), equal);
        Ok(equal)
    }

    fn params(&mut self, id: ParamsId, other: ParamsId) -> Result<bool, O::Error> {
        if let Some(&known) = self.params.get(&(id, other)) {
            return Ok(known);
        }
        let (own, others) = (self.one.program.params(id), self.another.program.params(other));
        let mut equal = own.len() == others.len();
        for ((name, value), (other_name, other)) in own.iter().zip(others.iter()) {
            equal = equal && name == other_name && self.value(value, other)?;
        }
        self.params.insert((id, other), equal);
        Ok(equal)
    }

    /// The embedding bounds how deep a value is.
    fn value(&mut self, value: &ParamValue, other: &ParamValue) -> Result<bool, O::Error> {
        let all = |pair: &mut Self, items: &[ParamValue], others: &[ParamValue]| {
            if items.len() != others.len() {
                return Ok(false);
            }
            for (item, other) in items.iter().zip(others) {
                if !pair.value(item, other)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match (value, other) {
            (ParamValue::Tuple(items), ParamValue::Tuple(others))
            | (ParamValue::List(items), ParamValue::List(others)) => all(self, items, others),
            (ParamValue::Dict(entries), ParamValue::Dict(others)) => {
                if entries.len() != others.len() {
                    return Ok(false);
                }
                for ((key, item), (other_key, other)) in entries.iter().zip(others) {
                    if !self.value(key, other_key)? || !self.value(item, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (
                ParamValue::Named { type_name, fields },
                ParamValue::Named { type_name: other_name, fields: others },
            ) => {
                if type_name != other_name || fields.len() != others.len() {
                    return Ok(false);
                }
                for ((name, item), (other_name, other)) in fields.iter().zip(others) {
                    if name != other_name || !self.value(item, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (ParamValue::Program(id), ParamValue::Program(other)) => {
                let nested =
                    |of: &Nested<O>, subprogram: &Subprogram| of.objects.nested(subprogram);
                let own = nested(self.one, self.one.program.subprogram(*id))?;
                let others = nested(self.another, self.another.program.subprogram(*other))?;
                self.within.push((own, others));
                Ok(true)
            }
            (ParamValue::Opaque(object), ParamValue::Opaque(other)) => self.same(*object, *other),
            // Neither has anything of the embedding's in it.
            _ => Ok(value == other),
        }
    }
}

fn same_type<O: Objects>(
    own: &Type,
    objects: &O,
    other: &Type,
    others: &O,
) -> Result<bool, O::Error> {
    let described = |ty: &Type, objects: &O| match ty {
        Type::Opaque { object, name: _ } => objects.type_of(*object),
        _ => Ok(None),
    };
    let (own_described, other_described) = (described(own, objects)?, described(other, others)?);
    let own = own_described.as_ref().unwrap_or(own);
    let other = other_described.as_ref().unwrap_or(other);
    match (own, other) {
        (Type::Array(own), Type::Array(other)) => Ok(own == other),
        (
            Type::Ref { inner, memory_space, kind },
            Type::Ref { inner: other_inner, memory_space: other_space, kind: other_kind },
        ) => Ok(memory_space == other_space
            && kind == other_kind
            && same_type(inner, objects, other_inner, others)?),
        (Type::Token, Type::Token) => Ok(true),
        (
            Type::Opaque { name, object },
            Type::Opaque { name: other_name, object: other_object },
        ) => Ok(name == other_name && objects.same(*object, others, *other_object)?),
        _ => Ok(false),
    }
}
