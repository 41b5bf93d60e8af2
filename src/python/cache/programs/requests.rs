//! Params that jax makes again when it is asked: by a call of a jit of its own, or of a function of its own with
//! a derivative rule.

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::cache::programs::custom_rules::{RegeneratedRule, name_of_rule};
use crate::python::jax::names::Jax;

/// Whether a call of a jit of its own leads jax to the very programs in params.
pub fn is_requested(jax: &Jax, params: &Bound<'_, PyDict>) -> bool {
    let py = params.py();
    let requested = jax.requests.bind(py).call_method1(intern!(py, "is_requested"), (params,));
    requested.is_ok_and(|requested| requested.is_truthy().unwrap_or(false))
}

/// How params are regenerated that a call of a function of jax's with a derivative rule comes to; None where
/// no such call is known. The call is made, and what it comes to compared.
///
/// # Errors
/// A signal handler raises.
pub fn rule_of<'py>(
    jax: &Jax,
    primitive: &Bound<'py, PyAny>,
    params: &Bound<'py, PyDict>,
) -> PyResult<Option<RegeneratedRule>> {
    let py = params.py();
    let requests = jax.requests.bind(py);
    let found = (|| -> PyResult<Option<RegeneratedRule>> {
        let request = requests.call_method1(intern!(py, "rule_of"), (params,))?;
        if request.is_none() {
            return Ok(None);
        }
        let one = requests.call_method1(intern!(py, "params_of_rule"), (request,))?;
        let one = one.cast_into::<PyDict>()?;
        let rule = |params: &Bound<'py, PyDict>| params.as_any().get_item(name_of_rule(py));
        let alike = jax.rules_alike.bind(py).call1((rule(&one)?, rule(params)?))?;
        if !alike.is_truthy()? {
            return Ok(None);
        }
        let made = RegeneratedRule::of(jax, primitive, &one, params)?;
        // Another process makes it of one call.
        let alone = RegeneratedRule::of_one(jax, primitive, params)?;
        match (made, alone) {
            (Some(made), Some(alone)) if made.is_like(py, &alone)? => Ok(Some(made)),
            _ => Ok(None),
        }
    })();
    match found {
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        found => found,
    }
}
