//! Functions of CPython by which attributes are assigned, where nobody else tells of it: names of
//! functions and classes, bases of classes, and on CPython 3.11 the code and the defaults of functions
//! and the attributes of classes.
//!
//! Ours note what is assigned, and then do what those did. They stay as long as the process.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cpython::patch::Patch;
use crate::python::jax::world::watch::{self, Changed};

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

/// A property of functions, with CPython's own setter once ours is in its place.
struct Assigned {
    name: &'static str,
    changed: Changed,
    ours: ffi::setter,
    stock: Patch<ffi::setter>,
}

/// From CPython 3.12 on a watcher is told of code and defaults, and not of names.
const NUM_UNWATCHED: usize = if cfg!(Py_3_12) { 2 } else { 5 };

static ASSIGNED: [Assigned; NUM_UNWATCHED] = [
    Assigned::new::<0>("__name__", Changed::Other),
    Assigned::new::<1>("__qualname__", Changed::Other),
    #[cfg(not(Py_3_12))]
    Assigned::new::<2>("__code__", Changed::Code),
    #[cfg(not(Py_3_12))]
    Assigned::new::<3>("__defaults__", Changed::Other),
    #[cfg(not(Py_3_12))]
    Assigned::new::<4>("__kwdefaults__", Changed::Other),
];

impl Assigned {
    const fn new<const PLACE: usize>(name: &'static str, changed: Changed) -> Self {
        Self { name, changed, ours: set::<PLACE>, stock: Patch::new() }
    }
}

/// The setter of the property at a place.
unsafe extern "C" fn set<const PLACE: usize>(
    function: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    closure: *mut c_void,
) -> c_int {
    let Assigned { changed, stock, .. } = &ASSIGNED[PLACE];
    // SAFETY: CPython calls this with the interpreter attached, and passes a live function; the stock
    // setter was saved before ours was put in its place.
    unsafe {
        watch::note_function(Python::assume_attached(), function, *changed, value);
        stock.saved().map_or(-1, |stock| stock(function, value, closure))
    }
}

/// CPython's getter of `__kwdefaults__`, once ours is in its place.
static DEFAULTS: Patch<ffi::getter> = Patch::new();

/// The getter of `__kwdefaults__`.
unsafe extern "C" fn get_defaults(
    function: *mut ffi::PyObject,
    closure: *mut c_void,
) -> *mut ffi::PyObject {
    // SAFETY: as in `set`; what the stock getter returns is alive.
    unsafe {
        let stock = DEFAULTS.saved();
        let defaults = stock.map_or(std::ptr::null_mut(), |stock| stock(function, closure));
        if !defaults.is_null() && defaults != ffi::Py_None() {
            watch::note_handed_out(Python::assume_attached(), function, defaults);
        }
        defaults
    }
}

/// Has the attributes of functions, and of classes, be assigned by ours.
///
/// # Errors
/// CPython is not what it was when this was written.
pub fn start(py: Python<'_>) -> PyResult<()> {
    for assigned in &ASSIGNED {
        assigned.patch(py)?;
    }
    hand_out_defaults(py)?;
    classes::start(py)
}

fn unknown(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("jaxide does not know {what} of this CPython"))
}

/// The table of a property of functions, which lives as long as the process.
fn property_of_functions(py: Python<'_>, name: &str) -> PyResult<*mut ffi::PyGetSetDef> {
    // SAFETY: a static type of CPython's; a descriptor of this type has a table.
    unsafe {
        let function_type: *mut ffi::PyObject = (&raw mut ffi::PyFunction_Type).cast();
        let attributes = Bound::from_borrowed_ptr(py, function_type).getattr("__dict__")?;
        let property = attributes.get_item(name)?;
        if ffi::Py_TYPE(property.as_ptr()) != &raw mut ffi::PyGetSetDescr_Type {
            return Err(unknown("attributes of functions"));
        }
        Ok((*property.as_ptr().cast::<Property>()).table)
    }
}

/// Has defaults of keywords be read by ours.
fn hand_out_defaults(py: Python<'_>) -> PyResult<()> {
    let table = property_of_functions(py, "__kwdefaults__")?;
    // SAFETY: the interpreter is attached, so nobody is reading the table.
    unsafe {
        if (*table).get.is_none() {
            return Err(unknown("attributes of functions"));
        }
        DEFAULTS.apply(&raw mut (*table).get, get_defaults);
    }
    Ok(())
}

impl Assigned {
    /// Has the property be assigned by ours.
    fn patch(&self, py: Python<'_>) -> PyResult<()> {
        let table = property_of_functions(py, self.name)?;
        // SAFETY: the interpreter is attached, so nobody is reading the table.
        unsafe {
            if (*table).set.is_none() {
                return Err(unknown("attributes of functions"));
            }
            self.stock.apply(&raw mut (*table).set, self.ours);
        }
        Ok(())
    }
}

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
        // SAFETY: a live class and a live name, as CPython passed them; then the function that was in
        // the same slot.
        let (is_there, result) = unsafe {
            let stock = std::mem::transmute::<usize, ffi::setattrofunc>(stock);
            (has_already(class, name, value), stock(class, name, value))
        };
        if !is_there {
            watch::note_class(class);
        }
        result
    }

    /// Whether a class has this value already: jax assigns attributes of its jits each time.
    ///
    /// # Safety
    /// `class` is a live class, `name` a live object.
    unsafe fn has_already(
        class: *mut ffi::PyObject,
        name: *mut ffi::PyObject,
        value: *mut ffi::PyObject,
    ) -> bool {
        // SAFETY: as promised; to look up a text runs nobody's code.
        unsafe {
            let dict = (*class.cast::<ffi::PyTypeObject>()).tp_dict;
            if dict.is_null() || value.is_null() || ffi::PyUnicode_CheckExact(name) == 0 {
                return false;
            }
            ffi::PyDict_GetItem(dict, name) == value
        }
    }
}
