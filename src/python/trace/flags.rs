//! Operations on flags that jax executes while it traces: by numpy, where XLA would compile a program
//! for each kind (`jaxide._compat.flags`). What a process computes often is compiled: it is faster then.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::python::jax::names::Jax;

/// How many operations of a process are computed so.
const MANY: u32 = 128;

static LEFT: AtomicU32 = AtomicU32::new(MANY);

/// What was compiled is forgotten, too.
pub fn forget_counts() {
    LEFT.store(MANY, Ordering::Relaxed);
}

pub fn are_left() -> bool {
    LEFT.load(Ordering::Relaxed) > 0
}

/// What executing a primitive on `args`, of which none is a tracer, comes to; None where XLA is to do
/// it.
///
/// # Errors
/// What jax raises for such operands.
pub fn computed<'py>(
    jax: &Jax,
    primitive: &Bound<'py, PyAny>,
    args: &[Bound<'py, PyAny>],
    params: &Bound<'py, PyDict>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = primitive.py();
    let flags = jax.flags.bind(py);
    if flags.is_none() || !are_left() {
        return Ok(None);
    }
    let made = flags.call1((primitive, PyTuple::new(py, args)?, params))?;
    if made.is_none() {
        return Ok(None);
    }
    let left = LEFT.load(Ordering::Relaxed);
    LEFT.store(left.saturating_sub(1), Ordering::Relaxed);
    Ok(Some(made))
}
