//! The arguments of a call as a signature.
//!
//! Nothing here runs Python code or allocates Python objects. What has no faithful words is
//! refused, with the reason why, and the call runs as it would without a cache.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::expand::{Signature, Tag};
use crate::ir::{Atom, Var};

use crate::python::cache::call::CAPTURES;
use crate::python::cache::key::canonical::{shared, shared_traceback};
use crate::python::cache::key::classes::{Verdict, verdict, version};
use crate::python::cache::key::functions::{CHANGES, Functions, WRITES};
use crate::python::cache::key::trace_context::Now;
use crate::python::cache::key::transformations::{Parts, Stack, is_lifted};
use crate::python::cache::programs::registry::is_jaxpr;
use crate::python::cpython::immortals::Immortals;
use crate::python::cpython::native::{Slot, is_exactly, with_bytes};
use crate::python::jax::names::Jax;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::values::{ValueClasses, value_classes};
use crate::python::jax::world::owns_primitive;
use crate::python::trace::tracer::{Traced as Tracer, constant_of, traced};

/// Why a call is not cached.
pub type Reason = &'static str;

pub const CONCRETE_ARRAY: Reason = "concrete array";
pub const CAPTURED_CONSTANT: Reason = "traced constant";
pub const FOREIGN_TRACER: Reason = "foreign tracer";
pub const REF: Reason = "Ref or other type that is no array";
pub const CALLABLE: Reason = "callable without a stable identity";
pub const UNHASHABLE: Reason = "unhashable argument";
pub const UNKNOWN_OBJECT: Reason = "object of an unknown class";
pub const NOT_A_NUMBER: Reason = "function that may compare a NaN with another one";
pub const USERS_CLASS: Reason = "class of the user's that may have methods";
pub const USERS_PRIMITIVE: Reason = "primitive that is not jax's";
pub const TANGENT: Reason = "tangent that was captured or is zero";
pub const TWO_TRACERS: Reason = "two tracers of one value";
/// A literal whose value the user has too, and may write to.
pub const LITERAL_OF_OTHERS: Reason = "literal that may be written to";
pub const LARGE_VALUE: Reason = "value too large for a key";
/// A traced value where only what is fixed is expected.
pub const TRACED_PARAM: Reason = "traced value within a program";

/// Deeper nesting than this is not keyed: bounded recursion.
const MAX_DEPTH: u32 = 64;
/// A call with more than this in it is not keyed.
const MAX_WORDS: usize = 1 << 14;
/// An array of numpy's with more bytes than this is not keyed.
const MAX_ARRAY: usize = 256;

/// A call in words, with what its words refer to. Lives no longer than the call's arguments.
#[allow(clippy::struct_excessive_bools)] // what was seen among the arguments
pub struct Call {
    pub signature: Signature,
    /// The tracers among the arguments. Under transformations also their parts.
    pub traced: SmallVec<[*mut ffi::PyObject; 8]>,
    /// The variables of the trace that records, one for each tracer in order of first mention.
    pub args: SmallVec<[Atom; 8]>,
    /// As `args`, the tangents of differentiations, each with its level.
    pub tangents: SmallVec<[(usize, Atom); 2]>,
    /// Tracers of literals.
    pub literals: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Values of enclosing traces, which are constants here.
    pub enclosing: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Programs among the params of a rule.
    pub programs: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Those among them that jits have.
    pub of_jits: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Objects whose identity is part of the signature: an entry under it must keep them alive. None
    /// until they are asked for, which few calls are.
    pub pins: Option<Vec<*mut ffi::PyObject>>,
    /// What it keeps alive, which is nothing for most.
    pub owned: Option<Box<Owned>>,
    /// There are concrete arrays, by their types.
    pub has_arrays: bool,
    /// There are arrays of numpy's, by what is in them.
    pub has_mutable_arrays: bool,
    /// There are objects that somebody may change while it runs: lists, dicts, arrays, what functions
    /// read.
    pub may_change: bool,
    /// Some argument is a finite float: where a literal is not, numpy warned of an overflow.
    pub finite_float: bool,
    /// Where it happens is part of it: what it appends may have lines of the user's.
    pub located: bool,
    /// Code that has to be looked through first.
    pub unread_code: Option<*mut ffi::PyObject>,
}

/// What a call keeps alive itself.
#[derive(Default)]
pub struct Owned {
    /// Objects that words name though no argument holds them.
    pub kept: Vec<Py<PyAny>>,
    /// Objects that are alive for as long as the call is being described.
    pub held: Vec<Py<PyAny>>,
    /// As `kept`, the tracebacks of a program's equations.
    pub tracebacks: Vec<Py<PyAny>>,
}

/// Functions of jax that live as long as the process.
static STABLE: Immortals = Immortals::new();

/// Lets `callable` be an argument of cached calls: it is never freed, and does what it does.
pub fn register_stable(callable: &Bound<'_, PyAny>) {
    STABLE.add(callable);
}

/// Whether `register_stable` was told of an object.
pub fn is_stable(object: *mut ffi::PyObject) -> bool {
    STABLE.has(object as usize)
}

/// Writes arguments.
#[allow(clippy::struct_excessive_bools)] // what has been seen, and where the writer is
pub struct Encoder<'a, 'py> {
    pub(in crate::python::cache) py: Python<'py>,
    pub(in crate::python::cache) jax: &'a Jax,
    trace: *mut ffi::PyObject,
    now: Option<&'a Now<'py>>,
    pub(in crate::python::cache) stack: Option<&'a Stack>,
    pub(in crate::python::cache) call: &'a mut Call,
    /// The first position of each traced value, where there are many.
    first: FxHashMap<Atom, usize>,
    /// The first position of each tracer of a literal, and of each literal.
    first_literal: FxHashMap<usize, usize>,
    /// The functions whose parts are being written, innermost last.
    pub(in crate::python::cache) within: SmallVec<[*mut ffi::PyObject; 4]>,
    /// A function among the arguments changes lists or dicts in place.
    pub(in crate::python::cache) changes: bool,
    /// One of them calls methods that may write to an array.
    pub(in crate::python::cache) fills: bool,
    /// There are lists or dicts.
    pub(in crate::python::cache) mutable: bool,
    /// A function among the arguments makes texts of values.
    pub(in crate::python::cache) writes: bool,
    pub(in crate::python::cache) functions: Functions,
    /// Jaxprs are put in words.
    programs: bool,
    /// What is written is part of a program: nothing in it is traced.
    in_program: bool,
    /// It is the params of a jit.
    pub(in crate::python::cache) of_jit: bool,
    /// It is the params of an equation, which may have derivative rules.
    has_rules: bool,
    /// So are numpy's arrays known by their types: they are passed on, and nothing looks into them.
    passes_arrays: bool,
}

impl Call {
    /// A call without arguments in a configuration, named by a number.
    pub fn new(configuration: u64) -> Self {
        Self {
            signature: Signature::new(configuration),
            traced: SmallVec::new(),
            args: SmallVec::new(),
            tangents: SmallVec::new(),
            literals: SmallVec::new(),
            enclosing: SmallVec::new(),
            programs: SmallVec::new(),
            of_jits: SmallVec::new(),
            pins: None,
            owned: None,
            located: false,
            has_arrays: false,
            has_mutable_arrays: false,
            may_change: false,
            finite_float: false,
            unread_code: None,
        }
    }

    /// What it keeps alive, to be added to.
    pub fn own(&mut self) -> &mut Owned {
        self.owned.get_or_insert_default()
    }

    /// The tangents of the differentiation of a level.
    pub fn tangents_of(&self, level: usize) -> SmallVec<[Atom; 4]> {
        let of_level = self.tangents.iter().filter(|(known, _)| *known == level);
        of_level.map(|&(_, atom)| atom).collect()
    }

    /// A call in the same configuration, without arguments.
    pub fn empty(&self) -> Self {
        Self::new(self.signature.configuration())
    }
}

/// Adds the arguments of a call: positional ones, then named ones. It is written in place, being
/// large. `functions` says which of the user's functions may be among them.
pub fn encode<'py>(
    py: Python<'py>,
    jax: &Jax,
    now: &Now<'py>,
    args: &[*mut ffi::PyObject],
    kwnames: *mut ffi::PyObject,
    functions: Functions,
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder { functions, ..Encoder::new(py, jax, now, call) };
    let named = if kwnames.is_null() {
        0
    } else {
        // SAFETY: CPython passes a tuple of strings, one for each trailing argument.
        usize::try_from(unsafe { ffi::PyTuple_GET_SIZE(kwnames) }).unwrap_or(0)
    };
    let (positional, keywords) = args.split_at(args.len() - named.min(args.len()));
    for &arg in positional {
        encoder.value(arg, 0)?;
    }
    for (index, &arg) in keywords.iter().enumerate() {
        encoder.call.signature.tag(Tag::Keyword, 0);
        // SAFETY: as above.
        let name = unsafe { ffi::PyTuple_GET_ITEM(kwnames, index.cast_signed()) };
        encoder.value(name, 0)?;
        encoder.value(arg, 0)?;
    }
    encoder.finish()
}

/// Adds what a rule of jax is given under transformations: its operands, and params with programs.
///
/// # Errors
/// Why it is not remembered.
pub fn encode_rule<'py>(
    py: Python<'py>,
    jax: &Jax,
    now: &Now<'py>,
    primitive: &Bound<'py, PyAny>,
    args: &[*mut ffi::PyObject],
    params: *mut ffi::PyObject,
    call: &mut Call,
) -> Result<(), Reason> {
    let base = Encoder::new(py, jax, now, call);
    let mut encoder = Encoder { programs: true, functions: Functions::Params, ..base };
    encoder.given_traceback(now)?;
    encoder.primitive(primitive.as_ptr())?;
    encoder.passes_arrays = jax.control_primitives.bind(py).contains(primitive).unwrap_or(false);
    for &arg in args {
        encoder.value(arg, 0)?;
    }
    encoder.passes_arrays = false;
    encoder.value(params, 0)?;
    if encoder.stack.is_some_and(Stack::differentiates)
        && jax.located_primitives.bind(py).contains(primitive).unwrap_or(false)
    {
        encoder.locate()?;
    }
    encoder.finish()
}

/// Adds what the evaluation of a program is given: the program, its constants and its arguments.
///
/// # Errors
/// Why it is not remembered.
pub fn encode_evaluation<'py>(
    py: Python<'py>,
    jax: &Jax,
    now: &Now<'py>,
    given: &[*mut ffi::PyObject],
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder { programs: true, ..Encoder::new(py, jax, now, call) };
    encoder.given_traceback(now)?;
    given.iter().try_for_each(|&part| encoder.value(part, 0))?;
    encoder.finish()
}

/// Adds params with programs.
///
/// # Errors
/// Why they are not remembered.
pub fn encode_params(
    py: Python<'_>,
    jax: &Jax,
    params: *mut ffi::PyObject,
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder::of_program(py, jax, call);
    encoder.value(params, 0)?;
    encoder.finish()
}

/// An operand of an equation that is transposed.
pub enum Operand {
    /// What its cotangents are added to: which one it is among others, and the sum so far.
    Accumulator {
        place: u32,
        aval: *mut ffi::PyObject,
        sum: *mut ffi::PyObject,
    },
    /// A jax `Literal`.
    Literal(*mut ffi::PyObject),
    Value(*mut ffi::PyObject),
}

/// An equation that is transposed, besides its operands.
pub struct Equation {
    pub context: *mut ffi::PyObject,
    pub primitive: *mut ffi::PyObject,
    /// None where what is known of them is kept apart.
    pub params: Option<*mut ffi::PyObject>,
}

/// The transposition of an equation as a call.
///
/// # Errors
/// Why it is not remembered.
pub fn encode_transposition<'py>(
    py: Python<'py>,
    jax: &Jax,
    now: &Now<'py>,
    equation: &Equation,
    cotangents: &[*mut ffi::PyObject],
    operands: &[Operand],
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder { programs: true, ..Encoder::new(py, jax, now, call) };
    encoder.identity(equation.context);
    encoder.primitive(equation.primitive)?;
    // SAFETY: live while the equation is transposed.
    let primitive = unsafe { Bound::from_borrowed_ptr(py, equation.primitive) };
    let passes = jax.control_primitives.bind(py).contains(primitive).unwrap_or(false);
    if let Some(params) = equation.params {
        encoder.has_rules = true;
        encoder.functions = Functions::Params;
        encoder.value(params, 0)?;
        encoder.has_rules = false;
        if !encoder.call.programs.is_empty() {
            encoder.given_traceback(now)?;
        }
    }
    encoder.call.signature.tag(Tag::Sequence, cotangents.len());
    for &cotangent in cotangents {
        encoder.value(cotangent, 0)?;
    }
    for (position, operand) in operands.iter().enumerate() {
        match *operand {
            Operand::Value(value) => {
                encoder.passes_arrays = passes;
                encoder.value(value, 0)?;
                encoder.passes_arrays = false;
            }
            Operand::Literal(literal) => {
                // SAFETY: a live jax `Literal`.
                let (value, aval) = unsafe {
                    (jax.slots.literal_val.peek(literal), jax.slots.literal_aval.peek(literal))
                };
                encoder.literal_value(value, aval, Held::Bare)?;
            }
            Operand::Accumulator { place, aval, sum } => {
                let same = |other: &Operand| match other {
                    Operand::Accumulator { place: other, .. } => *other == place,
                    _ => false,
                };
                let first = operands.iter().position(same).unwrap_or(position);
                encoder.call.signature.pair(Tag::Accumulator, first, aval as u64);
                encoder.pin(aval);
                encoder.value(sum, 0)?;
            }
        }
    }
    encoder.finish()
}

/// How a call has a literal: a replay hands on those that it has by tracers, and makes the others.
#[derive(Clone, Copy)]
pub(in crate::python::cache) enum Held {
    ByTracer,
    Bare,
}

impl<'a, 'py> Encoder<'a, 'py> {
    /// Starts with the transformations of the moment.
    fn new(py: Python<'py>, jax: &'a Jax, now: &'a Now<'py>, call: &'a mut Call) -> Self {
        let stack = now.stack();
        if let Some(stack) = stack {
            call.signature.extend(stack.words());
            call.signature.extend(now.scope_words());
        }
        Self {
            trace: now.trace.as_ptr(),
            now: Some(now),
            stack,
            functions: Functions::Rules,
            programs: false,
            in_program: false,
            ..Self::of_program(py, jax, call)
        }
    }

    /// Writes what a program consists of.
    pub(in crate::python::cache) fn of_program(
        py: Python<'py>,
        jax: &'a Jax,
        call: &'a mut Call,
    ) -> Self {
        Self {
            py,
            jax,
            trace: std::ptr::null_mut(),
            now: None,
            stack: None,
            call,
            first: FxHashMap::default(),
            first_literal: FxHashMap::default(),
            within: SmallVec::new(),
            changes: false,
            fills: false,
            mutable: false,
            writes: false,
            functions: Functions::Params,
            programs: true,
            in_program: true,
            of_jit: false,
            has_rules: false,
            passes_arrays: false,
        }
    }

    /// The traceback that all equations are given, those of nested programs too.
    fn given_traceback(&mut self, now: &Now<'py>) -> Result<(), Reason> {
        if let Some(traceback) = now.given_traceback() {
            self.traceback(&traceback)?;
        }
        Ok(())
    }

    /// Where the call happens, which is part of it from now on.
    pub(in crate::python::cache) fn locate(&mut self) -> Result<(), Reason> {
        let source = self.now.and_then(|now| now.source(self.jax).ok());
        let traceback = source.and_then(|source| source.traceback).ok_or(UNKNOWN_OBJECT)?;
        self.call.located = true;
        if is_omitted(Item::Lines) {
            return Ok(());
        }
        self.traceback(&traceback)
    }

    /// A traceback, by the one that stands for all that are equal.
    pub(in crate::python::cache) fn traceback(
        &mut self,
        traceback: &Bound<'py, PyAny>,
    ) -> Result<(), Reason> {
        let shared = shared_traceback(self.jax, traceback).map_err(|_| UNKNOWN_OBJECT)?;
        self.call.signature.pair(Tag::Identity, 1, shared.as_ptr() as u64);
        if self.in_program {
            self.call.own().tracebacks.push(shared.unbind());
        } else {
            self.call.own().kept.push(shared.unbind());
        }
        Ok(())
    }

    /// A value that is part of an item of the key.
    pub(in crate::python::cache) fn item(
        &mut self,
        item: Item,
        value: *mut ffi::PyObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if is_omitted(item) { Ok(()) } else { self.value(value, depth) }
    }

    /// The word of something that is part of an item of the key.
    pub(in crate::python::cache) fn word_of(item: Item, word: u64) -> u64 {
        if is_omitted(item) { 0 } else { word }
    }

    pub(in crate::python::cache) fn value(
        &mut self,
        value: *mut ffi::PyObject,
        depth: u32,
    ) -> Result<(), Reason> {
        // SAFETY: `value` is a live argument; only its type is read.
        let class = unsafe { ffi::Py_TYPE(value) };
        if self.in_program && self.is_traced(value) {
            return Err(TRACED_PARAM);
        }
        match traced(self.py, self.jax, value, self.trace) {
            Some(Tracer::Foreign) if !self.within.is_empty() => return Err(CAPTURES),
            Some(_) if !self.within.is_empty() => return self.captured(value),
            Some(Tracer::Variable(var)) => return self.variable(value, var),
            Some(Tracer::Constant) => return self.constant(value),
            Some(Tracer::Literal) => return self.literal(value),
            Some(Tracer::Enclosing) => return self.enclosing(value),
            Some(Tracer::Foreign) => return Err(FOREIGN_TRACER),
            None => {}
        }
        if let Some(stack) = self.stack
            && let Some((level, parts)) = stack.parts(self.py, self.jax, value, 0)
        {
            if !self.within.is_empty() {
                return self.captured(value);
            }
            return self.lifted(stack, value, level, parts);
        }
        if is_lifted(self.jax, value) {
            if !self.within.is_empty() {
                return self.captured(value);
            }
            return self.enclosing(value);
        }
        // SAFETY: the exact type is checked before each access; nothing here runs Python code.
        unsafe {
            if value == ffi::Py_None()
                || class == &raw mut ffi::PyBool_Type
                || value == ffi::Py_Ellipsis()
                || value == ffi::Py_NotImplemented()
            {
                self.call.signature.pair(Tag::Identity, 0, value as u64);
                return Ok(());
            }
            if class == &raw mut ffi::PyLong_Type {
                let mut overflow = 0;
                let small = ffi::PyLong_AsLongLongAndOverflow(value, &raw mut overflow);
                if overflow != 0 {
                    return Err(LARGE_VALUE);
                }
                let word = Self::word_of(Item::Numbers, small.cast_unsigned());
                self.call.signature.pair(Tag::Int, 0, word);
                return Ok(());
            }
            if class == &raw mut ffi::PyFloat_Type {
                let float = ffi::PyFloat_AS_DOUBLE(value);
                self.call.finite_float |= float.is_finite();
                let word = Self::word_of(Item::Numbers, float.to_bits());
                self.call.signature.pair(Tag::Float, 0, word);
                return if float.is_nan() { self.nan(value) } else { Ok(()) };
            }
            if class == &raw mut ffi::PyUnicode_Type {
                return self.text(value);
            }
        }
        self.container(value, class, depth)
    }

    pub(in crate::python::cache) fn is_traced(&self, value: *mut ffi::PyObject) -> bool {
        // SAFETY: types only; no Python runs.
        unsafe {
            let tracer = self.jax.any_tracer_type.as_ptr().cast();
            ffi::PyType_IsSubtype(ffi::Py_TYPE(value), tracer) != 0
        }
    }

    /// A traced value that a function refers to.
    fn captured(&mut self, object: *mut ffi::PyObject) -> Result<(), Reason> {
        if !matches!(self.functions, Functions::Typed { .. }) {
            return Err(CAPTURES);
        }
        // SAFETY: a tracer, whose trace has jax's slots.
        let is_over = unsafe {
            let trace = self.jax.slots.tracer_trace.peek(object);
            trace.is_null() || self.jax.slots.trace_invalidated.peek(trace) != ffi::Py_False()
        };
        // To use it would be an error.
        if is_over {
            return Err(CAPTURES);
        }
        let aval = self.array_type(object)?;
        self.call.signature.pair(Tag::Traced, 0, aval as u64);
        self.pin(aval);
        Ok(())
    }

    /// A value of an enclosing trace. Objects count: each is a constant of its own.
    fn enclosing(&mut self, object: *mut ffi::PyObject) -> Result<(), Reason> {
        let aval = self.type_of(object)?;
        self.passed(object, aval);
        self.ref_within(aval)
    }

    fn passed(&mut self, object: *mut ffi::PyObject, aval: *mut ffi::PyObject) {
        let position = self.call.enclosing.len();
        let known = self.call.enclosing.iter().position(|&known| known == object);
        let word = self.type_word(aval);
        self.call.signature.pair(Tag::Enclosing, known.unwrap_or(position), word);
        if known.is_none() {
            self.call.enclosing.push(object);
        }
    }

    /// A concrete array, which is a constant of the program that records: its type stands for it, since
    /// a call that looks into an array is not kept. One without dimensions may become a literal.
    fn concrete(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
    ) -> Result<bool, Reason> {
        let of_jax = class == self.jax.array_type.as_ptr().cast();
        // SAFETY: looking up a type runs no Python code.
        let plain = || unsafe {
            ffi::PySet_Contains(self.jax.plain_const_types.as_ptr(), class.cast()) == 1
        };
        // A function may look into an array of numpy's, and nobody would notice.
        let passes_arrays = self.passes_arrays && self.within.is_empty();
        if self.in_program || !(of_jax || passes_arrays && plain()) {
            return Ok(false);
        }
        let py = self.py;
        // SAFETY: a live argument, of a class of jax's.
        let array = unsafe { Bound::from_borrowed_ptr(py, value) };
        let field = |name| array.getattr(name).map_err(|_| UNKNOWN_OBJECT);
        let aval = if of_jax {
            field(intern!(py, "aval"))?
        } else {
            self.jax.typeof_fn.bind(py).call1((&array,)).map_err(|_| UNKNOWN_OBJECT)?
        };
        let shape = aval.getattr(intern!(py, "shape")).ok();
        let dims = shape.and_then(|shape| shape.cast_into::<PyTuple>().ok());
        if dims.is_none_or(|dims| dims.is_empty())
            || !is_exactly(aval.as_ptr(), self.jax.shaped_array_type.as_ptr().cast())
        {
            return Ok(false);
        }
        if self.within.is_empty() {
            self.passed(value, aval.as_ptr());
        } else if let Functions::Typed { .. } = self.functions {
            self.call.signature.pair(Tag::Traced, 0, aval.as_ptr() as u64);
            self.pin(aval.as_ptr());
        } else {
            return Ok(false);
        }
        self.call.own().kept.push(aval.unbind());
        self.call.has_arrays = true;
        let bound = of_jax && field(intern!(py, "_committed"))?.is_truthy().unwrap_or(true);
        self.call.signature.tag(Tag::Concrete, usize::from(bound));
        if bound {
            let devices = shared(&field(intern!(py, "sharding"))?).map_err(|_| UNKNOWN_OBJECT)?;
            self.identity(devices.as_ptr());
            self.call.own().kept.push(devices.unbind());
        }
        Ok(true)
    }

    /// A tracer of a concrete array: the array, as which it is an operand.
    fn constant(&mut self, tracer: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live argument.
        let object = unsafe { Bound::from_borrowed_ptr(self.py, tracer) };
        let class = self.jax.array_type.as_ptr().cast();
        let value = constant_of(self.jax, &object);
        let value = value.filter(|value| is_exactly(value.as_ptr(), class));
        let value = value.ok_or(CAPTURED_CONSTANT)?;
        let known = self.call.enclosing.contains(&value.as_ptr());
        if known && !self.call.traced.contains(&tracer) {
            return Err(TWO_TRACERS);
        }
        let aval = self.array_type(tracer)?;
        self.passed(value.as_ptr(), aval);
        self.call.signature.tag(Tag::Concrete, 2);
        self.call.own().kept.push(value.unbind());
        self.call.has_arrays = true;
        self.call.traced.push(tracer);
        Ok(())
    }

    fn array_type(&self, tracer: *mut ffi::PyObject) -> Result<*mut ffi::PyObject, Reason> {
        // SAFETY: a tracer of ours, which has jax's slots.
        let aval = unsafe { self.jax.slots.tracer_aval.peek(tracer) };
        if aval.is_null() || !is_exactly(aval, self.jax.shaped_array_type.as_ptr().cast()) {
            return Err(REF);
        }
        Ok(aval)
    }

    /// The type of a traced value: of an array, or of a Ref, which `ref_within` puts in words, since
    /// equal ones are several objects.
    fn type_of(&self, tracer: *mut ffi::PyObject) -> Result<*mut ffi::PyObject, Reason> {
        // SAFETY: a tracer of ours, which has jax's slots.
        let aval = unsafe { self.jax.slots.tracer_aval.peek(tracer) };
        if !aval.is_null() && is_exactly(aval, self.jax.ref_type.as_ptr().cast()) {
            return Ok(aval);
        }
        self.array_type(tracer)
    }

    fn ref_within(&mut self, aval: *mut ffi::PyObject) -> Result<(), Reason> {
        if !is_exactly(aval, self.jax.ref_type.as_ptr().cast()) {
            return Ok(());
        }
        // SAFETY: the type of a live tracer.
        self.ref_type(&unsafe { Bound::from_borrowed_ptr(self.py, aval) })
    }

    /// What names a type: its identity, but for those of Refs.
    fn type_word(&mut self, aval: *mut ffi::PyObject) -> u64 {
        if is_exactly(aval, self.jax.ref_type.as_ptr().cast()) {
            return 0;
        }
        self.pin(aval);
        Self::word_of(Item::Types, aval as u64)
    }

    /// A value under transformations. Objects count here, since a tangent's program knows primal
    /// values as objects.
    fn lifted(
        &mut self,
        stack: &Stack,
        value: *mut ffi::PyObject,
        level: usize,
        parts: Parts,
    ) -> Result<(), Reason> {
        let position = self.call.traced.len();
        let known = self.call.traced.iter().position(|&traced| traced == value);
        self.call.signature.tag(Tag::Lifted, known.unwrap_or(position));
        if known.is_some() {
            return Ok(());
        }
        let aval = self.type_of(value)?;
        let word = self.type_word(aval);
        self.call.signature.pair(Tag::Layer, level, word);
        self.ref_within(aval)?;
        self.call.traced.push(value);
        for part in parts.below() {
            self.part(stack, part, level + 1)?;
        }
        match parts {
            Parts::Jvp { .. } => {}
            Parts::Batch { dim, .. } => {
                // One that is not mapped, which `shard_map` makes, has None.
                // SAFETY: a live object; the constant is the interpreter's.
                if unsafe { ffi::PyLong_CheckExact(dim) == 0 && dim != ffi::Py_None() } {
                    return Err(UNKNOWN_OBJECT);
                }
                self.value(dim, 0)?;
            }
            Parts::Linearize { tangent, .. } => {
                let var = stack
                    .linearization(level)
                    .and_then(|layer| layer.tangent_variable(self.py, self.jax, tangent))
                    .ok_or(TANGENT)?;
                let atom = (level, Atom::var(var));
                let aval = self.type_of(tangent)?;
                let position = self.call.tangents.len();
                let first = self.call.tangents.iter().position(|&known| known == atom);
                let word = self.type_word(aval);
                self.call.signature.pair(Tag::Traced, first.unwrap_or(position), word);
                self.ref_within(aval)?;
                self.call.traced.push(tangent);
                self.call.tangents.push(atom);
            }
        }
        Ok(())
    }

    /// A part of such a value, of the layers from `level` on.
    fn part(
        &mut self,
        stack: &Stack,
        part: *mut ffi::PyObject,
        level: usize,
    ) -> Result<(), Reason> {
        match traced(self.py, self.jax, part, self.trace) {
            Some(Tracer::Variable(var)) => self.variable(part, var),
            Some(Tracer::Constant) => self.constant(part),
            Some(Tracer::Literal) => Err(CAPTURED_CONSTANT),
            Some(Tracer::Enclosing) => self.enclosing(part),
            Some(Tracer::Foreign) => Err(FOREIGN_TRACER),
            None => match stack.parts(self.py, self.jax, part, level) {
                Some((level, parts)) => self.lifted(stack, part, level, parts),
                None if is_lifted(self.jax, part) => self.enclosing(part),
                // SAFETY: a part of a live tracer.
                None if self.concrete(part, unsafe { ffi::Py_TYPE(part) })? => Ok(()),
                None => Err(CONCRETE_ARRAY),
            },
        }
    }

    fn variable(&mut self, object: *mut ffi::PyObject, var: Var) -> Result<(), Reason> {
        let aval = self.type_of(object)?;
        // The same value twice is another call than two values of one type.
        let position = self.call.args.len();
        let first = if position < 16 {
            self.call.args.iter().position(|&arg| arg == Atom::var(var)).unwrap_or(position)
        } else {
            if self.first.is_empty() {
                for (position, &arg) in self.call.args.iter().enumerate() {
                    self.first.entry(arg).or_insert(position);
                }
            }
            *self.first.entry(Atom::var(var)).or_insert(position)
        };
        if self.stack.is_some_and(Stack::linearizes)
            && first < position
            && !self.call.traced.contains(&object)
        {
            return Err(TWO_TRACERS);
        }
        let word = self.type_word(aval);
        let first = if is_omitted(Item::Repetition) { position } else { first };
        self.call.signature.pair(Tag::Traced, first, word);
        self.call.traced.push(object);
        self.call.args.push(Atom::var(var));
        self.ref_within(aval)
    }

    /// A tracer of a literal: the literal's type and value.
    fn literal(&mut self, tracer: *mut ffi::PyObject) -> Result<(), Reason> {
        let slots = &self.jax.slots;
        // SAFETY: `traced` found a tracer of ours whose `val` is a jax `Literal`.
        let (literal, value, aval) = unsafe {
            let literal = slots.tracer_val.peek(tracer);
            (literal, slots.literal_val.peek(literal), slots.tracer_aval.peek(tracer))
        };
        self.literal_value(value, aval, Held::ByTracer)?;
        // The same one twice is another call than two that are equal.
        let position = self.call.literals.len();
        let mut first = |object: *mut ffi::PyObject| {
            *self.first_literal.entry(object as usize).or_insert(position) as u64
        };
        let (same_tracer, same_literal) = (first(tracer), first(literal));
        if !is_omitted(Item::Repetition) {
            self.call.signature.word(same_tracer);
            self.call.signature.word(same_literal);
        }
        self.call.literals.push(tracer);
        Ok(())
    }

    pub(in crate::python::cache) fn literal_value(
        &mut self,
        value: *mut ffi::PyObject,
        aval: *mut ffi::PyObject,
        held: Held,
    ) -> Result<(), Reason> {
        if value.is_null() || aval.is_null() {
            return Err(FOREIGN_TRACER);
        }
        // SAFETY: a live object; the type is checked before each access.
        unsafe {
            let class = ffi::Py_TYPE(value);
            self.call.signature.pair(Tag::Literal, held as usize, aval as u64);
            self.call.signature.word(class as u64);
            self.pin(aval);
            self.pin(class.cast());
            if ffi::PyFloat_Check(value) != 0 {
                let float = ffi::PyFloat_AS_DOUBLE(value);
                self.call.finite_float |= float.is_finite();
                self.call.signature.word(Self::word_of(Item::Numbers, float.to_bits()));
            } else if ffi::PyLong_Check(value) != 0 {
                let mut overflow = 0;
                let small = ffi::PyLong_AsLongLongAndOverflow(value, &raw mut overflow);
                if overflow != 0 {
                    return Err(LARGE_VALUE);
                }
                self.call.signature.word(Self::word_of(Item::Numbers, small.cast_unsigned()));
            } else {
                self.buffer(value)?;
            }
        }
        Ok(())
    }

    unsafe fn text(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        let mut len = 0;
        // SAFETY: a string; CPython keeps the UTF-8 form with it.
        let bytes = unsafe {
            let data = ffi::PyUnicode_AsUTF8AndSize(value, &raw mut len);
            if data.is_null() {
                ffi::PyErr_Clear();
                return Err(UNKNOWN_OBJECT);
            }
            std::slice::from_raw_parts(data.cast::<u8>(), len.unsigned_abs())
        };
        if bytes.len() > MAX_WORDS {
            return Err(LARGE_VALUE);
        }
        self.call.signature.bytes(Tag::Text, if is_omitted(Item::Texts) { &[] } else { bytes });
        Ok(())
    }

    fn sequence(
        &mut self,
        class: *mut ffi::PyTypeObject,
        items: impl ExactSizeIterator<Item = *mut ffi::PyObject>,
        depth: u32,
    ) -> Result<(), Reason> {
        if self.call.signature.words().len() > MAX_WORDS {
            return Err(LARGE_VALUE);
        }
        self.call.signature.pair(Tag::Sequence, items.len(), class as u64);
        for item in items {
            self.value(item, depth + 1)?;
        }
        Ok(())
    }

    /// Refuses functions that change lists, dicts or arrays, where there are some that are not theirs.
    pub(in crate::python::cache) fn finish(&self) -> Result<(), Reason> {
        let changes = self.changes && self.mutable || self.fills && self.call.has_mutable_arrays;
        if changes && !is_omitted(Item::Effects) {
            return Err(CHANGES);
        }
        if self.writes { Err(WRITES) } else { Ok(()) }
    }

    /// A primitive, whose rules have to be jax's.
    pub(in crate::python::cache) fn primitive(
        &mut self,
        primitive: *mut ffi::PyObject,
    ) -> Result<(), Reason> {
        // SAFETY: a live object, as part of an equation.
        let object = unsafe { Bound::from_borrowed_ptr(self.py, primitive) };
        if !owns_primitive(self.jax, &object) {
            return Err(USERS_PRIMITIVE);
        }
        self.identity(primitive);
        Ok(())
    }

    #[inline]
    pub(in crate::python::cache) fn pin(&mut self, object: *mut ffi::PyObject) {
        if let Some(pins) = &mut self.call.pins {
            pins.push(object);
        }
    }

    /// A number that is equal to itself only where Python goes by identity first: which object it is
    /// counts for whoever compares. A function of the user's may compare with others.
    fn nan(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        if !self.within.is_empty() {
            return Err(NOT_A_NUMBER);
        }
        self.identity(value);
        Ok(())
    }

    pub(in crate::python::cache) fn identity(&mut self, value: *mut ffi::PyObject) {
        self.call.signature.pair(Tag::Identity, 0, value as u64);
        self.pin(value);
    }

    #[allow(clippy::too_many_lines)] // one case for each class
    fn container(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if depth == MAX_DEPTH {
            return Err(LARGE_VALUE);
        }
        // SAFETY: the type is checked before each access; borrowed items are alive, since nothing
        // here runs Python code that could change their containers.
        unsafe {
            if ffi::PyTuple_Check(value) != 0 {
                let len = ffi::PyTuple_GET_SIZE(value);
                if class != &raw mut ffi::PyTuple_Type {
                    if !is_plain_namedtuple(self.py, class) && !is_omitted(Item::Classes) {
                        return Err(USERS_CLASS);
                    }
                    self.pin(class.cast());
                    self.call.signature.word(version(class).ok_or(USERS_CLASS)?.into());
                    self.registration(class);
                }
                let items =
                    (0..len.unsigned_abs()).map(|i| ffi::PyTuple_GET_ITEM(value, i.cast_signed()));
                return self.sequence(class, items, depth);
            }
            if class == &raw mut ffi::PyList_Type {
                (self.mutable, self.call.may_change) = (true, true);
                let len = ffi::PyList_GET_SIZE(value);
                let len = if is_omitted(Item::Mutable) { 0 } else { len };
                let items =
                    (0..len.unsigned_abs()).map(|i| ffi::PyList_GET_ITEM(value, i.cast_signed()));
                return self.sequence(class, items, depth);
            }
            if class == &raw mut ffi::PyDict_Type {
                (self.mutable, self.call.may_change) = (true, true);
                let len = ffi::PyDict_Size(value);
                self.call.signature.tag(Tag::Dict, len.unsigned_abs());
                if is_omitted(Item::Mutable) {
                    return Ok(());
                }
                let mut position = 0;
                let (mut name, mut item) = (std::ptr::null_mut(), std::ptr::null_mut());
                while ffi::PyDict_Next(value, &raw mut position, &raw mut name, &raw mut item) != 0
                {
                    self.value(name, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                return Ok(());
            }
            if class == &raw mut ffi::PySlice_Type {
                let slice = value.cast::<ffi::PySliceObject>();
                self.call.signature.tag(Tag::Slice, 0);
                for part in [(*slice).start, (*slice).stop, (*slice).step] {
                    self.value(part, depth + 1)?;
                }
                return Ok(());
            }
            if class == &raw mut ffi::PyComplex_Type {
                let parts = ffi::PyComplex_AsCComplex(value);
                self.call.signature.pair(Tag::Complex, 0, parts.real.to_bits());
                self.call.signature.word(parts.imag.to_bits());
                let is_nan = parts.real.is_nan() || parts.imag.is_nan();
                return if is_nan { self.nan(value) } else { Ok(()) };
            }
            if class == &raw mut ffi::PyBytes_Type {
                let len = ffi::PyBytes_Size(value).unsigned_abs();
                if len > MAX_WORDS {
                    return Err(LARGE_VALUE);
                }
                let data = ffi::PyBytes_AsString(value).cast::<u8>();
                self.call.signature.bytes(Tag::Bytes, std::slice::from_raw_parts(data, len));
                return Ok(());
            }
        }
        self.object(value, class, depth)
    }

    /// Classes of jax and numpy, and what is refused.
    fn object(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if self.concrete(value, class)? {
            return Ok(());
        }
        if is_stable(value) {
            self.identity(value);
            return Ok(());
        }
        if self.in_program || self.has_rules {
            let wrapped = is_exactly(value, self.jax.wrapped_function_type.as_ptr().cast());
            let function = class == &raw mut ffi::PyFunction_Type && self.within.is_empty();
            if (wrapped || function) && self.derivative_rule(value, depth)? {
                return Ok(());
            }
            if is_exactly(value, self.jax.shaped_array_type.as_ptr().cast()) {
                self.identity(value);
                return Ok(());
            }
        }
        if class == &raw mut ffi::PyFunction_Type {
            return self.function(value, depth);
        }
        if is_exactly(value, self.jax.custom_vjp_type.as_ptr().cast()) {
            return self.custom_vjp(value, depth);
        }
        if is_exactly(value, self.jax.custom_jvp_type.as_ptr().cast()) {
            return self.custom_jvp(value, depth);
        }
        if self.programs && is_jaxpr(self.py, self.jax, value) {
            return self.program(value);
        }
        // SAFETY: looking up a type runs no Python code.
        let immutable = self.programs
            && unsafe {
                ffi::PySet_Contains(self.jax.immutable_types.as_ptr(), class.cast()) == 1
                    || class == &raw mut ffi::PyFrozenSet_Type && has_names_only(self.py, value)
            };
        if immutable || is_exactly(value, self.jax.shape_dtype_struct_type.as_ptr().cast()) {
            // SAFETY: a live argument. jax's own comparison runs, which changes nothing.
            let object = unsafe { Bound::from_borrowed_ptr(self.py, value) };
            let shared = shared(&object).map_err(|_| UNKNOWN_OBJECT)?;
            self.identity(shared.as_ptr());
            self.call.own().kept.push(shared.unbind());
            return Ok(());
        }
        if self.programs && is_exactly(value, self.jax.ref_type.as_ptr().cast()) {
            // SAFETY: a live argument.
            return self.ref_type(&unsafe { Bound::from_borrowed_ptr(self.py, value) });
        }
        let Ok(known) = value_classes(self.py) else { return Err(UNKNOWN_OBJECT) };
        let subtype = |class: *mut ffi::PyTypeObject, of: &Py<pyo3::types::PyType>| {
            // SAFETY: two types; the method resolution order is read, no Python runs.
            unsafe { ffi::PyType_IsSubtype(class, of.as_ptr().cast()) != 0 }
        };
        let is_fixed = |class: *mut ffi::PyObject| {
            // SAFETY: looking up a type runs no Python code.
            unsafe { ffi::PySet_Contains(self.jax.fixed_types.as_ptr(), class) == 1 }
        };
        // SAFETY: as above; types are live objects.
        if unsafe { ffi::PyType_Check(value) != 0 } {
            // Another class may do anything when it is called, and may change.
            if !is_fixed(value) && !is_omitted(Item::Classes) {
                return Err(USERS_CLASS);
            }
            // A function calls it.
            self.writes |=
                !self.within.is_empty() && value == (&raw mut ffi::PyUnicode_Type).cast();
            self.identity(value);
            return Ok(());
        }
        if subtype(class, &known.dtype) {
            return self.dtype(value, class, known);
        }
        // SAFETY: the type of a type.
        if subtype(unsafe { ffi::Py_TYPE(class.cast()) }, &known.enum_meta) {
            return self.enum_member(value, class, depth);
        }
        if subtype(class, &known.numpy_scalar) {
            if !is_fixed(class.cast()) && !is_omitted(Item::Classes) {
                return Err(USERS_CLASS);
            }
            return self.numpy_scalar(value, class);
        }
        if class == known.numpy_array.as_ptr().cast() && !self.in_program {
            return self.numpy_array(value);
        }
        if is_exactly(value, self.jax.index_update_ref_type.as_ptr().cast()) {
            return self.index_update_ref(value, class, depth);
        }
        if is_exactly(value, self.jax.named_sharding_type.as_ptr().cast()) {
            // SAFETY: a live argument. jax's own comparison runs, which changes nothing.
            let sharding = unsafe { Bound::from_borrowed_ptr(self.py, value) };
            let shared = shared(&sharding).map_err(|_| UNKNOWN_OBJECT)?;
            // The argument is alive, and so is what stands for it.
            self.identity(shared.as_ptr());
            return Ok(());
        }
        if is_exactly(value, self.jax.zero_type.as_ptr().cast()) {
            // SAFETY: the exact type was checked.
            let aval = unsafe { self.jax.slots.zero_aval.peek(value) };
            if aval.is_null() {
                return Err(UNKNOWN_OBJECT);
            }
            self.call.signature.pair(Tag::Fields, 1, class as u64);
            self.identity(aval);
            return Ok(());
        }
        if self.programs && self.record(value, class, depth)? {
            return Ok(());
        }
        self.unknown(value, class)
    }

    /// A member of an enum: itself, and of a user's enum the value that it has now.
    fn enum_member(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        // SAFETY: the class of a live argument.
        let verdict = unsafe { verdict(self.py, class) };
        let unknown = verdict == Verdict::Other;
        if unknown && !is_omitted(Item::Classes) {
            return Err(USERS_CLASS);
        }
        if unknown || verdict == Verdict::Library {
            self.identity(value);
            return Ok(());
        }
        // Its class has it for as long as that lives.
        self.call.signature.pair(Tag::Identity, 0, value as u64);
        self.pin(class.cast());
        self.registration(class);
        // SAFETY: a live argument, whose class has no descriptors of the user's.
        let member = unsafe { Bound::from_borrowed_ptr(self.py, value) };
        let own = member.getattr(intern!(self.py, "__dict__")).map_err(|_| UNKNOWN_OBJECT)?;
        let own = own.cast_into::<PyDict>().map_err(|_| UNKNOWN_OBJECT)?;
        for (name, part) in own.iter() {
            let name = name.cast_into_exact::<PyString>().map_err(|_| UNKNOWN_OBJECT)?;
            match name.to_str().map_err(|_| UNKNOWN_OBJECT)? {
                "_value_" | "_inverted_" => self.value(part.as_ptr(), depth + 1)?,
                "_name_" | "__objclass__" | "_sort_order_" => {}
                _ => return Err(USERS_CLASS),
            }
        }
        Ok(())
    }

    /// How a class is registered as a tree, which jax goes by where an instance is flattened.
    fn registration(&mut self, class: *mut ffi::PyTypeObject) {
        if is_omitted(Item::Trees) {
            return;
        }
        // SAFETY: a class has a hash of its own, since its class is `type`: no Python runs.
        let entry =
            unsafe { ffi::PyDict_GetItemWithError(self.jax.tree_registry.as_ptr(), class.cast()) };
        self.call.signature.word(entry as u64);
        if !entry.is_null() {
            self.pin(entry);
        }
    }

    /// What `x.at[i]` is.
    fn index_update_ref(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        self.call.signature.pair(Tag::Fields, 2, class as u64);
        let slots: [Slot; 2] = self.jax.slots.index_update_ref;
        for slot in slots {
            // SAFETY: the exact type was checked.
            let field = unsafe { slot.peek(value) };
            if field.is_null() {
                return Err(UNKNOWN_OBJECT);
            }
            self.value(field, depth + 1)?;
        }
        Ok(())
    }

    /// An object among params that is what its fields are; whether it is one.
    fn record(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<bool, Reason> {
        // SAFETY: a live argument.
        let record = unsafe { Bound::from_borrowed_ptr(self.py, value) };
        let Some(fields) = fields_of(self.jax, &record) else { return Ok(false) };
        self.call.signature.pair(Tag::Fields, fields.len(), class as u64);
        for name in fields.iter() {
            // An attribute of the instance, which holds it.
            let field = record.getattr(name.cast::<PyString>().map_err(|_| UNKNOWN_OBJECT)?);
            self.value(field.map_err(|_| UNKNOWN_OBJECT)?.as_ptr(), depth + 1)?;
        }
        Ok(true)
    }

    /// The type of an array, or of a Ref to one.
    pub(in crate::python::cache) fn aval(
        &mut self,
        aval: &Bound<'py, PyAny>,
    ) -> Result<(), Reason> {
        if is_exactly(aval.as_ptr(), self.jax.shaped_array_type.as_ptr().cast()) {
            self.identity(aval.as_ptr());
            return Ok(());
        }
        if is_exactly(aval.as_ptr(), self.jax.ref_type.as_ptr().cast()) {
            return self.ref_type(aval);
        }
        Err(REF)
    }

    fn ref_type(&mut self, aval: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let field = |name| aval.getattr(name).map_err(|_| UNKNOWN_OBJECT);
        let inner = field(intern!(self.py, "inner_aval"))?;
        if !is_exactly(inner.as_ptr(), self.jax.shaped_array_type.as_ptr().cast()) {
            return Err(REF);
        }
        self.call.signature.pair(Tag::Fields, 3, aval.get_type_ptr() as u64);
        self.identity(inner.as_ptr());
        for name in [intern!(self.py, "memory_space"), intern!(self.py, "kind")] {
            self.value(field(name)?.as_ptr(), 0)?;
        }
        Ok(())
    }

    /// A dtype: itself. The names of its fields may change.
    fn dtype(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        known: &ValueClasses,
    ) -> Result<(), Reason> {
        if class == known.void_dtype.as_ptr().cast() {
            return Err(UNKNOWN_OBJECT);
        }
        self.identity(value);
        Ok(())
    }

    fn numpy_scalar(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
    ) -> Result<(), Reason> {
        self.call.signature.pair(Tag::Scalar, 0, class as u64);
        self.pin(class.cast());
        if !self.within.is_empty() && !is_equal_to_itself(self.py, value) {
            return Err(NOT_A_NUMBER);
        }
        self.buffer(value)
    }

    /// A small array of numpy's, such as a list of places, by what is in it now. It may change, so a
    /// call that keeps it is refused later.
    fn numpy_array(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live array; its buffer and what describes it are read while it is held.
        unsafe {
            let mut view: ffi::Py_buffer = std::mem::zeroed();
            let flags = ffi::PyBUF_FORMAT | ffi::PyBUF_C_CONTIGUOUS;
            if ffi::PyObject_GetBuffer(value, &raw mut view, flags) != 0 {
                ffi::PyErr_Clear();
                return Err(CONCRETE_ARRAY);
            }
            let dims = usize::try_from(view.ndim).unwrap_or(0);
            let len = view.len.unsigned_abs();
            let format: &[u8] = if view.format.is_null() {
                &[]
            } else {
                std::ffi::CStr::from_ptr(view.format).to_bytes()
            };
            // Objects may change, wherever they are.
            let is_plain = !format.is_empty() && !format.contains(&b'O');
            let fits = dims > 0 && len <= MAX_ARRAY && is_plain;
            if fits {
                self.call.signature.tag(Tag::Array, dims);
                for &dim in std::slice::from_raw_parts(view.shape, dims) {
                    self.call.signature.word(dim.cast_unsigned() as u64);
                }
                self.call.signature.bytes(Tag::Text, format);
                let bytes: &[u8] = match len {
                    _ if is_omitted(Item::Mutable) => &[],
                    0 => &[],
                    _ => std::slice::from_raw_parts(view.buf.cast::<u8>(), len),
                };
                self.call.signature.bytes(Tag::Bytes, bytes);
            }
            ffi::PyBuffer_Release(&raw mut view);
            if !fits {
                return Err(CONCRETE_ARRAY);
            }
        }
        self.call.finite_float = true;
        self.call.has_mutable_arrays = true;
        (self.mutable, self.call.may_change) = (true, true);
        Ok(())
    }

    /// The bytes of a numpy scalar, or of an array without dimensions.
    fn buffer(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        // To ask one of jax's for its buffer may append an equation.
        if is_exactly(value, self.jax.array_type.as_ptr().cast()) {
            return Err(CONCRETE_ARRAY);
        }
        let signature = &mut self.call.signature;
        let fits = with_bytes(value, |bytes| {
            let fits = bytes.len() <= 64;
            if fits {
                let omitted = is_omitted(Item::Numbers);
                signature.bytes(Tag::Bytes, if omitted { &[] } else { bytes });
            }
            fits
        });
        if !fits.ok_or(UNKNOWN_OBJECT)? {
            return Err(LARGE_VALUE);
        }
        self.call.finite_float = true;
        Ok(())
    }

    /// An object of which nothing is known.
    #[cold]
    fn unknown(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
    ) -> Result<(), Reason> {
        // SAFETY: a live argument.
        let is_callable = unsafe { ffi::PyCallable_Check(value) != 0 };
        if is_omitted(if is_callable { Item::Callables } else { Item::Classes }) {
            self.identity(value);
            return Ok(());
        }
        Err(self.refusal(value, class))
    }

    /// Why an object is refused.
    #[cold]
    fn refusal(&self, value: *mut ffi::PyObject, class: *mut ffi::PyTypeObject) -> Reason {
        let jax = self.jax;
        // SAFETY: types only; no Python runs.
        unsafe {
            let is = |of: &Py<pyo3::types::PyType>| {
                ffi::PyType_IsSubtype(class, of.as_ptr().cast()) != 0
            };
            if is(&jax.any_tracer_type) {
                return FOREIGN_TRACER;
            }
            if ffi::PySet_Contains(jax.plain_const_types.as_ptr(), class.cast()) == 1
                || value_classes(self.py).is_ok_and(|known| is(&known.numpy_array))
            {
                return CONCRETE_ARRAY;
            }
            if ffi::PyCallable_Check(value) != 0 {
                return CALLABLE;
            }
            if (*class).tp_hash.is_none_or(|hash| {
                std::ptr::fn_addr_eq(hash, ffi::PyObject_HashNotImplemented as ffi::hashfunc)
            }) {
                return UNHASHABLE;
            }
        }
        UNKNOWN_OBJECT
    }
}

/// The names of the fields of an object that is what these are.
pub fn fields_of<'py>(jax: &Jax, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyTuple>> {
    let class = object.get_type();
    let known = jax.records.bind(object.py()).get_item(&class).ok()?;
    let fields = match known {
        Some(fields) => fields,
        None => jax.find_record.bind(object.py()).call1((class,)).ok()?,
    };
    fields.cast_into().ok()
}

/// Whether a scalar of numpy's is no NaN.
fn is_equal_to_itself(py: Python<'_>, value: *mut ffi::PyObject) -> bool {
    // SAFETY: a live scalar of a class of numpy's; to compare it runs no code of the user's.
    let result = unsafe { ffi::PyObject_RichCompare(value, value, ffi::Py_EQ) };
    // SAFETY: the result is ours, if there is one.
    let result = unsafe { Bound::from_owned_ptr_or_opt(py, result) };
    if result.is_none() {
        let _ = PyErr::take(py);
    }
    result.is_some_and(|result| result.is_truthy().unwrap_or(false))
}

/// Whether the items of a set are strings.
fn has_names_only(py: Python<'_>, set: *mut ffi::PyObject) -> bool {
    // SAFETY: a live frozen set; to iterate over it runs no Python code.
    let items = unsafe { Bound::from_borrowed_ptr(py, set) };
    items.try_iter().is_ok_and(|mut items| {
        items.all(|item| item.is_ok_and(|item| item.is_exact_instance_of::<PyString>()))
    })
}

/// Whether a subclass of tuple has nothing of the user's beyond its items, and names for them.
///
/// # Safety
/// `class` is a live type.
pub unsafe fn is_plain_namedtuple(py: Python<'_>, class: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: as promised.
    unsafe { (*class).tp_dictoffset == 0 && verdict(py, class) != Verdict::Other }
}
