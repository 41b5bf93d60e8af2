//! Params of equations with a derivative rule, as bytes of an entry of the store and back.
//!
//! jax traces the function anew at each call, so its program is no other's and has no line of the user's. The rule is
//! written by the call that comes to it, or as that of a program that jax derives once more, and is made when somebody
//! asks for it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::cache::key::canonical::canonical_traceback;
use crate::python::cache::programs::custom_rules::name_of_rule;
use crate::python::cache::programs::references::References;
use crate::python::cache::programs::stored::{Reader, Writer};
use crate::python::jax::names::Jax;
use crate::python::store::pieces::{Piece, Reading};

/// Whether params are those of an equation with a derivative rule.
///
/// # Errors
/// They cannot be read.
pub fn has_rule(params: &Bound<'_, PyDict>) -> PyResult<bool> {
    params.contains(name_of_rule(params.py()))
}

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
    save_others(&mut Writer::new(piece, jax, py, &[line], References::default()), params)
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
    load_others(&mut Reader { reading, jax, context, lines, derived: None, references }, &rule)
}

/// Writes params of an equation of a program that jax has derived.
///
/// # Errors
/// Something has no form.
pub(super) fn save_derived<'py>(
    writer: &mut Writer<'_, '_, '_, 'py>,
    params: &Bound<'py, PyDict>,
) -> PyResult<()> {
    let names = writer.piece.asked(intern!(params.py(), "names_of_rule"), params)?;
    writer.piece.value(&names)?;
    save_others(writer, params)
}

/// Reads what `save_derived` has written.
///
/// # Errors
/// The bytes say something that is not there.
pub(super) fn load_derived<'py>(reader: &mut Reader<'_, '_, 'py>) -> PyResult<Bound<'py, PyDict>> {
    let names = reader.reading.value()?;
    // Within the program of a rule no other one has a place of its own.
    let Some(mut derived) = reader.derived.take() else {
        return Err(reader.reading.error("a derivative rule that nobody makes"));
    };
    let args = (names, derived.derive()?, derived.item, derived.eqn);
    let maker = reader.reading.maker();
    let rule = maker.call_method1(intern!(maker.py(), "derived_rule"), args)?;
    let params = load_others(reader, &rule);
    reader.derived = Some(derived);
    params
}

/// Writes all params but the rule.
fn save_others<'py>(
    writer: &mut Writer<'_, '_, '_, 'py>,
    params: &Bound<'py, PyDict>,
) -> PyResult<()> {
    writer.piece.number(params.len());
    for (name, param) in params {
        writer.piece.value(&name)?;
        if !name.eq(name_of_rule(name.py()))? {
            writer.item(&param)?;
        }
    }
    Ok(())
}

/// Reads what `save_others` has written.
fn load_others<'py>(
    reader: &mut Reader<'_, '_, 'py>,
    rule: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let params = PyDict::new(rule.py());
    for _ in 0..reader.number()? {
        let name = reader.reading.value()?;
        let param = if name.eq(name_of_rule(rule.py()))? { rule.clone() } else { reader.item()? };
        params.set_item(name, param)?;
    }
    Ok(params)
}
