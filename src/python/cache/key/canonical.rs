//! Immutable objects of jax that stand for all that are structurally equal: what is known of one is then
//! known by its address.

use hashlink::LruCache;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use crate::python::cpython::address_cache::Locked;
use crate::python::cpython::shared::Once;
use crate::python::jax::names::Jax;
use crate::python::jax::values::{typed_equal, value_classes};

/// Objects by themselves.
static CANONICAL: Once<Py<PyDict>> = Once::new();
const MAX_CANONICAL: usize = 8192;

/// The object that stands for those that are structurally equal to `object`: a name stack, a sharding,
/// params.
///
/// # Errors
/// It has no hash.
pub fn canonical<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let known = CANONICAL.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(equal) = known.get_item(object)? {
        return Ok(if is_structurally_equal(&equal, object)? { equal } else { object.clone() });
    }
    // What stands for others stays alive: its address is known.
    if known.len() < MAX_CANONICAL {
        known.set_item(object, object)?;
    }
    Ok(object.clone())
}

/// Whether two objects that Python takes for equal are structurally equal: to Python a scope is equal to a
/// transformation of its name, and `True` to 1.
fn is_structurally_equal(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<bool> {
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
static TRACEBACKS: Locked<Tracebacks> = Locked::new(|| LruCache::new(usize::MAX));
const MAX_TRACEBACKS: usize = 1 << 16;

/// By the frames of the user's code: they are what is shown of a traceback.
static BY_USER_FRAMES: Once<Py<PyDict>> = Once::new();

/// The traceback that stands for those that have the same frames of the user's code; it need not do so
/// for ever.
///
/// # Errors
/// It is no traceback.
pub fn canonical_traceback<'py>(
    jax: &Jax,
    traceback: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = traceback.py();
    let hash = traceback.hash()?;
    let copy = |[known, canonical]: &[Py<PyAny>; 2]| [known.clone_ref(py), canonical.clone_ref(py)];
    let known: SmallVec<[[Py<PyAny>; 2]; 1]> =
        TRACEBACKS.with(|all| all.get(&hash).into_iter().flatten().map(copy).collect());
    for [known, canonical] in &known {
        let known = known.bind(py);
        if known.is(traceback) || known.eq(traceback)? {
            return Ok(canonical.bind(py).clone());
        }
    }
    let canonical = by_user_frames(jax, traceback)?;
    let both = [traceback.clone().unbind(), canonical.clone().unbind()];
    drop(TRACEBACKS.evict(|all| {
        all.entry(hash).or_insert_with(SmallVec::new).push(both);
        if all.len() > MAX_TRACEBACKS { all.remove_lru() } else { None }
    }));
    Ok(canonical)
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
