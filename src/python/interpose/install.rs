//! Switching the interposition on and off.
//!
//! While anything is active, the `tp_new` of `DynamicJaxprTrace` is ours, so that a thread that is
//! ours makes our traces. While a trace of ours may run, so are the code of `Primitive.bind`, of
//! `inline_jaxpr_into_trace` and of some more functions of jax, which first ask whether the trace is
//! ours, and all that is caught. All of that is put back when the last activation ends, but for what
//! counts changes of settings (`watch_config.rs`). An activation of the whole process may last for long: then
//! the functions are ours from the first trace on to the first call that finds no trace recording, so
//! that calls outside of traces cost what they do without jaxide.
//! Names, classes and functions keep their identity; a thread that is not ours sees no difference.

use std::cell::Cell;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::exceptions::{PyRecursionError, PyRuntimeError, PyRuntimeWarning};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::wrap_pyfunction;

use crate::python::cache::audit;
use crate::python::cpython::shared::{Once, Shared};
use crate::python::interpose::code_switch::{Code, Switched, keeps_versions};
use crate::python::jax::names::{Jax, jax, set_jax};
use crate::python::jax::world;
use crate::python::trace::jaxpr_trace::trace_type;
use crate::python::trace::tracer::tracer_type;

thread_local! {
    /// How many activations this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// How many traces of this thread are recording.
    static RECORDING: Arc<AtomicUsize> = Arc::default();
    /// Names the outermost trace of this thread.
    static OUTERMOST: Cell<u64> = const { Cell::new(0) };
}

/// How many outermost traces there were.
static OUTERMOSTS: AtomicU64 = AtomicU64::new(0);

/// How many activations of all threads there are.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
/// How many programs were begun that are not part of another.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// How many traces of ours are recording.
static TRACES: AtomicUsize = AtomicUsize::new(0);

/// Whether traces of this thread are ours.
#[inline]
fn is_active() -> bool {
    DEPTH.get() > 0 || PROCESS.load(Ordering::Relaxed) > 0
}

/// Whether a trace of ours may be the current one in this thread.
#[inline]
pub fn is_tracing() -> bool {
    DEPTH.get() > 0 || (TRACES.load(Ordering::Relaxed) > 0 && PROCESS.load(Ordering::Relaxed) > 0)
}

/// Whether a trace is ours.
fn is_ours(py: Python<'_>, jax: &Jax, trace: &Bound<'_, PyAny>) -> bool {
    trace_type(py, jax).is_ok_and(|ours| trace.get_type().is(ours))
}

/// A trace of ours from its beginning until its program is finished, or it is given up.
pub struct Recording {
    /// Those of the thread that it began in.
    of_thread: Arc<AtomicUsize>,
    /// Its program is not part of another.
    is_outermost: bool,
}

/// How many variables and equations the last program came to that is not part of another.
static LAST_SIZE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// For how many of them there is room beforehand at most.
const MAX_ROOM: usize = 1 << 14;

impl Recording {
    /// A trace begins: from now on jax's functions are ours.
    pub fn start(py: Python<'_>, jax: &Jax, parent: &Bound<'_, PyAny>) -> Self {
        let of_thread = RECORDING.with(Arc::clone);
        let is_part = !parent.is(&jax.eval_trace);
        if !is_part {
            EPOCH.fetch_add(1, Ordering::Relaxed);
        }
        // Some rules of jax leave the trace that is under way for as long as they trace.
        let is_outermost = !is_part && of_thread.load(Ordering::Relaxed) == 0;
        if is_outermost {
            begin_outermost();
            audit::trace_begins();
        } else if !is_settled() || !is_ours(py, jax, parent) {
            // As `begin_outermost` does, where this trace is within none of ours.
            world::poll();
        }
        of_thread.fetch_add(1, Ordering::Relaxed);
        // First, so that no other thread lets the functions go.
        TRACES.fetch_add(1, Ordering::Relaxed);
        // Where nothing is active, the trace was made by hand.
        let starts = STATE.peek(|state| {
            let starts = state.active > 0;
            state.want(state.active, starts || state.catching);
            starts
        });
        if starts
            && !is_settled()
            && let Err(error) = settle(py, jax)
        {
            // Somebody has replaced a function of jax: it is called as it is.
            error.write_unraisable(py, None);
        }
        Self { of_thread, is_outermost }
    }

    /// For how many variables and equations to have room: mostly a program is traced again and again.
    pub fn room(&self) -> [usize; 2] {
        LAST_SIZE.each_ref().map(|last| {
            if self.is_outermost { last.load(Ordering::Relaxed).min(MAX_ROOM) } else { 0 }
        })
    }

    /// The program has so many variables and equations.
    pub fn note_size(&self, size: [usize; 2]) {
        if self.is_outermost {
            for (last, size) in LAST_SIZE.iter().zip(size) {
                last.store(size, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.of_thread.fetch_sub(1, Ordering::Relaxed) == 1 {
            audit::trace_ends();
        }
        TRACES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether nothing of ours can be traced in this thread. Where nothing but an activation of the
/// process is active, jax's functions are then left as they are until the next trace.
///
/// # Errors
/// CPython refuses a function's code.
#[inline]
pub fn rests(py: Python<'_>) -> PyResult<bool> {
    if is_tracing() {
        return Ok(false);
    }
    if PROCESS.load(Ordering::Relaxed) > 0 {
        rest(py)?;
    }
    Ok(true)
}

fn rest(py: Python<'_>) -> PyResult<()> {
    let stops = STATE.peek(|state| {
        let stops = state.catching
            && TRACES.load(Ordering::Relaxed) == 0
            && state.active == PROCESS.load(Ordering::Relaxed);
        state.want(state.active, state.catching && !stops);
        stops
    });
    if stops { settle(py, jax(py)?) } else { Ok(()) }
}

/// Grows with each program that is not part of another.
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// Names the outermost trace that is under way in this thread. One that failed is under way for as
/// long as its error is kept, but for `make_jaxpr`, with which a new one begins.
pub fn outermost() -> u64 {
    OUTERMOST.get()
}

fn begin_outermost() {
    // What has changed since the last trace may have gone unnoticed.
    world::begin_trace();
    crate::python::jax::watch_config::note_change();
    OUTERMOST.set(OUTERMOSTS.fetch_add(1, Ordering::Relaxed) + 1);
}

/// What is to be changed of jax.
struct State {
    /// How many activations there are in the process: traces are ours.
    active: usize,
    /// jax's functions are ours.
    catching: bool,
}

static STATE: Shared<State> = Shared::new(State { active: 0, catching: false });
/// How often that became something else.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// How often it had when jax was last what is wanted.
static SETTLED: AtomicU64 = AtomicU64::new(0);

impl State {
    fn want(&mut self, active: usize, catching: bool) {
        if (self.active > 0, self.catching) != (active > 0, catching) {
            WANTED.fetch_add(1, Ordering::Relaxed);
        }
        (self.active, self.catching) = (active, catching);
    }
}

/// Whether jax is what is wanted.
fn is_settled() -> bool {
    SETTLED.load(Ordering::Relaxed) == WANTED.load(Ordering::Relaxed)
}

/// Whether something else is wanted than when there were `wanted` changes: whoever is changing jax
/// then begins anew.
pub fn is_outdated(wanted: u64) -> bool {
    WANTED.load(Ordering::Relaxed) != wanted
}

/// Makes jax what is wanted. Python code may run meanwhile (the interpreter tells audit hooks of each
/// change), which may want something else, in this thread or in another. So nobody waits, each step can be
/// done again, and whoever was interrupted goes on towards what is wanted by then.
///
/// Where somebody has given a function of jax that is to be ours another code, all is left to jax.
///
/// # Errors
/// CPython refuses a change. jax's functions are then its own.
fn settle(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    loop {
        let wanted = WANTED.load(Ordering::Relaxed);
        let (active, catching) = STATE.peek(|state| (state.active > 0, state.catching));
        let replaced = if catching { replaced(py)? } else { None };
        let (active, catching) = (active && replaced.is_none(), catching && replaced.is_none());
        if active {
            catch_traces(jax);
        } else {
            let_traces(jax);
        }
        let done =
            if catching { start_catching(py, jax, wanted) } else { stop_catching(py, jax, wanted) };
        match done {
            Err(error) if catching && !is_outdated(wanted) => {
                STATE.peek(|state| state.want(state.active, false));
                // The first error says what is wrong.
                let _ = stop_catching(py, jax, WANTED.load(Ordering::Relaxed));
                return Err(error);
            }
            _ if is_outdated(wanted) => {}
            done => {
                SETTLED.store(wanted, Ordering::Relaxed);
                return match replaced {
                    Some(replaced) => done.and(warn_of(py, replaced)),
                    None => done,
                };
            }
        }
    }
}

/// The `tp_new` that `DynamicJaxprTrace` has by itself, as an address.
static STOCK_NEW: AtomicUsize = AtomicUsize::new(0);

/// Functions of jax whose trampolines ask us first.
static HOOKED: Once<Vec<Switched>> = Once::new();

/// `make_trampoline(name, hook)` returns the function of jax and the code for it.
fn hook_function(
    make_trampoline: &Bound<'_, PyAny>,
    name: &str,
    hook: &Bound<'_, PyAny>,
) -> PyResult<Switched> {
    let (function, trampoline): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
        make_trampoline.call1((name, hook))?.extract()?;
    Switched::new(&function, &trampoline)
}

/// Says that somebody has given a function another code.
fn warn_of(py: Python<'_>, replaced: &Switched) -> PyResult<()> {
    let name: String = replaced.function(py).getattr("__qualname__")?.extract()?;
    let text = format!("jaxide: the code of jax's {name} was replaced; tracing is left to jax");
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &CString::new(text)?, 2)
}

/// A function of jax to which somebody has given another code.
fn replaced(py: Python<'_>) -> PyResult<Option<&'static Switched>> {
    let other = |hooked: &&Switched| !hooked.has(Code::Stock) && !hooked.has(Code::Trampoline);
    Ok(hooked(py)?.iter().find(other))
}

/// Says that somebody has given a function of jax another code that is to be ours, if so.
///
/// # Errors
/// Warnings are errors.
pub fn warn_of_replaced(py: Python<'_>) -> PyResult<()> {
    replaced(py)?.map_or(Ok(()), |replaced| warn_of(py, replaced))
}

/// Takes the objects of jax and makes the types. Called once, by `jaxide._compat`.
///
/// `make_trampoline(name, hook)` returns a function of jax and a code object for it that calls
/// `hook`. Returns the tracer, trace and jaxpr types.
///
/// Raises:
///     `AttributeError`, `TypeError`: jax lacks an object or it is not what it was.
#[pyfunction]
pub fn initialize<'py>(
    namespace: &Bound<'py, PyAny>,
    make_trampoline: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyType>, Bound<'py, PyType>)> {
    let py = namespace.py();
    set_jax(py, Jax::from_namespace(namespace)?);
    let jax = jax(py)?;
    let ours = [
        ("bind", wrap_pyfunction!(crate::python::interpose::bind::bind, py)?),
        ("inline", wrap_pyfunction!(crate::python::trace::inline::inline_jaxpr, py)?),
        ("evict", wrap_pyfunction!(crate::python::interpose::functions::evict_jit, py)?),
        ("backward", wrap_pyfunction!(crate::python::cache::backward_pass::backward_pass, py)?),
        ("dce", wrap_pyfunction!(crate::python::cache::dead_code::dce_jaxpr_consts, py)?),
        ("check_input", wrap_pyfunction!(crate::python::trace::arguments::check_input_type, py)?),
        ("map_leaves", wrap_pyfunction!(crate::python::trace::arguments::map_leaves, py)?),
        (
            "check_types",
            wrap_pyfunction!(crate::python::trace::arguments::check_returned_types, py)?,
        ),
        ("eval", wrap_pyfunction!(crate::python::cache::rules::eval_jaxpr, py)?),
        ("value", wrap_pyfunction!(crate::python::jax::watch_arrays::read_value, py)?),
        ("check_refs", wrap_pyfunction!(crate::python::trace::arguments::check_returned_refs, py)?),
    ];
    let mut hooked =
        vec![hook_function(make_trampoline, "result_paths", jax.result_paths_hook.bind(py))?];
    let optional = [
        ("vjp", &jax.vjp_hook),
        ("debug_info", &jax.debug_info_hook),
        ("make_jaxpr", &jax.make_jaxpr_hook),
        ("resolve_kwargs", &jax.resolve_kwargs_hook),
    ];
    for (name, hook) in optional {
        let hook = hook.bind(py);
        if !hook.is_none() {
            hooked.push(hook_function(make_trampoline, name, hook)?);
        }
    }
    if !jax.stock_struct_eq.is_none(py) {
        let equal = wrap_pyfunction!(crate::python::trace::arguments::structs_are_equal, py)?;
        let hash = wrap_pyfunction!(crate::python::trace::arguments::hash_of_struct, py)?;
        hooked.push(hook_function(make_trampoline, "struct_eq", equal.as_any())?);
        hooked.push(hook_function(make_trampoline, "struct_hash", hash.as_any())?);
    }
    if !jax.stock_dce_consts.is_none(py) {
        let hook = wrap_pyfunction!(crate::python::cache::dead_code::dce_consts, py)?;
        hooked.push(hook_function(make_trampoline, "dce_consts", hook.as_any())?);
    }
    for (name, hook) in jax.derivation_hooks.bind(py) {
        hooked.push(hook_function(make_trampoline, &name.extract::<String>()?, &hook)?);
    }
    for (name, hook) in ours {
        hooked.push(hook_function(make_trampoline, name, hook.as_any())?);
    }
    let _ = HOOKED.set(py, hooked);
    crate::python::interpose::functions::set_jit_type(jax.jit_type.bind(py))?;
    crate::python::jax::watch_config::initialize(py, jax)?;
    Ok((
        tracer_type(py, jax)?.clone(),
        trace_type(py, jax)?.clone(),
        crate::python::program::graph::lazy_jaxpr_type(py, jax)?.clone(),
    ))
}

/// A context manager: traces that start inside are recorded by jaxide; those of this thread, or of
/// the whole process.
#[pyclass(module = "jaxide._core", frozen)]
pub struct Activation {
    process: bool,
}

#[pymethods]
impl Activation {
    #[new]
    #[pyo3(signature = (*, process = false))]
    fn new(process: bool) -> Self {
        Self { process }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let jax = jax(py)?;
        STATE.peek(|state| state.want(state.active + 1, true));
        let starts = !is_settled();
        if starts && let Err(error) = settle(py, jax) {
            Self::left(py, jax)?;
            return Err(error);
        }
        let trace = jax.trace_state.bind(py).getattr(intern!(py, "value"))?;
        if !self.process && DEPTH.get() == 0 && trace.is(&jax.eval_trace) {
            begin_outermost();
        } else if starts {
            world::poll();
        }
        if self.process {
            PROCESS.fetch_add(1, Ordering::Relaxed);
        } else {
            DEPTH.set(DEPTH.get() + 1);
        }
        Ok(())
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, py: Python<'_>, _exc: &Bound<'_, PyAny>) -> PyResult<()> {
        let jax = jax(py)?;
        let entered = if self.process { PROCESS.load(Ordering::Relaxed) } else { DEPTH.get() };
        if STATE.peek(|state| state.active == 0) || entered == 0 {
            return Err(PyRuntimeError::new_err("jaxide: left an activation that was not entered"));
        }
        if self.process {
            PROCESS.fetch_sub(1, Ordering::Relaxed);
        } else {
            DEPTH.set(DEPTH.get() - 1);
        }
        Self::left(py, jax)
    }
}

impl Activation {
    fn left(py: Python<'_>, jax: &Jax) -> PyResult<()> {
        STATE.peek(|state| {
            let active = state.active.saturating_sub(1);
            state.want(active, state.catching && active > 0);
        });
        if is_settled() { Ok(()) } else { settle(py, jax) }
    }
}

fn hooked(py: Python<'_>) -> PyResult<&'static [Switched]> {
    HOOKED
        .get(py)
        .map(Vec::as_slice)
        .ok_or_else(|| PyRuntimeError::new_err("jaxide._core is not initialized"))
}

/// Makes traces ours.
fn catch_traces(jax: &Jax) {
    let class: *mut ffi::PyTypeObject = jax.trace_type.as_ptr().cast();
    // SAFETY: a heap type of jax, changed with the interpreter attached. `type.__call__` reads
    // tp_new at each call; no dict changes, so no cached attribute goes stale.
    unsafe {
        if let Some(stock) = (*class).tp_new
            && stock as usize != new_trace as *const () as usize
        {
            STOCK_NEW.store(stock as usize, Ordering::Relaxed);
            (*class).tp_new = Some(new_trace);
        }
    }
}

/// Leaves traces to jax.
fn let_traces(jax: &Jax) {
    let class: *mut ffi::PyTypeObject = jax.trace_type.as_ptr().cast();
    // SAFETY: as in `catch_traces`; the value stored is the function pointer that was there.
    unsafe {
        let stock = STOCK_NEW.load(Ordering::Relaxed);
        if stock != 0 {
            (*class).tp_new = Some(std::mem::transmute::<usize, ffi::newfunc>(stock));
        }
    }
}

/// Makes jax's functions ours.
fn start_catching(py: Python<'_>, jax: &Jax, wanted: u64) -> PyResult<()> {
    let keeps_versions = keeps_versions(py);
    for hooked in hooked(py)? {
        if is_outdated(wanted) {
            return Ok(());
        }
        hooked.put(py, Code::Trampoline, keeps_versions)?;
    }
    crate::python::cpython::stack_chunks::keep(py);
    crate::python::jax::watch_warnings::on(py)?;
    crate::python::jax::watch_config::on(py, jax);
    crate::python::jax::watch_arrays::on(jax);
    crate::python::interpose::functions::put(py, true, || is_outdated(wanted))
}

/// Puts jax's functions back.
fn stop_catching(py: Python<'_>, jax: &Jax, wanted: u64) -> PyResult<()> {
    crate::python::cache::key::trace_context::forget();
    crate::python::interpose::functions::put(py, false, || is_outdated(wanted))?;
    crate::python::jax::watch_arrays::off(jax);
    crate::python::jax::watch_config::off(py, jax);
    crate::python::jax::watch_warnings::off(py, jax)?;
    let keeps_versions = keeps_versions(py);
    for hooked in hooked(py)? {
        if is_outdated(wanted) {
            return Ok(());
        }
        // What somebody else has put there stays.
        hooked.put(py, Code::Stock, keeps_versions)?;
    }
    Ok(())
}

/// `DynamicJaxprTrace.__new__` while anything is active.
unsafe extern "C" fn new_trace(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let ours = if is_active() {
        // SAFETY: CPython passes a tuple and a dict or null.
        let asked = Python::attach(|py| unsafe {
            own_class(py, class, args, kwargs).map_err(|error| error.restore(py))
        });
        let Ok(ours) = asked else { return std::ptr::null_mut() };
        ours
    } else {
        None
    };
    // SAFETY: allocates an instance of a subclass of `class`, which `type.__call__` then
    // initializes; or does what jax's class does by itself. `object.__new__` refuses arguments to a
    // class whose `tp_new` is not its own, so it gets none: `__init__` does.
    unsafe {
        if let Some(ours) = ours {
            let alloc = (*ours).tp_alloc.unwrap_or(ffi::PyType_GenericAlloc);
            return alloc(ours, 0);
        }
        let stock = STOCK_NEW.load(Ordering::Relaxed);
        let nothing = ffi::PyTuple_New(0);
        if nothing.is_null() {
            return nothing;
        }
        let stock = std::mem::transmute::<usize, ffi::newfunc>(stock);
        let made = stock(class, nothing, std::ptr::null_mut());
        ffi::Py_DECREF(nothing);
        made
    }
}

/// The class of a trace that is ours; None where it is left to jax.
///
/// # Errors
/// Whoever comes in while jax is looked at raises: a signal handler, a profiler.
///
/// # Safety
/// `args` is a tuple, `kwargs` a dict or null.
unsafe fn own_class(
    py: Python<'_>,
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> PyResult<Option<*mut ffi::PyTypeObject>> {
    let Ok(jax) = jax(py) else { return Ok(None) };
    // SAFETY: as promised.
    let lowering = unsafe { asks_for_lowering(py, args, kwargs) };
    if lowering || class != jax.trace_type.as_ptr().cast() {
        return Ok(None);
    }
    match world::is_jax_altered(py) {
        Ok(true) => Ok(None),
        Ok(false) => Ok(trace_type(py, jax).ok().map(PyTypeMethods::as_type_ptr)),
        // There may be room for jax's own trace.
        Err(error) if error.is_instance_of::<PyRecursionError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether `DynamicJaxprTrace(debug_info, parent_trace, lower, auto_dce)` asks for a lowering trace.
/// jax makes those when it rewrites a jaxpr of high-level types, and edits their frame in place.
///
/// # Safety
/// `args` is a tuple, `kwargs` a dict or null.
unsafe fn asks_for_lowering(
    py: Python<'_>,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> bool {
    // SAFETY: as promised by the caller; the items are borrowed for a truth test.
    unsafe {
        let lower = if ffi::PyTuple_GET_SIZE(args) > 2 {
            ffi::PyTuple_GET_ITEM(args, 2)
        } else if kwargs.is_null() {
            return false;
        } else {
            ffi::PyDict_GetItemWithError(kwargs, pyo3::intern!(py, "lower").as_ptr())
        };
        lower == ffi::Py_True()
    }
}
