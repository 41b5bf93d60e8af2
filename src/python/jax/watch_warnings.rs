//! Warnings, while a trace of ours may run.
//!
//! A trampoline is one frame more between a function of jax and its caller, and a warning says by a
//! number of frames whom it concerns. So the C function of `warnings.warn` is ours meanwhile: it does
//! not count trampolines. It also notes that there was a warning, since a replay would be silent; for
//! what native code warns of, a filter notes it while something is recorded. And it tells
//! `jaxide._jit.lowering_warnings` of the warnings of a lowering. The object that users call, replace and put back
//! stays the same.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList};
use smallvec::SmallVec;

use crate::python::cpython::immortals::Immortals;
use crate::python::cpython::shared::{Once, Shared};
use crate::python::jax::names::{Jax, jax};

thread_local! {
    /// How many warnings this thread has issued.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// How many of these the hook was not told of: those of native code.
    static UNTOLD: Cell<u64> = const { Cell::new(0) };
    /// `warn` is running.
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
    /// Nobody is to hear them.
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Who wants `warn` to go through ours.
struct State {
    /// A trace of ours may run.
    interposed: bool,
    /// How many hear warnings.
    hearers: usize,
}

/// The code objects of trampolines.
static TRAMPOLINES: Immortals = Immortals::new();
static STATE: Shared<State> = Shared::new(State { interposed: false, hearers: 0 });
/// The address of CPython's own C function.
static STOCK: AtomicUsize = AtomicUsize::new(0);
/// What is told of each warning while somebody hears warnings.
static HOOK: Once<Py<PyAny>> = Once::new();
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

/// Runs `body`, whose warnings are counted, and heard by nobody.
pub fn silent<R>(body: impl FnOnce() -> R) -> R {
    let before = SILENT.replace(true);
    let result = body();
    SILENT.set(before);
    result
}

fn note() {
    COUNT.set(COUNT.get() + 1);
}

/// Lets frames of a code object not be counted.
pub fn note_trampoline(code: &Bound<'_, PyAny>) {
    TRAMPOLINES.add(code);
}

/// Whether a code object, by its address, is that of a trampoline.
pub fn is_trampoline(code: usize) -> bool {
    TRAMPOLINES.has(code)
}

/// Has `warn` go through ours.
///
/// # Errors
/// Python's `warn` is not what it was when this was written.
pub fn on(py: Python<'_>) -> PyResult<()> {
    let method = method(py)?;
    STATE.peek(|state| {
        state.interposed = true;
        state.reconcile(method);
    });
    Ok(())
}

/// Has it go its own way again.
///
/// # Errors
/// The filters cannot be read.
pub fn off(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    let method = method(py)?;
    STATE.peek(|state| {
        state.interposed = false;
        state.reconcile(method);
    });
    if FILTER.get(py).is_some() {
        // A `catch_warnings` that another thread left meanwhile may have put it back.
        reconcile(py, jax)?;
    }
    Ok(())
}

/// Where CPython has the C function of `warn`. It is a static table, which the object refers to.
#[derive(Clone, Copy)]
struct Method(*mut ffi::PyMethodDef);

// SAFETY: never freed, and used with the interpreter attached only.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

fn method(py: Python<'_>) -> PyResult<Method> {
    static METHOD: Once<Method> = Once::new();
    let found = METHOD.get_or_try_init(py, || {
        let warn = py.import(intern!(py, "_warnings"))?.getattr(intern!(py, "warn"))?;
        let object: *mut ffi::PyCFunctionObject = warn.as_ptr().cast();
        let flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
        // SAFETY: a live object, whose exact type is checked before more is read.
        unsafe {
            if ffi::PyCFunction_CheckExact(warn.as_ptr()) == 0
                || (*(*object).m_ml).ml_flags != flags
            {
                return Err(PyRuntimeError::new_err("jaxide: `warnings.warn` is not CPython's"));
            }
            let method = (*object).m_ml;
            STOCK.store((*method).ml_meth.PyCFunctionFastWithKeywords as usize, Ordering::Relaxed);
            std::mem::forget(warn.unbind());
            Ok(Method(method))
        }
    })?;
    Ok(*found)
}

impl State {
    fn reconcile(&self, Method(method): Method) {
        let stock = STOCK.load(Ordering::Relaxed);
        let ours: ffi::PyCFunctionFastWithKeywords = warn;
        let wanted = if self.interposed || self.hearers > 0 { ours as usize } else { stock };
        // SAFETY: CPython calls the function that is there with the arguments that both take; the
        // interpreter is attached, so nobody is reading it.
        unsafe {
            (*method).ml_meth.PyCFunctionFastWithKeywords =
                std::mem::transmute::<usize, ffi::PyCFunctionFastWithKeywords>(wanted);
        }
    }
}

/// Takes the function that is told of warnings: of the text, the category, the level and whether the
/// warning says by other options whom it concerns. It says whether nobody else is to hear the warning.
#[pyfunction]
pub fn set_warning_hook(py: Python<'_>, hook: Py<PyAny>) {
    let _ = HOOK.set(py, hook);
}

/// While it lives, and has not been closed, the hook is told of warnings.
#[pyclass(module = "jaxide._core", frozen)]
pub struct HeardWarnings {
    open: AtomicBool,
    method: Method,
    recording: Shared<Option<Recording>>,
    /// How many the hook had not been told of when this began.
    untold: u64,
}

#[pymethods]
impl HeardWarnings {
    /// Begins.
    ///
    /// # Errors
    /// Python's `warn` or the filters are not what they were.
    #[new]
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let method = method(py)?;
        STATE.peek(|state| {
            state.hearers += 1;
            state.reconcile(method);
        });
        let (open, recording, untold) = (AtomicBool::new(true), Shared::new(None), UNTOLD.get());
        let heard = Self { open, method, recording, untold };
        let own = Recording::begin(py, jax(py)?)?;
        heard.recording.peek(|recording| *recording = Some(own));
        Ok(heard)
    }

    /// Ends that; again to no effect. How many warnings of native code this thread has issued meanwhile, which the
    /// hook is not told of.
    fn close(&self) -> u64 {
        if self.open.swap(false, Ordering::Relaxed) {
            let method = self.method;
            STATE.peek(|state| {
                state.hearers -= 1;
                state.reconcile(method);
            });
            drop(self.recording.peek(Option::take));
        }
        UNTOLD.get() - self.untold
    }
}

impl Drop for HeardWarnings {
    fn drop(&mut self) {
        // Whoever should have closed it was interrupted.
        self.close();
    }
}

/// What a call of `warn` was given, borrowed.
struct Given<'a> {
    positional: &'a [*mut ffi::PyObject],
    named: &'a [*mut ffi::PyObject],
    /// A tuple of texts, or null.
    keywords: *mut ffi::PyObject,
}

impl Given<'_> {
    /// The position of an argument that is given by its name.
    fn place(&self, name: &CStr) -> Option<usize> {
        (0..self.named.len()).find(|&place| {
            // SAFETY: the interpreter passes a tuple of texts, one for each such argument.
            unsafe {
                let given = ffi::PyTuple_GET_ITEM(self.keywords, place.cast_signed());
                ffi::PyUnicode_CompareWithASCIIString(given, name.as_ptr()) == 0
            }
        })
    }

    fn argument<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        name: &CStr,
    ) -> Option<Bound<'py, PyAny>> {
        let given = self.positional.get(place).copied();
        let given = given.or_else(|| self.place(name).map(|place| self.named[place]))?;
        // SAFETY: an argument of the call under way.
        Some(unsafe { Bound::from_borrowed_ptr(py, given) })
    }

    /// Tells the hook; whether nobody else is to hear the warning.
    fn is_heard(&self, py: Python<'_>, level: i64) -> PyResult<bool> {
        let is_wanted = STATE.peek(|state| state.hearers > 0);
        let (true, Some(hook)) = (is_wanted, HOOK.get(py)) else { return Ok(false) };
        let Some(message) = self.argument(py, 0, c"message") else { return Ok(false) };
        let category = self.argument(py, 1, c"category");
        let known = [c"message", c"category", c"stacklevel", c"source"];
        let named = known.iter().filter(|name| self.place(name).is_some()).count();
        let has_options = self.named.len() > named;
        hook.bind(py).call1((message, category, level, has_options))?.is_truthy()
    }
}

/// In place of the C function of `_warnings.warn(message, category=None, stacklevel=1, source=None)`.
unsafe extern "C" fn warn(
    module: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    note();
    // SAFETY: CPython calls this with the interpreter attached, and passes the positional arguments,
    // then those whose names are in `keywords`.
    let (py, given, stock) = unsafe {
        let named = if keywords.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(keywords) };
        let (count, named) = (count.unsigned_abs(), named.unsigned_abs());
        let all =
            if count + named == 0 { &[] } else { std::slice::from_raw_parts(args, count + named) };
        let (positional, named) = all.split_at(count);
        let stock = std::mem::transmute::<usize, ffi::PyCFunctionFastWithKeywords>(
            STOCK.load(Ordering::Relaxed),
        );
        (Python::assume_attached(), Given { positional, named, keywords }, stock)
    };
    if SILENT.get() {
        return py.None().into_ptr();
    }
    let level = given.argument(py, 2, c"stacklevel");
    // What another object has for an integer may run code of the user's, which stock runs once.
    let level = level.filter(PyAnyMethods::is_exact_instance_of::<PyInt>);
    let level = level.and_then(|level| level.extract::<i64>().ok()).unwrap_or(1);
    let trampolines = trampolines_within(level);
    match given.is_heard(py, level.saturating_add(trampolines)) {
        Ok(true) => return py.None().into_ptr(),
        Ok(false) => {}
        Err(error) => {
            error.restore(py);
            return std::ptr::null_mut();
        }
    }
    if trampolines == 0 {
        // SAFETY: CPython's own function, with what CPython passed.
        return told(|| unsafe { stock(module, args, count, keywords) });
    }
    // There is a level beyond the caller's, so it is among the arguments.
    let level = match level.saturating_add(trampolines).into_pyobject(py) {
        Ok(level) => level,
        Err(never) => match never {},
    };
    let mut all: SmallVec<[*mut ffi::PyObject; 6]> =
        given.positional.iter().chain(given.named).copied().collect();
    let named = given.place(c"stacklevel").map(|place| given.positional.len() + place);
    let place = if given.positional.len() > 2 { Some(2) } else { named };
    if let Some(place) = place.and_then(|place| all.get_mut(place)) {
        *place = level.as_ptr();
    }
    // SAFETY: as above; the arguments are alive until it returns.
    told(|| unsafe { stock(module, all.as_ptr(), count, keywords) })
}

/// Runs `body`, which issues a warning that the hook was told of.
fn told<R>(body: impl FnOnce() -> R) -> R {
    let before = IS_TOLD.replace(true);
    let result = body();
    IS_TOLD.set(before);
    result
}

/// How many frames of trampolines there are before the frame at a level, the caller's being 1.
fn trampolines_within(level: i64) -> i64 {
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
            if is_trampoline(code as usize) {
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
        UNTOLD.set(UNTOLD.get() + u64::from(!IS_TOLD.get()));
        false
    }

    /// A copy notes nothing: `re.compile("(?!)")`.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&'static str,))> {
        Ok((py.import(intern!(py, "re"))?.getattr(intern!(py, "compile"))?, ("(?!)",)))
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
fn reconcile(py: Python<'_>, jax: &Jax) -> PyResult<()> {
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
        reconcile(py, jax)?;
        Ok(recording)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        Python::try_attach(|py| {
            if RECORDINGS.fetch_sub(1, Ordering::Relaxed) == 1
                && let Ok(jax) = jax(py)
            {
                // An exception may be on its way: it has to survive this.
                let error = PyErr::take(py);
                let _ = reconcile(py, jax);
                if let Some(error) = error {
                    error.restore(py);
                }
            }
        });
    }
}
