//! One program under construction, in the role of jax's `JaxprStackFrame`.
//!
//! ```text
//! state.rs      what a frame has: the program, and what is known of it
//! operands.rs   operands and other parts of an equation to be
//! equations.rs  equations under construction as jax's own
//! methods.rs    what jax's own code calls
//! ```

mod equations;
mod methods;
mod operands;
mod state;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{Atom, AtomKind, Builder, DeadCode, Def, SourceId, Var};

use crate::python::cpython::native::string_of;
use crate::python::cpython::shared::{Quiet, Shared};
use crate::python::jax::avals::{aval_info, build_error};
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_objects::LiteralCopies;
use crate::python::program::objects::{ObjectTable, ReadEffects, SourceKey, StackPlace};
use crate::python::trace::abstract_eval::Entry;
use crate::python::trace::frame::equations::source_info_of;
use crate::python::trace::frame::operands::ReadEqn;
pub use crate::python::trace::frame::operands::{
    Appended, LocalEntry, NewVar, Operand, ReadPrimitive, Ready,
};
pub use crate::python::trace::frame::state::{Mark, Rows, State};
use crate::python::trace::frame::state::{Phase, VarHolder, finished};
use crate::python::trace::session::Recording;
use crate::python::trace::tracer;

/// One program under construction.
#[pyclass(module = "jax._src.interpreters.partial_eval", name = "JaxprStackFrame", weakref, frozen)]
pub struct Frame {
    auto_dce: bool,
    state: Shared<State>,
}

impl Frame {
    pub fn new(debug_info: Bound<'_, PyAny>, auto_dce: bool, recording: Recording) -> Self {
        let dce = if auto_dce { DeadCode::RemoveUnreferenced } else { DeadCode::Keep };
        let [num_vars, num_eqns] = recording.room();
        let state = State {
            auto_dce,
            phase: Phase::Recording(Builder::with_room(dce, num_vars, num_eqns), recording),
            table: ObjectTable::default(),
            debug_info: Some(debug_info.unbind()),
            is_high: false,
            const_by_id: FxHashMap::default(),
            constants_used: Vec::new(),
            recordings: 0,
            const_tracers: FxHashMap::default(),
            entries: FxHashMap::default(),
            rows: Vec::new(),
            row_by_fragment: FxHashMap::default(),
            qdds: Vec::new(),
        };
        Self { auto_dce, state: Shared::new(state) }
    }

    /// Reads or changes the program.
    #[inline]
    pub fn with<'py, R: Send>(
        &self,
        py: Python<'py>,
        body: impl FnOnce(&mut State, Quiet<'py>) -> R + Send,
    ) -> R {
        self.state.with(py, body)
    }

    /// As `with`, for what counts no references.
    #[inline]
    pub fn peek<R: Send>(&self, body: impl FnOnce(&mut State) -> R + Send) -> R {
        self.state.peek(body)
    }

    pub fn auto_dce(&self) -> bool {
        self.auto_dce
    }

    pub fn mark_high(&self) {
        self.peek(|state| state.is_high = true);
    }

    /// A new input.
    pub fn new_invar(
        slf: &Bound<'_, Self>,
        jax: &Jax,
        aval: &Bound<'_, PyAny>,
    ) -> PyResult<NewVar> {
        let (info, aval) = (aval_info(jax, aval)?, aval.as_unbound());
        slf.get().with(slf.py(), |state, quiet| {
            let (builder, table) = state.recording()?;
            let ty = table.type_of(builder, aval, &info, quiet);
            let var = builder.invar(ty).map_err(build_error)?;
            Ok(NewVar { var, counted: false })
        })
    }

    /// The id of a source.
    pub fn source(slf: &Bound<'_, Self>, jax: &Jax, source: &SourceRef<'_>) -> PyResult<SourceId> {
        let (py, frame) = (slf.py(), slf.get());
        let key = SourceKey::of(jax, source)?;
        let known = frame.with(py, |state, quiet| {
            let (builder, table) = state.recording()?;
            table.known_source_id(builder, &key, quiet)
        })?;
        if let Some(known) = known {
            return Ok(known);
        }
        let stacks = |hash| frame.with(py, |state, quiet| state.table.name_stacks_of(hash, quiet));
        let place = StackPlace::of(&source.name_stack, stacks)?;
        let (id, old) = frame.with(py, |state, quiet| {
            let (builder, table) = state.recording()?;
            table.new_source(builder, &key, place, quiet)
        })?;
        drop(old);
        Ok(id)
    }

    /// The aval of a variable of a frame that still records.
    pub fn aval_of<'py>(slf: &Bound<'py, Self>, var: Var) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let aval = slf.get().with(py, |state, quiet| {
            let (builder, table) = state.recording()?;
            Ok::<_, PyErr>(table.aval_of(quiet, builder.type_of(var)))
        })?;
        Ok(aval.unwrap_or_else(|| py.None()).into_bound(py))
    }

    /// The ids of a remembered equation.
    pub fn local_entry<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        primitive: &Bound<'py, PyAny>,
        entry: &Entry,
    ) -> PyResult<LocalEntry> {
        let (py, frame) = (slf.py(), slf.get());
        if let Some(local) = frame.peek(|state| state.entries.get(&entry.number).cloned()) {
            return Ok(local);
        }
        let out_avals: Vec<_> = entry.out_avals.iter().map(|aval| aval.bind(py).clone()).collect();
        let local = Self::describe(slf, jax, primitive, entry.params.bind(py), &out_avals)?;
        frame.peek(|state| state.entries.insert(entry.number, local.clone()));
        Ok(local)
    }

    /// The ids of an equation's primitive, params and output types.
    pub fn describe<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        primitive: &Bound<'py, PyAny>,
        params: &Bound<'py, PyDict>,
        out_avals: &[Bound<'py, PyAny>],
    ) -> PyResult<LocalEntry> {
        let infos: SmallVec<[_; 2]> = out_avals
            .iter()
            .map(|aval| Ok((aval.as_unbound(), aval_info(jax, aval)?)))
            .collect::<PyResult<_>>()?;
        let primitive = ReadPrimitive::of(slf, primitive)?;
        let params = params.as_unbound();
        slf.get().with(slf.py(), |state, quiet| {
            let (builder, table) = state.recording()?;
            let mut out_types = SmallVec::new();
            for (aval, info) in &infos {
                out_types.push(table.type_of(builder, aval, info, quiet));
            }
            Ok(LocalEntry {
                primitive: primitive.id(builder, table, quiet)?,
                params: table.deferred_params_id(builder, params, quiet),
                out_types,
            })
        })
    }

    /// Appends an equation; its outputs are retained where they are counted.
    pub fn append<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        eqn: &Appended<'_, 'py>,
    ) -> PyResult<SmallVec<[NewVar; 1]>> {
        let operands = Self::ready(jax, eqn.operands)?;
        // The effects die with the equation, or here, once no Python code is held off.
        let effects = eqn.effects.map(|effects| ReadEffects::of(jax, effects)).transpose()?;
        let read = ReadEqn {
            operands: &operands,
            effects: effects.as_ref(),
            no_effects: eqn.no_effects.map(Bound::as_unbound),
            context: eqn.context.as_unbound(),
        };
        let (local, source) = (eqn.local, eqn.source);
        slf.get().with(slf.py(), |state, quiet| state.append(local, source, &read, quiet))
    }

    fn ready<'a>(jax: &Jax, operands: &'a [Operand<'_>]) -> PyResult<SmallVec<[Ready<'a>; 4]>> {
        operands.iter().map(|operand| Ready::of(jax, operand)).collect()
    }

    /// As `append`, of an equation without effects that is known here, as its source is; None
    /// otherwise, before any effect.
    pub fn append_known<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        entry: u32,
        operands: &[Operand<'py>],
        source: &SourceRef<'py>,
        context: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(SmallVec<[NewVar; 1]>, SourceId)>> {
        let operands = Self::ready(jax, operands)?;
        let context = context.as_unbound();
        let read = ReadEqn { operands: &operands, effects: None, no_effects: None, context };
        let key = SourceKey::of(jax, source)?;
        slf.get().with(slf.py(), |state, quiet| {
            let Some(local) = state.entries.get(&entry).cloned() else { return Ok(None) };
            let (builder, table) = state.recording()?;
            let Some(source) = table.known_source_id(builder, &key, quiet)? else {
                return Ok(None);
            };
            Ok(Some((state.append(&local, source, &read, quiet)?, source)))
        })
    }

    /// One tracer fewer on `var`.
    pub fn release(slf: &Bound<'_, Self>, var: Var, tracer: Option<usize>) {
        drop(slf.get().peek(|state| state.release(var, tracer)));
    }

    /// Takes back the equations from a row on, of whose outputs nobody holds any.
    pub fn retract(slf: &Bound<'_, Self>, first: u32) {
        drop(slf.get().peek(|state| state.retract(first)));
    }

    /// The `Var` object of a variable.
    pub fn var_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match slf.get().with(py, |state, quiet| state.var_holder(var, quiet))? {
            VarHolder::Made(object) => Ok(object.into_bound(py)),
            VarHolder::Graph(graph) => Graph::var_object(graph.bind(py), jax, var),
            VarHolder::Own(aval, vars) => {
                let aval = aval.unwrap_or_else(|| py.None()).into_bound(py);
                vars.make(jax, var, aval)
            }
        }
    }

    /// The jax `Literal` of a literal.
    pub fn literal_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        literal: Atom,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let AtomKind::Literal(id) = literal.kind() else {
            return Err(PyRuntimeError::new_err("a variable in place of a literal"));
        };
        let own = slf.get().with(py, |state, quiet| match &state.phase {
            Phase::Recording(builder, _) | Phase::Abandoned(builder) => {
                Ok(state.table.own_literal(quiet, id, builder.literal_data(id).object))
            }
            Phase::Finished(graph) => Ok(graph.get().own_literal(quiet, id)),
            Phase::Released(_) | Phase::Gone => Err(finished()),
        })?;
        LiteralCopies::make(py, jax, id, own)
    }

    fn atom_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        atom: Atom,
    ) -> PyResult<Bound<'py, PyAny>> {
        match atom.kind() {
            AtomKind::Var(var) => Self::var_object(slf, jax, var),
            AtomKind::Literal(_) => Self::literal_object(slf, jax, atom),
        }
    }

    /// The captured value, where `var` is a constant of a running trace.
    pub fn constant<'py>(slf: &Bound<'py, Self>, var: Var) -> Option<Bound<'py, PyAny>> {
        let value = slf.get().with(slf.py(), |state, quiet| match &state.phase {
            Phase::Recording(builder, _) => match builder.var(var).def {
                Def::Constvar(id) => state.table.constant_of(quiet, id),
                _ => None,
            },
            Phase::Finished(graph) => graph.get().constant_of(quiet, var),
            Phase::Abandoned(_) | Phase::Released(_) | Phase::Gone => None,
        });
        value.map(|value| value.into_bound(slf.py()))
    }

    /// A new `SourceInfo` of a recorded source.
    pub fn source_info<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        source: SourceId,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let parts = slf.get().with(py, |state, quiet| {
            let source = match &state.phase {
                Phase::Recording(builder, _) | Phase::Abandoned(builder) => {
                    builder.source_data(source)
                }
                Phase::Finished(graph) => {
                    return Some(graph.get().source_parts(quiet, jax, source));
                }
                Phase::Released(program) => program.source(source),
                Phase::Gone => return None,
            };
            Some(state.table.retained().parts(quiet, jax, source))
        });
        match parts {
            Some(parts) => source_info_of(py, jax, parts),
            None => Ok(py.None().into_bound(py)),
        }
    }

    pub fn debug_info_object<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyAny> {
        slf.get().own_debug_info(slf.py())
    }

    fn own_debug_info<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let own =
            self.with(py, |state, quiet| state.debug_info.as_ref().map(|info| quiet.own(info)));
        own.unwrap_or_else(|| py.None()).into_bound(py)
    }

    /// The tracer for a constant: the one that is alive, else a new one.
    pub fn const_tracer<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        trace: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        aval: &Bound<'py, PyAny>,
        source: &SourceRef<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, frame) = (slf.py(), slf.get());
        let info = aval_info(jax, aval)?;
        let source = Self::source(slf, jax, source)?;
        let (of_value, of_type) = (value.as_unbound(), aval.as_unbound());
        let (var, alive) = frame.with(py, |state, quiet| {
            let var = state.const_var(of_value, of_type, &info, quiet)?;
            let alive = state.alive_tracer(var, quiet);
            if alive.is_none() {
                // Before the tracer is there: whatever comes in between may not remove the constant.
                state.recording()?.0.retain(var);
            }
            Ok::<_, PyErr>((var, alive))
        })?;
        if let Some(alive) = alive {
            return Ok(alive.into_bound(py));
        }
        let tracer = match tracer::new_tracer(jax, trace, var, aval.clone(), source, true) {
            Ok(tracer) => tracer,
            Err(error) => {
                Self::release(slf, var, None);
                return Err(error);
            }
        };
        let address = tracer.as_ptr() as usize;
        let alive = frame.with(py, |state, quiet| {
            let alive = state.alive_tracer(var, quiet);
            if alive.is_none() {
                state.const_tracers.insert(var, address);
            }
            alive
        });
        // Somebody may have made one meanwhile.
        Ok(alive.map_or(tracer, |alive| alive.into_bound(py)))
    }

    /// The operand that `tracer`, made through jax's own constructor, stands for.
    pub fn foreign_operand<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        tracer: &Bound<'py, PyAny>,
    ) -> PyResult<Operand<'py>> {
        let py = tracer.py();
        let val = tracer.getattr(intern!(py, "val"))?;
        let aval = tracer.getattr(intern!(py, "aval"))?;
        if val.get_type().is(&jax.literal_type) {
            let value = val.getattr(intern!(py, "val"))?;
            return Ok(Operand::Literal { literal: val, value, aval });
        }
        match slf.get().peek({
            let address = val.as_ptr() as usize;
            move |state| state.table.vars().var_at(address)
        }) {
            Some(var) => Ok(Operand::Var { var, aval, tracer: Some(tracer.clone()) }),
            None => Err(PyRuntimeError::new_err(format!(
                "jaxide: the tracer {} has a variable that its trace does not know",
                string_of(&tracer.repr()?)
            ))),
        }
    }

    /// The quasi-dynamic data of a variable, where it has any.
    pub fn qdd<'py>(slf: &Bound<'py, Self>, var: Var) -> Option<Bound<'py, PyAny>> {
        let py = slf.py();
        let qdd = slf.get().with(py, |state, quiet| {
            let (_, qdd) = state.qdds.iter().find(|(known, _)| *known == var)?;
            Some(quiet.own(qdd))
        })?;
        Some(qdd.into_bound(py))
    }

    /// Gives an input quasi-dynamic data.
    pub fn attach_qdd(
        slf: &Bound<'_, Self>,
        var: Var,
        object: &Bound<'_, PyAny>,
        mutable_qdd: &Bound<'_, PyAny>,
    ) {
        Self::set_var_object(slf, var, object);
        let qdd = mutable_qdd.clone().unbind();
        slf.get().peek(|state| state.qdds.push((var, qdd)));
    }

    /// Makes `object` the `Var` object of a variable.
    pub fn set_var_object(slf: &Bound<'_, Self>, var: Var, object: &Bound<'_, PyAny>) {
        let vars = slf.get().peek(|state| state.table.vars().clone());
        vars.set(var, object);
    }
}
