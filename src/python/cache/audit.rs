//! Auditing: of every so many calls that could be replayed one runs, and what it does is compared with
//! what is remembered.
//!
//! A call that is audited runs as one that is new does, so that what it appends and returns is jax's
//! whatever comes of the comparison. Where the two differ, the entry is dropped, the callable is barred for
//! the rest of the process, and `_reports/audit.py` is told.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;

use crate::expand::{CallableId, Operand, Template};
use crate::ir::Eqn;

use crate::python::cache::call::{Ran, Site, run_recorded};
use crate::python::cache::fragment::agree::{Tolerance, same_literal, same_value};
use crate::python::cache::fragment::before::Before;
use crate::python::cache::fragment::recorded::{Captured, EquationObjects, Part, Recorded, Scope};
use crate::python::cache::fragment::result::Recipe;
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::trace_context::TraceContext;
use crate::python::cache::programs::given::Given;
use crate::python::cache::programs::instantiate::Instantiation;
use crate::python::cache::reasons::{CHANGED_MEANWHILE, Reason};
use crate::python::cache::store;
use crate::python::cpython::native::{address, string_of};
use crate::python::jax::names::Jax;
use crate::python::jax::values::{typed_equal, typed_hash};
use crate::python::jax::watch_warnings;
pub use crate::python::trace::audit_schedule::{Running, is_due};
use crate::python::trace::audit_schedule::{note_difference, note_other_objects};

/// How many frames a traceback has at most: the innermost ones.
const MAX_FRAMES: usize = 512;

/// What is said of a difference.
#[derive(Default)]
pub struct Difference<'py> {
    reason: String,
    key: Option<Bound<'py, PyDict>>,
    replayed: Option<Bound<'py, PyAny>>,
    real: Option<Bound<'py, PyAny>>,
}

/// Bars a callable and says why.
///
/// # Errors
/// The warning is an error.
fn tell(py: Python<'_>, id: CallableId, difference: Difference<'_>) -> PyResult<()> {
    note_difference();
    let name = store::bar(id);
    let Difference { reason, key, replayed, real } = difference;
    watch_warnings::uncounted(|| {
        let module = py.import(intern!(py, "jaxide._reports.audit"))?;
        module.call_method1(
            intern!(py, "replay_differs"),
            (name.as_deref(), reason, key, replayed, real),
        )?;
        Ok(())
    })
}

/// Runs a call that could be replayed, and compares.
///
/// # Errors
/// Whatever the callable raises.
#[cold]
#[allow(clippy::too_many_arguments)] // what `replay_or_learn` has, and what it found
pub fn call<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    context: &TraceContext<'py>,
    call: &Call,
    recorded: &Recorded,
    describe: impl FnOnce(&mut Call) -> Result<(), Reason>,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _running = Running::begin();
    if let (Some(given), Some(own)) = (Given::of(py, jax, call), &recorded.programs) {
        // Later calls go on as after a replay.
        drop(Instantiation::new(py, given, own));
    }
    let Ran { result, learnt, given, before, .. } =
        run_recorded(py, jax, site, context, call, proceed, None, true)?;
    let mut audit = Audit { py, jax, regenerates: !site.forgets };
    let mut real = None;
    let reason = match learnt {
        Err(CHANGED_MEANWHILE) => None,
        Err(reason) => Some(format!("the call is one that is not recorded: {reason}")),
        Ok(mut learnt) => {
            let found = audit.difference(recorded, &mut learnt, given.as_ref());
            let found = match found {
                None => audit.other_sources(&before, &learnt)?,
                found => found,
            };
            if found.is_some() {
                real = Some(rows(py, &learnt)?);
            }
            found
        }
    };
    drop(before);
    if let Some(reason) = reason {
        let replayed = Some(rows(py, recorded)?);
        let key = Some(key_of(py, call, describe)?);
        tell(py, site.id, Difference { reason, key, replayed, real })?;
    }
    Ok(result)
}

/// Compares params that were made of others with what a replay would have made.
///
/// # Errors
/// The warning is an error.
pub fn params<'py>(
    jax: &Jax,
    site: &Site,
    primitive: &Bound<'py, PyAny>,
    recorded: &Recorded,
    made: Option<&Bound<'py, PyDict>>,
    given: &Given,
) -> PyResult<()> {
    let py = primitive.py();
    let learnt = made.map(|made| Recorded::of_params(primitive, made.clone()));
    let mut audit = Audit { py, jax, regenerates: false };
    let (reason, real) = match learnt {
        Some(Ok(mut learnt)) => {
            let found = audit.difference(recorded, &mut learnt, Some(given));
            (found, Some(rows(py, &learnt)?))
        }
        Some(Err(reason)) => (Some(reason.to_owned()), None),
        None => (Some("the rule changes more than params".to_owned()), None),
    };
    let Some(reason) = reason else { return Ok(()) };
    let replayed = Some(rows(py, recorded)?);
    tell(py, site.id, Difference { reason, real, replayed, key: None })
}

/// Says that what was derived of a program differs from what is remembered.
///
/// # Errors
/// The warning is an error.
pub fn derivation<'py>(
    id: CallableId,
    key: &Bound<'py, PyAny>,
    remembered: &Bound<'py, PyAny>,
    real: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = key.py();
    let named = PyDict::new(py);
    named.set_item("key", key)?;
    let difference = Difference {
        reason: "what is derived of the program".to_owned(),
        key: Some(named),
        replayed: Some(remembered.clone()),
        real: Some(real.clone()),
    };
    tell(py, id, difference)
}

/// Whether two objects are structurally equal, whatever they are.
pub fn same_content(py: Python<'_>, one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>) -> bool {
    let compare = || -> PyResult<bool> {
        let module = py.import(intern!(py, "jaxide._reports.audit"))?;
        module.call_method1(intern!(py, "same"), (one, another))?.is_truthy()
    };
    one.is(another) || compare().unwrap_or(false)
}

/// Two recordings of a call, compared.
struct Audit<'a, 'py> {
    py: Python<'py>,
    jax: &'a Jax,
    /// Derivative rules may be new at each call.
    regenerates: bool,
}

impl<'py> Audit<'_, 'py> {
    /// In what a call differs from what is remembered.
    fn difference(
        &mut self,
        recorded: &Recorded,
        learnt: &mut Recorded,
        given: Option<&Given>,
    ) -> Option<String> {
        let (py, jax) = (self.py, self.jax);
        let both = given.and_then(|given| {
            recorded.programs.as_ref().map(|programs| programs.beside(jax, given))
        });
        let tolerance =
            Tolerance { jax, rules: both.is_none() && self.regenerates, programs: both.as_ref() };
        let agrees = learnt.agrees(py, recorded, &tolerance);
        let levels = |recorded: &Recorded| -> Vec<usize> {
            recorded.tangents.iter().map(|(level, _)| *level).collect()
        };
        if levels(recorded) != levels(learnt) {
            return Some("the programs that it appends to".to_owned());
        }
        for (one, another) in recorded.parts().zip(learnt.parts()) {
            let found = self.part(one, another, agrees);
            if found.is_some() {
                return found;
            }
        }
        let same = |one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>| self.same(one, another);
        if !recorded.recipe.agrees(py, &learnt.recipe, &same) {
            return Some("the result".to_owned());
        }
        let transformed = recorded.transformed.len() == learnt.transformed.len()
            && recorded
                .transformed
                .iter()
                .zip(&learnt.transformed)
                .all(|(a, b)| a.agrees(py, b, &same));
        if !transformed {
            return Some("the values of transformations".to_owned());
        }
        let (own, others) = (&recorded.structured_residuals, &learnt.structured_residuals);
        let residuals = own.len() == others.len()
            && own
                .iter()
                .zip(others)
                .all(|((a, one), (b, another))| a == b && Recipe::agrees(one, py, another, &same));
        if !residuals {
            return Some("what rules pass by".to_owned());
        }
        if !agrees {
            note_other_objects();
        }
        None
    }

    fn same(&self, one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>) -> bool {
        one.is(another)
            || (typed_hash(one).is_some() && typed_equal(one, another))
            || same_value(self.jax, one, another)
            || same_content(self.py, one, another)
    }

    /// In what a part differs; `agrees` where the params are known to be the same.
    fn part(&self, one: &Part, another: &Part, agrees: bool) -> Option<String> {
        let py = self.py;
        let pairs = || one.equations.iter().zip(&another.equations).enumerate();
        if one.equations.len() != another.equations.len() {
            return Some(format!(
                "{} equations, not {}",
                another.equations.len(),
                one.equations.len()
            ));
        }
        for (index, (a, b)) in pairs() {
            if !a.primitive.is(&b.primitive) {
                return Some(format!("the primitive of equation {index}"));
            }
            if !same_effects(py, a, b) {
                return Some(format!("the effects of equation {index}"));
            }
            if !a.context.is(&b.context) && !self.same(a.context.bind(py), b.context.bind(py)) {
                return Some(format!("the context of equation {index}"));
            }
        }
        let same_type = |a: &Py<PyAny>, b: &Py<PyAny>| {
            a.is(b)
                || a.bind(py).get_type().is(b.bind(py).get_type())
                    && a.bind(py).eq(b).unwrap_or(false)
        };
        let operands = self.operands(one, another);
        if operands.is_some() {
            return operands;
        }
        if one.types.len() != another.types.len()
            || !one.types.iter().zip(&another.types).all(|(a, b)| same_type(a, b))
        {
            return Some("types of outputs".to_owned());
        }
        for (index, ((a, type_a), (b, type_b))) in
            one.consts.iter().zip(&another.consts).enumerate()
        {
            if !self.same_captured(a, b) || !same_type(type_a, type_b) {
                return Some(format!("constant {index}"));
            }
        }
        if one.scopes.len() != another.scopes.len() {
            return Some("name scopes".to_owned());
        }
        if let Some(index) =
            one.scopes.iter().zip(&another.scopes).position(|(a, b)| !self.same_scope(a, b))
        {
            return Some(format!("name scope or source {index}"));
        }
        if !agrees {
            for (index, (a, b)) in pairs() {
                if let Some(name) = self.other_param(a.params.bind(py), b.params.bind(py)) {
                    return Some(format!("the param {name} of equation {index}"));
                }
            }
        }
        None
    }

    /// In what the operands of equations differ.
    fn operands(&self, one: &Part, another: &Part) -> Option<String> {
        let alike = |a: &(Py<PyAny>, Option<usize>), b: &(Py<PyAny>, Option<usize>)| {
            a.1 == b.1 && same_bits(a.0.bind(self.py), b.0.bind(self.py))
        };
        // Where a value is used twice, it may be one literal or two.
        let agrees = one.fragment.agrees(&another.fragment, |own, others| {
            let literals = (one.literals.get(own as usize), another.literals.get(others as usize));
            matches!(literals, (Some(a), Some(b)) if alike(a, b))
        });
        if agrees {
            return None;
        }
        let mut literals = one.literals.iter().zip(&another.literals);
        match literals.position(|(a, b)| !alike(a, b)) {
            Some(index) if one.fragment == another.fragment => {
                let is_arg = one.literals[index].1 != another.literals[index].1;
                let given = if is_arg { ", which is an argument's" } else { "" };
                Some(format!("literal {index}{given}"))
            }
            _ => Some("operands, or the order of types, literals, constants or scopes".to_owned()),
        }
    }

    /// The name of a param that differs.
    fn other_param(&self, one: &Bound<'_, PyDict>, another: &Bound<'_, PyDict>) -> Option<String> {
        if one.len() != another.len() {
            return Some("count".to_owned());
        }
        for (name, value) in one {
            let other = another.get_item(&name).ok().flatten();
            if !other.is_some_and(|other| self.same(&value, &other)) {
                return Some(name.cast::<PyString>().map_or_else(|_| "name".to_owned(), string_of));
            }
        }
        None
    }

    fn same_captured(&self, one: &Captured, another: &Captured) -> bool {
        match (one, another) {
            (Captured::Value(a), Captured::Value(b)) => self.same(a.bind(self.py), b.bind(self.py)),
            _ => one.agrees(self.py, another),
        }
    }

    fn same_scope(&self, one: &Scope, another: &Scope) -> bool {
        let py = self.py;
        let stacks = match (&one.name_stack, &another.name_stack) {
            (None, None) => true,
            (Some(a), Some(b)) => a.is(b) || a.bind(py).eq(b).unwrap_or(false),
            _ => false,
        };
        let sources = match (&one.traceback, &another.traceback) {
            (None, None) => true,
            (Some(a), Some(b)) => self.same_frames(a.bind(py), b.bind(py)).unwrap_or(false),
            _ => false,
        };
        stacks && sources
    }

    /// Whether two tracebacks have the same frames of the user's.
    fn same_frames(&self, one: &Bound<'py, PyAny>, another: &Bound<'py, PyAny>) -> PyResult<bool> {
        if one.is(another) {
            return Ok(true);
        }
        let user_frames = self.jax.user_frames.bind(self.py);
        let frames = |traceback: &Bound<'py, PyAny>| {
            Ok::<_, PyErr>(user_frames.call1((traceback,))?.cast_into::<PyTuple>()?)
        };
        let is_whole = |traceback: &Bound<'py, PyAny>| {
            let raw = traceback.call_method0(intern!(self.py, "raw_frames"))?;
            Ok::<_, PyErr>(raw.get_item(0)?.len()? < MAX_FRAMES)
        };
        let (one_has, another_has) = (frames(one)?, frames(another)?);
        let (len, other_len) = (one_has.len(), another_has.len());
        if len == other_len || is_whole(one)? && is_whole(another)? {
            return one_has.eq(&another_has);
        }
        // There are other frames of jax's among those that fit, so fewer or more of the user's do.
        let len = len.min(other_len);
        one_has.get_slice(0, len).eq(another_has.get_slice(0, len))
    }

    /// Whether equations have other lines of the user's than a replay would give them.
    fn other_sources(&self, before: &Before<'py>, learnt: &Recorded) -> PyResult<Option<String>> {
        let py = self.py;
        let mut parts = learnt.parts();
        let mut known: FxHashMap<(usize, usize), bool> = FxHashMap::default();
        for (place, (frame, first)) in before.frames().enumerate() {
            let real: Option<Vec<Option<Py<PyAny>>>> = frame.get().with(py, |frame, quiet| {
                let (builder, side) = frame.recorded()?;
                let end = u32::try_from(builder.num_appended()).unwrap_or(u32::MAX);
                let live = (first..end).map(Eqn::from_u32).filter(|&eqn| builder.is_live(eqn));
                let traceback = |eqn| {
                    let source = builder.source_data(builder.eqn_data(eqn).source);
                    source.traceback.and_then(|id| side.source_object_of(quiet, id))
                };
                Some(live.map(traceback).collect())
            });
            let Some(real) = real else { continue };
            let bind = |real: Option<Py<PyAny>>| real.map(|real| real.into_bound(py));
            let real: Vec<Option<Bound<'py, PyAny>>> = real.into_iter().map(bind).collect();
            // Of the programs of tangents only those are there that something was appended to.
            if place > 0 && real.is_empty() {
                continue;
            }
            let Some(part) = parts.next() else { break };
            let templates = part.fragment.templates();
            for (index, (template, real)) in templates.iter().zip(real).enumerate() {
                let scope = &part.scopes[template.scope() as usize];
                let own = scope.traceback.as_ref().map(|own| own.bind(py).clone());
                let same = match (own.or_else(|| before.source.traceback.clone()), real) {
                    (None, None) => true,
                    (Some(a), Some(b)) => {
                        let place = (address(&a), address(&b));
                        if let Some(&same) = known.get(&place) {
                            same
                        } else {
                            let same = self.same_frames(&a, &b)?;
                            known.insert(place, same);
                            same
                        }
                    }
                    _ => false,
                };
                if !same {
                    return Ok(Some(format!("the source of equation {index}")));
                }
            }
        }
        Ok(None)
    }
}

fn same_effects(py: Python<'_>, one: &EquationObjects, another: &EquationObjects) -> bool {
    if !one.has_effects_of(py, another) {
        return false;
    }
    match (&one.effects, &another.effects) {
        (None, None) => true,
        // Those on operands name the variables of the program.
        (Some(_), Some(_)) if !one.on_operands.is_empty() => true,
        (Some(a), Some(b)) => a.bind(py).eq(b).unwrap_or(false),
        _ => false,
    }
}

/// Whether two of jax's literals are equal, the bits of a float included.
fn same_bits(one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>) -> bool {
    let bits = |literal: &Bound<'_, PyAny>| {
        let value = literal.getattr(intern!(literal.py(), "val")).ok()?;
        value.extract::<f64>().ok().map(f64::to_bits)
    };
    same_literal(one, another).unwrap_or(false) && bits(one) == bits(another)
}

/// The key of a call: what is traced, what is known by identity, and the words.
fn key_of<'py>(
    py: Python<'py>,
    call: &Call,
    describe: impl FnOnce(&mut Call) -> Result<(), Reason>,
) -> PyResult<Bound<'py, PyDict>> {
    let object = |&pointer: &*mut pyo3::ffi::PyObject| {
        // SAFETY: an argument of the call under way, or what one holds.
        unsafe { Bound::from_borrowed_ptr(py, pointer) }
    };
    let key = PyDict::new(py);
    key.set_item("traced", PyList::new(py, call.traced.iter().map(object))?)?;
    key.set_item(
        "values of enclosing traces",
        PyList::new(py, call.enclosing.iter().map(object))?,
    )?;
    key.set_item("programs", PyList::new(py, call.programs.iter().map(object))?)?;
    let mut again = Call { pins: Some(Vec::new()), ..call.empty() };
    if describe(&mut again).is_ok() {
        let pins = again.pins.take().unwrap_or_default();
        key.set_item("objects", PyList::new(py, pins.iter().map(object))?)?;
    }
    key.set_item("words", PyList::new(py, call.signature.words())?)?;
    Ok(key)
}

/// The equations of a recording as data: for each program primitive, params, operands, types, effects,
/// name stack and traceback.
fn rows<'py>(py: Python<'py>, recorded: &Recorded) -> PyResult<Bound<'py, PyAny>> {
    let all = PyList::empty(py);
    for part in recorded.parts() {
        let own = PyList::empty(py);
        let templates = part.fragment.templates();
        for (index, equation) in part.equations.iter().enumerate() {
            own.append(row(py, part, equation, templates.get(index))?)?;
        }
        all.append(own)?;
    }
    Ok(all.into_any())
}

fn row<'py>(
    py: Python<'py>,
    part: &Part,
    equation: &EquationObjects,
    template: Option<&Template>,
) -> PyResult<Bound<'py, PyTuple>> {
    let (operands, types) = (PyList::empty(py), PyList::empty(py));
    let mut scope = (py.None(), py.None());
    for operand in template.into_iter().flat_map(Template::operands) {
        let text = match *operand {
            Operand::Arg(index) => format!("argument {index}"),
            Operand::Out(index) => format!("output {index}"),
            Operand::Literal(index) => string_of(&part.literals[index as usize].0.bind(py).repr()?),
            Operand::Const(index) => format!("constant {index}"),
        };
        operands.append(text)?;
    }
    if let Some(template) = template {
        for &ty in template.out_types() {
            types.append(&part.types[ty as usize])?;
        }
        let own = &part.scopes[template.scope() as usize];
        let object = |object: &Option<Py<PyAny>>| {
            object.as_ref().map_or_else(|| py.None(), |object| object.clone_ref(py))
        };
        scope = (object(&own.name_stack), object(&own.traceback));
    }
    let effects = equation.effects.as_ref().map(|effects| effects.clone_ref(py));
    let params = equation.params.bind(py);
    (equation.primitive.clone_ref(py), params, operands, types, effects, scope.0, scope.1)
        .into_pyobject(py)
}
