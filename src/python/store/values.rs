//! Values as Python has them.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyTuple};

use crate::ir::ParamValue;

/// The object that a value is. `objects` has the NaN that stands for all, makes dtypes, members of enumerations and
/// named tuples; `made` says what a program or an opaque value is.
///
/// # Errors
/// What `objects` raises; a value that `made` does not know.
pub fn make_value<'py>(
    objects: &Bound<'py, PyAny>,
    value: &ParamValue,
    made: &dyn Fn(&ParamValue) -> Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = objects.py();
    let all = |items: &[ParamValue]| -> PyResult<Vec<Bound<'py, PyAny>>> {
        items.iter().map(|item| make_value(objects, item, made)).collect()
    };
    Ok(match value {
        ParamValue::None => py.None().into_bound(py),
        ParamValue::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        ParamValue::Int(value) => value.into_pyobject(py)?.into_any(),
        ParamValue::BigInt(digits) => py.get_type::<PyInt>().call1((&**digits,))?,
        ParamValue::Float(bits) if *bits == f64::NAN.to_bits() => {
            objects.getattr(intern!(py, "nan"))?
        }
        ParamValue::Float(bits) => PyFloat::new(py, f64::from_bits(*bits)).into_any(),
        ParamValue::Complex(real, imaginary) => {
            let [real, imaginary] = [real, imaginary].map(|bits| f64::from_bits(*bits));
            PyComplex::from_doubles(py, real, imaginary).into_any()
        }
        ParamValue::Str(text) | ParamValue::Dim(text) => text.into_pyobject(py)?.into_any(),
        ParamValue::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        ParamValue::DType(dtype) => objects.call_method1(intern!(py, "dtype"), (dtype.name(),))?,
        ParamValue::Enum { type_name, member } => {
            objects.call_method1(intern!(py, "member"), (&**type_name, &**member))?
        }
        ParamValue::Tuple(items) => PyTuple::new(py, all(items)?)?.into_any(),
        ParamValue::List(items) => PyList::new(py, all(items)?)?.into_any(),
        ParamValue::Dict(entries) => {
            let dict = PyDict::new(py);
            for (key, item) in entries {
                dict.set_item(make_value(objects, key, made)?, make_value(objects, item, made)?)?;
            }
            dict.into_any()
        }
        ParamValue::Named { type_name, fields } => {
            let dict = PyDict::new(py);
            for (name, item) in fields {
                dict.set_item(&**name, make_value(objects, item, made)?)?;
            }
            objects.call_method1(intern!(py, "named"), (&**type_name, dict))?
        }
        ParamValue::Program(_) | ParamValue::Opaque(_) => {
            made(value).ok_or_else(|| PyValueError::new_err("an object that is not there"))?
        }
    })
}
