//! Plain values under portable keys: what Python has to tell the next process.

use std::sync::Arc;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::segments::{Key, key_of};

use crate::python::cache::key::trace_context::configuration_now;
use crate::python::cache::warm::keys::key_of_parts;
use crate::python::cache::warm::library::{Library, current, is_open};
use crate::python::cache::warm::lookup::is_changed_by_hand;
use crate::python::jax::names::jax;

/// Tells these keys from all others.
const KIND: &[u8] = b"a value";

/// Whether there is a store.
#[pyfunction]
pub fn is_store_open() -> bool {
    is_open()
}

/// The key of `words`, which mean the same in every process, for the devices that there are and the current
/// configuration; None where there is no store.
#[pyfunction]
pub fn key_of_value(py: Python<'_>, words: &[u8]) -> PyResult<Option<Key>> {
    let Some(library) = library(py) else { return Ok(None) };
    let circumstances = circumstances(py, &library)?;
    Ok(circumstances.map(|[devices, now]| key_of_parts(&[key_of(KIND), devices, now], words)))
}

/// The store, where nobody has changed jax by hand.
pub(super) fn library(py: Python<'_>) -> Option<Arc<Library>> {
    current(py).filter(|_| !is_changed_by_hand())
}

/// The names of the devices that there are, and of the current configuration.
pub(super) fn circumstances(py: Python<'_>, library: &Library) -> PyResult<Option<[Key; 2]>> {
    let Ok(configuration) = configuration_now(py, jax(py)?)? else { return Ok(None) };
    let names = library.names();
    let Some(devices) = names.of_devices(py)? else { return Ok(None) };
    let configuration = names.of_configuration(py, configuration.number)?;
    Ok(configuration.map(|configuration| [devices, configuration]))
}

/// What the store has under a key; None where there is nothing, or something that is no value. It counts as found or
/// missing unless it `is_beside` what a trace asks for.
///
/// # Errors
/// A signal handler raises; the warning that there is for the first entry that is refused.
#[pyfunction]
#[pyo3(signature = (key, is_beside=false))]
pub fn stored_value(
    py: Python<'_>,
    key: Key,
    is_beside: bool,
) -> PyResult<Option<Bound<'_, PyAny>>> {
    let Some(library) = current(py) else { return Ok(None) };
    #[allow(clippy::redundant_closure_for_method_calls)] // the method is for one lifetime
    let found = if is_beside {
        library.read_uncounted(py, key, |reading| reading.value())
    } else {
        library.read(py, key, |reading| reading.value())
    };
    unless_damaged(py, &library, found)
}

/// What was read; None where it could not be.
///
/// # Errors
/// A signal handler raises; the warning that there is for the first entry that is refused.
pub(super) fn unless_damaged<T>(
    py: Python<'_>,
    library: &Library,
    found: PyResult<Option<T>>,
) -> PyResult<Option<T>> {
    match found {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            library.refuse(py, &error)?;
            Ok(None)
        }
        found => found,
    }
}

/// Has the store keep a value of numbers, texts and tuples under a key, once it is written.
#[pyfunction]
pub fn store_value(key: Key, value: &Bound<'_, PyAny>) {
    if let Some(library) = current(value.py()) {
        library.keep(key, value);
    }
}
