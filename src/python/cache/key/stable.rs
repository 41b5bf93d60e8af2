//! Functions of jax that live as long as the process.

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cpython::immortals::Immortals;

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
