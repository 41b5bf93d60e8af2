//! The backward pass: the equations of a linear program transposed, last one first.
//!
//! Transposing an equation is a call like others: for the same primitive, params, operands,
//! cotangents and sums so far it appends the same equations and leaves the same sums. What is not
//! known yet jax does itself, one equation at a time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyList, PyNotImplemented, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::expand::Signature;

use crate::python::cache::call::{Asked, Site, replay_or_learn, run_aside, run_without_key};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encode::{
    Equation, EquationOperand, encode_fully, encode_transposition,
};
use crate::python::cache::key::trace_context::{EquationSource, TraceContext};
use crate::python::cache::linear_env::{Slot, evaluate_all, set_inputs, set_refs, unset};
use crate::python::cache::linear_program::{Linear, PrimitiveKind, Read, Step};
use crate::python::cache::programs::forms::closed_anew;
use crate::python::cache::programs::given::Repeat;
use crate::python::cache::programs::params::{self, Transposition};
use crate::python::cache::programs::running::{is_running, run_rule};
use crate::python::cache::rules::{Sites, has_programs};
use crate::python::cache::store;
use crate::python::cpython::native::address;
use crate::python::jax::instances::{new_accumulator, new_zero};
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::{SourceRef, join_name_stacks};
use crate::python::jax::world::poll_soon;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::graph_behind;
use crate::python::trace::session;

/// Stands in for `backward_pass3(jaxpr, transform_stack, consts, primals_in, cotangents_in)`;
/// `NotImplemented` where jax is to do it.
#[pyfunction]
pub fn backward_pass<'py>(
    jaxpr: &Bound<'py, PyAny>,
    transform_stack: &Bound<'py, PyAny>,
    consts: &Bound<'py, PyAny>,
    primals_in: &Bound<'py, PyAny>,
    cotangents_in: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = jaxpr.py();
    let jax = jax(py)?;
    poll_soon();
    let pass = if session::is_tracing() && TraceContext::read(py, jax)?.is_some() {
        Pass::new(jax, jaxpr, consts, primals_in, cotangents_in)?
    } else {
        None
    };
    let Some(mut pass) = pass else {
        return Ok(PyNotImplemented::get(py).to_owned().into_any());
    };
    pass.accumulate_outputs(jax, cotangents_in)?;
    let body = Mutex::new(Some(pass));
    let body = PyCFunction::new_closure(py, None, None, move |args, _| {
        let py = args.py();
        let pass = body.lock().unwrap_or_else(PoisonError::into_inner).take();
        match pass {
            Some(pass) => pass.run(py).map(Bound::unbind),
            None => Ok(py.None()),
        }
    })?;
    jax.transposition_loop.bind(py).call1((transform_stack, body))
}

/// A linear program about to be transposed.
struct Pass {
    /// Whose equations are asked for where a rule has to run.
    jaxpr: Py<PyAny>,
    steps: Vec<Step>,
    outputs: Vec<Read>,
    env: Vec<Slot>,
    /// `Zero` of cotangents' types.
    zeros: FxHashMap<usize, Py<PyAny>>,
    /// By the address of the primitive.
    kinds: FxHashMap<usize, PrimitiveKind>,
    /// The places of equations that are not linear.
    evaluated: FxHashSet<usize>,
}

impl Pass {
    /// Reads the program, and evaluates what is not linear; None where it has what jax's own loop is
    /// for: equations that are none of jax's, cotangents that are all zero.
    fn new<'py>(
        jax: &Jax,
        jaxpr: &Bound<'py, PyAny>,
        consts: &Bound<'py, PyAny>,
        primals_in: &Bound<'py, PyAny>,
        cotangents_in: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Self>> {
        let mut any_cotangent = false;
        for cotangent in cotangents_in.try_iter()? {
            any_cotangent |= !cotangent?.get_type().is(&jax.zero_type);
        }
        if !any_cotangent {
            return Ok(None);
        }
        let Some(linear) = Linear::of_jaxpr(jax, jaxpr)? else { return Ok(None) };
        if linear.inputs.len() != consts.len()? + primals_in.len()? {
            return Ok(None);
        }
        let values = consts.try_iter()?.chain(primals_in.try_iter()?);
        let mut env = set_inputs(jax, &linear, values)?;
        let Some(kinds) = set_refs(jax, jaxpr.py(), &linear.steps, &mut env)? else {
            return Ok(None);
        };
        // From here on something is bound: jax's loop would do it once more.
        let evaluated = evaluate_all(jax, jaxpr, &linear.steps, &kinds, &mut env)?;
        let Linear { steps, outputs, .. } = linear;
        let (jaxpr, zeros) = (jaxpr.clone().unbind(), FxHashMap::default());
        Ok(Some(Self { jaxpr, steps, outputs, env, zeros, kinds, evaluated }))
    }

    /// `Zero(aval)`.
    fn zero<'py>(&mut self, jax: &Jax, aval: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(zero) = self.zeros.get(&address(aval)) {
            return Ok(zero.bind(aval.py()).clone());
        }
        let zero = new_zero(jax, aval)?;
        self.zeros.insert(address(aval), zero.clone().unbind());
        Ok(zero)
    }

    /// The cotangent of a variable, which is then no longer needed.
    fn freeze<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        place: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        match std::mem::replace(&mut self.env[place as usize], Slot::Unset) {
            Slot::Sum { sum: Some(sum), .. } => Ok(sum.into_bound(py)),
            Slot::Sum { aval, sum: None } => self.zero(jax, aval.bind(py)),
            Slot::Given(accumulator) => accumulator.bind(py).call_method0(intern!(py, "freeze")),
            Slot::Value(_) | Slot::Unset => Err(unset()),
        }
    }

    /// Adds the cotangents of the outputs.
    fn accumulate_outputs(&mut self, jax: &Jax, cotangents: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = cotangents.py();
        let outputs = std::mem::take(&mut self.outputs);
        if outputs.len() != cotangents.len()? {
            // Raises.
            let places = PyTuple::new(py, 0..outputs.len())?;
            jax.safe_zip.bind(py).call1((places, cotangents))?;
        }
        for (read, cotangent) in outputs.iter().zip(cotangents.try_iter()?) {
            // A literal is no accumulator, nor is a value that was passed on.
            let Read::Var(place) = *read else { continue };
            let cotangent = cotangent?;
            match &self.env[place as usize] {
                Slot::Given(accumulator) => {
                    accumulator.bind(py).call_method1(intern!(py, "accum"), (cotangent,))?;
                }
                Slot::Sum { .. } => {
                    let lent = self.lend(py, jax, place)?;
                    lent.accumulator.call_method1(intern!(py, "accum"), (cotangent,))?;
                    self.take_back(&lent)?;
                }
                Slot::Value(_) => {}
                Slot::Unset => return Err(unset()),
            }
        }
        Ok(())
    }

    /// A `ValAccum` for a rule of jax.
    fn lend<'py>(&mut self, py: Python<'py>, jax: &Jax, place: u32) -> PyResult<Lent<'py>> {
        let Slot::Sum { aval, .. } = &self.env[place as usize] else { return Err(unset()) };
        let aval = aval.bind(py).clone();
        let before = self.sum(py, jax, place)?;
        let accumulator = new_accumulator(jax, &aval, &before)?;
        Ok(Lent { place, accumulator, before })
    }

    /// Takes over what a rule has added.
    fn take_back(&mut self, lent: &Lent<'_>) -> PyResult<()> {
        let now = lent.accumulator.getattr(intern!(lent.accumulator.py(), "val"))?;
        if let Slot::Sum { sum, .. } = &mut self.env[lent.place as usize]
            && !now.is(&lent.before)
        {
            *sum = Some(now.unbind());
        }
        Ok(())
    }

    /// Transposes all equations; what their rules log.
    fn run(mut self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let jax = jax(py)?;
        let mut logs: Option<Bound<'_, PyAny>> = None;
        let mut scopes = Scopes::default();
        while let Some(step) = self.steps.pop() {
            if let Some(logged) = self.transpose(py, jax, &step, &mut scopes)? {
                let merge = jax.merge_rule_logs.bind(py);
                let so_far = logs.take().unwrap_or_else(|| PyDict::new(py).into_any());
                let eqn = self.eqn(py, jax, &step)?;
                logs = Some(merge.call1((eqn, so_far, logged))?);
            }
        }
        let nothing = || {
            if jax.merge_rule_logs.is_none(py) {
                py.None().into_bound(py)
            } else {
                PyDict::new(py).into_any()
            }
        };
        Ok(logs.unwrap_or_else(nothing))
    }

    /// As `step`, for an equation that is not remembered; `context` says where its equations come, where
    /// that is known.
    fn run_step<'py>(
        &mut self,
        context: Option<&TraceContext<'py>>,
        jax: &Jax,
        step: &Step,
        cotangents: &[Bound<'py, PyAny>],
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let params = step.params.bind(py);
        if !has_programs(jax, params) {
            return self.step(py, jax, step, cotangents);
        }
        let Some(context) = context.filter(|_| !is_running()) else {
            return run_rule(|| self.step(py, jax, step, cotangents));
        };
        let site = SITES.of(step.primitive.bind(py))?;
        run_without_key(jax, &site, context, params, || self.step(py, jax, step, cotangents))
    }

    /// Lets jax transpose an equation; what its rule logs.
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        step: &Step,
        cotangents: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let eqn = self.eqn(py, jax, step)?;
        self.step_of(jax, &eqn, step, cotangents)
    }

    /// The equation of the step at hand: the steps that are left are those before this one. The others are not made
    /// where nobody has read them.
    fn eqn<'py>(&self, py: Python<'py>, jax: &Jax, step: &Step) -> PyResult<Bound<'py, PyAny>> {
        let jaxpr = self.jaxpr.bind(py);
        if let Some(graph) = graph_behind(jax, jaxpr)
            // Such programs would have to be jax's own.
            && !(jax.has_one_jaxpr_type() && has_programs(jax, step.params.bind(py)))
            && let Some(eqn) = graph.get().program().eqns().nth(self.steps.len())
        {
            return Graph::eqn_object(&graph, jax, eqn);
        }
        jaxpr.getattr(intern!(py, "eqns"))?.get_item(self.steps.len())
    }

    /// As `step`, for an equation that may stand for the one at hand.
    fn step_of<'py>(
        &mut self,
        jax: &Jax,
        eqn: &Bound<'py, PyAny>,
        step: &Step,
        cotangents: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = eqn.py();
        let invars = eqn.getattr(intern!(py, "invars"))?.cast_into::<PyList>()?;
        let mut lent: SmallVec<[Lent<'py>; 4]> = SmallVec::new();
        let operands = PyList::empty(py);
        for (read, atom) in step.operands.iter().zip(invars.iter()) {
            let place = match read {
                Read::Literal(_) => {
                    operands.append(atom.getattr(intern!(py, "val"))?)?;
                    continue;
                }
                Read::Var(place) => *place,
            };
            match &self.env[place as usize] {
                Slot::Value(value) | Slot::Given(value) => operands.append(value.bind(py))?,
                Slot::Sum { .. } => {
                    if !lent.iter().any(|lent| lent.place == place) {
                        lent.push(self.lend(py, jax, place)?);
                    }
                    for lent in lent.iter().filter(|lent| lent.place == place) {
                        operands.append(&lent.accumulator)?;
                    }
                }
                Slot::Unset => return Err(unset()),
            }
        }
        let cotangents = PyList::new(py, cotangents)?;
        let logs = jax.transposition_step.bind(py).call1((eqn, cotangents, operands))?;
        for lent in &lent {
            self.take_back(lent)?;
        }
        // An empty one is what jax's own rules return that have none.
        let is_nothing = logs.is_none() || logs.cast::<PyDict>().is_ok_and(PyDictMethods::is_empty);
        Ok((!is_nothing && !jax.merge_rule_logs.is_none(py)).then_some(logs))
    }

    /// Transposes an equation that makes a Ref or reads its last value.
    fn ref_step(&mut self, py: Python<'_>, jax: &Jax, step: &Step) -> PyResult<()> {
        let [(out, _)] = step.outs[..] else { return Err(unset()) };
        let result = match &self.env[out as usize] {
            Slot::Given(given) => given.bind(py).clone(),
            _ => self.lend(py, jax, out)?.accumulator,
        };
        let mut lent = None;
        let operand = match step.operands.first() {
            Some(&Read::Var(place)) => match &self.env[place as usize] {
                Slot::Given(given) | Slot::Value(given) => given.bind(py).clone(),
                _ => lent.insert(self.lend(py, jax, place)?).accumulator.clone(),
            },
            _ => py.None().into_bound(py),
        };
        let eqn = self.eqn(py, jax, step)?;
        jax.ref_transposition_step.bind(py).call1((eqn, result, operand))?;
        self.env[out as usize] = Slot::Unset;
        lent.map_or(Ok(()), |lent| self.take_back(&lent))
    }

    /// The operands of an equation for its signature; None where one is an accumulator of another
    /// kind.
    fn describe<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        step: &Step,
    ) -> PyResult<Option<Described<'py>>> {
        let mut described = Described { operands: SmallVec::new(), sums: SmallVec::new() };
        for read in &step.operands {
            let place = match read {
                Read::Literal(literal) => {
                    described.operands.push(EquationOperand::Literal(literal.as_ptr()));
                    continue;
                }
                Read::Var(place) => *place,
            };
            let aval = match &self.env[place as usize] {
                Slot::Value(value) => {
                    described.operands.push(EquationOperand::Value(value.as_ptr()));
                    continue;
                }
                Slot::Given(given) if given.bind(py).get_type().is(&jax.val_accum_type) => {
                    given.bind(py).getattr(intern!(py, "aval"))?
                }
                Slot::Given(_) => return Ok(None),
                Slot::Sum { aval, .. } => aval.bind(py).clone(),
                Slot::Unset => return Err(unset()),
            };
            let sum = self.sum(py, jax, place)?;
            let (aval_ptr, sum_ptr) = (aval.as_ptr(), sum.as_ptr());
            described.operands.push(EquationOperand::Accumulator {
                place,
                aval: aval_ptr,
                sum: sum_ptr,
            });
            described.sums.push(Before { place, sum, _aval: aval });
        }
        Ok(Some(described))
    }

    /// The sum of an accumulator so far.
    fn sum<'py>(&mut self, py: Python<'py>, jax: &Jax, place: u32) -> PyResult<Bound<'py, PyAny>> {
        match &self.env[place as usize] {
            Slot::Given(given) => given.bind(py).getattr(intern!(py, "val")),
            Slot::Sum { sum: Some(sum), .. } => Ok(sum.bind(py).clone()),
            Slot::Sum { aval, sum: None } => {
                let aval = aval.bind(py).clone();
                self.zero(jax, &aval)
            }
            Slot::Value(_) | Slot::Unset => Err(unset()),
        }
    }

    /// The sums as they are now; None for one that is what it was.
    fn changed_sums<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        before: &[Before<'py>],
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut sums: SmallVec<[Bound<'py, PyAny>; 4]> = SmallVec::new();
        for Before { place, sum, .. } in before {
            let now = self.sum(py, jax, *place)?;
            sums.push(if now.is(sum) { py.None().into_bound(py) } else { now });
        }
        Ok(PyTuple::new(py, sums)?.into_any())
    }

    /// Sets the sums, which `changed_sums` returned when this was recorded.
    fn put_sums(&mut self, before: &[Before<'_>], sums: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = sums.py();
        for (Before { place, .. }, new) in before.iter().zip(sums.try_iter()?) {
            let new = new?;
            if new.is_none() {
                continue;
            }
            match &mut self.env[*place as usize] {
                Slot::Given(given) => given.bind(py).setattr(intern!(py, "val"), new)?,
                Slot::Sum { sum, .. } => *sum = Some(new.unbind()),
                Slot::Value(_) | Slot::Unset => return Err(unset()),
            }
        }
        Ok(())
    }

    /// Transposes an equation; what its rule logs.
    fn transpose<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        step: &Step,
        scopes: &mut Scopes<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.evaluated.contains(&self.steps.len()) {
            return Ok(None);
        }
        if self.kinds.get(&(step.primitive.as_ptr() as usize)) == Some(&PrimitiveKind::Ref) {
            return self.ref_step(py, jax, step).map(|()| None);
        }
        let mut cotangents: SmallVec<[Bound<'py, PyAny>; 2]> = SmallVec::new();
        for &(place, _) in &step.outs {
            cotangents.push(self.freeze(py, jax, place)?);
        }
        let context = TraceContext::read(py, jax)?;
        let Some((context, number)) = context
            .and_then(|context| context.configuration().ok().map(|known| (context, known.number)))
        else {
            return self.run_step(None, jax, step, &cotangents, py);
        };
        let Some(described) = self.describe(py, jax, step)? else {
            return self.run_step(Some(&context), jax, step, &cotangents, py);
        };
        let primitive = step.primitive.bind(py);
        let Some(site) = TransposeSite::of(jax, primitive, step.params.bind(py))? else {
            return self.step(py, jax, step, &cotangents);
        };
        let context = context.at_equation(source_of(jax, &context, step, scopes)?);
        self.replay_or_run_step(jax, step, &cotangents, &described, &site, &context, number)
    }

    /// As `step`, for an equation that is remembered.
    #[allow(clippy::too_many_arguments)] // an equation, what is known of it, and when
    fn replay_or_run_step<'py>(
        &mut self,
        jax: &Jax,
        step: &Step,
        cotangents: &[Bound<'py, PyAny>],
        described: &Described<'py>,
        site: &TransposeSite,
        context: &TraceContext<'py>,
        configuration: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = context.trace.py();
        let mut call = site.site().call(configuration);
        let pointers: SmallVec<[*mut ffi::PyObject; 2]> =
            cotangents.iter().map(Bound::as_ptr).collect();
        let equation = Equation {
            context: step.context.as_ptr(),
            primitive: step.primitive.as_ptr(),
            // Those of a fragment are known by their site.
            params: if site.is_of_params() { None } else { Some(step.params.as_ptr()) },
        };
        let operands = &described.operands;
        let encode = |call: &mut Call| {
            encode_transposition(py, jax, context, &equation, &pointers, operands, call)
        };
        let site = site.site();
        if let Err(reason) = encode_fully(py, &mut call, encode)? {
            store::count_bypass(site.id, reason);
            return self.run_step(Some(context), jax, step, cotangents, py);
        }
        let (mut logs, mut ran) = (None, false);
        let before = &described.sums;
        let pass = RefCell::new(self);
        let ask = |repeat| {
            let mut pass = pass.borrow_mut();
            pass.step_aside(jax, context, &call, step, cotangents, (before, repeat))
        };
        let sums = replay_or_learn(
            py,
            jax,
            site,
            context,
            &call,
            &[],
            encode,
            || {
                ran = true;
                let mut pass = pass.borrow_mut();
                logs = pass.step(py, jax, step, cotangents)?;
                pass.changed_sums(py, jax, before)
            },
            || Ok(false),
            Some(&ask),
        )?;
        if logs.is_some() {
            // Nobody would log them when the rule is replayed.
            store::forget_entries(site.id);
        }
        if !ran {
            pass.into_inner().put_sums(before, &sums)?;
        }
        Ok(logs)
    }

    /// Lets jax transpose an equation, and takes all back; the params of what it has appended. None where
    /// not all of it can be taken back.
    fn step_aside<'py>(
        &mut self,
        jax: &Jax,
        context: &TraceContext<'py>,
        call: &Call,
        step: &Step,
        cotangents: &[Bound<'py, PyAny>],
        (before, repeat): (&[Before<'py>], Repeat),
    ) -> PyResult<Option<Asked<'py>>> {
        let py = context.trace.py();
        let mut eqn = self.eqn(py, jax, step)?;
        if eqn.getattr(intern!(py, "effects"))?.is_truthy()? {
            return Ok(None);
        }
        if repeat == Repeat::Closed {
            let params = closed_anew(jax, step.params.bind(py))?;
            let replaced = [(intern!(py, "params"), params)].into_py_dict(py)?;
            eqn = eqn.call_method(intern!(py, "replace"), (), Some(&replaced))?;
        }
        let asked = run_aside(jax, context, call, || self.step_of(jax, &eqn, step, cotangents))?;
        for Before { place, sum, .. } in before {
            match &mut self.env[*place as usize] {
                Slot::Given(given) => given.bind(py).setattr(intern!(py, "val"), sum)?,
                Slot::Sum { sum: now, .. } => {
                    let is_zero = sum.get_type().is(&jax.zero_type);
                    *now = (!is_zero).then(|| sum.clone().unbind());
                }
                Slot::Value(_) | Slot::Unset => return Err(unset()),
            }
        }
        Ok(Some(asked))
    }
}

/// Where the transpositions of an equation are remembered.
enum TransposeSite {
    /// With the params, which are a fragment's.
    OfParams(Arc<Transposition>),
    OfPrimitive(Arc<Site>),
}

impl TransposeSite {
    /// None where an equation is not remembered.
    fn of<'py>(
        jax: &Jax,
        primitive: &Bound<'py, PyAny>,
        params: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Self>> {
        // What is known of programs by their structure outlives them.
        let by_structure = params::is_new(params) && has_programs(jax, params);
        if by_structure && is_running() {
            return Ok(None);
        }
        let of_fragment =
            if by_structure { None } else { params::transposition(params, primitive)? };
        Ok(Some(match of_fragment {
            Some(known) => Self::OfParams(known),
            None => Self::OfPrimitive(SITES.of(primitive)?),
        }))
    }

    fn is_of_params(&self) -> bool {
        matches!(self, Self::OfParams(_))
    }

    fn site(&self) -> &Site {
        match self {
            Self::OfParams(transposition) => &transposition.site,
            Self::OfPrimitive(site) => site,
        }
    }
}

/// A linear variable as an accumulator of jax's, for as long as a rule runs.
struct Lent<'py> {
    place: u32,
    accumulator: Bound<'py, PyAny>,
    before: Bound<'py, PyAny>,
}

/// The operands of an equation for its signature, and the sums of its accumulators.
struct Described<'py> {
    operands: SmallVec<[EquationOperand; 4]>,
    sums: SmallVec<[Before<'py>; 4]>,
}

/// An accumulator before an equation is transposed.
struct Before<'py> {
    place: u32,
    sum: Bound<'py, PyAny>,
    _aval: Bound<'py, PyAny>,
}

/// Name stacks of equations below the current one, by their address.
type Scopes<'py> = FxHashMap<usize, (Bound<'py, PyAny>, Option<Rc<Signature>>)>;

/// `_name_stack_ctx`: the source info in which an equation is transposed.
fn source_of<'py>(
    jax: &Jax,
    context: &TraceContext<'py>,
    step: &Step,
    scopes: &mut Scopes<'py>,
) -> PyResult<EquationSource<'py>> {
    let py = context.trace.py();
    let own = step.name_stack.bind(py);
    let (name_stack, scope_key) = if let Some(known) = scopes.get(&address(own)) {
        known.clone()
    } else {
        let whole = join_name_stacks(jax, context.name_stack(), own)?;
        let scope_key = context.stack().map(|stack| stack.scope_key(&whole)).transpose()?.flatten();
        scopes.insert(address(own), (whole.clone(), scope_key.clone()));
        (whole, scope_key)
    };
    let traceback = step.traceback.as_ref().map(|traceback| traceback.bind(py).clone());
    Ok(EquationSource { source: SourceRef { traceback, name_stack }, scope_key })
}

/// The sites of transpositions.
static SITES: Sites = Sites::new("transpose of ");
