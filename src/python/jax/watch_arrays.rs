//! The array-read detector: noticing that somebody reads the elements of a concrete array.
//!
//! What a function of jax does with a concrete array depends on the array's type, unless it looks
//! into it. Python gets at the elements of a jax array in two ways: its property `_value`, to which
//! all methods lead, and the buffer protocol, which numpy uses.

use std::cell::Cell;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cpython::patch::Patch;
use crate::python::jax::names::{Jax, jax};

thread_local! {
    /// How often this thread has read elements.
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// What numpy calls for an array's buffer.
static GETBUFFER: Patch<ffi::getbufferproc> = Patch::new();

/// Grows with each read of this thread's, while a trace of ours may run.
pub fn count() -> u64 {
    READS.get()
}

/// In place of `ArrayImpl._value`.
///
/// Raises:
///     What the property raises.
#[pyfunction]
pub fn read_value<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    READS.set(READS.get() + 1);
    let py = array.py();
    jax(py)?.stock_value.bind(py).call1((array,))
}

unsafe extern "C" fn counting_getbuffer(
    array: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: std::ffi::c_int,
) -> std::ffi::c_int {
    READS.set(READS.get() + 1);
    // SAFETY: saved by `on`, from the slot of this type; CPython's own arguments are passed on.
    GETBUFFER.saved().map_or(-1, |stock| unsafe { stock(array, view, flags) })
}

/// Where `ArrayImpl` has what is called for its buffer; None where it has none.
fn slot(jax: &Jax) -> Option<*mut Option<ffi::getbufferproc>> {
    let class: *mut ffi::PyTypeObject = jax.array_type.as_ptr().cast();
    // SAFETY: a heap type of jax's, which lives as long as the process.
    unsafe {
        let slots = (*class).tp_as_buffer;
        (!slots.is_null()).then(|| &raw mut (*slots).bf_getbuffer)
    }
}

/// Starts noticing.
pub fn on(jax: &Jax) {
    if let Some(slot) = slot(jax) {
        // SAFETY: changed with the interpreter attached; CPython reads it at each call.
        unsafe { GETBUFFER.apply(slot, counting_getbuffer) };
    }
}

/// Stops noticing.
pub fn off(jax: &Jax) {
    if let Some(slot) = slot(jax) {
        // SAFETY: as in `on`.
        unsafe { GETBUFFER.restore(slot) };
    }
}
