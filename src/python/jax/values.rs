//! Params of equations and other values: a typed hash and equality without Python.
//!
//! The typed forms never call Python code: `1`, `True` and `1.0` differ, tuples are compared
//! element by element with their class, floats by their bits, and objects that exist once (enum
//! members, dtypes, classes) by identity. Anything else has no typed hash, and a call that carries
//! it is not remembered.

use std::hash::Hasher;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyFloat, PyInt, PyType};
use rustc_hash::FxHasher;

use crate::python::cpython::native::{is_a, is_exactly};
use crate::python::cpython::shared::Once;
use crate::python::jax::names::Jax;

/// Deeper nesting than this is neither hashed nor read: bounded recursion.
pub const MAX_DEPTH: u32 = 32;

/// Classes of values that are compared in a way of their own.
pub struct ValueClasses {
    pub enum_meta: Py<PyType>,
    pub dtype: Py<PyType>,
    /// The class of dtypes with fields, whose names may be changed.
    pub void_dtype: Py<PyType>,
    pub numpy_scalar: Py<PyType>,
    pub numpy_array: Py<PyType>,
    pub ufunc: Py<PyType>,
}

static CLASSES: Once<ValueClasses> = Once::new();

/// The classes, looked up once.
///
/// # Errors
/// numpy cannot be imported.
pub fn value_classes(py: Python<'_>) -> PyResult<&ValueClasses> {
    CLASSES.get_or_try_init(py, || {
        let class = |module: &str, name: &str| -> PyResult<Py<PyType>> {
            Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        Ok(ValueClasses {
            enum_meta: class("enum", "EnumMeta")?,
            dtype: class("numpy", "dtype")?,
            void_dtype: class("numpy.dtypes", "VoidDType")?,
            numpy_scalar: class("numpy", "generic")?,
            numpy_array: class("numpy", "ndarray")?,
            ufunc: class("numpy", "ufunc")?,
        })
    })
}

/// Whether others may have the value of a literal, and write to it or delete it: any but numbers, and
/// but arrays that jax has made of numbers. Such an array is a view, maybe of further views
/// (`np.array(1.0).view("uint32")` in `jax.random.uniform`), and nothing else refers to what these
/// are views of.
///
/// # Errors
/// numpy cannot be imported.
pub fn is_of_others(jax: &Jax, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let classes = value_classes(value.py())?;
    if !value.get_type().is(&jax.typed_array_type) {
        let is_number = value.is_instance_of::<PyFloat>()
            || value.is_instance_of::<PyInt>()
            || value.is_instance_of::<PyComplex>()
            || is_a(value, classes.numpy_scalar.as_ptr().cast());
        return Ok(!is_number);
    }
    let base = intern!(value.py(), "base");
    let mut viewed = value.getattr(base)?;
    while !viewed.is_none() {
        // SAFETY: a live object.
        let references = unsafe { ffi::Py_REFCNT(viewed.as_ptr()) };
        // The view refers to it, and `viewed` does.
        if references != 2 || !viewed.get_type().is(&classes.numpy_array) {
            return Ok(true);
        }
        viewed = viewed.getattr(base)?;
    }
    Ok(false)
}

/// How the typed forms treat a value.
enum Form {
    Identity,
    Int,
    Float,
    Str,
    Tuple,
    Unknown,
}

fn form(classes: &ValueClasses, value: *mut ffi::PyObject) -> Form {
    // SAFETY: `value` is live; only type pointers are compared.
    unsafe {
        let class = ffi::Py_TYPE(value);
        if value == ffi::Py_None()
            || class == &raw mut ffi::PyBool_Type
            || value == ffi::Py_Ellipsis()
        {
            Form::Identity
        } else if class == &raw mut ffi::PyLong_Type {
            Form::Int
        } else if class == &raw mut ffi::PyUnicode_Type {
            Form::Str
        } else if ffi::PyTuple_Check(value) != 0 {
            Form::Tuple
        } else if class == &raw mut ffi::PyFloat_Type {
            Form::Float
        } else if class == classes.void_dtype.as_ptr().cast() {
            Form::Unknown
        } else if ffi::PyType_Check(value) != 0
            || ffi::PyType_IsSubtype(class, classes.dtype.as_ptr().cast()) != 0
            || ffi::PyType_IsSubtype(ffi::Py_TYPE(class.cast()), classes.enum_meta.as_ptr().cast())
                != 0
        {
            Form::Identity
        } else {
            Form::Unknown
        }
    }
}

fn hash_value(
    classes: &ValueClasses,
    hasher: &mut FxHasher,
    value: *mut ffi::PyObject,
    depth: u32,
) -> bool {
    // SAFETY: `value` is live and has the exact type that `form` found; none of these calls runs
    // Python code.
    unsafe {
        match form(classes, value) {
            Form::Identity => hasher.write_usize(value as usize),
            Form::Int => {
                let mut overflow = 0;
                let small = ffi::PyLong_AsLongLongAndOverflow(value, &raw mut overflow);
                if overflow != 0 {
                    return false;
                }
                hasher.write_i64(small);
            }
            Form::Float => hasher.write_u64(ffi::PyFloat_AS_DOUBLE(value).to_bits()),
            Form::Str => hasher.write_isize(ffi::PyObject_Hash(value)),
            Form::Tuple => {
                if depth == MAX_DEPTH {
                    return false;
                }
                let len = ffi::PyTuple_GET_SIZE(value);
                hasher.write_usize(ffi::Py_TYPE(value) as usize);
                hasher.write_isize(len);
                for i in 0..len {
                    if !hash_value(classes, hasher, ffi::PyTuple_GET_ITEM(value, i), depth + 1) {
                        return false;
                    }
                }
            }
            Form::Unknown => return false,
        }
    }
    true
}

fn equal_values(
    classes: &ValueClasses,
    a: *mut ffi::PyObject,
    b: *mut ffi::PyObject,
    depth: u32,
) -> bool {
    if a == b {
        return true;
    }
    // SAFETY: as in `hash_value`.
    unsafe {
        if ffi::Py_TYPE(a) != ffi::Py_TYPE(b) {
            return false;
        }
        match form(classes, a) {
            Form::Identity | Form::Unknown => false,
            Form::Int => {
                let (mut over_a, mut over_b) = (0, 0);
                let small_a = ffi::PyLong_AsLongLongAndOverflow(a, &raw mut over_a);
                let small_b = ffi::PyLong_AsLongLongAndOverflow(b, &raw mut over_b);
                over_a == 0 && over_b == 0 && small_a == small_b
            }
            Form::Float => {
                ffi::PyFloat_AS_DOUBLE(a).to_bits() == ffi::PyFloat_AS_DOUBLE(b).to_bits()
            }
            Form::Str => ffi::PyUnicode_Compare(a, b) == 0,
            Form::Tuple => {
                let len = ffi::PyTuple_GET_SIZE(a);
                depth < MAX_DEPTH
                    && len == ffi::PyTuple_GET_SIZE(b)
                    && (0..len).all(|i| {
                        equal_values(
                            classes,
                            ffi::PyTuple_GET_ITEM(a, i),
                            ffi::PyTuple_GET_ITEM(b, i),
                            depth + 1,
                        )
                    })
            }
        }
    }
}

/// A hash under which typed-equal values agree; None where the value cannot be keyed.
pub fn typed_hash(value: &Bound<'_, PyAny>) -> Option<u64> {
    let classes = value_classes(value.py()).ok()?;
    let mut hasher = FxHasher::default();
    hash_value(classes, &mut hasher, value.as_ptr(), 0).then(|| hasher.finish())
}

/// Whether two values that have a typed hash are the same.
pub fn typed_equal(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    value_classes(a.py()).is_ok_and(|classes| equal_values(classes, a.as_ptr(), b.as_ptr(), 0))
}

/// Feeds the names and values of a params dict; false where one cannot be keyed.
pub fn hash_params(params: &Bound<'_, PyDict>, hasher: &mut FxHasher) -> bool {
    let Ok(classes) = value_classes(params.py()) else { return false };
    let mut position = 0;
    let (mut name, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: PyDict_Next lends the entries; nothing runs that could change the dict.
    unsafe {
        while ffi::PyDict_Next(params.as_ptr(), &raw mut position, &raw mut name, &raw mut value)
            != 0
        {
            if !is_exactly(name, &raw mut ffi::PyUnicode_Type) {
                return false;
            }
            hasher.write_isize(ffi::PyObject_Hash(name));
            if !hash_value(classes, hasher, value, 0) {
                return false;
            }
        }
    }
    true
}

/// Whether two params dicts have the same names and typed-equal values in the same order.
pub fn equal_params(a: &Bound<'_, PyDict>, b: &Bound<'_, PyDict>) -> bool {
    let Ok(classes) = value_classes(a.py()) else { return false };
    if a.len() != b.len() {
        return false;
    }
    let (mut pos_a, mut pos_b) = (0, 0);
    let (mut name_a, mut value_a) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (mut name_b, mut value_b) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: as in `hash_params`.
    unsafe {
        while ffi::PyDict_Next(a.as_ptr(), &raw mut pos_a, &raw mut name_a, &raw mut value_a) != 0
            && ffi::PyDict_Next(b.as_ptr(), &raw mut pos_b, &raw mut name_b, &raw mut value_b) != 0
        {
            if !equal_values(classes, name_a, name_b, 0)
                || !equal_values(classes, value_a, value_b, 0)
            {
                return false;
            }
        }
    }
    true
}
