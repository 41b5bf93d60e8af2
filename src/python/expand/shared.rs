//! Immutable objects of jax that stand for all that are equal to them: what is known of one is then
//! known by its address.

use std::sync::{Mutex, PoisonError};

use hashlink::LruCache;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use smallvec::SmallVec;

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

/// Tracebacks by their hash. There is one for each line that was ever traced.
type Tracebacks = LruCache<isize, SmallVec<[Py<PyAny>; 1]>>;
static TRACEBACKS: Mutex<Option<Tracebacks>> = Mutex::new(None);
const MAX_TRACEBACKS: usize = 1 << 16;

/// The traceback that stands for those that are equal to `traceback`; it need not do so for ever.
///
/// # Errors
/// It has no hash.
pub fn shared_traceback<'py>(traceback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = traceback.py();
    let hash = traceback.hash()?;
    let known: SmallVec<[Py<PyAny>; 1]> = {
        let mut all = TRACEBACKS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_with(|| LruCache::new(usize::MAX));
        all.get(&hash).into_iter().flatten().map(|known| known.clone_ref(py)).collect()
    };
    for known in &known {
        let known = known.bind(py);
        if known.is(traceback) || known.eq(traceback)? {
            return Ok(known.clone());
        }
    }
    let forgotten = {
        let mut all = TRACEBACKS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_with(|| LruCache::new(usize::MAX));
        all.entry(hash).or_insert_with(SmallVec::new).push(traceback.clone().unbind());
        if all.len() > MAX_TRACEBACKS { all.remove_lru() } else { None }
    };
    drop(forgotten);
    Ok(traceback.clone())
}
