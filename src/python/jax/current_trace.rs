//! jax's current trace.

use pyo3::intern;
use pyo3::prelude::*;

use crate::python::jax::names::Jax;

/// The trace that is current in this thread.
///
/// # Errors
/// jax's state cannot be read.
#[inline]
pub fn current_trace<'py>(py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyAny>> {
    jax.trace_state.bind(py).getattr(intern!(py, "value"))
}

/// Runs `body` while `trace` is current. Afterwards `next` is, whatever came of it.
///
/// # Errors
/// Those of `body`; jax's state cannot be changed.
pub fn within_trace<'py, R>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    next: &Bound<'py, PyAny>,
    body: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let set_trace = jax.set_trace.bind(trace.py());
    set_trace.call1((trace,))?;
    let result = body();
    set_trace.call1((next,))?;
    result
}
