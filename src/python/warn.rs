//! Warnings, while a trace of ours may run.
//!
//! A trampoline is one frame more between a function of jax and its caller, and a warning says by a
//! number of frames whom it concerns. So `warnings.warn` is ours meanwhile: it does not count
//! trampolines. It also notes that there was a warning, since a replay would be silent; for what
//! native code warns of, a filter notes it while something is recorded.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};
use pyo3::wrap_pyfunction;
use rustc_hash::FxHashSet;

use super::jax::{Jax, jax};
use super::shared::{Once, Shared};

thread_local! {
    /// How many warnings this thread has issued.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Addresses of the code objects of trampolines, which live as long as the process.
static TRAMPOLINES: Shared<Option<FxHashSet<usize>>> = Shared::new(None);
/// The `warnings.warn` that was there before.
static STOCK: Shared<Option<Py<PyAny>>> = Shared::new(None);
/// How many calls are being recorded.
static RECORDINGS: AtomicUsize = AtomicUsize::new(0);
static FILTER: Once<Py<PyAny>> = Once::new();

/// Grows with each warning of this thread.
pub fn count() -> u64 {
    COUNT.get()
}

/// Runs `body`, whose warnings do not count as those of what is being recorded.
pub fn uncounted<R>(body: impl FnOnce() -> R) -> R {
    let before = COUNT.get();
    let result = body();
    COUNT.set(before);
    result
}

fn note() {
    COUNT.set(COUNT.get() + 1);
}

/// Lets frames of a code object not be counted.
pub fn note_trampoline(code: &Bound<'_, PyAny>) {
    let address = code.as_ptr() as usize;
    TRAMPOLINES.peek(|trampolines| trampolines.get_or_insert_default().insert(address));
}

/// Whether a code object, by its address, is that of a trampoline.
pub fn is_trampoline(code: usize) -> bool {
    TRAMPOLINES.peek(|known| known.as_ref().is_some_and(|known| known.contains(&code)))
}

/// Puts our `warn` in place.
///
/// # Errors
/// The module refuses.
pub fn on(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    static WARN: Once<Py<PyCFunction>> = Once::new();
    let ours = WARN.get_or_try_init(py, || wrap_pyfunction!(warn, py).map(Bound::unbind))?;
    let module = jax.warnings.bind(py);
    let stock = module.getattr(intern!(py, "warn"))?;
    if stock.is(ours) {
        return Ok(());
    }
    let stock = stock.unbind();
    drop(STOCK.peek(|known| known.replace(stock)));
    module.setattr(intern!(py, "warn"), ours)
}

/// Puts back what was there.
///
/// # Errors
/// The module refuses.
pub fn off(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    let stock = STOCK.peek(Option::take);
    if let Some(stock) = stock {
        jax.warnings.bind(py).setattr(intern!(py, "warn"), stock)?;
    }
    if FILTER.get(py).is_some() {
        // A `catch_warnings` that another thread left meanwhile may have put it back.
        filter(py, jax, false)?;
    }
    Ok(())
}

/// `warnings.warn(message, category=None, stacklevel=1, source=None)`.
#[pyfunction]
#[pyo3(signature = (*args, **kwargs))]
fn warn<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    note();
    let name = intern!(py, "stacklevel");
    let kwargs = match kwargs {
        Some(kwargs) => kwargs.copy()?,
        None => PyDict::new(py),
    };
    let mut args = args.clone();
    let given = if args.len() > 2 { Some(args.get_item(2)?) } else { kwargs.get_item(name)? };
    let level = given.and_then(|level| level.extract::<i64>().ok()).unwrap_or(1);
    let level = level.saturating_add(trampolines_within(level));
    if args.len() > 2 {
        let mut items: Vec<Bound<'py, PyAny>> = args.iter().collect();
        items[2] = level.into_pyobject(py)?.into_any();
        args = PyTuple::new(py, items)?;
    } else if level != 1 {
        kwargs.set_item(name, level)?;
    }
    let stock = STOCK.with(py, |stock, quiet| stock.as_ref().map(|stock| quiet.own(stock)));
    let stock = match stock {
        Some(stock) => stock.into_bound(py),
        // Called by a reference to it that outlived the trace.
        None => jax(py)?.warnings.bind(py).getattr(intern!(py, "warn"))?,
    };
    stock.call(args, Some(&kwargs))
}

/// How many frames of trampolines there are before the frame at a level, the caller's being 1.
fn trampolines_within(level: i64) -> i64 {
    let is_one =
        |code: usize| TRAMPOLINES.peek(|all| all.as_ref().is_some_and(|all| all.contains(&code)));
    let (mut remaining, mut found) = (level, 0);
    // SAFETY: frames of this thread, each held while it is looked at.
    unsafe {
        let mut frame = ffi::PyEval_GetFrame();
        ffi::Py_XINCREF(frame.cast());
        while remaining > 1 && !frame.is_null() {
            let back = ffi::PyFrame_GetBack(frame);
            ffi::Py_DECREF(frame.cast());
            frame = back;
            if frame.is_null() {
                break;
            }
            let code = ffi::PyFrame_GetCode(frame);
            if is_one(code as usize) {
                found += 1;
            } else {
                remaining -= 1;
            }
            ffi::Py_DECREF(code.cast());
        }
        ffi::Py_XDECREF(frame.cast());
    }
    found
}

/// The message pattern of a warning filter: it matches nothing and notes everything.
#[pyclass(module = "jaxide._core", frozen)]
struct NoteWarnings;

#[pymethods]
#[allow(clippy::unused_self)] // a pattern
impl NoteWarnings {
    #[pyo3(name = "match")]
    fn matches(&self, _text: &Bound<'_, PyAny>) -> bool {
        note();
        false
    }
}

/// Puts the noting filter in front, or takes it out wherever it is. Python's registry of warnings
/// that were shown is not told, and so goes on as before.
fn filter(py: Python<'_>, jax: &Jax, wanted: bool) -> PyResult<()> {
    let filter = FILTER.get_or_try_init(py, || {
        let category = py.get_type::<pyo3::exceptions::PyWarning>();
        let pattern = Bound::new(py, NoteWarnings)?;
        let filter = ("ignore", pattern, category, py.None(), 0).into_pyobject(py)?;
        Ok::<_, PyErr>(filter.into_any().unbind())
    })?;
    let filters = jax.warnings.bind(py).getattr(intern!(py, "filters"))?;
    let Ok(filters) = filters.cast_into::<PyList>() else { return Ok(()) };
    let first = filters.get_item(0).ok().is_some_and(|first| first.is(filter));
    if wanted && first {
        return Ok(());
    }
    // Nothing is made or dropped in between, so that the list stays as it is.
    let places = filters.iter().enumerate().filter(|(_, item)| item.is(filter));
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    for place in places.into_iter().rev() {
        filters.del_item(place)?;
    }
    if wanted { filters.insert(0, filter) } else { Ok(()) }
}

/// Has the filter there where something is being recorded. Python code may run meanwhile, and begin or end
/// a recording: whoever was interrupted goes on towards what is wanted by then.
fn settle(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    loop {
        let wanted = RECORDINGS.load(Ordering::Relaxed) > 0;
        filter(py, jax, wanted)?;
        if (RECORDINGS.load(Ordering::Relaxed) > 0) == wanted {
            return Ok(());
        }
    }
}

/// While it lives, warnings of native code are noted.
pub struct Recording;

impl Recording {
    /// Puts the filter in place.
    ///
    /// # Errors
    /// The module refuses.
    pub fn begin(py: Python<'_>, jax: &Jax) -> PyResult<Self> {
        RECORDINGS.fetch_add(1, Ordering::Relaxed);
        // Ended where the filter cannot be put there.
        let recording = Self;
        settle(py, jax)?;
        Ok(recording)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        Python::attach(|py| {
            if RECORDINGS.fetch_sub(1, Ordering::Relaxed) == 1
                && let Ok(jax) = jax(py)
            {
                // An exception may be on its way: it has to survive this.
                let error = PyErr::take(py);
                let _ = settle(py, jax);
                if let Some(error) = error {
                    error.restore(py);
                }
            }
        });
    }
}
