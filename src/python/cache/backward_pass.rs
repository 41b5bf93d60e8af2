//! The backward pass: the equations of a linear program transposed, last one first.
//!
//! Transposing an equation is a call like others: for the same primitive, params, operands,
//! cotangents and sums so far it appends the same equations and leaves the same sums. What is not
//! known yet jax does itself, one equation at a time.

use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyKeyError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyNotImplemented, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::expand::Signature;
use crate::ir::{Atom, AtomKind, Eqn, Var};

use crate::python::cache::call::{put_in_words, replay_or_learn};
use crate::python::cache::key::encode::{Call, Equation, Operand, encode_transposition};
use crate::python::cache::key::trace_context::{Now, Within};
use crate::python::cache::programs::instantiate::{is_running, run_rule};
use crate::python::cache::programs::params;
use crate::python::cache::rules::{Sites, has_programs};
use crate::python::cache::store;
use crate::python::cpython::native::address;
use crate::python::jax::derived_types::{DerivedType, derived_type};
use crate::python::jax::instances::{new_accumulator, new_zero};
use crate::python::jax::names::{EqnParts, Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::jax::world::poll_soon;
use crate::python::program::graph::{Graph, Unread};
use crate::python::program::lazy_jaxpr::unfilled;
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
    let pass = if session::is_tracing() && Now::read(py, jax)?.is_some() {
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

/// An operand of a linear program.
enum Read {
    /// A jax `Literal`.
    Literal(Py<PyAny>),
    /// A variable, by its place.
    Var(u32),
}

/// An equation of a linear program.
struct Step {
    primitive: Py<PyAny>,
    params: Py<PyDict>,
    context: Py<PyAny>,
    traceback: Option<Py<PyAny>>,
    name_stack: Py<PyAny>,
    operands: SmallVec<[Read; 4]>,
    /// The outputs, with their types.
    outs: SmallVec<[(u32, Py<PyAny>); 1]>,
}

/// A linear program: its equations, and its variables by place.
struct Linear {
    steps: Vec<Step>,
    /// Constants, then inputs.
    inputs: Vec<u32>,
    outputs: Vec<Read>,
    num_vars: usize,
}

impl Linear {
    /// Reads a jaxpr that was recorded here and that nobody has read.
    fn of_graph(py: Python<'_>, jax: &Jax, graph: &Bound<'_, Graph>) -> Self {
        let Unread { program, graph, params } = Graph::unread(graph);
        let side = graph.get().table();
        let read = |atom: &Atom| match atom.kind() {
            AtomKind::Var(var) => Read::Var(var.as_u32()),
            // Equal to the one that Python would see, which is what counts for a call.
            AtomKind::Literal(id) => {
                Read::Literal(side.seen_literal(py, id, program.literal(id).object).unbind())
            }
        };
        let source = |id| side.source_object(py, id).unbind();
        let step = |eqn: Eqn| {
            let data = program.eqn(eqn);
            let at = program.source(data.source);
            let params = match params.get(&data.params) {
                Some(params) => params.dict().clone_ref(py),
                None => side.params_dict(py, data.params).unbind(),
            };
            let out = |var: Var| (var.as_u32(), side.aval(py, program.var_type(var)).unbind());
            Step {
                primitive: side.object(py, program.primitive(data.primitive).object).unbind(),
                params,
                context: side.object(py, program.context(data.context)).unbind(),
                traceback: at.traceback.map(source),
                name_stack: at
                    .name_stack
                    .map_or_else(|| jax.empty_name_stack.clone_ref(py), source),
                operands: program.eqn_invars(eqn).iter().map(read).collect(),
                outs: data.outvars().map(out).collect(),
            }
        };
        let constvars = program.constvars().iter().map(|&(var, _)| var);
        Self {
            steps: program.eqns().map(step).collect(),
            inputs: constvars.chain(program.invars().iter().copied()).map(Var::as_u32).collect(),
            outputs: program.outvars().iter().map(read).collect(),
            num_vars: program.num_vars(),
        }
    }

    /// Reads any jaxpr; None where an equation is none of jax's.
    fn of_jaxpr<'py>(jax: &Jax, jaxpr: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = jaxpr.py();
        let mut places: FxHashMap<usize, u32> = FxHashMap::default();
        let mut place = |var: &Bound<'py, PyAny>| {
            let next = u32::try_from(places.len()).unwrap_or(u32::MAX);
            *places.entry(address(var)).or_insert(next)
        };
        let mut inputs = Vec::new();
        for name in [intern!(py, "constvars"), intern!(py, "invars")] {
            for var in jaxpr.getattr(name)?.try_iter()? {
                inputs.push(place(&var?));
            }
        }
        let mut read = |atom: &Bound<'py, PyAny>| {
            if jax.is_literal(atom.as_ptr()) {
                Read::Literal(atom.clone().unbind())
            } else {
                Read::Var(place(atom))
            }
        };
        let mut steps = Vec::new();
        for eqn in jaxpr.getattr(intern!(py, "eqns"))?.try_iter()? {
            let Some(parts) = EqnParts::of(jax, &eqn?) else { return Ok(None) };
            let source = SourceRef::of(jax, &parts.source_info)?;
            let mut outs = SmallVec::new();
            for var in &parts.outvars {
                let aval = var.getattr(intern!(py, "aval"))?.unbind();
                if let Read::Var(place) = read(&var) {
                    outs.push((place, aval));
                }
            }
            steps.push(Step {
                primitive: parts.primitive.unbind(),
                params: parts.params.unbind(),
                context: parts.ctx.unbind(),
                traceback: source.traceback.map(Bound::unbind),
                name_stack: source.name_stack.unbind(),
                operands: parts.invars.iter().map(|atom| read(&atom)).collect(),
                outs,
            });
        }
        let mut outputs = Vec::new();
        for atom in jaxpr.getattr(intern!(py, "outvars"))?.try_iter()? {
            outputs.push(read(&atom?));
        }
        Ok(Some(Self { steps, inputs, outputs, num_vars: places.len() }))
    }
}

/// What a variable stands for while the program is transposed.
enum Slot {
    /// Nothing yet, or no longer.
    Unset,
    /// A value that is not linear.
    Value(Py<PyAny>),
    /// One of jax's accumulators, given as an input.
    Given(Py<PyAny>),
    /// A linear variable: its cotangent's type, and the sum so far where it is not zero.
    Sum { aval: Py<PyAny>, sum: Option<Py<PyAny>> },
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
    kinds: FxHashMap<usize, Kind>,
    /// The places of equations that are not linear.
    evaluated: FxHashSet<usize>,
}

fn unset() -> PyErr {
    PyKeyError::new_err("a variable of a linear program without a value")
}

impl Pass {
    /// Reads the program, and evaluates what is not linear; None where it has what jax's own loop is
    /// for: equations of a kind of their own, cotangents that are all zero.
    fn new<'py>(
        jax: &Jax,
        jaxpr: &Bound<'py, PyAny>,
        consts: &Bound<'py, PyAny>,
        primals_in: &Bound<'py, PyAny>,
        cotangents_in: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Self>> {
        let py = jaxpr.py();
        let mut any_cotangent = false;
        for cotangent in cotangents_in.try_iter()? {
            any_cotangent |= !cotangent?.get_type().is(&jax.zero_type);
        }
        if !any_cotangent {
            return Ok(None);
        }
        let linear = match unfilled(jax, jaxpr) {
            Some(graph) => Some(Linear::of_graph(py, jax, &graph)),
            None => Linear::of_jaxpr(jax, jaxpr)?,
        };
        let Some(Linear { steps, inputs, outputs, num_vars }) = linear else { return Ok(None) };
        if inputs.len() != consts.len()? + primals_in.len()? {
            return Ok(None);
        }
        let mut env: Vec<Slot> = Vec::new();
        env.resize_with(num_vars, || Slot::Unset);
        let values = consts.try_iter()?.chain(primals_in.try_iter()?);
        for (place, value) in inputs.into_iter().zip(values) {
            let value = value?;
            let accumulator = value.get_type().is(&jax.val_accum_type)
                || value.is_instance(jax.grad_accum_type.bind(py))?;
            let value = value.unbind();
            env[place as usize] = if accumulator { Slot::Given(value) } else { Slot::Value(value) };
        }
        let mut kinds: FxHashMap<usize, Kind> = FxHashMap::default();
        for step in &steps {
            let primitive = step.primitive.bind(py);
            let kind = match kinds.get(&address(primitive)) {
                Some(&known) => known,
                None => Kind::of(jax, primitive)?,
            };
            kinds.insert(address(primitive), kind);
            if kind == Kind::Other {
                return Ok(None);
            }
            if kind == Kind::Ref {
                let [(place, aval)] = &step.outs[..] else { return Ok(None) };
                let aval = aval.bind(py);
                let made = jax.ref_accumulator.bind(py).call1((primitive, aval))?;
                env[*place as usize] = if made.is_instance(jax.grad_accum_type.bind(py))? {
                    Slot::Given(made.unbind())
                } else if made.is_none() {
                    let aval = derived_type(jax, aval, DerivedType::Cotangent)?.unbind();
                    Slot::Sum { aval, sum: None }
                } else {
                    return Ok(None);
                };
            }
        }
        // From here on something is bound: jax's loop would do it once more.
        let mut evaluated = FxHashSet::default();
        for (index, step) in steps.iter().enumerate() {
            if kinds.get(&(step.primitive.as_ptr() as usize)) == Some(&Kind::Ref) {
                continue;
            }
            let of_linear = |read: &Read| match read {
                Read::Var(place) => {
                    matches!(env[*place as usize], Slot::Given(_) | Slot::Sum { .. })
                }
                Read::Literal(_) => false,
            };
            if !step.operands.iter().any(of_linear) {
                evaluate(jax, jaxpr, index, step, &mut env)?;
                evaluated.insert(index);
                continue;
            }
            for (place, aval) in &step.outs {
                let aval = derived_type(jax, aval.bind(py), DerivedType::Cotangent)?.unbind();
                env[*place as usize] = Slot::Sum { aval, sum: None };
            }
        }
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
                logs = Some(merge.call1((so_far, logged, step.primitive.bind(py)))?);
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

    /// As `step`, for an equation that is not remembered.
    fn run_step<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        step: &Step,
        cotangents: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if has_programs(jax, step.params.bind(py)) {
            return run_rule(|| self.step(py, jax, step, cotangents));
        }
        self.step(py, jax, step, cotangents)
    }

    /// Lets jax transpose an equation; what its rule logs.
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        step: &Step,
        cotangents: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        // The steps that are left are those before this one.
        let eqns = self.jaxpr.bind(py).getattr(intern!(py, "eqns"))?;
        let eqn = eqns.get_item(self.steps.len())?;
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
        Ok((!logs.is_none() && !jax.merge_rule_logs.is_none(py)).then_some(logs))
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
        let eqns = self.jaxpr.bind(py).getattr(intern!(py, "eqns"))?;
        let eqn = eqns.get_item(self.steps.len())?;
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
                    described.operands.push(Operand::Literal(literal.as_ptr()));
                    continue;
                }
                Read::Var(place) => *place,
            };
            let aval = match &self.env[place as usize] {
                Slot::Value(value) => {
                    described.operands.push(Operand::Value(value.as_ptr()));
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
            described.operands.push(Operand::Accumulator { place, aval: aval_ptr, sum: sum_ptr });
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
        if self.kinds.get(&(step.primitive.as_ptr() as usize)) == Some(&Kind::Ref) {
            return self.ref_step(py, jax, step).map(|()| None);
        }
        let mut cotangents: SmallVec<[Bound<'py, PyAny>; 2]> = SmallVec::new();
        for &(place, _) in &step.outs {
            cotangents.push(self.freeze(py, jax, place)?);
        }
        let (primitive, params) = (step.primitive.bind(py), step.params.bind(py));
        let Some(now) = Now::read(py, jax)? else {
            return self.run_step(py, jax, step, &cotangents);
        };
        let Ok(configuration) = now.configuration() else {
            return self.run_step(py, jax, step, &cotangents);
        };
        let Some(described) = self.describe(py, jax, step)? else {
            return self.run_step(py, jax, step, &cotangents);
        };
        // What is known of programs by what they say outlives them.
        let by_words = params::is_new(params) && has_programs(jax, params);
        if by_words && is_running() {
            return self.step(py, jax, step, &cotangents);
        }
        let owned = if by_words { None } else { params::transposition(params, primitive)? };
        let of_primitive = if owned.is_none() { Some(SITES.of(primitive)?) } else { None };
        let of_primitive = of_primitive.as_deref();
        let Some(site) = owned.as_ref().map(|owned| &owned.site).or(of_primitive) else {
            return self.step(py, jax, step, &cotangents);
        };
        let now = now.within(within(&now, step, scopes)?);
        let mut call = Call::new(configuration.number);
        let pointers: SmallVec<[*mut ffi::PyObject; 2]> =
            cotangents.iter().map(Bound::as_ptr).collect();
        let equation = Equation {
            context: step.context.as_ptr(),
            primitive: primitive.as_ptr(),
            // Those of a fragment are known by their site.
            params: if owned.is_none() { Some(params.as_ptr()) } else { None },
        };
        let operands = &described.operands;
        let in_words = |call: &mut Call| {
            encode_transposition(py, jax, &now, &equation, &pointers, operands, call)
        };
        if let Err(reason) = put_in_words(py, &mut call, in_words)? {
            store::count_bypass(site.id, reason);
            return self.run_step(py, jax, step, &cotangents);
        }
        let (mut logs, mut ran) = (None, false);
        let before = &described.sums;
        let sums = replay_or_learn(
            py,
            jax,
            site,
            &now,
            &call,
            in_words,
            || {
                ran = true;
                logs = self.step(py, jax, step, &cotangents)?;
                self.changed_sums(py, jax, before)
            },
            || Ok(false),
        )?;
        if logs.is_some() {
            // Nobody would log them when the rule is replayed.
            store::forget_entries(site.id);
        }
        if !ran {
            self.put_sums(before, &sums)?;
        }
        Ok(logs)
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
    operands: SmallVec<[Operand; 4]>,
    sums: SmallVec<[Before<'py>; 4]>,
}

/// An accumulator before an equation is transposed.
struct Before<'py> {
    place: u32,
    sum: Bound<'py, PyAny>,
    _aval: Bound<'py, PyAny>,
}

/// Binds an equation that is not linear, which is number `index` of the program.
fn evaluate(
    jax: &Jax,
    jaxpr: &Bound<'_, PyAny>,
    index: usize,
    step: &Step,
    env: &mut [Slot],
) -> PyResult<()> {
    let py = jaxpr.py();
    let eqn = jaxpr.getattr(intern!(py, "eqns"))?.get_item(index)?;
    let invars = eqn.getattr(intern!(py, "invars"))?.cast_into::<PyList>()?;
    let operands = PyList::empty(py);
    for (read, atom) in step.operands.iter().zip(invars.iter()) {
        match read {
            Read::Literal(_) => operands.append(atom.getattr(intern!(py, "val"))?)?,
            Read::Var(place) => match &env[*place as usize] {
                Slot::Value(value) => operands.append(value.bind(py))?,
                _ => return Err(unset()),
            },
        }
    }
    let results = jax.evaluation_step.bind(py).call1((eqn, operands))?;
    for ((place, _), result) in step.outs.iter().zip(results.try_iter()?) {
        env[*place as usize] = Slot::Value(result?.unbind());
    }
    Ok(())
}

/// How jax's loop treats equations of a primitive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// By the rule of the primitive.
    Plain,
    /// They make a Ref, or read its last value.
    Ref,
    /// In a way of their own.
    Other,
}

impl Kind {
    fn of(jax: &Jax, primitive: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = primitive.py();
        let node = jax.vjp_node_type.bind(py);
        if !node.is_none() && primitive.is_instance(node)? {
            return Ok(Self::Other);
        }
        let of_refs = primitive.getattr(intern!(py, "ref_primitive"))?.is_truthy()?;
        Ok(if of_refs { Self::Ref } else { Self::Plain })
    }
}

/// Name stacks of equations below the current one, by their address.
type Scopes<'py> = FxHashMap<usize, (Bound<'py, PyAny>, Option<Rc<Signature>>)>;

/// `_name_stack_ctx`: the source info in which an equation is transposed.
fn within<'py>(now: &Now<'py>, step: &Step, scopes: &mut Scopes<'py>) -> PyResult<Within<'py>> {
    let py = now.trace.py();
    let own = step.name_stack.bind(py);
    let (name_stack, words) = if let Some(known) = scopes.get(&address(own)) {
        known.clone()
    } else {
        let whole = now.name_stack().add(own)?;
        let words = now.stack().map(|stack| stack.scope_words(&whole)).transpose()?.flatten();
        scopes.insert(address(own), (whole.clone(), words.clone()));
        (whole, words)
    };
    let traceback = step.traceback.as_ref().map(|traceback| traceback.bind(py).clone());
    Ok(Within { source: SourceRef { traceback, name_stack }, words })
}

/// The sites of transpositions.
static SITES: Sites = Sites::new("transpose of ");
