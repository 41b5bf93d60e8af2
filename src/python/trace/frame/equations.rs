//! Equations under construction as jax's own.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{Atom, AtomKind, Builder, Def, EffectsId, Eqn, EqnData, LiteralId, Var};

use crate::python::cpython::shared::Quiet;
use crate::python::jax::names::{EqnParts, Jax};
use crate::python::program::lazy_objects::{LiteralCopies, OwnLiteral};
use crate::python::trace::frame::Frame;
use crate::python::trace::frame::state::State;

type Object = Py<PyAny>;

/// An operand of an equation under construction.
pub(super) enum RawOperand {
    Var(Var),
    Literal(LiteralId, OwnLiteral),
}

/// An equation under construction and its objects, but for those of its variables. It stays as it
/// is whatever becomes of the program.
pub(super) struct RawEqn {
    data: EqnData,
    operands: SmallVec<[RawOperand; 4]>,
    primitive: Option<Object>,
    params: Option<Py<PyDict>>,
    effects: Object,
    context: Option<Object>,
    /// The traceback and the name stack.
    source: [Option<Object>; 2],
}

impl State {
    /// Equations of a program under construction, with their objects.
    pub(super) fn raw_eqns(
        &self,
        jax: &Jax,
        eqns: impl IntoIterator<Item = Eqn>,
        quiet: Quiet<'_>,
    ) -> Vec<RawEqn> {
        let Some(builder) = self.phase.builder() else { return Vec::new() };
        eqns.into_iter().map(|eqn| self.raw_eqn(jax, builder, eqn, quiet)).collect()
    }

    pub(super) fn raw_eqn(
        &self,
        jax: &Jax,
        builder: &Builder,
        eqn: Eqn,
        quiet: Quiet<'_>,
    ) -> RawEqn {
        let data = builder.eqn_data(eqn).clone();
        let source = builder.source_data(data.source);
        let operand = |atom: &Atom| match atom.kind() {
            AtomKind::Var(var) => RawOperand::Var(var),
            AtomKind::Literal(id) => {
                let object = builder.literal_data(id).object;
                RawOperand::Literal(id, self.table.own_literal(quiet, id, object))
            }
        };
        RawEqn {
            operands: builder.eqn_invars(eqn).iter().map(operand).collect(),
            primitive: self.table.object_of(quiet, builder.primitive_data(data.primitive).object),
            params: self.table.params_of(quiet, data.params),
            effects: self.table.effects_object(quiet, jax, data.effects, data.primitive),
            context: self.table.object_of(quiet, builder.context_object(data.context)),
            source: self.table.retained().parts(quiet, jax, source),
            data,
        }
    }
}

impl Frame {
    /// The equation that defined `var`, as jax's `TracingEqn`; None for inputs and constants.
    pub fn tracing_eqn<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        trace: Option<Bound<'py, PyAny>>,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let none = py.None().into_bound(py);
        let (Some(trace), Some(eqn)) = (trace, Self::eqn_of(slf, jax, var)?) else {
            return Ok(none);
        };
        let in_tracers = PyList::empty(py);
        let empty = jax.empty_name_stack.bind(py).clone();
        for atom in eqn.getattr(intern!(py, "invars"))?.try_iter()? {
            let atom = atom?;
            let aval = atom.getattr(intern!(py, "aval"))?;
            let source_info = jax.new_source_info(None, empty.clone())?;
            in_tracers.append(jax.tracer_type.bind(py).call1((
                &trace,
                aval,
                atom,
                source_info,
            ))?)?;
        }
        jax.tracing_eqn_type.bind(py).call1((
            in_tracers,
            eqn.getattr(intern!(py, "outvars"))?,
            eqn.getattr(intern!(py, "primitive"))?,
            eqn.getattr(intern!(py, "params"))?,
            eqn.getattr(intern!(py, "effects"))?,
            eqn.getattr(intern!(py, "source_info"))?,
            eqn.getattr(intern!(py, "ctx"))?,
        ))
    }

    /// The equation that defined `var`, as jax's `JaxprEqn`.
    pub(super) fn eqn_of<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        var: Var,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let raw = slf.get().with(slf.py(), |state, quiet| {
            let builder = state.phase.builder()?;
            let Def::Eqn(eqn) = builder.var(var).def else { return None };
            Some(state.raw_eqn(jax, builder, eqn, quiet))
        });
        raw.map(|raw| Self::eqn_object(slf, jax, raw)).transpose()
    }

    /// Equations under construction as jax's.
    pub(super) fn eqn_objects<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        eqns: Vec<RawEqn>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(slf.py());
        for raw in eqns {
            list.append(Self::eqn_object(slf, jax, raw)?)?;
        }
        Ok(list)
    }

    pub(super) fn eqn_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        raw: RawEqn,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let bound = |object: Option<Object>| object.unwrap_or_else(|| py.None()).into_bound(py);
        let atom = |operand: RawOperand| match operand {
            RawOperand::Var(var) => Self::var_object(slf, jax, var),
            RawOperand::Literal(id, own) => LiteralCopies::make(py, jax, id, own),
        };
        let invars: Vec<_> = raw.operands.into_iter().map(atom).collect::<PyResult<_>>()?;
        let outvar = |var| Self::var_object(slf, jax, var);
        let outvars: Vec<_> = raw.data.outvars().map(outvar).collect::<PyResult<_>>()?;
        let params = match raw.params {
            Some(params) => params.bind(py).copy()?,
            None => PyDict::new(py),
        };
        let parts = EqnParts {
            invars: PyList::new(py, invars)?,
            outvars: PyList::new(py, outvars)?,
            primitive: bound(raw.primitive),
            params,
            effects: raw.effects.into_bound(py),
            source_info: source_info_of(py, jax, raw.source)?,
            ctx: bound(raw.context),
        };
        jax.new_eqn(py, parts)
    }

    /// The effects of the whole program, as jax's `make_jaxpr_effects`.
    pub(super) fn jaxpr_effects<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        outs: &[Atom],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let all = slf.get().with(py, |state, quiet| {
            let Some(builder) = state.phase.builder() else { return Vec::new() };
            let has_effects = |eqn: Eqn| builder.eqn_data(eqn).effects != EffectsId::NONE;
            if !builder.live_eqns().any(has_effects) {
                return Vec::new();
            }
            let with_primitive = |eqn: Eqn| {
                let primitive = builder.eqn_data(eqn).primitive;
                let object = builder.primitive_data(primitive).object;
                (eqn, has_effects(eqn), state.table.object_of(quiet, object))
            };
            builder.live_eqns().map(with_primitive).collect()
        });
        if all.is_empty() {
            return Ok(PySet::empty(py)?.into_any());
        }
        // Allocating a Ref has an effect only on what reads it: jax looks at these as well.
        let mut allocating = FxHashMap::default();
        let mut effectful = Vec::new();
        for (eqn, has_effects, primitive) in &all {
            let Some(primitive) = primitive else { continue };
            let address = primitive.as_ptr() as usize;
            let allocates = match allocating.get(&address) {
                Some(&known) => known,
                None => primitive.bind(py).getattr(intern!(py, "ref_allocating"))?.is_truthy()?,
            };
            allocating.insert(address, allocates);
            if allocates || *has_effects {
                effectful.push(*eqn);
            }
        }
        let all: Vec<Eqn> = all.into_iter().map(|(eqn, ..)| eqn).collect();
        let (constvars, invars, outvars) = Self::interface(slf, jax, outs)?;
        let rule = jax.make_jaxpr_effects.bind(py);
        let raw = |eqns| slf.get().with(py, |state, quiet| state.raw_eqns(jax, eqns, quiet));
        let eqns = Self::eqn_objects(slf, jax, raw(effectful))?;
        rule.call1((&constvars, &invars, &outvars, eqns)).or_else(|_| {
            // jax's error shows the whole jaxpr.
            let eqns = Self::eqn_objects(slf, jax, raw(all))?;
            rule.call1((&constvars, &invars, &outvars, eqns))
        })
    }

    /// The `Var`s and atoms at the edge of the program.
    #[allow(clippy::type_complexity)] // three lists of atoms
    fn interface<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        outs: &[Atom],
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>, Bound<'py, PyList>)> {
        let (constvars, invars) = slf.get().peek(|state| {
            let (builder, _) = state.recording()?;
            let constvars: Vec<_> = builder.constvars().map(|(var, _)| Atom::var(var)).collect();
            let invars: Vec<_> = builder.invars().iter().map(|&var| Atom::var(var)).collect();
            Ok::<_, PyErr>((constvars, invars))
        })?;
        let list = |atoms: &[Atom]| -> PyResult<Bound<'py, PyList>> {
            let object = |&atom: &Atom| Self::atom_object(slf, jax, atom);
            let objects: Vec<_> = atoms.iter().map(object).collect::<PyResult<_>>()?;
            PyList::new(slf.py(), objects)
        };
        Ok((list(&constvars)?, list(&invars)?, list(outs)?))
    }
}

/// A new `SourceInfo` of a traceback and a name stack.
pub(super) fn source_info_of<'py>(
    py: Python<'py>,
    jax: &Jax,
    [traceback, name_stack]: [Option<Object>; 2],
) -> PyResult<Bound<'py, PyAny>> {
    let name_stack = name_stack.unwrap_or_else(|| py.None()).into_bound(py);
    jax.new_source_info(traceback.map(|traceback| traceback.into_bound(py)), name_stack)
}
