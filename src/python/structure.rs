//! The objects of programs, for their structural hash and equality.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustc_hash::FxHashMap;

use crate::ir::{ConstId, ForeignId, Subprogram, Type};
use crate::structure::{Constants, Fingerprint, Nested, Objects, Text};

use super::convert::aval_info;
use super::graph::Graph;
use super::jax::Jax;
use super::params::{typed_equal, typed_hash};
use super::side::{address, is_exactly};

/// The objects of one program.
pub struct PyObjects<'py> {
    jax: &'py Jax,
    graph: Bound<'py, Graph>,
    /// Descriptions by address, of objects that the programs keep alive; shared by those of one hash.
    described: Rc<RefCell<FxHashMap<usize, Fingerprint>>>,
}

/// How constants count.
pub fn by(value: bool) -> Constants {
    if value { Constants::ByValue } else { Constants::ByType }
}

impl<'py> PyObjects<'py> {
    /// A program with its objects.
    ///
    /// # Errors
    /// A program within cannot be read.
    pub fn of(jax: &'py Jax, graph: &Bound<'py, Graph>) -> PyResult<Nested<Self>> {
        Self::nested_in(jax, graph, Rc::default())
    }

    fn nested_in(
        jax: &'py Jax,
        graph: &Bound<'py, Graph>,
        described: Rc<RefCell<FxHashMap<usize, Fingerprint>>>,
    ) -> PyResult<Nested<Self>> {
        let program = Graph::resolved_program(graph, jax)?;
        let objects = Self { jax, graph: graph.clone(), described };
        Ok(Nested { key: address(graph.as_any()), program, objects })
    }

    fn py(&self) -> Python<'py> {
        self.graph.py()
    }

    fn object(&self, object: ForeignId) -> Bound<'py, PyAny> {
        self.graph.borrow().side().object(self.py(), object)
    }

    fn constant(&self, value: ConstId) -> Bound<'py, PyAny> {
        let value = self.graph.borrow().side().constant(self.py(), value);
        value.unwrap_or_else(|| self.py().None().into_bound(self.py()))
    }

    fn description(&self, value: &Bound<'py, PyAny>) -> PyResult<Fingerprint> {
        let known = self.described.borrow().get(&address(value)).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let objects = self.jax.objects.bind(self.py());
        let described = objects.call_method1(intern!(self.py(), "describe"), (value,))?;
        let mut text = Text::new();
        text.bytes(described.cast::<PyBytes>()?.as_bytes());
        let own = text.finish();
        self.described.borrow_mut().insert(address(value), own);
        Ok(own)
    }

    /// The value of a literal, whose type is said beside it; None where only Python can say it.
    fn literal(&self, value: &Bound<'py, PyAny>) -> Option<Fingerprint> {
        if !is_exactly(value.as_ptr(), self.jax.literal_type.as_ptr().cast()) {
            return None;
        }
        // SAFETY: the exact type was checked.
        let value = unsafe { self.jax.slots.literal_val.get(value) }?;
        let is_array = is_exactly(value.as_ptr(), self.jax.typed_array_type.as_ptr().cast());
        // The bytes of a number are in the order of the machine.
        if !is_array || cfg!(target_endian = "big") {
            return None;
        }
        let mut text = Text::new();
        // SAFETY: a live object; its buffer is read while it is held.
        unsafe {
            let mut view: ffi::Py_buffer = std::mem::zeroed();
            if ffi::PyObject_GetBuffer(value.as_ptr(), &raw mut view, ffi::PyBUF_SIMPLE) != 0 {
                ffi::PyErr_Clear();
                return None;
            }
            let bytes = view.buf.cast::<u8>();
            text.bytes(std::slice::from_raw_parts(bytes, view.len.unsigned_abs()));
            ffi::PyBuffer_Release(&raw mut view);
        }
        Some(text.finish())
    }

    fn are_same(&self, own: &Bound<'py, PyAny>, other: &Bound<'py, PyAny>) -> PyResult<bool> {
        if own.is(other) || (typed_hash(own).is_some() && typed_equal(own, other)) {
            return Ok(true);
        }
        let objects = self.jax.objects.bind(self.py());
        objects.call_method1(intern!(self.py(), "same"), (own, other))?.is_truthy()
    }
}

impl Objects for PyObjects<'_> {
    type Error = PyErr;

    fn nested(&self, subprogram: &Subprogram) -> PyResult<Nested<Self>> {
        let known = self.graph.borrow().side().subgraph(self.py(), subprogram.object);
        let graph = match known {
            Some(graph) => graph,
            None => Graph::read_subgraph(&self.graph, self.jax, subprogram.object)?,
        };
        Self::nested_in(self.jax, &graph, self.described.clone())
    }

    fn describe(&self, object: ForeignId) -> PyResult<Fingerprint> {
        let object = self.object(object);
        match self.literal(&object) {
            Some(literal) => Ok(literal),
            None => self.description(&object),
        }
    }

    fn describe_constant(&self, value: ConstId) -> PyResult<Fingerprint> {
        self.description(&self.constant(value))
    }

    fn type_of(&self, object: ForeignId) -> PyResult<Option<Type>> {
        Ok(aval_info(self.jax, &self.object(object))?.ty.clone())
    }

    fn same(&self, own: ForeignId, others: &Self, other: ForeignId) -> PyResult<bool> {
        self.are_same(&self.object(own), &others.object(other))
    }

    fn same_constant(&self, own: ConstId, others: &Self, other: ConstId) -> PyResult<bool> {
        self.are_same(&self.constant(own), &others.constant(other))
    }
}
