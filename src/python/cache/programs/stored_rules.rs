//! Params of equations with a derivative rule, as bytes of an entry of the store and back.
//!
//! jax traces the function anew at each call, so its program is no other's and has no line of the user's. The rule is
//! written by the call that comes to it, and is made when somebody asks for it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::cache::key::canonical::canonical_traceback;
use crate::python::cache::programs::references::References;
use crate::python::cache::programs::stored::{Reader, Writer};
use crate::python::jax::names::Jax;
use crate::python::store::pieces::{Piece, Reading};

/// The name of the rule.
const RULE: &str = "jvp_jaxpr_fun";

/// Writes params to which a call of a function of jax's with a rule leads.
///
/// # Errors
/// Something has no form, or has a line of the user's.
pub fn save<'py>(
    piece: &mut Piece<'_, '_, 'py>,
    jax: &Jax,
    params: &Bound<'py, PyDict>,
) -> PyResult<()> {
    let py = params.py();
    let request = piece.asked(intern!(py, "rule_request"), params)?;
    piece.value(&request)?;
    let line = canonical_traceback(jax, &jax.no_frames.bind(py).call0()?)?.unbind();
    let mut writer = Writer::new(piece, jax, py, &[line], References::default());
    writer.piece.number(params.len());
    for (name, param) in params {
        writer.piece.value(&name)?;
        if !name.eq(RULE)? {
            writer.item(&param)?;
        }
    }
    Ok(())
}

/// Reads what `save` has written. `context` is that of the configuration.
///
/// # Errors
/// The bytes say something that is not there.
pub fn load<'py>(
    reading: &mut Reading<'_, 'py>,
    jax: &Jax,
    context: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = context.py();
    let request = reading.value()?;
    let rule = reading.maker().call_method1(intern!(py, "rule"), (request,))?;
    let lines = vec![jax.no_frames.bind(py).call0()?.unbind()];
    let references = References::default();
    let mut reader = Reader { reading, jax, context, lines, is_derived: false, references };
    let params = PyDict::new(py);
    for _ in 0..reader.number()? {
        let name = reader.reading.value()?;
        let param = if name.eq(RULE)? { rule.clone() } else { reader.item()? };
        params.set_item(name, param)?;
    }
    Ok(params)
}
