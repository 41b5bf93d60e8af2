//! What jax does with each leaf of a function's arguments and results, done with all of them at
//! once where every leaf is a traced array.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple, PyType};

use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::{Slot, address, allocate, is_exactly};
use crate::python::jax::derived_types::{DerivedType, derived_type, is_shaped_array};
use crate::python::jax::instances::{new_accumulator, new_linear, new_zero};
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::trace::frame::Frame;
use crate::python::trace::jaxpr_trace::{frame_of, is_ours};
use crate::python::trace::tracer::{class_pointer, new_tracer};

/// The type of a tracer of ours, where it is that of an array.
pub fn array_type<'py>(jax: &Jax, value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if !is_exactly(value.as_ptr(), class_pointer(value.py())) {
        return None;
    }
    // SAFETY: the exact type was checked; it has jax's slots.
    let aval = unsafe { jax.slots.tracer_aval.get(value) }?;
    is_shaped_array(jax, &aval).then_some(aval)
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
            all_traced(jax, leaves).then(|| leaves.clone())
        }
        Ok(leaves) if f.is(&jax.check_arg) => {
            let nothing = || PyTuple::new(py, leaves.iter().map(|_| py.None()));
            all_traced(jax, leaves).then(nothing).transpose()?
        }
        Ok(leaves) if f.is_exact_instance(jax.partial_type.bind(py)) => {
            match new_inputs(jax, leaves, f)? {
                Some(inputs) => Some(inputs),
                None => linear_inputs(jax, leaves, f)?,
            }
        }
        Ok(leaves) if has_code(f, &jax.canonical_input_code) && all_traced(jax, leaves) => {
            Some(leaves.clone())
        }
        _ => None,
    };
    match mapped {
        Some(mapped) => jax.flat_tree_with_leaves.bind(py).call1((tree, mapped)),
        None => jax.stock_flat_tree_map.bind(py).call1((tree, f)),
    }
}

/// Stands in for `FlatTree.map2(t2, f)`, with which `linearize` makes its inputs from jax 0.12 on.
#[pyfunction]
pub fn map_two_leaves<'py>(
    tree: &Bound<'py, PyAny>,
    others: &Bound<'py, PyAny>,
    f: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tree.py();
    let jax = jax(py)?;
    let is_plain = tree.get_type().is(&jax.flat_tree_type);
    if is_plain && f.is_exact_instance(jax.partial_type.bind(py)) {
        let leaves = tree.getattr(jax.flat_tree_leaves.bind(py))?;
        if let (Ok(leaves), Ok(others)) = (leaves.cast_exact::<PyTuple>(), others.cast_exact::<PyList>())
            && leaves.len() == others.len()
            // All of them are differentiated.
            && others.iter().all(|other| other.is(PyBool::new(py, true)))
            && let Some(inputs) = linear_inputs(jax, leaves, f)?
        {
            return jax.flat_tree_with_leaves.bind(py).call1((tree, inputs));
        }
    }
    jax.stock_flat_tree_map2.bind(py).call1((tree, others, f))
}

fn all_traced(jax: &Jax, leaves: &Bound<'_, PyTuple>) -> bool {
    leaves.iter().all(|leaf| array_type(jax, &leaf).is_some())
}

/// Whether a function is one that jax makes anew at each call, by its code.
fn has_code(function: &Bound<'_, PyAny>, code: &Py<PyAny>) -> bool {
    let own = function.getattr_opt(intern!(function.py(), "__code__"));
    own.is_ok_and(|own| own.is_some_and(|own| own.is(code)))
}

/// The types of values; None where one of them is neither traced nor an array, or its type is not that of
/// an array.
#[pyfunction]
pub fn array_types<'py>(values: &Bound<'py, PyList>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = values.py();
    let jax = jax(py)?;
    let mut types = Vec::with_capacity(values.len());
    for value in values.iter() {
        let aval = if value.get_type().is(&jax.array_type) {
            Some(value.getattr(intern!(py, "aval"))?).filter(|aval| is_shaped_array(jax, aval))
        } else {
            array_type(jax, &value)
        };
        let Some(aval) = aval else { return Ok(None) };
        types.push(aval);
    }
    PyTuple::new(py, types).map(Some)
}

/// The `ShapeDtypeStruct` for each type, a new one; None where one of them is not that of an array.
/// `varies` is the setting `_check_vma`.
#[pyfunction]
pub fn result_structs<'py>(
    types: &Bound<'py, PyTuple>,
    varies: bool,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let py = types.py();
    let jax = jax(py)?;
    let class = jax.shape_dtype_struct_type.bind(py);
    if !types.iter().all(|aval| is_shaped_array(jax, &aval)) {
        return Ok(None);
    }
    let structs = PyList::empty(py);
    for aval in types.iter() {
        let first = derived_type(jax, &aval, DerivedType::Struct { varies })?;
        if !first.get_type().is(class) {
            return Ok(None);
        }
        let copy = allocate(class)?;
        for slot in &jax.slots.shape_dtype_struct {
            // SAFETY: both are exactly of the class that the slots are of; the copy's are empty.
            unsafe {
                if let Some(value) = slot.get(&first) {
                    slot.fill(copy.as_ptr(), value);
                }
            }
        }
        structs.append(copy)?;
    }
    Ok(Some(structs))
}

/// What a `ShapeDtypeStruct` is compared by; None where jax has more to do to find out.
fn compared<'py>(jax: &Jax, value: &Bound<'py, PyAny>) -> PyResult<Option<[Bound<'py, PyAny>; 7]>> {
    let py = value.py();
    if !is_exactly(value.as_ptr(), jax.shape_dtype_struct_type.as_ptr().cast()) {
        return Ok(None);
    }
    let [shape, dtype, sharding, layout, weak, axes, is_ref] = jax.slots.compared_of_struct;
    // SAFETY: the class was checked.
    let get = |slot: Slot| unsafe { slot.get(value) };
    let (Some(sharding), Some(layout)) = (get(sharding), get(layout)) else { return Ok(None) };
    // A specification becomes a sharding by the current mesh.
    if !sharding.is_none() && sharding.is_instance(jax.partition_spec_type.bind(py))? {
        return Ok(None);
    }
    Ok(match (get(shape), get(dtype), get(weak), get(axes), get(is_ref)) {
        (Some(shape), Some(dtype), Some(weak), Some(axes), Some(is_ref)) => {
            Some([shape, dtype, sharding, layout, weak, axes, is_ref])
        }
        _ => None,
    })
}

/// Stands in for `ShapeDtypeStruct.__eq__(self, other)`.
#[pyfunction]
pub fn structs_are_equal<'py>(
    one: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = one.py();
    let jax = jax(py)?;
    if let (Some(own), Some(others)) = (compared(jax, one)?, compared(jax, other)?) {
        for (own, other) in own.iter().zip(&others) {
            if !own.is(other) && !own.eq(other)? {
                return Ok(PyBool::new(py, false).to_owned().into_any());
            }
        }
        return Ok(PyBool::new(py, true).to_owned().into_any());
    }
    jax.stock_struct_eq.bind(py).call1((one, other))
}

/// Stands in for `ShapeDtypeStruct.__hash__(self)`.
#[pyfunction]
pub fn hash_of_struct<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let jax = jax(py)?;
    match compared(jax, value)? {
        Some(parts) => Ok(PyTuple::new(py, parts)?.hash()?.into_pyobject(py)?.into_any()),
        None => jax.stock_struct_hash.bind(py).call1((value,)),
    }
}

/// `linearize`'s `make_tracer(lin_trace, primal, ...)` for each primal, where `f` is such a partial call.
fn linear_inputs<'py>(
    jax: &Jax,
    primals: &Bound<'py, PyTuple>,
    f: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = f.py();
    let function = f.getattr(intern!(py, "func"))?;
    if !has_code(&function, &jax.linear_input_code) {
        return Ok(None);
    }
    let args = f.getattr(intern!(py, "args"))?.cast_into::<PyTuple>()?;
    // The closure: the source info, then the trace of the tangents.
    let cells = function.getattr(intern!(py, "__closure__"))?.cast_into::<PyTuple>()?;
    if args.len() != 1 || cells.len() != 2 || f.getattr(intern!(py, "keywords"))?.len()? > 0 {
        return Ok(None);
    }
    let cell = |index: usize| cells.get_item(index)?.getattr(intern!(py, "cell_contents"));
    let (source, tangent_trace) = (SourceRef::of(jax, &cell(0)?)?, cell(1)?);
    let Some(frame) = frame_of(jax, &tangent_trace) else { return Ok(None) };
    let types: Option<Vec<_>> = primals.iter().map(|primal| array_type(jax, &primal)).collect();
    let Some(types) = types else { return Ok(None) };
    let mut of_tangents = Vec::with_capacity(types.len());
    for aval in &types {
        let of_tangent = derived_type(jax, aval, DerivedType::Tangent)?;
        // Integers have tangents of no bytes, which jax treats apart.
        let float0 = of_tangent.getattr(intern!(py, "dtype"))?.is(&jax.float0);
        if float0 || !is_shaped_array(jax, &of_tangent) {
            return Ok(None);
        }
        of_tangents.push(of_tangent);
    }
    let tangents = add_inputs(jax, &tangent_trace, &frame, &source, of_tangents)?;
    let trace = args.get_item(0)?;
    let tracers = primals.iter().zip(tangents);
    let tracers: Vec<_> = tracers
        .map(|(primal, tangent)| new_linear(jax, &trace, primal, tangent))
        .collect::<PyResult<_>>()?;
    PyTuple::new(py, tracers).map(Some)
}

/// `[ValAccum(var.aval.to_ct_aval()) for var in invars[first:first + length]]`; None where one of the
/// types is that of a Ref.
#[pyfunction]
pub fn new_accumulators<'py>(
    invars: &Bound<'py, PyList>,
    first: usize,
    length: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let py = invars.py();
    let jax = jax(py)?;
    let accumulators = PyList::empty(py);
    for var in invars.iter().skip(first).take(length) {
        let aval = var.getattr(intern!(py, "aval"))?;
        if aval.get_type().is(&jax.ref_type) {
            return Ok(None);
        }
        let of_cotangent = derived_type(jax, &aval, DerivedType::Cotangent)?;
        let zero = new_zero(jax, &of_cotangent)?;
        accumulators.append(new_accumulator(jax, &of_cotangent, &zero)?)?;
    }
    Ok(Some(accumulators))
}

/// Stands in for `_check_input_dtype_revderiv(name, holomorphic, allow_int, x)`.
#[pyfunction]
pub fn check_input_type(
    name: &Bound<'_, PyAny>,
    holomorphic: &Bound<'_, PyAny>,
    allow_int: &Bound<'_, PyAny>,
    x: &Bound<'_, PyAny>,
) -> PyResult<()> {
    /// Types that are fine as inputs, by address and by what was asked. They are kept alive.
    static FINE: AddressCache<Py<PyAny>, (usize, bool, bool)> = AddressCache::new();
    const MAX_FINE: usize = 1024;

    let py = x.py();
    let jax = jax(py)?;
    let aval = array_type(jax, x);
    let flag = |flag: &Bound<'_, PyAny>| flag.cast::<PyBool>().ok().map(PyBoolMethods::is_true);
    let key = match (&aval, flag(holomorphic), flag(allow_int)) {
        (Some(aval), Some(holomorphic), Some(allow_int)) => {
            Some((address(aval), holomorphic, allow_int))
        }
        _ => None,
    };
    if let Some(key) = key
        && FINE.contains(&key)
    {
        return Ok(());
    }
    jax.stock_check_input_type.bind(py).call1((name, holomorphic, allow_int, x))?;
    if let (Some(key), Some(aval)) = (key, aval) {
        drop(FINE.insert_bounded(key, aval.unbind(), MAX_FINE));
    }
    Ok(())
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
    let tracers = add_inputs(jax, &trace, &frame, &source, avals.iter().collect())?;
    PyTuple::new(py, tracers).map(Some)
}

/// New inputs of a program, as tracers.
fn add_inputs<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    source: &SourceRef<'py>,
    avals: Vec<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let source = Frame::source(frame, jax, source)?;
    let inputs: Vec<_> =
        avals.iter().map(|aval| Frame::new_invar(frame, jax, aval)).collect::<PyResult<_>>()?;
    let tracers = avals.into_iter().zip(inputs);
    tracers.map(|(aval, new)| new_tracer(jax, trace, new.var, aval, source, new.counted)).collect()
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
