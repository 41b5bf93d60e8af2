//! One program under construction, in the role of jax's `JaxprStackFrame`.

use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::ir::{
    Atom, AtomKind, Builder, ConstId, DeadCode, DebugInfo, Def, EffectsId, Eqn, EqnData, EqnShape,
    LiteralId, ParamsId, PrimitiveId, Program, SourceId, TypeId, Var,
};

use crate::python::cpython::native::string_of;
use crate::python::cpython::shared::{Quiet, Shared};
use crate::python::jax::avals::{AvalInfo, aval_info, build_error};
use crate::python::jax::names::{EqnParts, Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::{JaxprFields, new_jaxpr, new_nested_jaxpr};
use crate::python::program::lazy_objects::{LiteralCopies, OwnLiteral, Vars};
use crate::python::program::objects::{
    PrimitiveWords, ReadEffects, Side, SourceKey, StackPlace, literal_type,
};
use crate::python::trace::abstract_eval::Entry;
use crate::python::trace::session::Recording;
use crate::python::trace::tracer;

type Object = Py<PyAny>;

/// An operand of an equation to be.
#[derive(Clone)]
pub enum Operand<'py> {
    /// A variable of this frame, and its tracer where there is one at hand.
    Var { var: Var, aval: Bound<'py, PyAny>, tracer: Option<Bound<'py, PyAny>> },
    /// A jax `Literal`.
    Literal { literal: Bound<'py, PyAny>, value: Bound<'py, PyAny>, aval: Bound<'py, PyAny> },
    /// A value that is, or becomes, a constant of this frame.
    Const { value: Bound<'py, PyAny>, aval: Bound<'py, PyAny> },
}

impl<'py> Operand<'py> {
    pub fn aval(&self) -> &Bound<'py, PyAny> {
        match self {
            Self::Var { aval, .. } | Self::Literal { aval, .. } | Self::Const { aval, .. } => aval,
        }
    }
}

/// The ids of a remembered equation in this frame.
#[derive(Clone)]
pub struct LocalEntry {
    pub primitive: PrimitiveId,
    pub params: ParamsId,
    pub out_types: SmallVec<[TypeId; 1]>,
}

/// An operand, as far as only Python can tell.
pub enum Ready<'a> {
    Var(Var),
    Literal { literal: &'a Object, aval: Object, info: Arc<AvalInfo> },
    Const { value: &'a Object, aval: &'a Object, info: Arc<AvalInfo> },
}

impl<'a> Ready<'a> {
    /// # Errors
    /// A type cannot be read.
    pub fn of(jax: &Jax, operand: &'a Operand<'_>) -> PyResult<Self> {
        Ok(match operand {
            Operand::Var { var, .. } => Self::Var(*var),
            Operand::Literal { literal, .. } => {
                let (aval, info) = literal_type(jax, literal)?;
                Self::Literal { literal: literal.as_unbound(), aval: aval.unbind(), info }
            }
            Operand::Const { value, aval } => Self::Const {
                value: value.as_unbound(),
                aval: aval.as_unbound(),
                info: aval_info(jax, aval)?,
            },
        })
    }
}

/// An equation to be appended.
pub struct Appended<'a, 'py> {
    pub local: &'a LocalEntry,
    pub operands: &'a [Operand<'py>],
    /// Not empty.
    pub effects: Option<&'a Bound<'py, PyAny>>,
    /// What stands for no effects.
    pub no_effects: Option<&'a Bound<'py, PyAny>>,
    pub source: SourceId,
    /// jax's equation context.
    pub context: &'a Bound<'py, PyAny>,
}

/// One program under construction.
#[pyclass(module = "jax._src.interpreters.partial_eval", name = "JaxprStackFrame", weakref, frozen)]
pub struct Frame {
    auto_dce: bool,
    state: Shared<State>,
}

/// What a frame has.
pub struct State {
    auto_dce: bool,
    /// None once the program is finished.
    builder: Option<Builder>,
    recording: Option<Recording>,
    side: Side,
    graph: Option<Py<Graph>>,
    /// The finished program once the trace is over and has let the graph go.
    program: Option<Arc<Program>>,
    debug_info: Option<Py<PyAny>>,
    is_high: bool,
    /// The trace is over: jax forgets equations and constants.
    invalidated: bool,
    /// The constant for a value, by address; the side keeps the value alive.
    const_by_id: FxHashMap<usize, Var>,
    /// Constants in the order of their use, while calls are being recorded.
    constants_used: Vec<Var>,
    recordings: u32,
    /// The tracer of a constant, by address, while one is alive.
    const_tracers: FxHashMap<Var, usize>,
    entries: FxHashMap<u32, LocalEntry>,
    /// The rows of fragments, and where they are by the number of the fragment.
    rows: Vec<Rows>,
    row_by_fragment: FxHashMap<u64, usize>,
    /// Variables with quasi-dynamic data (jax before 0.11).
    qdds: Vec<(Var, Py<PyAny>)>,
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
pub type Appending<'a> = (&'a mut Builder, &'a mut Side, &'a mut Rows);

/// A place in a program under construction.
#[derive(Clone, Copy)]
pub struct Mark {
    pub eqns: u32,
    pub vars: u32,
    pub is_high: bool,
}

/// A new variable and whether its tracers are counted.
pub struct NewVar {
    pub var: Var,
    pub counted: bool,
}

#[cold]
fn finished() -> PyErr {
    PyRuntimeError::new_err("this trace is finished: its jaxpr has been made and cannot grow")
}

/// An equation to be appended, as far as only Python can tell.
struct ReadEqn<'a> {
    operands: &'a [Ready<'a>],
    effects: Option<&'a ReadEffects>,
    no_effects: Option<&'a Object>,
    context: &'a Object,
}

/// An operand of an equation under construction.
enum RawOperand {
    Var(Var),
    Literal(LiteralId, OwnLiteral),
}

/// An equation under construction and its objects, but for those of its variables. It stays as it
/// is whatever becomes of the program.
struct RawEqn {
    data: EqnData,
    operands: SmallVec<[RawOperand; 4]>,
    primitive: Option<Object>,
    params: Option<Py<PyDict>>,
    effects: Object,
    context: Option<Object>,
    /// The traceback and the name stack.
    source: [Option<Object>; 2],
}

/// Where the object of a variable is.
enum VarHolder {
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
            .builder
            .as_ref()
            .map_or((0, 0), |builder| (builder.num_appended(), builder.num_vars()));
        Mark { eqns: row(eqns), vars: row(vars), is_high: self.is_high }
    }

    /// What was recorded so far, where the frame still records.
    pub fn recorded(&self) -> Option<(&Builder, &Side)> {
        self.builder.as_ref().map(|builder| (builder, &self.side))
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
        match (&mut self.builder, self.rows.get_mut(rows)) {
            (Some(builder), Some(rows)) => Ok((builder, &mut self.side, rows)),
            _ => Err(finished()),
        }
    }

    /// The builder and the objects of a frame that still records.
    pub fn recording(&mut self) -> PyResult<(&mut Builder, &mut Side)> {
        match &mut self.builder {
            Some(builder) => Ok((builder, &mut self.side)),
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
            let (builder, side) = self.recording()?;
            let ty = side.type_of(builder, aval, info, quiet);
            let id = side.new_const_of(value, quiet);
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
    fn atom(&mut self, operand: &Ready<'_>, quiet: Quiet<'_>) -> PyResult<Atom> {
        match operand {
            Ready::Var(var) => Ok(Atom::var(*var)),
            Ready::Const { value, aval, info } => {
                self.const_var(value, aval, info, quiet).map(Atom::var)
            }
            Ready::Literal { literal, aval, info } => {
                let (builder, side) = self.recording()?;
                side.literal_of(builder, literal, (aval, info), quiet).map(Atom::literal)
            }
        }
    }

    /// One tracer fewer on `var`; what the caller has to drop comes back.
    #[must_use]
    fn release(&mut self, var: Var, tracer: Option<usize>) -> Vec<Object> {
        if tracer.is_some() && self.const_tracers.get(&var).copied() == tracer {
            self.const_tracers.remove(&var);
        }
        let Some(builder) = &mut self.builder else { return Vec::new() };
        let mut removed: Vec<ConstId> = Vec::new();
        builder.release(var, &mut removed);
        removed
            .into_iter()
            .filter_map(|id| {
                let value = self.side.take_const(id)?;
                self.const_by_id.remove(&(value.as_ptr() as usize));
                Some(value)
            })
            .collect()
    }

    fn append(
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
        let (builder, side) = self.recording()?;
        if let Some(no_effects) = eqn.no_effects {
            side.note_no_effects_of(local.primitive, no_effects, quiet);
        }
        let context = side.handle_of(eqn.context, quiet);
        let context = builder.context(context);
        let effects = match eqn.effects {
            Some(effects) => side.effects_of(builder, effects, quiet),
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

    fn var_holder(&self, var: Var, quiet: Quiet<'_>) -> PyResult<VarHolder> {
        if let Some(graph) = &self.graph {
            return Ok(VarHolder::Graph(quiet.own(graph)));
        }
        if let Some(made) = self.side.vars().get(quiet, var) {
            return Ok(VarHolder::Made(made));
        }
        let ty = match (&self.program, &self.builder) {
            (Some(program), _) => program.var_type(var),
            (None, Some(builder)) => builder.type_of(var),
            (None, None) => return Err(finished()),
        };
        Ok(VarHolder::Own(self.side.aval_of(quiet, ty), self.side.vars().clone()))
    }

    /// Equations of a program under construction, with their objects.
    fn raw_eqns(
        &self,
        jax: &Jax,
        eqns: impl IntoIterator<Item = Eqn>,
        quiet: Quiet<'_>,
    ) -> Vec<RawEqn> {
        let Some(builder) = &self.builder else { return Vec::new() };
        eqns.into_iter().map(|eqn| self.raw_eqn(jax, builder, eqn, quiet)).collect()
    }

    fn raw_eqn(&self, jax: &Jax, builder: &Builder, eqn: Eqn, quiet: Quiet<'_>) -> RawEqn {
        let data = builder.eqn_data(eqn).clone();
        let source = builder.source_data(data.source);
        let operand = |atom: &Atom| match atom.kind() {
            AtomKind::Var(var) => RawOperand::Var(var),
            AtomKind::Literal(id) => {
                let object = builder.literal_data(id).object;
                RawOperand::Literal(id, self.side.own_literal(quiet, id, object))
            }
        };
        RawEqn {
            operands: builder.eqn_invars(eqn).iter().map(operand).collect(),
            primitive: self.side.object_of(quiet, builder.primitive_data(data.primitive).object),
            params: self.side.params_of(quiet, data.params),
            effects: self.side.effects_object(quiet, jax, data.effects, data.primitive),
            context: self.side.object_of(quiet, builder.context_object(data.context)),
            source: self.side.leaves().parts(quiet, jax, source),
            data,
        }
    }
}

impl Frame {
    pub fn new(debug_info: Bound<'_, PyAny>, auto_dce: bool, recording: Recording) -> Self {
        let dce = if auto_dce { DeadCode::RemoveUnreferenced } else { DeadCode::Keep };
        let [num_vars, num_eqns] = recording.room();
        let state = State {
            auto_dce,
            builder: Some(Builder::with_room(dce, num_vars, num_eqns)),
            recording: Some(recording),
            side: Side::default(),
            graph: None,
            program: None,
            debug_info: Some(debug_info.unbind()),
            is_high: false,
            invalidated: false,
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
            let (builder, side) = state.recording()?;
            let ty = side.type_of(builder, aval, &info, quiet);
            let var = builder.invar(ty).map_err(build_error)?;
            Ok(NewVar { var, counted: false })
        })
    }

    /// The id of a source.
    pub fn source(slf: &Bound<'_, Self>, jax: &Jax, source: &SourceRef<'_>) -> PyResult<SourceId> {
        let (py, frame) = (slf.py(), slf.get());
        let key = SourceKey::of(jax, source)?;
        let known = frame.with(py, |state, quiet| {
            let (builder, side) = state.recording()?;
            side.known_source_id(builder, &key, quiet)
        })?;
        if let Some(known) = known {
            return Ok(known);
        }
        let stacks = |hash| frame.with(py, |state, quiet| state.side.name_stacks_of(hash, quiet));
        let place = StackPlace::of(&source.name_stack, stacks)?;
        let (id, old) = frame.with(py, |state, quiet| {
            let (builder, side) = state.recording()?;
            side.new_source(builder, &key, place, quiet)
        })?;
        drop(old);
        Ok(id)
    }

    /// The aval of a variable of a frame that still records.
    pub fn aval_of<'py>(slf: &Bound<'py, Self>, var: Var) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let aval = slf.get().with(py, |state, quiet| {
            let (builder, side) = state.recording()?;
            Ok::<_, PyErr>(side.aval_of(quiet, builder.type_of(var)))
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
            let (builder, side) = state.recording()?;
            let mut out_types = SmallVec::new();
            for (aval, info) in &infos {
                out_types.push(side.type_of(builder, aval, info, quiet));
            }
            Ok(LocalEntry {
                primitive: primitive.id(builder, side, quiet)?,
                params: side.deferred_params_id(builder, params, quiet),
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
            let (builder, side) = state.recording()?;
            let Some(source) = side.known_source_id(builder, &key, quiet)? else {
                return Ok(None);
            };
            Ok(Some((state.append(&local, source, &read, quiet)?, source)))
        })
    }

    /// One tracer fewer on `var`.
    pub fn release(slf: &Bound<'_, Self>, var: Var, tracer: Option<usize>) {
        drop(slf.get().peek(|state| state.release(var, tracer)));
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
        let own = slf.get().with(py, |state, quiet| match (&state.builder, &state.graph) {
            (Some(builder), _) => {
                Ok(state.side.own_literal(quiet, id, builder.literal_data(id).object))
            }
            (None, Some(graph)) => Ok(graph.get().own_literal(quiet, id)),
            (None, None) => Err(finished()),
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
        let value = slf.get().with(slf.py(), |state, quiet| {
            if state.invalidated {
                return None;
            }
            if let Some(graph) = &state.graph {
                return graph.get().constant_of(quiet, var);
            }
            match state.builder.as_ref()?.var(var).def {
                Def::Constvar(id) => state.side.constant_of(quiet, id),
                _ => None,
            }
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
            if let Some(graph) = &state.graph {
                return Some(graph.get().source_parts(quiet, jax, source));
            }
            let source = match (&state.builder, &state.program) {
                (Some(builder), _) => builder.source_data(source),
                (None, Some(program)) => program.source(source),
                (None, None) => return None,
            };
            Some(state.side.leaves().parts(quiet, jax, source))
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
            move |state| state.side.vars().var_at(address)
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
        let vars = slf.get().peek(|state| state.side.vars().clone());
        vars.set(var, object);
    }

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
    fn eqn_of<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        var: Var,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let raw = slf.get().with(slf.py(), |state, quiet| {
            let builder = state.builder.as_ref()?;
            let Def::Eqn(eqn) = builder.var(var).def else { return None };
            Some(state.raw_eqn(jax, builder, eqn, quiet))
        });
        raw.map(|raw| Self::eqn_object(slf, jax, raw)).transpose()
    }

    /// Equations under construction as jax's.
    fn eqn_objects<'py>(
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

    fn eqn_object<'py>(
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
    fn jaxpr_effects<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        outs: &[Atom],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let all = slf.get().with(py, |state, quiet| {
            let Some(builder) = &state.builder else { return Vec::new() };
            let has_effects = |eqn: Eqn| builder.eqn_data(eqn).effects != EffectsId::NONE;
            if !builder.live_eqns().any(has_effects) {
                return Vec::new();
            }
            let with_primitive = |eqn: Eqn| {
                let primitive = builder.eqn_data(eqn).primitive;
                let object = builder.primitive_data(primitive).object;
                (eqn, has_effects(eqn), state.side.object_of(quiet, object))
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
}

#[pymethods]
impl Frame {
    #[getter]
    fn debug_info<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.own_debug_info(py)
    }

    #[setter]
    fn set_debug_info(&self, value: Py<PyAny>) {
        drop(self.peek(|state| state.debug_info.replace(value)));
    }

    #[getter]
    fn get_auto_dce(&self) -> bool {
        self.auto_dce
    }

    #[getter]
    fn get_is_high(&self) -> bool {
        self.peek(|state| state.is_high)
    }

    #[setter]
    fn set_is_high(&self, value: bool) {
        self.peek(|state| state.is_high = value);
    }

    /// jax keeps an empty set here.
    #[getter]
    #[allow(clippy::unused_self)] // a getter
    fn effects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        PySet::empty(py)
    }

    /// What makes jax `Var`s.
    #[getter]
    #[allow(clippy::unused_self)] // a getter
    fn gensym<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyType>> {
        Ok(jax(py)?.var_type.bind(py).clone())
    }

    /// The tracers of the constants that have one, by the id of the value.
    #[getter]
    fn constid_to_tracer<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let dict = PyDict::new(py);
        let alive: Vec<_> = slf.get().with(py, |state, quiet| {
            let alive = |(&address, &var)| Some((address, state.alive_tracer(var, quiet)?));
            state.const_by_id.iter().filter_map(alive).collect()
        });
        for (address, tracer) in alive {
            dict.set_item(address, tracer)?;
        }
        Ok(dict)
    }

    /// Variables with quasi-dynamic data (jax before 0.11).
    #[getter]
    fn mutable_qdds<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let qdds = slf.get().with(py, |state, quiet| state.own_qdds(quiet));
        let list = PyList::empty(py);
        for (var, qdd) in qdds {
            list.append((Self::var_object(slf, jax(py)?, var)?, qdd))?;
        }
        Ok(list)
    }

    /// The inputs so far, as jax `Var`s.
    #[getter]
    fn invars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let jax = jax(py)?;
        let vars = slf.get().peek(|state| state.program_invars());
        let list = PyList::empty(py);
        for var in vars {
            list.append(Self::var_object(slf, jax, var)?)?;
        }
        Ok(list)
    }

    /// The constants so far: jax `Var` to value.
    #[getter]
    fn constvar_to_val<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let jax = jax(py)?;
        let dict = PyDict::new(py);
        let constvars: Vec<_> = slf.get().with(py, |state, quiet| match &state.builder {
            Some(builder) if !state.invalidated => {
                let value = |(var, id)| (var, state.side.constant_of(quiet, id));
                builder.constvars().map(value).collect()
            }
            _ => Vec::new(),
        });
        for (var, value) in constvars {
            dict.set_item(Self::var_object(slf, jax, var)?, value)?;
        }
        Ok(dict)
    }

    /// The live equations as jax's `JaxprEqn`s.
    fn get_eqns<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let jax = jax(slf.py())?;
        let raw = slf.get().with(slf.py(), |state, quiet| match &state.builder {
            Some(builder) if !state.invalidated => state.raw_eqns(jax, builder.live_eqns(), quiet),
            _ => Vec::new(),
        });
        Self::eqn_objects(slf, jax, raw)
    }

    /// As `get_eqns`.
    #[getter]
    fn tracing_eqns<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        Self::get_eqns(slf)
    }

    /// A jax `Var` that no equation defines yet.
    #[staticmethod]
    fn newvar<'py>(aval: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = aval.py();
        let jax = jax(py)?;
        if !jax.aval_qdd_type.bind(py).is_none() && aval.is_instance(jax.aval_qdd_type.bind(py))? {
            let (aval, qdd) = (aval.getattr("aval")?, aval.getattr("qdd")?);
            return jax.var_type.bind(py).call1((aval, qdd));
        }
        jax.var_type.bind(py).call1((aval,))
    }

    /// Appends a jax `TracingEqn` made by `make_eqn`.
    fn add_eqn(slf: &Bound<'_, Self>, eqn: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let jax = jax(py)?;
        if !eqn.get_type().is(&jax.tracing_eqn_type) {
            return Err(PyTypeError::new_err(format!(
                "not a TracingEqn: {}",
                string_of(&eqn.repr()?)
            )));
        }
        let mut operands = Vec::new();
        for tracer in eqn.getattr("in_tracers")?.try_iter()? {
            operands
                .push(crate::python::trace::jaxpr_trace::operand_of_tracer(jax, slf, &tracer?)?);
        }
        let outvars: Vec<Bound<'_, PyAny>> =
            eqn.getattr("outvars")?.try_iter()?.collect::<PyResult<_>>()?;
        let out_avals: Vec<_> =
            outvars.iter().map(|var| var.getattr("aval")).collect::<PyResult<_>>()?;
        let params = eqn.getattr("params")?.cast_into::<PyDict>()?;
        let source = SourceRef::of(jax, &eqn.getattr("source_info")?)?;
        let effects = eqn.getattr("effects")?;
        let has_effects = effects.is_truthy()?;
        let primitive = eqn.getattr("primitive")?;
        let ctx = eqn.getattr("ctx")?;
        let local = Self::describe(slf, jax, &primitive, &params, &out_avals)?;
        let eqn = Appended {
            local: &local,
            operands: &operands,
            effects: has_effects.then_some(&effects),
            no_effects: (!has_effects).then_some(&effects),
            source: Self::source(slf, jax, &source)?,
            context: &ctx,
        };
        let vars = Self::append(slf, jax, &eqn)?;
        // The tracers that make_eqn made are jax's and are not counted: the outputs stay retained.
        for (new, object) in vars.iter().zip(&outvars) {
            Self::set_var_object(slf, new.var, object);
        }
        Ok(())
    }

    /// The finished jaxpr and its constants.
    fn to_jaxpr<'py>(
        slf: &Bound<'py, Self>,
        trace: &Bound<'py, PyAny>,
        out_tracers: &Bound<'py, PyAny>,
        debug_info: &Bound<'py, PyAny>,
        source_info: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
        let _ = source_info;
        let py = slf.py();
        let jax = jax(py)?;
        let postponed = || -> PyResult<bool> {
            let paths = debug_info.getattr(intern!(py, "result_paths"))?;
            Ok(paths.get_type().is(&jax.postponed_paths))
        };
        let debug_info = if debug_info.is_none() {
            debug_info.clone()
        } else if postponed()? {
            let unknown = PyDict::new(py);
            unknown.set_item(intern!(py, "result_paths"), py.None())?;
            debug_info.call_method(intern!(py, "_replace"), (), Some(&unknown))?
        } else {
            debug_info.call_method0(intern!(py, "resolve_result_paths"))?
        };
        let mut outs = Vec::new();
        for tracer in out_tracers.try_iter()? {
            outs.push(crate::python::trace::jaxpr_trace::operand_of_tracer(jax, slf, &tracer?)?);
        }
        let ready: Vec<_> = outs.iter().map(|out| Ready::of(jax, out)).collect::<PyResult<_>>()?;
        let atoms: Vec<Atom> = slf.get().with(py, |state, quiet| {
            ready.iter().map(|out| state.atom(out, quiet)).collect::<PyResult<_>>()
        })?;
        let effects = Self::jaxpr_effects(slf, jax, &atoms)?;
        let is_high = Self::is_high_program(slf, jax, &atoms)?;
        Self::store_final_qdds(slf)?;
        let graph = Graph::to_be(&JaxprFields { effects, debug_info, is_high })?;
        let finished = graph.as_unbound();
        // In one go: whoever asks finds the program in the frame, or in the graph.
        let given_up = slf.get().with(py, |state, quiet| state.finish(&atoms, finished, quiet))?;
        drop(given_up);
        // SAFETY: `is_ours` checked that the trace has jax's slots.
        let parent = crate::python::trace::jaxpr_trace::is_ours(py, trace.as_ptr())
            .then(|| unsafe { jax.slots.trace_parent_trace.get(trace) })
            .flatten();
        match parent {
            Some(parent) if parent.is(&jax.eval_trace) => new_jaxpr(jax, &graph),
            _ => new_nested_jaxpr(jax, &graph),
        }
    }

    /// Which inputs a tracer depends on, else the equations with constants it may come from.
    fn find_progenitors<'py>(
        slf: &Bound<'py, Self>,
        tracer: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let jax = jax(py)?;
        let none = py.None().into_bound(py);
        let Some(var) = tracer::variable(py, tracer.as_ptr()) else {
            return (&none, &none).into_pyobject(py);
        };
        let (positions, with_consts) = slf.get().with(py, |state, quiet| {
            let (positions, with_consts) = state.progenitors(var);
            (positions, state.raw_eqns(jax, with_consts, quiet))
        });
        let eqns = Self::eqn_objects(slf, jax, with_consts)?;
        (positions, eqns).into_pyobject(py)
    }

    /// Forgets the equations, as jax does when a trace is over: they may refer to functions that
    /// refer to the trace.
    fn invalidate(slf: &Bound<'_, Self>) {
        drop(slf.get().peek(State::invalidate));
    }

    #[allow(clippy::needless_pass_by_value)] // the signature pyo3 wants
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state.visit(|state| state.traverse(&visit)).unwrap_or(Ok(()))
    }

    fn __clear__(&self) {
        drop(self.peek(|state| {
            state.program = None;
            let rest = (state.debug_info.take(), std::mem::take(&mut state.qdds));
            (rest, state.builder.take(), std::mem::take(&mut state.side), state.graph.take())
        }));
    }
}

impl Frame {
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

    fn is_high_program(slf: &Bound<'_, Self>, jax: &Jax, outs: &[Atom]) -> PyResult<bool> {
        let py = slf.py();
        let avals = slf.get().with(py, |state, quiet| {
            if state.is_high {
                return Ok(None);
            }
            let (builder, side) = state.recording()?;
            let vars = builder.constvars().map(|(var, _)| var);
            let vars = vars.chain(builder.invars().iter().copied()).map(Atom::var);
            let type_of = |atom: Atom| match atom.kind() {
                AtomKind::Var(var) => builder.type_of(var),
                AtomKind::Literal(literal) => builder.literal_data(literal).ty,
            };
            let types: FxHashSet<TypeId> = vars.chain(outs.iter().copied()).map(type_of).collect();
            let avals: Vec<_> =
                types.into_iter().filter_map(|ty| side.aval_of(quiet, ty)).collect();
            Ok::<_, PyErr>(Some(avals))
        })?;
        let Some(avals) = avals else { return Ok(true) };
        for aval in avals {
            let aval = aval.bind(py);
            if !aval.get_type().is(&jax.shaped_array_type) && aval_info(jax, aval)?.is_high {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn store_final_qdds(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let qdds = slf.get().with(py, |state, quiet| state.own_qdds(quiet));
        for (var, qdd) in qdds {
            let object = Self::var_object(slf, jax(py)?, var)?;
            object.setattr("final_qdd", qdd.bind(py).getattr("cur_val")?)?;
        }
        Ok(())
    }
}

impl State {
    /// As jax's `find_progenitors`: positions of inputs that `var` depends on; where there are
    /// none, all equations that use a literal or one of the constants it depends on.
    fn progenitors(&self, var: Var) -> (Vec<usize>, Vec<Eqn>) {
        let mut active = FxHashSet::from_iter([var]);
        let (invars, eqns) = match &self.builder {
            Some(builder) if !self.invalidated => {
                for eqn in builder.live_eqns().rev() {
                    let mut produced = false;
                    for out in builder.eqn_data(eqn).outvars() {
                        produced |= active.remove(&out);
                    }
                    if produced {
                        active.extend(builder.eqn_invars(eqn).iter().filter_map(|a| a.as_var()));
                    }
                }
                let constants: FxHashSet<Var> = builder
                    .constvars()
                    .map(|(constant, _)| constant)
                    .filter(|constant| active.contains(constant))
                    .collect();
                let uses_constant = |eqn: &Eqn| {
                    builder.eqn_invars(*eqn).iter().any(|atom| match atom.kind() {
                        AtomKind::Var(var) => constants.contains(&var),
                        AtomKind::Literal(_) => true,
                    })
                };
                (builder.invars().to_vec(), builder.live_eqns().filter(uses_constant).collect())
            }
            _ => (self.program_invars(), Vec::new()),
        };
        let positions: Vec<usize> =
            (0..invars.len()).filter(|&i| active.contains(&invars[i])).collect();
        // jax's message names the inputs, and the equations only where there are none.
        let eqns = if positions.is_empty() { eqns } else { Vec::new() };
        (positions, eqns)
    }

    /// The inputs of the program.
    fn program_invars(&self) -> Vec<Var> {
        match (&self.builder, &self.graph) {
            (Some(builder), _) => return builder.invars().to_vec(),
            (None, Some(graph)) => return graph.get().program().invars().to_vec(),
            (None, None) => {}
        }
        self.program.as_ref().map(|program| program.invars().to_vec()).unwrap_or_default()
    }

    /// The tracer of a constant, if one is alive.
    fn alive_tracer(&self, var: Var, quiet: Quiet<'_>) -> Option<Object> {
        let &alive = self.const_tracers.get(&var)?;
        // SAFETY: the entry goes when the tracer is finalized, before its memory does.
        Some(unsafe { quiet.own_at(alive) })
    }

    fn own_qdds(&self, quiet: Quiet<'_>) -> Vec<(Var, Object)> {
        self.qdds.iter().map(|(var, qdd)| (*var, quiet.own(qdd))).collect()
    }

    /// Hands the finished program to its graph; what the caller drops comes back.
    fn finish(
        &mut self,
        outs: &[Atom],
        graph: &Py<Graph>,
        quiet: Quiet<'_>,
    ) -> PyResult<(Option<Recording>, Option<Object>)> {
        let builder = self.builder.take().ok_or_else(finished)?;
        if let Some(recording) = &self.recording {
            recording.note_size([builder.num_vars(), builder.num_appended()]);
        }
        let mut side = std::mem::take(&mut self.side);
        let given_up = (self.recording.take(), side.shrink());
        self.entries = FxHashMap::default();
        self.rows = Vec::new();
        self.row_by_fragment = FxHashMap::default();
        let program = builder.finish(outs, DebugInfo::default(), EffectsId::NONE);
        graph.get().fill(program.map_err(build_error)?, side);
        self.graph = Some(quiet.own(graph));
        Ok(given_up)
    }

    /// The trace is over; what the caller drops comes back.
    fn invalidate(&mut self) -> (Option<Recording>, [Side; 2], Option<Py<Graph>>) {
        self.invalidated = true;
        self.const_by_id.clear();
        let mut forgotten = [self.side.keep_leaves(), Side::default()];
        let graph = self.graph.take();
        if let Some(graph) = &graph {
            let graph = graph.get();
            self.program = Some(graph.program());
            forgotten[1] =
                std::mem::replace(&mut self.side, Side::of_leaves(graph.side().leaves().clone()));
        }
        (self.recording.take(), forgotten, graph)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.side.traverse(visit)?;
        visit.call(&self.graph)?;
        visit.call(&self.debug_info)?;
        self.qdds.iter().try_for_each(|(_, qdd)| visit.call(qdd))
    }
}

/// A primitive that is looked up in a frame.
pub struct ReadPrimitive<'a> {
    object: &'a Object,
    /// Where it is not known there.
    said: Option<PrimitiveWords>,
}

impl<'a> ReadPrimitive<'a> {
    /// # Errors
    /// An attribute cannot be read.
    pub fn of(frame: &Bound<'_, Frame>, primitive: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        let address = primitive.as_ptr() as usize;
        let is_known = frame.get().peek(|state| state.side.known_primitive(address).is_some());
        Self::read(primitive, is_known)
    }

    /// As `of`, of several, which are then made ids in this order.
    ///
    /// # Errors
    /// An attribute cannot be read.
    pub fn each<'py: 'a>(
        frame: &Bound<'py, Frame>,
        primitives: impl Iterator<Item = &'a Bound<'py, PyAny>> + Clone,
    ) -> PyResult<SmallVec<[Self; 4]>> {
        let addresses: SmallVec<[usize; 4]> =
            primitives.clone().map(|primitive| primitive.as_ptr() as usize).collect();
        let is_known = frame.get().peek(|state| {
            // By the time that it comes again it is known.
            let mut met = FxHashSet::default();
            let is_known =
                |&at: &usize| state.side.known_primitive(at).is_some() || !met.insert(at);
            addresses.iter().map(is_known).collect::<SmallVec<[bool; 8]>>()
        });
        primitives.zip(is_known).map(|(primitive, known)| Self::read(primitive, known)).collect()
    }

    fn read(primitive: &'a Bound<'_, PyAny>, is_known: bool) -> PyResult<Self> {
        let said = if is_known { None } else { Some(PrimitiveWords::of(primitive)?) };
        Ok(Self { object: primitive.as_unbound(), said })
    }

    /// # Errors
    /// The program is finished.
    pub fn id(
        &self,
        builder: &mut Builder,
        side: &mut Side,
        quiet: Quiet<'_>,
    ) -> PyResult<PrimitiveId> {
        let address = self.object.as_ptr() as usize;
        match (&self.said, side.known_primitive(address)) {
            (_, Some(known)) => Ok(known),
            (Some(said), None) => Ok(side.primitive_of(builder, self.object, said, quiet)),
            // The program was finished meanwhile.
            (None, None) => Err(finished()),
        }
    }
}

/// A new `SourceInfo` of a traceback and a name stack.
fn source_info_of<'py>(
    py: Python<'py>,
    jax: &Jax,
    [traceback, name_stack]: [Option<Object>; 2],
) -> PyResult<Bound<'py, PyAny>> {
    let name_stack = name_stack.unwrap_or_else(|| py.None()).into_bound(py);
    jax.new_source_info(traceback.map(|traceback| traceback.into_bound(py)), name_stack)
}
