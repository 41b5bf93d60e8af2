//! `core.eval_jaxpr` while a trace of ours may run: a call like a rule's, of the program and its
//! arguments.
//!
//! A program that has no key (one with a primitive of the user's, whose rules may do anything) is
//! evaluated here, in jax's order. Equations of jax's primitives are appended as `Primitive.bind` would;
//! the others are bound.

use std::sync::LazyLock;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::python::cache::call::{Site, Use, replay_or_learn};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encode::{
    EquationOperand, encode_equation, encode_evaluation, encode_fully,
};
use crate::python::cache::key::trace_context::{EquationSource, TraceContext};
use crate::python::cache::programs::forms::{is_closed, is_jaxpr};
use crate::python::cache::programs::running::is_running;
use crate::python::cache::rules::{self, Sites, has_programs};
use crate::python::cache::store;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::address;
use crate::python::interpose::bind::{Params, bind_here};
use crate::python::jax::current_trace::current_trace;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::{SourceRef, current_traceback, join_name_stacks};
use crate::python::jax::world::{self, Difference, owns_primitive};
use crate::python::program::jaxpr_view::{GraphView, JaxprView, ListsView, Operand};
use crate::python::program::lazy_jaxpr::unfilled;
use crate::python::trace::abstract_eval::{Context, PrimitiveInfo};
use crate::python::trace::jaxpr_trace::{frame_of, is_ours};
use crate::python::trace::session;

/// Stands in for `core.eval_jaxpr`.
///
/// Raises:
///     What its equations raise.
#[pyfunction]
pub fn eval_jaxpr<'py>(
    jaxpr: &Bound<'py, PyAny>,
    consts: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    keeps_sources: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = jaxpr.py();
    let jax = jax(py)?;
    let stock = || jax.stock_eval_jaxpr.bind(py).call1((jaxpr, consts, args, keeps_sources));
    if session::is_idle(py)? || !is_jaxpr(py, jax, jaxpr.as_ptr()) {
        return stock();
    }
    let proceed = || match evaluate(jax, jaxpr, consts, args, keeps_sources)? {
        Some(results) => Ok(results),
        None => stock(),
    };
    if is_running() {
        return proceed();
    }
    let Some(context) = TraceContext::read(py, jax)? else { return proceed() };
    let Ok(configuration) = context.configuration() else { return proceed() };
    let given = [jaxpr, consts, args.as_any(), keeps_sources].map(Bound::as_ptr);
    let mut call = SITE.call(configuration.number);
    let encode = |call: &mut Call| encode_evaluation(py, jax, &context, &given, call);
    if let Err(reason) = encode_fully(py, &mut call, encode)? {
        store::count_bypass(SITE.id, reason);
        return proceed();
    }
    replay_or_learn(py, jax, &SITE, &context, &call, &[], encode, proceed, || Ok(false), None)
}

static SITE: LazyLock<Site> =
    LazyLock::new(|| Site { programs: Use::Evaluated, ..Site::pure("eval_jaxpr") });

/// The sites of equations with programs.
static SITES: Sites = Sites::new("evaluation of ");

/// The results of a program, as a list; None, before any equation is evaluated, where that is left to
/// jax.
fn evaluate<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
    consts: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    keeps_sources: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = jaxpr.py();
    let is_other_form = is_closed(jax, jaxpr) && !jax.has_one_jaxpr_type();
    if is_other_form || jax.checks_jaxprs(py)? || !is_as_known(py, jax)? {
        return Ok(None);
    }
    let Some(consts) = items(consts) else { return Ok(None) };
    let keeps_sources = keeps_sources.is_truthy()?;
    match unfilled(jax, jaxpr) {
        Some(graph) if !graph.get().is_derived() => {
            let view = GraphView::new(jax, &graph);
            run(jax, &view, consts, args, keeps_sources)
        }
        _ => run(jax, &ListsView::new(jax, jaxpr), consts, args, keeps_sources),
    }
}

/// Whether nothing of jax that its own evaluation calls for each equation was changed.
fn is_as_known(py: Python<'_>, jax: &Jax) -> PyResult<bool> {
    world::poll_soon();
    let (number, differing) = match world::difference(py)? {
        Difference::None => return Ok(true),
        Difference::Some(number, differing) => (number, differing),
        Difference::Total => return Ok(false),
    };
    if let Some(concerned) = CONCERNED.get(&number, |concerned| *concerned) {
        return Ok(!concerned);
    }
    let concerned = differing.concerns(jax.evaluation_codes.bind(py))?;
    drop(CONCERNED.insert_bounded(number, concerned, MAX_REMEMBERED));
    Ok(!concerned)
}

/// Whether a difference of jax, by its number, concerns evaluation.
static CONCERNED: AddressCache<bool, u32> = AddressCache::new();

fn items<'py>(values: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    let list = values.cast_exact::<PyList>().map(|list| list.iter().collect());
    list.or_else(|_| values.cast_exact::<PyTuple>().map(|tuple| tuple.iter().collect())).ok()
}

fn run<'py, V: JaxprView<'py>>(
    jax: &Jax,
    view: &V,
    consts: Vec<Bound<'py, PyAny>>,
    args: &Bound<'py, PyTuple>,
    keeps_sources: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = args.py();
    let constvars = view.constvars()?;
    let invars = view.invars()?;
    // Where there is one class, constants may be given that are not attached.
    let fits = consts.len() == constvars.len() || jax.has_one_jaxpr_type();
    if !fits || consts.len() + args.len() != constvars.len() + invars.len() {
        return Ok(None);
    }
    let Some(eqns) = view.eqns()?.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let Some(plan) = Plan::of(jax, view, &constvars, &invars, &eqns)? else { return Ok(None) };
    let mut env: Vec<Option<Bound<'py, PyAny>>> = vec![None; view.num_vars()];
    let values = consts.into_iter().chain(args.iter());
    for (var, value) in constvars.iter().chain(&invars).zip(values) {
        env[view.number(var) as usize] = Some(value);
    }
    let mut context = EqnContext::default();
    let mut sources = Sources::new(py, jax, keeps_sources)?;
    let mut evaluate = || {
        for (index, (eqn, own)) in eqns.iter().zip(&plan.eqns).enumerate() {
            let operands = own.operands.iter().filter_map(|part| part.read(&env));
            let operands: Vec<_> = operands.collect();
            context.enter(jax, view.context(eqn))?;
            sources.read_outer(py, jax)?;
            let (traceback, source) = sources.of(jax, view.source(eqn)?)?;
            let step = Step {
                primitive: view.primitive(eqn),
                operands: PyTuple::new(py, operands)?,
                parts: &own.operands,
                params: view.params(eqn),
                traceback,
                source,
            };
            let results = step.bind(jax, own.outs.len())?;
            for (&out, result) in own.outs.iter().zip(results) {
                env[out as usize] = Some(result);
            }
            for part in &own.operands {
                if let Part::Var(number) = *part
                    && plan.last_uses[number as usize] == Some(index)
                {
                    drop(env[number as usize].take());
                }
            }
        }
        PyResult::Ok(())
    };
    let evaluated = evaluate();
    context.leave(py)?;
    evaluated?;
    let results: Vec<_> = plan.outs.iter().filter_map(|part| part.read(&env)).collect();
    Ok(Some(PyList::new(py, results)?.into_any()))
}

/// The configuration of the equations at hand, which is current from one to the next.
#[derive(Default)]
struct EqnContext<'py> {
    /// jax's `JaxprEqnContext`.
    context: Option<Bound<'py, PyAny>>,
    /// Its context manager, where it changes anything.
    entered: Option<Bound<'py, PyAny>>,
}

/// Whether a `JaxprEqnContext`, by its address, changes a configuration, by its number; with the object.
static CHANGES: AddressCache<(bool, Py<PyAny>), (usize, u32)> = AddressCache::new();
const MAX_REMEMBERED: usize = 1024;

impl<'py> EqnContext<'py> {
    fn enter(&mut self, jax: &Jax, context: Bound<'py, PyAny>) -> PyResult<()> {
        let py = context.py();
        if self.context.as_ref().is_some_and(|entered| entered.is(&context)) {
            return Ok(());
        }
        self.leave(py)?;
        let before = Context::current(py, jax)?.number;
        let key = (address(&context), before);
        if CHANGES.get(&key, |(changes, _)| *changes) != Some(false) {
            let manager = context.getattr(intern!(py, "manager"))?;
            manager.call_method0(intern!(py, "__enter__"))?;
            self.entered = Some(manager);
            let changes = Context::current(py, jax)?.number != before;
            let known = (changes, context.clone().unbind());
            drop(CHANGES.insert_bounded(key, known, MAX_REMEMBERED));
        }
        self.context = Some(context);
        Ok(())
    }

    fn leave(&mut self, py: Python<'py>) -> PyResult<()> {
        self.context = None;
        let Some(manager) = self.entered.take() else { return Ok(()) };
        let nothing = py.None();
        manager.call_method1(intern!(py, "__exit__"), (&nothing, &nothing, &nothing))?;
        Ok(())
    }
}

/// An operand, or an output.
enum Part<'py> {
    /// The number of a variable.
    Var(u32),
    Literal {
        literal: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    },
}

impl<'py> Part<'py> {
    /// Every variable that is read is defined.
    fn read(&self, env: &[Option<Bound<'py, PyAny>>]) -> Option<Bound<'py, PyAny>> {
        match self {
            Self::Var(number) => env.get(*number as usize).cloned().flatten(),
            Self::Literal { value, .. } => Some(value.clone()),
        }
    }
}

struct Wiring<'py> {
    operands: SmallVec<[Part<'py>; 4]>,
    outs: SmallVec<[u32; 2]>,
}

/// A program as it is evaluated.
struct Plan<'py> {
    eqns: Vec<Wiring<'py>>,
    outs: Vec<Part<'py>>,
    /// The equation after which a variable is dead, by its number; None where it stays.
    last_uses: Vec<Option<usize>>,
}

impl<'py> Plan<'py> {
    /// None where a variable is read before it is defined or defined twice, where an equation has other
    /// outputs than its primitive, or where this is a primitive of the user's that is bound in another way.
    fn of<V: JaxprView<'py>>(
        jax: &Jax,
        view: &V,
        constvars: &[V::Var],
        invars: &[V::Var],
        eqns: &[V::Eqn],
    ) -> PyResult<Option<Self>> {
        let mut defined: FxHashSet<u32> =
            constvars.iter().chain(invars).map(|var| view.number(var)).collect();
        let mut all = Vec::with_capacity(eqns.len());
        let part = |operand: Operand<'py, V::Var>, defined: &FxHashSet<u32>| match operand {
            Operand::Var(var) => {
                let number = view.number(&var);
                defined.contains(&number).then_some(Part::Var(number))
            }
            Operand::Literal(literal) => {
                // SAFETY: a live jax `Literal`.
                let value = unsafe { jax.slots.literal_val.get(&literal) };
                value.map(|value| Part::Literal { literal, value })
            }
        };
        for eqn in eqns {
            let operands = view.eqn_invars(eqn).map(|operand| part(operand, &defined));
            let Some(operands) = operands.collect::<Option<_>>() else { return Ok(None) };
            let outs: SmallVec<[u32; 2]> =
                view.eqn_outvars(eqn).map(|var| view.number(&var)).collect();
            let primitive = view.primitive(eqn);
            let info = PrimitiveInfo::of(jax, &primitive)?;
            let is_plain = info.plain_call || owns_primitive(jax, &primitive);
            if !is_plain
                || !info.multiple_results && outs.len() != 1
                || !outs.iter().all(|&out| defined.insert(out))
            {
                return Ok(None);
            }
            all.push(Wiring { operands, outs });
        }
        let outs = view.outvars()?.into_iter().map(|out| part(out, &defined));
        let Some(outs) = outs.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let mut last_uses = vec![None; view.num_vars()];
        for (index, eqn) in all.iter().enumerate() {
            for part in &eqn.operands {
                if let Part::Var(number) = *part {
                    last_uses[number as usize] = Some(index);
                }
            }
        }
        for out in &outs {
            if let Part::Var(number) = *out {
                last_uses[number as usize] = None;
            }
        }
        Ok(Some(Self { eqns: all, outs, last_uses }))
    }
}

/// The source info of equations below the one that is current.
struct Sources<'py> {
    /// jax's `SourceInfo` that is current, and its parts.
    current: Bound<'py, PyAny>,
    base: SourceRef<'py>,
    keeps: bool,
    /// Name stacks below the current one, by address; the program holds the stacks.
    stacks: FxHashMap<usize, Bound<'py, PyAny>>,
}

impl<'py> Sources<'py> {
    fn new(py: Python<'py>, jax: &Jax, keeps: bool) -> PyResult<Self> {
        Self::below(jax, jax.source_info_context.bind(py).getattr(intern!(py, "context"))?, keeps)
    }

    fn below(jax: &Jax, current: Bound<'py, PyAny>, keeps: bool) -> PyResult<Self> {
        let base = SourceRef::of(jax, &current)?;
        Ok(Self { current, base, keeps, stacks: FxHashMap::default() })
    }

    /// Reads again what is current, which a rule may have changed.
    fn read_outer(&mut self, py: Python<'py>, jax: &Jax) -> PyResult<()> {
        let current = jax.source_info_context.bind(py).getattr(intern!(py, "context"))?;
        if !current.is(&self.current) {
            *self = Self::below(jax, current, self.keeps)?;
        }
        Ok(())
    }

    /// An equation's traceback, where these are kept, and what is current while the equation is bound.
    fn of(
        &mut self,
        jax: &Jax,
        own: SourceRef<'py>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, SourceRef<'py>)> {
        let stack = &own.name_stack;
        let name_stack = if let Some(known) = self.stacks.get(&address(stack)) {
            known.clone()
        } else {
            let whole = join_name_stacks(jax, &self.base.name_stack, stack)?;
            self.stacks.insert(address(stack), whole.clone());
            whole
        };
        let given = own.traceback.filter(|_| self.keeps);
        let traceback = given.clone().or_else(|| self.base.traceback.clone());
        Ok((given, SourceRef { traceback, name_stack }))
    }
}

/// An equation with its operands.
struct Step<'a, 'py> {
    primitive: Bound<'py, PyAny>,
    operands: Bound<'py, PyTuple>,
    /// What they are in the program.
    parts: &'a [Part<'py>],
    params: Bound<'py, PyDict>,
    /// Its own.
    traceback: Option<Bound<'py, PyAny>>,
    /// What is current while it is bound.
    source: SourceRef<'py>,
}

/// Whether `bind` of a primitive is its class's at this moment: nobody need notice that it is another.
fn has_own_bind(jax: &Jax, primitive: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = primitive.py();
    let bind = primitive.getattr(intern!(py, "bind"))?;
    let function = bind.getattr_opt(intern!(py, "__func__"))?;
    Ok(function.is_some_and(|function| function.is(&jax.primitive_bind)))
}

type Results<'py> = SmallVec<[Bound<'py, PyAny>; 2]>;

/// As many results as there are outputs.
fn fitting<'py>(
    py: Python<'py>,
    jax: &Jax,
    results: Results<'py>,
    outs: usize,
) -> PyResult<Results<'py>> {
    if results.len() != outs {
        // Raises what says so.
        jax.foreach_pair.bind(py).call1((PyList::new(py, 0..outs)?, PyList::new(py, &results)?))?;
    }
    Ok(results)
}

impl<'py> Step<'_, 'py> {
    fn bind(&self, jax: &Jax, outs: usize) -> PyResult<Results<'py>> {
        let py = self.operands.py();
        match self.append(jax) {
            Ok(Some(results)) => return fitting(py, jax, results, outs),
            Ok(None) => {}
            Err(error) => {
                let raised = (error.value(py), &self.traceback, &self.source.name_stack);
                return Err(match jax.raise_within.bind(py).call1(raised) {
                    Ok(_) => error,
                    Err(error) => error,
                });
            }
        }
        let bound = self.replay_or_run(jax, || {
            jax.bind_equation.bind(py).call1((
                &self.primitive,
                &self.operands,
                &self.params,
                &self.traceback,
                &self.source.name_stack,
            ))
        })?;
        if !self.primitive.getattr(intern!(py, "multiple_results"))?.is_truthy()? {
            return Ok(SmallVec::from_iter([bound]));
        }
        let results = match bound.try_iter() {
            Ok(results) => results,
            Err(error) => {
                jax.foreach_pair.bind(py).call1((PyList::new(py, 0..outs)?, bound))?;
                return Err(error);
            }
        };
        fitting(py, jax, results.collect::<PyResult<_>>()?, outs)
    }

    /// Binds it with `run`. Where jax's primitive has programs, or is transformed, that is a call like a
    /// rule's.
    fn replay_or_run(
        &self,
        jax: &Jax,
        run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.operands.py();
        if !owns_primitive(jax, &self.primitive) {
            return run();
        }
        if !has_programs(jax, &self.params) {
            let (operands, source) = (&self.operands, &self.source);
            return rules::evaluate(jax, &self.primitive, operands, &self.params, source, run);
        }
        if is_running() {
            return run();
        }
        let Some(context) = TraceContext::read(py, jax)? else { return run() };
        let Some(configuration) =
            context.configuration().ok().filter(|_| context.stack().is_none())
        else {
            return run();
        };
        let context =
            context.at_equation(EquationSource { source: self.source.clone(), scope_key: None });
        let site = SITES.of(&self.primitive)?;
        let operands = self.operands.iter_borrowed().zip(self.parts);
        let operands: SmallVec<[EquationOperand; 8]> = operands
            .map(|(value, part)| match part {
                Part::Var(_) => EquationOperand::Value(value.as_ptr()),
                Part::Literal { literal, .. } => EquationOperand::Literal(literal.as_ptr()),
            })
            .collect();
        let mut call = site.call(configuration.number);
        let encode = |call: &mut Call| {
            let params = self.params.as_ptr();
            encode_equation(py, jax, &context, &self.primitive, params, &operands, call)
        };
        if let Err(reason) = encode_fully(py, &mut call, encode)? {
            store::count_bypass(site.id, reason);
            return run();
        }
        replay_or_learn(py, jax, &site, &context, &call, &[], encode, run, || Ok(false), None)
    }

    /// Appends it, where it is jax's and the current trace is ours; None otherwise.
    fn append(&self, jax: &Jax) -> PyResult<Option<Results<'py>>> {
        let py = self.operands.py();
        if !owns_primitive(jax, &self.primitive)
            || !PrimitiveInfo::of(jax, &self.primitive)?.plain_call
            || !has_own_bind(jax, &self.primitive)?
        {
            return Ok(None);
        }
        let trace = current_trace(py, jax)?;
        if !is_ours(py, trace.as_ptr()) {
            return Ok(None);
        }
        let Some(frame) = frame_of(jax, &trace) else { return Ok(None) };
        let source = || {
            let mut source = self.source.clone();
            if source.traceback.is_none() {
                source.traceback = current_traceback(py, jax)?;
            }
            Ok(source)
        };
        let params = Params::OfEquation(&self.params);
        let (primitive, operands) = (&self.primitive, &self.operands);
        let outs = bind_here(jax, (&trace, &frame), primitive, operands, params, source)?;
        Ok(outs.map(|outs| outs.into_iter().collect()))
    }
}
