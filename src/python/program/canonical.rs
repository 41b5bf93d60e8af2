//! Params of equations in their canonical form, which the IR owns.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType,
};

use crate::ir::{Builder, DType, ParamValue, Params, SubprogramId};

use crate::python::cpython::native::{entries, string_of};
use crate::python::jax::names::Jax;
use crate::python::jax::values::{MAX_DEPTH, value_classes};
use crate::python::program::objects::ObjectTable;

/// The canonical form of a params dict.
///
/// # Errors
/// A name is not a string, or reading a value failed.
pub fn canonical_params(
    jax: &Jax,
    builder: &mut Builder,
    table: &mut ObjectTable,
    params: &Bound<'_, PyDict>,
) -> PyResult<Params> {
    let mut canonical = Canonical { jax, builder, table };
    let mut fields = Vec::with_capacity(params.len());
    for (name, value) in entries(params) {
        let name: Box<str> = name.cast::<PyString>()?.to_str()?.into();
        fields.push((name, canonical.value(&value, 0)?));
    }
    Params::new(fields).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The canonical form of one value.
///
/// # Errors
/// Reading it failed.
pub fn canonical_value(
    jax: &Jax,
    builder: &mut Builder,
    table: &mut ObjectTable,
    value: &Bound<'_, PyAny>,
) -> PyResult<ParamValue> {
    Canonical { jax, builder, table }.value(value, 0)
}

/// Where nested programs and objects without a canonical form go.
struct Canonical<'a> {
    jax: &'a Jax,
    builder: &'a mut Builder,
    table: &'a mut ObjectTable,
}

impl Canonical<'_> {
    fn value(&mut self, value: &Bound<'_, PyAny>, depth: u32) -> PyResult<ParamValue> {
        let py = value.py();
        if let Some(scalar) = self.scalar(value)? {
            return Ok(scalar);
        }
        if depth == MAX_DEPTH {
            return Ok(self.opaque(value));
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            return Ok(ParamValue::Tuple(self.items(tuple.iter(), depth)?));
        }
        let class = value.get_type();
        if class.is(&self.jax.jaxpr_type)
            || class.is(&self.jax.closed_jaxpr_type)
            || value.is_instance(self.jax.jaxpr_type.bind(py))?
        {
            let object = self.table.handle(value);
            return Ok(ParamValue::Program(self.builder.subprogram(object)));
        }
        let classes = value_classes(py)?;
        if value.is_instance(classes.dtype.bind(py))? {
            return self.dtype(value);
        }
        if class.get_type().is_subclass(classes.enum_meta.bind(py))? {
            return Ok(ParamValue::Enum {
                type_name: qualified_name(&class)?,
                member: value.getattr(intern!(py, "name"))?.str()?.to_str()?.into(),
            });
        }
        if let Some((names, items)) = fields_of(self.jax, value, &class)? {
            let type_name = qualified_name(&class)?;
            let mut fields = Vec::with_capacity(names.len());
            for (name, item) in names.iter().zip(items) {
                let name: Box<str> = name.str()?.to_str()?.into();
                fields.push((name, self.value(&item, depth + 1)?));
            }
            return Ok(ParamValue::Named { type_name, fields: fields.into() });
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            return Ok(ParamValue::List(self.items(list.iter(), depth)?));
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            let mut items = Vec::with_capacity(dict.len());
            for (key, item) in entries(dict) {
                let key = self.value(&key, depth + 1)?;
                items.push((key, self.value(&item, depth + 1)?));
            }
            return Ok(ParamValue::Dict(items.into()));
        }
        if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            return Ok(ParamValue::Bytes(bytes.as_bytes().into()));
        }
        if let Ok(complex) = value.cast_exact::<PyComplex>() {
            return Ok(ParamValue::Complex(complex.real().to_bits(), complex.imag().to_bits()));
        }
        Ok(self.opaque(value))
    }

    /// What most params are: None, numbers and texts.
    fn scalar(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<ParamValue>> {
        if value.is_none() {
            return Ok(Some(ParamValue::None));
        }
        if let Ok(value) = value.cast_exact::<PyBool>() {
            return Ok(Some(ParamValue::Bool(value.is_true())));
        }
        if let Ok(int) = value.cast_exact::<PyInt>() {
            return Ok(Some(match int.extract::<i64>() {
                Ok(small) => ParamValue::Int(small),
                Err(_) => ParamValue::BigInt(int.str()?.to_str()?.into()),
            }));
        }
        if let Ok(string) = value.cast_exact::<PyString>() {
            // A string with lone surrogates has no UTF-8 form.
            return Ok(Some(match string.to_str() {
                Ok(utf8) => ParamValue::Str(utf8.into()),
                Err(_) => self.opaque(value),
            }));
        }
        let float = value.cast_exact::<PyFloat>();
        Ok(float.ok().map(|float| ParamValue::Float(float.value().to_bits())))
    }

    fn items<'py>(
        &mut self,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: u32,
    ) -> PyResult<Box<[ParamValue]>> {
        items.map(|item| self.value(&item, depth + 1)).collect()
    }

    fn dtype(&mut self, dtype: &Bound<'_, PyAny>) -> PyResult<ParamValue> {
        let py = dtype.py();
        let name = string_of(&dtype.getattr(intern!(py, "name"))?.str()?);
        // The name says neither the order of bytes nor what somebody has noted on the dtype.
        let is_plain = dtype.getattr(intern!(py, "isnative"))?.is_truthy()?
            && dtype.getattr(intern!(py, "metadata"))?.is_none();
        Ok(match DType::from_name(&name) {
            DType::Extended(_) => self.opaque(dtype),
            plain if is_plain => ParamValue::DType(plain),
            _ => self.opaque(dtype),
        })
    }

    fn opaque(&mut self, value: &Bound<'_, PyAny>) -> ParamValue {
        ParamValue::Opaque(self.table.handle(value))
    }
}

/// The name of a class with its module. (pyo3's function formats the parts as objects: where a signal
/// handler raises meanwhile, it writes that they cannot be printed, and goes on.)
fn qualified_name(class: &Bound<'_, PyType>) -> PyResult<Box<str>> {
    let py = class.py();
    let part = |name| PyResult::Ok(class.getattr(name)?.cast_into::<PyString>()?);
    let (module, name) = (part(intern!(py, "__module__"))?, part(intern!(py, "__qualname__"))?);
    let (module, name) = (module.to_str()?, name.to_str()?);
    Ok(match module {
        "builtins" | "__main__" => name.into(),
        _ => format!("{module}.{name}").into(),
    })
}

/// The names and values of what a named tuple of a module or a tree of jax's is made of.
#[allow(clippy::type_complexity)] // names and values
fn fields_of<'py>(
    jax: &Jax,
    value: &Bound<'py, PyAny>,
    class: &Bound<'py, PyType>,
) -> PyResult<Option<(Bound<'py, PyTuple>, Vec<Bound<'py, PyAny>>)>> {
    let py = value.py();
    if let Ok(tuple) = value.cast::<PyTuple>() {
        let Some(names) = class.getattr_opt(intern!(py, "_fields"))? else { return Ok(None) };
        let Ok(names) = names.cast_into::<PyTuple>() else { return Ok(None) };
        let is_local = qualified_name(class)?.contains("<locals>");
        let is_whole = names.len() == tuple.len() && !is_local;
        return Ok(is_whole.then(|| (names, tuple.iter().collect())));
    }
    let Some(names) = jax.tree_fields.bind(py).get_item(class)? else { return Ok(None) };
    let names = names.cast_into::<PyTuple>()?;
    let read = |name: Bound<'py, PyAny>| value.getattr(name.cast::<PyString>()?);
    let items = names.iter().map(read).collect::<PyResult<_>>()?;
    Ok(Some((names, items)))
}

/// The programs among params that have been read, each with the object that is in its place in
/// another dict of the same form.
///
/// # Errors
/// The dict has another form.
pub fn programs_of<'py>(
    params: &Params,
    dict: &Bound<'py, PyDict>,
) -> PyResult<Vec<(SubprogramId, Bound<'py, PyAny>)>> {
    let mut found = Vec::new();
    let mut pending = Vec::new();
    for (name, value) in params.iter() {
        pending.push((value, dict.as_any().get_item(name)?));
    }
    while let Some((value, object)) = pending.pop() {
        match value {
            ParamValue::Program(id) => found.push((*id, object)),
            ParamValue::Tuple(items) | ParamValue::List(items) => {
                for (position, item) in items.iter().enumerate() {
                    pending.push((item, object.get_item(position)?));
                }
            }
            ParamValue::Dict(entries) => {
                let objects = object.cast::<PyDict>()?.values();
                pending.extend(entries.iter().map(|(_, item)| item).zip(objects));
            }
            ParamValue::Named { fields, .. } => {
                for (name, item) in fields {
                    pending.push((item, object.getattr(&**name)?));
                }
            }
            _ => {}
        }
    }
    Ok(found)
}
