//! What is known of the params of fragments' equations, for as long as the fragments live.
//!
//! An equation that was replayed has the dict of params of its fragment, the same object each time.
//! So the address of the dict is a key, whatever is in it, and what is remembered under it goes when
//! the fragment goes.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

use crate::python::cache::call::Site;
use crate::python::cache::store;
use crate::python::cpython::native::{address, string_of};
use crate::python::program::graph::ParamsHandle;
use crate::python::trace::session;

/// A dict of params that belongs to a fragment, or to a program. Nothing changes it.
pub struct OwnedParams {
    params: Py<PyDict>,
    /// What is known of it is kept by its address.
    is_known: bool,
}

#[derive(Default)]
struct Known {
    /// How many fragments have the dict.
    owners: usize,
    /// In which outermost trace the first of them was recorded.
    since: u64,
    transposition: Option<Arc<Transposition>>,
    without_dead_code: Option<Arc<OwnedParams>>,
}

/// The transpositions of the equations that have the params.
pub struct Transposition {
    pub site: Site,
}

impl Drop for Transposition {
    fn drop(&mut self) {
        store::forget_callable(self.site.id);
    }
}

static KNOWN: Mutex<Option<FxHashMap<usize, Known>>> = Mutex::new(None);

/// Nothing is dropped while this is held.
fn known() -> MutexGuard<'static, Option<FxHashMap<usize, Known>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OwnedParams {
    /// Notes that a fragment has the dict.
    pub fn new(params: Bound<'_, PyDict>) -> Self {
        let new = || Known { since: session::outermost(), ..Known::default() };
        known().get_or_insert_default().entry(address(&params)).or_insert_with(new).owners += 1;
        Self { params: params.unbind(), is_known: true }
    }

    /// A dict that goes with a program.
    pub fn of_program(params: Bound<'_, PyDict>) -> Self {
        Self { params: params.unbind(), is_known: false }
    }
}

impl Deref for OwnedParams {
    type Target = Py<PyDict>;

    fn deref(&self) -> &Self::Target {
        &self.params
    }
}

impl ParamsHandle for OwnedParams {
    fn dict(&self) -> &Py<PyDict> {
        &self.params
    }
}

impl Drop for OwnedParams {
    fn drop(&mut self) {
        if !self.is_known {
            return;
        }
        let address = self.params.as_ptr() as usize;
        let forgotten = {
            let mut known = known();
            let Some(all) = known.as_mut() else { return };
            match all.get_mut(&address) {
                Some(known) if known.owners > 1 => {
                    known.owners -= 1;
                    None
                }
                _ => all.remove(&address),
            }
        };
        drop(forgotten);
    }
}

/// Where the transpositions of equations with these params are remembered; None where no fragment
/// has them.
///
/// # Errors
/// The primitive has no name.
pub fn transposition(
    params: &Bound<'_, PyDict>,
    primitive: &Bound<'_, PyAny>,
) -> PyResult<Option<Arc<Transposition>>> {
    let address = address(params);
    match known().as_ref().and_then(|all| all.get(&address)) {
        None => return Ok(None),
        Some(Known { transposition: Some(transposition), .. }) => {
            return Ok(Some(transposition.clone()));
        }
        Some(_) => {}
    }
    let name = string_of(&primitive.getattr(intern!(params.py(), "name"))?.str()?);
    let new = Arc::new(Transposition { site: Site::pure(&format!("transpose of {name}")) });
    let mut known = known();
    let known = known.as_mut().and_then(|all| all.get_mut(&address));
    Ok(known.map(|known| known.transposition.get_or_insert(new).clone()))
}

/// Whether the params may go with the trace that is under way: no fragment had them before it.
pub fn is_new(params: &Bound<'_, PyDict>) -> bool {
    let known = known();
    let known = known.as_ref().and_then(|all| all.get(&address(params)));
    known.is_none_or(|known| known.since == session::outermost())
}

/// Whether a fragment has the params.
pub fn is_owned(params: &Bound<'_, PyDict>) -> bool {
    known().as_ref().is_some_and(|all| all.contains_key(&address(params)))
}

/// What dead-code removal makes of the params of an equation all of whose outputs are used; None
/// where that is not known.
pub fn without_dead_code(params: &Bound<'_, PyDict>) -> Option<Arc<OwnedParams>> {
    known().as_ref()?.get(&address(params))?.without_dead_code.clone()
}

/// Remembers what `without_dead_code` is to say, where a fragment has the params.
pub fn note_without_dead_code(params: &Bound<'_, PyDict>, new: &Arc<OwnedParams>) {
    if let Some(known) = known().as_mut().and_then(|all| all.get_mut(&address(params))) {
        known.without_dead_code.get_or_insert_with(|| new.clone());
    }
}
