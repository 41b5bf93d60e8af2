//! `Primitive.bind` while a trace of ours is current.
//!
//! The fast path covers what nearly every call is: operands that are tracers of this trace or plain
//! constants, a primitive with jax's own `bind_with_trace`, no mesh to check. It answers None for
//! anything else, before any effect, and jax's own `bind` runs instead.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use crate::python::cache::key::transformations::Stack;
use crate::python::cache::rules;
use crate::python::jax::avals::aval_info;
use crate::python::jax::current_trace::{current_trace, within_trace};
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::trace::abstract_eval::{Context, PrimitiveInfo};
use crate::python::trace::frame::{Frame, Operand};
use crate::python::trace::jaxpr_trace::{
    const_operand, frame_of, has_high_param, is_ours, keeps_params, results,
};
use crate::python::trace::session;
use crate::python::trace::stage::{Objects, Staging, stage, stage_known};
use crate::python::trace::tracer::variable_of_trace;

/// What `Primitive.bind(primitive, *args, **params)` returns; `NotImplemented` where jax's own code is to
/// go on.
#[pyfunction]
pub fn bind<'py>(
    primitive: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    params: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = primitive.py();
    let jax = jax(py)?;
    let trace = current_trace(py, jax)?;
    if is_ours(py, trace.as_ptr())
        && let Some(frame) = frame_of(jax, &trace)
        && let Some(outs) =
            bind_here(jax, (&trace, &frame), primitive, args, Params::New(params), || {
                SourceRef::current(py, jax)
            })?
    {
        return results(py, PrimitiveInfo::of(jax, primitive)?, outs);
    }
    let stock = |params: &Bound<'py, PyDict>| {
        let mut all = Vec::with_capacity(args.len() + 1);
        all.push(primitive.clone());
        all.extend(args.iter());
        jax.stock_bind.bind(py).call(PyTuple::new(py, all)?, Some(params))
    };
    if !session::is_idle(py)?
        && Stack::is_one(jax, &trace)
        && let Some(result) = rules::bind(jax, primitive, args, params, stock)?
    {
        return Ok(result);
    }
    Ok(py.NotImplemented().into_bound(py))
}

/// The params that a primitive is bound with.
#[derive(Clone, Copy)]
pub(super) enum Params<'a, 'py> {
    /// A dict that nobody else has.
    New(&'a Bound<'py, PyDict>),
    OfEquation(&'a Bound<'py, PyDict>),
}

/// Appends a primitive to the current trace, a recording one: the tracers of its results; None where
/// jax's own code is to do it. `source` says where that is from.
///
/// # Errors
/// Whatever jax's rules raise.
pub(super) fn bind_here<'py>(
    jax: &Jax,
    (trace, frame): (&Bound<'py, PyAny>, &Bound<'py, Frame>),
    primitive: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    given: Params<'_, 'py>,
    source: impl FnOnce() -> PyResult<SourceRef<'py>>,
) -> PyResult<Option<Objects<'py>>> {
    let py = trace.py();
    let (Params::New(params) | Params::OfEquation(params)) = given;
    let info = PrimitiveInfo::of(jax, primitive)?;
    if !info.plain_is_high || !binds_plainly(info, params)? || info.ref_allocating {
        return Ok(None);
    }
    if let Some(rule) = jax.custom_staging_rules.bind(py).get_item(primitive)?
        && !keeps_params(jax, &rule, params)?
    {
        return Ok(None);
    }
    let context = Context::current(py, jax)?;
    if context.eager_folding {
        return Ok(None);
    }
    let mut operands: SmallVec<[Operand<'_>; 4]> = SmallVec::new();
    for arg in args.iter_borrowed() {
        match plain_operand(jax, trace, frame, &arg)? {
            Some(operand) => operands.push(operand),
            None => return Ok(None),
        }
    }
    let source = source()?;
    let at = Staging { trace, frame, primitive, info, context: &context, source: &source };
    // What is remembered was checked when it was learnt: its avals have no mesh, its params are
    // not high.
    if let Some(outs) = stage_known(jax, &at, &operands, params)? {
        return Ok(Some(outs));
    }
    for operand in &operands {
        if !aval_info(jax, operand.aval())?.empty_mesh {
            return Ok(None);
        }
    }
    if has_high_param(jax, params)? {
        return Ok(None);
    }
    let own = match given {
        Params::New(params) => params.clone(),
        Params::OfEquation(params) => params.copy()?,
    };
    within_trace(jax, jax.binding_trace.bind(py), trace, || stage(jax, &at, &operands, &own))
        .map(Some)
}

/// Whether `bind_with_trace` does no more than process the primitive.
fn binds_plainly(info: PrimitiveInfo, params: &Bound<'_, PyDict>) -> PyResult<bool> {
    if info.plain_bind || !info.plain_without_sharding {
        return Ok(info.plain_bind);
    }
    let sharding = params.get_item(intern!(params.py(), "sharding"))?;
    Ok(sharding.is_some_and(|sharding| sharding.is_none()))
}

/// An operand that needs none of `bind`'s checks.
fn plain_operand<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    arg: &Bound<'py, PyAny>,
) -> PyResult<Option<Operand<'py>>> {
    let py = trace.py();
    if let Some(var) = variable_of_trace(py, jax, arg.as_ptr(), trace.as_ptr()) {
        // SAFETY: a tracer of ours.
        let Some(aval) = (unsafe { jax.slots.tracer_aval.get(arg) }) else { return Ok(None) };
        return Ok(Some(Operand::Var { var, aval, tracer: Some(arg.clone()) }));
    }
    let class: *mut ffi::PyObject = arg.get_type_ptr().cast();
    // SAFETY: sets of types; looking up a type runs no Python code.
    let plain = unsafe {
        ffi::PySet_Contains(jax.literalable_scalar_types.as_ptr(), class) == 1
            || ffi::PySet_Contains(jax.plain_const_types.as_ptr(), class) == 1
    };
    if !plain {
        return Ok(None);
    }
    let value = jax.canonicalize_value.bind(py).call1((arg,))?;
    let aval = jax.typeof_fn.bind(py).call1((&value,))?;
    const_operand(jax, frame, &value, Some(aval)).map(Some)
}
