//! Equations of programs and of their nested programs, as Python has them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use rustc_hash::FxHashMap;

use crate::analysis::{Nest, Site};
use crate::ir::{SourceId, TypeId};

use crate::python::jax::names::jax;
use crate::python::program::graph::Graph;
use crate::python::tools::analysis::Graphs;

/// An equation, as `jaxide._reports.equations.Equation` is made of it.
#[derive(IntoPyObject)]
pub struct EquationRecord<'py> {
    path: Bound<'py, PyTuple>,
    programs: Bound<'py, PyTuple>,
    primitive: String,
    /// Of the line that it is from.
    traceback: Option<Bound<'py, PyAny>>,
    name_stack: String,
    in_avals: Bound<'py, PyTuple>,
    out_avals: Bound<'py, PyTuple>,
}

/// Equations that were found: their records are made when they are read.
#[pyclass(frozen, module = "jaxide._core")]
pub struct Found {
    root: Py<Graph>,
    nest: Arc<Nest>,
    sites: Box<[Site]>,
}

#[pymethods]
impl Found {
    fn __len__(&self) -> usize {
        self.sites.len()
    }

    /// The records of equations from one position up to another.
    ///
    /// Raises:
    ///     `IndexError`: There are not so many.
    ///     A nested program cannot be read.
    fn records<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
    ) -> PyResult<Vec<EquationRecord<'py>>> {
        let sites = self.sites.get(start..stop).ok_or_else(|| {
            PyIndexError::new_err(format!("there are {} equations", self.sites.len()))
        })?;
        let equations = Equations::with(self.root.bind(py), self.nest.clone())?;
        sites.iter().map(|&site| equations.record(site)).collect()
    }
}

/// How one comes to a program: positions of equations, which of their programs, and their scopes.
struct Way {
    path: Vec<u32>,
    programs: Vec<u32>,
    scopes: Vec<Rc<str>>,
}

/// A program of Python's with the nested programs, and the records of its equations.
pub struct Equations<'py> {
    py: Python<'py>,
    root: Bound<'py, Graph>,
    graphs: Graphs<'py>,
    nest: Arc<Nest>,
    ways: RefCell<FxHashMap<usize, Rc<Way>>>,
    scopes: RefCell<FxHashMap<(usize, SourceId), Rc<str>>>,
    types: RefCell<FxHashMap<(usize, TypeId), Py<PyString>>>,
}

impl<'py> Equations<'py> {
    /// Reads a program and its nested programs.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn of(root: &Bound<'py, Graph>) -> PyResult<Self> {
        let jax = jax(root.py())?;
        let program = Graph::resolved_program(root, jax)?;
        Self::with(root, Arc::new(Nest::of(&program)))
    }

    fn with(root: &Bound<'py, Graph>, nest: Arc<Nest>) -> PyResult<Self> {
        Ok(Self {
            py: root.py(),
            root: root.clone(),
            graphs: Graphs::of(jax(root.py())?, root)?,
            nest,
            ways: RefCell::default(),
            scopes: RefCell::default(),
            types: RefCell::default(),
        })
    }

    pub fn nest(&self) -> &Nest {
        &self.nest
    }

    pub fn graphs(&self) -> &Graphs<'py> {
        &self.graphs
    }

    /// The graph of a program of the nest.
    pub fn graph(&self, place: usize) -> Option<&Bound<'py, Graph>> {
        self.graphs.get(self.nest.program(place))
    }

    /// The positions of the equations through which one comes to a program.
    ///
    /// # Errors
    /// A name stack on the way has no text.
    pub fn path(&self, place: usize) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.py, &self.way(place)?.path)
    }

    /// The traceback of a source of a program of the nest.
    pub fn traceback(&self, place: usize, source: SourceId) -> Option<Bound<'py, PyAny>> {
        self.graphs.traceback(self.nest.program(place), source)
    }

    /// The record of an equation.
    ///
    /// # Errors
    /// Its name stack has no text.
    pub fn record(&self, site: Site) -> PyResult<EquationRecord<'py>> {
        let program = self.nest.program(site.place);
        let data = program.eqn(site.eqn);
        let way = self.way(site.place)?;
        let invars = program.eqn_invars(site.eqn).iter().map(|&atom| program.atom_type(atom));
        let outvars = program.eqn_outvars(site.eqn).map(|var| program.var_type(var));
        let path = way.path.iter().copied().chain([site.eqn.as_u32()]);
        Ok(EquationRecord {
            path: PyTuple::new(self.py, path.collect::<Vec<_>>())?,
            programs: PyTuple::new(self.py, &way.programs)?,
            primitive: program.primitive(data.primitive).name.to_string(),
            traceback: self.graphs.traceback(program, data.source),
            name_stack: self.name_stack(site.place, data.source)?,
            in_avals: self.texts(site.place, invars)?,
            out_avals: self.texts(site.place, outvars)?,
        })
    }

    /// Equations for Python to read, in the order in which they are.
    pub fn found(&self, sites: Vec<Site>) -> Found {
        Found { root: self.root.clone().unbind(), nest: self.nest.clone(), sites: sites.into() }
    }

    /// Equations for Python to read, in the order of their places.
    pub fn in_order(&self, sites: Vec<Site>) -> Found {
        self.found(self.nest.in_order(sites))
    }

    /// The name scopes around equations of a source, those around the equations that run its program first.
    ///
    /// # Errors
    /// A name stack has no text.
    pub fn name_stack(&self, place: usize, source: SourceId) -> PyResult<String> {
        let way = self.way(place)?;
        let own = self.scope(place, source)?;
        let scopes: Vec<&str> = way
            .scopes
            .iter()
            .chain([&own])
            .map(|scope| &**scope)
            .filter(|s| !s.is_empty())
            .collect();
        Ok(scopes.join("/"))
    }

    /// The text of a type of a program.
    pub fn type_text(&self, place: usize, ty: TypeId) -> Bound<'py, PyString> {
        let program = self.nest.program(place);
        let mut types = self.types.borrow_mut();
        let text = types
            .entry((place, ty))
            .or_insert_with(|| PyString::new(self.py, &program.ty(ty).to_string()).unbind());
        text.bind(self.py).clone()
    }

    fn texts(
        &self,
        place: usize,
        types: impl Iterator<Item = TypeId>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.py, types.map(|ty| self.type_text(place, ty)).collect::<Vec<_>>())
    }

    fn way(&self, place: usize) -> PyResult<Rc<Way>> {
        if let Some(known) = self.ways.borrow().get(&place) {
            return Ok(known.clone());
        }
        let mut way = Way { path: Vec::new(), programs: Vec::new(), scopes: Vec::new() };
        for (site, call) in self.nest.path(place) {
            way.path.push(site.eqn.as_u32());
            way.programs.push(call.nth);
            let source = self.nest.program(site.place).eqn(site.eqn).source;
            way.scopes.push(self.scope(site.place, source)?);
        }
        let way = Rc::new(way);
        self.ways.borrow_mut().insert(place, way.clone());
        Ok(way)
    }

    /// The name scopes of an equation within its program.
    fn scope(&self, place: usize, source: SourceId) -> PyResult<Rc<str>> {
        if let Some(known) = self.scopes.borrow().get(&(place, source)) {
            return Ok(known.clone());
        }
        let text: Rc<str> = match self.graphs.name_stack(self.nest.program(place), source) {
            None => Rc::from(""),
            Some(name_stack) => name_stack.str()?.to_str()?.into(),
        };
        self.scopes.borrow_mut().insert((place, source), text.clone());
        Ok(text)
    }
}
