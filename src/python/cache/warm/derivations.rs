//! What functions of jax have made of programs, as the store has it.

use std::sync::Arc;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::segments::{Key, key_of};

use crate::python::cache::key::canonical::canonical_traceback;
use crate::python::cache::programs::given::Given;
use crate::python::cache::programs::stored;
use crate::python::cache::warm::keys::key_of_parts;
use crate::python::cache::warm::library::{Library, current, is_open};
use crate::python::cache::warm::lookup::{self, is_changed_by_hand};
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::trace::abstract_eval::Context;

/// How the store may have what a function makes of a program.
#[derive(Clone, Copy)]
pub struct Sought {
    /// The key.
    pub key: Key,
    /// The devices that there were when the function was called.
    devices: Key,
    /// What was not heard by then.
    unheard: u64,
}

impl Sought {
    /// For a function with a name, of the programs given and a key; None where that has no portable name, or
    /// where there is no store.
    ///
    /// # Errors
    /// jax's state cannot be read.
    pub fn new(
        py: Python<'_>,
        jax: &Jax,
        function: &str,
        given: &Given,
        key: &Bound<'_, PyTuple>,
        configuration: u64,
    ) -> PyResult<Option<Self>> {
        let Some(library) = current(py).filter(|_| !is_changed_by_hand()) else { return Ok(None) };
        let names = library.names();
        let Some(devices) = names.of_devices(py)? else { return Ok(None) };
        let Some(configuration) = names.of_configuration(py, configuration)? else {
            return Ok(None);
        };
        let Some(name) = names.of_value(key)? else { return Ok(None) };
        let Some(mut words) = given.portable(py, jax) else { return Ok(None) };
        // What the function adds of its own has the line of the call, which may be one of the program's.
        let Some(line) = place_of_call(py, jax, given)? else { return Ok(None) };
        words.extend([devices, configuration, name, line]);
        let key = key_of_parts(&words, &key_of(function.as_bytes()).to_le_bytes());
        Ok(Some(Self { key, devices, unheard: lookup::unheard() }))
    }

    /// What the store has, and whether equations in it have derivative rules; None where it has nothing, or jax would
    /// make others. `deriving` returns what has jax make it.
    ///
    /// # Errors
    /// A signal handler raises; the warning that there is for the first entry that is refused.
    pub fn found<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        given: &Given,
        deriving: stored::Deriving<'_, 'py>,
    ) -> PyResult<Option<(Bound<'py, PyTuple>, bool)>> {
        let Some(library) = current(py) else { return Ok(None) };
        let context = Context::current(py, jax)?.for_eqns.bind(py).clone();
        let read = library
            .read(py, self.key, |reading| stored::load(reading, jax, &context, given, deriving));
        match read {
            Ok(found) => Ok(found),
            Err(error) if error.is_instance_of::<PyException>(py) => {
                library.refuse(py, &error)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether what the function has made is to be stored.
    ///
    /// # Errors
    /// jax's state cannot be read.
    pub fn holds(
        &self,
        py: Python<'_>,
        jax: &Jax,
        given: &Given,
        result: &Bound<'_, PyTuple>,
    ) -> PyResult<bool> {
        let library = current(py).filter(|_| !is_changed_by_hand());
        let is_written =
            |library: &Arc<Library>| library.is_writable() && lookup::unheard() == self.unheard;
        let Some(library) = library.filter(is_written) else { return Ok(false) };
        if library.names().of_devices(py)? != Some(self.devices) {
            return Ok(false);
        }
        let context = Context::current(py, jax)?;
        stored::is_lasting(jax, context.for_eqns.bind(py), given, result)
    }
}

/// The place of the line of the call among those of the programs given, or the one after them; None where these are
/// forgotten.
fn place_of_call(py: Python<'_>, jax: &Jax, given: &Given) -> PyResult<Option<Key>> {
    let Some(lines) = given.lines(py, jax) else { return Ok(None) };
    let place = match SourceRef::current(py, jax)?.traceback {
        None => None,
        Some(traceback) => {
            let own = canonical_traceback(jax, &traceback)?;
            lines.iter().position(|line| line.is(&own))
        }
    };
    Ok(Some(place.unwrap_or(lines.len()) as Key))
}

/// Notes which programs a function has made of one, with their places in its result: entries name them so.
///
/// # Errors
/// Out of memory.
pub fn note<'py>(
    jax: &Jax,
    function: &str,
    program: &Bound<'py, PyAny>,
    key: &Bound<'py, PyTuple>,
    made: Vec<(usize, Bound<'py, PyAny>)>,
) -> PyResult<()> {
    if !is_open() || made.is_empty() {
        return Ok(());
    }
    let requests = jax.requests.bind(program.py());
    requests.call_method1("note_derived", (function, program, key, made)).map(drop)
}
