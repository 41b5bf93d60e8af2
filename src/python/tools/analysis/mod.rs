//! Analyses of programs ([`crate::analysis`]), as Python has their results.

pub mod cost;
pub mod equations;
pub mod liveness;
pub mod queries;

use std::sync::Arc;

use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::ir::{ForeignId, Program, SourceId};

use crate::python::jax::names::Jax;
use crate::python::program::graph::Graph;

/// The graphs of a program and of its nested programs, by the address of the program.
pub struct Graphs<'py>(FxHashMap<usize, Bound<'py, Graph>>);

impl<'py> Graphs<'py> {
    /// Reads the nested programs.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn of(jax: &Jax, root: &Bound<'py, Graph>) -> PyResult<Self> {
        let mut graphs = Self(FxHashMap::default());
        graphs.add(jax, root)?;
        Ok(graphs)
    }

    /// Adds a graph and its nested programs.
    ///
    /// # Errors
    /// As `of`.
    pub fn add(&mut self, jax: &Jax, root: &Bound<'py, Graph>) -> PyResult<()> {
        let mut pending = vec![root.clone()];
        while let Some(graph) = pending.pop() {
            let program = Graph::resolved_program(&graph, jax)?;
            let address = Arc::as_ptr(&program) as usize;
            if self.0.contains_key(&address) {
                continue;
            }
            for (_, within) in program.subprograms() {
                pending.extend(graph.get().table().subgraph(graph.py(), within.object));
            }
            self.0.insert(address, graph);
        }
        Ok(())
    }

    /// The graph of a program.
    pub fn get(&self, program: &Program) -> Option<&Bound<'py, Graph>> {
        self.0.get(&(std::ptr::from_ref(program) as usize))
    }

    /// The traceback of a source of a program.
    pub fn traceback(&self, program: &Program, source: SourceId) -> Option<Bound<'py, PyAny>> {
        self.source_part(program, program.source(source).traceback?)
    }

    /// The name stack of a source of a program; none where it is empty.
    pub fn name_stack(&self, program: &Program, source: SourceId) -> Option<Bound<'py, PyAny>> {
        self.source_part(program, program.source(source).name_stack?)
    }

    fn source_part(&self, program: &Program, part: ForeignId) -> Option<Bound<'py, PyAny>> {
        let graph = self.get(program)?;
        graph.get().table().known_source(graph.py(), part)
    }
}
