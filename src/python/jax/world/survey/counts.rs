//! Which changes may count.

use std::sync::atomic::Ordering;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyModule, PyString, PyType};

use crate::python::cpython::native::{address, entries, string_of};
use crate::python::jax::world::survey::place::{Change, Place, PlaceKind};
use crate::python::jax::world::survey::{Survey, WARNING};
use crate::python::jax::world::trust::{
    is_jax_module, is_made_in_python, is_where_it_says, is_within, module_of,
};
use crate::python::jax::world::{PRIMITIVES, watch};

impl Survey {
    /// Whether jax looks a registry's key up without being given it: no class and no primitive of the
    /// user's.
    pub(super) fn is_of_jax(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let trust = self.trust.get();
        if let Ok(class) = key.cast::<PyType>() {
            if module_of(class)?.is_some_and(|module| is_jax_module(&module)) {
                return Ok(true);
            }
            if is_made_in_python(class) && !is_where_it_says(class)? {
                return Ok(false);
            }
        } else if self.is_primitive(key) {
            return Ok(PRIMITIVES.has(address(key)));
        }
        Ok(!trust.is_foreign(key)?)
    }

    pub(super) fn all_changes<'py>(
        &self,
        place: &Place,
        py: Python<'py>,
    ) -> PyResult<Vec<Change<'py>>> {
        if place.kind != PlaceKind::Modules {
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
    pub(super) fn may_count(&self, place: &Place, (key, new, old): &Change<'_>) -> PyResult<bool> {
        match place.kind {
            PlaceKind::Module => {
                let Ok(name) = key.cast_exact::<PyString>() else { return Ok(true) };
                let name = (string_of(place.name.bind(key.py())), string_of(name));
                if name.0 == WARNING.0 {
                    return Ok(name.1 == WARNING.1);
                }
                let is_import = old.is_none() && self.is_import(key, new.as_ref())?;
                Ok(!is_import && !self.started.contains(&name))
            }
            PlaceKind::Registry if !self.is_of_jax(key)? => {
                if self.is_primitive(key) {
                    self.known.peek(|known| known.waiting.insert(place.number));
                }
                Ok(false)
            }
            PlaceKind::Registry if old.is_none() => {
                let Some(new) = new else { return Ok(true) };
                Ok(self.trust.get().is_foreign(new)? || !self.is_accepted(place, key, new)?)
            }
            PlaceKind::Class => {
                let Some(new) = new else { return Ok(true) };
                let class = place.owner.bind(key.py()).cast::<PyType>()?;
                let is_added = old.is_none() && is_nested_in_c(class, new)?;
                Ok(!is_added
                    && (self.trust.get().is_foreign(new)? || !self.is_accepted(place, key, new)?))
            }
            PlaceKind::Registry if self.is_state_of(place, key)? => {
                let is_code =
                    |value: &Option<_>| value.as_ref().map_or(Ok(false), |it| self.is_code(it));
                let may_stand_in = is_code(old)? || is_code(new)?;
                let is_foreign = |it: &_| self.trust.get().is_foreign(it);
                Ok(may_stand_in || new.as_ref().map_or(Ok(false), is_foreign)?)
            }
            PlaceKind::Modules | PlaceKind::Registry | PlaceKind::Instance => Ok(true),
        }
    }

    /// Whether a key of a registry is that of no rule, such as the platforms whose backends have started.
    pub(super) fn is_state(&self, key: &Bound<'_, PyAny>) -> bool {
        !(key.is_instance_of::<PyType>() || self.is_primitive(key))
    }

    /// Whether an entry of a registry is state of jax's: functions of its module change it, and the key
    /// is that of no rule.
    pub(super) fn is_state_of(&self, registry: &Place, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let is_filled = registry.is_filled.load(Ordering::Relaxed);
        Ok(is_filled && self.is_state(key) && !is_dtype(key)?)
    }

    /// Whether a value has functions.
    pub(super) fn is_code(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut found = false;
        self.trust.get().judge(value, |_| found = true)?;
        Ok(found)
    }

    /// Whether a new entry of a registry or a class is state of jax's, or was put there by a module of jax
    /// while that was imported: one of its functions or classes, or the first entry of its primitive or
    /// class.
    pub(super) fn is_accepted(
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
    pub(super) fn is_of_new_module(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(class) = object.cast::<PyType>() {
            return globals_of_class(class)?.map_or(Ok(false), |of| self.is_new(&of));
        }
        let at = address(object);
        Ok(self.known.peek(|known| known.since.contains(&at)))
    }

    /// Whether a value has a function of a module of jax that was imported since somebody looked.
    pub(super) fn has_new_function(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
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
    pub(super) fn is_new(&self, globals: &Bound<'_, PyDict>) -> PyResult<bool> {
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
    pub(super) fn is_import(
        &self,
        key: &Bound<'_, PyAny>,
        new: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let Some(Ok(module)) = new.map(Bound::cast::<PyModule>) else { return Ok(false) };
        // SAFETY: with the interpreter attached; they live as long as that.
        let builtins = unsafe { Bound::from_borrowed_ptr(key.py(), ffi::PyEval_GetBuiltins()) };
        Ok(!builtins.contains(key)? && !self.trust.get().is_foreign(module.as_any())?)
    }
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

/// The module that `sys.modules` has under a name.
fn imported_module<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyModule>>> {
    // SAFETY: with the interpreter attached; it lives as long as that.
    let modules = unsafe { Bound::from_borrowed_ptr(name.py(), ffi::PyImport_GetModuleDict()) };
    let module = modules.cast::<PyDict>()?.get_item(name)?;
    Ok(module.and_then(|module| module.cast_into::<PyModule>().ok()))
}
