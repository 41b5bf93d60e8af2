//! Where equations come from, beside where the call is.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::jax::values::typed_equal;

/// The code objects of a traceback's frames, innermost first, and where each was.
fn frames<'py>(traceback: &Bound<'py, PyAny>) -> PyResult<Vec<(Bound<'py, PyAny>, i64)>> {
    let (codes, places): (Vec<Bound<'py, PyAny>>, Vec<i64>) =
        traceback.call_method0("raw_frames")?.extract()?;
    Ok(codes.into_iter().zip(places).collect())
}

fn same_frame(one: &(Bound<'_, PyAny>, i64), another: &(Bound<'_, PyAny>, i64)) -> bool {
    one.0.is(&another.0) && one.1 == another.1
}

/// Whether a traceback leads to the frame that another ends in.
pub(super) fn is_within(traceback: &Bound<'_, PyAny>, outer: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (inner, outer) = (frames(traceback)?, frames(outer)?);
    // The innermost frame has gone on.
    let outer = outer.get(1..).unwrap_or_default();
    Ok(inner.len() >= outer.len()
        && inner[inner.len() - outer.len()..].iter().zip(outer).all(|(a, b)| same_frame(a, b)))
}

/// Whether the outermost frames of two tracebacks differ.
pub(super) fn begins_apart(
    traceback: &Bound<'_, PyAny>,
    other: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let (own, other) = (frames(traceback)?, frames(other)?);
    Ok(own.last().zip(other.last()).is_none_or(|(own, other)| !same_frame(own, other)))
}

/// What `stack` has after the scopes of `base`; None where it does not start with them.
pub(super) fn below<'py>(
    base: &Bound<'py, PyAny>,
    stack: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let outer = base.getattr("stack")?.cast_into::<PyTuple>()?;
    let inner = stack.getattr("stack")?.cast_into::<PyTuple>()?;
    if inner.len() < outer.len() {
        return Ok(None);
    }
    for (a, b) in outer.iter().zip(inner.iter()) {
        // A scope is equal to a transformation of its name.
        if !typed_equal(&a, &b) {
            return Ok(None);
        }
    }
    let rest = inner.get_slice(outer.len(), inner.len());
    stack.get_type().call1((rest,)).map(Some)
}
