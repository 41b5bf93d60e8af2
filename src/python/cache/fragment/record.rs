//! Reads back what a call appended and returned.

use std::cell::RefCell;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::ir::Var;

use crate::python::cache::fragment::before::{Before, BeforeTangents, in_order_of_use};
use crate::python::cache::fragment::read_part::Reading;
use crate::python::cache::fragment::recorded::{Captured, Part, Recorded};
use crate::python::cache::fragment::result::{Origin, Recipe};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::trace_context::TraceContext;
use crate::python::cache::key::transformations::Stack;
use crate::python::cache::programs::given::Given;
use crate::python::cache::reasons::{
    CAPTURED_TWICE, FORGOTTEN, ORDER_OF_CONSTANTS, OUTER_VALUE, Reason, STRUCTURED_RESIDUALS,
};
use crate::python::jax::names::Jax;
use crate::python::trace::tracer::{Traced, traced, variable};

/// Reads what was appended since a call began, and its result. What is read to be `audited` only need not
/// hold for other calls.
///
/// # Errors
/// Why it cannot be replayed.
pub fn record<'py>(
    jax: &Jax,
    context: &TraceContext<'py>,
    before: &Before<'py>,
    call: &Call,
    result: &Bound<'py, PyAny>,
    audited: bool,
) -> Result<Recorded, Reason> {
    let py = context.trace.py();
    let stack = context.stack();
    let tracebacks = match Given::of(py, jax, call) {
        Some(given) => given.tracebacks(py, jax).ok_or(FORGOTTEN)?,
        None => FxHashSet::default(),
    };
    let caller = &before.source;
    let are_whole = call.within_scopes || stack.is_some_and(Stack::has_whole_scopes);
    let base = if are_whole { None } else { Some(caller) };
    let tracebacks = &tracebacks;
    let leaves_scopes = stack.is_some_and(Stack::linearizes);
    let uses = None;
    let reading = Reading { jax, call, base, leaves_scopes, uses, tracebacks, caller, audited };
    let mut outs: FxHashMap<Var, usize> = FxHashMap::default();
    let part = {
        let captured = |_: Var, value: &Bound<'_, PyAny>| {
            Captured::enclosing(call, value).map_or_else(|| Captured::constant(jax, value), Ok)
        };
        let (frame, mark) = &before.frame;
        reading.part(frame, *mark, &call.args, captured, &mut outs)?
    };
    let (made, constants, literal_tracers) = Default::default();
    let tangent_outs = RefCell::default();
    let origin = Origin {
        jax,
        trace: &context.trace,
        stack,
        call,
        part: &part,
        outs: &outs,
        tangent_outs: &tangent_outs,
        transformed: &made,
        constants: &constants,
        literal_tracers: &literal_tracers,
    };
    let tangents = tangent_parts(&origin, reading, before)?;
    let recipe = Recipe::of(&origin, result, 0)?;
    let structured_residuals = structured_residuals(&origin, before)?;
    check_constants(&origin, before)?;
    let transformed: Vec<_> = made.into_inner().into_iter().map(|(_, recipe)| recipe).collect();
    Recorded::new(part, tangents, recipe, transformed, structured_residuals)
}

/// What was appended to the tangents' programs, each with its level.
fn tangent_parts<'py>(
    origin: &Origin<'_, 'py>,
    reading: Reading<'_, 'py>,
    before: &Before<'py>,
) -> Result<SmallVec<[(usize, Part); 1]>, Reason> {
    let mut tangents = SmallVec::new();
    for begun in &before.tangents {
        let from = begun.constants_used;
        let uses = begun.frame.get().peek(|state| state.constants_used(from));
        let captured = |var: Var, value: &Bound<'py, PyAny>| {
            // One that was captured before is as if it were new where it is used once only: else
            // it may have come and gone in between, which decides its place among the constants.
            let known = var.as_u32() < begun.mark.vars;
            let is_again = || uses.iter().filter(|&&other| other == var).count() > 1;
            if known && !reading.audited && is_again() {
                return Err(CAPTURED_TWICE);
            }
            residual(origin, begun, value)
        };
        let reading = Reading { uses: Some(&uses), ..reading };
        let args = origin.call.tangents_of(begun.level);
        let mut outs = FxHashMap::default();
        let part = reading.part(&begun.frame, begun.mark, &args, captured, &mut outs)?;
        origin.tangent_outs.borrow_mut().push((begun.level, outs));
        if !part.equations.is_empty() {
            tangents.push((begun.level, part));
        }
    }
    Ok(tangents)
}

/// What the program of tangents captures.
fn residual<'py>(
    origin: &Origin<'_, 'py>,
    begun: &BeforeTangents<'py>,
    value: &Bound<'py, PyAny>,
) -> Result<Captured, Reason> {
    let (jax, call, py) = (origin.jax, origin.call, value.py());
    if let Some(enclosing) = Captured::enclosing(call, value) {
        return Ok(enclosing);
    }
    if let Some(index) = call.traced.iter().position(|&traced| traced == value.as_ptr()) {
        return Ok(Captured::Arg(index));
    }
    match traced(py, jax, value.as_ptr(), origin.trace.as_ptr()) {
        Some(Traced::Variable(primal)) => {
            return origin.outs.get(&primal).copied().map(Captured::Out).ok_or(OUTER_VALUE);
        }
        Some(Traced::Literal) => {
            let given = call.literals.iter().position(|&given| given == value.as_ptr());
            // SAFETY: `traced` found our type, which has jax's slots.
            let literal = unsafe { jax.slots.tracer_val.get(value) };
            let own = literal.as_ref().and_then(|literal| origin.part.own_literal(literal));
            if let Some(given) = given {
                return Ok(Captured::LiteralArg(given));
            }
            let number = origin.literal_tracer(value);
            return own
                .map(|own| Captured::OwnLiteral(own, number))
                .or_else(|| literal.map(|literal| Captured::Literal(literal.unbind(), number)))
                .ok_or(OUTER_VALUE);
        }
        Some(Traced::Constant) => return origin.constant(value).map(Captured::Constant),
        _ => {}
    }
    match Recipe::of_residual(origin, value, begun.level + 1)? {
        Some(Recipe::Transformed(number)) => Ok(Captured::Transformed(number)),
        Some(_) => Err(OUTER_VALUE),
        None => Captured::constant(jax, value),
    }
}

/// What rules have passed by, each with its level.
fn structured_residuals<'py>(
    origin: &Origin<'_, 'py>,
    before: &Before<'py>,
) -> Result<Vec<(usize, Recipe)>, Reason> {
    let mut residuals = Vec::new();
    for begun in &before.tangents {
        let linearization = origin.stack.and_then(|stack| stack.linearization(begun.level));
        let list = linearization
            .and_then(|linearization| linearization.structured_residuals(origin.trace.py()));
        let Some(list) = list else { continue };
        for item in list.get_slice(begun.structured_residuals, list.len()) {
            let recipe = Recipe::of(origin, &item, 0)?;
            // Most rules have none to pass: an empty tree.
            if recipe.is_traced() {
                return Err(STRUCTURED_RESIDUALS);
            }
            residuals.push((begun.level, recipe));
        }
    }
    Ok(residuals)
}

/// Refuses constants that a replay would make in another order.
fn check_constants(origin: &Origin<'_, '_>, before: &Before<'_>) -> Result<(), Reason> {
    let Some(from) = before.constants_used else { return Ok(()) };
    let (frame, mark) = &before.frame;
    let py = origin.trace.py();
    let given: SmallVec<[Var; 4]> =
        origin.call.traced.iter().filter_map(|&tracer| variable(py, tracer)).collect();
    if !in_order_of_use(frame, *mark, from, &given, &origin.constants.borrow()) {
        return Err(ORDER_OF_CONSTANTS);
    }
    Ok(())
}
