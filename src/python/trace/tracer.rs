//! The tracer type: jax's `DynamicJaxprTracer`, its attributes filled on demand.
//!
//! A tracer is a variable number and the source it was made at; `val`, `parent` and `_line_info`
//! become Python objects only when something reads them. The type shows itself under jax's own
//! name, since jax's error messages spell it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::{PyAttributeError, PyRuntimeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::ir::{SourceId, Var};

use crate::python::cpython::native::{
    Args, Slot, TypeSpec, allocate, attribute, heap_type, is_exactly, method, owned_slots,
};
use crate::python::cpython::shared::{Once, Shared};
use crate::python::jax::names::{Jax, jax};
use crate::python::trace::frame::Frame;

/// What a tracer has beyond jax's slots. Zeroed by the allocator: not one of ours.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fields {
    state: u32,
    var: u32,
    source: u32,
}

/// Made through jax's own constructor: `val` is in its slot.
const FOREIGN: u32 = 0;
/// A variable.
const VARIABLE: u32 = 1;
/// A variable whose program counts the tracers on it.
const COUNTED: u32 = 2;

static TRACER: Once<Py<PyType>> = Once::new();
/// `tp_basicsize` of jax's tracer, where our fields start.
static FIELDS_AT: AtomicUsize = AtomicUsize::new(0);

/// The slots of jax's tracer, all of which a dying tracer leaves empty.
static OWNED: Once<Vec<Slot>> = Once::new();

/// Memory of tracers that died, for those to come: most die young, and many are made.
static SPARE: Shared<Vec<usize>> = Shared::new(Vec::new());
const MAX_SPARE: usize = 256;

/// The tracer type.
///
/// # Errors
/// It is not defined yet.
#[inline]
pub fn tracer_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = TRACER.get(py).map(|class| class.bind(py));
    class.ok_or_else(|| PyRuntimeError::new_err("jaxide._core is not initialized"))
}

/// Makes the tracer type. The rooms above add what is theirs: slots of the type, and methods by their
/// names.
///
/// # Errors
/// CPython refuses the type.
pub fn define<'py>(
    py: Python<'py>,
    jax: &Jax,
    mut slots: Vec<(c_int, *mut c_void)>,
    methods: Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>,
) -> PyResult<()> {
    let base = jax.tracer_type.bind(py);
    // SAFETY: `base` is a type.
    let start = unsafe { (*base.as_type_ptr()).tp_basicsize.unsigned_abs() };
    FIELDS_AT.store(start, Ordering::Relaxed);
    let mut attributes = vec![
        attribute!("val", val, set_val),
        attribute!("parent", parent, set_parent),
        attribute!("_line_info", line_info, set_line_info),
        attribute!("_debug_info", debug_info, set_debug_info),
        attribute!("sharding", unavailable),
        attribute!("device", unavailable),
        attribute!("shape", shape, set_shape),
        attribute!("dtype", dtype, set_dtype),
        attribute!("ndim", ndim, set_ndim),
        attribute!("size", size, set_size),
    ];
    if jax.slots.tracer_mutable_qdd.is_some() {
        attributes.push(attribute!("mutable_qdd", mutable_qdd, set_mutable_qdd));
    }
    slots.push((ffi::Py_tp_finalize, finalize as *mut c_void));
    // SAFETY: `base` is a type.
    if unsafe { (*base.as_type_ptr()).tp_dictoffset } == 0 {
        // Before the first tracer: they are read when one dies.
        let _ = OWNED.set(py, owned_slots(base)?);
        slots.push((ffi::Py_tp_dealloc, dealloc as *mut c_void));
    }
    let class = heap_type(
        base,
        TypeSpec {
            name: "jax._src.interpreters.partial_eval.DynamicJaxprTracer",
            extra_size: size_of::<Fields>().next_multiple_of(align_of::<usize>()),
            methods: vec![method!("full_lower", full_lower), method!("get_referent", get_referent)],
            attributes,
            slots,
        },
    )?;
    for (name, method) in methods {
        class.setattr(name, method)?;
    }
    let _ = TRACER.set(py, class.unbind());
    Ok(())
}

pub fn class_pointer(py: Python<'_>) -> *mut ffi::PyTypeObject {
    TRACER.get(py).map_or(std::ptr::null_mut(), |class| class.as_ptr().cast())
}

/// # Safety
/// `tracer` is exactly of our type.
unsafe fn fields(tracer: *mut ffi::PyObject) -> *mut Fields {
    // SAFETY: our type's layout is jax's followed by `Fields`.
    unsafe { tracer.cast::<u8>().add(FIELDS_AT.load(Ordering::Relaxed)).cast() }
}

/// A tracer of `trace` for a variable. A counted variable has to be retained by the caller.
pub fn new_tracer<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    var: Var,
    aval: Bound<'py, PyAny>,
    source: SourceId,
    counted: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let class = tracer_type(trace.py())?;
    let spare = if counted { None } else { reuse(class) };
    let tracer = match spare {
        Some(tracer) => tracer,
        None => allocate(class)?,
    };
    // SAFETY: a fresh instance of our type: its slots are empty.
    unsafe {
        jax.slots.tracer_trace.fill(tracer.as_ptr(), trace.clone());
        jax.slots.tracer_aval.fill(tracer.as_ptr(), aval);
        *fields(tracer.as_ptr()) = Fields {
            state: if counted { COUNTED } else { VARIABLE },
            var: var.as_u32(),
            source: source.as_u32(),
        };
    }
    Ok(tracer)
}

/// A fresh tracer in the memory of a dead one. CPython has noted that the memory was finalized,
/// so it is not for tracers that are counted.
fn reuse<'py>(class: &Bound<'py, PyType>) -> Option<Bound<'py, PyAny>> {
    let raw = SPARE.peek(Vec::pop)? as *mut ffi::PyObject;
    // SAFETY: `dealloc` left the memory of an instance of exactly this class, its slots empty. It
    // becomes an object again as `tp_alloc` makes one.
    unsafe {
        ffi::PyObject_Init(raw, class.as_type_ptr());
        ffi::PyObject_GC_Track(raw.cast());
        Bound::from_owned_ptr_or_opt(class.py(), raw)
    }
}

/// Keeps the memory of a dead tracer, if there is room.
fn is_kept(tracer: usize) -> bool {
    SPARE.peek(|spare| {
        let room = spare.len() < MAX_SPARE;
        if room {
            spare.push(tracer);
        }
        room
    })
}

/// `tp_dealloc`: what CPython does for a class with `__slots__` and no dict, without looking for
/// them; some of the memory of plain tracers is kept.
unsafe extern "C" fn dealloc(tracer: *mut ffi::PyObject) {
    // SAFETY: CPython passes an instance of our type or of a subclass that nothing refers to, with
    // the interpreter attached; a subclass has given up what is its own.
    unsafe {
        let class = ffi::Py_TYPE(tracer);
        let state = (*fields(tracer)).state;
        if state == COUNTED && ffi::PyObject_CallFinalizerFromDealloc(tracer) < 0 {
            return;
        }
        ffi::PyObject_GC_UnTrack(tracer.cast());
        // Where the offset is below zero, the list is kept by CPython.
        let weak_references = usize::try_from((*class).tp_weaklistoffset).map(Slot::at);
        if weak_references.is_ok_and(|list| list.peek(tracer).is_null()) {
            // There are none.
        } else if (*class).tp_weaklistoffset != 0 {
            ffi::PyObject_ClearWeakRefs(tracer);
        }
        let py = Python::assume_attached();
        for slot in OWNED.get(py).map_or(&[][..], |slots| slots) {
            slot.empty(tracer);
        }
        if state == VARIABLE && class == class_pointer(py) && is_kept(tracer as usize) {
            // For the next one.
        } else if let Some(free) = (*class).tp_free {
            free(tracer.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}

/// A tracer of `trace` for a jax `Literal`.
pub fn new_literal_tracer<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    literal: Bound<'py, PyAny>,
    aval: Bound<'py, PyAny>,
    source_info: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let tracer = allocate(tracer_type(trace.py())?)?;
    // SAFETY: a fresh instance of our type: its slots are empty, and zeroed fields mean that `val`
    // is in its slot.
    unsafe {
        jax.slots.tracer_trace.fill(tracer.as_ptr(), trace.clone());
        jax.slots.tracer_aval.fill(tracer.as_ptr(), aval);
        jax.slots.tracer_line_info.fill(tracer.as_ptr(), source_info);
        jax.slots.tracer_val.fill(tracer.as_ptr(), literal);
    }
    Ok(tracer)
}

/// The variable behind a tracer of ours, whatever its trace.
#[inline]
pub fn variable(py: Python<'_>, object: *mut ffi::PyObject) -> Option<Var> {
    if !is_exactly(object, class_pointer(py)) {
        return None;
    }
    // SAFETY: the exact type was checked.
    let fields = unsafe { *fields(object) };
    (fields.state != FOREIGN).then(|| Var::from_u32(fields.var))
}

/// What an object is to `trace`.
pub enum Traced {
    /// A tracer of `trace` for an input or a result.
    Variable(Var),
    /// A tracer of `trace` for a captured value.
    Constant,
    /// A tracer of `trace` for a literal.
    Literal,
    /// A tracer of another trace of ours, for an input, a result or a captured value.
    Enclosing,
    /// A tracer of ours that was made through jax's own constructor.
    Foreign,
}

/// What `object` is to `trace`, which keeps dead code; None where it is no tracer of ours.
#[inline]
pub fn traced(
    py: Python<'_>,
    jax: &Jax,
    object: *mut ffi::PyObject,
    trace: *mut ffi::PyObject,
) -> Option<Traced> {
    if !is_exactly(object, class_pointer(py)) {
        return None;
    }
    // SAFETY: the exact type was checked; it has jax's slots.
    let (fields, own) = unsafe { (*fields(object), jax.slots.tracer_trace.peek(object) == trace) };
    Some(match fields.state {
        VARIABLE if own => Traced::Variable(Var::from_u32(fields.var)),
        // Where dead code is kept, only constants are counted.
        COUNTED if own => Traced::Constant,
        // SAFETY: as above; the slot of such a tracer is set.
        FOREIGN if own && jax.is_literal(unsafe { jax.slots.tracer_val.peek(object) }) => {
            Traced::Literal
        }
        VARIABLE | COUNTED if !own => Traced::Enclosing,
        _ => Traced::Foreign,
    })
}

/// The variable behind a tracer of ours that belongs to `trace`.
#[inline]
pub fn variable_of_trace(
    py: Python<'_>,
    jax: &Jax,
    object: *mut ffi::PyObject,
    trace: *mut ffi::PyObject,
) -> Option<Var> {
    let var = variable(py, object)?;
    // SAFETY: `variable` found our type, which has jax's slots.
    (unsafe { jax.slots.tracer_trace.peek(object) } == trace).then_some(var)
}

/// The frame a tracer belongs to, where it is ours.
fn frame_of<'py>(jax: &Jax, tracer: &Bound<'py, PyAny>) -> Option<Bound<'py, Frame>> {
    // SAFETY: called for tracers of our type only.
    let trace = unsafe { jax.slots.tracer_trace.get(tracer) }?;
    crate::python::trace::jaxpr_trace::frame_of(jax, &trace)
}

/// The value that a tracer of ours is a constant of.
pub fn constant_of<'py>(jax: &Jax, tracer: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let var = variable(tracer.py(), tracer.as_ptr())?;
    Frame::constant(&frame_of(jax, tracer)?, var)
}

/// Runs when a tracer dies: its program may forget what only the tracer kept alive.
unsafe extern "C" fn finalize(tracer: *mut ffi::PyObject) {
    // SAFETY: CPython calls this for instances of our type, with the interpreter attached.
    let Fields { state, var, .. } = unsafe { *fields(tracer) };
    if state != COUNTED {
        return;
    }
    // Where the interpreter ends, nothing is left to forget.
    Python::try_attach(|py| {
        // Objects also die while an exception is on its way: it has to survive this.
        let error = PyErr::take(py);
        // SAFETY: alive until this returns.
        let tracer = unsafe { Bound::from_borrowed_ptr(py, tracer) };
        if let Ok(jax) = jax(py)
            && let Some(frame) = frame_of(jax, &tracer)
        {
            Frame::release(&frame, Var::from_u32(var), Some(tracer.as_ptr() as usize));
        }
        if let Some(error) = error {
            error.restore(py);
        }
    });
}

fn own_slot<'py>(tracer: &Bound<'py, PyAny>, slot: Slot) -> Option<Bound<'py, PyAny>> {
    // SAFETY: getters and setters of our type are called for its instances only.
    unsafe { slot.get(tracer) }
}

fn fill_slot(
    tracer: &Bound<'_, PyAny>,
    slot: Slot,
    value: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    let value = value.ok_or_else(|| PyAttributeError::new_err("cannot delete the attribute"))?;
    // SAFETY: as in `own_slot`.
    unsafe { slot.set(tracer.as_ptr(), value) };
    Ok(())
}

fn val<'py>(tracer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let jax = jax(py)?;
    if let Some(val) = own_slot(tracer, jax.slots.tracer_val) {
        return Ok(val);
    }
    let (Some(var), Some(frame)) = (variable(py, tracer.as_ptr()), frame_of(jax, tracer)) else {
        return Err(PyAttributeError::new_err("val"));
    };
    let object = Frame::var_object(&frame, jax, var)?;
    fill_slot(tracer, jax.slots.tracer_val, Some(object.clone()))?;
    Ok(object)
}

fn parent<'py>(tracer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let jax = jax(py)?;
    if let Some(parent) = own_slot(tracer, jax.slots.tracer_parent) {
        return Ok(parent);
    }
    match (variable(py, tracer.as_ptr()), frame_of(jax, tracer)) {
        (Some(var), Some(frame)) => {
            // SAFETY: our type has jax's slots.
            let trace = unsafe { jax.slots.tracer_trace.get(tracer) };
            Frame::tracing_eqn(&frame, jax, trace, var)
        }
        _ => Ok(py.None().into_bound(py)),
    }
}

fn line_info<'py>(tracer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let jax = jax(py)?;
    if let Some(source_info) = own_slot(tracer, jax.slots.tracer_line_info) {
        return Ok(source_info);
    }
    if variable(py, tracer.as_ptr()).is_none() {
        return Ok(py.None().into_bound(py));
    }
    let Some(frame) = frame_of(jax, tracer) else { return Ok(py.None().into_bound(py)) };
    // SAFETY: `variable` checked the type.
    let source = SourceId::from_u32(unsafe { (*fields(tracer.as_ptr())).source });
    let source_info = Frame::source_info(&frame, jax, source)?;
    fill_slot(tracer, jax.slots.tracer_line_info, Some(source_info.clone()))?;
    Ok(source_info)
}

fn debug_info<'py>(tracer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let jax = jax(py)?;
    if let Some(debug_info) = own_slot(tracer, jax.slots.tracer_debug_info) {
        return Ok(debug_info);
    }
    Ok(match frame_of(jax, tracer) {
        Some(frame) => Frame::debug_info_object(&frame),
        None => py.None().into_bound(py),
    })
}

fn mutable_qdd<'py>(tracer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let slot = jax(py)?.slots.tracer_mutable_qdd;
    Ok(slot.and_then(|slot| own_slot(tracer, slot)).unwrap_or_else(|| py.None().into_bound(py)))
}

fn set_val(tracer: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    fill_slot(tracer, jax(tracer.py())?.slots.tracer_val, value)
}

fn set_parent(tracer: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    fill_slot(tracer, jax(tracer.py())?.slots.tracer_parent, value)
}

fn set_line_info(tracer: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    fill_slot(tracer, jax(tracer.py())?.slots.tracer_line_info, value)
}

fn set_debug_info(tracer: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    fill_slot(tracer, jax(tracer.py())?.slots.tracer_debug_info, value)
}

/// Sets `mutable_qdd`, the handle on quasi-dynamic data.
pub fn set_mutable_qdd(tracer: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    match jax(tracer.py())?.slots.tracer_mutable_qdd {
        Some(slot) => fill_slot(tracer, slot, value),
        None => Err(PyAttributeError::new_err("mutable_qdd")),
    }
}

/// `sharding` and `device` of a tracer. jax writes a message here that walks every equation so far,
/// and CPython throws it away: `Tracer.__getattr__` answers next and raises the one that shows.
fn unavailable<'py>(_: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Err(PyAttributeError::new_err(""))
}

fn of_aval<'py>(
    tracer: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    match own_slot(tracer, jax(tracer.py())?.slots.tracer_aval) {
        Some(aval) => aval.getattr(name),
        None => Err(PyAttributeError::new_err("aval")),
    }
}

/// Sets or deletes what jax has a property for, which refuses in its own words.
fn set_property(
    tracer: &Bound<'_, PyAny>,
    name: &str,
    value: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    let property = jax(tracer.py())?.tracer_type.bind(tracer.py()).getattr(name)?;
    match value {
        Some(value) => property.call_method1("__set__", (tracer, value)),
        None => property.call_method1("__delete__", (tracer,)),
    }
    .map(drop)
}

macro_rules! properties_of_aval {
    ($( $get:ident $set:ident $name:literal ),* $(,)?) => { $(
        fn $get<'py>(tracer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
            of_aval(tracer, intern!(tracer.py(), $name))
        }

        fn $set(tracer: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
            set_property(tracer, $name, value)
        }
    )* };
}

properties_of_aval! {
    shape set_shape "shape",
    dtype set_dtype "dtype",
    ndim set_ndim "ndim",
    size set_size "size",
}

fn constant<'py>(jax: &Jax, tracer: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let py = tracer.py();
    match (variable(py, tracer.as_ptr()), frame_of(jax, tracer)) {
        (Some(var), Some(frame)) => Frame::constant(&frame, var),
        _ => None,
    }
}

/// The value itself where the tracer is a literal or a constant.
fn full_lower<'py>(tracer: &Bound<'py, PyAny>, _: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let jax = jax(py)?;
    if variable(py, tracer.as_ptr()).is_none() {
        let stock = jax.tracer_type.bind(py).getattr(intern!(py, "full_lower"))?;
        return stock.call1((tracer,));
    }
    match constant(jax, tracer) {
        Some(value) => jax.full_lower.bind(py).call1((value,)),
        None => Ok(tracer.clone()),
    }
}

/// What an identity check should compare: the captured value, or the tracer.
fn get_referent<'py>(tracer: &Bound<'py, PyAny>, _: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let jax = jax(py)?;
    if variable(py, tracer.as_ptr()).is_none() {
        let stock = jax.tracer_type.bind(py).getattr(intern!(py, "get_referent"))?;
        return stock.call1((tracer,));
    }
    match constant(jax, tracer) {
        Some(value) => jax.get_referent.bind(py).call1((value,)),
        None => Ok(tracer.clone()),
    }
}
