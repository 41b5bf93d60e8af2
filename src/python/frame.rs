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
    Atom, AtomKind, Builder, ConstId, ContextId, DeadCode, Def, EffectsId, Eqn, EqnShape,
    LiteralId, ParamsId, PrimitiveId, Program, SourceId, TypeId, Var,
};

use super::convert::{self, build_error};
use super::graph::{
    EqnObjects, Graph, JaxprFields, borrow_mut, eqn_object, new_jaxpr, new_nested_jaxpr,
};
use super::hook::Recording;
use super::jax::{Jax, jax};
use super::memo::Entry;
use super::side::Side;
use super::source::SourceRef;
use super::tracer::{self, release_pending};

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

/// One program under construction.
#[pyclass(module = "jax._src.interpreters.partial_eval", name = "JaxprStackFrame", weakref)]
pub struct Frame {
    /// None once the program is finished.
    builder: Option<Builder>,
    recording: Option<Recording>,
    side: Side,
    graph: Option<Py<Graph>>,
    /// The finished program once the trace is over and has let the graph go.
    program: Option<Arc<Program>>,
    debug_info: Py<PyAny>,
    auto_dce: bool,
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

impl Frame {
    pub fn new(debug_info: Bound<'_, PyAny>, auto_dce: bool, recording: Recording) -> Self {
        let dce = if auto_dce { DeadCode::RemoveUnreferenced } else { DeadCode::Keep };
        Self {
            builder: Some(Builder::new(dce)),
            recording: Some(recording),
            side: Side::default(),
            graph: None,
            program: None,
            debug_info: debug_info.unbind(),
            auto_dce,
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
        }
    }

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
    pub fn appending(&mut self, rows: usize) -> PyResult<(&mut Builder, &mut Side, &mut Rows)> {
        match (&mut self.builder, self.rows.get_mut(rows)) {
            (Some(builder), Some(rows)) => Ok((builder, &mut self.side, rows)),
            _ => Err(finished()),
        }
    }

    /// The jax `Literal` of a literal.
    pub fn literal_object<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        literal: Atom,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (builder, side) = self.recording()?;
        match literal.kind() {
            AtomKind::Literal(id) => {
                side.literal_object(py, jax, id, builder.literal_data(id).object)
            }
            AtomKind::Var(_) => Err(PyRuntimeError::new_err("a variable in place of a literal")),
        }
    }

    /// The builder and the objects of a frame that still records.
    pub fn recording(&mut self) -> PyResult<(&mut Builder, &mut Side)> {
        match &mut self.builder {
            Some(builder) => Ok((builder, &mut self.side)),
            None => Err(finished()),
        }
    }

    pub fn auto_dce(&self) -> bool {
        self.auto_dce
    }

    pub fn is_high(&self) -> bool {
        self.is_high
    }

    pub fn mark_high(&mut self) {
        self.is_high = true;
    }

    /// A new input.
    pub fn new_invar(&mut self, jax: &Jax, aval: &Bound<'_, PyAny>) -> PyResult<NewVar> {
        let (builder, side) = self.recording()?;
        let ty = side.ty(jax, builder, aval)?;
        let var = builder.invar(ty).map_err(build_error)?;
        Ok(NewVar { var, counted: false })
    }

    /// The id of a source.
    pub fn source(&mut self, source: &SourceRef<'_>) -> PyResult<SourceId> {
        let (builder, side) = self.recording()?;
        side.source(builder, source)
    }

    /// The constant that `value` is already.
    pub fn known_const(&self, value: &Bound<'_, PyAny>) -> Option<Var> {
        self.const_by_id.get(&(value.as_ptr() as usize)).copied()
    }

    /// The aval of a variable of a frame that still records.
    pub fn aval_of<'py>(&mut self, py: Python<'py>, var: Var) -> PyResult<Bound<'py, PyAny>> {
        let (builder, side) = self.recording()?;
        Ok(side.aval(py, builder.type_of(var)))
    }

    /// The constant for `value`, a new one where there is none.
    pub fn const_var(
        &mut self,
        jax: &Jax,
        value: &Bound<'_, PyAny>,
        aval: &Bound<'_, PyAny>,
    ) -> PyResult<Var> {
        let address = value.as_ptr() as usize;
        let var = if let Some(&var) = self.const_by_id.get(&address) {
            var
        } else {
            let (builder, side) = self.recording()?;
            let ty = side.ty(jax, builder, aval)?;
            let id = side.new_const(value);
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
    fn atom(&mut self, jax: &Jax, operand: &Operand<'_>) -> PyResult<Atom> {
        match operand {
            Operand::Var { var, .. } => Ok(Atom::var(*var)),
            Operand::Const { value, aval } => self.const_var(jax, value, aval).map(Atom::var),
            Operand::Literal { literal, .. } => {
                let (builder, side) = self.recording()?;
                side.literal(jax, builder, literal).map(Atom::literal)
            }
        }
    }

    /// The ids of a remembered equation.
    pub fn local_entry(
        &mut self,
        py: Python<'_>,
        jax: &Jax,
        primitive: &Bound<'_, PyAny>,
        entry: &Entry,
    ) -> PyResult<LocalEntry> {
        if let Some(local) = self.entries.get(&entry.number) {
            return Ok(local.clone());
        }
        let out_avals: Vec<_> = entry.out_avals.iter().map(|aval| aval.bind(py).clone()).collect();
        let local = self.describe(jax, primitive, entry.params.bind(py), &out_avals)?;
        self.entries.insert(entry.number, local.clone());
        Ok(local)
    }

    /// The ids of an equation's primitive, params and output types.
    pub fn describe(
        &mut self,
        jax: &Jax,
        primitive: &Bound<'_, PyAny>,
        params: &Bound<'_, PyDict>,
        out_avals: &[Bound<'_, PyAny>],
    ) -> PyResult<LocalEntry> {
        let (builder, side) = self.recording()?;
        let out_types =
            out_avals.iter().map(|aval| side.ty(jax, builder, aval)).collect::<PyResult<_>>()?;
        Ok(LocalEntry {
            primitive: side.primitive(builder, primitive)?,
            params: side.deferred_params_id(builder, params),
            out_types,
        })
    }

    /// The id of a jax equation context.
    pub fn context(&mut self, context: &Bound<'_, PyAny>) -> PyResult<ContextId> {
        let (builder, side) = self.recording()?;
        let object = side.handle(context);
        Ok(builder.context(object))
    }

    /// Notes what stands for no effects in an equation.
    pub fn note_no_effects(&mut self, local: &LocalEntry, effects: &Bound<'_, PyAny>) {
        self.side.note_no_effects(local.primitive, effects);
    }

    /// Appends an equation; its outputs are retained where they are counted.
    pub fn append(
        &mut self,
        jax: &Jax,
        local: &LocalEntry,
        operands: &[Operand<'_>],
        effects: Option<&Bound<'_, PyAny>>,
        source: SourceId,
        context: ContextId,
    ) -> PyResult<SmallVec<[NewVar; 1]>> {
        let atoms: SmallVec<[Atom; 4]> =
            operands.iter().map(|operand| self.atom(jax, operand)).collect::<PyResult<_>>()?;
        let counted = self.auto_dce;
        let (builder, side) = self.recording()?;
        let effects = match effects {
            Some(effects) => side.effects_id(jax, builder, effects)?,
            None => EffectsId::NONE,
        };
        let eqn = builder
            .eqn(local.primitive, local.params, &atoms, &local.out_types, effects, source, context)
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

    /// Counts a tracer on a constant.
    fn retain_const(&mut self, var: Var, tracer: usize) -> PyResult<()> {
        let (builder, _) = self.recording()?;
        builder.retain(var);
        self.const_tracers.insert(var, tracer);
        Ok(())
    }

    /// One tracer fewer on `var`; what the caller has to drop comes back.
    pub fn release(&mut self, var: Var, tracer: Option<usize>) -> Vec<Py<PyAny>> {
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

    /// The `Var` object of a variable.
    pub fn var_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut frame = borrow_mut(slf);
        if let Some(graph) = &frame.graph {
            return borrow_mut(graph.bind(py)).var_object(py, jax, var);
        }
        if let Some(program) = frame.program.clone() {
            return frame.side.var_object(py, jax, program.var_type(var), var);
        }
        let (builder, side) = frame.recording()?;
        let ty = builder.type_of(var);
        side.var_object(py, jax, ty, var)
    }

    /// The captured value, where `var` is a constant of a running trace.
    pub fn constant<'py>(slf: &Bound<'py, Self>, var: Var) -> Option<Bound<'py, PyAny>> {
        let py = slf.py();
        let frame = borrow_mut(slf);
        if frame.invalidated {
            return None;
        }
        if let Some(graph) = &frame.graph {
            let graph = graph.borrow(py);
            return match graph.program().var(var).def {
                Def::Constvar(id) => graph.side().constant(py, id),
                _ => None,
            };
        }
        match frame.builder.as_ref()?.var(var).def {
            Def::Constvar(id) => frame.side.constant(py, id),
            _ => None,
        }
    }

    /// A new `SourceInfo` of a recorded source.
    pub fn source_info<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        source: SourceId,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let frame = borrow_mut(slf);
        if let Some(graph) = &frame.graph {
            let graph = graph.borrow(py);
            return graph.side().source_info(py, jax, graph.program().source(source));
        }
        let source = match (&frame.builder, &frame.program) {
            (Some(builder), _) => builder.source_data(source),
            (None, Some(program)) => program.source(source),
            (None, None) => return Ok(py.None().into_bound(py)),
        };
        frame.side.source_info(py, jax, source)
    }

    pub fn debug_info_object<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyAny> {
        borrow_mut(slf).debug_info.bind(slf.py()).clone()
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
        let py = slf.py();
        let (var, source) = {
            let mut frame = borrow_mut(slf);
            let var = frame.const_var(jax, value, aval)?;
            if let Some(&alive) = frame.const_tracers.get(&var) {
                // SAFETY: the entry goes when the tracer is finalized, before its memory does.
                return Ok(unsafe { Bound::from_borrowed_ptr(py, alive as *mut _) });
            }
            (var, frame.source(source)?)
        };
        let tracer = tracer::new_tracer(jax, trace, var, aval.clone(), source, true)?;
        borrow_mut(slf).retain_const(var, tracer.as_ptr() as usize)?;
        Ok(tracer)
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
        match borrow_mut(slf).side.var_of(&val) {
            Some(var) => Ok(Operand::Var { var, aval, tracer: Some(tracer.clone()) }),
            None => Err(PyRuntimeError::new_err(format!(
                "jaxide: the tracer {} has a variable that its trace does not know",
                tracer.repr()?
            ))),
        }
    }

    /// The quasi-dynamic data of a variable, where it has any.
    pub fn qdd<'py>(slf: &Bound<'py, Self>, var: Var) -> Option<Bound<'py, PyAny>> {
        let frame = borrow_mut(slf);
        let (_, qdd) = frame.qdds.iter().find(|(known, _)| *known == var)?;
        Some(qdd.bind(slf.py()).clone())
    }

    /// Gives an input quasi-dynamic data.
    pub fn attach_qdd(
        slf: &Bound<'_, Self>,
        var: Var,
        object: &Bound<'_, PyAny>,
        mutable_qdd: &Bound<'_, PyAny>,
    ) {
        let mut frame = borrow_mut(slf);
        frame.side.set_var_object(var, object);
        frame.qdds.push((var, mutable_qdd.clone().unbind()));
    }

    /// Makes `object` the `Var` object of a variable.
    pub fn set_var_object(slf: &Bound<'_, Self>, var: Var, object: &Bound<'_, PyAny>) {
        borrow_mut(slf).side.set_var_object(var, object);
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
        let eqn = match &borrow_mut(slf).builder {
            Some(builder) => match builder.var(var).def {
                Def::Eqn(eqn) => eqn,
                _ => return Ok(None),
            },
            None => return Ok(None),
        };
        Self::eqn_objects(slf, jax, &[eqn])?.get_item(0).map(Some)
    }

    /// Equations under construction as jax's.
    fn eqn_objects<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        eqns: &[Eqn],
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let list = PyList::empty(py);
        if eqns.is_empty() {
            return Ok(list);
        }
        let mut frame = borrow_mut(slf);
        let (builder, side) = frame.recording()?;
        for &eqn in eqns {
            let data = builder.eqn_data(eqn).clone();
            let mut atom = |atom: Atom| match atom.kind() {
                AtomKind::Var(var) => {
                    let ty = builder.type_of(var);
                    side.var_object(py, jax, ty, var)
                }
                AtomKind::Literal(literal) => {
                    side.literal_object(py, jax, literal, builder.literal_data(literal).object)
                }
            };
            let invars: Vec<_> = builder
                .eqn_invars(eqn)
                .iter()
                .map(|operand| atom(*operand))
                .collect::<PyResult<_>>()?;
            let outvars: Vec<_> =
                data.outvars().map(|var| atom(Atom::var(var))).collect::<PyResult<_>>()?;
            let source_info = side.source_info(py, jax, builder.source_data(data.source))?;
            list.append(eqn_object(
                py,
                jax,
                side,
                &data,
                EqnObjects {
                    invars: &invars,
                    outvars: &outvars,
                    primitive: builder.primitive_data(data.primitive).object,
                    context: builder.context_object(data.context),
                    source_info,
                },
            )?)?;
        }
        Ok(list)
    }

    /// The effects of the whole program, as jax's `make_jaxpr_effects`.
    fn jaxpr_effects<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        outs: &[Atom],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let (effectful, all) = {
            let frame = borrow_mut(slf);
            let Some(builder) = &frame.builder else { return Ok(PySet::empty(py)?.into_any()) };
            let all: Vec<Eqn> = builder.live_eqns().collect();
            let effectful: Vec<Eqn> = all
                .iter()
                .copied()
                .filter(|&eqn| builder.eqn_data(eqn).effects != EffectsId::NONE)
                .collect();
            // Allocating a Ref has an effect only on what reads it: jax looks at these as well.
            let allocating = |eqn: &Eqn| -> PyResult<bool> {
                let object = builder.primitive_data(builder.eqn_data(*eqn).primitive).object;
                frame.side.object(py, object).getattr(intern!(py, "ref_allocating"))?.is_truthy()
            };
            if effectful.is_empty() {
                (effectful, Vec::new())
            } else {
                let mut known = FxHashMap::default();
                let mut relevant = Vec::new();
                for eqn in &all {
                    let data = builder.eqn_data(*eqn);
                    let allocates = if let Some(&allocates) = known.get(&data.primitive) {
                        allocates
                    } else {
                        let allocates = allocating(eqn)?;
                        known.insert(data.primitive, allocates);
                        allocates
                    };
                    if allocates || data.effects != EffectsId::NONE {
                        relevant.push(*eqn);
                    }
                }
                (relevant, all)
            }
        };
        if effectful.is_empty() {
            return Ok(PySet::empty(py)?.into_any());
        }
        let (constvars, invars, outvars) = Self::interface(slf, jax, outs)?;
        let rule = jax.make_jaxpr_effects.bind(py);
        let eqns = Self::eqn_objects(slf, jax, &effectful)?;
        rule.call1((&constvars, &invars, &outvars, eqns)).or_else(|_| {
            // jax's error shows the whole jaxpr.
            let eqns = Self::eqn_objects(slf, jax, &all)?;
            rule.call1((&constvars, &invars, &outvars, eqns))
        })
    }
}

#[pymethods]
impl Frame {
    #[getter]
    fn debug_info<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.debug_info.bind(py).clone()
    }

    #[setter]
    fn set_debug_info(&mut self, value: Py<PyAny>) {
        self.debug_info = value;
    }

    #[getter]
    fn get_auto_dce(&self) -> bool {
        self.auto_dce
    }

    #[getter]
    fn get_is_high(&self) -> bool {
        self.is_high
    }

    #[setter]
    fn set_is_high(&mut self, value: bool) {
        self.is_high = value;
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
        let frame = borrow_mut(slf);
        for (address, var) in &frame.const_by_id {
            if let Some(&alive) = frame.const_tracers.get(var) {
                // SAFETY: the entry goes when the tracer is finalized, before its memory does.
                let tracer = unsafe { Bound::from_borrowed_ptr(py, alive as *mut _) };
                dict.set_item(address, tracer)?;
            }
        }
        Ok(dict)
    }

    /// Variables with quasi-dynamic data (jax before 0.11).
    #[getter]
    fn mutable_qdds<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let qdds: Vec<_> =
            borrow_mut(slf).qdds.iter().map(|(var, qdd)| (*var, qdd.clone_ref(py))).collect();
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
        let vars = {
            let frame = borrow_mut(slf);
            match (&frame.builder, &frame.graph) {
                (Some(builder), _) => builder.invars().to_vec(),
                (None, Some(graph)) => graph.borrow(py).program().invars().to_vec(),
                (None, None) => frame.program_invars(),
            }
        };
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
        release_pending(slf);
        let constvars: Vec<_> = {
            let frame = borrow_mut(slf);
            match &frame.builder {
                Some(builder) if !frame.invalidated => builder.constvars().collect(),
                _ => Vec::new(),
            }
        };
        for (var, id) in constvars {
            let value = borrow_mut(slf).side.constant(py, id);
            dict.set_item(Self::var_object(slf, jax, var)?, value)?;
        }
        Ok(dict)
    }

    /// The live equations as jax's `JaxprEqn`s.
    fn get_eqns<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let jax = jax(py)?;
        release_pending(slf);
        let eqns: Vec<Eqn> = {
            let frame = borrow_mut(slf);
            match &frame.builder {
                Some(builder) if !frame.invalidated => builder.live_eqns().collect(),
                _ => return Ok(PyList::empty(py)),
            }
        };
        Self::eqn_objects(slf, jax, &eqns)
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
            return Err(PyTypeError::new_err(format!("not a TracingEqn: {}", eqn.repr()?)));
        }
        let mut operands = Vec::new();
        for tracer in eqn.getattr("in_tracers")?.try_iter()? {
            operands.push(super::trace::operand_of_tracer(jax, slf, &tracer?)?);
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
        let mut frame = borrow_mut(slf);
        let local = frame.describe(jax, &primitive, &params, &out_avals)?;
        let source = frame.source(&source)?;
        let context = frame.context(&ctx)?;
        if !has_effects {
            frame.note_no_effects(&local, &effects);
        }
        let effects = has_effects.then_some(&effects);
        let vars = frame.append(jax, &local, &operands, effects, source, context)?;
        // The tracers that make_eqn made are jax's and are not counted: the outputs stay retained.
        for (new, object) in vars.iter().zip(&outvars) {
            frame.side.set_var_object(new.var, object);
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
        release_pending(slf);
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
            outs.push(super::trace::operand_of_tracer(jax, slf, &tracer?)?);
        }
        let atoms: Vec<Atom> = {
            let mut frame = borrow_mut(slf);
            outs.iter().map(|out| frame.atom(jax, out)).collect::<PyResult<_>>()?
        };
        let effects = Self::jaxpr_effects(slf, jax, &atoms)?;
        let is_high = Self::is_high_program(slf, jax, &atoms)?;
        Self::store_final_qdds(slf)?;

        let mut frame = borrow_mut(slf);
        let Some(builder) = frame.builder.take() else {
            frame.recording()?;
            return Err(PyRuntimeError::new_err("the trace has no program"));
        };
        let side = std::mem::take(&mut frame.side);
        frame.recording = None;
        frame.entries = FxHashMap::default();
        frame.rows = Vec::new();
        frame.row_by_fragment = FxHashMap::default();
        let fields = JaxprFields { effects, debug_info, is_high };
        let graph = Graph::finish(builder, side, &atoms, &fields, None)?;
        frame.graph = Some(graph.clone().unbind());
        drop(frame);
        // SAFETY: `is_ours` checked that the trace has jax's slots.
        let parent = super::trace::is_ours(py, trace.as_ptr())
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
        let (positions, with_consts) = {
            let frame = borrow_mut(slf);
            frame.progenitors(py, var)
        };
        let eqns = Self::eqn_objects(slf, jax, &with_consts)?;
        (positions, eqns).into_pyobject(py)
    }

    /// Forgets the equations, as jax does when a trace is over: they may refer to functions that
    /// refer to the trace.
    fn invalidate(slf: &Bound<'_, Self>) {
        let py = slf.py();
        let mut frame = borrow_mut(slf);
        frame.invalidated = true;
        frame.recording = None;
        frame.const_by_id.clear();
        let forgotten = frame.side.keep_leaves();
        if let Some(graph) = frame.graph.take() {
            let graph = graph.borrow(py);
            frame.program = Some(graph.program().clone());
            frame.side = Side::of_leaves(graph.side().leaves().clone());
        }
        drop(frame);
        drop(forgotten);
    }

    #[allow(clippy::needless_pass_by_value)] // the signature pyo3 wants
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.side.traverse(&visit)?;
        visit.call(&self.graph)?;
        visit.call(&self.debug_info)?;
        for (_, qdd) in &self.qdds {
            visit.call(qdd)?;
        }
        Ok(())
    }

    fn __clear__(&mut self) {
        self.builder = None;
        self.side = Side::default();
        self.graph = None;
        self.qdds.clear();
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
        let py = slf.py();
        let mut frame = borrow_mut(slf);
        let (builder, side) = frame.recording()?;
        let mut object = |atom: Atom| match atom.kind() {
            AtomKind::Var(var) => {
                let ty = builder.type_of(var);
                side.var_object(py, jax, ty, var)
            }
            AtomKind::Literal(literal) => {
                side.literal_object(py, jax, literal, builder.literal_data(literal).object)
            }
        };
        let mut list = |atoms: Vec<Atom>| -> PyResult<Bound<'py, PyList>> {
            let objects: Vec<_> = atoms.into_iter().map(&mut object).collect::<PyResult<_>>()?;
            PyList::new(py, objects)
        };
        Ok((
            list(builder.constvars().map(|(var, _)| Atom::var(var)).collect())?,
            list(builder.invars().iter().map(|&var| Atom::var(var)).collect())?,
            list(outs.to_vec())?,
        ))
    }

    fn is_high_program(slf: &Bound<'_, Self>, jax: &Jax, outs: &[Atom]) -> PyResult<bool> {
        let py = slf.py();
        let avals: Vec<_> = {
            let mut frame = borrow_mut(slf);
            if frame.is_high {
                return Ok(true);
            }
            let (builder, side) = frame.recording()?;
            let vars = builder.constvars().map(|(var, _)| var);
            let vars = vars.chain(builder.invars().iter().copied()).map(Atom::var);
            let type_of = |atom: Atom| match atom.kind() {
                AtomKind::Var(var) => builder.type_of(var),
                AtomKind::Literal(literal) => builder.literal_data(literal).ty,
            };
            let types: FxHashSet<TypeId> = vars.chain(outs.iter().copied()).map(type_of).collect();
            types.into_iter().map(|ty| side.aval(py, ty)).collect()
        };
        for aval in avals {
            if !aval.get_type().is(&jax.shaped_array_type)
                && convert::aval_info(jax, &aval)?.is_high
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn store_final_qdds(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let qdds: Vec<_> = {
            let frame = borrow_mut(slf);
            frame.qdds.iter().map(|(var, qdd)| (*var, qdd.clone_ref(py))).collect()
        };
        for (var, qdd) in qdds {
            let object = Self::var_object(slf, jax(py)?, var)?;
            object.setattr("final_qdd", qdd.bind(py).getattr("cur_val")?)?;
        }
        Ok(())
    }

    /// As jax's `find_progenitors`: positions of inputs that `var` depends on; where there are
    /// none, all equations that use a literal or one of the constants it depends on.
    fn progenitors(&self, py: Python<'_>, var: Var) -> (Vec<usize>, Vec<Eqn>) {
        let mut active = FxHashSet::from_iter([var]);
        let (invars, eqns) = match (&self.builder, &self.graph) {
            (Some(builder), _) if !self.invalidated => {
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
            (Some(builder), _) => (builder.invars().to_vec(), Vec::new()),
            (None, Some(graph)) => (graph.borrow(py).program().invars().to_vec(), Vec::new()),
            (None, None) => (self.program_invars(), Vec::new()),
        };
        let positions: Vec<usize> =
            (0..invars.len()).filter(|&i| active.contains(&invars[i])).collect();
        // jax's message names the inputs, and the equations only where there are none.
        let eqns = if positions.is_empty() { eqns } else { Vec::new() };
        (positions, eqns)
    }

    /// The inputs of the program that a finished trace has left.
    fn program_invars(&self) -> Vec<Var> {
        self.program.as_ref().map(|program| program.invars().to_vec()).unwrap_or_default()
    }
}
