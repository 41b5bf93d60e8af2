//! What jax does with each leaf of a function's arguments and results, done with all of them at
//! once where every leaf is a traced array.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::graph::borrow_mut;
use super::jax::{Jax, jax};
use super::side::is_exactly;
use super::source::SourceRef;
use super::trace::{frame_of, is_ours};
use super::tracer::{class_pointer, new_tracer};

/// The type of a tracer of ours, where it is that of an array.
fn array_type<'py>(jax: &Jax, value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if !is_exactly(value.as_ptr(), class_pointer(value.py())) {
        return None;
    }
    // SAFETY: the exact type was checked; it has jax's slots.
    let aval = unsafe { jax.slots.tracer_aval.get(value) }?;
    is_shaped_array(jax, &aval).then_some(aval)
}

fn is_shaped_array(jax: &Jax, aval: &Bound<'_, PyAny>) -> bool {
    is_exactly(aval.as_ptr(), jax.shaped_array_type.as_ptr().cast())
}

/// Stands in for `FlatTree.map(f)`.
#[pyfunction]
pub fn map_leaves<'py>(
    tree: &Bound<'py, PyAny>,
    f: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tree.py();
    let jax = jax(py)?;
    let leaves = tree.getattr(jax.flat_tree_leaves.bind(py))?;
    let mapped = match leaves.cast_exact::<PyTuple>() {
        Ok(leaves) if f.is(&jax.typeof_fn) => types_of(jax, leaves)?,
        Ok(leaves) if f.is(&jax.canonicalize_value) => {
            leaves.iter().all(|leaf| array_type(jax, &leaf).is_some()).then(|| leaves.clone())
        }
        Ok(leaves) if f.is_exact_instance(jax.partial_type.bind(py)) => new_inputs(jax, leaves, f)?,
        _ => None,
    };
    match mapped {
        Some(mapped) => jax.flat_tree_with_leaves.bind(py).call1((tree, mapped)),
        None => jax.stock_flat_tree_map.bind(py).call1((tree, f)),
    }
}

fn types_of<'py>(jax: &Jax, leaves: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let types: Option<Vec<_>> = leaves.iter().map(|leaf| array_type(jax, &leaf)).collect();
    types.map(|types| PyTuple::new(leaves.py(), types)).transpose()
}

/// `trace.new_arg(aval, source_info=...)` for each type, where `f` is such a partial call.
fn new_inputs<'py>(
    jax: &Jax,
    avals: &Bound<'py, PyTuple>,
    f: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = f.py();
    let method = f.getattr(intern!(py, "func"))?;
    let Some(trace) = method.getattr_opt(intern!(py, "__self__"))? else { return Ok(None) };
    if !is_ours(py, trace.as_ptr())
        || !method.getattr(intern!(py, "__name__"))?.eq(intern!(py, "new_arg"))?
        || f.getattr(intern!(py, "args"))?.len()? > 0
        || !avals.iter().all(|aval| is_shaped_array(jax, &aval))
    {
        return Ok(None);
    }
    let keywords = f.getattr(intern!(py, "keywords"))?;
    let (Ok(source), 1) = (keywords.get_item(intern!(py, "source_info")), keywords.len()?) else {
        return Ok(None);
    };
    let source = SourceRef::of(jax, &source)?;
    let Some(frame) = frame_of(jax, &trace) else { return Ok(None) };
    let (source, inputs) = {
        let mut frame = borrow_mut(&frame);
        let source = frame.source(&source)?;
        let inputs: Vec<_> =
            avals.iter().map(|aval| frame.new_invar(jax, &aval)).collect::<PyResult<_>>()?;
        (source, inputs)
    };
    let tracers = avals.iter().zip(inputs);
    let tracers: Vec<_> = tracers
        .map(|(aval, new)| new_tracer(jax, &trace, new.var, aval, source, new.counted))
        .collect::<PyResult<_>>()?;
    PyTuple::new(py, tracers).map(Some)
}

/// The types of arguments: of an array on one device its own, of others what `plain_type` says;
/// None where that is None for one of them.
#[pyfunction]
pub fn plain_types<'py>(
    arguments: &Bound<'py, PyTuple>,
    array: &Bound<'py, PyType>,
    single_device_sharding: &Bound<'py, PyType>,
    plain_type: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = arguments.py();
    let mut types = Vec::with_capacity(arguments.len());
    for argument in arguments.iter() {
        let plain = argument.get_type().is(array)
            && argument.getattr(intern!(py, "_sharding"))?.get_type().is(single_device_sharding);
        let ty = if plain {
            argument.getattr(intern!(py, "aval"))?
        } else {
            plain_type.call1((argument,))?
        };
        if ty.is_none() {
            return Ok(None);
        }
        types.push(ty);
    }
    PyTuple::new(py, types).map(Some)
}

/// Stands in for `_check_returned_jaxtypes(dbg, out_tracers)`.
#[pyfunction]
pub fn check_returned_types(
    debug_info: &Bound<'_, PyAny>,
    results: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let jax = jax(results.py())?;
    check(jax, &jax.stock_check_returned_types, debug_info, results)
}

/// Stands in for `_check_no_returned_refs(dbg, out_tracers)`.
#[pyfunction]
pub fn check_returned_refs(
    debug_info: &Bound<'_, PyAny>,
    results: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let jax = jax(results.py())?;
    check(jax, &jax.stock_check_returned_refs, debug_info, results)
}

/// Arrays are fine as results; what else there is jax looks at.
fn check(
    jax: &Jax,
    stock: &Py<PyAny>,
    debug_info: &Bound<'_, PyAny>,
    results: &Bound<'_, PyAny>,
) -> PyResult<()> {
    for result in results.try_iter()? {
        if array_type(jax, &result?).is_none() {
            return stock.bind(results.py()).call1((debug_info, results)).map(drop);
        }
    }
    Ok(())
}
