//! Whether two programs are structurally equal.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{
    AtomKind, ContextId, Effect, EffectsId, Eqn, EqnData, ForeignId, LiteralData, ParamValue,
    ParamsId, PrimitiveId, Program, Subprogram, Type, TypeId, Var,
};

use super::{Nested, Objects, Purpose};

/// Whether two programs are equal, nested programs included.
///
/// # Errors
/// Objects cannot be compared.
pub fn equal<O: Objects>(
    one: Nested<O>,
    another: Nested<O>,
    purpose: Purpose,
) -> Result<bool, O::Error> {
    // A pair is assumed to be equal until one of all pairs is found not to be.
    let mut assumed: FxHashSet<(usize, usize)> = FxHashSet::default();
    let roots = (one.key, another.key);
    let mut pending = vec![(one, another)];
    while let Some((one, another)) = pending.pop() {
        let keys = (one.key, another.key);
        if one.key == another.key || !assumed.insert(keys) {
            continue;
        }
        let mut pair = Pair::new(&one, &another, purpose, keys == roots);
        if !pair.is_equal()? {
            return Ok(false);
        }
        pending.extend(pair.within.into_iter().map(|within| within.programs.into()));
    }
    Ok(true)
}

/// What differs between two equations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The primitive. Params of different ones are not compared.
    Primitive,
    /// A param, by its name.
    Param(Box<str>),
    /// The context.
    Context,
    /// An operand, or how many there are.
    Operand(usize),
    /// The type of an output, or how many there are.
    Output(usize),
    /// The effects.
    Effects,
}

/// Two programs nested in others, at the same place.
pub struct Within<O> {
    /// The program and the other one.
    pub programs: [Nested<O>; 2],
    /// The param that they are in.
    pub param: Box<str>,
}

/// Two programs side by side. Which variables are taken for one is told to it.
pub(crate) struct Pair<'a, O> {
    one: &'a Nested<O>,
    another: &'a Nested<O>,
    purpose: Purpose,
    /// Whether constants are inputs, which come first.
    pub(crate) constants_are_inputs: bool,
    /// The same number for variables that are taken for one.
    vars: SecondaryMap<Var, u32>,
    other_vars: SecondaryMap<Var, u32>,
    next: u32,
    /// Whether rows of tables, which many equations share, are equal.
    types: FxHashMap<(TypeId, TypeId), bool>,
    /// The names of params that differ.
    params: FxHashMap<[(PrimitiveId, ParamsId); 2], Vec<&'a str>>,
    contexts: FxHashMap<(ContextId, ContextId), bool>,
    primitives: FxHashMap<(PrimitiveId, PrimitiveId), bool>,
    /// Nested programs that have to be equal.
    pub(crate) within: Vec<Within<O>>,
}

impl<'a, O: Objects> Pair<'a, O> {
    pub(crate) fn new(
        one: &'a Nested<O>,
        another: &'a Nested<O>,
        purpose: Purpose,
        is_root: bool,
    ) -> Self {
        let vars = |of: &Nested<O>| {
            let mut vars = SecondaryMap::with_default(u32::MAX);
            vars.resize(of.program.num_vars());
            vars
        };
        Self {
            one,
            another,
            purpose,
            constants_are_inputs: purpose == Purpose::Execution && is_root,
            vars: vars(one),
            other_vars: vars(another),
            next: 0,
            types: FxHashMap::default(),
            params: FxHashMap::default(),
            contexts: FxHashMap::default(),
            primitives: FxHashMap::default(),
            within: Vec::new(),
        }
    }

    /// Whether the programs are equal if nested ones are; the first difference ends it.
    fn is_equal(&mut self) -> Result<bool, O::Error> {
        let (one, another) = (&self.one.program, &self.another.program);
        let (own, others) = (one.constvars().len(), another.constvars().len());
        if own + one.invars().len() != others + another.invars().len()
            || (own != others && !self.constants_are_inputs)
            || one.num_eqns() != another.num_eqns()
            || one.outvars().len() != another.outvars().len()
        {
            return Ok(false);
        }
        for index in 0..if self.constants_are_inputs { 0 } else { own } {
            if !self.same_constant(index, index)? {
                return Ok(false);
            }
        }
        for (var, other) in inputs(one).zip(inputs(another)) {
            self.unify(var, other);
            if !self.same_type(one.var_type(var), another.var_type(other))? {
                return Ok(false);
            }
        }
        let mut is_equal = true;
        for (eqn, other) in one.eqns().zip(another.eqns()) {
            self.unify_outputs(eqn, other);
            self.eqn(eqn, other, &mut |_| is_equal = false)?;
            if !is_equal {
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

    /// Takes two variables for one.
    pub(crate) fn unify(&mut self, var: Var, other: Var) {
        self.vars[var] = self.next;
        self.other_vars[other] = self.next;
        self.next += 1;
    }

    /// Takes the outputs of two equations for one another's, as many as both have.
    pub(crate) fn unify_outputs(&mut self, eqn: Eqn, other: Eqn) {
        let outputs = self.one.program.eqn_outvars(eqn);
        for (var, other) in outputs.zip(self.another.program.eqn_outvars(other)) {
            self.unify(var, other);
        }
    }

    fn is_one(&self, var: Var, other: Var) -> bool {
        self.vars[var] == self.other_vars[other] && self.vars[var] != u32::MAX
    }

    /// Whether the values of two constants count as the same.
    pub(crate) fn same_constant(&self, index: usize, other: usize) -> Result<bool, O::Error> {
        let value = self.one.program.constvars()[index].1;
        let other = self.another.program.constvars()[other].1;
        Ok(self.purpose == Purpose::Structure
            || self.one.objects.same_constant(value, &self.another.objects, other)?)
    }

    /// Shows what differs between two equations.
    pub(crate) fn eqn(
        &mut self,
        eqn: Eqn,
        other: Eqn,
        found: &mut impl FnMut(Place),
    ) -> Result<(), O::Error> {
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
        if self.primitive(primitive, data.primitive)? {
            let ids = [(primitive, params), (data.primitive, data.params)];
            for name in self.params(ids)? {
                found(Place::Param(name.into()));
            }
        } else {
            found(Place::Primitive);
        }
        if !self.context(context, data.context)? {
            found(Place::Context);
        }
        let (operands, other_operands) = (one.eqn_invars(eqn), another.eqn_invars(other));
        for (index, (operand, its)) in operands.iter().zip(other_operands).enumerate() {
            if !self.atom(operand.kind(), its.kind())? {
                found(Place::Operand(index));
            }
        }
        if operands.len() != other_operands.len() {
            found(Place::Operand(operands.len().min(other_operands.len())));
        }
        let outvars = one.eqn_outvars(eqn).zip(another.eqn_outvars(other));
        for (index, (var, its)) in outvars.enumerate() {
            if !self.same_type(one.var_type(var), another.var_type(its))? {
                found(Place::Output(index));
            }
        }
        if num_outvars != data.num_outvars {
            found(Place::Output(num_outvars.min(data.num_outvars) as usize));
        }
        if !self.effects(effects, data.effects)? {
            found(Place::Effects);
        }
        Ok(())
    }

    /// Whether two operands are one variable, or the same literal.
    pub(crate) fn atom(&mut self, atom: AtomKind, other: AtomKind) -> Result<bool, O::Error> {
        match (atom, other) {
            (AtomKind::Var(var), AtomKind::Var(other)) => Ok(self.is_one(var, other)),
            (AtomKind::Literal(literal), AtomKind::Literal(other)) => {
                let LiteralData { ty, object } = *self.one.program.literal(literal);
                let other = *self.another.program.literal(other);
                Ok(self.same_type(ty, other.ty)? && self.same(object, other.object)?)
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
    pub(crate) fn effects(&self, effects: EffectsId, others: EffectsId) -> Result<bool, O::Error> {
        let effects = self.one.program.effect_list(effects);
        let mut others: Vec<&Effect> = self.another.program.effect_list(others).iter().collect();
        if effects.len() != others.len() {
            return Ok(false);
        }
        for Effect { name, input, object } in effects {
            let mut found = None;
            for (index, other) in others.iter().enumerate() {
                let is_of_one = match (input, other.input) {
                    (Some(var), Some(other)) => self.is_one(*var, other),
                    (own, other) => *own == other,
                };
                if other.name == *name && is_of_one && self.same(*object, other.object)? {
                    found = Some(index);
                    break;
                }
            }
            let Some(found) = found else { return Ok(false) };
            others.swap_remove(found);
        }
        Ok(true)
    }

    /// Whether two types are the same.
    pub(crate) fn same_type(&mut self, id: TypeId, other: TypeId) -> Result<bool, O::Error> {
        if let Some(&known) = self.types.get(&(id, other)) {
            return Ok(known);
        }
        let (own, others) = (self.one.program.ty(id), self.another.program.ty(other));
        let equal = same_type(own, &self.one.objects, others, &self.another.objects)?;
        self.types.insert((id, other), equal);
        Ok(equal)
    }

    /// The names of the params that differ, of two equations of one primitive.
    fn params(&mut self, ids: [(PrimitiveId, ParamsId); 2]) -> Result<Vec<&'a str>, O::Error> {
        if let Some(known) = self.params.get(&ids) {
            return Ok(known.clone());
        }
        let [(primitive, id), (_, other)] = ids;
        let (own, others) = (self.one.program.params(id), self.another.program.params(other));
        let primitive = self.one.program.primitive(primitive);
        let mut differing = Vec::new();
        // Both are sorted by name.
        let (mut own, mut others) = (own.iter().peekable(), others.iter().peekable());
        loop {
            let (name, values) = match (own.peek().copied(), others.peek().copied()) {
                (Some((name, value)), Some((other_name, other))) if name == other_name => {
                    (name, Some((value, other)))
                }
                (Some((name, _)), Some((other_name, _))) => (name.min(other_name), None),
                (Some((name, _)), None) | (None, Some((name, _))) => (name, None),
                (None, None) => break,
            };
            own.next_if(|(own_name, _)| *own_name == name);
            others.next_if(|(other_name, _)| *other_name == name);
            let is_same = match values {
                Some((value, other)) => {
                    (self.purpose == Purpose::Execution
                        && !self.one.objects.is_executed(primitive, name))
                        || self.value(value, other, name)?
                }
                None => false,
            };
            if !is_same {
                differing.push(name);
            }
        }
        self.params.insert(ids, differing.clone());
        Ok(differing)
    }

    /// The embedding bounds how deep a value is.
    fn value(
        &mut self,
        value: &ParamValue,
        other: &ParamValue,
        param: &str,
    ) -> Result<bool, O::Error> {
        let all = |pair: &mut Self, items: &[ParamValue], others: &[ParamValue]| {
            if items.len() != others.len() {
                return Ok(false);
            }
            for (item, other) in items.iter().zip(others) {
                if !pair.value(item, other, param)? {
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
                    if !self.value(key, other_key, param)? || !self.value(item, other, param)? {
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
                    if name != other_name || !self.value(item, other, param)? {
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
                self.within.push(Within { programs: [own, others], param: param.into() });
                Ok(true)
            }
            (ParamValue::Opaque(object), ParamValue::Opaque(other)) => self.same(*object, *other),
            // Neither has anything of the embedding's in it.
            _ => Ok(value == other),
        }
    }
}

/// Constants, then inputs.
pub(crate) fn inputs(program: &Program) -> impl Iterator<Item = Var> {
    let constants = program.constvars().iter().map(|&(var, _)| var);
    constants.chain(program.invars().iter().copied())
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
