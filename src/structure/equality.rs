//! Whether two programs say the same.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{
    AtomKind, ContextId, Effect, EffectsId, Eqn, EqnData, ForeignId, LiteralData, ParamValue,
    ParamsId, PrimitiveId, Program, Subprogram, Type, TypeId, Var,
};

use super::{Nested, Objects, Purpose};

/// Whether two programs are equal, those within them included.
///
/// # Errors
/// Objects cannot be compared.
pub fn equal<O: Objects>(
    one: Nested<O>,
    another: Nested<O>,
    purpose: Purpose,
) -> Result<bool, O::Error> {
    let mut equal = true;
    differences(one, another, purpose, |_| {
        equal = false;
        false
    })?;
    Ok(equal)
}

/// Where two programs differ.
pub struct Difference<'a, O> {
    /// The program and the other one: those given, or two within them.
    pub programs: [&'a Nested<O>; 2],
    /// The equations that they are within, from the outermost on; of the other program.
    pub path: &'a [Eqn],
    /// What differs.
    pub place: Place<'a>,
}

/// What differs between two programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// How many inputs there are, constants included.
    NumInputs,
    /// The type of a constant or input, by its place among these.
    Input(usize),
    /// The value of a constant.
    Constant(usize),
    /// How many equations there are, those before being the same.
    NumEqns,
    /// The primitive of an equation; those after it are not compared.
    Primitive(Eqn),
    /// A param of an equation.
    Param(Eqn, &'a str),
    /// The context of an equation.
    Context(Eqn),
    /// An operand of an equation, or how many there are.
    Operand(Eqn, usize),
    /// The type of an output of an equation, or how many there are.
    Output(Eqn, usize),
    /// The effects of an equation.
    Effects(Eqn),
    /// A result, or how many there are.
    Result(usize),
    /// The effects of the program.
    ProgramEffects,
}

/// Shows where two programs differ to `found`, which says whether to go on.
///
/// # Errors
/// Objects cannot be compared.
pub fn differences<O: Objects>(
    one: Nested<O>,
    another: Nested<O>,
    purpose: Purpose,
    mut found: impl FnMut(Difference<'_, O>) -> bool,
) -> Result<(), O::Error> {
    // A pair is assumed to be equal until one of all pairs is found not to be.
    let mut assumed: FxHashSet<(usize, usize)> = FxHashSet::default();
    let roots = (one.key, another.key);
    let mut pending = vec![(one, another, Vec::new())];
    while let Some((one, another, path)) = pending.pop() {
        if one.key == another.key || !assumed.insert((one.key, another.key)) {
            continue;
        }
        let mut pair = Pair {
            one: &one,
            another: &another,
            purpose,
            is_root: (one.key, another.key) == roots,
            vars: SecondaryMap::with_default(u32::MAX),
            other_vars: SecondaryMap::with_default(u32::MAX),
            next: 0,
            types: FxHashMap::default(),
            params: FxHashMap::default(),
            contexts: FxHashMap::default(),
            primitives: FxHashMap::default(),
            within: Vec::new(),
        };
        let programs = [&one, &another];
        let mut found = |place| found(Difference { programs, path: &path, place });
        if pair.compare(&mut found)? == Flow::Stop {
            return Ok(());
        }
        for (inner, other, eqn) in pair.within {
            let mut path = path.clone();
            path.push(eqn);
            pending.push((inner, other, path));
        }
    }
    Ok(())
}

/// Whether to look for more differences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoOn,
    /// This program is no further comparable.
    Leave,
    Stop,
}

/// Shows a difference.
macro_rules! differs {
    ($found:expr, $place:expr, $then:expr) => {
        if !$found($place) {
            return Ok(Flow::Stop);
        } else if $then == Flow::Leave {
            return Ok(Flow::Leave);
        }
    };
}

/// Two programs side by side.
struct Pair<'a, O> {
    one: &'a Nested<O>,
    another: &'a Nested<O>,
    purpose: Purpose,
    is_root: bool,
    /// The place of each variable in the order of definition.
    vars: SecondaryMap<Var, u32>,
    other_vars: SecondaryMap<Var, u32>,
    next: u32,
    /// Whether rows of tables, which many equations share, are equal.
    types: FxHashMap<(TypeId, TypeId), bool>,
    /// The names of params that differ.
    params: FxHashMap<[(PrimitiveId, ParamsId); 2], Vec<&'a str>>,
    contexts: FxHashMap<(ContextId, ContextId), bool>,
    primitives: FxHashMap<(PrimitiveId, PrimitiveId), bool>,
    /// Programs within that have to be equal, and the other's equations that they are in.
    within: Vec<(Nested<O>, Nested<O>, Eqn)>,
}

impl<'a, O: Objects> Pair<'a, O> {
    fn compare(&mut self, found: &mut impl FnMut(Place<'a>) -> bool) -> Result<Flow, O::Error> {
        let (one, another) = (&self.one.program, &self.another.program);
        let constants_are_inputs = self.purpose == Purpose::Execution && self.is_root;
        let (own, others) = (one.constvars().len(), another.constvars().len());
        if own + one.invars().len() != others + another.invars().len()
            || (own != others && !constants_are_inputs)
        {
            differs!(found, Place::NumInputs, Flow::Leave);
        }
        if self.purpose != Purpose::Structure && !constants_are_inputs {
            let constants = one.constvars().iter().zip(another.constvars());
            for (index, (&(_, value), &(_, other))) in constants.enumerate() {
                if !self.one.objects.same_constant(value, &self.another.objects, other)? {
                    differs!(found, Place::Constant(index), Flow::GoOn);
                }
            }
        }
        for (index, (var, other)) in inputs(one).zip(inputs(another)).enumerate() {
            if !self.define(var, other)? {
                differs!(found, Place::Input(index), Flow::GoOn);
            }
        }
        for (eqn, other) in one.eqns().zip(another.eqns()) {
            match self.eqn(eqn, other, found)? {
                Flow::GoOn => {}
                end => return Ok(end),
            }
        }
        if one.num_eqns() != another.num_eqns() {
            differs!(found, Place::NumEqns, Flow::Leave);
        }
        let results = one.outvars().len();
        if results != another.outvars().len() {
            differs!(found, Place::Result(results.min(another.outvars().len())), Flow::GoOn);
        }
        for (index, (atom, other)) in one.outvars().iter().zip(another.outvars()).enumerate() {
            if !self.atom(atom.kind(), other.kind())? {
                differs!(found, Place::Result(index), Flow::GoOn);
            }
        }
        if !self.effects(one.effects(), another.effects())? {
            differs!(found, Place::ProgramEffects, Flow::GoOn);
        }
        Ok(Flow::GoOn)
    }

    fn define(&mut self, var: Var, other: Var) -> Result<bool, O::Error> {
        self.vars[var] = self.next;
        self.other_vars[other] = self.next;
        self.next += 1;
        self.ty(self.one.program.var_type(var), self.another.program.var_type(other))
    }

    fn eqn(
        &mut self,
        eqn: Eqn,
        other: Eqn,
        found: &mut impl FnMut(Place<'a>) -> bool,
    ) -> Result<Flow, O::Error> {
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
        if !self.primitive(primitive, data.primitive)? {
            differs!(found, Place::Primitive(other), Flow::Leave);
        }
        let ids = [(primitive, params), (data.primitive, data.params)];
        for name in self.params(ids, other)? {
            differs!(found, Place::Param(other, name), Flow::GoOn);
        }
        if !self.context(context, data.context)? {
            differs!(found, Place::Context(other), Flow::GoOn);
        }
        let (operands, other_operands) = (one.eqn_invars(eqn), another.eqn_invars(other));
        if operands.len() != other_operands.len() {
            let first = operands.len().min(other_operands.len());
            differs!(found, Place::Operand(other, first), Flow::GoOn);
        }
        for (index, (operand, its)) in operands.iter().zip(other_operands).enumerate() {
            if !self.atom(operand.kind(), its.kind())? {
                differs!(found, Place::Operand(other, index), Flow::GoOn);
            }
        }
        if num_outvars != data.num_outvars {
            // From here on variables are others.
            let first = num_outvars.min(data.num_outvars) as usize;
            differs!(found, Place::Output(other, first), Flow::Leave);
        }
        let outvars = one.eqn_outvars(eqn).zip(another.eqn_outvars(other));
        for (index, (var, its)) in outvars.enumerate() {
            if !self.define(var, its)? {
                differs!(found, Place::Output(other, index), Flow::GoOn);
            }
        }
        if !self.effects(effects, data.effects)? {
            differs!(found, Place::Effects(other), Flow::GoOn);
        }
        Ok(Flow::GoOn)
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

    /// The names of the params that differ, of two equations of one primitive.
    fn params(
        &mut self,
        ids: [(PrimitiveId, ParamsId); 2],
        eqn: Eqn,
    ) -> Result<Vec<&'a str>, O::Error> {
        if let Some(known) = self.params.get(&ids) {
            return Ok(known.clone());
        }
        let [(primitive, id), (_, other)] = ids;
        let (own, others) = (self.one.program.params(id), self.another.program.params(other));
        let primitive = self.one.program.primitive(primitive);
        let mut differing = Vec::new();
        if own.len() != others.len() {
            let name = |(name, _): (&'a str, _)| name;
            let all: FxHashSet<&str> = own.iter().map(name).collect();
            differing.extend(others.iter().map(name).find(|name| !all.contains(name)));
            let all: FxHashSet<&str> = others.iter().map(name).collect();
            differing.extend(own.iter().map(name).find(|name| !all.contains(name)));
        }
        for ((name, value), (other_name, other)) in own.iter().zip(others.iter()) {
            let counts =
                self.purpose != Purpose::Execution || self.one.objects.is_executed(primitive, name);
            if name != other_name || (counts && !self.value(value, other, eqn)?) {
                differing.push(other_name);
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
        eqn: Eqn,
    ) -> Result<bool, O::Error> {
        let all = |pair: &mut Self, items: &[ParamValue], others: &[ParamValue]| {
            if items.len() != others.len() {
                return Ok(false);
            }
            for (item, other) in items.iter().zip(others) {
                if !pair.value(item, other, eqn)? {
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
                    if !self.value(key, other_key, eqn)? || !self.value(item, other, eqn)? {
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
                    if name != other_name || !self.value(item, other, eqn)? {
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
                self.within.push((own, others, eqn));
                Ok(true)
            }
            (ParamValue::Opaque(object), ParamValue::Opaque(other)) => self.same(*object, *other),
            // Neither has anything of the embedding's in it.
            _ => Ok(value == other),
        }
    }
}

/// Constants, then inputs.
fn inputs(program: &Program) -> impl Iterator<Item = Var> {
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
