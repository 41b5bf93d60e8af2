//! Native callables that stand in for functions and methods.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use smallvec::SmallVec;

use crate::python::cache::call::{Site, call};
use crate::python::cpython::native::{guarded_by_caller, slice};
use crate::python::cpython::shared::Once;

/// How the arguments reach the trampoline of a function: its positional parameters, then those of
/// `*args` as a tuple, then its keyword-only parameters, then those of `**kwargs` as a dict.
pub struct Layout {
    pub positional: usize,
    pub varargs: bool,
    /// Names of the keyword-only parameters, and how many.
    pub keywords: Py<PyTuple>,
    pub num_keywords: usize,
    pub varkeywords: bool,
}

impl Layout {
    /// How many objects the trampoline passes.
    fn parameters(&self) -> usize {
        self.positional
            + usize::from(self.varargs)
            + self.num_keywords
            + usize::from(self.varkeywords)
    }
}

/// What a stand-in knows. Lives as long as the process.
pub struct Stand {
    pub site: Site,
    /// The function that it stands for, with code of its own.
    pub original: Py<PyAny>,
    /// None where the arguments come as they are.
    pub layout: Option<Layout>,
}

unsafe extern "C" {
    /// Not declared by pyo3.
    fn PyMethod_New(function: *mut ffi::PyObject, slf: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

#[repr(C)]
struct StandIn {
    base: ffi::PyObject,
    vectorcall: Option<ffi::vectorcallfunc>,
    stand: *const Stand,
}

static STAND_IN: Once<Py<PyType>> = Once::new();

fn stand_in_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = STAND_IN.get_or_try_init(py, || {
        let members: &'static mut [ffi::PyMemberDef] = vec![
            ffi::PyMemberDef {
                name: c"__vectorcalloffset__".as_ptr(),
                type_code: ffi::Py_T_PYSSIZET,
                offset: offset_of!(StandIn, vectorcall).cast_signed(),
                flags: ffi::Py_READONLY,
                doc: std::ptr::null(),
            },
            // SAFETY: an all-zero entry ends the table.
            unsafe { std::mem::zeroed() },
        ]
        .leak();
        let mut slots = [
            slot(ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut c_void),
            slot(ffi::Py_tp_descr_get, bind_method as *mut c_void),
            slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
            slot(0, std::ptr::null_mut()),
        ];
        let flags = ffi::Py_TPFLAGS_DEFAULT
            | ffi::Py_TPFLAGS_HAVE_VECTORCALL
            | ffi::Py_TPFLAGS_METHOD_DESCRIPTOR
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
        let mut spec = ffi::PyType_Spec {
            name: c"jaxide._core.StandIn".as_ptr(),
            basicsize: c_int::try_from(size_of::<StandIn>())?,
            itemsize: 0,
            flags: std::ffi::c_uint::try_from(flags)?,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: the spec is complete, its tables live for ever.
        let class =
            unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py))
}

fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

/// A callable that stands in for what `stand` describes.
///
/// # Errors
/// Out of memory.
pub fn new_stand_in(py: Python<'_>, stand: Stand) -> PyResult<Bound<'_, PyAny>> {
    let object = crate::python::cpython::native::allocate(stand_in_type(py)?)?;
    // SAFETY: a fresh instance of our type; the stand is never freed.
    unsafe {
        let stand_in = object.as_ptr().cast::<StandIn>();
        (*stand_in).vectorcall = Some(vectorcall);
        (*stand_in).stand = Box::leak(Box::new(stand));
    }
    Ok(object)
}

unsafe extern "C" fn bind_method(
    slf: *mut ffi::PyObject,
    instance: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython passes live objects, or null for access through the class.
    unsafe {
        if instance.is_null() {
            ffi::Py_INCREF(slf);
            slf
        } else {
            PyMethod_New(slf, instance)
        }
    }
}

unsafe extern "C" fn vectorcall(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargsf: usize,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: an instance of our type; CPython passes as many arguments as it says, with the
    // interpreter attached.
    unsafe {
        let stand = &*(*slf.cast::<StandIn>()).stand;
        let named = if kwnames.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(kwnames) };
        let len = ffi::PyVectorcall_NARGS(nargsf) + named;
        let args = slice(args, len.unsigned_abs());
        guarded_by_caller(std::ptr::null_mut(), |py| {
            call(py, &stand.site, args, kwnames, || proceed(py, stand, args, kwnames))
                .map(Bound::into_ptr)
        })
    }
}

/// Calls the function that a stand-in stands for.
fn proceed<'py>(
    py: Python<'py>,
    stand: &Stand,
    args: &[*mut ffi::PyObject],
    kwnames: *mut ffi::PyObject,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(layout) = &stand.layout else {
        let positional = args.len()
            - if kwnames.is_null() {
                0
            } else {
                // SAFETY: a tuple of the names of the last arguments.
                unsafe { ffi::PyTuple_GET_SIZE(kwnames) }.unsigned_abs()
            };
        // SAFETY: the arguments that CPython passed to us.
        return unsafe {
            let result = ffi::PyObject_Vectorcall(
                stand.original.as_ptr(),
                args.as_ptr(),
                positional,
                kwnames,
            );
            Bound::from_owned_ptr_or_err(py, result)
        };
    };
    if args.len() != layout.parameters() {
        return Err(PyRuntimeError::new_err(
            "a trampoline with other parameters than its function",
        ));
    }
    let (positional, rest) = args.split_at(layout.positional);
    let mut passed: SmallVec<[*mut ffi::PyObject; 12]> = SmallVec::from_slice(positional);
    let mut rest = rest.iter().copied();
    if layout.varargs
        && let Some(more) = rest.next()
    {
        // SAFETY: the trampoline's `*args`, a tuple that lives as long as its call.
        passed.extend(unsafe {
            (0..ffi::PyTuple_GET_SIZE(more)).map(|i| ffi::PyTuple_GET_ITEM(more, i))
        });
    }
    let positional = passed.len();
    passed.extend(rest.by_ref().take(layout.num_keywords));
    let original = stand.original.bind(py);
    let names = layout.keywords.bind(py);
    let names = match rest.next() {
        // SAFETY: the trampoline's `**kwargs`, a dict that lives as long as its call.
        Some(more) if unsafe { ffi::PyDict_Size(more) } > 0 => {
            // SAFETY: as above.
            let more = unsafe { Bound::from_borrowed_ptr(py, more) }.cast_into::<PyDict>()?;
            let mut all: Vec<Bound<'py, PyAny>> = names.iter().collect();
            for (name, value) in more.iter() {
                // The dict keeps the value.
                passed.push(value.as_ptr());
                all.push(name);
            }
            PyTuple::new(py, all)?
        }
        _ => names.clone(),
    };
    // SAFETY: as many positional arguments as said, then one for each name; all are alive.
    unsafe {
        let result = ffi::PyObject_Vectorcall(
            original.as_ptr(),
            passed.as_ptr(),
            positional,
            if names.is_empty() { std::ptr::null_mut() } else { names.as_ptr() },
        );
        Bound::from_owned_ptr_or_err(py, result)
    }
}
