//! Switching the interposition on and off.
//!
//! Two things of jax change while a trace of ours may run in the process, and both are put back when
//! the last one ends: the `tp_new` of `DynamicJaxprTrace`, so that a thread that is ours makes our
//! traces, and the code of `Primitive.bind`, which first asks whether the current trace is ours.
//! Names, classes and functions keep their identity; a thread that is not ours sees no difference.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::wrap_pyfunction;

use super::jax::{Jax, jax, set_jax};
use super::trace::trace_type;
use super::tracer::tracer_type;

thread_local! {
    /// How many activations this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// How many activations there are in the process.
static ACTIVE: Mutex<usize> = Mutex::new(0);
/// The `tp_new` that `DynamicJaxprTrace` has by itself, as an address.
static STOCK_NEW: AtomicUsize = AtomicUsize::new(0);

/// `Primitive.bind` as a function, its own code, and the code that asks us first.
struct BindCode {
    function: Py<PyAny>,
    stock: Py<PyAny>,
    trampoline: Py<PyAny>,
}

static BIND: PyOnceLock<BindCode> = PyOnceLock::new();

/// Takes the objects of jax and makes the types. Called once, by `jaxide._compat`.
///
/// `make_trampoline(hook)` returns the function `Primitive.bind` and the code object that calls
/// `hook(primitive, args, params)`. Returns the tracer, trace and jaxpr types.
///
/// Raises:
///     `AttributeError`, `TypeError`: jax lacks an object or it is not what it was.
#[pyfunction]
pub(super) fn initialize<'py>(
    namespace: &Bound<'py, PyAny>,
    make_trampoline: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyType>, Bound<'py, PyType>)> {
    let py = namespace.py();
    set_jax(py, Jax::from_namespace(namespace)?);
    let jax = jax(py)?;
    let hook = wrap_pyfunction!(super::bind::bind, py)?;
    let (function, trampoline): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
        make_trampoline.call1((hook,))?.extract()?;
    let stock = function.getattr("__code__")?.unbind();
    let code = BindCode { function: function.unbind(), stock, trampoline: trampoline.unbind() };
    let _ = BIND.set(py, code);
    Ok((
        tracer_type(py, jax)?.clone(),
        trace_type(py, jax)?.clone(),
        super::graph::lazy_jaxpr_type(py, jax)?.clone(),
    ))
}

/// A context manager: traces that this thread starts inside are recorded by jaxide.
#[pyclass(module = "jaxide._core", frozen)]
pub struct Activation;

#[pymethods]
#[allow(clippy::unused_self)] // the activation is the thread's, not the object's
impl Activation {
    #[new]
    fn new() -> Self {
        Self
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let jax = jax(py)?;
        let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
        if *active == 0 {
            switch_on(py, jax)?;
        }
        *active += 1;
        DEPTH.set(DEPTH.get() + 1);
        Ok(())
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, py: Python<'_>, _exc: &Bound<'_, PyAny>) -> PyResult<()> {
        let jax = jax(py)?;
        let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
        if *active == 0 || DEPTH.get() == 0 {
            return Err(PyRuntimeError::new_err("jaxide: left an activation that was not entered"));
        }
        DEPTH.set(DEPTH.get() - 1);
        *active -= 1;
        if *active == 0 {
            switch_off(py, jax)?;
        }
        Ok(())
    }
}

fn bind_code(py: Python<'_>) -> PyResult<&BindCode> {
    BIND.get(py).ok_or_else(|| PyRuntimeError::new_err("jaxide._core is not initialized"))
}

fn switch_on(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    let code = bind_code(py)?;
    let function = code.function.bind(py);
    let current = function.getattr("__code__")?;
    if !current.is(&code.stock) {
        return Err(PyRuntimeError::new_err(
            "jaxide: something else has replaced the code of jax's Primitive.bind",
        ));
    }
    function.setattr("__code__", &code.trampoline)?;
    let class: *mut ffi::PyTypeObject = jax.trace_type.as_ptr().cast();
    // SAFETY: a heap type of jax, changed with the interpreter attached. `type.__call__` reads
    // tp_new at each call; no dict changes, so no cached attribute goes stale.
    unsafe {
        if let Some(stock) = (*class).tp_new {
            STOCK_NEW.store(stock as usize, Ordering::Relaxed);
            (*class).tp_new = Some(new_trace);
        }
    }
    Ok(())
}

fn switch_off(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    let class: *mut ffi::PyTypeObject = jax.trace_type.as_ptr().cast();
    // SAFETY: as in `switch_on`; the value stored is the function pointer that was there.
    unsafe {
        let stock = STOCK_NEW.load(Ordering::Relaxed);
        if stock != 0 {
            (*class).tp_new = Some(std::mem::transmute::<usize, ffi::newfunc>(stock));
        }
    }
    let code = bind_code(py)?;
    code.function.bind(py).setattr("__code__", &code.stock)
}

/// `DynamicJaxprTrace.__new__` while anything is active.
unsafe extern "C" fn new_trace(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let ours = if DEPTH.get() > 0 {
        Python::attach(|py| {
            // SAFETY: CPython passes a tuple and a dict or null.
            let lowering = unsafe { asks_for_lowering(py, args, kwargs) };
            let jax = jax(py).ok()?;
            let plain = class == jax.trace_type.as_ptr().cast() && !lowering;
            plain.then(|| trace_type(py, jax).ok().map(|class| class.as_type_ptr())).flatten()
        })
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
