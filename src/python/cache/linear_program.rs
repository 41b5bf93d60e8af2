//! The equations of a linear program, read once for the backward pass.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::SmallVec;

use crate::python::jax::names::Jax;
use crate::python::program::jaxpr_view::{GraphView, JaxprView, ListsView, Operand};
use crate::python::program::lazy_jaxpr::graph_behind;

/// A linear program: its equations, and its variables by place.
pub(super) struct Linear {
    pub(super) steps: Vec<Step>,
    /// Constants, then inputs.
    pub(super) inputs: Vec<u32>,
    pub(super) outputs: Vec<Read>,
    pub(super) num_vars: usize,
}

impl Linear {
    /// Reads a jaxpr; None where an equation is none of jax's.
    pub(super) fn of_jaxpr(jax: &Jax, jaxpr: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        match graph_behind(jax, jaxpr) {
            Some(graph) => Self::of(&GraphView::new(jax, &graph)),
            None => Self::of(&ListsView::new(jax, jaxpr)),
        }
    }

    fn of<'py, V: JaxprView<'py>>(view: &V) -> PyResult<Option<Self>> {
        let read = |operand: Operand<'py, V::Var>| match operand {
            Operand::Var(var) => Read::Var(view.number(&var)),
            Operand::Literal(literal) => Read::Literal(literal.unbind()),
        };
        let (constvars, invars) = (view.constvars()?, view.invars()?);
        let inputs = constvars.iter().chain(&invars).map(|var| view.number(var)).collect();
        let mut steps = Vec::new();
        for eqn in view.eqns()? {
            let Some(eqn) = eqn else { return Ok(None) };
            let source = view.source(&eqn)?;
            let mut outs = SmallVec::new();
            for var in view.eqn_outvars(&eqn) {
                outs.push((view.number(&var), view.aval(&var)?.unbind()));
            }
            steps.push(Step {
                primitive: view.primitive(&eqn).unbind(),
                params: view.params(&eqn).unbind(),
                context: view.context(&eqn).unbind(),
                traceback: source.traceback.map(Bound::unbind),
                name_stack: source.name_stack.unbind(),
                operands: view.eqn_invars(&eqn).map(read).collect(),
                outs,
            });
        }
        let outputs = view.outvars()?.into_iter().map(read).collect();
        Ok(Some(Self { steps, inputs, outputs, num_vars: view.num_vars() }))
    }
}

/// An equation of a linear program.
pub(super) struct Step {
    pub(super) primitive: Py<PyAny>,
    pub(super) params: Py<PyDict>,
    pub(super) context: Py<PyAny>,
    pub(super) traceback: Option<Py<PyAny>>,
    pub(super) name_stack: Py<PyAny>,
    pub(super) operands: SmallVec<[Read; 4]>,
    /// The outputs, with their types.
    pub(super) outs: SmallVec<[(u32, Py<PyAny>); 1]>,
}

/// An operand of a linear program.
pub(super) enum Read {
    /// A jax `Literal`.
    Literal(Py<PyAny>),
    /// A variable, by its place.
    Var(u32),
}

/// How jax's loop treats equations of a primitive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PrimitiveKind {
    /// By the rule of the primitive.
    Plain,
    /// They make a Ref, or read its last value.
    Ref,
    /// By the rule of the primitive, even where no operand is linear (`vjp_node[...]`, from jax 0.12 on).
    Node,
}

impl PrimitiveKind {
    pub(super) fn of(jax: &Jax, primitive: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = primitive.py();
        let node = jax.vjp_node_type.bind(py);
        if !node.is_none() && primitive.is_instance(node)? {
            return Ok(Self::Node);
        }
        let of_refs = primitive.getattr(intern!(py, "ref_primitive"))?.is_truthy()?;
        Ok(if of_refs { Self::Ref } else { Self::Plain })
    }
}
