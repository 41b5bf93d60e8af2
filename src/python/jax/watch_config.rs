//! Version counters: noticing that jax's configuration, its current trace or its source info may have
//! changed.
//!
//! Reading them costs more than all else that a replayed call does. Everything that changes them
//! goes through five methods of one native class, `Config`, and through assignments to one
//! thread-local object. From the first trace of ours on the call pointers of those methods are ours, and
//! while a trace of ours may run the assignment slot of that object's class is: they count, then do what
//! they did.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cpython::patch::Patch;
use crate::python::cpython::shared::Once;
use crate::python::jax::names::Jax;
use crate::python::jax::settings;

/// Grows with each change of configuration in any thread, and whenever changes may have been missed.
static CONFIG: AtomicU64 = AtomicU64::new(0);
/// Grows with each assignment to a setting that is for all threads.
static ASSIGNED: AtomicU64 = AtomicU64::new(0);
/// The address of the method that assigns one.
static SET_GLOBAL: AtomicUsize = AtomicUsize::new(0);
/// Changes are noticed.
static NOTICING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Grows with each change of this thread's current trace or source info.
    static TRACE: Cell<u64> = const { Cell::new(0) };
}

/// Where it is equal, the configuration, the current trace and the source info are the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Version {
    config: u64,
    trace: u64,
}

impl Version {
    /// The current version; None while changes are not noticed.
    #[inline]
    pub fn current() -> Option<Self> {
        NOTICING
            .load(Ordering::Relaxed)
            .then(|| Self { config: CONFIG.load(Ordering::Relaxed), trace: TRACE.get() })
    }

    /// Whether the configuration is the same.
    pub fn same_config(self, other: Self) -> bool {
        self.config == other.config
    }
}

/// How often settings were assigned for all threads. What changes them for its own thread, as a context,
/// takes that back; this remains.
#[pyfunction(name = "num_settings_assigned")]
pub fn assigned() -> u64 {
    ASSIGNED.load(Ordering::Relaxed)
}

/// Whether changes are noticed.
pub fn is_noticing() -> bool {
    NOTICING.load(Ordering::Relaxed)
}

/// Something else that the configuration is made of may have changed.
pub fn note_change() {
    CONFIG.fetch_add(1, Ordering::Relaxed);
}

/// Where a native method whose calls are counted has its call pointer.
struct Mutator(*mut Option<ffi::vectorcallfunc>);

// SAFETY: a pointer into an object that is never freed, used with the interpreter attached.
unsafe impl Send for Mutator {}

static MUTATORS: Mutex<Vec<Mutator>> = Mutex::new(Vec::new());
/// `(address of the method, its own call pointer)`, for the counting function: written once.
static STOCK_CALLS: Once<Vec<(usize, ffi::vectorcallfunc)>> = Once::new();
/// The objects that hold the current trace.
static TRACE_STATES: Once<[usize; 2]> = Once::new();
/// What assigns attributes of the object that holds a thread's source info.
static SETATTRO: Patch<ffi::setattrofunc> = Patch::new();

/// The methods of `Config` that change something.
const MUTATING: [&str; 4] = ["__init__", "set_local", "swap_local", "set_global"];
/// Those that do not.
const READING: [&str; 2] = ["get_local", "get_global"];

/// Finds what to count.
///
/// # Errors
/// An attribute cannot be read.
pub fn initialize(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    let state = jax.trace_state.bind(py);
    let _ = TRACE_STATES.set(py, [state.as_ptr() as usize, jax.weak_trace_state.as_ptr() as usize]);
    let class = state.get_type();
    let members = class.getattr("__dict__")?;
    let (mut found, mut calls) = (Vec::new(), Vec::new());
    for item in members.call_method0("items")?.try_iter()? {
        let (name, member): (String, Bound<'_, PyAny>) = item?.extract()?;
        let native = member.get_type().name()?.to_str()? == "nb_method";
        if !native || READING.contains(&&*name) {
            continue;
        }
        let Some(pointer) = call_pointer(&member) else { return Ok(()) };
        // SAFETY: the call pointer of a live object.
        let Some(stock) = (unsafe { *pointer }) else { return Ok(()) };
        if !MUTATING.contains(&&*name) {
            // A method that was not there when this was written may change anything.
            return Ok(());
        }
        let method = member.as_ptr() as usize;
        if name == "set_global" {
            SET_GLOBAL.store(method, Ordering::Relaxed);
        }
        std::mem::forget(member.unbind());
        found.push(Mutator(pointer));
        calls.push((method, stock));
    }
    if found.len() == MUTATING.len() {
        let _ = STOCK_CALLS.set(py, calls);
        *MUTATORS.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
    Ok(())
}

/// Where an object's own call pointer is, if it is called through one.
fn call_pointer(object: &Bound<'_, PyAny>) -> Option<*mut Option<ffi::vectorcallfunc>> {
    let class = object.get_type_ptr();
    // SAFETY: a live object of a type with the flag has the pointer at that offset.
    unsafe {
        if (*class).tp_flags & ffi::Py_TPFLAGS_HAVE_VECTORCALL == 0 {
            return None;
        }
        let offset = usize::try_from((*class).tp_vectorcall_offset).ok().filter(|&o| o > 0)?;
        #[allow(clippy::cast_ptr_alignment)] // the type laid it out, aligned
        Some(object.as_ptr().cast::<u8>().add(offset).cast())
    }
}

unsafe extern "C" fn counting_call(
    method: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargsf: usize,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this with the interpreter attached.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the first argument of a method is its object.
    let object = unsafe { if ffi::PyVectorcall_NARGS(nargsf) > 0 { *args as usize } else { 0 } };
    if TRACE_STATES.get(py).is_some_and(|states| states.contains(&object)) {
        TRACE.set(TRACE.get() + 1);
    } else {
        settings::note(object);
        if method as usize == SET_GLOBAL.load(Ordering::Relaxed) {
            ASSIGNED.fetch_add(1, Ordering::Relaxed);
        }
        CONFIG.fetch_add(1, Ordering::Relaxed);
    }
    let stock = STOCK_CALLS
        .get(py)
        .and_then(|calls| calls.iter().find(|(known, _)| *known == method as usize));
    match stock {
        // SAFETY: the method's own function, with what CPython passed.
        Some((_, stock)) => unsafe { stock(method, args, nargsf, kwnames) },
        None => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn counting_setattro(
    object: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> std::ffi::c_int {
    TRACE.set(TRACE.get() + 1);
    // SAFETY: saved by `on`, from a slot of this type.
    SETATTRO.saved().map_or(-1, |stock| unsafe { stock(object, name, value) })
}

/// The class whose attribute is a thread's source info.
fn source_info_class(py: Python<'_>, jax: &Jax) -> *mut ffi::PyTypeObject {
    jax.source_info_context.bind(py).get_type_ptr()
}

/// Starts noticing.
pub fn on(py: Python<'_>, jax: &Jax) {
    let mutators = MUTATORS.lock().unwrap_or_else(PoisonError::into_inner);
    if mutators.is_empty() {
        return;
    }
    let class = source_info_class(py, jax);
    // SAFETY: slots of live objects of jax, changed with the interpreter attached; an instance's
    // attributes are looked up through them each time.
    unsafe {
        SETATTRO.apply(&raw mut (*class).tp_setattro, counting_setattro);
        // These stay, so that settings that nobody changes need not be read again.
        for mutator in mutators.iter() {
            *mutator.0 = Some(counting_call);
        }
    }
    CONFIG.fetch_add(1, Ordering::Relaxed);
    NOTICING.store(true, Ordering::Relaxed);
}

/// Stops noticing.
pub fn off(py: Python<'_>, jax: &Jax) {
    if !NOTICING.swap(false, Ordering::Relaxed) {
        return;
    }
    // SAFETY: as in `on`.
    unsafe { SETATTRO.restore(&raw mut (*source_info_class(py, jax)).tp_setattro) };
}
