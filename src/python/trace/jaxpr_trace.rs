//! The trace type: jax's `DynamicJaxprTrace`, recording into the arena.
//!
//! What is not overridden here (custom derivative rules, calls, `shard_map`, quasi-dynamic data) is
//! jax's own Python, which reaches the arena through the methods below.

use pyo3::exceptions::{PyAssertionError, PyRuntimeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple, PyType, PyWeakrefReference};
use smallvec::SmallVec;

use crate::python::cpython::native::{
    Args, TypeSpec, call_init, entries, heap_type, is_exactly, method, string_of,
};
use crate::python::cpython::shared::Once;
use crate::python::jax::avals::aval_info;
use crate::python::jax::current_trace::{current_trace, within_trace};
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::trace::abstract_eval::{Context, PrimitiveInfo};
use crate::python::trace::arguments::array_type;
use crate::python::trace::flags;
use crate::python::trace::frame::{Frame, Operand};
use crate::python::trace::session::{self, Recording};
use crate::python::trace::stage::{NewEqn, Staging, emit, stage};
use crate::python::trace::tracer::{
    new_literal_tracer, new_tracer, set_mutable_qdd, variable_of_trace,
};

static TRACE: Once<Py<PyType>> = Once::new();

/// The trace type, shown under jax's own name.
pub fn trace_type<'py>(py: Python<'py>, jax: &Jax) -> PyResult<&'py Bound<'py, PyType>> {
    let class = TRACE.get_or_try_init(py, || {
        heap_type(
            jax.trace_type.bind(py),
            TypeSpec {
                name: "jax._src.interpreters.partial_eval.DynamicJaxprTrace",
                extra_size: 0,
                methods: vec![
                    method!("process_primitive", process_primitive),
                    method!("default_process_primitive", default_process_primitive),
                    method!("to_jaxpr_tracer", to_jaxpr_tracer),
                    method!("new_arg", new_arg),
                    method!("emit_eqn", emit_eqn),
                    method!("new_const", new_const),
                    method!("pure", new_const),
                    method!("lift", new_const),
                    method!("get_const", get_const),
                    method!("invalidate", invalidate),
                ],
                attributes: Vec::new(),
                slots: vec![(ffi::Py_tp_init, init as *mut std::ffi::c_void)],
            },
        )
        .map(Bound::unbind)
    })?;
    Ok(class.bind(py))
}

/// Whether `trace` is exactly of our type.
#[inline]
pub fn is_ours(py: Python<'_>, trace: *mut ffi::PyObject) -> bool {
    TRACE.get(py).is_some_and(|class| is_exactly(trace, class.as_ptr().cast()))
}

/// The frame of a trace of ours.
pub fn frame_of<'py>(jax: &Jax, trace: &Bound<'py, PyAny>) -> Option<Bound<'py, Frame>> {
    if !is_ours(trace.py(), trace.as_ptr()) {
        return None;
    }
    // SAFETY: our type has jax's slots.
    unsafe { jax.slots.trace_frame.get(trace) }?.cast_into::<Frame>().ok()
}

fn own_frame<'py>(jax: &Jax, trace: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Frame>> {
    frame_of(jax, trace).ok_or_else(|| PyRuntimeError::new_err("the trace has no frame"))
}

unsafe extern "C" fn init(
    slf: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> std::ffi::c_int {
    // SAFETY: CPython calls this as tp_init.
    unsafe { call_init("DynamicJaxprTrace", initialize, slf, args, kwargs) }
}

/// `DynamicJaxprTrace.__init__(debug_info, parent_trace=None, lower=False, auto_dce=False)`.
fn initialize<'py>(trace: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<()> {
    let py = trace.py();
    let jax = jax(py)?;
    let none = || py.None().into_bound(py);
    let flag = |index: usize, name: &str| -> PyResult<bool> {
        args.get(index, name)?.map_or(Ok(false), |value| value.is_truthy())
    };
    let debug_info = args.required(0, "debug_info")?;
    let lower =
        args.get(2, "lower")?.unwrap_or_else(|| PyBool::new(py, false).to_owned().into_any());
    let weakref = PyWeakrefReference::new(trace)?.into_any();
    let parent = args.get(1, "parent_trace")?.unwrap_or_else(none);
    let recording = Recording::start(py, jax, &parent, is_ours(py, parent.as_ptr()));
    let frame = Bound::new(py, Frame::new(debug_info, flag(3, "auto_dce")?, recording))?;
    let slots = &jax.slots;
    // SAFETY: our type has jax's slots.
    unsafe {
        let raw = trace.as_ptr();
        slots.trace_invalidated.set(raw, PyBool::new(py, false).to_owned().into_any());
        slots.trace_weakref.set(raw, weakref);
        slots.trace_requires_low.set(raw, lower);
        slots.trace_frame.set(raw, frame.into_any());
        slots.trace_parent_trace.set(raw, parent);
    }
    Ok(())
}

/// The operand that a tracer object of `frame`'s trace stands for.
pub fn operand_of_tracer<'py>(
    jax: &Jax,
    frame: &Bound<'py, Frame>,
    tracer: &Bound<'py, PyAny>,
) -> PyResult<Operand<'py>> {
    match crate::python::trace::tracer::variable(tracer.py(), tracer.as_ptr()) {
        Some(var) => {
            // SAFETY: `variable` found the tracer to be ours.
            let aval = unsafe { jax.slots.tracer_aval.get(tracer) };
            let aval = aval.ok_or_else(|| PyRuntimeError::new_err("a tracer without an aval"))?;
            Ok(Operand::Var { var, aval, tracer: Some(tracer.clone()) })
        }
        None => Frame::foreign_operand(frame, jax, tracer),
    }
}

/// What `x` is as an operand of `trace`: jax's `to_jaxpr_tracer`, without making a tracer.
pub fn operand<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Operand<'py>> {
    let py = x.py();
    if let Some(var) = variable_of_trace(py, jax, x.as_ptr(), trace.as_ptr()) {
        // SAFETY: a tracer of ours.
        let aval = unsafe { jax.slots.tracer_aval.get(x) };
        let aval = aval.ok_or_else(|| PyRuntimeError::new_err("a tracer without an aval"))?;
        return Ok(Operand::Var { var, aval, tracer: Some(x.clone()) });
    }
    if x.is_instance(jax.tracer_type.bind(py))? && x.getattr(intern!(py, "_trace"))?.is(trace) {
        return operand_of_tracer(jax, frame, x);
    }
    // Arrays of other traces are no dimensions.
    if array_type(jax, x).is_none()
        && let Some(dimension) = x.getattr_opt(intern!(py, "dimension_as_value"))?
        && !dimension.is_none()
    {
        let value = within(jax, trace, || dimension.call0())?;
        return operand(jax, trace, frame, &value);
    }
    const_operand(jax, frame, x, None)
}

/// `x` as a literal or a constant; jax's `new_const`.
pub fn const_operand<'py>(
    jax: &Jax,
    frame: &Bound<'py, Frame>,
    x: &Bound<'py, PyAny>,
    aval: Option<Bound<'py, PyAny>>,
) -> PyResult<Operand<'py>> {
    let py = x.py();
    let address = x.as_ptr() as usize;
    let known = frame.get().peek(|state| state.known_const(address));
    let array = array_type(jax, x);
    let is_array = array.is_some();
    let aval = match (known, aval) {
        (Some(var), given) => {
            let aval = match given {
                Some(aval) => aval,
                None => Frame::aval_of(frame, var)?,
            };
            return Ok(Operand::Const { value: x.clone(), aval });
        }
        (None, Some(aval)) => aval,
        (None, None) => match array {
            Some(aval) => aval,
            None => jax.typeof_fn.bind(py).call1((x,))?,
        },
    };
    // No tracer is a literal.
    if is_array {
        return Ok(Operand::Const { value: x.clone(), aval });
    }
    check_canonical(x)?;
    let scalar = jax.literalable_scalar_types.bind(py).contains(x.get_type())?;
    let auto_dce = frame.get().auto_dce();
    if scalar || jax.is_literalable.bind(py).call1((x, auto_dce))?.is_truthy()? {
        let literal = jax.new_literal(x, &aval)?;
        return Ok(Operand::Literal { literal, value: x.clone(), aval });
    }
    Ok(Operand::Const { value: x.clone(), aval })
}

/// jax's assertion in `_new_const`.
fn check_canonical(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    let class = x.get_type();
    let numpy = py.import(intern!(py, "numpy"))?;
    let refused = class.is(py.get_type::<pyo3::types::PyInt>())
        || class.is(py.get_type::<pyo3::types::PyFloat>())
        || class.is(py.get_type::<pyo3::types::PyComplex>())
        || class.is(numpy.getattr(intern!(py, "generic"))?)
        || class.is(numpy.getattr(intern!(py, "ndarray"))?);
    if refused {
        return Err(PyAssertionError::new_err(format!(
            "non-canonical constant of type {}: {}",
            string_of(&class.name()?),
            string_of(&x.repr()?)
        )));
    }
    Ok(())
}

/// The tracer object for an operand.
pub fn tracer_of<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    operand: &Operand<'py>,
    source: &SourceRef<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    match operand {
        Operand::Var { tracer: Some(tracer), .. } => Ok(tracer.clone()),
        Operand::Var { var, aval, tracer: None } => {
            let source = Frame::source(frame, jax, source)?;
            new_tracer(jax, trace, *var, aval.clone(), source, false)
        }
        Operand::Literal { literal, aval, .. } => {
            let source_info = source.to_object(jax)?;
            new_literal_tracer(jax, trace, literal.clone(), aval.clone(), source_info)
        }
        Operand::Const { value, aval } => {
            let info = aval_info(jax, aval)?;
            if info.has_qdd {
                return qdd_const(jax, trace, frame, value, aval, source);
            }
            Frame::const_tracer(frame, jax, trace, value, aval, source)
        }
    }
}

/// Runs `body` with `trace` as the current trace.
fn within<R>(
    jax: &Jax,
    trace: &Bound<'_, PyAny>,
    body: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let previous = current_trace(trace.py(), jax)?;
    within_trace(jax, trace, &previous, body)
}

/// A constant whose type has quasi-dynamic data (jax before 0.11).
fn qdd_const<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    value: &Bound<'py, PyAny>,
    aval: &Bound<'py, PyAny>,
    source: &SourceRef<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let tracer = Frame::const_tracer(frame, jax, trace, value, aval, source)?;
    let var = crate::python::trace::tracer::variable(py, tracer.as_ptr());
    if let Some(mutable) = var.and_then(|var| Frame::qdd(frame, var)) {
        // The data is the constant's: it outlives the tracers of the constant.
        set_mutable_qdd(&tracer, Some(mutable))?;
        return Ok(tracer);
    }
    // SAFETY: our type has jax's slots.
    let parent = unsafe { jax.slots.trace_parent_trace.get(trace) };
    let parent = parent.filter(|p| !p.is_none()).unwrap_or_else(|| jax.eval_trace.bind(py).clone());
    let qdd = within(jax, &parent, || jax.cur_qdd.bind(py).call1((value,)))?;
    attach_qdd(jax, frame, &tracer, aval, &qdd)?;
    Ok(tracer)
}

/// Gives a tracer quasi-dynamic data.
pub fn attach_qdd<'py>(
    jax: &Jax,
    frame: &Bound<'py, Frame>,
    tracer: &Bound<'py, PyAny>,
    aval: &Bound<'py, PyAny>,
    qdd: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = tracer.py();
    let mutable = jax.mutable_qdd_type.bind(py).call1((qdd,))?;
    set_mutable_qdd(tracer, Some(mutable.clone()))?;
    if let Some(var) = crate::python::trace::tracer::variable(py, tracer.as_ptr()) {
        let object = jax.var_type.bind(py).call1((aval, qdd))?;
        Frame::attach_qdd(frame, var, &object, &mutable);
    }
    Ok(())
}

/// `new_arg(aval, source_info)`: a new input.
fn new_arg<'py>(trace: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let frame = own_frame(jax, trace)?;
    let aval = args.required(0, "aval")?;
    let source = SourceRef::or_empty(jax, py, args.optional(1, "source_info")?.as_ref())?;
    let qdd_type = jax.aval_qdd_type.bind(py);
    if !qdd_type.is_none() && aval.is_instance(qdd_type)? {
        let (aval, qdd) = (aval.getattr("aval")?, aval.getattr("qdd")?);
        let tracer = new_input(jax, trace, &frame, aval.clone(), &source)?;
        attach_qdd(jax, &frame, &tracer, &aval, &qdd)?;
        return Ok(tracer);
    }
    new_input(jax, trace, &frame, aval, &source)
}

fn new_input<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    aval: Bound<'py, PyAny>,
    source: &SourceRef<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let new = Frame::new_invar(frame, jax, &aval)?;
    let source = Frame::source(frame, jax, source)?;
    new_tracer(jax, trace, new.var, aval, source, new.counted)
}

/// `new_const(c, source_info, aval=None)`.
fn new_const<'py>(trace: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let frame = own_frame(jax, trace)?;
    let value = args.required(0, "c")?;
    let source = SourceRef::or_empty(jax, py, args.optional(1, "source_info")?.as_ref())?;
    let operand = const_operand(jax, &frame, &value, args.optional(2, "aval")?)?;
    tracer_of(jax, trace, &frame, &operand, &source)
}

/// `to_jaxpr_tracer(x, source_info)`.
fn to_jaxpr_tracer<'py>(
    trace: &Bound<'py, PyAny>,
    args: &Args<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let x = args.required(0, "x")?;
    if x.is_instance(jax.tracer_type.bind(py))? && x.getattr(intern!(py, "_trace"))?.is(trace) {
        return Ok(x);
    }
    let frame = own_frame(jax, trace)?;
    let source = SourceRef::or_empty(jax, py, args.optional(1, "source_info")?.as_ref())?;
    let operand = operand(jax, trace, &frame, &x)?;
    tracer_of(jax, trace, &frame, &operand, &source)
}

/// `get_const(tracer)`: the value of a literal or constant, else None.
fn get_const<'py>(trace: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let frame = own_frame(jax, trace)?;
    let operand = operand_of_tracer(jax, &frame, &args.required(0, "tracer")?)?;
    Ok(constant_value(&frame, &operand).unwrap_or_else(|| py.None().into_bound(py)))
}

/// The value of an operand that is a literal or a constant.
pub fn constant_value<'py>(
    frame: &Bound<'py, Frame>,
    operand: &Operand<'py>,
) -> Option<Bound<'py, PyAny>> {
    match operand {
        Operand::Literal { value, .. } | Operand::Const { value, .. } => Some(value.clone()),
        Operand::Var { var, .. } => Frame::constant(frame, *var),
    }
}

/// `invalidate()`: the trace is over.
fn invalidate<'py>(trace: &Bound<'py, PyAny>, _: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let frame = own_frame(jax, trace)?;
    session::forget_trace();
    // SAFETY: a trace of ours.
    let parent = unsafe { jax.slots.trace_parent_trace.get(trace) };
    // What was learnt within another trace of ours is proven when that ends.
    if !parent.is_some_and(|parent| is_ours(py, parent.as_ptr())) {
        crate::python::jax::world::prove_what_was_learnt();
    }
    frame.call_method0(intern!(py, "invalidate"))
}

/// `process_primitive(primitive, tracers, params)`.
fn process_primitive<'py>(
    trace: &Bound<'py, PyAny>,
    args: &Args<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let frame = own_frame(jax, trace)?;
    let primitive = args.required(0, "primitive")?;
    let tracers: SmallVec<[Bound<'_, PyAny>; 4]> =
        args.required(1, "tracers")?.try_iter()?.collect::<PyResult<_>>()?;
    let params = args.required(2, "params")?.cast_into::<PyDict>()?;
    let info = PrimitiveInfo::of(jax, &primitive)?;
    let context = Context::current(py, jax)?;
    if is_high(jax, &primitive, info, &tracers, &params)? {
        frame.get().mark_high();
    }
    if context.eager_folding {
        let any_tracer = jax.any_tracer_type.bind(py);
        let mut concrete = true;
        for x in &tracers {
            concrete &= !x.is_instance(any_tracer)?;
        }
        if concrete {
            if let Some(made) = flags::computed(jax, &primitive, &tracers, &params)? {
                return Ok(made);
            }
            let avals: Vec<_> = tracers
                .iter()
                .map(|x| jax.typeof_fn.bind(py).call1((x,)))
                .collect::<PyResult<_>>()?;
            let args = (
                jax.eval_trace.bind(py),
                PyList::new(py, &tracers)?,
                PyTuple::new(py, avals)?,
                params,
            );
            return primitive.call_method1(intern!(py, "bind_with_trace"), args);
        }
    }
    let source = SourceRef::current(py, jax)?;
    let operands: SmallVec<[Operand<'_>; 4]> =
        tracers.iter().map(|x| operand(jax, trace, &frame, x)).collect::<PyResult<_>>()?;
    let rule = jax.custom_staging_rules.bind(py).get_item(&primitive)?;
    if let Some(rule) = rule
        && !keeps_params(jax, &rule, &params)?
    {
        return call_staging_rule(jax, trace, &frame, &rule, &tracers, &operands, &source, &params);
    }
    let at = Staging {
        trace,
        frame: &frame,
        primitive: &primitive,
        info,
        context: &context,
        source: &source,
    };
    results(py, info, stage(jax, &at, &operands, &params)?)
}

#[allow(clippy::too_many_arguments)] // a rule gets what `process_primitive` has
fn call_staging_rule<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    rule: &Bound<'py, PyAny>,
    given: &[Bound<'py, PyAny>],
    operands: &[Operand<'py>],
    source: &SourceRef<'py>,
    params: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let mut args = vec![trace.clone(), source.to_object(jax)?];
    for (x, operand) in given.iter().zip(operands) {
        // The tracer of a literal stays itself.
        let own =
            x.is_instance(jax.tracer_type.bind(py))? && x.getattr(intern!(py, "_trace"))?.is(trace);
        args.push(if own { x.clone() } else { tracer_of(jax, trace, frame, operand, source)? });
    }
    rule.call(PyTuple::new(py, args)?, Some(params))
}

/// Whether a staging rule does nothing to these params: it rebuilds the dict in the order they have.
pub fn keeps_params(
    jax: &Jax,
    rule: &Bound<'_, PyAny>,
    params: &Bound<'_, PyDict>,
) -> PyResult<bool> {
    let py = rule.py();
    let Some(names) = jax.param_order_rules.bind(py).get_item(rule)? else { return Ok(false) };
    let names = names.cast_into::<PyTuple>()?;
    if names.len() != params.len() {
        return Ok(false);
    }
    for (name, (param, _)) in names.iter().zip(entries(params)) {
        if !name.is(&param) && !name.eq(&param)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `Primitive.is_high`.
fn is_high<'py>(
    jax: &Jax,
    primitive: &Bound<'py, PyAny>,
    info: PrimitiveInfo,
    args: &[Bound<'py, PyAny>],
    params: &Bound<'py, PyDict>,
) -> PyResult<bool> {
    let py = params.py();
    if info.plain_is_high {
        return has_high_param(jax, params);
    }
    let typeof_arg =
        |x: &Bound<'py, PyAny>| match crate::python::trace::tracer::variable(py, x.as_ptr()) {
            // SAFETY: `variable` found the tracer to be ours.
            Some(_) => Ok(unsafe { jax.slots.tracer_aval.get(x) }),
            None => jax.typeof_fn.bind(py).call1((x,)).map(Some),
        };
    let avals: Vec<_> = args.iter().map(typeof_arg).collect::<PyResult<_>>()?;
    primitive
        .getattr(intern!(py, "is_high"))?
        .call(PyTuple::new(py, avals)?, Some(params))?
        .is_truthy()
}

/// Whether some param is a high jaxpr.
pub fn has_high_param(jax: &Jax, params: &Bound<'_, PyDict>) -> PyResult<bool> {
    let py = params.py();
    for value in params.values() {
        // SAFETY: types are compared along the method resolution order; no Python runs.
        let jaxpr = unsafe {
            let class = value.get_type_ptr();
            ffi::PyType_IsSubtype(class, jax.jaxpr_type.as_ptr().cast()) != 0
                || ffi::PyType_IsSubtype(class, jax.closed_jaxpr_type.as_ptr().cast()) != 0
        };
        if jaxpr && value.getattr(intern!(py, "is_high"))?.is_truthy()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One tracer, or a list of them.
pub fn results<'py>(
    py: Python<'py>,
    info: PrimitiveInfo,
    mut outs: SmallVec<[Bound<'py, PyAny>; 1]>,
) -> PyResult<Bound<'py, PyAny>> {
    if info.multiple_results {
        return Ok(PyList::new(py, outs)?.into_any());
    }
    outs.pop().ok_or_else(|| PyRuntimeError::new_err("a primitive without a result"))
}

/// `default_process_primitive(primitive, tracers, params, source_info=None)`.
fn default_process_primitive<'py>(
    trace: &Bound<'py, PyAny>,
    args: &Args<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let frame = own_frame(jax, trace)?;
    let primitive = args.required(0, "primitive")?;
    let operands: SmallVec<[Operand<'_>; 4]> = args
        .required(1, "tracers")?
        .try_iter()?
        .map(|tracer| operand_of_tracer(jax, &frame, &tracer?))
        .collect::<PyResult<_>>()?;
    let params = args.required(2, "params")?.cast_into::<PyDict>()?;
    let source = SourceRef::or_current(jax, py, args.optional(3, "source_info")?.as_ref())?;
    let info = PrimitiveInfo::of(jax, &primitive)?;
    let context = Context::current(py, jax)?;
    let at = Staging {
        trace,
        frame: &frame,
        primitive: &primitive,
        info,
        context: &context,
        source: &source,
    };
    results(py, info, stage(jax, &at, &operands, &params)?)
}

/// `emit_eqn(in_tracers, out_avals, primitive, params, effects, source_info=None, ctx=None)`.
fn emit_eqn<'py>(trace: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    let frame = own_frame(jax, trace)?;
    let operands: SmallVec<[Operand<'_>; 4]> = args
        .required(0, "in_tracers")?
        .try_iter()?
        .map(|tracer| operand_of_tracer(jax, &frame, &tracer?))
        .collect::<PyResult<_>>()?;
    let out_avals: Vec<_> = args.required(1, "out_avals")?.try_iter()?.collect::<PyResult<_>>()?;
    let primitive = args.required(2, "primitive")?;
    let params = args.required(3, "params")?.cast_into::<PyDict>()?;
    let effects = args.required(4, "effects")?;
    let source = SourceRef::or_empty(jax, py, args.optional(5, "source_info")?.as_ref())?;
    let ctx = match args.optional(6, "ctx")? {
        Some(ctx) => ctx,
        None => Context::current(py, jax)?.for_eqns.bind(py).clone(),
    };
    let eqn = NewEqn {
        primitive: &primitive,
        operands: &operands,
        out_avals: &out_avals,
        params: &params,
        effects: &effects,
        source: &source,
        context: &ctx,
    };
    let outs = emit(jax, trace, &frame, &eqn)?;
    Ok(PyList::new(py, outs)?.into_any())
}
