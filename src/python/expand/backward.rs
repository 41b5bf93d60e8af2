//! The backward pass: the equations of a linear program transposed, last one first.
//!
//! Transposing an equation is a call like others: for the same primitive, params, operands,
//! cotangents and sums so far it appends the same equations and leaves the same sums. What is not
//! known yet jax does itself, one equation at a time.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::super::jax::{Jax, jax};
use super::super::native::allocate;
use super::super::side::{address, is_exactly};
use super::super::source::SourceRef;
use super::encode::{Call, Operand, encode_transposition};
use super::now::Now;
use super::site::{Site, replay_or_learn};
use super::store;

/// Stands in for `backward_pass3(jaxpr, transform_stack, consts, primals_in, cotangents_in)`.
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
    let pass = if super::super::hook::is_tracing() && Now::read(py, jax)?.is_some() {
        Pass::new(jax, jaxpr, consts, primals_in, cotangents_in)?
    } else {
        None
    };
    let Some(pass) = pass else {
        let args = (jaxpr, transform_stack, consts, primals_in, cotangents_in);
        return jax.stock_backward_pass.bind(py).call1(args);
    };
    pass.accumulate_outputs(jax, jaxpr, cotangents_in)?;
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

/// A linear program about to be transposed: values and accumulators by variable.
struct Pass {
    eqns: Vec<Py<PyAny>>,
    env: FxHashMap<usize, Py<PyAny>>,
}

/// The parts of a `JaxprEqn` that are needed here.
struct Parts<'py> {
    invars: Bound<'py, PyList>,
    outvars: Bound<'py, PyList>,
    primitive: Bound<'py, PyAny>,
    params: Bound<'py, PyDict>,
    source_info: Bound<'py, PyAny>,
    context: Bound<'py, PyAny>,
}

impl<'py> Parts<'py> {
    /// None where the equation is none of jax's.
    fn of(jax: &Jax, eqn: &Bound<'py, PyAny>) -> Option<Self> {
        if !is_exactly(eqn.as_ptr(), jax.eqn_type.as_ptr().cast()) {
            return None;
        }
        let slots = &jax.slots;
        // SAFETY: the exact type was checked.
        unsafe {
            Some(Self {
                invars: slots.eqn_invars.get(eqn)?.cast_into().ok()?,
                outvars: slots.eqn_outvars.get(eqn)?.cast_into().ok()?,
                primitive: slots.eqn_primitive.get(eqn)?,
                params: slots.eqn_params.get(eqn)?.cast_into().ok()?,
                source_info: slots.eqn_source_info.get(eqn)?,
                context: slots.eqn_ctx.get(eqn)?,
            })
        }
    }
}

fn is_literal(jax: &Jax, atom: &Bound<'_, PyAny>) -> bool {
    is_exactly(atom.as_ptr(), jax.literal_type.as_ptr().cast())
}

impl Pass {
    /// Reads the program; None where it has what jax's own loop is for: equations that are not
    /// linear or deal with Refs, cotangents that are all zero.
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
        let mut env = FxHashMap::default();
        let mut linear: FxHashSet<usize> = FxHashSet::default();
        // As one list: constvars are those that have values, others are inputs as well.
        let vars = jaxpr.getattr(intern!(py, "constvars"))?.try_iter()?;
        let vars = vars.chain(jaxpr.getattr(intern!(py, "invars"))?.try_iter()?);
        for (var, value) in vars.zip(consts.try_iter()?.chain(primals_in.try_iter()?)) {
            let (var, value) = (var?, value?);
            if value.is_instance(jax.grad_accum_type.bind(py))? {
                linear.insert(address(&var));
            }
            env.insert(address(&var), value.unbind());
        }
        let mut eqns = Vec::new();
        let mut special: FxHashMap<usize, bool> = FxHashMap::default();
        let mut cotangent_types: FxHashMap<usize, Bound<'py, PyAny>> = FxHashMap::default();
        for eqn in jaxpr.getattr(intern!(py, "eqns"))?.try_iter()? {
            let eqn = eqn?;
            let Some(parts) = Parts::of(jax, &eqn) else { return Ok(None) };
            let known = special.get(&address(&parts.primitive)).copied();
            let is_special = match known {
                Some(known) => known,
                None => is_special(jax, &parts.primitive)?,
            };
            special.insert(address(&parts.primitive), is_special);
            let of_linear = |atom: &Bound<'_, PyAny>| linear.contains(&address(atom));
            if is_special || !parts.invars.iter().any(|atom| of_linear(&atom)) {
                return Ok(None);
            }
            for var in &parts.outvars {
                linear.insert(address(&var));
                // The variables hold their types, so no address comes twice.
                let aval = var.getattr(intern!(py, "aval"))?;
                let of_cotangent = match cotangent_types.get(&address(&aval)) {
                    Some(known) => known.clone(),
                    None => aval.call_method0(intern!(py, "to_ct_aval"))?,
                };
                cotangent_types.insert(address(&aval), of_cotangent.clone());
                env.insert(address(&var), new_accumulator(jax, &of_cotangent)?.unbind());
            }
            eqns.push(eqn.unbind());
        }
        Ok(Some(Self { eqns, env }))
    }

    /// Adds the cotangents of the outputs.
    fn accumulate_outputs(
        &self,
        jax: &Jax,
        jaxpr: &Bound<'_, PyAny>,
        cotangents: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = jaxpr.py();
        let outvars = jaxpr.getattr(intern!(py, "outvars"))?;
        for (atom, cotangent) in outvars.try_iter()?.zip(cotangents.try_iter()?) {
            let (atom, cotangent) = (atom?, cotangent?);
            // A literal is no accumulator, nor is a value that was passed on.
            if let Some(accumulator) = self.env.get(&address(&atom)) {
                let accumulator = accumulator.bind(py);
                if accumulator.is_instance(jax.grad_accum_type.bind(py))? {
                    accumulator.call_method1(intern!(py, "accum"), (cotangent,))?;
                }
            }
        }
        Ok(())
    }

    /// Transposes all equations; what their rules log.
    fn run(mut self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let jax = jax(py)?;
        let mut logs: Option<Bound<'_, PyAny>> = None;
        let mut name_stacks = FxHashMap::default();
        while let Some(eqn) = self.eqns.pop() {
            let eqn = eqn.into_bound(py);
            if let Some(logged) = self.transpose(jax, &eqn, &mut name_stacks)? {
                let merge = jax.merge_rule_logs.bind(py);
                let so_far = logs.take().unwrap_or_else(|| PyDict::new(py).into_any());
                logs = Some(merge.call1((so_far, logged, eqn.getattr("primitive")?))?);
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

    fn read<'py>(&self, jax: &Jax, atom: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = atom.py();
        if is_literal(jax, atom) {
            return atom.getattr(intern!(py, "val"));
        }
        match self.env.get(&address(atom)) {
            Some(value) => Ok(value.bind(py).clone()),
            None => Err(pyo3::exceptions::PyKeyError::new_err(atom.clone().unbind())),
        }
    }

    /// Transposes an equation; what its rule logs.
    fn transpose<'py>(
        &mut self,
        jax: &Jax,
        eqn: &Bound<'py, PyAny>,
        name_stacks: &mut FxHashMap<usize, Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = eqn.py();
        let Some(parts) = Parts::of(jax, eqn) else {
            return Err(pyo3::exceptions::PyTypeError::new_err(
                "an equation that is none of jax's",
            ));
        };
        let mut cotangents: SmallVec<[Bound<'py, PyAny>; 2]> = SmallVec::new();
        for var in &parts.outvars {
            let accumulator = self
                .env
                .remove(&address(&var))
                .ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(var.clone().unbind()))?;
            cotangents.push(accumulator.bind(py).call_method0(intern!(py, "freeze"))?);
        }
        let operands: SmallVec<[Bound<'py, PyAny>; 4]> =
            parts.invars.iter().map(|atom| self.read(jax, &atom)).collect::<PyResult<_>>()?;
        let step = || {
            let cotangents = PyList::new(py, &cotangents)?;
            let operands = PyList::new(py, &operands)?;
            jax.transposition_step.bind(py).call1((eqn, cotangents, operands))
        };
        let logged = |logs: Bound<'py, PyAny>| (!logs.is_none()).then_some(logs);
        let Some(now) = Now::read(py, jax)? else { return step().map(logged) };
        let (Ok(configuration), None) = (now.configuration(), now.lifted()) else {
            return step().map(logged);
        };
        let Some(encoded) = describe(jax, &parts, &operands)? else {
            return step().map(logged);
        };
        let site = site_of(&parts.primitive)?;
        let trace = now.trace.as_ptr();
        let mut call = Call::new(configuration.number);
        let pointers: SmallVec<[*mut ffi::PyObject; 2]> =
            cotangents.iter().map(Bound::as_ptr).collect();
        let in_words = |call: &mut Call| {
            let (context, params) = (parts.context.as_ptr(), parts.params.as_ptr());
            let (cts, operands) = (&pointers, &encoded.operands);
            encode_transposition(py, jax, trace, context, params, cts, operands, call)
        };
        if let Err(reason) = in_words(&mut call) {
            store::count_bypass(site.id, reason);
            return step().map(logged);
        }
        let now = now.within(source_of(jax, &now, &parts.source_info, name_stacks)?);
        let mut logs = None;
        let sums = replay_or_learn(
            py,
            jax,
            &site,
            &now,
            &call,
            in_words,
            || {
                logs = logged(step()?);
                encoded.changed_sums(py)
            },
            || Ok(false),
        )?;
        if logs.is_some() {
            // Nobody would log them when the rule is replayed.
            store::forget_entries(site.id);
            return Ok(logs);
        }
        encoded.put_sums(&sums)?;
        Ok(None)
    }
}

/// Whether jax's loop treats equations of a primitive in a way of their own.
fn is_special(jax: &Jax, primitive: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = primitive.py();
    let node = jax.vjp_node_type.bind(py);
    Ok(primitive.getattr(intern!(py, "ref_primitive"))?.is_truthy()?
        || (!node.is_none() && primitive.is_instance(node)?))
}

/// `ValAccum(aval)`.
fn new_accumulator<'py>(jax: &Jax, aval: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = aval.py();
    let zero = allocate(jax.zero_type.bind(py))?;
    // SAFETY: a fresh instance of jax's class, which has this slot.
    unsafe { jax.slots.zero_aval.set(zero.as_ptr(), aval.clone()) };
    let class = jax.val_accum_type.bind(py);
    let accumulator = class.call_method1(intern!(py, "__new__"), (class,))?;
    accumulator.setattr(intern!(py, "aval"), aval)?;
    accumulator.setattr(intern!(py, "val"), zero)?;
    Ok(accumulator)
}

/// The operands of an equation for its signature, and its accumulators with their sums.
struct Described<'py> {
    operands: SmallVec<[Operand; 4]>,
    accumulators: SmallVec<[(Bound<'py, PyAny>, Bound<'py, PyAny>); 4]>,
    /// What the operands refer to.
    held: SmallVec<[Bound<'py, PyAny>; 4]>,
}

/// None where an operand is an accumulator of another kind.
fn describe<'py>(
    jax: &Jax,
    parts: &Parts<'py>,
    operands: &[Bound<'py, PyAny>],
) -> PyResult<Option<Described<'py>>> {
    let py = parts.params.py();
    let mut described = Described {
        operands: SmallVec::new(),
        accumulators: SmallVec::new(),
        held: SmallVec::new(),
    };
    for (atom, operand) in parts.invars.iter().zip(operands) {
        if is_literal(jax, &atom) {
            described.operands.push(Operand::Literal(atom.as_ptr()));
        } else if operand.get_type().is(&jax.val_accum_type) {
            let aval = operand.getattr(intern!(py, "aval"))?;
            let sum = operand.getattr(intern!(py, "val"))?;
            described.operands.push(Operand::Accumulator {
                object: operand.as_ptr(),
                aval: aval.as_ptr(),
                sum: sum.as_ptr(),
            });
            described.held.push(aval);
            described.accumulators.push((operand.clone(), sum));
        } else if operand.is_instance(jax.grad_accum_type.bind(py))? {
            return Ok(None);
        } else {
            described.operands.push(Operand::Value(operand.as_ptr()));
        }
    }
    Ok(Some(described))
}

impl<'py> Described<'py> {
    /// The sums as they are now; None for one that is what it was.
    fn changed_sums(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sums: Vec<_> = self
            .accumulators
            .iter()
            .map(|(accumulator, before)| {
                let now = accumulator.getattr(intern!(py, "val"))?;
                Ok(if now.is(before) { py.None().into_bound(py) } else { now })
            })
            .collect::<PyResult<_>>()?;
        Ok(PyTuple::new(py, sums)?.into_any())
    }

    /// Sets the sums, which `changed_sums` returned when this was recorded.
    fn put_sums(&self, sums: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = sums.py();
        for ((accumulator, _), sum) in self.accumulators.iter().zip(sums.try_iter()?) {
            let sum = sum?;
            if !sum.is_none() {
                accumulator.setattr(intern!(py, "val"), sum)?;
            }
        }
        Ok(())
    }
}

/// `_name_stack_ctx`: the source info in which an equation is transposed.
fn source_of<'py>(
    jax: &Jax,
    now: &Now<'py>,
    source_info: &Bound<'py, PyAny>,
    name_stacks: &mut FxHashMap<usize, Bound<'py, PyAny>>,
) -> PyResult<SourceRef<'py>> {
    let own = SourceRef::of(jax, source_info)?;
    let name_stack = if let Some(known) = name_stacks.get(&address(&own.name_stack)) {
        known.clone()
    } else {
        let whole = now.name_stack().add(&own.name_stack)?;
        name_stacks.insert(address(&own.name_stack), whole.clone());
        whole
    };
    Ok(SourceRef { traceback: own.traceback, name_stack })
}

/// The sites of transpositions, by primitive. Primitives live as long as the process.
static SITES: Mutex<Option<FxHashMap<usize, Arc<Site>>>> = Mutex::new(None);

fn site_of(primitive: &Bound<'_, PyAny>) -> PyResult<Arc<Site>> {
    let known = |key: usize| {
        let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        sites.as_ref().and_then(|sites| sites.get(&key).cloned())
    };
    if let Some(site) = known(address(primitive)) {
        return Ok(site);
    }
    let name = primitive.getattr(intern!(primitive.py(), "name"))?;
    let site = Arc::new(Site::pure(&format!("transpose of {name}")));
    // Its address is known from now on, so it must stay its own.
    std::mem::forget(primitive.clone().unbind());
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(sites.get_or_insert_default().entry(address(primitive)).or_insert(site).clone())
}
