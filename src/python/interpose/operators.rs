//! Number slots of the tracer type.
//!
//! CPython calls a slot with its operands in the order they were written, so a slot first finds
//! which of them is the tracer, and stands for the method of jax's tracer that CPython would
//! have called: `__add__` of the left operand, or `__radd__` of the right one.

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cache::call::{Site, call};
use crate::python::cpython::native::{guarded_by_caller, is_exactly};
use crate::python::cpython::shared::Once;
use crate::python::jax::names::Jax;
use crate::python::jax::world::{Difference, difference};
use crate::python::trace::tracer;

/// A method of jax's tracer behind a slot.
struct Operator {
    site: Site,
    method: Py<PyAny>,
}

const NAMES: [&str; 38] = [
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__mul__",
    "__rmul__",
    "__truediv__",
    "__rtruediv__",
    "__floordiv__",
    "__rfloordiv__",
    "__mod__",
    "__rmod__",
    "__divmod__",
    "__rdivmod__",
    "__pow__",
    "__rpow__",
    "__matmul__",
    "__rmatmul__",
    "__lshift__",
    "__rlshift__",
    "__rshift__",
    "__rrshift__",
    "__and__",
    "__rand__",
    "__or__",
    "__ror__",
    "__xor__",
    "__rxor__",
    "__neg__",
    "__pos__",
    "__abs__",
    "__invert__",
    "__lt__",
    "__le__",
    "__eq__",
    "__ne__",
    "__gt__",
    "__ge__",
];
const GETITEM: usize = NAMES.len();

static OPERATORS: Once<Vec<Operator>> = Once::new();

/// Looks up the methods that the slots stand for.
///
/// # Errors
/// jax's tracer lacks one.
pub fn initialize(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    let class = jax.tracer_type.bind(py);
    let operators = NAMES
        .iter()
        .chain(&["__getitem__"])
        .map(|name| {
            let site = Site::pure(&format!("Array.{name}")).lasting("operator", name);
            // With the code it has now: the method itself is interposed for other tracers.
            let method = uninterposed(jax, &class.getattr(*name)?)?;
            Ok(Operator { site, method: method.unbind() })
        })
        .collect::<PyResult<_>>()?;
    let _ = OPERATORS.set(py, operators);
    Ok(())
}

/// A method of jax's tracer as it is when nothing is traced.
///
/// # Errors
/// Out of memory.
pub fn uninterposed<'py>(jax: &Jax, method: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if method.get_type_ptr() == &raw mut ffi::PyFunction_Type {
        return jax.copy_code.bind(method.py()).call1((method,));
    }
    Ok(method.clone())
}

fn apply<'py>(
    py: Python<'py>,
    index: usize,
    args: &[*mut ffi::PyObject],
) -> PyResult<Bound<'py, PyAny>> {
    let operator = OPERATORS.get(py).and_then(|operators| operators.get(index));
    let Some(operator) = operator else { return Ok(py.NotImplemented().into_bound(py)) };
    call(py, &operator.site, args, std::ptr::null_mut(), || {
        let method = match difference(py)? {
            // Somebody may have put another method on jax's class.
            Difference::Total => current(py, index)?,
            _ => operator.method.bind(py).clone(),
        };
        // SAFETY: operands of the operation under way.
        unsafe {
            let result = ffi::PyObject_Vectorcall(
                method.as_ptr(),
                args.as_ptr(),
                args.len(),
                std::ptr::null_mut(),
            );
            Bound::from_owned_ptr_or_err(py, result)
        }
    })
}

/// The method that jax's class has now.
#[cold]
fn current(py: Python<'_>, index: usize) -> PyResult<Bound<'_, PyAny>> {
    let name = NAMES.get(index).copied().unwrap_or("__getitem__");
    crate::python::jax::names::jax(py)?.tracer_type.bind(py).getattr(name)
}

fn binary(
    py: Python<'_>,
    index: usize,
    left: *mut ffi::PyObject,
    right: *mut ffi::PyObject,
) -> PyResult<Bound<'_, PyAny>> {
    let ours = |operand| is_exactly(operand, tracer::class_pointer(py));
    if ours(left) {
        return apply(py, index, &[left, right]);
    }
    let jax = crate::python::jax::names::jax(py)?;
    // SAFETY: a live object's type; no Python runs.
    let stock =
        unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(left), jax.tracer_type.as_ptr().cast()) != 0 };
    if stock {
        // CPython asks a subclass first; to jax both are of one class.
        return apply(py, index, &[left, right]);
    }
    apply(py, index + 1, &[right, left])
}

/// Runs the body of a slot.
fn slot(
    body: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls slots with the interpreter attached.
    unsafe { guarded_by_caller(std::ptr::null_mut(), |py| body(py).map(Bound::into_ptr)) }
}

macro_rules! slots {
    ($( $kind:ident $slot:ident = $index:expr ),* $(,)?) => {
        /// The slots of the tracer type.
        pub fn slots() -> Vec<(c_int, *mut c_void)> {
            vec![ $( (ffi::$slot, slots!(@function $kind $index)) ),* ]
        }
    };
    (@function binary $index:expr) => {{
        unsafe extern "C" fn function(
            left: *mut ffi::PyObject,
            right: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            slot(|py| binary(py, $index, left, right))
        }
        function as *mut c_void
    }};
    (@function unary $index:expr) => {{
        unsafe extern "C" fn function(operand: *mut ffi::PyObject) -> *mut ffi::PyObject {
            slot(|py| apply(py, $index, &[operand]))
        }
        function as *mut c_void
    }};
    (@function power $index:expr) => {{
        unsafe extern "C" fn function(
            base: *mut ffi::PyObject,
            exponent: *mut ffi::PyObject,
            modulus: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            slot(|py| {
                // SAFETY: the singleton.
                if modulus == unsafe { ffi::Py_None() } {
                    return binary(py, $index, base, exponent);
                }
                if is_exactly(base, tracer::class_pointer(py)) {
                    return apply(py, $index, &[base, exponent, modulus]);
                }
                Ok(py.NotImplemented().into_bound(py))
            })
        }
        function as *mut c_void
    }};
    (@function item $index:expr) => {{
        unsafe extern "C" fn function(
            object: *mut ffi::PyObject,
            key: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            slot(|py| apply(py, $index, &[object, key]))
        }
        function as *mut c_void
    }};
    (@function compare $index:expr) => {{
        unsafe extern "C" fn function(
            left: *mut ffi::PyObject,
            right: *mut ffi::PyObject,
            operation: c_int,
        ) -> *mut ffi::PyObject {
            // Py_LT to Py_GE are 0 to 5.
            let operation = usize::try_from(operation).unwrap_or(0);
            slot(|py| apply(py, $index + operation, &[left, right]))
        }
        function as *mut c_void
    }};
}

slots! {
    binary Py_nb_add = 0,
    binary Py_nb_subtract = 2,
    binary Py_nb_multiply = 4,
    binary Py_nb_true_divide = 6,
    binary Py_nb_floor_divide = 8,
    binary Py_nb_remainder = 10,
    binary Py_nb_divmod = 12,
    power Py_nb_power = 14,
    binary Py_nb_matrix_multiply = 16,
    binary Py_nb_lshift = 18,
    binary Py_nb_rshift = 20,
    binary Py_nb_and = 22,
    binary Py_nb_or = 24,
    binary Py_nb_xor = 26,
    unary Py_nb_negative = 28,
    unary Py_nb_positive = 29,
    unary Py_nb_absolute = 30,
    unary Py_nb_invert = 31,
    compare Py_tp_richcompare = 32,
    item Py_mp_subscript = GETITEM,
}
