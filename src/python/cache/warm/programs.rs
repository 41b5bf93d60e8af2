//! Programs of jits of jax's own, as the store has them.
//!
//! Such a program has no line of the user's. It is an entry of its own, under the request that leads jax to it.

use pyo3::prelude::*;

use crate::segments::{Key, key_of};

use crate::python::cache::key::trace_context::{configuration_now, world_of};
use crate::python::cache::programs::stored;
use crate::python::cache::warm::keys::key_of_parts;
use crate::python::cache::warm::library::current;
use crate::python::cache::warm::values::{circumstances, library, unless_damaged};
use crate::python::jax::names::{Jax, jax};
use crate::python::store::pieces::Piece;
use crate::python::trace::abstract_eval::Context;

/// Tells these keys from all others.
const KIND: &[u8] = b"the program of a jit";

/// A program that is to be written, with what else jax has for the request.
#[pyclass(module = "jaxide._core", frozen)]
pub struct KeptProgram {
    program: Py<PyAny>,
    /// Other params of an equation, and a description of the tree of the results.
    beside: Py<PyAny>,
}

impl KeptProgram {
    /// Writes the entry.
    ///
    /// # Errors
    /// Something has no form.
    pub fn save<'py>(
        &self,
        piece: &mut Piece<'_, '_, 'py>,
        py: Python<'py>,
        jax: &Jax,
    ) -> PyResult<()> {
        stored::save_alone(piece, jax, self.program.bind(py))?;
        piece.value(self.beside.bind(py))
    }
}

/// The key of the program to which a request for one of a jit of jax's own leads, for the devices that there are and
/// the current configuration; None where there is no store, something of jax is not as it was found, or the request has
/// no portable name.
#[pyfunction]
pub fn key_of_program(request: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    let py = request.py();
    let Some(library) = library(py) else { return Ok(None) };
    let Ok(configuration) = configuration_now(py, jax(py)?)? else { return Ok(None) };
    if configuration.jit_disabled || configuration.folds || world_of(configuration.number) != 0 {
        return Ok(None);
    }
    let (Some([devices, now]), Some(request)) =
        (circumstances(py, &library)?, library.names().of_value(request)?)
    else {
        return Ok(None);
    };
    Ok(Some(key_of_parts(&[key_of(KIND), devices, now, request], &[])))
}

/// The program that the store has under a key, and what is beside it; None where it has none.
///
/// # Errors
/// A signal handler raises; the warning that there is for the first entry that is refused.
#[pyfunction]
pub fn stored_program(
    py: Python<'_>,
    key: Key,
) -> PyResult<Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>> {
    let Some(library) = current(py) else { return Ok(None) };
    let jax = jax(py)?;
    let context = Context::current(py, jax)?.for_eqns.bind(py).clone();
    let found = library.read_uncounted(py, key, |reading| {
        let program = stored::load_alone(reading, jax, &context)?;
        Ok((program, reading.value()?))
    });
    unless_damaged(py, &library, found)
}

/// Whether the store may keep a program under a key, and does not have it.
///
/// # Errors
/// The program cannot be read.
#[pyfunction]
pub fn may_store_program(key: Key, program: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = program.py();
    let Some(library) = current(py) else { return Ok(false) };
    if !library.is_writable() || library.has(key) {
        return Ok(false);
    }
    let jax = jax(py)?;
    stored::lasts_alone(jax, Context::current(py, jax)?.for_eqns.bind(py), program)
}

/// Has the store keep a program under a key, and what is beside it, once it is written.
///
/// # Errors
/// Out of memory.
#[pyfunction]
pub fn store_program(
    py: Python<'_>,
    key: Key,
    program: Py<PyAny>,
    beside: Py<PyAny>,
) -> PyResult<()> {
    if let Some(library) = current(py) {
        library.keep(key, Bound::new(py, KeptProgram { program, beside })?.as_any());
    }
    Ok(())
}
