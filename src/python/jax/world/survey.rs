//! What the modules of jax have: their names, classes, registries, and what those had at first.
//!
//! Modules have thousands of entries. They are looked at here, where the first trace after an import
//! waits for it; `jaxide._world` judges the few that have changed since.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyMappingProxy, PyModule, PyString, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::python::cpython::native::{NoCollection, address, entries, is_a, said, string_of};
use crate::python::cpython::shared::{Quiet, Shared};
use crate::python::jax::world::trust::{
    Trust, is_jax_module, is_made_in_python, is_within, module_of,
};
use crate::python::jax::world::{MODULES, PRIMITIVES, watch};

/// A dict that functions of jax look into.
#[pyclass(frozen, module = "jaxide._core")]
pub struct Place {
    /// Names it, to who watches it.
    number: u32,
    kind: Kind,
    #[pyo3(get)]
    name: Py<PyString>,
    /// Whose dict it is: a module, a class, an instance, or the dict itself.
    owner: Py<PyAny>,
    /// What it had, in its order. Not a dict: there are hundreds of places, and the garbage collector
    /// would look through each. Of `sys.modules` the survey knows it.
    was: Box<[Entry]>,
    /// What a class had besides: its bases and its names.
    of_class: Vec<Py<PyAny>>,
    /// Keys of what was not made by jax, once it is sorted out.
    foreign: Shared<Vec<Py<PyAny>>>,
    /// What differed when somebody looked last: the addresses of keys and of what they referred to.
    last: Shared<FxHashSet<[usize; 2]>>,
    /// What modules of jax that were imported later have put there, by the addresses of keys.
    accepted: Shared<FxHashMap<usize, Entry>>,
    /// Functions of its module change it: a new entry that is no rule is state of jax's.
    is_filled: AtomicBool,
}

/// A key and what it refers to.
type Entry = (Py<PyAny>, Py<PyAny>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Modules,
    Module,
    Class,
    Registry,
    Instance,
}

#[pymethods]
impl Place {
    /// `modules`, `module`, `class`, `registry` or `instance`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Modules => "modules",
            Kind::Module => "module",
            Kind::Class => "class",
            Kind::Registry => "registry",
            Kind::Instance => "instance",
        }
    }

    /// What it has.
    #[getter]
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dict = watch::dict_of(self.owner.bind(py))?;
        if self.kind == Kind::Class {
            // Python must not change the dict of a class.
            return Ok(PyMappingProxy::new(py, dict.as_mapping()).into_any());
        }
        Ok(dict.into_any())
    }

    /// Keys of what was not made by jax.
    #[getter]
    fn foreign<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys = self
            .foreign
            .with(py, |keys, quiet| keys.iter().map(|key| quiet.own(key)).collect::<Vec<_>>());
        PyList::new(py, keys)
    }

    /// Notes that functions of its module change a registry: new entries that are no rules are state.
    fn note_filled(&self) {
        self.is_filled.store(true, Ordering::Relaxed);
    }
}

impl Place {
    /// What differs from what it had, and from what was accepted since.
    fn changes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Change<'py>>> {
        let now = watch::dict_of(self.owner.bind(py))?;
        let (mut changes, mut cursor, mut was) = (Vec::new(), Cursor::new(&now), self.was.iter());
        // Mostly the keys are the same objects in the same order.
        let (new, old) = loop {
            match (cursor.next(), was.next()) {
                (Some(new), Some(old)) if new.0 == old.0.as_ptr() => {
                    if new.1 != old.1.as_ptr() {
                        let old = Some(old.1.bind(py).clone());
                        changes.push((cursor.own(new.0), Some(cursor.own(new.1)), old));
                    }
                }
                (new, old) => break (cursor.rest(new), old.into_iter().chain(was)),
            }
        };
        let rest = PyDict::new(py);
        for (key, value) in old {
            rest.set_item(key, value)?;
        }
        for (key, value) in new {
            let old = rest.get_item(&key)?;
            if !old.as_ref().is_some_and(|old| old.is(&value)) {
                changes.push((key, Some(value), old));
            }
        }
        for (key, old) in entries(&rest) {
            if !now.contains(&key)? {
                changes.push((key, None, Some(old)));
            }
        }
        let accepted = self.accepted.with(py, |accepted, quiet| {
            let own = |(key, value): &Entry| (quiet.own(key), quiet.own(value));
            accepted.values().map(own).collect::<Vec<_>>()
        });
        for (key, value) in accepted {
            if !now.contains(&key)? {
                changes.push((key.into_bound(py), None, Some(value.into_bound(py))));
            }
        }
        if self.kind == Kind::Class {
            let parts = parts_of_class(self.owner.bind(py)).zip(&self.of_class);
            for (name, (new, old)) in OF_CLASS.iter().zip(parts) {
                if !new.is(old) {
                    let name = PyString::new(py, name).into_any();
                    changes.push((name, Some(new), Some(old.bind(py).clone())));
                }
            }
        }
        Ok(changes)
    }
}

const OF_CLASS: [&str; 3] = ["__bases__", "__name__", "__qualname__"];

/// What a class that was made in Python has besides its attributes; nothing of anything else.
fn parts_of_class<'py>(owner: &Bound<'py, PyAny>) -> impl Iterator<Item = Bound<'py, PyAny>> {
    let parts = owner.cast::<PyType>().ok().filter(|class| is_made_in_python(class)).map(|class| {
        // SAFETY: a live class on the heap, which has all of them.
        unsafe {
            let heap = &*class.as_ptr().cast::<ffi::PyHeapTypeObject>();
            [heap.ht_type.tp_bases, heap.ht_name, heap.ht_qualname]
                .map(|part| Bound::from_borrowed_ptr(class.py(), part))
        }
    });
    parts.into_iter().flatten()
}

/// A key, what it refers to, and what it referred to.
type Change<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);
/// Goes through a dict without a touch of what is in it. No Python code runs meanwhile.
struct Cursor<'a, 'py> {
    dict: &'a Bound<'py, PyDict>,
    position: ffi::Py_ssize_t,
}

fn unbound(entries: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>) -> Box<[Entry]> {
    entries.into_iter().map(|(key, value)| (key.unbind(), value.unbind())).collect()
}

type Pointers = (*mut ffi::PyObject, *mut ffi::PyObject);

impl<'a, 'py> Cursor<'a, 'py> {
    fn new(dict: &'a Bound<'py, PyDict>) -> Self {
        Self { dict, position: 0 }
    }

    fn next(&mut self) -> Option<Pointers> {
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live dict, which nobody can change before the end of this call.
        let found = unsafe {
            ffi::PyDict_Next(
                self.dict.as_ptr(),
                &raw mut self.position,
                &raw mut key,
                &raw mut value,
            )
        };
        (found != 0).then_some((key, value))
    }

    /// A reference to what was found last.
    fn own(&self, object: *mut ffi::PyObject) -> Bound<'py, PyAny> {
        // SAFETY: the dict has it, since nobody has changed the dict.
        unsafe { Bound::from_borrowed_ptr(self.dict.py(), object) }
    }

    /// What was found last, and what comes after it.
    fn rest(mut self, last: Option<Pointers>) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let mut rest = Vec::new();
        let mut next = last;
        while let Some((key, value)) = next {
            rest.push((self.own(key), self.own(value)));
            next = self.next();
        }
        rest
    }
}

/// Whoever is asked to warn; the other names of the module are its state.
const WARNING: (&str, &str) = ("warnings", "warn");

/// Packages that only those who lower programs look into: what is imported of them later is taken in when
/// an executable is looked for.
const FOR_LOWERING: [&str; 3] = ["jaxlib.mlir", "jaxlib.mosaic", "jaxlib.triton"];

/// The name of the dict of a module in which `warnings` notes what was warned of.
const WARNED_OF: &str = "__warningregistry__";

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
    known: Shared<Known>,
}

/// By address. All of them stay alive: places have what they had.
#[derive(Default)]
struct Known {
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
        let number = watch::watch(watch::Kind::Frequent, modules.as_any())?;
        let imported = Place {
            number,
            kind: Kind::Modules,
            name: PyString::new(py, "sys.modules").unbind(),
            owner: modules.clone().into_any().unbind(),
            was: Box::default(),
            of_class: Vec::new(),
            foreign: Shared::default(),
            last: Shared::default(),
            accepted: Shared::default(),
            is_filled: AtomicBool::new(false),
        };
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
            known: Shared::new(Known { is_unfinished: true, ..Known::default() }),
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

impl Known {
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
    /// Whether jax looks a registry's key up without being given it: no class and no primitive of the
    /// user's.
    fn is_of_jax(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let trust = self.trust.get();
        if let Ok(class) = key.cast::<PyType>() {
            if module_of(class)?.is_some_and(|module| is_jax_module(&module)) {
                return Ok(true);
            }
        } else if self.is_primitive(key) {
            return Ok(PRIMITIVES.has(address(key)));
        }
        Ok(!trust.is_foreign(key)?)
    }

    fn all_changes<'py>(&self, place: &Place, py: Python<'py>) -> PyResult<Vec<Change<'py>>> {
        if place.kind != Kind::Modules {
            return place.changes(py);
        }
        let now = watch::dict_of(place.owner.bind(py))?;
        let mut changes = Vec::new();
        for (name, old) in entries(self.were_imported.bind(py)) {
            let new = now.get_item(&name)?;
            if !new.as_ref().is_some_and(|new| new.is(&old)) {
                changes.push((name, new, Some(old)));
            }
        }
        Ok(changes)
    }

    /// Whether it may count that an entry is another one. What the start of a backend and imports do
    /// does not.
    fn may_count(&self, place: &Place, (key, new, old): &Change<'_>) -> PyResult<bool> {
        match place.kind {
            Kind::Module => {
                let Ok(name) = key.cast_exact::<PyString>() else { return Ok(true) };
                let name = (string_of(place.name.bind(key.py())), string_of(name));
                if name.0 == WARNING.0 {
                    return Ok(name.1 == WARNING.1);
                }
                let is_import = old.is_none() && self.is_import(key, new.as_ref())?;
                Ok(!is_import && !self.started.contains(&name))
            }
            Kind::Registry if !self.is_of_jax(key)? => {
                if self.is_primitive(key) {
                    self.known.peek(|known| known.waiting.insert(place.number));
                }
                Ok(false)
            }
            Kind::Registry if old.is_none() => {
                let Some(new) = new else { return Ok(true) };
                Ok(self.trust.get().is_foreign(new)? || !self.is_accepted(place, key, new)?)
            }
            Kind::Class => {
                let Some(new) = new else { return Ok(true) };
                let class = place.owner.bind(key.py()).cast::<PyType>()?;
                let is_added = old.is_none() && is_nested_in_c(class, new)?;
                Ok(!is_added
                    && (self.trust.get().is_foreign(new)? || !self.is_accepted(place, key, new)?))
            }
            Kind::Registry if self.is_state_of(place, key)? => {
                let is_code =
                    |value: &Option<_>| value.as_ref().map_or(Ok(false), |it| self.is_code(it));
                let may_stand_in = is_code(old)? || is_code(new)?;
                let is_foreign = |it: &_| self.trust.get().is_foreign(it);
                Ok(may_stand_in || new.as_ref().map_or(Ok(false), is_foreign)?)
            }
            Kind::Modules | Kind::Registry | Kind::Instance => Ok(true),
        }
    }

    /// Whether a key of a registry is that of no rule, such as the platforms whose backends have started.
    fn is_state(&self, key: &Bound<'_, PyAny>) -> bool {
        !(key.is_instance_of::<PyType>() || self.is_primitive(key))
    }

    /// Whether an entry of a registry is state of jax's: functions of its module change it, and the key
    /// is that of no rule.
    fn is_state_of(&self, registry: &Place, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let is_filled = registry.is_filled.load(Ordering::Relaxed);
        Ok(is_filled && self.is_state(key) && !is_dtype(key)?)
    }

    /// Whether a value has functions.
    fn is_code(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut found = false;
        self.trust.get().judge(value, |_| found = true)?;
        Ok(found)
    }

    /// Whether a new entry of a registry or a class is state of jax's, or was put there by a module of jax
    /// while that was imported: one of its functions or classes, or the first entry of its primitive or
    /// class.
    fn is_accepted(
        &self,
        place: &Place,
        key: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (at, value) = (address(key), address(new));
        let known = place
            .accepted
            .peek(|accepted| accepted.get(&at).map(|(_, known)| known.as_ptr() as usize));
        if let Some(known) = known {
            return Ok(known == value);
        }
        if self.is_state_of(place, key)? {
            return Ok(true);
        }
        let is_accepted = self.is_of_new_module(key)?
            || new.is_instance_of::<PyType>() && self.is_of_new_module(new)?
            || self.has_new_function(new)?;
        if is_accepted {
            let entry = (key.clone().unbind(), new.clone().unbind());
            let late = place.accepted.peek(|accepted| accepted.insert(at, entry));
            drop(late);
        }
        Ok(is_accepted)
    }

    /// Whether an object is a primitive or a class of a module of jax that was imported since somebody
    /// looked.
    fn is_of_new_module(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(class) = object.cast::<PyType>() {
            return globals_of_class(class)?.map_or(Ok(false), |of| self.is_new(&of));
        }
        let at = address(object);
        Ok(self.known.peek(|known| known.since.contains(&at)))
    }

    /// Whether a value has a function of a module of jax that was imported since somebody looked.
    fn has_new_function(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut found = Ok(false);
        self.trust.get().judge(value, |function| {
            if !matches!(found, Ok(true)) {
                found = globals_of(function).map_or(Ok(false), |of| self.is_new(&of));
            }
        })?;
        found
    }

    /// Whether a dict is that of a module of jax that was taken in since somebody looked, or is not yet:
    /// it may still be imported.
    fn is_new(&self, globals: &Bound<'_, PyDict>) -> PyResult<bool> {
        let at = address(globals.as_any());
        if self.known.peek(|known| known.since.contains(&at)) {
            return Ok(true);
        }
        let Some(name) = globals.get_item(intern!(globals.py(), "__name__"))? else {
            return Ok(false);
        };
        let Ok(name) = name.cast_exact::<PyString>() else { return Ok(false) };
        if !self.has_tables(&string_of(name)) {
            return Ok(false);
        }
        let Some(module) = imported_module(name)? else { return Ok(false) };
        let of = address(module.as_any());
        let is_known = self.known.peek(|known| known.modules.contains(&of));
        Ok(!is_known && address(module.dict().as_any()) == at)
    }

    /// Whether a new entry of a module is a module that was imported, and hides no builtin.
    fn is_import(&self, key: &Bound<'_, PyAny>, new: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let Some(Ok(module)) = new.map(Bound::cast::<PyModule>) else { return Ok(false) };
        // SAFETY: with the interpreter attached; they live as long as that.
        let builtins = unsafe { Bound::from_borrowed_ptr(key.py(), ffi::PyEval_GetBuiltins()) };
        Ok(!builtins.contains(key)? && !self.trust.get().is_foreign(module.as_any())?)
    }

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
        if place.kind == Kind::Modules {
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
                Kind::Registry => !self.is_state(&change.0),
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
        while let Some(place) = self.known.with(py, Known::next) {
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

    /// The modules to take in, and whether these are all: some may not have yet what they define.
    fn new_modules<'py>(
        &self,
        py: Python<'py>,
        is_lowering: bool,
    ) -> PyResult<(Modules<'py>, bool)> {
        let all = watch::dict_of(self.imported.get().owner.bind(py))?;
        let (mut unseen, mut cursor) = (Vec::new(), Cursor::new(&all));
        let mut num_as_ever = 0;
        while let Some((name, module)) = cursor.next() {
            let (name_at, at) = (name as usize, module as usize);
            let (is_as_ever, is_seen) = self.known.peek(|known| {
                let is_as_ever = known.named.get(&name_at) == Some(&at);
                let is_passed = || known.passed.contains_key(&name_at);
                (is_as_ever, is_as_ever || is_passed() || known.modules.contains(&at))
            });
            num_as_ever += usize::from(is_as_ever);
            if !is_seen {
                unseen.push((cursor.own(name), cursor.own(module)));
            }
        }
        self.known.peek(|known| known.has_other_modules = num_as_ever != known.named.len());
        let (mut new, mut passed, mut is_complete) = (Vec::new(), Vec::new(), true);
        let mut is_deferred = false;
        for (name, value) in unseen {
            let Ok(name) = name.cast_into_exact::<PyString>() else { continue };
            if !is_lowering && is_for_lowering(&name.to_string_lossy()) {
                is_deferred = true;
            } else if !self.is_looked_into(&name.to_string_lossy()) {
                passed.push((address(name.as_any()), name.into_any().unbind()));
            } else if let Ok(module) = value.cast_into::<PyModule>() {
                if is_being_imported(&module)? {
                    is_complete = false;
                } else {
                    new.push((name, module));
                }
            }
        }
        let most = 2 * all.len();
        let late = self.known.peek(|known| {
            known.is_deferred = is_deferred;
            // Names that are gone stay for a while.
            let old = if known.passed.len() > most {
                std::mem::take(&mut known.passed)
            } else {
                FxHashMap::default()
            };
            known.passed.extend(passed);
            old
        });
        drop(late);
        Ok((new, is_complete))
    }

    fn is_looked_into(&self, module: &str) -> bool {
        self.beside.contains(module) || self.has_tables(module)
    }

    /// Whether the classes and registries of a module are taken in.
    fn has_tables(&self, module: &str) -> bool {
        self.packages.iter().any(|package| is_within(module, package))
    }

    /// Takes in a module. With its classes, registries and instances, where it has some, it has to be
    /// sorted out.
    fn take_in(&self, module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let name = match module.dict().get_item(intern!(py, "__name__"))? {
            Some(name) => name.str()?,
            None => PyString::new(py, "None"),
        };
        if is_jax_module(&name.to_string_lossy()) {
            MODULES.add(module.dict().as_any());
        }
        self.note_new(module.dict().as_any());
        self.place(Kind::Module, &name, module.as_any())
    }

    fn note_new(&self, of: &Bound<'_, PyAny>) {
        let at = address(of);
        self.known.peek(|known| known.since.insert(at));
    }

    /// What kind of place the value of a name of a module is, if it is one.
    fn kind_of(&self, value: &Bound<'_, PyAny>, is_primitive: bool) -> PyResult<Option<Kind>> {
        if let Ok(class) = value.cast::<PyType>() {
            // Of those that are made in C, jax has some in the place of its own.
            let is_read = |module: String| self.has_tables(&module) || is_within(&module, "jaxlib");
            let is_ours = is_made_in_python(class) && module_of(class)?.is_some_and(is_read);
            return Ok(is_ours.then_some(Kind::Class));
        }
        if value.is_instance_of::<PyDict>() {
            return Ok(Some(Kind::Registry));
        }
        let counts = is_primitive || self.instances.iter().any(|class| value.get_type().is(class));
        Ok(counts.then_some(Kind::Instance))
    }

    /// Adds the place of an owner, which is watched from now on.
    fn place(
        &self,
        kind: Kind,
        name: &Bound<'_, PyString>,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = owner.py();
        // It is watched first: what comes in between counts as a change.
        let how_often = match kind {
            Kind::Class => watch::Kind::Told,
            Kind::Instance if self.is_primitive(owner) => watch::Kind::Seldom,
            // Nobody looks into those while programs are traced.
            _ if self.is_of_lowering(kind, &name.to_string_lossy()) => watch::Kind::Seldom,
            Kind::Modules | Kind::Module | Kind::Registry | Kind::Instance => watch::Kind::Frequent,
        };
        let number = watch::watch(how_often, owner)?;
        let places = self.places.bind(py);
        if !places.contains(number)? {
            let place = Place {
                number,
                kind,
                name: name.clone().unbind(),
                owner: owner.clone().unbind(),
                was: unbound(entries(&watch::dict_of(owner)?)),
                of_class: parts_of_class(owner).map(Bound::unbind).collect(),
                foreign: Shared::default(),
                last: Shared::default(),
                accepted: Shared::default(),
                is_filled: AtomicBool::new(self.is_started(&name.to_string_lossy())),
            };
            let place = Py::new(py, place)?;
            places.set_item(number, &place)?;
            self.known.peek(|known| {
                let unsorted = match kind {
                    Kind::Registry => &mut known.registries,
                    _ => &mut known.unsorted,
                };
                unsorted.push(place);
            });
        }
        let at = address(owner);
        self.known.peek(|known| known.owners.insert(at));
        Ok(())
    }

    /// Whether the start of a backend adds to the registry with this name.
    fn is_started(&self, registry: &str) -> bool {
        let (module, name) = registry.rsplit_once('.').unwrap_or_default();
        self.started.contains(&(module.to_owned(), name.to_owned()))
    }

    /// Whether only those who lower programs look into a place with this name.
    fn is_of_lowering(&self, kind: Kind, name: &str) -> bool {
        is_within(name, "jaxlib") || kind == Kind::Registry && self.has_tables_within(name)
    }

    /// Whether a registry with this name says how programs are lowered.
    fn has_tables_within(&self, registry: &str) -> bool {
        self.lowering.iter().any(|module| is_within(registry, module))
    }

    fn has_place(&self, owner: &Bound<'_, PyAny>) -> bool {
        let at = address(owner);
        self.known.peek(|known| known.owners.contains(&at))
    }

    /// Whether a value is foreign. Functions that it is made of are noted; those of a class with a place
    /// are when that is sorted out.
    fn note(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let trust = self.trust.get();
        if let Ok(class) = value.cast::<PyType>()
            && is_made_in_python(class)
            && !self.has_place(value)
        {
            for (_, member) in entries(&watch::dict_of(value)?) {
                trust.judge(&member, watch::note_function_of_jax)?;
            }
        }
        trust.judge(value, watch::note_function_of_jax)
    }

    /// Whether a value is a primitive of jax's own, which is noted. Attributes that somebody has given
    /// it are what it differs in.
    fn note_primitive(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if !self.is_primitive(value) || self.trust.get().is_foreign(value.get_type().as_any())? {
            return Ok(false);
        }
        PRIMITIVES.add(value);
        self.note_new(value);
        Ok(true)
    }

    fn is_primitive(&self, value: &Bound<'_, PyAny>) -> bool {
        is_a(value, self.primitive.as_ptr().cast_const().cast())
    }

    /// Finds the entries of a new place that were not made by jax; whether there are any. Of a module,
    /// adds the places of what it has.
    fn sort_out(&self, place: &Bound<'_, Place>) -> PyResult<bool> {
        let (py, kind, name) = (place.py(), place.get().kind, place.get().name.bind(place.py()));
        let name = name.to_string_lossy();
        let is_read = kind == Kind::Module && self.has_tables(&name);
        let is_noted = is_read || kind == Kind::Class;
        let has_tables = kind == Kind::Registry && self.has_tables_within(&name);
        let trust = self.trust.get();
        let mut foreign = Vec::new();
        for (key, value) in &place.get().was {
            let (key, value) = (key.bind(py), value.bind(py));
            if kind != Kind::Registry && self.skipped.contains(&address(key)) {
                if kind == Kind::Class {
                    self.note(value)?;
                }
                continue;
            }
            let at = address(value);
            let known = self.known.peek(|known| known.values.get(&at).copied());
            if has_tables && value.is_instance_of::<PyDict>() && !self.has_place(value) {
                let word = key.cast_exact::<PyString>().map(string_of).unwrap_or_default();
                let within = format!("{name}[{word}]");
                self.place(Kind::Registry, &PyString::new(py, &within), value)?;
            }
            let is_plain = known.is_none() && trust.is_plain(value);
            if is_read
                && (!is_plain || value.is_instance_of::<PyDict>())
                && !known.is_some_and(|known| known.is_of_module)
            {
                self.take_in_value(&name, key, value)?;
            }
            if is_plain || kind == Kind::Registry && !self.is_of_jax(key)? {
                continue;
            }
            let mut looked = known.unwrap_or_default();
            if is_noted && !looked.is_noted {
                looked.is_foreign = self.note(value)?;
            } else if known.is_none() {
                looked.is_foreign = trust.is_foreign(value)?;
            }
            looked.is_noted |= is_noted;
            looked.is_of_module |= is_read;
            self.known.peek(|known| known.values.insert(at, looked));
            if looked.is_foreign {
                foreign.push(key.clone().unbind());
            }
        }
        let found = !foreign.is_empty();
        place.get().foreign.peek(|keys| *keys = foreign);
        Ok(found)
    }

    /// Adds the place of what a module has under a name, if it is one.
    fn take_in_value(
        &self,
        module: &str,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let is_primitive = self.note_primitive(value)?;
        let Some(kind) = self.kind_of(value, is_primitive)? else { return Ok(()) };
        // The interpreter notes there of what it has warned, under a name that may be another object.
        if kind == Kind::Registry && key.cast::<PyString>().is_ok_and(|key| key == WARNED_OF) {
            return Ok(());
        }
        if self.has_place(value) {
            return Ok(());
        }
        let path = format!("{module}.{}", key.str()?.to_string_lossy());
        self.place(kind, &PyString::new(key.py(), &path), value)
    }
}

fn is_for_lowering(module: &str) -> bool {
    FOR_LOWERING.iter().any(|package| is_within(module, package))
}

/// Whether a module does not have yet what it defines: another thread imports it, or nobody has asked
/// for it (`importlib.util.LazyLoader`).
fn is_being_imported(module: &Bound<'_, PyModule>) -> PyResult<bool> {
    let py = module.py();
    if module.get_type().name()?.to_string_lossy() == "_LazyModule" {
        return Ok(true);
    }
    // To ask a lazy module for an attribute would import it.
    let Some(spec) = module.dict().get_item(intern!(py, "__spec__"))? else { return Ok(false) };
    let initializing = spec
        .getattr_opt(intern!(py, "_initializing"))
        .and_then(|initializing| initializing.map_or(Ok(false), |found| found.is_truthy()));
    Ok(said(py, initializing)?.unwrap_or(false))
}

/// The module that `sys.modules` has under a name.
fn imported_module<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyModule>>> {
    // SAFETY: with the interpreter attached; it lives as long as that.
    let modules = unsafe { Bound::from_borrowed_ptr(name.py(), ffi::PyImport_GetModuleDict()) };
    let module = modules.cast::<PyDict>()?.get_item(name)?;
    Ok(module.and_then(|module| module.cast_into::<PyModule>().ok()))
}

/// The dict in which a function looks names up, if that is a dict.
fn globals_of<'py>(function: &Bound<'py, PyFunction>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: a live function, whose class cannot be derived from, and which has its globals.
    let globals = unsafe {
        Bound::from_borrowed_ptr(function.py(), ffi::PyFunction_GetGlobals(function.as_ptr()))
    };
    globals.cast_into().ok()
}

/// Whether a key is a dtype of numpy.
fn is_dtype(key: &Bound<'_, PyAny>) -> PyResult<bool> {
    // Each kind of dtype has a class of its own.
    for class in key.get_type().mro().iter() {
        let class = class.cast_into::<PyType>()?;
        if class.name()?.to_string_lossy() == "dtype" {
            return Ok(module_of(&class)?.is_some_and(|module| is_within(&module, "numpy")));
        }
    }
    Ok(false)
}

/// The dict of the module of a class.
fn globals_of_class<'py>(class: &Bound<'py, PyType>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(name) = module_of(class)? else { return Ok(None) };
    let module = imported_module(&PyString::new(class.py(), &name))?;
    Ok(module.map(|module| module.dict()))
}

/// Whether a class that is made in C has another one within, which jaxlib makes when it is needed
/// (`DeviceList.ifrt_device_iterator`).
fn is_nested_in_c(class: &Bound<'_, PyType>, nested: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Ok(nested) = nested.cast::<PyType>() else { return Ok(false) };
    let is_of_jaxlib =
        |class| Ok::<_, PyErr>(module_of(class)?.is_some_and(|it| is_within(&it, "jaxlib")));
    let (outer, inner) = (class.qualname()?, nested.qualname()?);
    let (outer, inner) = (outer.to_string_lossy(), inner.to_string_lossy());
    let is_within = inner.strip_prefix(&*outer).is_some_and(|rest| rest.starts_with('.'));
    Ok(is_within && is_of_jaxlib(class)? && is_of_jaxlib(nested)?)
}
