//! What is known of the params of fragments' equations, for as long as the fragments live.
//!
//! An equation that was replayed has the dict of params of its fragment, the same object each time.
//! So the address of the dict is a key, whatever is in it, and what is remembered under it goes when
//! the fragment goes.

use std::ops::Deref;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::cache::call::Site;
use crate::python::cache::shapes;
use crate::python::cache::store;
use crate::python::cache::warm::lookup::lasting_name;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::address;
use crate::python::cpython::native::string_of;
use crate::python::program::graph::ParamsHandle;
use crate::python::trace::session;

/// A dict of params that belongs to a fragment, or to a program. Nothing changes it.
pub struct FragmentParams {
    params: Py<PyDict>,
    /// What is known of it is kept by its address.
    is_known: bool,
}

#[derive(Default)]
struct ParamsFacts {
    /// How many fragments have the dict.
    owners: usize,
    /// In which outermost trace the first of them was recorded.
    since: u64,
    transposition: Option<Arc<Transposition>>,
    without_dead_code: Option<Arc<FragmentParams>>,
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

static PARAMS: AddressCache<ParamsFacts> = AddressCache::new();

impl FragmentParams {
    /// Notes that a fragment has the dict.
    pub fn new(params: Bound<'_, PyDict>) -> Self {
        let new = ParamsFacts { since: session::outermost(), ..ParamsFacts::default() };
        let ((), unused) = PARAMS.get_or_insert(address(&params), new, |known| known.owners += 1);
        drop(unused);
        Self { params: params.unbind(), is_known: true }
    }

    /// A dict that goes with a program.
    pub fn of_program(params: Bound<'_, PyDict>) -> Self {
        Self { params: params.unbind(), is_known: false }
    }
}

impl Deref for FragmentParams {
    type Target = Py<PyDict>;

    fn deref(&self) -> &Self::Target {
        &self.params
    }
}

impl ParamsHandle for FragmentParams {
    fn dict(&self) -> &Py<PyDict> {
        &self.params
    }
}

impl Drop for FragmentParams {
    fn drop(&mut self) {
        if self.is_known {
            drop(PARAMS.remove_if(&(self.params.as_ptr() as usize), |known| {
                known.owners = known.owners.saturating_sub(1);
                known.owners == 0
            }));
        }
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
    match PARAMS.get(&address, |known| known.transposition.clone()) {
        None => return Ok(None),
        Some(Some(transposition)) => return Ok(Some(transposition)),
        Some(None) => {}
    }
    let name = string_of(&primitive.getattr(intern!(params.py(), "name"))?.str()?);
    let lasting = lasting_name("transpose of params", params)?;
    let pointwise = shapes::is_pointwise("transpose of", &name);
    let site = Site { lasting, pointwise, ..Site::pure(&format!("transpose of {name}")) };
    let new = Arc::new(Transposition { site });
    let first =
        |known: &mut ParamsFacts| known.transposition.get_or_insert_with(|| new.clone()).clone();
    Ok(PARAMS.get(&address, first))
}

/// Whether the params may go with the trace that is under way: no fragment had them before it.
pub fn is_new(params: &Bound<'_, PyDict>) -> bool {
    let is_new = |known: &mut ParamsFacts| known.since == session::outermost();
    PARAMS.get(&address(params), is_new).unwrap_or(true)
}

/// Whether a fragment has the params.
pub fn is_of_fragment(params: &Bound<'_, PyDict>) -> bool {
    PARAMS.contains(&address(params))
}

/// What dead-code removal makes of the params of an equation all of whose outputs are used; None
/// where that is not known.
pub fn without_dead_code(params: &Bound<'_, PyDict>) -> Option<Arc<FragmentParams>> {
    PARAMS.get(&address(params), |known| known.without_dead_code.clone())?
}

/// Remembers what `without_dead_code` is to say, where a fragment has the params.
pub fn note_without_dead_code(params: &Bound<'_, PyDict>, new: &Arc<FragmentParams>) {
    PARAMS.get(&address(params), |known| {
        known.without_dead_code.get_or_insert_with(|| new.clone());
    });
}
