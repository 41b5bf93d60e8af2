//! Jaxprs, open and closed, and what is in one.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyTuple};

use crate::python::cache::reasons::{CONSTANTS, Reason, UNKNOWN_OBJECT};
use crate::python::cpython::native::entries;
use crate::python::cpython::native::is_exactly;
use crate::python::jax::names::Jax;
use crate::python::program::jaxpr_view::{GraphView, JaxprView, ListsView};
use crate::python::program::lazy_jaxpr::{is_lazy, unfilled};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Open,
    Closed,
}

/// Whether an object is a jaxpr, closed or not.
pub fn is_jaxpr(py: Python<'_>, jax: &Jax, object: *mut ffi::PyObject) -> bool {
    is_exactly(object, jax.closed_jaxpr_type.as_ptr().cast())
        || is_exactly(object, jax.jaxpr_type.as_ptr().cast())
        || is_lazy(py, object)
}

/// Whether an object is a closed jaxpr; any is, where there is one class (jax 0.11 on).
pub fn is_closed(jax: &Jax, object: &Bound<'_, PyAny>) -> bool {
    is_exactly(object.as_ptr(), jax.closed_jaxpr_type.as_ptr().cast())
        || jax.has_one_jaxpr_type() && is_lazy(object.py(), object.as_ptr())
}

/// The closed one of an open program without constants.
///
/// # Errors
/// Out of memory.
pub fn close<'py>(jax: &Jax, open: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if jax.has_one_jaxpr_type() {
        return Ok(open.clone());
    }
    let py = open.py();
    jax.closed_jaxpr_type.bind(py).call1((open, PyList::empty(py)))
}

/// The open jaxpr of any jaxpr, and which of the two that was.
///
/// # Errors
/// It has constants.
pub fn open<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
) -> Result<(Bound<'py, PyAny>, Form), Reason> {
    let py = jaxpr.py();
    let consts = jaxpr.getattr_opt(intern!(py, "consts")).map_err(|_| UNKNOWN_OBJECT)?;
    if let Some(consts) = consts
        && consts.len().map_err(|_| UNKNOWN_OBJECT)? > 0
    {
        return Err(CONSTANTS);
    }
    let closed = is_exactly(jaxpr.as_ptr(), jax.closed_jaxpr_type.as_ptr().cast());
    if closed && !jax.has_one_jaxpr_type() {
        let open = jaxpr.getattr(intern!(py, "jaxpr")).map_err(|_| UNKNOWN_OBJECT)?;
        return Ok((open, Form::Closed));
    }
    Ok((jaxpr.clone(), Form::Open))
}

/// All variables of a program, in order.
///
/// # Errors
/// It is no jaxpr.
pub fn all_vars<'py>(program: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = program.py();
    let eqns = program.getattr(intern!(py, "eqns"))?.cast_into::<PyList>()?;
    let constvars = program.getattr(intern!(py, "constvars"))?;
    let mut vars: Vec<_> = constvars.try_iter()?.collect::<PyResult<_>>()?;
    let invars: Vec<_> =
        program.getattr(intern!(py, "invars"))?.try_iter()?.collect::<PyResult<_>>()?;
    vars.extend(invars);
    for eqn in eqns.iter() {
        for var in eqn.getattr(intern!(py, "outvars"))?.try_iter()? {
            vars.push(var?);
        }
    }
    Ok(vars)
}

/// The functions of derivative rules that a program's equations have, in order.
///
/// # Errors
/// It is no jaxpr.
pub fn rules_of<'py>(jax: &Jax, program: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match unfilled(jax, program) {
        Some(graph) => rules_in(jax, program.py(), &GraphView::new(jax, &graph)),
        None => rules_in(jax, program.py(), &ListsView::new(jax, program)),
    }
}

fn rules_in<'py, V: JaxprView<'py>>(
    jax: &Jax,
    py: Python<'py>,
    view: &V,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let wrapped: *mut ffi::PyTypeObject = jax.wrapped_function_type.as_ptr().cast();
    let mut rules = Vec::new();
    for eqn in view.eqns()? {
        let eqn = eqn.ok_or_else(|| PyTypeError::new_err("an equation that is none of jax's"))?;
        if jax.rule_primitives.bind(py).contains(view.primitive(&eqn))? {
            let values = entries(&view.params(&eqn)).into_iter().map(|(_, value)| value);
            rules.extend(values.filter(|value| {
                is_exactly(value.as_ptr(), wrapped) || value.is_exact_instance_of::<PyFunction>()
            }));
        }
    }
    Ok(rules)
}

/// Params with their programs closed anew.
///
/// # Errors
/// Out of memory.
pub fn closed_anew<'py>(jax: &Jax, params: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let anew = params.copy()?;
    for (name, value) in params {
        if let Some(value) = value_closed_anew(jax, &value)? {
            anew.set_item(name, value)?;
        }
    }
    Ok(anew)
}

fn value_closed_anew<'py>(
    jax: &Jax,
    value: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    if is_jaxpr(py, jax, value.as_ptr()) {
        return Ok(match open(jax, value) {
            Ok((program, Form::Closed)) => Some(close(jax, &program)?),
            _ => None,
        });
    }
    let Ok(items) = value.cast_exact::<PyTuple>() else { return Ok(None) };
    let items: Vec<_> = items
        .iter()
        .map(|item| Ok::<_, PyErr>(value_closed_anew(jax, &item)?.unwrap_or(item)))
        .collect::<PyResult<_>>()?;
    Ok(Some(PyTuple::new(py, items)?.into_any()))
}
