//! Instances of jax's classes that are made without their constructors.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::python::cpython::native::{allocate, instance};
use crate::python::jax::names::Jax;

/// `ValAccum(aval, sum)`, of a type that fits.
///
/// # Errors
/// Out of memory.
pub fn new_accumulator<'py>(
    jax: &Jax,
    aval: &Bound<'py, PyAny>,
    sum: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = aval.py();
    let accumulator = instance(jax.val_accum_type.bind(py))?;
    accumulator.setattr(intern!(py, "aval"), aval)?;
    accumulator.setattr(intern!(py, "val"), sum)?;
    Ok(accumulator)
}

/// `Zero(aval)`.
///
/// # Errors
/// Out of memory.
pub fn new_zero<'py>(jax: &Jax, aval: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let zero = allocate(jax.zero_type.bind(aval.py()))?;
    // SAFETY: a fresh instance of jax's class, which has this slot.
    unsafe { jax.slots.zero_aval.fill(zero.as_ptr(), aval.clone()) };
    Ok(zero)
}

/// `LinearizeTracer(trace, primal, tangent)`, of a primal that is a tracer of ours.
///
/// # Errors
/// Out of memory.
pub fn new_linear<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    primal: Bound<'py, PyAny>,
    tangent: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let tracer = allocate(jax.linearize_tracer_type.bind(primal.py()))?;
    // SAFETY: a fresh instance of jax's class, which has these slots, all empty; the primal has the
    // slots of a tracer.
    unsafe {
        let raw = tracer.as_ptr();
        let aval = jax.slots.tracer_aval.get(&primal);
        let aval = aval.ok_or_else(|| PyRuntimeError::new_err("a tracer without an aval"))?;
        jax.slots.tracer_trace.fill(raw, trace.clone());
        jax.slots.tracer_aval.fill(raw, aval);
        let [primal_slot, tangent_slot] = jax.slots.linearize_tracer;
        primal_slot.fill(raw, primal);
        tangent_slot.fill(raw, tangent);
    }
    Ok(tracer)
}
