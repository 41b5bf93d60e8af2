//! Inlining a jaxpr into a trace: what `jit(inline=True)` does, which is most of `jax.numpy`.

use pyo3::exceptions::PyKeyError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::python::cpython::native::address;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::{SourceRef, join_name_stacks};
use crate::python::trace::frame::{Frame, Operand};
use crate::python::trace::jaxpr_trace::{const_operand, frame_of, operand_of_tracer, tracer_of};
use crate::python::trace::stage::{NewEqn, append, fold_constants};
use crate::python::trace::tracer::new_tracer;

/// Stands in for `partial_eval.inline_jaxpr_into_trace(trace, src, jaxpr, consts, *arg_tracers)`.
#[pyfunction]
pub fn inline_jaxpr<'py>(
    trace: &Bound<'py, PyAny>,
    src: &Bound<'py, PyAny>,
    jaxpr: &Bound<'py, PyAny>,
    consts: &Bound<'py, PyAny>,
    arg_tracers: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let jax = jax(py)?;
    if let Some(frame) = frame_of(jax, trace) {
        let inlining = Inlining { jax, trace, frame: &frame, source: SourceRef::of(jax, src)? };
        return inlining.run(jaxpr, consts, arg_tracers).map(Bound::into_any);
    }
    let mut args = vec![trace.clone(), src.clone(), jaxpr.clone(), consts.clone()];
    args.extend(arg_tracers.iter());
    jax.stock_inline.bind(py).call1(PyTuple::new(py, args)?)
}

struct Inlining<'a, 'py> {
    jax: &'a Jax,
    trace: &'a Bound<'py, PyAny>,
    frame: &'a Bound<'py, Frame>,
    source: SourceRef<'py>,
}

/// What the variables of the inlined jaxpr stand for, by the address of the `Var`.
type Environment<'py> = FxHashMap<usize, Operand<'py>>;

fn items<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyList>> {
    Ok(object.getattr(name)?.cast_into::<PyList>()?)
}

impl<'py> Inlining<'_, 'py> {
    fn run(
        &self,
        jaxpr: &Bound<'py, PyAny>,
        consts: &Bound<'py, PyAny>,
        arg_tracers: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = jaxpr.py();
        let jax = self.jax;
        let mut env = Environment::default();
        for (var, value) in items(jaxpr, "constvars")?.iter().zip(consts.try_iter()?) {
            let operand = const_operand(jax, self.frame, &value?, None)?;
            // With a tracer, the constant lives at least as long as the environment.
            let tracer = tracer_of(jax, self.trace, self.frame, &operand, &self.source)?;
            env.insert(address(&var), operand_of_tracer(jax, self.frame, &tracer)?);
        }
        let invars = items(jaxpr, "invars")?;
        for (var, tracer) in invars.iter().zip(arg_tracers.iter()) {
            env.insert(address(&var), operand_of_tracer(jax, self.frame, &tracer)?);
        }
        let outvars = items(jaxpr, "outvars")?;
        // Only what leaves needs a tracer, unless tracers keep equations alive.
        let leaving: FxHashSet<usize> = outvars.iter().map(|var| address(&var)).collect();
        let counted = self.frame.get().auto_dce();
        for eqn in items(jaxpr, "eqns")?.iter() {
            self.equation(&eqn, &mut env, |var| counted || leaving.contains(&address(var)))?;
        }
        let outs = PyList::empty(py);
        for atom in outvars.iter() {
            // A literal that came in goes out as the tracer it came in as.
            if let Some(index) = invars.iter().position(|var| var.is(&atom)) {
                outs.append(arg_tracers.get_item(index)?)?;
                continue;
            }
            let operand = self.atom(&env, &atom)?;
            outs.append(tracer_of(jax, self.trace, self.frame, &operand, &self.source)?)?;
        }
        Ok(outs)
    }

    fn atom(&self, env: &Environment<'py>, atom: &Bound<'py, PyAny>) -> PyResult<Operand<'py>> {
        let py = atom.py();
        if atom.get_type().is(&self.jax.literal_type) {
            return Ok(Operand::Literal {
                literal: atom.clone(),
                value: atom.getattr(intern!(py, "val"))?,
                aval: atom.getattr(intern!(py, "aval"))?,
            });
        }
        env.get(&address(atom))
            .cloned()
            .ok_or_else(|| PyKeyError::new_err((atom.clone().unbind(),)))
    }

    fn equation(
        &self,
        eqn: &Bound<'py, PyAny>,
        env: &mut Environment<'py>,
        needs_tracer: impl Fn(&Bound<'py, PyAny>) -> bool,
    ) -> PyResult<()> {
        let (py, jax) = (eqn.py(), self.jax);
        let source = self.source_of(&eqn.getattr(intern!(py, "source_info"))?)?;
        let operands: SmallVec<[Operand<'py>; 4]> = items(eqn, "invars")?
            .iter()
            .map(|atom| self.atom(env, &atom))
            .collect::<PyResult<_>>()?;
        let outvars = items(eqn, "outvars")?;
        let out_avals: Vec<Bound<'py, PyAny>> =
            outvars.iter().map(|var| var.getattr(intern!(py, "aval"))).collect::<PyResult<_>>()?;
        let primitive = eqn.getattr(intern!(py, "primitive"))?;
        let params = eqn.getattr(intern!(py, "params"))?.cast_into::<PyDict>()?;

        if let Some(constants) =
            fold_constants(jax, self.frame, &primitive, &operands, &params, || out_avals.clone())?
        {
            for (var, constant) in outvars.iter().zip(constants) {
                let tracer = tracer_of(jax, self.trace, self.frame, &constant, &source)?;
                let operand = operand_of_tracer(jax, self.frame, &tracer)?;
                env.entry(address(&var)).or_insert(operand);
            }
            return Ok(());
        }
        let effects = self.effects(env, &eqn.getattr(intern!(py, "effects"))?)?;
        let ctx = eqn.getattr(intern!(py, "ctx"))?;
        let eqn = NewEqn {
            primitive: &primitive,
            operands: &operands,
            out_avals: &out_avals,
            params: &params,
            effects: &effects,
            source: &source,
            context: &ctx,
        };
        let (new, source) = append(jax, self.trace, self.frame, &eqn)?;
        for ((var, new), aval) in outvars.iter().zip(new).zip(out_avals) {
            let tracer = if needs_tracer(&var) {
                let made = new_tracer(jax, self.trace, new.var, aval.clone(), source, new.counted)?;
                Some(made)
            } else {
                None
            };
            let operand = Operand::Var { var: new.var, aval, tracer };
            env.entry(address(&var)).or_insert(operand);
        }
        Ok(())
    }

    /// The source of the call, below the equation's own names.
    fn source_of(&self, inner: &Bound<'py, PyAny>) -> PyResult<SourceRef<'py>> {
        let inner = SourceRef::of(self.jax, inner)?;
        let name_stack = join_name_stacks(self.jax, &self.source.name_stack, &inner.name_stack)?;
        Ok(SourceRef { traceback: self.source.traceback.clone(), name_stack })
    }

    /// The effects, with inputs that are variables of this trace.
    fn effects(
        &self,
        env: &Environment<'py>,
        effects: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, jax) = (effects.py(), self.jax);
        if !effects.is_truthy()? {
            return Ok(effects.clone());
        }
        let renamed = PySet::empty(py)?;
        for effect in effects.try_iter()? {
            let effect = effect?;
            if effect.is_instance(jax.input_effect_type.bind(py))? {
                let input = self.atom(env, &effect.getattr(intern!(py, "input"))?)?;
                let tracer = tracer_of(jax, self.trace, self.frame, &input, &self.source)?;
                let val = tracer.getattr(intern!(py, "val"))?;
                renamed.add(effect.call_method1(intern!(py, "replace"), (val,))?)?;
            } else {
                renamed.add(effect)?;
            }
        }
        Ok(renamed.into_any())
    }
}
