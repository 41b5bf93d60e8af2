//! C-level helpers: members of slotted Python classes, heap types, method trampolines.

use std::any::Any;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// Holds automatic garbage collections back while many objects are made that all stay: each would
/// look through them and find nothing. The first one afterwards sees them all.
pub struct NoCollection {
    was_enabled: bool,
}

impl NoCollection {
    /// Until the value is dropped.
    pub fn start(_py: Python<'_>) -> Self {
        // SAFETY: the interpreter is attached.
        Self { was_enabled: unsafe { ffi::PyGC_Disable() } != 0 }
    }
}

impl Drop for NoCollection {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: what was started with the interpreter attached ends before it is detached.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

/// One member of a class with `__slots__`, by its offset in the instance.
#[derive(Clone, Copy, Debug)]
pub struct Slot(usize);

impl Slot {
    /// The offset of member `name` of `class`.
    ///
    /// # Errors
    /// `class` has no such slot.
    pub fn of(class: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        let descriptor = class.getattr(name)?;
        // SAFETY: a member descriptor starts with PyMemberDescrObject; the type was checked.
        unsafe {
            if ffi::Py_TYPE(descriptor.as_ptr()) != &raw mut ffi::PyMemberDescr_Type {
                return Err(PyTypeError::new_err(format!("{class}.{name} is not a slot")));
            }
            let member = (*descriptor.as_ptr().cast::<ffi::PyMemberDescrObject>()).d_member;
            usize::try_from((*member).offset)
                .map(Self)
                .map_err(|_| PyTypeError::new_err(format!("{class}.{name} has no offset")))
        }
    }

    /// Where the slot is in `object`.
    #[allow(clippy::cast_ptr_alignment)] // the class laid the slot out, aligned
    #[inline]
    unsafe fn place(self, object: *mut ffi::PyObject) -> *mut *mut ffi::PyObject {
        // SAFETY: the offset came from the member descriptor of the object's class.
        unsafe { object.cast::<u8>().add(self.0).cast() }
    }

    /// The value, borrowed; null where the slot is unset.
    ///
    /// # Safety
    /// `object` is an instance of the class the slot belongs to.
    #[inline]
    pub unsafe fn peek(self, object: *mut ffi::PyObject) -> *mut ffi::PyObject {
        // SAFETY: the offset came from the member descriptor of the object's class.
        unsafe { *self.place(object) }
    }

    /// The value of the slot.
    ///
    /// # Safety
    /// As `peek`.
    #[inline]
    pub unsafe fn get<'py>(self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the value is a live object that the instance owns.
        unsafe { Bound::from_borrowed_ptr_or_opt(object.py(), self.peek(object.as_ptr())) }
    }

    /// Puts `value` in the slot.
    ///
    /// # Safety
    /// As `peek`.
    #[inline]
    pub unsafe fn set(self, object: *mut ffi::PyObject, value: Bound<'_, PyAny>) {
        // SAFETY: as `peek`; the old value is dropped only after the slot holds the new one,
        // since dropping can run arbitrary code.
        unsafe {
            let old = ptr::replace(self.place(object), value.into_ptr());
            ffi::Py_XDECREF(old);
        }
    }
}

/// Runs `body` attached to the interpreter; errors and panics become Python exceptions.
pub fn guarded<R>(failed: R, body: impl FnOnce(Python<'_>) -> PyResult<R>) -> R {
    Python::attach(|py| match catch_unwind(AssertUnwindSafe(|| body(py))) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            error.restore(py);
            failed
        }
        Err(panic) => {
            PyRuntimeError::new_err(format!("jaxide: internal error: {}", message(&*panic)))
                .restore(py);
            failed
        }
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic")
}

/// Runs `body` as an `except` block would: what it raises has `error` as its context.
pub fn while_handling<R>(py: Python<'_>, error: &PyErr, body: impl FnOnce() -> R) -> R {
    // SAFETY: the handled exception of this thread is put back whatever `body` returns; both calls
    // take or give owned references as documented.
    unsafe {
        let before = ffi::PyErr_GetHandledException();
        ffi::PyErr_SetHandledException(error.value(py).as_ptr());
        let result = body();
        ffi::PyErr_SetHandledException(before);
        ffi::Py_XDECREF(before);
        result
    }
}

/// Positional and keyword arguments of one call.
pub struct Args<'py> {
    method: &'static str,
    positional: Bound<'py, PyTuple>,
    keywords: Option<Bound<'py, PyDict>>,
}

impl<'py> Args<'py> {
    /// The arguments of a call that is under way.
    ///
    /// # Safety
    /// `positional` is a tuple and `keywords` a dict or null.
    unsafe fn borrowed(
        py: Python<'py>,
        method: &'static str,
        positional: *mut ffi::PyObject,
        keywords: *mut ffi::PyObject,
    ) -> Self {
        // SAFETY: as promised by the caller; both are alive during the call.
        unsafe {
            Self {
                method,
                positional: Bound::from_borrowed_ptr(py, positional).cast_into_unchecked(),
                keywords: Bound::from_borrowed_ptr_or_opt(py, keywords)
                    .map(|keywords| keywords.cast_into_unchecked()),
            }
        }
    }

    /// The argument at `index`, or named `name`.
    pub fn get(&self, index: usize, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        if index < self.positional.len() {
            return self.positional.get_item(index).map(Some);
        }
        match &self.keywords {
            Some(keywords) => keywords.get_item(name),
            None => Ok(None),
        }
    }

    /// As `get`; the argument has to be given.
    pub fn required(&self, index: usize, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.get(index, name)?.ok_or_else(|| {
            PyTypeError::new_err(format!("{}() missing required argument '{name}'", self.method))
        })
    }

    /// As `get`; None counts as absent.
    pub fn optional(&self, index: usize, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.get(index, name)?.filter(|value| !value.is_none()))
    }
}

/// A method body: `(self, args) -> result`.
pub type Body = for<'py> fn(&Bound<'py, PyAny>, &Args<'py>) -> PyResult<Bound<'py, PyAny>>;

/// Called by the `extern "C"` functions that `method!` makes.
///
/// # Safety
/// The pointers are what `CPython` passes to a `METH_VARARGS` | `METH_KEYWORDS` function.
pub unsafe fn call_method(
    name: &'static str,
    body: Body,
    slf: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    guarded(ptr::null_mut(), |py| {
        // SAFETY: CPython passes a tuple and a dict or null, alive during the call.
        let (slf, args) =
            unsafe { (Bound::from_borrowed_ptr(py, slf), Args::borrowed(py, name, args, kwargs)) };
        body(&slf, &args).map(Bound::into_ptr)
    })
}

/// Called by the `extern "C"` functions that `getter!` makes.
///
/// # Safety
/// `slf` is what `CPython` passes to a getter.
pub unsafe fn call_getter(
    body: for<'py> fn(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    slf: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    guarded(ptr::null_mut(), |py| {
        // SAFETY: alive during the call.
        let slf = unsafe { Bound::from_borrowed_ptr(py, slf) };
        body(&slf).map(Bound::into_ptr)
    })
}

/// Called by the `extern "C"` functions that `setter!` makes.
///
/// # Safety
/// `slf` and `value` are what `CPython` passes to a setter.
pub unsafe fn call_setter(
    body: for<'py> fn(&Bound<'py, PyAny>, Option<Bound<'py, PyAny>>) -> PyResult<()>,
    slf: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> c_int {
    guarded(-1, |py| {
        // SAFETY: alive during the call; null means deletion.
        let (slf, value) = unsafe {
            (Bound::from_borrowed_ptr(py, slf), Bound::from_borrowed_ptr_or_opt(py, value))
        };
        body(&slf, value).map(|()| 0)
    })
}

/// Called by the `extern "C"` functions that `initializer!` makes.
///
/// # Safety
/// The pointers are what `CPython` passes to `tp_init`.
pub unsafe fn call_init(
    name: &'static str,
    body: for<'py> fn(&Bound<'py, PyAny>, &Args<'py>) -> PyResult<()>,
    slf: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> c_int {
    guarded(-1, |py| {
        // SAFETY: as in `call_method`.
        let (slf, args) =
            unsafe { (Bound::from_borrowed_ptr(py, slf), Args::borrowed(py, name, args, kwargs)) };
        body(&slf, &args).map(|()| 0)
    })
}

/// A `PyMethodDef` entry named `$name` for a `Body`.
macro_rules! method {
    ($name:literal, $body:path) => {{
        unsafe extern "C" fn entry(
            slf: *mut pyo3::ffi::PyObject,
            args: *mut pyo3::ffi::PyObject,
            kwargs: *mut pyo3::ffi::PyObject,
        ) -> *mut pyo3::ffi::PyObject {
            // SAFETY: CPython calls this with the arguments of a keyword method.
            unsafe { $crate::python::native::call_method($name, $body, slf, args, kwargs) }
        }
        pyo3::ffi::PyMethodDef {
            ml_name: concat!($name, "\0").as_ptr().cast(),
            ml_meth: pyo3::ffi::PyMethodDefPointer { PyCFunctionWithKeywords: entry },
            ml_flags: pyo3::ffi::METH_VARARGS | pyo3::ffi::METH_KEYWORDS,
            ml_doc: std::ptr::null(),
        }
    }};
}
pub(super) use method;

/// A `PyGetSetDef` entry named `$name`; without a setter the attribute is read-only.
macro_rules! attribute {
    (@entry $name:literal, $get:path, $set:expr) => {{
        unsafe extern "C" fn getter(
            slf: *mut pyo3::ffi::PyObject,
            _: *mut std::ffi::c_void,
        ) -> *mut pyo3::ffi::PyObject {
            // SAFETY: CPython calls this as a getter.
            unsafe { $crate::python::native::call_getter($get, slf) }
        }
        pyo3::ffi::PyGetSetDef {
            name: concat!($name, "\0").as_ptr().cast(),
            get: Some(getter),
            set: $set,
            doc: std::ptr::null(),
            closure: std::ptr::null_mut(),
        }
    }};
    ($name:literal, $get:path) => {
        attribute!(@entry $name, $get, None)
    };
    ($name:literal, $get:path, $set:path) => {{
        unsafe extern "C" fn setter(
            slf: *mut pyo3::ffi::PyObject,
            value: *mut pyo3::ffi::PyObject,
            _: *mut std::ffi::c_void,
        ) -> std::ffi::c_int {
            // SAFETY: CPython calls this as a setter.
            unsafe { $crate::python::native::call_setter($set, slf, value) }
        }
        attribute!(@entry $name, $get, Some(setter))
    }};
}
pub(super) use attribute;

/// What `heap_type` needs to know of a new type.
pub struct TypeSpec {
    /// `module.Name`, as Python shows it.
    pub name: &'static str,
    /// Bytes appended to the base's instance layout.
    pub extra_size: usize,
    pub methods: Vec<ffi::PyMethodDef>,
    pub attributes: Vec<ffi::PyGetSetDef>,
    /// Further slots: (slot id, function).
    pub slots: Vec<(c_int, *mut c_void)>,
}

/// Creates a heap type that extends `base`.
///
/// # Errors
/// `CPython` refused the type.
pub fn heap_type<'py>(base: &Bound<'py, PyType>, spec: TypeSpec) -> PyResult<Bound<'py, PyType>> {
    let py = base.py();
    let name = CString::new(spec.name)?;
    let mut methods = spec.methods;
    // SAFETY: an all-zero entry ends the table.
    methods.push(unsafe { std::mem::zeroed() });
    let mut attributes = spec.attributes;
    // SAFETY: as above.
    attributes.push(unsafe { std::mem::zeroed() });
    // The type refers to its tables for ever, as types made here do live for ever.
    let methods: &'static mut [ffi::PyMethodDef] = methods.leak();
    let attributes: &'static mut [ffi::PyGetSetDef] = attributes.leak();
    let mut slots: Vec<ffi::PyType_Slot> =
        spec.slots.into_iter().map(|(slot, pfunc)| ffi::PyType_Slot { slot, pfunc }).collect();
    slots.push(ffi::PyType_Slot { slot: ffi::Py_tp_methods, pfunc: methods.as_mut_ptr().cast() });
    slots.push(ffi::PyType_Slot { slot: ffi::Py_tp_getset, pfunc: attributes.as_mut_ptr().cast() });
    slots.push(ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() });
    // SAFETY: `base` is a type; the spec's pointers outlive the call (name is copied by CPython
    // from 3.11 on, the tables are leaked above).
    unsafe {
        let basicsize = (*base.as_type_ptr()).tp_basicsize.unsigned_abs() + spec.extra_size;
        let mut raw = ffi::PyType_Spec {
            name: name.as_ptr().cast::<c_char>(),
            basicsize: c_int::try_from(basicsize)?,
            itemsize: 0,
            flags: c_uint::try_from(ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE)?,
            slots: slots.as_mut_ptr(),
        };
        let bases = PyTuple::new(py, [base])?;
        let created = ffi::PyType_FromSpecWithBases(&raw mut raw, bases.as_ptr());
        let class: Bound<'py, PyType> =
            Bound::from_owned_ptr_or_err(py, created)?.cast_into_unchecked();
        // CPython's own messages spell `tp_name`, which is the bare name for classes made in Python
        // and the dotted one for classes made here, until the name is set.
        let short_name = class.name()?;
        class.setattr("__name__", short_name)?;
        Ok(class)
    }
}

/// A new instance of `class`, its slots unset and its own fields zero, without calling `__init__`.
///
/// # Errors
/// Out of memory.
#[inline]
pub fn allocate<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a heap type has a tp_alloc; it returns a new reference or null with an error set.
    unsafe {
        let class = class.as_type_ptr();
        let alloc = (*class).tp_alloc.unwrap_or(ffi::PyType_GenericAlloc);
        Bound::from_owned_ptr_or_err(Python::assume_attached(), alloc(class, 0))
    }
}
