//! What a key names by address: kept alive, or known to be gone.
//!
//! Objects of jax are kept. What is the user's (functions, their code, classes) is not: there is a weak
//! reference to it, and a key that names something that is gone holds for nothing.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::python::cache::key::stable::is_stable;

/// The objects that a key names.
#[derive(Default)]
pub struct Pins {
    kept: Vec<Py<PyAny>>,
    weak: Vec<Py<PyWeakrefReference>>,
}

impl Pins {
    /// Keeps objects of jax alive, and notes those of the user.
    pub fn new<'py>(objects: impl Iterator<Item = Bound<'py, PyAny>>) -> Self {
        let mut pins = Self::default();
        for object in objects {
            match weak(&object) {
                Some(weak) => pins.weak.push(weak.unbind()),
                None => pins.kept.push(object.unbind()),
            }
        }
        pins
    }

    /// Whether all of them are still there.
    #[inline]
    pub fn are_alive(&self, py: Python<'_>) -> bool {
        self.weak.iter().all(|weak| weak.bind(py).upgrade().is_some())
    }

    /// Adds what is kept in any case.
    pub fn keep(&mut self, objects: Vec<Py<PyAny>>) {
        self.kept.extend(objects);
    }

    /// How much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.kept.capacity() + self.weak.capacity()) * size_of::<usize>()
    }
}

/// A weak reference to an object of the user's; None for others.
pub fn weak<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyWeakrefReference>> {
    let class = object.get_type_ptr();
    // SAFETY: a live object; only flags of types are read.
    let may_go = unsafe {
        class == &raw mut ffi::PyFunction_Type
            || class == &raw mut ffi::PyCode_Type
            || ffi::PyType_Check(object.as_ptr()) != 0
                && (*object.as_ptr().cast::<ffi::PyTypeObject>()).tp_flags
                    & ffi::Py_TPFLAGS_HEAPTYPE
                    != 0
    };
    if !may_go || is_stable(object.as_ptr()) {
        return None;
    }
    PyWeakrefReference::new(object).ok()
}
