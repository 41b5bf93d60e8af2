//! Avals, effects and debug info of jax, read into the IR.

use std::sync::Arc;

use pyo3::exceptions::{PyAssertionError, PyOverflowError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashMap;

use crate::ir::{ArrayType, BuildError, DType, DebugInfo, Dim, Type};

use crate::python::cpython::native::string_of;
use crate::python::cpython::shared::Shared;
use crate::python::jax::names::Jax;

/// What the trace reads off an aval, once.
pub struct AvalInfo {
    /// None where the IR has no description: such a type is opaque.
    pub ty: Option<Type>,
    /// The name of its class.
    pub name: Box<str>,
    pub is_high: bool,
    /// Has quasi-dynamic data (jax before 0.11).
    pub has_qdd: bool,
    /// Its mesh is empty, so `Primitive.bind` has nothing to check.
    pub empty_mesh: bool,
}

const MAX_AVALS: usize = 1 << 16;

type AvalCache = FxHashMap<usize, (Py<PyAny>, Arc<AvalInfo>)>;
static AVALS: Shared<Option<AvalCache>> = Shared::new(None);

/// The description of `aval`.
///
/// # Errors
/// Reading an attribute of the aval failed.
pub fn aval_info(jax: &Jax, aval: &Bound<'_, PyAny>) -> PyResult<Arc<AvalInfo>> {
    if !aval.get_type().is(&jax.shaped_array_type) {
        return read_aval(jax, aval).map(Arc::new);
    }
    let address = aval.as_ptr() as usize;
    let known = AVALS.peek(|avals| {
        let (_, info) = avals.as_ref()?.get(&address)?;
        Some(info.clone())
    });
    if let Some(info) = known {
        return Ok(info);
    }
    let info = Arc::new(read_aval(jax, aval)?);
    let entry = (aval.clone().unbind(), info.clone());
    let old = AVALS.peek(move |avals| {
        let avals = avals.get_or_insert_default();
        let full = (avals.len() >= MAX_AVALS).then(|| std::mem::take(avals));
        (avals.insert(address, entry), full)
    });
    drop(old);
    Ok(info)
}

/// Forgets the descriptions of avals.
pub fn forget_avals() {
    let old = AVALS.peek(Option::take);
    drop(old);
}

fn read_aval(jax: &Jax, aval: &Bound<'_, PyAny>) -> PyResult<AvalInfo> {
    let py = aval.py();
    let flag = |name: &str| -> PyResult<bool> {
        match aval.getattr_opt(name)? {
            Some(value) => value.is_truthy(),
            None => Ok(false),
        }
    };
    if !aval.is_instance(jax.abstract_value_type.bind(py))? {
        // jax's assertion where a variable is made.
        return Err(PyAssertionError::new_err((aval.clone().unbind(),)));
    }
    let interned = aval.get_type().is(&jax.shaped_array_type);
    let (ty, empty_mesh) = if interned {
        let mesh_is_empty =
            aval.getattr("sharding")?.getattr("mesh")?.getattr("empty")?.is_truthy()?;
        (Some(Type::Array(array_type(jax, aval, mesh_is_empty)?)), mesh_is_empty)
    } else {
        // Only ShapedArrays are checked against the mesh, but subclasses count as such.
        let shaped = aval.is_instance(jax.shaped_array_type.bind(py))?;
        (structured_type(jax, aval)?, !shaped)
    };
    Ok(AvalInfo {
        ty,
        name: aval.get_type().name()?.to_str()?.into(),
        is_high: flag("is_high")?,
        has_qdd: flag("has_qdd")?,
        empty_mesh,
    })
}

fn array_type(jax: &Jax, aval: &Bound<'_, PyAny>, empty_mesh: bool) -> PyResult<ArrayType> {
    let dtype = string_of(&aval.getattr("dtype")?.getattr("name")?.str()?);
    // numpy spells the dtype of float0 `void`.
    let dtype = if dtype.starts_with("void") { DType::Float0 } else { DType::from_name(&dtype) };
    let mut dims = Vec::new();
    for dim in aval.getattr("shape")?.try_iter()? {
        let dim = dim?;
        dims.push(match dim.extract::<u64>() {
            Ok(size) => Dim::Static(size),
            Err(_) => Dim::Symbolic(dim.str()?.to_str()?.into()),
        });
    }
    let mut ty = ArrayType::new(dtype, dims);
    ty.weak_type = aval.getattr("weak_type")?.is_truthy()?;
    let text =
        |value: Bound<'_, PyAny>| -> PyResult<Box<str>> { Ok(value.repr()?.to_str()?.into()) };
    if !empty_mesh {
        ty.sharding = Some(text(aval.getattr("sharding")?)?);
        ty.manual_axis_type = aval.getattr_opt("manual_axis_type")?.map(text).transpose()?;
    }
    let memory_space = aval.getattr("memory_space")?;
    let memory_space = memory_space.getattr_opt("name")?.unwrap_or(memory_space).str()?;
    let memory_space = string_of(&memory_space);
    ty.memory_space = (memory_space != "Device").then(|| memory_space.into());
    ty.layout = match aval.getattr_opt("layout")? {
        Some(layout) if !layout.is_none() && !layout.is(&jax.auto_layout) => Some(text(layout)?),
        _ => None,
    };
    Ok(ty)
}

/// The types other than arrays that the IR describes: Refs and tokens.
fn structured_type(jax: &Jax, aval: &Bound<'_, PyAny>) -> PyResult<Option<Type>> {
    let class = string_of(&aval.get_type().name()?);
    if class == "AbstractToken" {
        return Ok(Some(Type::Token));
    }
    if class == "AbstractRef" {
        let inner = aval.getattr("inner_aval")?;
        let Some(inner) = aval_info(jax, &inner)?.ty.clone() else { return Ok(None) };
        let text = |name: &str| -> PyResult<Option<Box<str>>> {
            Ok(match aval.getattr_opt(name)? {
                Some(value) if !value.is_none() => Some(value.str()?.to_str()?.into()),
                _ => None,
            })
        };
        return Ok(Some(Type::Ref {
            inner: Box::new(inner),
            memory_space: text("memory_space")?,
            kind: text("kind")?,
        }));
    }
    Ok(None)
}

/// jax's `DebugInfo` in the IR's words.
pub fn debug_info(debug_info: &Bound<'_, PyAny>) -> PyResult<DebugInfo> {
    if debug_info.is_none() {
        return Ok(DebugInfo::default());
    }
    let names = |attribute: &str| -> PyResult<Option<Vec<Box<str>>>> {
        let names = debug_info.getattr(attribute)?;
        match names.cast::<PyTuple>() {
            Ok(names) => names
                .iter()
                .map(|name| Ok(name.str()?.to_str()?.into()))
                .collect::<PyResult<_>>()
                .map(Some),
            Err(_) => Ok(None),
        }
    };
    let text = |attribute: &str| -> PyResult<Box<str>> {
        Ok(debug_info.getattr(attribute)?.str()?.to_str()?.into())
    };
    Ok(DebugInfo {
        traced_for: text("traced_for")?,
        func_src_info: text("func_src_info")?,
        arg_names: names("arg_names")?,
        result_paths: names("result_paths")?,
    })
}

/// What a refusal of the builder is to Python.
pub fn build_error(error: BuildError) -> PyErr {
    match error {
        BuildError::TooMany { .. } => PyOverflowError::new_err(error.to_string()),
        other => PyRuntimeError::new_err(format!("jaxide: {other}")),
    }
}
