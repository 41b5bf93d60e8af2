//! `DynamicJaxprTrace.__new__`, by which jax's own code makes traces of ours.

use pyo3::exceptions::PyRecursionError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cpython::patch::Patch;
use crate::python::interpose::install::is_jax_altered;
use crate::python::jax::names::{Jax, jax};
use crate::python::trace::jaxpr_trace::trace_type;
use crate::python::trace::session;

/// `tp_new` of `DynamicJaxprTrace`.
static NEW: Patch<ffi::newfunc> = Patch::new();

/// From now on traces are ours.
pub fn patch(jax: &Jax) {
    let class: *mut ffi::PyTypeObject = jax.trace_type.as_ptr().cast();
    // SAFETY: a heap type of jax, changed with the interpreter attached. `type.__call__` reads
    // tp_new at each call; no dict changes, so no cached attribute goes stale.
    unsafe { NEW.apply(&raw mut (*class).tp_new, new_trace) };
}

/// From now on traces are left to jax.
pub fn restore(jax: &Jax) {
    let class: *mut ffi::PyTypeObject = jax.trace_type.as_ptr().cast();
    // SAFETY: as in `patch`.
    unsafe { NEW.restore(&raw mut (*class).tp_new) };
}

/// `DynamicJaxprTrace.__new__` while anything is active.
unsafe extern "C" fn new_trace(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    session::note_trace();
    let ours = if session::is_active() {
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
        let nothing = ffi::PyTuple_New(0);
        if nothing.is_null() {
            return nothing;
        }
        let stock = NEW.saved();
        let made =
            stock.map_or(std::ptr::null_mut(), |new| new(class, nothing, std::ptr::null_mut()));
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
    match is_jax_altered(py) {
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
