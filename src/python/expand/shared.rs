//! Immutable objects of jax that stand for all that are equal to them: what is known of one is then
//! known by its address.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// Objects by themselves.
static SHARED: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
const MAX_SHARED: usize = 8192;

/// The object that stands for those that are equal to `object`: a name stack or a sharding.
///
/// # Errors
/// It has no hash.
pub fn shared<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let known = SHARED.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(same) = known.get_item(object)? {
        return Ok(same);
    }
    // What stands for others stays alive: its address is known.
    if known.len() < MAX_SHARED {
        known.set_item(object, object)?;
    }
    Ok(object.clone())
}
