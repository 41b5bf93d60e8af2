//! The stable hash of a program.

use std::fmt;
use std::sync::Arc;

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::Xxh3;

use crate::ir::{
    ArrayType, AtomKind, ContextId, Dim, Effect, EffectsId, Eqn, EqnData, LiteralData, ParamValue,
    ParamsId, PrimitiveData, PrimitiveId, Program, SubprogramId, Type, TypeId, Var,
};

use super::{Nested, Objects, Purpose, VERSION};

/// 128 bits that stand for what was fed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u128);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A stream of tagged values that has a fingerprint.
pub struct StableHasher(Xxh3);

impl Default for StableHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl StableHasher {
    /// Nothing but the version.
    pub fn new() -> Self {
        let mut hasher = Self(Xxh3::new());
        hasher.number(VERSION.into());
        hasher
    }

    /// A number, or which of several alternatives follows.
    pub fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn len(&mut self, len: usize) {
        self.number(len as u64);
    }

    /// Bytes, with their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.update(bytes);
    }

    /// What something else was fed.
    pub fn fingerprint(&mut self, fingerprint: Fingerprint) {
        self.0.update(&fingerprint.0.to_le_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        self.number(text.is_some().into());
        if let Some(text) = text {
            self.bytes(text.as_bytes());
        }
    }

    /// What stands for all that was fed.
    pub fn finish(&self) -> Fingerprint {
        Fingerprint(self.0.digest128())
    }
}

/// The fingerprint of a program.
///
/// # Errors
/// An object cannot be described.
pub fn fingerprint<O: Objects>(
    program: Nested<O>,
    purpose: Purpose,
) -> Result<Fingerprint, O::Error> {
    let root = program.key;
    Ok(fingerprints(program, purpose)?[&root])
}

/// The fingerprints of a program and of all within it, by key.
///
/// # Errors
/// An object cannot be described.
pub fn fingerprints<O: Objects>(
    program: Nested<O>,
    purpose: Purpose,
) -> Result<FxHashMap<usize, Fingerprint>, O::Error> {
    let root = program.key;
    let mut known = FxHashMap::default();
    each_once(program, &mut known, purpose, |reading| {
        Reading { is_root: reading.key() == root, ..reading }.fingerprint()
    })?;
    Ok(known)
}

/// Has a program and all within it read, those that are not known yet; nested ones come first.
///
/// # Errors
/// An object cannot be described.
pub(crate) fn each_once<O: Objects>(
    program: Nested<O>,
    known: &mut FxHashMap<usize, Fingerprint>,
    purpose: Purpose,
    mut read: impl FnMut(Reading<'_, O>) -> Result<Fingerprint, O::Error>,
) -> Result<(), O::Error> {
    let mut pending = vec![Pending::new(program)?];
    while let Some(mut next) = pending.pop() {
        if let Some(inner) = next.within.pop() {
            pending.push(next);
            if !known.contains_key(&inner.key) {
                pending.push(Pending::new(inner)?);
            }
            continue;
        }
        let key = next.program.key;
        let own = read(Reading { pending: &next, known, purpose, is_root: false })?;
        known.insert(key, own);
    }
    Ok(())
}

/// What a program says, step by step: what stands for all up to and including an equation.
pub struct Step<O> {
    /// Whose it is: the program, or one within it.
    pub program: Nested<O>,
    /// What was added.
    pub added: Added,
    /// What stands for this program up to here.
    pub fingerprint: Fingerprint,
}

/// What a step adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Constants and inputs.
    Inputs,
    /// An equation.
    Eqn(Eqn),
    /// The results and the effects of the program.
    Results,
}

/// The steps of a program. Those of a nested program come before the step of its equation, so that
/// two programs differ first where they differ innermost.
///
/// # Errors
/// An object cannot be described.
pub fn steps<O: Objects + Clone>(
    program: Nested<O>,
    purpose: Purpose,
) -> Result<Vec<Step<O>>, O::Error> {
    let known = fingerprints(program.clone(), purpose)?;
    let root = program.key;
    let mut all = Vec::new();
    let mut pending = vec![Progress::new(program, purpose, &known, root)?];
    while let Some(mut next) = pending.pop() {
        // Nested programs of the equation that comes next are first.
        if let Some(inner) = next.within.pop() {
            pending.push(next);
            pending.push(Progress::new(inner, purpose, &known, root)?);
            continue;
        }
        let (step, is_last) = next.advance(&known)?;
        all.push(step);
        if !is_last {
            pending.push(next);
        }
    }
    Ok(all)
}

/// A program whose steps are being made.
struct Progress<O> {
    pending: Pending<O>,
    purpose: Purpose,
    is_root: bool,
    hasher: StableHasher,
    rows: Rows,
    eqns: Vec<Eqn>,
    /// How many steps were made, the inputs counted.
    made: usize,
    /// Nested programs of the equation of the next step.
    within: Vec<Nested<O>>,
}

impl<O: Objects + Clone> Progress<O> {
    fn new(
        program: Nested<O>,
        purpose: Purpose,
        known: &FxHashMap<usize, Fingerprint>,
        root: usize,
    ) -> Result<Self, O::Error> {
        let is_root = program.key == root;
        let pending = Pending::new(program)?;
        let eqns = pending.program.program.eqns().collect();
        let (hasher, rows, within) = (StableHasher::new(), Rows::default(), Vec::new());
        let mut own = Self { pending, purpose, is_root, hasher, rows, eqns, made: 0, within };
        let Self { pending, hasher, rows, .. } = &mut own;
        Reading { pending, known, purpose, is_root }.inputs(hasher, rows)?;
        Ok(own)
    }

    /// The next step, and whether it is the last.
    fn advance(
        &mut self,
        known: &FxHashMap<usize, Fingerprint>,
    ) -> Result<(Step<O>, bool), O::Error> {
        let Self { pending, purpose, is_root, hasher, rows, eqns, made, within } = self;
        let reading = Reading { pending, known, purpose: *purpose, is_root: *is_root };
        let program = reading.program().clone();
        let added = match made.checked_sub(1) {
            None => Added::Inputs,
            Some(index) => eqns.get(index).map_or(Added::Results, |&eqn| Added::Eqn(eqn)),
        };
        match added {
            Added::Inputs => {}
            Added::Eqn(eqn) => reading.eqn(hasher, rows, eqn)?,
            Added::Results => reading.results(hasher, rows)?,
        }
        if let Some(&next) = eqns.get(*made) {
            for id in program.params(program.eqn(next).params).subprograms() {
                within.push(reading.objects().nested(program.subprogram(id))?);
            }
            within.reverse();
        }
        *made += 1;
        let step = Step { program: pending.program.clone(), added, fingerprint: hasher.finish() };
        Ok((step, added == Added::Results))
    }
}

/// A program whose nested programs are looked through first.
struct Pending<O> {
    program: Nested<O>,
    within: Vec<Nested<O>>,
    keys: FxHashMap<SubprogramId, usize>,
}

impl<O: Objects> Pending<O> {
    fn new(program: Nested<O>) -> Result<Self, O::Error> {
        let mut within = Vec::new();
        let mut keys = FxHashMap::default();
        for (id, subprogram) in program.program.subprograms() {
            let nested = program.objects.nested(subprogram)?;
            keys.insert(id, nested.key);
            within.push(nested);
        }
        Ok(Self { program, within, keys })
    }
}

/// One program that is read; its nested programs are known.
pub(crate) struct Reading<'a, O> {
    pending: &'a Pending<O>,
    known: &'a FxHashMap<usize, Fingerprint>,
    purpose: Purpose,
    is_root: bool,
}

/// What is fed for rows of tables, which many equations share.
pub(crate) struct Rows {
    types: SecondaryMap<TypeId, Option<Fingerprint>>,
    params: FxHashMap<(PrimitiveId, ParamsId), Fingerprint>,
    primitives: FxHashMap<PrimitiveId, Fingerprint>,
    contexts: FxHashMap<ContextId, Fingerprint>,
    /// The place of each variable in the order of definition.
    places: SecondaryMap<Var, u32>,
    next: u32,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            types: SecondaryMap::new(),
            params: FxHashMap::default(),
            primitives: FxHashMap::default(),
            contexts: FxHashMap::default(),
            places: SecondaryMap::with_default(u32::MAX),
            next: 0,
        }
    }
}

impl<O: Objects> Reading<'_, O> {
    /// The key of the program.
    pub(crate) fn key(&self) -> usize {
        self.pending.program.key
    }

    /// The program.
    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.pending.program.program
    }

    pub(crate) fn objects(&self) -> &O {
        &self.pending.program.objects
    }

    fn fingerprint(&self) -> Result<Fingerprint, O::Error> {
        let (mut hasher, mut rows) = (StableHasher::new(), Rows::default());
        self.inputs(&mut hasher, &mut rows)?;
        for eqn in self.program().eqns() {
            self.eqn(&mut hasher, &mut rows, eqn)?;
        }
        self.results(&mut hasher, &mut rows)?;
        Ok(hasher.finish())
    }

    fn inputs(&self, hasher: &mut StableHasher, rows: &mut Rows) -> Result<(), O::Error> {
        let program = self.program();
        let constants_are_inputs = self.purpose == Purpose::Execution && self.is_root;
        let (constants, inputs) = (program.constvars().len(), program.invars().len());
        if constants_are_inputs {
            hasher.len(0);
            hasher.len(constants + inputs);
        } else {
            hasher.len(constants);
        }
        for &(var, value) in program.constvars() {
            self.define(hasher, rows, var)?;
            if self.purpose != Purpose::Structure && !constants_are_inputs {
                hasher.fingerprint(self.objects().describe_constant(value)?);
            }
        }
        if !constants_are_inputs {
            hasher.len(inputs);
        }
        for &var in program.invars() {
            self.define(hasher, rows, var)?;
        }
        Ok(())
    }

    fn results(&self, hasher: &mut StableHasher, rows: &mut Rows) -> Result<(), O::Error> {
        let program = self.program();
        // In the place of another equation.
        hasher.number(0);
        hasher.len(program.outvars().len());
        for atom in program.outvars() {
            self.atom(hasher, rows, atom.kind())?;
        }
        self.effects(hasher, rows, program.effects())
    }

    fn define(&self, hasher: &mut StableHasher, rows: &mut Rows, var: Var) -> Result<(), O::Error> {
        rows.places[var] = rows.next;
        rows.next += 1;
        let ty = self.type_fingerprint(rows, self.program().var_type(var))?;
        hasher.fingerprint(ty);
        Ok(())
    }

    fn eqn(&self, hasher: &mut StableHasher, rows: &mut Rows, id: Eqn) -> Result<(), O::Error> {
        let program = self.program();
        // A new field has to be decided on here.
        let EqnData {
            primitive,
            params,
            effects,
            source: _,
            context,
            invars: _,
            first_outvar: _,
            num_outvars: _,
        } = *program.eqn(id);
        hasher.number(1);
        hasher.fingerprint(self.primitive(rows, primitive)?);
        hasher.fingerprint(self.params(rows, primitive, params)?);
        let operands = program.eqn_invars(id);
        hasher.len(operands.len());
        for operand in operands {
            self.atom(hasher, rows, operand.kind())?;
        }
        let outvars = program.eqn_outvars(id);
        hasher.len(outvars.len());
        for var in outvars {
            self.define(hasher, rows, var)?;
        }
        self.effects(hasher, rows, effects)?;
        hasher.fingerprint(self.context(rows, context)?);
        Ok(())
    }

    fn atom(
        &self,
        hasher: &mut StableHasher,
        rows: &mut Rows,
        atom: AtomKind,
    ) -> Result<(), O::Error> {
        match atom {
            AtomKind::Var(var) => hasher.number(u64::from(rows.places[var]) << 1),
            AtomKind::Literal(literal) => {
                hasher.number(1);
                let LiteralData { ty, object } = *self.program().literal(literal);
                hasher.fingerprint(self.type_fingerprint(rows, ty)?);
                hasher.fingerprint(self.objects().describe(object)?);
            }
        }
        Ok(())
    }

    fn effects(
        &self,
        hasher: &mut StableHasher,
        rows: &Rows,
        effects: EffectsId,
    ) -> Result<(), O::Error> {
        let effects = self.program().effect_list(effects);
        hasher.len(effects.len());
        // Their order is that of the table.
        let mut all = Vec::with_capacity(effects.len());
        for Effect { name, input, object } in effects {
            let mut effect = StableHasher::new();
            effect.bytes(name.as_bytes());
            effect.number(input.map_or(u64::MAX, |var| rows.places[var].into()));
            effect.fingerprint(self.objects().describe(*object)?);
            all.push(effect.finish());
        }
        all.sort_unstable();
        for effect in all {
            hasher.fingerprint(effect);
        }
        Ok(())
    }

    pub(crate) fn context(&self, rows: &mut Rows, id: ContextId) -> Result<Fingerprint, O::Error> {
        if let Some(&known) = rows.contexts.get(&id) {
            return Ok(known);
        }
        let own = self.objects().describe(self.program().context(id))?;
        rows.contexts.insert(id, own);
        Ok(own)
    }

    pub(crate) fn primitive(
        &self,
        rows: &mut Rows,
        id: PrimitiveId,
    ) -> Result<Fingerprint, O::Error> {
        if let Some(&known) = rows.primitives.get(&id) {
            return Ok(known);
        }
        let PrimitiveData { name, multiple_results, object } = self.program().primitive(id);
        let mut hasher = StableHasher::new();
        hasher.bytes(name.as_bytes());
        hasher.number((*multiple_results).into());
        hasher.fingerprint(self.objects().describe(*object)?);
        let own = hasher.finish();
        rows.primitives.insert(id, own);
        Ok(own)
    }

    pub(crate) fn type_fingerprint(
        &self,
        rows: &mut Rows,
        id: TypeId,
    ) -> Result<Fingerprint, O::Error> {
        if let Some(known) = rows.types[id] {
            return Ok(known);
        }
        let mut hasher = StableHasher::new();
        if self.purpose == Purpose::Execution
            && let Some(besides) = self.objects().settle_type(id, self.program().ty(id))?
        {
            hasher.fingerprint(besides);
        }
        self.ty(&mut hasher, self.program().ty(id))?;
        let own = hasher.finish();
        rows.types[id] = Some(own);
        Ok(own)
    }

    fn ty(&self, hasher: &mut StableHasher, ty: &Type) -> Result<(), O::Error> {
        match ty {
            Type::Array(array) => {
                let ArrayType {
                    dtype,
                    shape,
                    weak_type,
                    sharding,
                    manual_axis_type,
                    memory_space,
                    layout,
                } = array;
                hasher.number(0);
                hasher.bytes(dtype.name().as_bytes());
                hasher.len(shape.len());
                for dim in shape {
                    match dim {
                        Dim::Static(size) => {
                            hasher.number(0);
                            hasher.number(*size);
                        }
                        Dim::Symbolic(expression) => {
                            hasher.number(1);
                            hasher.bytes(expression.as_bytes());
                        }
                    }
                }
                hasher.number((*weak_type).into());
                for field in [sharding, manual_axis_type, memory_space, layout] {
                    hasher.optional(field.as_deref());
                }
            }
            Type::Ref { inner, memory_space, kind } => {
                hasher.number(1);
                self.ty(hasher, inner)?;
                hasher.optional(memory_space.as_deref());
                hasher.optional(kind.as_deref());
            }
            Type::Token => hasher.number(2),
            Type::Opaque { name, object } => {
                if let Some(described) = self.objects().type_of(*object)? {
                    return self.ty(hasher, &described);
                }
                hasher.number(3);
                hasher.bytes(name.as_bytes());
                hasher.fingerprint(self.objects().describe(*object)?);
            }
        }
        Ok(())
    }

    pub(crate) fn params(
        &self,
        rows: &mut Rows,
        primitive: PrimitiveId,
        id: ParamsId,
    ) -> Result<Fingerprint, O::Error> {
        if let Some(&known) = rows.params.get(&(primitive, id)) {
            return Ok(known);
        }
        let mut hasher = StableHasher::new();
        let of = self.program().primitive(primitive);
        for (name, value) in self.program().params(id).iter() {
            hasher.bytes(name.as_bytes());
            if self.purpose != Purpose::Execution || self.objects().is_executed(of, name) {
                self.value(&mut hasher, value)?;
            }
        }
        let own = hasher.finish();
        rows.params.insert((primitive, id), own);
        Ok(own)
    }

    fn settle_class(&self, name: &str) -> Result<(), O::Error> {
        if self.purpose == Purpose::Execution { self.objects().settle_class(name) } else { Ok(()) }
    }

    /// The embedding bounds how deep a value is.
    fn value(&self, hasher: &mut StableHasher, value: &ParamValue) -> Result<(), O::Error> {
        match value {
            ParamValue::None => hasher.number(0),
            ParamValue::Bool(value) => {
                hasher.number(1);
                hasher.number((*value).into());
            }
            ParamValue::Int(value) => {
                hasher.number(2);
                hasher.number(value.cast_unsigned());
            }
            ParamValue::BigInt(digits) => {
                hasher.number(3);
                hasher.bytes(digits.as_bytes());
            }
            ParamValue::Float(bits) => {
                hasher.number(4);
                hasher.number(*bits);
            }
            ParamValue::Complex(real, imaginary) => {
                hasher.number(5);
                hasher.number(*real);
                hasher.number(*imaginary);
            }
            ParamValue::Str(value) => {
                hasher.number(6);
                hasher.bytes(value.as_bytes());
            }
            ParamValue::Bytes(bytes) => {
                hasher.number(7);
                hasher.bytes(bytes);
            }
            ParamValue::DType(dtype) => {
                hasher.number(8);
                hasher.bytes(dtype.name().as_bytes());
            }
            ParamValue::Dim(expression) => {
                hasher.number(9);
                hasher.bytes(expression.as_bytes());
            }
            ParamValue::Enum { type_name, member } => {
                hasher.number(10);
                self.settle_class(type_name)?;
                hasher.bytes(type_name.as_bytes());
                hasher.bytes(member.as_bytes());
            }
            ParamValue::Tuple(items) | ParamValue::List(items) => {
                hasher.number(if matches!(value, ParamValue::Tuple(_)) { 11 } else { 12 });
                hasher.len(items.len());
                for item in items {
                    self.value(hasher, item)?;
                }
            }
            ParamValue::Dict(entries) => {
                hasher.number(13);
                hasher.len(entries.len());
                for (key, item) in entries {
                    self.value(hasher, key)?;
                    self.value(hasher, item)?;
                }
            }
            ParamValue::Named { type_name, fields } => {
                hasher.number(14);
                self.settle_class(type_name)?;
                hasher.bytes(type_name.as_bytes());
                hasher.len(fields.len());
                for (name, item) in fields {
                    hasher.bytes(name.as_bytes());
                    self.value(hasher, item)?;
                }
            }
            ParamValue::Program(id) => {
                hasher.number(15);
                hasher.fingerprint(self.known[&self.pending.keys[id]]);
            }
            ParamValue::Opaque(object) => {
                hasher.number(16);
                hasher.fingerprint(self.objects().describe(*object)?);
            }
        }
        Ok(())
    }
}
