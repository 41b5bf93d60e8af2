//! C-level helpers: members of slotted Python classes, heap types, method trampolines.

use std::any::Any;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use pyo3::exceptions::{PyException, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

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

/// The entries that a dict has now, for whoever runs Python code on them: that may change the dict.
pub fn entries<'py>(dict: &Bound<'py, PyDict>) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    dict.iter().collect()
}

/// What a string says. As `Display` of an object, it would be a text of its own where a signal handler
/// raises: `PyObject_Str` runs them.
pub fn string_of(string: &Bound<'_, PyString>) -> String {
    string.to_string_lossy().into_owned()
}

/// What was asked of somebody's class; None where the class raises an error.
///
/// # Errors
/// Whoever asked was interrupted.
pub fn said<T>(py: Python<'_>, asked: PyResult<T>) -> PyResult<Option<T>> {
    match asked {
        Ok(said) => Ok(Some(said)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where an object is, which tells it from all others that are alive.
pub fn address(object: &Bound<'_, PyAny>) -> usize {
    object.as_ptr() as usize
}

/// Whether `object` is exactly of the type at `class`.
#[inline]
pub fn is_exactly(object: *mut ffi::PyObject, class: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: `object` is a live object wherever this is called.
    unsafe { ffi::Py_TYPE(object) == class }
}

/// Whether a value is an instance of a class, whatever it says itself (`__class__`).
pub fn is_a(value: &Bound<'_, PyAny>, class: *const ffi::PyTypeObject) -> bool {
    // SAFETY: a live object, and a class that is alive while it is called.
    unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(value.as_ptr()), class.cast_mut()) != 0 }
}

/// The members of a class with `__slots__` and of its bases.
///
/// # Errors
/// A class cannot be read.
pub fn owned_slots(class: &Bound<'_, PyType>) -> PyResult<Vec<Slot>> {
    let mut slots = Vec::new();
    for base in class.mro() {
        for member in base.getattr("__dict__")?.call_method0("values")?.try_iter()? {
            slots.extend(Slot::of_descriptor(&member?));
        }
    }
    Ok(slots)
}

/// What `read` makes of the bytes of an object that has a plain buffer; None where it has none.
pub fn with_bytes<R>(value: *mut ffi::PyObject, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
    // SAFETY: a live object wherever this is called; its buffer is read while it is held.
    unsafe {
        let mut view: ffi::Py_buffer = std::mem::zeroed();
        if ffi::PyObject_GetBuffer(value, &raw mut view, ffi::PyBUF_SIMPLE) != 0 {
            ffi::PyErr_Clear();
            return None;
        }
        let result = read(match view.len.unsigned_abs() {
            0 => &[],
            len => std::slice::from_raw_parts(view.buf.cast::<u8>(), len),
        });
        ffi::PyBuffer_Release(&raw mut view);
        Some(result)
    }
}

/// `T_OBJECT`, which classes made in C still use: an object, or null, which is read as None.
const OBJECT_OR_NONE: c_int = 6;

/// One member of a class with `__slots__`, by its offset in the instance.
#[derive(Clone, Copy, Debug)]
pub struct Slot(usize);

impl Slot {
    /// The offset of member `name` of `class`.
    ///
    /// # Errors
    /// `class` has no such slot.
    pub fn of(class: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        if let Some(slot) = Self::of_descriptor(&class.getattr(name)?) {
            return Ok(slot);
        }
        let class = string_of(&class.repr()?);
        Err(PyTypeError::new_err(format!("{class}.{name} is not a slot")))
    }

    /// The offset of a field of a class that is made in C, which holds an object.
    ///
    /// # Errors
    /// `class` has no such field.
    pub fn of_field(class: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        Self::of_member(&class.getattr(name)?, OBJECT_OR_NONE)
            .ok_or_else(|| PyTypeError::new_err(format!("{name} is not a field")))
    }

    /// The slot behind an attribute of a class; None where it is something else.
    pub fn of_descriptor(descriptor: &Bound<'_, PyAny>) -> Option<Self> {
        Self::of_member(descriptor, ffi::Py_T_OBJECT_EX)
    }

    fn of_member(descriptor: &Bound<'_, PyAny>, type_code: c_int) -> Option<Self> {
        // SAFETY: a member descriptor starts with PyMemberDescrObject; the type was checked.
        unsafe {
            if ffi::Py_TYPE(descriptor.as_ptr()) != &raw mut ffi::PyMemberDescr_Type {
                return None;
            }
            let member = *(*descriptor.as_ptr().cast::<ffi::PyMemberDescrObject>()).d_member;
            let has_object = member.type_code == type_code;
            usize::try_from(member.offset).ok().filter(|_| has_object).map(Self)
        }
    }

    /// What an object has at an offset that its class tells.
    pub fn at(offset: usize) -> Self {
        Self(offset)
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

    /// Puts `value` in the slot, which is empty.
    ///
    /// # Safety
    /// As `peek`.
    #[inline]
    pub unsafe fn fill(self, object: *mut ffi::PyObject, value: Bound<'_, PyAny>) {
        // SAFETY: as `peek`.
        unsafe { *self.place(object) = value.into_ptr() };
    }

    /// Drops the value of the slot.
    ///
    /// # Safety
    /// As `peek`.
    #[inline]
    pub unsafe fn empty(self, object: *mut ffi::PyObject) {
        // SAFETY: as `set`.
        unsafe {
            let old = ptr::replace(self.place(object), ptr::null_mut());
            ffi::Py_XDECREF(old);
        }
    }
}

/// Runs `body` attached to the interpreter; errors and panics become Python exceptions.
pub fn guarded<R>(failed: R, body: impl FnOnce(Python<'_>) -> PyResult<R>) -> R {
    Python::attach(|py| panics_as_errors(py, failed, || body(py)))
}

/// As `guarded`, for what CPython calls very often: pyo3 is not told that this thread is attached,
/// which costs more than the rest of a replayed call. It then only notes which `Py` to drop later,
/// so whatever drops some, or runs Python code, belongs in `attached`.
///
/// # Safety
/// The interpreter is attached.
pub unsafe fn guarded_by_caller<R>(
    failed: R,
    body: impl for<'py> FnOnce(Python<'py>) -> PyResult<R>,
) -> R {
    // SAFETY: as promised by the caller.
    let py = unsafe { Python::assume_attached() };
    panics_as_errors(py, failed, || body(py))
}

/// Runs `body` where pyo3 knows that this thread is attached.
pub fn attached<R>(body: impl FnOnce() -> R) -> R {
    Python::attach(|_| body())
}

#[inline]
fn panics_as_errors<R>(py: Python<'_>, failed: R, body: impl FnOnce() -> PyResult<R>) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
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
    }
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
    py: Python<'py>,
    positional: &'py [*mut ffi::PyObject],
    keywords: Keywords<'py>,
}

enum Keywords<'py> {
    Dict(Option<Bound<'py, PyDict>>),
    /// The names of the last arguments.
    Names(Option<Bound<'py, PyTuple>>, &'py [*mut ffi::PyObject]),
}

impl<'py> Args<'py> {
    /// The arguments of a call that is under way.
    ///
    /// # Safety
    /// `positional` is a tuple and `keywords` a dict or null; both live as long as `'py`.
    unsafe fn borrowed(
        py: Python<'py>,
        method: &'static str,
        positional: *mut ffi::PyObject,
        keywords: *mut ffi::PyObject,
    ) -> Self {
        // SAFETY: as promised by the caller; a tuple's items are in a row.
        unsafe {
            let items = ffi::PySequence_Fast_ITEMS(positional);
            let keywords = Bound::from_borrowed_ptr_or_opt(py, keywords);
            Self {
                method,
                py,
                positional: slice(items, ffi::PyTuple_GET_SIZE(positional).unsigned_abs()),
                keywords: Keywords::Dict(keywords.map(|dict| dict.cast_into_unchecked())),
            }
        }
    }

    /// The arguments of a vectorcall that is under way.
    ///
    /// # Safety
    /// `args` are `nargs` objects and one more for each name; all live as long as `'py`.
    unsafe fn of_vectorcall(
        py: Python<'py>,
        method: &'static str,
        args: *const *mut ffi::PyObject,
        nargs: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Self {
        // SAFETY: as promised by the caller.
        unsafe {
            let names = Bound::from_borrowed_ptr_or_opt(py, names)
                .map(|names| names.cast_into_unchecked::<PyTuple>());
            let nargs = nargs.unsigned_abs();
            let all = slice(args, nargs + names.as_ref().map_or(0, PyTupleMethods::len));
            let (positional, keywords) = all.split_at(nargs);
            Self { method, py, positional, keywords: Keywords::Names(names, keywords) }
        }
    }

    /// The argument at `index`, or named `name`.
    pub fn get(&self, index: usize, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        // SAFETY: alive as long as `'py`.
        let bound = |&object| unsafe { Bound::from_borrowed_ptr(self.py, object) };
        if let Some(argument) = self.positional.get(index) {
            return Ok(Some(bound(argument)));
        }
        match &self.keywords {
            Keywords::Dict(Some(keywords)) => keywords.get_item(name),
            Keywords::Names(Some(names), values) => {
                for (key, value) in names.iter_borrowed().zip(*values) {
                    if key.cast::<PyString>()?.to_str()? == name {
                        return Ok(Some(bound(value)));
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
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

/// # Safety
/// `items` points to `len` objects that outlive the result, or `len` is 0.
pub unsafe fn slice<'a>(items: *const *mut ffi::PyObject, len: usize) -> &'a [*mut ffi::PyObject] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(items, len) }
}

/// A method body: `(self, args) -> result`.
pub type Body = for<'py> fn(&Bound<'py, PyAny>, &Args<'py>) -> PyResult<Bound<'py, PyAny>>;

/// Called by the `extern "C"` functions that `method!` makes.
///
/// # Safety
/// The pointers are what CPython passes to a `METH_FASTCALL` | `METH_KEYWORDS` function.
pub unsafe fn call_method(
    name: &'static str,
    body: Body,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    guarded(ptr::null_mut(), |py| {
        // SAFETY: what CPython passes is alive during the call.
        let (slf, args) = unsafe {
            let args = Args::of_vectorcall(py, name, args, nargs, names);
            (Bound::from_borrowed_ptr(py, slf), args)
        };
        body(&slf, &args).map(Bound::into_ptr)
    })
}

/// Called by the `extern "C"` functions that `getter!` makes.
///
/// # Safety
/// `slf` is what CPython passes to a getter.
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
/// `slf` and `value` are what CPython passes to a setter.
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
/// The pointers are what CPython passes to `tp_init`.
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
            args: *const *mut pyo3::ffi::PyObject,
            nargs: pyo3::ffi::Py_ssize_t,
            names: *mut pyo3::ffi::PyObject,
        ) -> *mut pyo3::ffi::PyObject {
            // SAFETY: CPython calls this with the arguments of a keyword method.
            unsafe {
                $crate::python::cpython::native::call_method($name, $body, slf, args, nargs, names)
            }
        }
        pyo3::ffi::PyMethodDef {
            ml_name: concat!($name, "\0").as_ptr().cast(),
            ml_meth: pyo3::ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: entry },
            ml_flags: pyo3::ffi::METH_FASTCALL | pyo3::ffi::METH_KEYWORDS,
            ml_doc: std::ptr::null(),
        }
    }};
}
pub(in crate::python) use method;

/// A `PyGetSetDef` entry named `$name`; without a setter the attribute is read-only.
macro_rules! attribute {
    (@entry $name:literal, $get:path, $set:expr) => {{
        unsafe extern "C" fn getter(
            slf: *mut pyo3::ffi::PyObject,
            _: *mut std::ffi::c_void,
        ) -> *mut pyo3::ffi::PyObject {
            // SAFETY: CPython calls this as a getter.
            unsafe { $crate::python::cpython::native::call_getter($get, slf) }
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
            unsafe { $crate::python::cpython::native::call_setter($set, slf, value) }
        }
        attribute!(@entry $name, $get, Some(setter))
    }};
}
pub(in crate::python) use attribute;

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
/// CPython refused the type.
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

/// `object.__new__(class)`, for a class whose instances have attributes: until somebody asks for their
/// dict they have none.
///
/// # Errors
/// Out of memory.
pub fn instance<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let nothing = PyTuple::empty(class.py());
    // SAFETY: `object` has a tp_new, which returns a new reference or null with an error set; the class
    // is a heap type, and no subclass of another type of C.
    unsafe {
        let new = ffi::PyBaseObject_Type
            .tp_new
            .ok_or_else(|| PyTypeError::new_err("object has no __new__"))?;
        let made = new(class.as_type_ptr(), nothing.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(class.py(), made)
    }
}
