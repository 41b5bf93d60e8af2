//! Taking in modules, and sorting out what they have.

use std::sync::atomic::AtomicBool;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyString, PyType};
use rustc_hash::FxHashMap;

use crate::python::cpython::native::{address, entries, is_a, said, string_of};
use crate::python::jax::world::survey::place::{Cursor, Place, PlaceKind, parts_of_class, unbound};
use crate::python::jax::world::survey::{Modules, Survey};
use crate::python::jax::world::trust::{is_jax_module, is_made_in_python, is_within, module_of};
use crate::python::jax::world::{MODULES, PRIMITIVES, watch};

/// Packages that only those who lower programs look into: what is imported of them later is taken in when
/// an executable is looked for.
const FOR_LOWERING: [&str; 3] = ["jaxlib.mlir", "jaxlib.mosaic", "jaxlib.triton"];

/// The name of the dict of a module in which `warnings` notes what was warned of.
const WARNED_OF: &str = "__warningregistry__";

impl Survey {
    /// The modules to take in, and whether these are all: some may not have yet what they define.
    pub(super) fn new_modules<'py>(
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

    pub(super) fn is_looked_into(&self, module: &str) -> bool {
        self.beside.contains(module) || self.has_tables(module)
    }

    /// Whether the classes and registries of a module are taken in.
    pub(super) fn has_tables(&self, module: &str) -> bool {
        self.packages.iter().any(|package| is_within(module, package))
    }

    /// Takes in a module. With its classes, registries and instances, where it has some, it has to be
    /// sorted out.
    pub(super) fn take_in(&self, module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let name = match module.dict().get_item(intern!(py, "__name__"))? {
            Some(name) => name.str()?,
            None => PyString::new(py, "None"),
        };
        if is_jax_module(&name.to_string_lossy()) {
            MODULES.add(module.dict().as_any());
        }
        self.note_new(module.dict().as_any());
        self.place(PlaceKind::Module, &name, module.as_any())
    }

    pub(super) fn note_new(&self, of: &Bound<'_, PyAny>) {
        let at = address(of);
        self.known.peek(|known| known.since.insert(at));
    }

    /// What kind of place the value of a name of a module is, if it is one.
    pub(super) fn kind_of(
        &self,
        value: &Bound<'_, PyAny>,
        is_primitive: bool,
    ) -> PyResult<Option<PlaceKind>> {
        if let Ok(class) = value.cast::<PyType>() {
            // Of those that are made in C, jax has some in the place of its own.
            let is_read = |module: String| self.has_tables(&module) || is_within(&module, "jaxlib");
            let is_ours = is_made_in_python(class) && module_of(class)?.is_some_and(is_read);
            return Ok(is_ours.then_some(PlaceKind::Class));
        }
        if value.is_instance_of::<PyDict>() {
            return Ok(Some(PlaceKind::Registry));
        }
        let counts = is_primitive || self.instances.iter().any(|class| value.get_type().is(class));
        Ok(counts.then_some(PlaceKind::Instance))
    }

    /// Adds the place of an owner, which is watched from now on.
    pub(super) fn place(
        &self,
        kind: PlaceKind,
        name: &Bound<'_, PyString>,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = owner.py();
        // It is watched first: what comes in between counts as a change.
        let how_often = match kind {
            PlaceKind::Class => watch::HowOften::Told,
            PlaceKind::Instance if self.is_primitive(owner) => watch::HowOften::Seldom,
            // Nobody looks into those while programs are traced.
            _ if self.is_of_lowering(kind, &name.to_string_lossy()) => watch::HowOften::Seldom,
            PlaceKind::Modules | PlaceKind::Module | PlaceKind::Registry | PlaceKind::Instance => {
                watch::HowOften::Frequent
            }
        };
        let number = watch::watch(how_often, owner)?;
        let places = self.places.bind(py);
        if !places.contains(number)? {
            let place = Place {
                was: unbound(entries(&watch::dict_of(owner)?)),
                of_class: parts_of_class(owner).map(Bound::unbind).collect(),
                is_filled: AtomicBool::new(self.is_started(&name.to_string_lossy())),
                ..Place::new(number, kind, name, owner)
            };
            let place = Py::new(py, place)?;
            places.set_item(number, &place)?;
            self.known.peek(|known| {
                let unsorted = match kind {
                    PlaceKind::Registry => &mut known.registries,
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
    pub(super) fn is_started(&self, registry: &str) -> bool {
        let (module, name) = registry.rsplit_once('.').unwrap_or_default();
        self.started.contains(&(module.to_owned(), name.to_owned()))
    }

    /// Whether only those who lower programs look into a place with this name.
    pub(super) fn is_of_lowering(&self, kind: PlaceKind, name: &str) -> bool {
        is_within(name, "jaxlib") || kind == PlaceKind::Registry && self.has_tables_within(name)
    }

    /// Whether a registry with this name says how programs are lowered.
    pub(super) fn has_tables_within(&self, registry: &str) -> bool {
        self.lowering.iter().any(|module| is_within(registry, module))
    }

    pub(super) fn has_place(&self, owner: &Bound<'_, PyAny>) -> bool {
        let at = address(owner);
        self.known.peek(|known| known.owners.contains(&at))
    }

    /// Whether a value is foreign. Functions that it is made of are noted; those of a class with a place
    /// are when that is sorted out.
    pub(super) fn note(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
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
    pub(super) fn note_primitive(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if !self.is_primitive(value) || self.trust.get().is_foreign(value.get_type().as_any())? {
            return Ok(false);
        }
        PRIMITIVES.add(value);
        self.note_new(value);
        Ok(true)
    }

    pub(super) fn is_primitive(&self, value: &Bound<'_, PyAny>) -> bool {
        is_a(value, self.primitive.as_ptr().cast_const().cast())
    }

    /// Finds the entries of a new place that were not made by jax; whether there are any. Of a module,
    /// adds the places of what it has.
    pub(super) fn sort_out(&self, place: &Bound<'_, Place>) -> PyResult<bool> {
        let (py, kind, name) = (place.py(), place.get().kind, place.get().name.bind(place.py()));
        let name = name.to_string_lossy();
        let is_read = kind == PlaceKind::Module && self.has_tables(&name);
        let is_noted = is_read || kind == PlaceKind::Class;
        let has_tables = kind == PlaceKind::Registry && self.has_tables_within(&name);
        let trust = self.trust.get();
        let mut foreign = Vec::new();
        for (key, value) in &place.get().was {
            let (key, value) = (key.bind(py), value.bind(py));
            if kind != PlaceKind::Registry && self.skipped.contains(&address(key)) {
                if kind == PlaceKind::Class {
                    self.note(value)?;
                }
                continue;
            }
            let at = address(value);
            let known = self.known.peek(|known| known.values.get(&at).copied());
            if has_tables && value.is_instance_of::<PyDict>() && !self.has_place(value) {
                let word = key.cast_exact::<PyString>().map(string_of).unwrap_or_default();
                let within = format!("{name}[{word}]");
                self.place(PlaceKind::Registry, &PyString::new(py, &within), value)?;
            }
            let is_plain = known.is_none() && trust.is_plain(value);
            if is_read
                && (!is_plain || value.is_instance_of::<PyDict>())
                && !known.is_some_and(|known| known.is_of_module)
            {
                self.take_in_value(&name, key, value)?;
            }
            if is_plain || kind == PlaceKind::Registry && !self.is_of_jax(key)? {
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
    pub(super) fn take_in_value(
        &self,
        module: &str,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let is_primitive = self.note_primitive(value)?;
        let Some(kind) = self.kind_of(value, is_primitive)? else { return Ok(()) };
        // The interpreter notes there of what it has warned, under a name that may be another object.
        if kind == PlaceKind::Registry && key.cast::<PyString>().is_ok_and(|key| key == WARNED_OF) {
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
