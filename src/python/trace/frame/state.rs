//! What a frame has: the program under construction, and what is known of it.

use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{
    Atom, Builder, ConstId, DebugInfo, EffectsId, Eqn, EqnShape, LiteralId, Program, SourceId, Var,
};

use crate::python::cpython::shared::Quiet;
use crate::python::jax::avals::{AvalInfo, build_error};
use crate::python::program::graph::Graph;
use crate::python::program::lazy_objects::Vars;
use crate::python::program::objects::ObjectTable;
use crate::python::trace::frame::operands::ReadEqn;
use crate::python::trace::frame::operands::{LocalEntry, NewVar, Ready};
use crate::python::trace::session::Recording;

type Object = Py<PyAny>;

/// What a frame has.
pub struct State {
    pub(super) auto_dce: bool,
    pub(super) phase: Phase,
    pub(super) table: ObjectTable,
    pub(super) debug_info: Option<Py<PyAny>>,
    pub(super) is_high: bool,
    /// The constant for a value, by address; the object table keeps the value alive.
    pub(super) const_by_id: FxHashMap<usize, Var>,
    /// Constants in the order of their use, while calls are being recorded.
    pub(super) constants_used: Vec<Var>,
    pub(super) recordings: u32,
    /// The tracer of a constant, by address, while one is alive.
    pub(super) const_tracers: FxHashMap<Var, usize>,
    pub(super) entries: FxHashMap<u32, LocalEntry>,
    /// The rows of fragments, and where they are by the number of the fragment.
    pub(super) rows: Vec<Rows>,
    pub(super) row_by_fragment: FxHashMap<u64, usize>,
    /// Variables with quasi-dynamic data (jax before 0.11).
    pub(super) qdds: Vec<(Var, Py<PyAny>)>,
}

/// Where the program is.
#[allow(clippy::large_enum_variant)] // one for each program under construction
pub(super) enum Phase {
    /// It grows.
    Recording(Builder, Recording),
    /// The trace was over before the program was finished: jax forgets its equations and constants.
    Abandoned(Builder),
    /// It has become that of a graph.
    Finished(Py<Graph>),
    /// The trace is over, and has let the graph go.
    Released(Arc<Program>),
    /// The collector has taken it, or it was refused.
    Gone,
}

impl Phase {
    /// What has been recorded, whether or not the trace is over.
    pub(super) fn builder(&self) -> Option<&Builder> {
        match self {
            Self::Recording(builder, _) | Self::Abandoned(builder) => Some(builder),
            Self::Finished(_) | Self::Released(_) | Self::Gone => None,
        }
    }

    /// As `builder`, to be changed.
    pub(super) fn builder_mut(&mut self) -> Option<&mut Builder> {
        match self {
            Self::Recording(builder, _) | Self::Abandoned(builder) => Some(builder),
            Self::Finished(_) | Self::Released(_) | Self::Gone => None,
        }
    }

    /// What has been recorded of a trace that is not over.
    pub(super) fn recording(&self) -> Option<&Builder> {
        match self {
            Self::Recording(builder, _) => Some(builder),
            _ => None,
        }
    }

    /// The graph of a program that is finished, while the trace is not over.
    pub(super) fn graph(&self) -> Option<&Py<Graph>> {
        match self {
            Self::Finished(graph) => Some(graph),
            _ => None,
        }
    }
}

/// A fragment's rows in a program.
#[derive(Default)]
pub struct Rows {
    /// The shape of each equation.
    pub equations: Vec<EqnShape>,
    /// Equals of its literals.
    pub literals: Vec<LiteralId>,
    /// The source it was last appended with.
    pub source: Option<SourceId>,
}

/// A program under construction, its objects, and the rows of a fragment in it.
pub type Appending<'a> = (&'a mut Builder, &'a mut ObjectTable, &'a mut Rows);

/// A place in a program under construction.
#[derive(Clone, Copy)]
pub struct Mark {
    pub eqns: u32,
    pub vars: u32,
    pub is_high: bool,
}

#[cold]
pub(super) fn finished() -> PyErr {
    PyRuntimeError::new_err("this trace is finished: its jaxpr has been made and cannot grow")
}

/// Where the object of a variable is.
pub(super) enum VarHolder {
    Made(Object),
    /// Still to be made, of its type.
    Own(Option<Object>, Arc<Vars>),
    Graph(Py<Graph>),
}

impl State {
    /// Where the frame is now, for reading what comes after.
    pub fn mark(&self) -> Mark {
        let row = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let (eqns, vars) = self
            .phase
            .builder()
            .map_or((0, 0), |builder| (builder.num_appended(), builder.num_vars()));
        Mark { eqns: row(eqns), vars: row(vars), is_high: self.is_high }
    }

    /// What was recorded so far, where the frame still records.
    pub fn recorded(&self) -> Option<(&Builder, &ObjectTable)> {
        self.phase.builder().map(|builder| (builder, &self.table))
    }

    /// From now on the uses of constants are noted in order; how many were before.
    pub fn note_constants(&mut self) -> usize {
        self.recordings += 1;
        self.constants_used.len()
    }

    /// The constants that were used since there were `from`, in order.
    pub fn constants_used(&self, from: usize) -> Vec<Var> {
        self.constants_used.get(from..).map_or_else(Vec::new, <[Var]>::to_vec)
    }

    /// Ends what `note_constants` began.
    pub fn end_note(&mut self) {
        self.recordings = self.recordings.saturating_sub(1);
        if self.recordings == 0 {
            self.constants_used = Vec::new();
        }
    }

    /// Where the rows of a fragment are in this program, if it has some.
    pub fn rows_of(&self, fragment: u64) -> Option<usize> {
        self.row_by_fragment.get(&fragment).copied()
    }

    /// Adds the rows of a fragment; where they are.
    pub fn add_rows(&mut self, fragment: u64, rows: Rows) -> usize {
        self.rows.push(rows);
        self.row_by_fragment.insert(fragment, self.rows.len() - 1);
        self.rows.len() - 1
    }

    /// What a fragment is appended with.
    pub fn appending(&mut self, rows: usize) -> PyResult<Appending<'_>> {
        match (self.phase.builder_mut(), self.rows.get_mut(rows)) {
            (Some(builder), Some(rows)) => Ok((builder, &mut self.table, rows)),
            _ => Err(finished()),
        }
    }

    /// The builder and the objects of a frame that still records.
    pub fn recording(&mut self) -> PyResult<(&mut Builder, &mut ObjectTable)> {
        match self.phase.builder_mut() {
            Some(builder) => Ok((builder, &mut self.table)),
            None => Err(finished()),
        }
    }

    pub fn is_high(&self) -> bool {
        self.is_high
    }

    /// The constant that is the value at an address.
    pub fn known_const(&self, value: usize) -> Option<Var> {
        self.const_by_id.get(&value).copied()
    }

    /// The constant for `value`, a new one where there is none.
    pub fn const_var(
        &mut self,
        value: &Object,
        aval: &Object,
        info: &AvalInfo,
        quiet: Quiet<'_>,
    ) -> PyResult<Var> {
        let address = value.as_ptr() as usize;
        let var = if let Some(&var) = self.const_by_id.get(&address) {
            var
        } else {
            let (builder, table) = self.recording()?;
            let ty = table.type_of(builder, aval, info, quiet);
            let id = table.new_const_of(value, quiet);
            let var = builder.constvar(ty, id).map_err(build_error)?;
            self.const_by_id.insert(address, var);
            var
        };
        if self.recordings > 0 {
            self.constants_used.push(var);
        }
        Ok(var)
    }

    /// The atom of an operand; constants come into being here.
    pub(super) fn atom(&mut self, operand: &Ready<'_>, quiet: Quiet<'_>) -> PyResult<Atom> {
        match operand {
            Ready::Var(var) => Ok(Atom::var(*var)),
            Ready::Const { value, aval, info } => {
                self.const_var(value, aval, info, quiet).map(Atom::var)
            }
            Ready::Literal { literal, aval, info } => {
                let (builder, table) = self.recording()?;
                table.literal_of(builder, literal, (aval, info), quiet).map(Atom::literal)
            }
        }
    }

    /// One tracer fewer on `var`; what the caller has to drop comes back.
    #[must_use]
    pub(super) fn release(&mut self, var: Var, tracer: Option<usize>) -> Vec<Object> {
        if tracer.is_some() && self.const_tracers.get(&var).copied() == tracer {
            self.const_tracers.remove(&var);
        }
        let Some(builder) = self.phase.builder_mut() else { return Vec::new() };
        let mut removed: Vec<ConstId> = Vec::new();
        builder.release(var, &mut removed);
        self.forget_consts(removed)
    }

    /// Takes back what was appended from a row on, of which nobody holds anything; what the caller has to
    /// drop comes back.
    #[must_use]
    pub(super) fn retract(&mut self, first: u32) -> Vec<Object> {
        let Some(builder) = self.phase.builder_mut() else { return Vec::new() };
        let mut removed: Vec<ConstId> = Vec::new();
        builder.retract(Eqn::from_u32(first), &mut removed);
        self.forget_consts(removed)
    }

    fn forget_consts(&mut self, removed: Vec<ConstId>) -> Vec<Object> {
        removed
            .into_iter()
            .filter_map(|id| {
                let value = self.table.take_const(id)?;
                self.const_by_id.remove(&(value.as_ptr() as usize));
                Some(value)
            })
            .collect()
    }

    pub(super) fn append(
        &mut self,
        local: &LocalEntry,
        source: SourceId,
        eqn: &ReadEqn<'_>,
        quiet: Quiet<'_>,
    ) -> PyResult<SmallVec<[NewVar; 1]>> {
        let counted = self.auto_dce;
        let mut atoms: SmallVec<[Atom; 4]> = SmallVec::new();
        for operand in eqn.operands {
            atoms.push(self.atom(operand, quiet)?);
        }
        let (builder, table) = self.recording()?;
        if let Some(no_effects) = eqn.no_effects {
            table.note_no_effects_of(local.primitive, no_effects, quiet);
        }
        let context = table.handle_of(eqn.context, quiet);
        let context = builder.context(context);
        let effects = match eqn.effects {
            Some(effects) => table.effects_of(builder, effects, quiet),
            None => EffectsId::NONE,
        };
        let LocalEntry { primitive, params, out_types } = local;
        let eqn = builder
            .eqn(*primitive, *params, &atoms, out_types, effects, source, context)
            .map_err(build_error)?;
        let outvars = builder.eqn_data(eqn).outvars();
        Ok(outvars
            .map(|var| {
                if counted {
                    builder.retain(var);
                }
                NewVar { var, counted }
            })
            .collect())
    }

    pub(super) fn var_holder(&self, var: Var, quiet: Quiet<'_>) -> PyResult<VarHolder> {
        let ty = match &self.phase {
            Phase::Finished(graph) => return Ok(VarHolder::Graph(quiet.own(graph))),
            Phase::Recording(builder, _) | Phase::Abandoned(builder) => Some(builder.type_of(var)),
            Phase::Released(program) => Some(program.var_type(var)),
            Phase::Gone => None,
        };
        if let Some(made) = self.table.vars().get(quiet, var) {
            return Ok(VarHolder::Made(made));
        }
        let aval = self.table.aval_of(quiet, ty.ok_or_else(finished)?);
        Ok(VarHolder::Own(aval, self.table.vars().clone()))
    }

    /// The inputs of the program.
    pub(super) fn program_invars(&self) -> Vec<Var> {
        match &self.phase {
            Phase::Recording(builder, _) | Phase::Abandoned(builder) => builder.invars().to_vec(),
            Phase::Finished(graph) => graph.get().program().invars().to_vec(),
            Phase::Released(program) => program.invars().to_vec(),
            Phase::Gone => Vec::new(),
        }
    }

    /// The tracer of a constant, if one is alive.
    pub(super) fn alive_tracer(&self, var: Var, quiet: Quiet<'_>) -> Option<Object> {
        let &alive = self.const_tracers.get(&var)?;
        // SAFETY: the entry goes when the tracer is finalized, before its memory does.
        Some(unsafe { quiet.own_at(alive) })
    }

    pub(super) fn own_qdds(&self, quiet: Quiet<'_>) -> Vec<(Var, Object)> {
        self.qdds.iter().map(|(var, qdd)| (*var, quiet.own(qdd))).collect()
    }

    /// Hands the finished program to its graph; what the caller drops comes back.
    pub(super) fn finish(
        &mut self,
        outs: &[Atom],
        graph: &Py<Graph>,
        quiet: Quiet<'_>,
    ) -> PyResult<(Option<Recording>, Option<Object>)> {
        let (builder, recording) = match std::mem::replace(&mut self.phase, Phase::Gone) {
            Phase::Recording(builder, recording) => {
                recording.note_size([builder.num_vars(), builder.num_appended()]);
                (builder, Some(recording))
            }
            Phase::Abandoned(builder) => (builder, None),
            other => {
                self.phase = other;
                return Err(finished());
            }
        };
        let mut table = std::mem::take(&mut self.table);
        let given_up = (recording, table.shrink());
        self.entries = FxHashMap::default();
        self.rows = Vec::new();
        self.row_by_fragment = FxHashMap::default();
        let program = builder.finish(outs, DebugInfo::default(), EffectsId::NONE);
        graph.get().fill(program.map_err(build_error)?, table);
        self.phase = Phase::Finished(quiet.own(graph));
        Ok(given_up)
    }

    /// The trace is over; what the caller drops comes back.
    pub(super) fn invalidate(
        &mut self,
    ) -> (Option<Recording>, [ObjectTable; 2], Option<Py<Graph>>) {
        self.const_by_id.clear();
        let mut forgotten = [self.table.keep_retained(), ObjectTable::default()];
        let (mut ended, mut let_go) = (None, None);
        self.phase = match std::mem::replace(&mut self.phase, Phase::Gone) {
            Phase::Recording(builder, recording) => {
                ended = Some(recording);
                Phase::Abandoned(builder)
            }
            Phase::Finished(graph) => {
                let program = graph.get().program();
                let retained = graph.get().table().retained().clone();
                forgotten[1] =
                    std::mem::replace(&mut self.table, ObjectTable::of_retained(retained));
                let_go = Some(graph);
                Phase::Released(program)
            }
            over => over,
        };
        (ended, forgotten, let_go)
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.table.traverse(visit)?;
        visit.call(self.phase.graph())?;
        visit.call(&self.debug_info)?;
        self.qdds.iter().try_for_each(|(_, qdd)| visit.call(qdd))
    }
}
