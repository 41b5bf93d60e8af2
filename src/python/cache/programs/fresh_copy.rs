//! Fresh copies of programs, with variables of their own, and the place where each is known: of the same
//! programs there is one of each.

use std::hash::{Hash, Hasher};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHasher};

use crate::ir::{ParamsId, Var};

use crate::python::cache::fragment::result::new_named;
use crate::python::cache::key::objects::{fields_of, is_plain_namedtuple};
use crate::python::cache::programs::forms::{Form, close};
use crate::python::cache::programs::given::Given;
use crate::python::cache::programs::registry::{
    Label, Lineage, Maker, Others, label_of, made, note, note_made, serial_of,
};
use crate::python::cache::programs::sharing::has_multiple;
use crate::python::cache::programs::structural_id::{StructuralId, structural_id_of};
use crate::python::jax::names::Jax;
use crate::python::program::graph::Graph;

/// Where a program is known that was made of others.
pub(super) struct Place<'py> {
    pub(super) first: Bound<'py, PyAny>,
    pub(super) others: Others,
    pub(super) label: Label,
}

impl<'py> Place<'py> {
    pub(super) fn made(&self, form: Form) -> Option<(Bound<'py, PyAny>, Maker)> {
        made(&self.first, &self.others, self.label, form)
    }

    pub(super) fn note(&self, form: Form, program: &Bound<'py, PyAny>, maker: Maker) {
        note_made(&self.first, &self.others, self.label, form, program, maker);
    }

    /// The same place, for the label that a program has there.
    pub(super) fn labelled(mut self, open: &Bound<'py, PyAny>) -> Option<Self> {
        self.label = label_of(&self.first, &self.others, self.label.lineage, open)?;
        Some(self)
    }

    /// The closed one of an open one that a replay has made.
    pub(super) fn close(&self, jax: &Jax, open: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if has_multiple(self.label.lineage, Form::Closed) {
            return close(jax, open);
        }
        if let Some((known, _)) = self.made(Form::Closed) {
            return Ok(known);
        }
        let closed = close(jax, open)?;
        self.note(Form::Closed, &closed, Maker::Replay);
        Ok(closed)
    }
}

impl Given {
    /// Where a program is known that was made of them and has a structural id; `maker` tells it from
    /// others that do.
    pub(super) fn place_of<'py>(
        &self,
        jax: &Jax,
        py: Python<'py>,
        id: StructuralId,
        maker: u64,
    ) -> Place<'py> {
        let mut hasher = FxHasher::default();
        for open in &self.open {
            structural_id_of(jax, open.bind(py)).ok().hash(&mut hasher);
        }
        let first = self.first(py).clone();
        let others = self.open[1..].iter().map(|open| serial_of(open.bind(py))).collect();
        let label = Label { lineage: Lineage { id, of: hasher.finish() }, maker };
        Place { first, others, label }
    }
}

type OwnParams<'py> = (ParamsId, Bound<'py, PyDict>);

type OwnVar<'py> = (Var, Bound<'py, PyAny>);

/// A fresh copy of a program with other params and some variables, where `stand_ins` are in the place of
/// nested programs.
pub(super) fn fresh_copy<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
    (params, vars): (&[OwnParams<'py>], &[OwnVar<'py>]),
    place: &Place<'py>,
    nested: Vec<(StructuralId, Py<PyAny>)>,
    stand_ins: &FxHashMap<usize, Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let copy = Graph::fresh_copy(graph, jax, params, vars)?;
    note(&copy, place.label.lineage.id, own_nested(nested, stand_ins))?;
    place.note(Form::Open, &copy, Maker::Replay);
    Ok(copy)
}

/// The nested programs of a recorded one, with what stands for them by their address.
pub(super) fn own_nested(
    nested: Vec<(StructuralId, Py<PyAny>)>,
    stand_ins: &FxHashMap<usize, Bound<'_, PyAny>>,
) -> Vec<(StructuralId, Py<PyAny>)> {
    let own = |(id, recorded): (StructuralId, Py<PyAny>)| {
        let stand_in = stand_ins.get(&(recorded.as_ptr() as usize));
        (id, stand_in.map_or(recorded, |own| own.clone().unbind()))
    };
    nested.into_iter().map(own).collect()
}

/// An object that is what its fields are, with some others.
pub(super) fn with_fields<'py>(
    jax: &Jax,
    object: &Bound<'py, PyAny>,
    own: Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, class) = (object.py(), object.get_type());
    let made = py.get_type::<PyAny>().call_method1(intern!(py, "__new__"), (class,))?;
    // Set in the dict, since the class does not let fields be set.
    let attributes = made.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
    for name in fields_of(jax, object).iter().flatten() {
        attributes.set_item(&name, object.getattr(name.cast::<PyString>()?)?)?;
    }
    for (name, value) in own {
        attributes.set_item(name, value)?;
    }
    Ok(made)
}

/// Whether a tuple has nothing but items, and names for them.
pub(super) fn is_plain(tuple: &Bound<'_, PyTuple>) -> bool {
    // SAFETY: a type.
    tuple.is_exact_instance_of::<PyTuple>()
        || unsafe { is_plain_namedtuple(tuple.py(), tuple.get_type_ptr()) }
}

/// A tuple of the class of another.
pub(super) fn like<'py>(
    tuple: &Bound<'py, PyTuple>,
    items: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let items = PyTuple::new(tuple.py(), items)?;
    if tuple.is_exact_instance_of::<PyTuple>() {
        return Ok(items.into_any());
    }
    new_named(&tuple.get_type(), &items)
}
