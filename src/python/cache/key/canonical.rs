//! Immutable objects of jax that stand for all that say the same: what is known of one is then
//! known by its address.

use std::sync::{Mutex, PoisonError};

use hashlink::LruCache;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use crate::python::cpython::shared::Once;
use crate::python::jax::names::Jax;
use crate::python::jax::values::{typed_equal, value_classes};

/// Objects by themselves.
static SHARED: Once<Py<PyDict>> = Once::new();
const MAX_SHARED: usize = 8192;

/// The object that stands for those that say the same as `object`: a name stack, a sharding, params.
///
/// # Errors
/// It has no hash.
pub fn shared<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let known = SHARED.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(equal) = known.get_item(object)? {
        return Ok(if says_the_same(&equal, object)? { equal } else { object.clone() });
    }
    // What stands for others stays alive: its address is known.
    if known.len() < MAX_SHARED {
        known.set_item(object, object)?;
    }
    Ok(object.clone())
}

/// Whether two equal objects say the same: a scope is equal to a transformation of its name, and `True` to 1.
fn says_the_same(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<bool> {
    if a.is(b) {
        return Ok(true);
    }
    if !a.get_type().is(b.get_type()) {
        return Ok(false);
    }
    if a.is_instance_of::<PyTuple>() {
        return Ok(typed_equal(a, b));
    }
    let py = a.py();
    let both = |name| Ok::<_, PyErr>(a.getattr_opt(name)?.zip(b.getattr_opt(name)?));
    if let Some((a, b)) = both(intern!(py, "stack"))? {
        return Ok(typed_equal(&a, &b));
    }
    if let Some((a, b)) = both(intern!(py, "dtype"))? {
        // numpy's are equal where they have other numbers or metadata.
        let is_numpys = a.is_instance(value_classes(py)?.dtype.bind(py))?;
        if !a.is(&b) && (is_numpys || !a.get_type().is(b.get_type())) {
            return Ok(false);
        }
    }
    match both(intern!(py, "shape"))? {
        Some((a, b)) => have_same_types(&a, &b),
        None => Ok(true),
    }
}

/// Whether the items of equal shapes are of the same classes.
fn have_same_types(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<bool> {
    for (a, b) in a.try_iter()?.zip(b.try_iter()?) {
        if !a?.get_type().is(b?.get_type()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tracebacks by their hash, each with the one that stands for it.
type Tracebacks = LruCache<isize, SmallVec<[[Py<PyAny>; 2]; 1]>>;
static TRACEBACKS: Mutex<Option<Tracebacks>> = Mutex::new(None);
const MAX_TRACEBACKS: usize = 1 << 16;

/// By the frames of the user's code: they are what is shown of a traceback.
static BY_USER_FRAMES: Once<Py<PyDict>> = Once::new();

/// The traceback that stands for those that have the same frames of the user's code; it need not do so
/// for ever.
///
/// # Errors
/// It is no traceback.
pub fn shared_traceback<'py>(
    jax: &Jax,
    traceback: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = traceback.py();
    let hash = traceback.hash()?;
    let known: SmallVec<[[Py<PyAny>; 2]; 1]> = {
        let mut all = TRACEBACKS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_with(|| LruCache::new(usize::MAX));
        let copy = |[known, shared]: &[Py<PyAny>; 2]| [known.clone_ref(py), shared.clone_ref(py)];
        all.get(&hash).into_iter().flatten().map(copy).collect()
    };
    for [known, shared] in &known {
        let known = known.bind(py);
        if known.is(traceback) || known.eq(traceback)? {
            return Ok(shared.bind(py).clone());
        }
    }
    let shared = by_user_frames(jax, traceback)?;
    let forgotten = {
        let mut all = TRACEBACKS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_with(|| LruCache::new(usize::MAX));
        let both = [traceback.clone().unbind(), shared.clone().unbind()];
        all.entry(hash).or_insert_with(SmallVec::new).push(both);
        if all.len() > MAX_TRACEBACKS { all.remove_lru() } else { None }
    };
    drop(forgotten);
    Ok(shared)
}

fn by_user_frames<'py>(jax: &Jax, traceback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = traceback.py();
    let frames = jax.user_frames.bind(py).call1((traceback,))?;
    let known = BY_USER_FRAMES.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(same) = known.get_item(&frames)? {
        return Ok(same);
    }
    if known.len() >= MAX_TRACEBACKS {
        known.clear();
    }
    // The codes that the key names by address live as long as the traceback.
    known.set_item(frames, traceback)?;
    Ok(traceback.clone())
}
