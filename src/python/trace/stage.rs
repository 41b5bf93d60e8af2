//! Staging one primitive: abstract evaluation, constant folding, forwarding, appending.
//!
//! The order of steps is that of jax's `default_process_primitive`. What abstract evaluation and the
//! forwarding rule answered is remembered (see `memo`); then no Python runs at all.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple};
use smallvec::SmallVec;

use crate::ir::SourceId;

use crate::python::cpython::native::{string_of, while_handling};
use crate::python::jax::avals::aval_info;
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::world;
use crate::python::trace::abstract_eval::{self, Context, Entry, Key, Outcome, PrimitiveInfo};
use crate::python::trace::audit_schedule;
use crate::python::trace::frame::{Appended, Frame, NewVar, Operand};
use crate::python::trace::jaxpr_trace::{
    attach_qdd, const_operand, constant_value, operand_of_tracer, tracer_of,
};
use crate::python::trace::tracer::new_tracer;

/// Tracers of results.
pub type Objects<'py> = SmallVec<[Bound<'py, PyAny>; 1]>;

/// One primitive application about to be staged.
pub struct Staging<'a, 'py> {
    pub trace: &'a Bound<'py, PyAny>,
    pub frame: &'a Bound<'py, Frame>,
    pub primitive: &'a Bound<'py, PyAny>,
    pub info: PrimitiveInfo,
    pub context: &'a Context,
    pub source: &'a SourceRef<'py>,
}

/// As `stage`, where the outcome is remembered, takes no Python and has no mesh to check; None
/// otherwise, before any effect.
///
/// # Errors
/// The program cannot grow.
pub fn stage_known<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
) -> PyResult<Option<Objects<'py>>> {
    let py = params.py();
    let Some(entry) = at.key(jax, operands, params).and_then(|key| key.find()) else {
        return Ok(None);
    };
    let forwarding = jax.forwarding_rules.bind(py).get_item(at.primitive)?;
    if !entry.empty_meshes
        || entry.effects.is_some()
        || !same_rule(entry.forwarding_rule.as_ref(), forwarding.as_ref())
        || forwarding.is_some() && !is_as_ever(py)?
        || may_fold(jax, at, operands)?
    {
        return Ok(None);
    }
    if audit_schedule::is_evaluation_due() && !holds(jax, at, operands, params, &entry)? {
        return Ok(None);
    }
    append_remembered(jax, at, operands, &entry, None).map(Some)
}

/// Whether the rules still answer what is remembered; where they do not, nothing more of the primitive
/// is.
#[cold]
fn holds<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
    entry: &Entry,
) -> PyResult<bool> {
    let py = params.py();
    let (out_avals, effects) = abstract_eval(jax, at, operands, params)?;
    let out_avals = if at.info.multiple_results {
        out_avals.try_iter()?.collect::<PyResult<Vec<_>>>()?
    } else {
        vec![out_avals]
    };
    let rule = entry.forwarding_rule.as_ref().map(|rule| rule.bind(py));
    let forwarded = match rule {
        Some(rule) if jax.pure_forwarding_rules.bind(py).contains(rule)? => {
            ask_forwarding_rule(jax, at, rule, operands, params)?
        }
        _ => None,
    };
    let same_type = |(own, new): (&Py<PyAny>, &Bound<'py, PyAny>)| {
        own.is(new) || own.bind(py).eq(new).unwrap_or(false)
    };
    let same_effects = match &entry.effects {
        Some(own) => own.bind(py).eq(&effects)?,
        None => !effects.is_truthy()?,
    };
    if entry.out_avals.len() == out_avals.len()
        && entry.out_avals.iter().zip(&out_avals).all(same_type)
        && same_effects
        && entry.forwarded == forwarded
    {
        return Ok(true);
    }
    abstract_eval::bar(at.primitive);
    let remembered = PyTuple::new(py, &entry.out_avals)?;
    let own_effects = entry.effects.as_ref().map(|effects| effects.bind(py));
    let remembered = (remembered, own_effects, entry.forwarded).into_pyobject(py)?;
    let real = (PyTuple::new(py, &out_avals)?, effects, forwarded).into_pyobject(py)?;
    audit_schedule::evaluation(at.primitive, params, &remembered, &real)?;
    Ok(false)
}

/// Appends what the primitive does to the operands; the tracers of its results.
///
/// # Errors
/// Whatever jax's rules raise.
pub fn stage<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
) -> PyResult<Objects<'py>> {
    let py = params.py();
    let forwarding = jax.forwarding_rules.bind(py).get_item(at.primitive)?;
    let is_fixed = forwarding.is_none() || is_as_ever(py)?;
    let key = if is_fixed { at.key(jax, operands, params) } else { None };
    let Some(key) = key else {
        return stage_anew(jax, at, operands, params, forwarding.as_ref(), None);
    };
    match key.find() {
        Some(entry)
            if same_rule(entry.forwarding_rule.as_ref(), forwarding.as_ref())
                && (!audit_schedule::is_evaluation_due()
                    || holds(jax, at, operands, params, &entry)?) =>
        {
            stage_remembered(jax, at, operands, params, &entry)
        }
        _ => stage_anew(jax, at, operands, params, forwarding.as_ref(), Some(&key)),
    }
}

/// Whether jax is as it was: it asks a forwarding rule each time, which may come to anything of jax's.
fn is_as_ever(py: Python<'_>) -> PyResult<bool> {
    world::poll_soon();
    Ok(world::difference(py)?.number() == 0)
}

fn same_rule(remembered: Option<&Py<PyAny>>, now: Option<&Bound<'_, PyAny>>) -> bool {
    match (remembered, now) {
        (None, None) => true,
        (Some(remembered), Some(now)) => remembered.is(now),
        _ => false,
    }
}

impl<'py> Staging<'_, 'py> {
    /// The memo key, where this application can have one.
    fn key<'a>(
        &'a self,
        jax: &Jax,
        operands: &[Operand<'py>],
        params: &'a Bound<'py, PyDict>,
    ) -> Option<Key<'a, 'py>> {
        let interned = |operand: &Operand<'py>| {
            operand.aval().get_type_ptr() == jax.shaped_array_type.as_ptr().cast()
        };
        if self.info.uncached || self.info.barred || !operands.iter().all(interned) {
            return None;
        }
        let avals = operands.iter().map(|operand| operand.aval().as_ptr());
        Key::new(self.primitive, self.info, self.context, avals, params)
    }
}

fn stage_remembered<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
    entry: &Entry,
) -> PyResult<Objects<'py>> {
    let py = params.py();
    if let Some(folded) = fold(jax, at, operands, params, || {
        entry.out_avals.iter().map(|aval| aval.bind(py).clone()).collect()
    })? {
        return Ok(folded);
    }
    let Some(effects) = &entry.effects else {
        return append_remembered(jax, at, operands, entry, None);
    };
    let operands = with_tracers(jax, at.trace, at.frame, operands, at.source)?;
    let effects = resolved_effects(jax, at.frame, &operands, effects.bind(py))?;
    append_remembered(jax, at, &operands, entry, effects.as_ref())
}

fn append_remembered<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    entry: &Entry,
    effects: Option<&Bound<'py, PyAny>>,
) -> PyResult<Objects<'py>> {
    let py = at.trace.py();
    if let Some(index) = entry.forwarded {
        let tracer = tracer_of(jax, at.trace, at.frame, &operands[index], at.source)?;
        return Ok(SmallVec::from_iter([tracer]));
    }
    let context = at.context.for_eqns.bind(py);
    let known = match effects {
        None => Frame::append_known(at.frame, jax, entry.number, operands, at.source, context)?,
        Some(_) => None,
    };
    let (vars, source) = if let Some(known) = known {
        known
    } else {
        let local = Frame::local_entry(at.frame, jax, at.primitive, entry)?;
        let source = Frame::source(at.frame, jax, at.source)?;
        let eqn = Appended { local: &local, operands, effects, no_effects: None, source, context };
        (Frame::append(at.frame, jax, &eqn)?, source)
    };
    vars.into_iter()
        .zip(&entry.out_avals)
        .map(|(new, aval)| {
            new_tracer(jax, at.trace, new.var, aval.bind(py).clone(), source, new.counted)
        })
        .collect()
}

#[cold]
fn stage_anew<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
    forwarding: Option<&Bound<'py, PyAny>>,
    key: Option<&Key<'_, 'py>>,
) -> PyResult<Objects<'py>> {
    let py = params.py();
    let held;
    let operands = if jax.aval_qdd_type.is_none(py) {
        operands
    } else {
        // Abstract evaluation changes quasi-dynamic data, which a constant has with its variable.
        held = with_tracers(jax, at.trace, at.frame, operands, at.source)?;
        held.as_slice()
    };
    let (out_avals, effects) = abstract_eval(jax, at, operands, params)?;
    let out_avals: Vec<Bound<'py, PyAny>> = if at.info.multiple_results {
        out_avals.try_iter()?.collect::<PyResult<_>>()?
    } else {
        vec![out_avals]
    };
    if let Some(folded) = fold(jax, at, operands, params, || out_avals.clone())? {
        return Ok(folded);
    }
    let mut input_effects = false;
    for effect in effects.try_iter()? {
        input_effects |= effect?.is_instance(jax.input_effect_type.bind(py))?;
    }
    let forwarding_applies = forwarding.filter(|_| !input_effects);
    let forwarded = match forwarding_applies {
        None => None,
        Some(rule) if jax.no_forwarding_rules.bind(py).contains(rule)? => None,
        Some(rule) if jax.pure_forwarding_rules.bind(py).contains(rule)? => {
            ask_forwarding_rule(jax, at, rule, operands, params)?
        }
        Some(rule) => {
            return stage_with_rule(jax, at, rule, operands, &out_avals, params, &effects);
        }
    };
    if let Some(key) = key
        && let Some(entry) =
            remember(jax, key, operands, &out_avals, &effects, forwarding, forwarded)?
    {
        return stage_remembered(jax, at, operands, params, &entry);
    }
    if let Some(index) = forwarded {
        let tracer = tracer_of(jax, at.trace, at.frame, &operands[index], at.source)?;
        return Ok(SmallVec::from_iter([tracer]));
    }
    emit(
        jax,
        at.trace,
        at.frame,
        &NewEqn {
            primitive: at.primitive,
            operands,
            out_avals: &out_avals,
            params,
            effects: &effects,
            source: at.source,
            context: at.context.for_eqns.bind(py),
        },
    )
}

/// Remembers what was answered, where nothing in it belongs to this call alone.
fn remember<'py>(
    jax: &Jax,
    key: &Key<'_, 'py>,
    operands: &[Operand<'py>],
    out_avals: &[Bound<'py, PyAny>],
    effects: &Bound<'py, PyAny>,
    forwarding_rule: Option<&Bound<'py, PyAny>>,
    forwarded: Option<usize>,
) -> PyResult<Option<Arc<Entry>>> {
    let py = effects.py();
    let has_effects = effects.is_truthy()?;
    let qdd_type = jax.aval_qdd_type.bind(py);
    let mut plain = has_effects || is_empty_set(effects);
    for aval in out_avals {
        plain &= qdd_type.is_none() || !aval.is_instance(qdd_type)?;
    }
    if !plain {
        return Ok(None);
    }
    let mut empty_meshes = true;
    for operand in operands {
        empty_meshes &= aval_info(jax, operand.aval())?.empty_mesh;
    }
    let effects = has_effects.then_some(effects);
    let outcome = Outcome { out_avals, effects, forwarding_rule, forwarded, empty_meshes };
    Ok(Some(key.insert(&outcome)))
}

fn is_empty_set(effects: &Bound<'_, PyAny>) -> bool {
    effects.is_instance_of::<PySet>() || effects.is_instance_of::<PyFrozenSet>()
}

/// `primitive.abstract_eval`, through jax's own cache where jax uses it.
fn abstract_eval<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = params.py();
    let mut avals = Vec::with_capacity(operands.len() + 1);
    let cached = !at.info.uncached;
    if cached {
        avals.push(at.primitive.clone());
    }
    for operand in operands {
        avals.push(if aval_info(jax, operand.aval())?.has_qdd {
            tracer_of(jax, at.trace, at.frame, operand, at.source)?
                .getattr(intern!(py, "aval_mutable_qdd"))?
        } else {
            operand.aval().clone()
        });
    }
    let avals = PyTuple::new(py, avals)?;
    let answer = if cached {
        jax.abstract_eval_cached.bind(py).call(avals, Some(params)).map_err(|error| {
            // jax explains unhashable params where they are the reason.
            let explain = || jax.verify_params_are_hashable.bind(py).call1((at.primitive, params));
            match while_handling(py, &error, explain) {
                Ok(_) => error,
                Err(better) => better,
            }
        })?
    } else {
        at.primitive.getattr(intern!(py, "abstract_eval"))?.call(avals, Some(params))?
    };
    let (out_avals, effects) = jax.unpack_pair(&answer)?;
    let several = out_avals.is_instance_of::<PyTuple>() || out_avals.is_instance_of::<PyList>();
    if several != at.info.multiple_results {
        let name = string_of(&at.primitive.str()?);
        return Err(PyValueError::new_err(format!(
            "{name}.abstract_eval() method should return a tuple or a list iff {name}.multiple_results."
        )));
    }
    Ok((out_avals, effects))
}

/// Whether a folding rule would be asked.
fn may_fold<'py>(jax: &Jax, at: &Staging<'_, 'py>, operands: &[Operand<'py>]) -> PyResult<bool> {
    Ok(jax.const_fold_rules.bind(at.trace.py()).contains(at.primitive)?
        && operands.iter().any(|operand| constant_value(at.frame, operand).is_some()))
}

/// As `fold_constants`, as tracers.
fn fold<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
    out_avals: impl FnOnce() -> Vec<Bound<'py, PyAny>>,
) -> PyResult<Option<Objects<'py>>> {
    let Some(constants) = fold_constants(jax, at.frame, at.primitive, operands, params, out_avals)?
    else {
        return Ok(None);
    };
    constants
        .iter()
        .map(|constant| tracer_of(jax, at.trace, at.frame, constant, at.source))
        .collect::<PyResult<_>>()
        .map(Some)
}

/// jax's `try_constant_folding`: results that are constants, where a rule says so.
pub fn fold_constants<'py>(
    jax: &Jax,
    frame: &Bound<'py, Frame>,
    primitive: &Bound<'py, PyAny>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
    out_avals: impl FnOnce() -> Vec<Bound<'py, PyAny>>,
) -> PyResult<Option<SmallVec<[Operand<'py>; 1]>>> {
    let py = params.py();
    let Some(rule) = jax.const_fold_rules.bind(py).get_item(primitive)? else {
        return Ok(None);
    };
    let constants: Vec<_> = operands.iter().map(|operand| constant_value(frame, operand)).collect();
    if constants.iter().all(Option::is_none) {
        return Ok(None);
    }
    let out_avals = PyList::new(py, out_avals())?;
    let values = rule.call1((PyList::new(py, constants)?, params, &out_avals))?;
    if values.is_none() {
        return Ok(None);
    }
    jax.safe_zip
        .bind(py)
        .call1((values, out_avals))?
        .try_iter()?
        .map(|pair| {
            let (value, aval): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair?.extract()?;
            const_operand(jax, frame, &value, Some(aval))
        })
        .collect::<PyResult<_>>()
        .map(Some)
}

/// Asks a forwarding rule that reads only avals and params: the operand that is the single output.
fn ask_forwarding_rule<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    rule: &Bound<'py, PyAny>,
    operands: &[Operand<'py>],
    params: &Bound<'py, PyDict>,
) -> PyResult<Option<usize>> {
    let py = params.py();
    let none = py.None().into_bound(py);
    let atoms: Vec<_> = operands
        .iter()
        .map(|operand| jax.new_literal(&none, operand.aval()))
        .collect::<PyResult<_>>()?;
    let eqn = jax.eqn_type.bind(py).call1((
        PyList::new(py, atoms)?,
        PyList::empty(py),
        at.primitive,
        params,
        jax.no_effects.bind(py),
        &none,
        &none,
    ))?;
    let (forwards, _): (Vec<Option<usize>>, Bound<'py, PyAny>) = rule.call1((eqn,))?.extract()?;
    Ok(forwards.into_iter().flatten().next())
}

/// The general case of a forwarding rule, with jax's own equation object.
fn stage_with_rule<'py>(
    jax: &Jax,
    at: &Staging<'_, 'py>,
    rule: &Bound<'py, PyAny>,
    operands: &[Operand<'py>],
    out_avals: &[Bound<'py, PyAny>],
    params: &Bound<'py, PyDict>,
    effects: &Bound<'py, PyAny>,
) -> PyResult<Objects<'py>> {
    let py = params.py();
    let tracers: Vec<_> = operands
        .iter()
        .map(|operand| tracer_of(jax, at.trace, at.frame, operand, at.source))
        .collect::<PyResult<_>>()?;
    // What the rule answers is used as an index of Python's, with its errors.
    let tracers = PyList::new(py, tracers)?;
    let made = at.trace.call_method1(
        intern!(py, "make_eqn"),
        (
            &tracers,
            PyList::new(py, out_avals)?,
            at.primitive,
            params,
            effects,
            at.source.to_object(jax)?,
        ),
    )?;
    let (eqn, outs): (Bound<'py, PyAny>, Bound<'py, PyAny>) = made.extract()?;
    let (forwards, eqn) = jax.unpack_pair(&rule.call1((eqn,))?)?;
    for (out, operand) in forwards.try_iter()?.enumerate() {
        let operand = operand?;
        if !operand.is_none() {
            outs.set_item(out, tracers.as_any().get_item(operand)?)?;
        }
    }
    if !eqn.is_none() {
        at.frame.call_method1(intern!(py, "add_eqn"), (eqn,))?;
    }
    outs.try_iter()?.collect()
}

/// jax's `resolve_input_effects`; None where nothing is left.
fn resolved_effects<'py>(
    jax: &Jax,
    frame: &Bound<'py, Frame>,
    operands: &[Operand<'py>],
    effects: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = effects.py();
    let mut atoms = Vec::with_capacity(operands.len());
    for operand in operands {
        atoms.push(match operand {
            Operand::Literal { literal, .. } => literal.clone(),
            Operand::Var { var, .. } => Frame::var_object(frame, jax, *var)?,
            Operand::Const { value, .. } => value.clone(),
        });
    }
    let resolved = jax.resolve_input_effects.bind(py).call1((effects, PyList::new(py, atoms)?))?;
    Ok(resolved.is_truthy()?.then_some(resolved))
}

/// The operands with every constant as the variable of a tracer: effects refer to variables, and a
/// constant without a tracer or a use would be forgotten again.
fn with_tracers<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    operands: &[Operand<'py>],
    source: &SourceRef<'py>,
) -> PyResult<SmallVec<[Operand<'py>; 4]>> {
    let with_tracer = |operand: &Operand<'py>| match operand {
        Operand::Const { .. } => {
            let tracer = tracer_of(jax, trace, frame, operand, source)?;
            operand_of_tracer(jax, frame, &tracer)
        }
        _ => Ok(operand.clone()),
    };
    operands.iter().map(with_tracer).collect()
}

/// An equation to be appended as given.
pub struct NewEqn<'a, 'py> {
    pub primitive: &'a Bound<'py, PyAny>,
    pub operands: &'a [Operand<'py>],
    pub out_avals: &'a [Bound<'py, PyAny>],
    pub params: &'a Bound<'py, PyDict>,
    pub effects: &'a Bound<'py, PyAny>,
    pub source: &'a SourceRef<'py>,
    pub context: &'a Bound<'py, PyAny>,
}

/// Appends an equation; the tracers of its results. jax's `emit_eqn`.
pub fn emit<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    eqn: &NewEqn<'_, 'py>,
) -> PyResult<Objects<'py>> {
    let py = trace.py();
    let qdd_type = jax.aval_qdd_type.bind(py);
    let mut out_avals = Vec::with_capacity(eqn.out_avals.len());
    for aval in eqn.out_avals {
        let has_qdd = !qdd_type.is_none() && aval.is_instance(qdd_type)?;
        out_avals.push(if has_qdd { aval.getattr("aval")? } else { aval.clone() });
    }
    let plain = NewEqn { out_avals: &out_avals, ..*eqn };
    let (vars, source) = append(jax, trace, frame, &plain)?;
    let mut outs = SmallVec::new();
    for ((new, aval), given) in vars.into_iter().zip(&out_avals).zip(eqn.out_avals) {
        let tracer = new_tracer(jax, trace, new.var, aval.clone(), source, new.counted)?;
        if !given.is(aval) {
            attach_qdd(jax, frame, &tracer, aval, &given.getattr("qdd")?)?;
        }
        outs.push(tracer);
    }
    Ok(outs)
}

/// Appends an equation; its results have no tracers yet.
pub fn append<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    frame: &Bound<'py, Frame>,
    eqn: &NewEqn<'_, 'py>,
) -> PyResult<(SmallVec<[NewVar; 1]>, SourceId)> {
    let held;
    let (operands, resolved) = if eqn.effects.is_truthy()? {
        held = with_tracers(jax, trace, frame, eqn.operands, eqn.source)?;
        (held.as_slice(), resolved_effects(jax, frame, &held, eqn.effects)?)
    } else {
        (eqn.operands, None)
    };
    let local = Frame::describe(frame, jax, eqn.primitive, eqn.params, eqn.out_avals)?;
    let source = Frame::source(frame, jax, eqn.source)?;
    let eqn = Appended {
        local: &local,
        operands,
        effects: resolved.as_ref(),
        no_effects: resolved.is_none().then_some(eqn.effects),
        source,
        context: eqn.context,
    };
    Ok((Frame::append(frame, jax, &eqn)?, source))
}
