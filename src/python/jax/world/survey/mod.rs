//! What the modules of jax have: their names, classes, registries, and what those had at first.
//!
//! Modules have thousands of entries. They are looked at here, where the first trace after an import
//! waits for it; `jaxide._native.world` judges the few that have changed since.
//!
//! ```text
//! place.rs   a dict that functions of jax look into, and what has changed in it
//! counts.rs  which changes may count
//! intake.rs  taking in modules, and sorting out what they have
//! ```

mod counts;
mod intake;
mod place;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyString, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::python::cpython::native::{NoCollection, address, string_of};
use crate::python::cpython::shared::{Quiet, Shared};
pub use crate::python::jax::world::survey::place::Place;
use crate::python::jax::world::survey::place::{Change, PlaceKind};
use crate::python::jax::world::trust::Trust;
use crate::python::jax::world::watch;

/// Whoever is asked to warn; the other names of the module are its state.
const WARNING: (&str, &str) = ("warnings", "warn");

/// Takes in the modules that functions of jax look into, when they are imported. Used by one at a time.
#[pyclass(frozen, module = "jaxide._core")]
pub struct Survey {
    trust: Py<Trust>,
    packages: Vec<String>,
    beside: FxHashSet<String>,
    /// By address, names that are no definitions, which are kept alive.
    skipped: FxHashSet<usize>,
    _skipped: Vec<Py<PyString>>,
    lowering: Vec<String>,
    started: FxHashSet<(String, String)>,
    primitive: Py<PyType>,
    instances: Vec<Py<PyType>>,
    #[pyo3(get)]
    places: Py<PyDict>,
    /// The place of `sys.modules`, and what that had.
    imported: Py<Place>,
    were_imported: Py<PyDict>,
    known: Shared<TakenIn>,
}

/// By address. All of them stay alive: places have what they had.
#[derive(Default)]
struct TakenIn {
    /// Names under which `sys.modules` has what nobody looks into. They are kept alive by themselves.
    passed: FxHashMap<usize, Py<PyAny>>,
    modules: FxHashSet<usize>,
    /// Primitives and dicts of modules that were taken in since somebody looked.
    since: FxHashSet<usize>,
    /// The modules under the names that `sys.modules` had for them.
    named: FxHashMap<usize, usize>,
    /// One of these names refers to another module, or to none.
    has_other_modules: bool,
    /// A module was left to the next time.
    is_unfinished: bool,
    /// A module was left to who looks for an executable.
    is_deferred: bool,
    /// Places with entries of primitives that no module of jax has, but one that is being imported may.
    waiting: FxHashSet<u32>,
    /// Modules that were taken in since somebody asked, by name.
    new: Vec<(Py<PyString>, Py<PyModule>)>,
    /// Owners of places.
    owners: FxHashSet<usize>,
    values: FxHashMap<usize, Looked>,
    /// Places that are not sorted out yet, and the registries among them, which are sorted out when all
    /// primitives are known.
    unsorted: Vec<Py<Place>>,
    registries: Vec<Py<Place>>,
}

/// What is known of a value.
#[derive(Clone, Copy, Default)]
struct Looked {
    is_foreign: bool,
    /// Its functions are noted.
    is_noted: bool,
    /// It was found in a module, so that it is a place if it can be one.
    is_of_module: bool,
}

#[pymethods]
impl Survey {
    /// Args:
    ///     trust: what is jax's own.
    ///     packages: packages whose modules, classes and registries are taken in.
    ///     beside: other modules that are taken in, without their classes.
    ///     skipped: names that are no definitions, in modules: the objects themselves.
    ///     lowering: modules whose registries say how programs are lowered: tables within are taken in.
    ///     started: modules, and names of theirs that the start of a backend assigns, or adds to.
    ///     primitive: the class of jax's primitives.
    ///     instances: classes whose instances count by their attributes.
    ///     modules: `sys.modules`.
    #[new]
    #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // of Python
    fn new(
        py: Python<'_>,
        trust: Py<Trust>,
        packages: Vec<String>,
        beside: FxHashSet<String>,
        skipped: Vec<Py<PyString>>,
        lowering: Vec<String>,
        started: FxHashSet<(String, String)>,
        primitive: Py<PyType>,
        instances: Vec<Py<PyType>>,
        modules: Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        watch::start(py)?;
        let number = watch::watch(watch::HowOften::Frequent, modules.as_any())?;
        let name = PyString::new(py, "sys.modules");
        let imported = Place::new(number, PlaceKind::Modules, &name, modules.as_any());
        let imported = Bound::new(py, imported)?;
        let places = PyDict::new(py);
        places.set_item(number, &imported)?;
        Ok(Self {
            trust,
            packages,
            beside,
            skipped: skipped.iter().map(|name| name.as_ptr() as usize).collect(),
            _skipped: skipped,
            lowering,
            started,
            primitive,
            instances,
            places: places.unbind(),
            imported: imported.unbind(),
            were_imported: PyDict::new(py).unbind(),
            known: Shared::new(TakenIn { is_unfinished: true, ..TakenIn::default() }),
        })
    }

    /// What differs in a place from what it had, as far as that may count: keys, what they refer to,
    /// and what they referred to. Of `sys.modules`, what is new is left out.
    ///
    /// Args:
    ///     missing: stands for what is not there.
    fn changes<'py>(
        &self,
        place: &Bound<'py, Place>,
        missing: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<[Bound<'py, PyAny>; 3]>> {
        let mut changes = Vec::new();
        for change in self.all_changes(place.get(), place.py())? {
            if self.may_count(place.get(), &change)? {
                let (key, new, old) = change;
                let or_missing = |value: Option<_>| value.unwrap_or_else(|| missing.clone());
                changes.push([key, or_missing(new), or_missing(old)]);
            }
        }
        Ok(changes)
    }
}

type Modules<'py> = Vec<(Bound<'py, PyString>, Bound<'py, PyModule>)>;

impl TakenIn {
    /// A place that has to be sorted out.
    fn next(&mut self, quiet: Quiet<'_>) -> Option<Py<Place>> {
        Some(quiet.own(self.unsorted.last().or(self.registries.last())?))
    }

    /// A place is sorted out; the caller drops what is returned.
    fn done(&mut self, place: &Py<Place>) -> Option<Py<Place>> {
        [&mut self.unsorted, &mut self.registries].into_iter().find_map(|places| {
            let index = places.iter().rposition(|known| known.is(place))?;
            Some(places.remove(index))
        })
    }
}

impl Survey {
    /// Looks at the place with this number, which may have changed: whether something may count that
    /// differs in it, where nothing did; and whether all is as when somebody looked last, so that it
    /// was changed and put back.
    ///
    /// # Errors
    /// As of `Trust::judge`.
    pub fn look(&self, py: Python<'_>, number: u32) -> PyResult<(bool, bool)> {
        // Whoever takes it in was interrupted, and nobody knows what it had.
        let Some(place) = self.places.bind(py).get_item(number)? else {
            return Ok((false, false));
        };
        let place = place.cast::<Place>()?.get();
        if place.kind == PlaceKind::Modules {
            return Ok((self.known.peek(|known| known.has_other_modules), false));
        }
        let mut may_differ = place.foreign.peek(|keys| !keys.is_empty());
        let changes = place.changes(py)?;
        for change in &changes {
            may_differ = may_differ || self.may_count(place, change)?;
        }
        let addresses =
            |(key, new, _): &Change<'_>| [address(key), new.as_ref().map_or(0, address)];
        let now: FxHashSet<_> = changes.iter().map(addresses).collect();
        let last = place.last.peek(|last| std::mem::replace(last, now));
        // What is new may hide what was put back, unless it was imported, or is state of jax's.
        let mut is_undone = true;
        for change in changes.iter().filter(|change| !last.contains(&addresses(change))) {
            is_undone = match place.kind {
                PlaceKind::Registry => !self.is_state(&change.0),
                _ => self.may_count(place, change)?,
            };
            if is_undone {
                break;
            }
        }
        // Whoever catches warnings puts back what that module had.
        Ok((may_differ, is_undone && string_of(place.name.bind(py)) != WARNING.0))
    }

    /// The number of `sys.modules`.
    pub fn number_of_modules(&self) -> u32 {
        self.imported.get().number
    }

    /// Takes in what was imported since the last time, without modules that are still being imported, and
    /// without those that only who lowers programs looks into, unless `is_lowering`.
    ///
    /// # Errors
    /// A module cannot be looked at. The rest is left to the next one, as by who is interrupted.
    pub fn extend(&self, py: Python<'_>, is_lowering: bool) -> PyResult<()> {
        let _all_stay = NoCollection::start(py);
        self.known.peek(|known| known.is_unfinished = true);
        let (new, is_complete) = self.new_modules(py, is_lowering)?;
        for (name, module) in &new {
            let at = address(module.as_any());
            if self.known.peek(|known| !known.modules.contains(&at)) {
                self.take_in(module)?;
            }
            let was = self.were_imported.bind(py);
            if !was.contains(name)? {
                was.set_item(name, module)?;
                let name = address(name.as_any());
                self.known.peek(|known| known.named.insert(name, at));
            }
        }
        while let Some(place) = self.known.with(py, TakenIn::next) {
            if self.sort_out(place.bind(py))? {
                watch::note_changed(place.get().number);
            }
            let done = self.known.peek(|known| known.done(&place));
            drop(done);
        }
        if !new.is_empty() {
            self.look_at_waiting();
        }
        let modules: Vec<_> = new.iter().map(|(_, module)| address(module.as_any())).collect();
        let new: Vec<_> = new.into_iter().map(|(name, it)| (name.unbind(), it.unbind())).collect();
        self.known.peek(|known| {
            known.modules.extend(modules);
            known.new.extend(new);
            known.is_unfinished = !is_complete;
        });
        Ok(())
    }

    /// Has places looked at with entries of primitives that may be known now.
    fn look_at_waiting(&self) {
        for number in self.known.peek(|known| std::mem::take(&mut known.waiting)) {
            watch::note_changed(number);
        }
    }

    /// Somebody has looked at all that was changed: what comes to differ is no more by the modules that
    /// were taken in before.
    pub fn forget_new(&self) {
        let late = self.known.peek(|known| std::mem::take(&mut known.since));
        drop(late);
    }

    /// Whether something was left to the next time.
    pub fn is_unfinished(&self) -> bool {
        self.known.peek(|known| known.is_unfinished)
    }

    /// Whether something was left to who looks for an executable.
    pub fn is_deferred(&self) -> bool {
        self.known.peek(|known| known.is_deferred)
    }

    /// The modules that were taken in since somebody asked, by name.
    pub fn take_new(&self) -> Vec<(Py<PyString>, Py<PyModule>)> {
        self.known.peek(|known| std::mem::take(&mut known.new))
    }
}
