//! A dict that functions of jax look into, and what has changed in it.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMappingProxy, PyString, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::python::cpython::native::entries;
use crate::python::cpython::shared::Shared;
use crate::python::jax::world::trust::is_made_in_python;
use crate::python::jax::world::watch;

/// A dict that functions of jax look into.
#[pyclass(frozen, module = "jaxide._core")]
pub struct Place {
    /// Names it, to who watches it.
    pub(super) number: u32,
    pub(super) kind: PlaceKind,
    #[pyo3(get)]
    pub(super) name: Py<PyString>,
    /// Whose dict it is: a module, a class, an instance, or the dict itself.
    pub(super) owner: Py<PyAny>,
    /// What it had, in its order. Not a dict: there are hundreds of places, and the garbage collector
    /// would look through each. Of `sys.modules` the survey knows it.
    pub(super) was: Box<[Entry]>,
    /// What a class had besides: its bases and its names.
    pub(super) of_class: Vec<Py<PyAny>>,
    /// Keys of what was not made by jax, once it is sorted out.
    pub(super) foreign: Shared<Vec<Py<PyAny>>>,
    /// What differed when somebody looked last: the addresses of keys and of what they referred to.
    pub(super) last: Shared<FxHashSet<[usize; 2]>>,
    /// What modules of jax that were imported later have put there, by the addresses of keys.
    pub(super) accepted: Shared<FxHashMap<usize, Entry>>,
    /// Functions of its module change it: a new entry that is no rule is state of jax's.
    pub(super) is_filled: AtomicBool,
}

/// A key and what it refers to.
pub(super) type Entry = (Py<PyAny>, Py<PyAny>);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
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
            PlaceKind::Modules => "modules",
            PlaceKind::Module => "module",
            PlaceKind::Class => "class",
            PlaceKind::Registry => "registry",
            PlaceKind::Instance => "instance",
        }
    }

    /// What it has.
    #[getter]
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dict = watch::dict_of(self.owner.bind(py))?;
        if self.kind == PlaceKind::Class {
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
    /// The dict of an owner that is watched under a number, as if it had nothing.
    pub(super) fn new(
        number: u32,
        kind: PlaceKind,
        name: &Bound<'_, PyString>,
        owner: &Bound<'_, PyAny>,
    ) -> Self {
        Self {
            number,
            kind,
            name: name.clone().unbind(),
            owner: owner.clone().unbind(),
            was: Box::default(),
            of_class: Vec::new(),
            foreign: Shared::default(),
            last: Shared::default(),
            accepted: Shared::default(),
            is_filled: AtomicBool::new(false),
        }
    }

    /// What differs from what it had, and from what was accepted since.
    pub(super) fn changes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Change<'py>>> {
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
        if self.kind == PlaceKind::Class {
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
pub(super) fn parts_of_class<'py>(
    owner: &Bound<'py, PyAny>,
) -> impl Iterator<Item = Bound<'py, PyAny>> {
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
pub(super) type Change<'py> =
    (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// Goes through a dict without a touch of what is in it. No Python code runs meanwhile.
pub(super) struct Cursor<'a, 'py> {
    dict: &'a Bound<'py, PyDict>,
    position: ffi::Py_ssize_t,
}

pub(super) fn unbound(entries: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>) -> Box<[Entry]> {
    entries.into_iter().map(|(key, value)| (key.unbind(), value.unbind())).collect()
}

type Pointers = (*mut ffi::PyObject, *mut ffi::PyObject);

impl<'a, 'py> Cursor<'a, 'py> {
    pub(super) fn new(dict: &'a Bound<'py, PyDict>) -> Self {
        Self { dict, position: 0 }
    }

    pub(super) fn next(&mut self) -> Option<Pointers> {
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
    pub(super) fn own(&self, object: *mut ffi::PyObject) -> Bound<'py, PyAny> {
        // SAFETY: the dict has it, since nobody has changed the dict.
        unsafe { Bound::from_borrowed_ptr(self.dict.py(), object) }
    }

    /// What was found last, and what comes after it.
    pub(super) fn rest(
        mut self,
        last: Option<Pointers>,
    ) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let mut rest = Vec::new();
        let mut next = last;
        while let Some((key, value)) = next {
            rest.push((self.own(key), self.own(value)));
            next = self.next();
        }
        rest
    }
}
