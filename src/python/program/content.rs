//! A program with its objects, and the objects of jax that are made from both.

use std::sync::Arc;

use cranelift_entity::SecondaryMap;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::ir::{Atom, AtomKind, Eqn, EqnData, ForeignId, Program, SourceId, Var};

use crate::python::jax::names::{EqnParts, Jax};
use crate::python::jax::slots::Inputs;
use crate::python::program::graph::{Graph, Variant};
use crate::python::program::lazy_jaxpr::Part;
use crate::python::program::objects::ObjectTable;

/// A program with its objects, which does not change: where more of it is read, another takes its
/// place. Numbers of the one are those of the other.
#[derive(Default)]
pub struct Content {
    pub program: Arc<Program>,
    pub table: ObjectTable,
    /// Nested programs have been read, and the names of arguments and results.
    pub resolved: bool,
}

impl Content {
    /// The `Var` object of a variable.
    pub fn var_object<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.table.var_object(py, jax, self.program.var_type(var), var)
    }

    /// The jax atom of an operand or output.
    pub fn atom<'py>(&self, py: Python<'py>, jax: &Jax, atom: Atom) -> PyResult<Bound<'py, PyAny>> {
        match atom.kind() {
            AtomKind::Var(var) => self.var_object(py, jax, var),
            AtomKind::Literal(literal) => {
                let object = self.program.literal(literal).object;
                self.table.literal_object(py, jax, literal, object)
            }
        }
    }

    /// A list made from that of the graph whose program this is.
    pub fn derived_list<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        derived: &Variant,
        part: Part,
    ) -> PyResult<Bound<'py, PyList>> {
        let base = Graph::list(derived.base.bind(py), jax, part)?;
        if part != Part::Eqns {
            return Ok(base.get_slice(0, base.len()));
        }
        let list = PyList::empty(py);
        for (id, eqn) in self.program.eqns().zip(base.iter()) {
            list.append(match derived.params.get(&self.program.eqn(id).params) {
                None => eqn,
                Some(params) => jax.with_params(&eqn, params.dict().bind(py).copy()?)?,
            })?;
        }
        Ok(list)
    }

    pub fn invars<'py>(&self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = &self.program;
        let constvars = program.constvars().iter().map(|&(var, _)| var);
        let constvars = constvars.filter(|_| matches!(jax.slots.jaxpr_invars, Inputs::All(_)));
        let vars = constvars.chain(program.invars().iter().copied());
        let objects: Vec<_> =
            vars.map(|var| self.var_object(py, jax, var)).collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    pub fn outvars<'py>(&self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = &self.program;
        let atoms = program.outvars().iter().map(|&atom| self.atom(py, jax, atom));
        let objects: Vec<_> = atoms.collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    /// All equations as jax's, in order.
    pub fn eqns<'py>(&self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = &self.program;
        let list = PyList::empty(py);
        let mut sources: SecondaryMap<SourceId, Option<Bound<'py, PyAny>>> = SecondaryMap::new();
        for eqn in program.eqns() {
            let source = program.eqn(eqn).source;
            let source_info = if let Some(known) = &sources[source] {
                known.clone()
            } else {
                let new = self.table.source_info(py, jax, program.source(source))?;
                sources[source].insert(new).clone()
            };
            list.append(self.eqn_with(py, jax, eqn, source_info)?)?;
        }
        Ok(list)
    }

    /// An equation as jax's.
    pub fn eqn_with<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        eqn: Eqn,
        source_info: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let program = &self.program;
        let data = program.eqn(eqn);
        let atom = |atom: &Atom| self.atom(py, jax, *atom);
        let invars: SmallVec<[_; 4]> =
            program.eqn_invars(eqn).iter().map(atom).collect::<PyResult<_>>()?;
        let outvars: SmallVec<[_; 2]> =
            data.outvars().map(|var| atom(&Atom::var(var))).collect::<PyResult<_>>()?;
        let objects = EqnObjects {
            invars: &invars,
            outvars: &outvars,
            primitive: program.primitive(data.primitive).object,
            context: program.context(data.context),
            source_info,
        };
        eqn_object(py, jax, &self.table, data, objects)
    }
}

/// The objects of one equation that are looked up outside.
pub struct EqnObjects<'a, 'py> {
    pub invars: &'a [Bound<'py, PyAny>],
    pub outvars: &'a [Bound<'py, PyAny>],
    pub primitive: ForeignId,
    pub context: ForeignId,
    pub source_info: Bound<'py, PyAny>,
}

/// One equation as jax's.
pub fn eqn_object<'py>(
    py: Python<'py>,
    jax: &Jax,
    table: &ObjectTable,
    data: &EqnData,
    objects: EqnObjects<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    jax.new_eqn(
        py,
        EqnParts {
            invars: PyList::new(py, objects.invars)?,
            outvars: PyList::new(py, objects.outvars)?,
            primitive: table.object(py, objects.primitive),
            params: table.params_copy(py, data.params)?,
            effects: table.effects(py, jax, data.effects, data.primitive),
            source_info: objects.source_info,
            ctx: table.object(py, objects.context),
        },
    )
}
