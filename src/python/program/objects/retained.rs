//! The objects that a tracer may still be asked for when its trace is over.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::ir::{ForeignId, Source, TypeId};

use crate::python::cpython::shared::Quiet;
use crate::python::jax::names::Jax;
use crate::python::program::objects::{Object, ObjectTable, bound, index};

/// The objects that a tracer may still be asked for when its trace is over: they hold nothing else
/// of the trace.
#[derive(Default)]
pub struct Retained {
    /// By `TypeId`.
    pub(super) avals: Vec<Object>,
    /// Tracebacks and name stacks, by the `ForeignId`s of a `Source`.
    pub(super) sources: Vec<Object>,
}

impl Clone for Retained {
    fn clone(&self) -> Self {
        Python::attach(|py| {
            let own = |objects: &[Object]| objects.iter().map(|o| o.clone_ref(py)).collect();
            Self { avals: own(&self.avals), sources: own(&self.sources) }
        })
    }
}

impl Retained {
    /// The aval of a type; None where the collector has taken everything.
    pub fn aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Bound<'py, PyAny> {
        bound(py, self.avals.get(ty.as_u32() as usize))
    }

    /// The aval of a type, where it is kept.
    pub fn known_aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Option<Bound<'py, PyAny>> {
        self.avals.get(ty.as_u32() as usize).map(|aval| aval.bind(py).clone())
    }

    /// A new `SourceInfo` of a recorded source.
    pub fn source_info<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        source: Source,
    ) -> PyResult<Bound<'py, PyAny>> {
        let [traceback, name_stack] = self.parts(Quiet::of(py), jax, source);
        let name_stack = bound(py, name_stack.as_ref());
        jax.new_source_info(traceback.map(|traceback| traceback.into_bound(py)), name_stack)
    }

    /// The traceback and the name stack of a recorded source.
    pub fn parts(&self, quiet: Quiet<'_>, jax: &Jax, source: Source) -> [Option<Object>; 2] {
        let object = |id: ForeignId| self.sources.get(index(id)).map(|object| quiet.own(object));
        let name_stack = match source.name_stack {
            Some(id) => object(id),
            None => Some(quiet.own(&jax.empty_name_stack)),
        };
        [source.traceback.and_then(object), name_stack]
    }
}

impl ObjectTable {
    /// What outlives the trace.
    pub fn retained(&self) -> &Arc<Retained> {
        &self.retained
    }

    /// A table that has nothing else.
    pub fn of_retained(retained: Arc<Retained>) -> Self {
        Self { retained, ..Self::default() }
    }

    /// Gives up everything but what outlives the trace.
    pub fn keep_retained(&mut self) -> Self {
        let retained = self.retained.clone();
        std::mem::replace(self, Self::of_retained(retained))
    }

    /// The aval of a type.
    pub fn aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Bound<'py, PyAny> {
        self.retained.aval(py, ty)
    }

    /// As `aval`.
    pub fn aval_of(&self, quiet: Quiet<'_>, ty: TypeId) -> Option<Object> {
        self.retained.avals.get(ty.as_u32() as usize).map(|aval| quiet.own(aval))
    }

    /// A traceback or name stack of a source.
    pub fn source_object<'py>(&self, py: Python<'py>, id: ForeignId) -> Bound<'py, PyAny> {
        bound(py, self.retained.sources.get(index(id)))
    }

    /// As `source_object`.
    pub fn source_object_of(&self, quiet: Quiet<'_>, id: ForeignId) -> Option<Object> {
        self.retained.sources.get(index(id)).map(|source| quiet.own(source))
    }

    /// As `source_object`; none of a program that was skeleton.
    pub fn known_source<'py>(&self, py: Python<'py>, id: ForeignId) -> Option<Bound<'py, PyAny>> {
        self.retained.sources.get(index(id)).map(|source| source.bind(py).clone())
    }

    /// A new `SourceInfo` of a recorded source.
    pub fn source_info<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        source: Source,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.retained.source_info(py, jax, source)
    }
}

impl ObjectTable {
    pub(super) fn push_source(&mut self, object: Object) -> ForeignId {
        let sources = &mut Arc::make_mut(&mut self.retained).sources;
        let id = ForeignId::from_u32(u32::try_from(sources.len()).unwrap_or(u32::MAX - 1));
        sources.push(object);
        id
    }
}
