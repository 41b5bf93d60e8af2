//! The least that a trace can cost: the user's own code, with every caught call answered from a
//! list. Benches measure it beside the trace.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Some thread has had a script.
static IN_USE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
    static RESULTS: RefCell<Vec<Py<PyAny>>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    /// Results of calls are noted, except within such a call.
    Noting,
    Within,
    Playing,
}

/// Notes what the caught calls of this thread return, then answers the same calls from the list.
#[pyclass(module = "jaxide._core", frozen)]
pub struct Script;

#[pymethods]
#[allow(clippy::unused_self)] // the script is the thread's, not the object's
impl Script {
    #[new]
    fn new() -> Self {
        Self
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        if MODE.get() != Mode::Off {
            return Err(PyRuntimeError::new_err("a script is running in this thread"));
        }
        MODE.set(Mode::Noting);
        IN_USE.store(true, Ordering::Relaxed);
        Ok(slf)
    }

    /// From now on calls are answered, from the first one on.
    fn play(&self) {
        MODE.set(Mode::Playing);
        NEXT.set(0);
    }

    /// How many calls were noted.
    fn __len__(&self) -> usize {
        RESULTS.with_borrow(Vec::len)
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyAny>) {
        MODE.set(Mode::Off);
        let results = RESULTS.take();
        drop(results);
    }
}

/// Whether any thread has a script.
#[inline]
pub fn is_used() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Answers a call from the script, or runs it and notes its result.
///
/// # Errors
/// Those of the call; the script has no more answers.
pub fn around<'py>(
    py: Python<'py>,
    call: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match MODE.get() {
        Mode::Off | Mode::Within => call(),
        Mode::Noting => {
            MODE.set(Mode::Within);
            let result = call();
            MODE.set(Mode::Noting);
            if let Ok(result) = &result {
                RESULTS.with_borrow_mut(|results| results.push(result.clone().unbind()));
            }
            result
        }
        Mode::Playing => {
            let next = NEXT.get();
            NEXT.set(next + 1);
            RESULTS
                .with_borrow(|results| Some(results.get(next)?.bind(py).clone()))
                .ok_or_else(|| PyRuntimeError::new_err("the function makes more calls than before"))
        }
    }
}
