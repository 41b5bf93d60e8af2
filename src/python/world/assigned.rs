//! Functions of `CPython` by which attributes are assigned, where nobody else tells of it: names of
//! functions, and on `CPython` 3.11 attributes of classes.
//!
//! Ours note what is assigned, and then do what those did. They stay as long as the process.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::watch;

/// The beginning of every descriptor, which pyo3 does not declare.
#[repr(C)]
struct Descriptor {
    base: ffi::PyObject,
    of: *mut ffi::PyTypeObject,
    name: *mut ffi::PyObject,
    qualname: *mut ffi::PyObject,
}

/// `PyGetSetDescrObject`.
#[repr(C)]
struct Property {
    descriptor: Descriptor,
    table: *mut ffi::PyGetSetDef,
}

static STOCK_NAME: AtomicUsize = AtomicUsize::new(0);
static STOCK_QUALNAME: AtomicUsize = AtomicUsize::new(0);

/// Has the names of functions, and the attributes of classes, be assigned by ours.
///
/// # Errors
/// `CPython` is not what it was when this was written.
pub fn start(py: Python<'_>) -> PyResult<()> {
    catch_property(py, "__name__", &STOCK_NAME, set_name)?;
    catch_property(py, "__qualname__", &STOCK_QUALNAME, set_qualname)?;
    #[cfg(not(Py_3_12))]
    classes::start(py)?;
    Ok(())
}

fn unknown(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("jaxide does not know {what} of this CPython"))
}

/// Has a property of functions be assigned by ours.
fn catch_property(
    py: Python<'_>,
    name: &str,
    stock: &AtomicUsize,
    ours: ffi::setter,
) -> PyResult<()> {
    // SAFETY: a static type of CPython's.
    let function_type = unsafe {
        Bound::from_borrowed_ptr(py, (&raw mut ffi::PyFunction_Type).cast::<ffi::PyObject>())
    };
    let property = function_type.getattr("__dict__")?.get_item(name)?;
    // SAFETY: a live descriptor of this type has a table for as long as the process lives; the
    // interpreter is attached, so nobody is reading it.
    unsafe {
        if ffi::Py_TYPE(property.as_ptr()) != &raw mut ffi::PyGetSetDescr_Type {
            return Err(unknown("names of functions"));
        }
        let table = (*property.as_ptr().cast::<Property>()).table;
        let Some(there) = (*table).set else { return Err(unknown("names of functions")) };
        if there as usize != ours as usize {
            stock.store(there as usize, Ordering::Relaxed);
            (*table).set = Some(ours);
        }
    }
    Ok(())
}

unsafe fn assign_name(
    stock: &AtomicUsize,
    function: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    closure: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls this with the interpreter attached, and passes a live function; the stock
    // setter was stored before ours was put in its place.
    unsafe {
        watch::note_name(Python::assume_attached(), function, value);
        let stock = std::mem::transmute::<usize, ffi::setter>(stock.load(Ordering::Relaxed));
        stock(function, value, closure)
    }
}

unsafe extern "C" fn set_name(
    function: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    closure: *mut c_void,
) -> c_int {
    // SAFETY: as CPython promises.
    unsafe { assign_name(&STOCK_NAME, function, value, closure) }
}

unsafe extern "C" fn set_qualname(
    function: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    closure: *mut c_void,
) -> c_int {
    // SAFETY: as CPython promises.
    unsafe { assign_name(&STOCK_QUALNAME, function, value, closure) }
}

#[cfg(not(Py_3_12))]
mod classes {
    use super::{
        AtomicUsize, Bound, Descriptor, Ordering, PyAny, PyAnyMethods, PyResult, Python, c_int,
        c_void, ffi, unknown, watch,
    };

    /// `PyWrapperDescrObject`.
    #[repr(C)]
    struct Wrapper {
        descriptor: Descriptor,
        slot: *mut c_void,
        wrapped: *mut c_void,
    }

    static STOCK: AtomicUsize = AtomicUsize::new(0);

    /// Has attributes of classes be assigned by ours: in `type`, in metaclasses that have its function,
    /// and in `type.__setattr__` and `type.__delattr__`.
    pub fn start(py: Python<'_>) -> PyResult<()> {
        // SAFETY: static and live types, changed with the interpreter attached; wrappers are checked.
        unsafe {
            let root = &raw mut ffi::PyType_Type;
            let Some(there) = (*root).tp_setattro else { return Err(unknown("classes")) };
            let ours: ffi::setattrofunc = set_attribute;
            if there as usize != ours as usize {
                STOCK.store(there as usize, Ordering::Relaxed);
                let bound = Bound::from_borrowed_ptr(py, root.cast::<ffi::PyObject>());
                let attributes = bound.getattr("__dict__")?;
                for name in ["__setattr__", "__delattr__"] {
                    let wrapper = attributes.get_item(name)?;
                    let wrapper: *mut Wrapper = wrapper.as_ptr().cast();
                    let is_one = ffi::Py_TYPE(wrapper.cast()) == &raw mut ffi::PyWrapperDescr_Type;
                    if !is_one || (*wrapper).wrapped as usize != there as usize {
                        return Err(unknown("classes"));
                    }
                    (*wrapper).wrapped = ours as *mut c_void;
                }
                (*root).tp_setattro = Some(ours);
            }
            let stock = STOCK.load(Ordering::Relaxed);
            let root = Bound::from_borrowed_ptr(py, root.cast::<ffi::PyObject>());
            let mut pending: Vec<Bound<'_, PyAny>> = vec![root.clone()];
            while let Some(metaclass) = pending.pop() {
                let class: *mut ffi::PyTypeObject = metaclass.as_ptr().cast();
                if (*class).tp_setattro.is_some_and(|there| there as usize == stock) {
                    (*class).tp_setattro = Some(ours);
                }
                let subclasses = root.call_method1("__subclasses__", (&metaclass,))?;
                for subclass in subclasses.try_iter()? {
                    pending.push(subclass?);
                }
            }
        }
        Ok(())
    }

    unsafe extern "C" fn set_attribute(
        class: *mut ffi::PyObject,
        name: *mut ffi::PyObject,
        value: *mut ffi::PyObject,
    ) -> c_int {
        let stock = STOCK.load(Ordering::Relaxed);
        // SAFETY: the function that was in the same slot, with what CPython passed.
        let result =
            unsafe { std::mem::transmute::<usize, ffi::setattrofunc>(stock)(class, name, value) };
        watch::note_class(class);
        result
    }
}
