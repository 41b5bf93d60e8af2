//! Objects that are known by their addresses, and so must never be freed.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use crate::python::cpython::shared::Shared;

/// A set of objects that live as long as the process.
pub struct Immortals(Shared<Option<FxHashSet<usize>>>);

impl Immortals {
    pub const fn new() -> Self {
        Self(Shared::new(None))
    }

    /// Adds an object.
    pub fn add(&self, object: &Bound<'_, PyAny>) {
        let address = object.as_ptr() as usize;
        if self.0.peek(|known| known.get_or_insert_default().insert(address)) {
            // Its address is known from now on, so it must stay its own.
            std::mem::forget(object.clone().unbind());
        }
    }

    /// Whether the object at an address is one of them.
    #[inline]
    pub fn has(&self, address: usize) -> bool {
        self.0.peek(|known| known.as_ref().is_some_and(|known| known.contains(&address)))
    }
}
