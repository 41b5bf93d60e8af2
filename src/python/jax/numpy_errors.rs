//! What numpy does where a number overflows or is divided by zero (`numpy.errstate`).
//!
//! Functions of jax compute with numpy, so what they come to depends on it. It is in a context variable:
//! of a change nobody is told, so each thread compares what is there with what it was.

use std::cell::{Cell, RefCell};
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cpython::native::attached;
use crate::python::cpython::shared::Numbers;
use crate::python::jax::names::Jax;
use crate::python::jax::watch_config;

/// What a thread has found.
struct Found {
    /// It stays alive, so that its address is of one state.
    #[allow(dead_code)] // as said
    value: Py<PyAny>,
    number: Option<u32>,
}

thread_local! {
    /// The address of the value that was found last, which `FOUND` has.
    static LAST: Cell<usize> = const { Cell::new(0) };
    static FOUND: RefCell<Option<Found>> = const { RefCell::new(None) };
}

/// States that were seen, each with its number.
static NUMBERS: Numbers = Numbers::new();

/// Looks whether numpy's error state is another than this thread has found last.
///
/// # Errors
/// It cannot be read.
#[inline]
pub fn poll(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    if jax.numpy_errors.is_none(py) {
        return Ok(());
    }
    let mut value = null_mut();
    // SAFETY: a context variable; it gives a new reference, or none where it has no value.
    unsafe {
        if ffi::PyContextVar_Get(jax.numpy_errors.as_ptr(), null_mut(), &raw mut value) != 0 {
            return Err(PyErr::fetch(py));
        }
    }
    if value as usize == LAST.get() {
        // SAFETY: the reference that was given; `FOUND` has another one.
        unsafe { ffi::Py_XDECREF(value) };
        return Ok(());
    }
    // SAFETY: the reference that was given, if any.
    match unsafe { Bound::from_owned_ptr_or_opt(py, value) } {
        Some(value) => attached(|| look(jax, &value)),
        None => Ok(()),
    }
}

#[cold]
fn look(jax: &Jax, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = value.py();
    let state = jax.numpy_error_state.bind(py).call0()?;
    let number = if state.is_none() { None } else { Some(NUMBERS.of(&state)?) };
    let old = FOUND.replace(Some(Found { value: value.clone().unbind(), number }));
    LAST.set(value.as_ptr() as usize);
    drop(old);
    watch_config::note_change();
    Ok(())
}

/// The number of the state that was found last: none where numpy tells somebody of errors.
pub fn number() -> Option<u32> {
    FOUND.with_borrow(|found| found.as_ref().map_or(Some(0), |found| found.number))
}
