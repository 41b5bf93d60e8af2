//! What the variables of a linear program stand for before its equations are transposed: inputs, Refs, and
//! what the equations that are not linear come to.

use pyo3::exceptions::PyKeyError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::python::cache::linear_program::{Linear, PrimitiveKind, Read, Step};
use crate::python::cpython::native::address;
use crate::python::jax::derived_types::{DerivedType, derived_type};
use crate::python::jax::names::Jax;

/// What a variable stands for while the program is transposed.
pub(super) enum Slot {
    /// Nothing yet, or no longer.
    Unset,
    /// A value that is not linear.
    Value(Py<PyAny>),
    /// One of jax's accumulators, given as an input.
    Given(Py<PyAny>),
    /// A linear variable: its cotangent's type, and the sum so far where it is not zero.
    Sum { aval: Py<PyAny>, sum: Option<Py<PyAny>> },
}

impl Slot {
    /// A linear variable of a type, without a cotangent so far.
    pub(super) fn zero(jax: &Jax, aval: &Bound<'_, PyAny>) -> PyResult<Self> {
        let aval = derived_type(jax, aval, DerivedType::Cotangent)?.unbind();
        Ok(Self::Sum { aval, sum: None })
    }

    pub(super) fn is_linear(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Sum { .. })
    }
}

/// A variable is read that stands for nothing.
pub(super) fn unset() -> PyErr {
    PyKeyError::new_err("a variable of a linear program without a value")
}

/// What variables stand for at first: inputs for their values or accumulators.
pub(super) fn set_inputs<'py>(
    jax: &Jax,
    linear: &Linear,
    values: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Vec<Slot>> {
    let mut env: Vec<Slot> = Vec::new();
    env.resize_with(linear.num_vars, || Slot::Unset);
    for (&place, value) in linear.inputs.iter().zip(values) {
        let value = value?;
        let accumulator = value.get_type().is(&jax.val_accum_type)
            || value.is_instance(jax.grad_accum_type.bind(value.py()))?;
        let value = value.unbind();
        env[place as usize] = if accumulator { Slot::Given(value) } else { Slot::Value(value) };
    }
    Ok(env)
}

/// The kinds of primitives, by address; equations that make Refs get their accumulators. None where jax's
/// own loop is to do it.
pub(super) fn set_refs(
    jax: &Jax,
    py: Python<'_>,
    steps: &[Step],
    env: &mut [Slot],
) -> PyResult<Option<FxHashMap<usize, PrimitiveKind>>> {
    let mut kinds: FxHashMap<usize, PrimitiveKind> = FxHashMap::default();
    for step in steps {
        let primitive = step.primitive.bind(py);
        let kind = match kinds.get(&address(primitive)) {
            Some(&known) => known,
            None => PrimitiveKind::of(jax, primitive)?,
        };
        kinds.insert(address(primitive), kind);
        if kind == PrimitiveKind::Ref {
            let [(place, aval)] = &step.outs[..] else { return Ok(None) };
            let aval = aval.bind(py);
            let made = jax.ref_accumulator.bind(py).call1((primitive, aval))?;
            env[*place as usize] = if made.is_instance(jax.grad_accum_type.bind(py))? {
                Slot::Given(made.unbind())
            } else if made.is_none() {
                Slot::zero(jax, aval)?
            } else {
                return Ok(None);
            };
        }
    }
    Ok(Some(kinds))
}

/// Evaluates the equations that are not linear, whose places these are; outputs of the others have no
/// cotangent yet.
pub(super) fn evaluate_all(
    jax: &Jax,
    jaxpr: &Bound<'_, PyAny>,
    steps: &[Step],
    kinds: &FxHashMap<usize, PrimitiveKind>,
    env: &mut [Slot],
) -> PyResult<FxHashSet<usize>> {
    let mut evaluated = FxHashSet::default();
    for (index, step) in steps.iter().enumerate() {
        let kind = kinds.get(&(step.primitive.as_ptr() as usize));
        if kind == Some(&PrimitiveKind::Ref) {
            continue;
        }
        let of_linear = |read: &Read| match read {
            Read::Var(place) => env[*place as usize].is_linear(),
            Read::Literal(_) => false,
        };
        if kind != Some(&PrimitiveKind::Node) && !step.operands.iter().any(of_linear) {
            evaluate(jax, jaxpr, index, step, env)?;
            evaluated.insert(index);
            continue;
        }
        for (place, aval) in &step.outs {
            env[*place as usize] = Slot::zero(jax, aval.bind(jaxpr.py()))?;
        }
    }
    Ok(evaluated)
}

/// Binds an equation that is not linear, which is number `index` of the program.
fn evaluate(
    jax: &Jax,
    jaxpr: &Bound<'_, PyAny>,
    index: usize,
    step: &Step,
    env: &mut [Slot],
) -> PyResult<()> {
    let py = jaxpr.py();
    let eqn = jaxpr.getattr(intern!(py, "eqns"))?.get_item(index)?;
    let invars = eqn.getattr(intern!(py, "invars"))?.cast_into::<PyList>()?;
    let operands = PyList::empty(py);
    for (read, atom) in step.operands.iter().zip(invars.iter()) {
        match read {
            Read::Literal(_) => operands.append(atom.getattr(intern!(py, "val"))?)?,
            Read::Var(place) => match &env[*place as usize] {
                Slot::Value(value) => operands.append(value.bind(py))?,
                _ => return Err(unset()),
            },
        }
    }
    let results = jax.evaluation_step.bind(py).call1((eqn, operands))?;
    for ((place, _), result) in step.outs.iter().zip(results.try_iter()?) {
        env[*place as usize] = Slot::Value(result?.unbind());
    }
    Ok(())
}
