//! Makes what a rule of jax was recorded to make, for the programs of another call.
//!
//! In the place of each program that the rule has made of those it was given is a fresh copy, the same
//! one each time.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rustc_hash::FxHashMap;

use crate::ir::{ParamsId, Var};

use crate::python::cache::programs::decision::Programs;
use crate::python::cache::programs::forms::{Form, all_vars, close, open};
use crate::python::cache::programs::fresh_copy::{
    Place, fresh_copy, like, own_nested, with_fields,
};
use crate::python::cache::programs::given::Given;
use crate::python::cache::programs::plan::{Changes, Derived, Node, OwnChanges, Plan, VarOrigin};
use crate::python::cache::programs::registry::{nested_of, note, own_var};
use crate::python::cache::programs::structural_id::StructuralId;
use crate::python::cpython::native::address;
use crate::python::jax::names::Jax;
use crate::python::program::graph::Graph;

type OwnRules<'py> = (Vec<Bound<'py, PyAny>>, Bound<'py, PyDict>);

/// Makes params for the programs of a call.
pub struct Instantiation<'py> {
    given: Given,
    /// What stands for nested programs, by their address.
    stand_ins: RefCell<FxHashMap<usize, Bound<'py, PyAny>>>,
    /// The recorded programs.
    recorded: Arc<Given>,
    /// The derivative rules of the programs, and what stands for the recorded ones, by address.
    rules: OnceCell<OwnRules<'py>>,
}

impl<'py> Instantiation<'py> {
    /// A replay of a fragment for the programs; `recorded` is what is known of its own.
    pub fn new(py: Python<'py>, given: Given, recorded: &Programs) -> Self {
        recorded.note_given(py, &given);
        Self::of(given, recorded.given.clone())
    }

    /// As `new`, of what a cache of jax's has for a program.
    pub fn of(given: Given, recorded: Arc<Given>) -> Self {
        Self { given, stand_ins: RefCell::default(), recorded, rules: OnceCell::new() }
    }

    /// The derivative rules of the programs, and what stands for those of the recorded ones and for
    /// what is in these.
    fn rules(&self, py: Python<'py>, jax: &Jax) -> PyResult<&OwnRules<'py>> {
        if let Some(rules) = self.rules.get() {
            return Ok(rules);
        }
        let (rules, made) = (self.given.rules(py, jax)?, PyDict::new(py));
        for (recorded, own) in self.recorded.rules(py, jax)?.iter().zip(&rules) {
            if !recorded.is(own) {
                jax.pair_rules.bind(py).call1((recorded, own, &made))?;
            }
        }
        Ok(self.rules.get_or_init(|| (rules, made)))
    }

    /// The params of an equation.
    ///
    /// # Errors
    /// Out of memory.
    pub fn params(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyDict>,
        plan: &Plan,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.changed(jax, recorded, &plan.0)
    }

    fn changed(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyDict>,
        changes: &Changes,
    ) -> PyResult<Bound<'py, PyDict>> {
        let made = recorded.copy()?;
        for (name, node) in changes {
            if let Some(value) = recorded.get_item(name)? {
                made.set_item(name, self.value(jax, &value, node)?)?;
            }
        }
        Ok(made)
    }

    fn value(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyAny>,
        node: &Node,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = recorded.py();
        let made = match node {
            Node::Same => return Ok(recorded.clone()),
            Node::Tuple(nodes) => {
                let items = recorded.cast::<PyTuple>()?;
                let made: Vec<_> = items
                    .iter()
                    .zip(nodes)
                    .map(|(item, node)| self.value(jax, &item, node))
                    .collect::<PyResult<_>>()?;
                return like(items, made);
            }
            Node::Closed => {
                let (open, _) = open(jax, recorded).map_err(PyRuntimeError::new_err)?;
                close(jax, &open)?
            }
            Node::Rule(index) => {
                let (rules, _) = self.rules(py, jax)?;
                let missing = || PyRuntimeError::new_err("a program without its derivative rule");
                rules.get(*index).cloned().ok_or_else(missing)?
            }
            Node::NewRule(renewal) => renewal.bind(py).call1((&self.rules(py, jax)?.1,))?,
            Node::Regenerated(program) => {
                let copy = self.fresh_copy(jax, program.graph.bind(py), &program.params)?;
                self.note_copy(&copy, program.id, program.recorded.bind(py))?;
                if program.form == Form::Closed { close(jax, &copy)? } else { copy }
            }
            Node::Fields(changes) => return self.with_fields(jax, recorded, changes),
            Node::Given(index) => self.given.programs[*index].bind(py).clone(),
            Node::Nested(index) => self.given.nested[*index].bind(py).clone(),
            Node::Derived(derived) => {
                let place =
                    self.given.place_of(jax, py, derived.label.lineage.id, derived.label.maker);
                let open = self.derived(py, jax, derived, &place)?;
                if derived.form == Form::Closed { place.close(jax, &open)? } else { open }
            }
        };
        self.stand_ins.borrow_mut().insert(address(recorded), made.clone());
        Ok(made)
    }

    /// An object that is what its fields are, some of them regenerated.
    fn with_fields(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyAny>,
        changes: &Changes,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut own = Vec::new();
        for (name, node) in changes {
            let name = name.bind(recorded.py()).cast::<PyString>()?;
            own.push((name.clone(), self.value(jax, &recorded.getattr(name)?, node)?));
        }
        with_fields(jax, recorded, own)
    }

    /// A fresh copy of a program that has variables of its own.
    ///
    /// # Errors
    /// Out of memory.
    pub fn fresh_copy(
        &self,
        jax: &Jax,
        graph: &Bound<'py, Graph>,
        changes: &OwnChanges,
    ) -> PyResult<Bound<'py, PyAny>> {
        Graph::fresh_copy(graph, jax, &self.own_params(jax, graph, changes)?, &[])
    }

    /// Params of a program's equations, regenerated.
    fn own_params(
        &self,
        jax: &Jax,
        graph: &Bound<'py, Graph>,
        changes: &OwnChanges,
    ) -> PyResult<Vec<(ParamsId, Bound<'py, PyDict>)>> {
        let own = |(id, changes): &(ParamsId, Changes)| {
            let recorded = graph.get().table().params_dict(graph.py(), *id);
            Ok((*id, self.changed(jax, &recorded, changes)?))
        };
        changes.0.iter().map(own).collect()
    }

    /// Notes what structural id such a copy has, and which programs are nested in it.
    ///
    /// # Errors
    /// There is no weak reference to it.
    pub fn note_copy(
        &self,
        copy: &Bound<'py, PyAny>,
        id: StructuralId,
        recorded: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let nested = nested_of(recorded);
        note(copy, id, own_nested(nested, &self.stand_ins.borrow()))
    }

    /// What stands for a variable.
    fn var(
        &self,
        py: Python<'py>,
        jax: &Jax,
        (id, recorded, origin): &(Var, Py<PyAny>, VarOrigin),
    ) -> PyResult<(Var, Bound<'py, PyAny>)> {
        let own = match *origin {
            VarOrigin::Given(index, place) => {
                let vars = all_vars(self.given.open[index].bind(py))?;
                vars.get(place).cloned()
            }
            VarOrigin::Own => None,
            VarOrigin::Same => Some(recorded.bind(py).clone()),
        };
        let own = match own {
            Some(own) => own,
            None => own_var(jax, self.given.first(py), recorded.bind(py))?,
        };
        Ok((*id, own))
    }

    fn derived(
        &self,
        py: Python<'py>,
        jax: &Jax,
        derived: &Derived,
        place: &Place<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let nested = nested_of(derived.recorded.bind(py));
        if let Some((known, _)) = place.made(Form::Open) {
            let of_known = nested_of(&known);
            let mut stand_ins = self.stand_ins.borrow_mut();
            for ((_, recorded), (_, known)) in nested.iter().zip(&of_known) {
                stand_ins.insert(recorded.as_ptr() as usize, known.bind(py).clone());
            }
            return Ok(known);
        }
        let params = self.own_params(jax, derived.graph.bind(py), &derived.params)?;
        let vars: Vec<_> =
            derived.vars.iter().map(|var| self.var(py, jax, var)).collect::<PyResult<_>>()?;
        let changes = (&params[..], &vars[..]);
        fresh_copy(jax, derived.graph.bind(py), changes, place, nested, &self.stand_ins.borrow())
    }
}
