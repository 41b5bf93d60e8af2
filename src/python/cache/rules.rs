//! Rules of jax that run under transformations: what a primitive with programs among its params
//! (`scan`, `cond`, `jit` ...) comes to there.
//!
//! jax makes new programs of those that it is given, which is most of what differentiating or batching
//! a loop costs, and remembers them by identity. A body that is traced again is a new program
//! each time: here it is known by its structural id.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::python::cache::call::{Site, Use, replay_or_learn, run_aside, run_without_key};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encode::{BoundEquation, encode_fully, encode_rule};
use crate::python::cache::key::trace_context::{EquationSource, TraceContext};
use crate::python::cache::programs::forms::{closed_anew, is_jaxpr};
use crate::python::cache::programs::given::Repeat;
use crate::python::cache::programs::running::{is_running, run_rule};
use crate::python::cache::store;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::{address, string_of};
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::SourceRef;

/// Binds a primitive under transformations: replays what is known, else runs `proceed` and learns.
/// None where there is nothing to know.
///
/// # Errors
/// Those of the rules.
pub fn bind<'py>(
    jax: &Jax,
    primitive: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    params: &Bound<'py, PyDict>,
    proceed: impl Fn(&Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = primitive.py();
    let run = || proceed(params);
    // Within a rule jax goes by the identity of programs, as it does with what it remembers.
    if is_running() || !has_programs(jax, params) {
        return Ok(None);
    }
    let Some(context) = TraceContext::read(py, jax)?.filter(|context| context.stack().is_some())
    else {
        return run_rule(run).map(Some);
    };
    let Ok(configuration) = context.configuration() else { return run_rule(run).map(Some) };
    let site = SITES.of(primitive)?;
    let equation = equation_of(primitive, args, params, true);
    let mut call = site.call(configuration.number);
    let encode = |call: &mut Call| encode_rule(py, jax, &context, &equation, call);
    if let Err(reason) = encode_fully(py, &mut call, encode)? {
        store::count_bypass(site.id, reason);
        return run_without_key(jax, &site, &context, params, run).map(Some);
    }
    let ask = |repeat| {
        if has_effects(jax, params)? {
            return Ok(None);
        }
        let asked = match repeat {
            Repeat::Same => run_aside(jax, &context, &call, run)?,
            Repeat::Closed => {
                let anew = closed_anew(jax, params)?;
                run_aside(jax, &context, &call, || proceed(&anew))?
            }
        };
        Ok(Some(asked))
    };
    replay_or_learn(py, jax, &site, &context, &call, &[], encode, run, || Ok(false), Some(&ask))
        .map(Some)
}

/// Evaluates an equation without programs, with `run`. Where it is differentiated or batched that is a
/// call like a rule's: the body of a loop has many that are alike. The first of a kind is not learnt.
///
/// # Errors
/// Those of the rules.
pub fn evaluate<'py>(
    jax: &Jax,
    primitive: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    params: &Bound<'py, PyDict>,
    source: &SourceRef<'py>,
    run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = primitive.py();
    let Some(context) = TraceContext::read(py, jax)? else { return run() };
    let Some(stack) = context.stack() else { return run() };
    let Ok(configuration) = context.configuration() else { return run() };
    let scope_key = stack.scope_key(&source.name_stack)?;
    let context = context.at_equation(EquationSource { source: source.clone(), scope_key });
    let site = STEPS.of(primitive)?;
    let equation = equation_of(primitive, args, params, false);
    let mut call = site.call(configuration.number);
    let encode = |call: &mut Call| encode_rule(py, jax, &context, &equation, call);
    if let Err(reason) = encode_fully(py, &mut call, encode)? {
        store::count_bypass(site.id, reason);
        return run();
    }
    if store::is_first_sight(site.id, &call.signature) {
        store::count_miss(site.id);
        return run();
    }
    replay_or_learn(py, jax, &site, &context, &call, &[], encode, run, || Ok(false), None)
}

/// An equation that is a call.
fn equation_of<'a, 'py>(
    primitive: &'a Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    params: &Bound<'py, PyDict>,
    has_programs: bool,
) -> BoundEquation<'a, 'py> {
    let operands = args.iter_borrowed().map(pyo3::Borrowed::as_ptr).collect();
    BoundEquation { primitive, operands, params: params.as_ptr(), has_programs }
}

/// Whether a program among params has effects: what it appends cannot be taken back.
fn has_effects(jax: &Jax, params: &Bound<'_, PyDict>) -> PyResult<bool> {
    params.iter().try_fold(false, |found, (_, value)| Ok(found || is_effectful(jax, &value)?))
}

fn is_effectful(jax: &Jax, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    if is_jaxpr(py, jax, value.as_ptr()) {
        return value.getattr(intern!(py, "effects"))?.is_truthy();
    }
    let Ok(items) = value.cast::<PyTuple>() else { return Ok(false) };
    items.iter().try_fold(false, |found, item| Ok(found || is_effectful(jax, &item)?))
}

/// Whether there are programs among params.
pub fn has_programs(jax: &Jax, params: &Bound<'_, PyDict>) -> bool {
    params.iter().any(|(_, value)| has_program(jax, &value))
}

fn has_program(jax: &Jax, value: &Bound<'_, PyAny>) -> bool {
    is_jaxpr(value.py(), jax, value.as_ptr())
        || value
            .cast::<PyTuple>()
            .is_ok_and(|tuple| tuple.iter().any(|item| has_program(jax, &item)))
}

/// The sites of a kind of rule, by primitive. Primitives live as long as the process.
pub struct Sites {
    /// What comes before the primitive's name.
    kind: &'static str,
    known: AddressCache<Arc<Site>>,
}

static SITES: Sites = Sites::new("rule of ");
static STEPS: Sites = Sites::new("step of ");

impl Sites {
    /// Those of a kind.
    pub const fn new(kind: &'static str) -> Self {
        Self { kind, known: AddressCache::new() }
    }

    /// That of a primitive.
    ///
    /// # Errors
    /// It has no name.
    pub fn of(&self, primitive: &Bound<'_, PyAny>) -> PyResult<Arc<Site>> {
        let place = address(primitive);
        if let Some(site) = self.known.get(&place, |site| site.clone()) {
            return Ok(site);
        }
        let name = string_of(&primitive.getattr(intern!(primitive.py(), "name"))?.str()?);
        let py = primitive.py();
        let of_jits = jax(py)?.is_jit(primitive);
        let programs = if of_jits { Use::Kept } else { Use::Rule };
        let pure = Site::pure(&format!("{}{name}", self.kind)).lasting(self.kind, &name);
        let site = Arc::new(Site { programs, ..pure });
        // Its address is known from now on, so it must stay its own.
        std::mem::forget(primitive.clone().unbind());
        let (site, late) = self.known.get_or_insert(place, site, |site| site.clone());
        drop(late);
        Ok(site)
    }
}
