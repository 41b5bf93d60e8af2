//! The kinds of calls that are remembered, each as a key.

use std::hash::{Hash, Hasher};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::expand::Tag;

use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encoder::{Encoder, Mode};
use crate::python::cache::key::functions::{Functions, look_through};
use crate::python::cache::key::trace_context::TraceContext;
use crate::python::cache::key::transformations::Stack;
use crate::python::cache::key::values::Held;
use crate::python::cache::reasons::{OTHER_SCOPE, Reason, USERS_CLASS};
use crate::python::cpython::native::{attached, is_exactly};
use crate::python::jax::names::Jax;

/// Describes a call, once all code that is part of it was looked through.
///
/// # Errors
/// Code cannot be looked through.
pub fn encode_fully(
    py: Python<'_>,
    call: &mut Call,
    describe: impl Fn(&mut Call) -> Result<(), Reason>,
) -> PyResult<Result<(), Reason>> {
    let mut described = describe(call);
    while !call.unread_codes.is_empty() {
        let codes: Vec<_> = std::mem::take(&mut call.unread_codes)
            .into_iter()
            // SAFETY: the code of a function among the arguments.
            .map(|code| unsafe { Bound::from_borrowed_ptr(py, code) })
            .collect();
        codes.iter().try_for_each(|code| attached(|| look_through(code)))?;
        *call = call.empty();
        described = describe(call);
    }
    Ok(described)
}

/// Operands that a rule may look into, and params.
const RULE: Mode = Mode::Rule { passes_arrays: false };

impl<'a, 'py> Encoder<'a, 'py> {
    /// Encodes what a rule is given, programs among it.
    fn of_rule(
        py: Python<'py>,
        jax: &'a Jax,
        context: &'a TraceContext<'py>,
        call: &'a mut Call,
    ) -> Self {
        Self { mode: RULE, ..Self::new(py, jax, context, call) }
    }
}

impl Encoder<'_, '_> {
    /// The operands of an equation. A rule that passes arrays on does not look into them.
    fn operands(
        &mut self,
        operands: &[EquationOperand],
        passes_arrays: bool,
    ) -> Result<(), Reason> {
        for (position, operand) in operands.iter().enumerate() {
            match *operand {
                EquationOperand::Value(value) => {
                    self.mode = Mode::Rule { passes_arrays };
                    self.value(value, 0)?;
                    self.mode = RULE;
                }
                EquationOperand::Literal(literal) => {
                    let slots = &self.jax.slots;
                    // SAFETY: a live jax `Literal`.
                    let (value, aval) = unsafe {
                        (slots.literal_val.peek(literal), slots.literal_aval.peek(literal))
                    };
                    self.literal_value(value, aval, Held::Bare)?;
                }
                EquationOperand::Accumulator { place, aval, sum } => {
                    let same = |other: &EquationOperand| match other {
                        EquationOperand::Accumulator { place: other, .. } => *other == place,
                        _ => false,
                    };
                    let first = operands.iter().position(same).unwrap_or(position);
                    self.call.signature.address(Tag::Accumulator, first, aval as u64);
                    self.pin(aval);
                    self.value(sum, 0)?;
                }
            }
        }
        Ok(())
    }
}

/// Adds the arguments of a call: positional ones, then named ones. It is written in place, being
/// large. `functions` says which of the user's functions may be among them.
#[allow(clippy::too_many_arguments)] // a call, and where it happens
pub fn encode<'py>(
    py: Python<'py>,
    jax: &Jax,
    context: &TraceContext<'py>,
    args: &[*mut ffi::PyObject],
    kwnames: *mut ffi::PyObject,
    functions: Functions,
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder { functions, ..Encoder::new(py, jax, context, call) };
    encoder.scopes(context)?;
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

/// Adds a function that is traced, and what it is called with: types stand for so many arrays.
///
/// # Errors
/// Why it has no key.
pub fn encode_whole(
    py: Python<'_>,
    jax: &Jax,
    function: *mut ffi::PyObject,
    args: &[*mut ffi::PyObject],
    traced: usize,
    may_be_seen: bool,
    call: &mut Call,
) -> Result<(), Reason> {
    let functions = Functions::Whole;
    let mode = Mode::Arguments;
    let mut encoder = Encoder { functions, mode, ..Encoder::of_program(py, jax, call) };
    encoder.whole.ever_seen = may_be_seen;
    encoder.value(function, 0)?;
    args.iter().try_for_each(|&arg| encoder.argument(arg, 0))?;
    // Of a type that is an argument itself nothing says that it is none.
    if encoder.whole.traced != traced {
        return Err(USERS_CLASS);
    }
    encoder.finish()
}

/// An equation that jax binds under transformations.
pub struct BoundEquation<'a, 'py> {
    pub primitive: &'a Bound<'py, PyAny>,
    pub operands: SmallVec<[*mut ffi::PyObject; 8]>,
    pub params: *mut ffi::PyObject,
    pub has_programs: bool,
}

/// Adds what a rule of jax is given under transformations.
///
/// # Errors
/// Why it is not remembered.
pub fn encode_rule<'py>(
    py: Python<'py>,
    jax: &Jax,
    context: &TraceContext<'py>,
    equation: &BoundEquation<'_, 'py>,
    call: &mut Call,
) -> Result<(), Reason> {
    let &BoundEquation { primitive, ref operands, params, has_programs } = equation;
    let mut encoder = Encoder::of_rule(py, jax, context, call);
    encoder.functions = Functions::Params;
    if has_programs {
        encoder.given_traceback(context)?;
        // The rule of a loop leaves all scopes for a while, and enters those of the body.
        encoder.call.within_scopes |= !jax.is_jit(primitive);
    } else {
        // No program is traced where a line says it is.
        encoder.call.signature.tag(Tag::Identity, usize::from(context.has_given_traceback()));
    }
    encoder.scopes(context)?;
    encoder.primitive(primitive.as_ptr())?;
    encoder.mode = Mode::Rule { passes_arrays: jax.passes_arrays(primitive) };
    operands.iter().try_for_each(|&operand| encoder.value(operand, 0))?;
    encoder.mode = RULE;
    encoder.value(params, 0)?;
    let located = || jax.located_primitives.bind(py).contains(primitive);
    if encoder.stack.is_some_and(Stack::differentiates) && located().unwrap_or(false) {
        encoder.locate()?;
    }
    encoder.finish()
}

impl<'py> Encoder<'_, 'py> {
    /// The scopes under a differentiation, where they are part of the key.
    fn scopes(&mut self, context: &TraceContext<'py>) -> Result<(), Reason> {
        self.call.within_scopes &= self.stack.is_some_and(Stack::linearizes);
        if !self.call.within_scopes {
            return Ok(());
        }
        let scopes = context.name_stack().getattr(pyo3::intern!(self.py, "stack"));
        let scopes = scopes.and_then(|scopes| Ok(scopes.cast_into::<PyTuple>()?));
        let added = scopes.and_then(|scopes| Stack::add_scopes(&mut self.call.signature, &scopes));
        added.map_err(|_| OTHER_SCOPE)
    }
}

/// Adds what the evaluation of a program is given: the program, its constants and its arguments.
///
/// # Errors
/// Why it is not remembered.
pub fn encode_evaluation<'py>(
    py: Python<'py>,
    jax: &Jax,
    context: &TraceContext<'py>,
    given: &[*mut ffi::PyObject],
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder::of_rule(py, jax, context, call);
    encoder.given_traceback(context)?;
    encoder.scopes(context)?;
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

/// Adds what an open jaxpr consists of.
///
/// # Errors
/// Why it has no key.
pub fn encode_jaxpr(jax: &Jax, jaxpr: &Bound<'_, PyAny>, call: &mut Call) -> Result<(), Reason> {
    let mut encoder = Encoder::of_program(jaxpr.py(), jax, call);
    encoder.open_jaxpr(jaxpr)?;
    encoder.finish()
}

/// Adds a function of a derivative rule.
///
/// # Errors
/// Why it has no key.
pub fn encode_derivative_rule(
    jax: &Jax,
    rule: &Bound<'_, PyAny>,
    call: &mut Call,
) -> Result<(), Reason> {
    Encoder::of_program(rule.py(), jax, call).value(rule.as_ptr(), 0)
}

/// An operand of an equation that is transposed or evaluated.
pub enum EquationOperand {
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

/// The evaluation of an equation that has programs as a call, where no transformation is under way.
///
/// # Errors
/// Why it is not remembered.
pub fn encode_equation<'py>(
    py: Python<'py>,
    jax: &Jax,
    context: &TraceContext<'py>,
    primitive: &Bound<'py, PyAny>,
    params: *mut ffi::PyObject,
    operands: &[EquationOperand],
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder::of_rule(py, jax, context, call);
    encoder.functions = Functions::Params;
    encoder.given_traceback(context)?;
    encoder.primitive(primitive.as_ptr())?;
    encoder.operands(operands, jax.passes_arrays(primitive))?;
    encoder.value(params, 0)?;
    encoder.finish()
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
    context: &TraceContext<'py>,
    equation: &Equation,
    cotangents: &[*mut ffi::PyObject],
    operands: &[EquationOperand],
    call: &mut Call,
) -> Result<(), Reason> {
    let mut encoder = Encoder::of_rule(py, jax, context, call);
    encoder.scopes(context)?;
    encoder.identity(equation.context);
    encoder.primitive(equation.primitive)?;
    // SAFETY: live while the equation is transposed.
    let primitive = unsafe { Bound::from_borrowed_ptr(py, equation.primitive) };
    let passes_arrays = jax.passes_arrays(&primitive);
    if let Some(params) = equation.params {
        encoder.mode = Mode::Equation;
        encoder.functions = Functions::Params;
        encoder.value(params, 0)?;
        encoder.mode = RULE;
        if !encoder.call.programs.is_empty() {
            encoder.transposed_at(context, kinds_of(jax, cotangents, operands))?;
        }
    }
    encoder.call.signature.tag(Tag::Sequence, cotangents.len());
    for &cotangent in cotangents {
        encoder.value(cotangent, 0)?;
    }
    encoder.operands(operands, passes_arrays)?;
    encoder.finish()
}

/// Names which cotangents are zeros and which operands are linear: jax transposes a program for these.
fn kinds_of(jax: &Jax, cotangents: &[*mut ffi::PyObject], operands: &[EquationOperand]) -> u64 {
    let mut hasher = FxHasher::default();
    for &cotangent in cotangents {
        is_exactly(cotangent, jax.zero_type.as_ptr().cast()).hash(&mut hasher);
    }
    for operand in operands {
        matches!(operand, EquationOperand::Accumulator { .. }).hash(&mut hasher);
    }
    hasher.finish()
}
