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
pub struct Text(Xxh3);

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

impl Text {
    /// Nothing but the version.
    pub fn new() -> Self {
        let mut text = Self(Xxh3::new());
        text.number(VERSION.into());
        text
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

/// Has a program and all within it read, those that are not known yet; those within come first.
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

/// The steps of a program. Those of a program within come before the step of its equation, so that
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
        // Programs within the equation that comes next are first.
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
    text: Text,
    rows: Rows,
    eqns: Vec<Eqn>,
    /// How many steps were made, the inputs counted.
    made: usize,
    /// Programs within the equation of the next step.
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
        let (text, rows, within) = (Text::new(), Rows::default(), Vec::new());
        let mut own = Self { pending, purpose, is_root, text, rows, eqns, made: 0, within };
        let Self { pending, text, rows, .. } = &mut own;
        Reading { pending, known, purpose, is_root }.inputs(text, rows)?;
        Ok(own)
    }

    /// The next step, and whether it is the last.
    fn advance(
        &mut self,
        known: &FxHashMap<usize, Fingerprint>,
    ) -> Result<(Step<O>, bool), O::Error> {
        let Self { pending, purpose, is_root, text, rows, eqns, made, within } = self;
        let reading = Reading { pending, known, purpose: *purpose, is_root: *is_root };
        let program = reading.program().clone();
        let added = match made.checked_sub(1) {
            None => Added::Inputs,
            Some(index) => eqns.get(index).map_or(Added::Results, |&eqn| Added::Eqn(eqn)),
        };
        match added {
            Added::Inputs => {}
            Added::Eqn(eqn) => reading.eqn(text, rows, eqn)?,
            Added::Results => reading.results(text, rows)?,
        }
        if let Some(&next) = eqns.get(*made) {
            for id in program.params(program.eqn(next).params).subprograms() {
                within.push(reading.objects().nested(program.subprogram(id))?);
            }
            within.reverse();
        }
        *made += 1;
        let step = Step { program: pending.program.clone(), added, fingerprint: text.finish() };
        Ok((step, added == Added::Results))
    }
}

/// A program whose programs within are looked through first.
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

/// One program that is read; those within it are known.
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
        let (mut text, mut rows) = (Text::new(), Rows::default());
        self.inputs(&mut text, &mut rows)?;
        for eqn in self.program().eqns() {
            self.eqn(&mut text, &mut rows, eqn)?;
        }
        self.results(&mut text, &mut rows)?;
        Ok(text.finish())
    }

    fn inputs(&self, text: &mut Text, rows: &mut Rows) -> Result<(), O::Error> {
        let program = self.program();
        let constants_are_inputs = self.purpose == Purpose::Execution && self.is_root;
        let (constants, inputs) = (program.constvars().len(), program.invars().len());
        if constants_are_inputs {
            text.len(0);
            text.len(constants + inputs);
        } else {
            text.len(constants);
        }
        for &(var, value) in program.constvars() {
            self.define(text, rows, var)?;
            if self.purpose != Purpose::Structure && !constants_are_inputs {
                text.fingerprint(self.objects().describe_constant(value)?);
            }
        }
        if !constants_are_inputs {
            text.len(inputs);
        }
        for &var in program.invars() {
            self.define(text, rows, var)?;
        }
        Ok(())
    }

    fn results(&self, text: &mut Text, rows: &mut Rows) -> Result<(), O::Error> {
        let program = self.program();
        // In the place of another equation.
        text.number(0);
        text.len(program.outvars().len());
        for atom in program.outvars() {
            self.atom(text, rows, atom.kind())?;
        }
        self.effects(text, rows, program.effects())
    }

    fn define(&self, text: &mut Text, rows: &mut Rows, var: Var) -> Result<(), O::Error> {
        rows.places[var] = rows.next;
        rows.next += 1;
        let ty = self.type_fingerprint(rows, self.program().var_type(var))?;
        text.fingerprint(ty);
        Ok(())
    }

    fn eqn(&self, text: &mut Text, rows: &mut Rows, id: Eqn) -> Result<(), O::Error> {
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
        text.number(1);
        text.fingerprint(self.primitive(rows, primitive)?);
        text.fingerprint(self.params(rows, primitive, params)?);
        let operands = program.eqn_invars(id);
        text.len(operands.len());
        for operand in operands {
            self.atom(text, rows, operand.kind())?;
        }
        let outvars = program.eqn_outvars(id);
        text.len(outvars.len());
        for var in outvars {
            self.define(text, rows, var)?;
        }
        self.effects(text, rows, effects)?;
        text.fingerprint(self.context(rows, context)?);
        Ok(())
    }

    fn atom(&self, text: &mut Text, rows: &mut Rows, atom: AtomKind) -> Result<(), O::Error> {
        match atom {
            AtomKind::Var(var) => text.number(u64::from(rows.places[var]) << 1),
            AtomKind::Literal(literal) => {
                text.number(1);
                let LiteralData { ty, object } = *self.program().literal(literal);
                text.fingerprint(self.type_fingerprint(rows, ty)?);
                text.fingerprint(self.objects().describe(object)?);
            }
        }
        Ok(())
    }

    fn effects(&self, text: &mut Text, rows: &Rows, effects: EffectsId) -> Result<(), O::Error> {
        let effects = self.program().effect_list(effects);
        text.len(effects.len());
        // Their order is that of the table.
        let mut all = Vec::with_capacity(effects.len());
        for Effect { name, input, object } in effects {
            let mut effect = Text::new();
            effect.bytes(name.as_bytes());
            effect.number(input.map_or(u64::MAX, |var| rows.places[var].into()));
            effect.fingerprint(self.objects().describe(*object)?);
            all.push(effect.finish());
        }
        all.sort_unstable();
        for effect in all {
            text.fingerprint(effect);
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
        let mut text = Text::new();
        text.bytes(name.as_bytes());
        text.number((*multiple_results).into());
        text.fingerprint(self.objects().describe(*object)?);
        let own = text.finish();
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
        let mut text = Text::new();
        if self.purpose == Purpose::Execution {
            self.objects().settle_type(id, self.program().ty(id))?;
        }
        self.ty(&mut text, self.program().ty(id))?;
        let own = text.finish();
        rows.types[id] = Some(own);
        Ok(own)
    }

    fn ty(&self, text: &mut Text, ty: &Type) -> Result<(), O::Error> {
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
                text.number(0);
                text.bytes(dtype.name().as_bytes());
                text.len(shape.len());
                for dim in shape {
                    match dim {
                        Dim::Static(size) => {
                            text.number(0);
                            text.number(*size);
                        }
                        Dim::Symbolic(expression) => {
                            text.number(1);
                            text.bytes(expression.as_bytes());
                        }
                    }
                }
                text.number((*weak_type).into());
                for field in [sharding, manual_axis_type, memory_space, layout] {
                    text.optional(field.as_deref());
                }
            }
            Type::Ref { inner, memory_space, kind } => {
                text.number(1);
                self.ty(text, inner)?;
                text.optional(memory_space.as_deref());
                text.optional(kind.as_deref());
            }
            Type::Token => text.number(2),
            Type::Opaque { name, object } => {
                if let Some(described) = self.objects().type_of(*object)? {
                    return self.ty(text, &described);
                }
                text.number(3);
                text.bytes(name.as_bytes());
                text.fingerprint(self.objects().describe(*object)?);
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
        let mut text = Text::new();
        let of = self.program().primitive(primitive);
        for (name, value) in self.program().params(id).iter() {
            text.bytes(name.as_bytes());
            if self.purpose != Purpose::Execution || self.objects().is_executed(of, name) {
                self.value(&mut text, value)?;
            }
        }
        let own = text.finish();
        rows.params.insert((primitive, id), own);
        Ok(own)
    }

    fn settle_class(&self, name: &str) -> Result<(), O::Error> {
        if self.purpose == Purpose::Execution { self.objects().settle_class(name) } else { Ok(()) }
    }

    /// The embedding bounds how deep a value is.
    fn value(&self, text: &mut Text, value: &ParamValue) -> Result<(), O::Error> {
        match value {
            ParamValue::None => text.number(0),
            ParamValue::Bool(value) => {
                text.number(1);
                text.number((*value).into());
            }
            ParamValue::Int(value) => {
                text.number(2);
                text.number(value.cast_unsigned());
            }
            ParamValue::BigInt(digits) => {
                text.number(3);
                text.bytes(digits.as_bytes());
            }
            ParamValue::Float(bits) => {
                text.number(4);
                text.number(*bits);
            }
            ParamValue::Complex(real, imaginary) => {
                text.number(5);
                text.number(*real);
                text.number(*imaginary);
            }
            ParamValue::Str(value) => {
                text.number(6);
                text.bytes(value.as_bytes());
            }
            ParamValue::Bytes(bytes) => {
                text.number(7);
                text.bytes(bytes);
            }
            ParamValue::DType(dtype) => {
                text.number(8);
                text.bytes(dtype.name().as_bytes());
            }
            ParamValue::Dim(expression) => {
                text.number(9);
                text.bytes(expression.as_bytes());
            }
            ParamValue::Enum { type_name, member } => {
                text.number(10);
                self.settle_class(type_name)?;
                text.bytes(type_name.as_bytes());
                text.bytes(member.as_bytes());
            }
            ParamValue::Tuple(items) | ParamValue::List(items) => {
                text.number(if matches!(value, ParamValue::Tuple(_)) { 11 } else { 12 });
                text.len(items.len());
                for item in items {
                    self.value(text, item)?;
                }
            }
            ParamValue::Dict(entries) => {
                text.number(13);
                text.len(entries.len());
                for (key, item) in entries {
                    self.value(text, key)?;
                    self.value(text, item)?;
                }
            }
            ParamValue::Named { type_name, fields } => {
                text.number(14);
                self.settle_class(type_name)?;
                text.bytes(type_name.as_bytes());
                text.len(fields.len());
                for (name, item) in fields {
                    text.bytes(name.as_bytes());
                    self.value(text, item)?;
                }
            }
            ParamValue::Program(id) => {
                text.number(15);
                text.fingerprint(self.known[&self.pending.keys[id]]);
            }
            ParamValue::Opaque(object) => {
                text.number(16);
                text.fingerprint(self.objects().describe(*object)?);
            }
        }
        Ok(())
    }
}
