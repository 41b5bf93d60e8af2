//! The Python objects behind the ids of one program.
//!
//! The IR knows a Python object only as a number. `Side` holds the objects: one aval per type, one
//! params dict per params id, one `Var` per variable that Python has seen, and handles for all
//! else. Everything here is append-only while the program grows.

use std::sync::{Arc, Mutex, PoisonError};

use cranelift_entity::EntitySet;
use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PySet};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{
    Builder, ConstId, EffectsId, ForeignId, LiteralId, ParamsId, PrimitiveId, Program, Source,
    SourceId, Type, TypeId, Var,
};

use super::convert::{self, AvalInfo};
use super::graph::Graph;
use super::jax::Jax;
use super::params::{self, typed_equal, typed_hash};
use super::source::SourceRef;

type Object = Py<PyAny>;

/// The objects that a tracer may still be asked for when its trace is over: they hold nothing else
/// of the trace.
#[derive(Default)]
pub struct Leaves {
    /// By `TypeId`.
    avals: Vec<Object>,
    /// Tracebacks and name stacks, by the `ForeignId`s of a `Source`.
    sources: Vec<Object>,
}

impl Clone for Leaves {
    fn clone(&self) -> Self {
        Python::attach(|py| {
            let own = |objects: &[Object]| objects.iter().map(|o| o.clone_ref(py)).collect();
            Self { avals: own(&self.avals), sources: own(&self.sources) }
        })
    }
}

impl Leaves {
    /// The aval of a type.
    pub fn aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Bound<'py, PyAny> {
        self.avals[ty.as_u32() as usize].bind(py).clone()
    }

    /// The aval of a type, where it is kept.
    pub fn known_aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Option<Bound<'py, PyAny>> {
        self.avals.get(ty.as_u32() as usize).map(|aval| aval.bind(py).clone())
    }

    /// A new `SourceInfo` of a recorded source.
    pub fn source_info<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        source: Source,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = |id: ForeignId| self.sources[index(id)].bind(py).clone();
        let name_stack = match source.name_stack {
            Some(id) => object(id),
            None => jax.empty_name_stack.bind(py).clone(),
        };
        jax.new_source_info(source.traceback.map(object), name_stack)
    }
}

/// The Python side of one program.
#[derive(Default)]
pub struct Side {
    handles: Vec<Object>,
    by_pointer: FxHashMap<usize, ForeignId>,
    /// Shared with the frame once the program is finished.
    leaves: Arc<Leaves>,
    type_by_pointer: FxHashMap<usize, TypeId>,
    /// The handles keep the primitives.
    primitive_by_pointer: FxHashMap<usize, PrimitiveId>,
    /// By `ParamsId`.
    params: FxHashMap<ParamsId, Py<PyDict>>,
    /// The graphs of nested programs that were read, by the handles of their jaxprs.
    subgraphs: FxHashMap<ForeignId, Py<Graph>>,
    /// By `EffectsId`: the set of effects of an equation, inputs resolved to variables.
    effects: FxHashMap<EffectsId, Object>,
    /// What stands for no effects, for the primitives that do not say so with an empty set.
    no_effects: FxHashMap<PrimitiveId, Object>,
    /// By `ConstId`.
    consts: Vec<Option<Object>>,
    /// The `Var` objects that Python has seen so far, by variable, and the way back.
    vars: Vec<Option<Object>>,
    var_by_pointer: FxHashMap<usize, Var>,
    /// Those that are not among the latter yet.
    new_vars: Vec<Var>,
    literal_by_pointer: FxHashMap<usize, LiteralId>,
    /// Literals that have an object of their own, equal to the one of their handle.
    copied_literals: EntitySet<LiteralId>,
    /// Those of them that Python has seen so far.
    literal_copies: Mutex<Vec<Option<Object>>>,
    /// Equal tracebacks (same code, same instruction) share one object; keyed by their hash.
    tracebacks: FxHashMap<isize, SmallVec<[ForeignId; 1]>>,
    /// Equal name stacks share one object; keyed by typed hash.
    name_stacks: FxHashMap<u64, SmallVec<[ForeignId; 1]>>,
    name_stack_by_pointer: FxHashMap<usize, ForeignId>,
    /// The empty name stack that was seen last.
    empty_name_stack: Option<Object>,
}

/// Where an object is, which tells it from all others that are alive.
pub fn address(object: &Bound<'_, PyAny>) -> usize {
    object.as_ptr() as usize
}

fn index(id: ForeignId) -> usize {
    id.as_u32() as usize
}

impl Side {
    /// A handle on `object`, the same for the same object.
    pub fn handle(&mut self, object: &Bound<'_, PyAny>) -> ForeignId {
        if let Some(&id) = self.by_pointer.get(&address(object)) {
            return id;
        }
        let id = self.push(object);
        self.by_pointer.insert(address(object), id);
        id
    }

    /// The objects of a program that is the same, but whose variables and literals are others.
    pub fn twin(&self, py: Python<'_>, literals: impl Iterator<Item = LiteralId>) -> Self {
        let own = |object: &Object| object.clone_ref(py);
        let params = |(&id, params): (&ParamsId, &Py<PyDict>)| (id, params.clone_ref(py));
        let graphs = |(&id, graph): (&ForeignId, &Py<Graph>)| (id, graph.clone_ref(py));
        let consts = |value: &Option<Object>| value.as_ref().map(own);
        let mut copied_literals = EntitySet::new();
        for literal in literals {
            copied_literals.insert(literal);
        }
        Self {
            handles: self.handles.iter().map(own).collect(),
            leaves: self.leaves.clone(),
            params: self.params.iter().map(params).collect(),
            subgraphs: self.subgraphs.iter().map(graphs).collect(),
            effects: self.effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            no_effects: self.no_effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            consts: self.consts.iter().map(consts).collect(),
            copied_literals,
            ..Self::default()
        }
    }

    /// The objects of a program that begins with all that this one has, variables included.
    pub fn extended(&self, py: Python<'_>) -> Self {
        let own = |object: &Object| object.clone_ref(py);
        let graphs = |(&id, graph): (&ForeignId, &Py<Graph>)| (id, graph.clone_ref(py));
        let each = |objects: &[Option<Object>]| -> Vec<Option<Object>> {
            objects.iter().map(|object| object.as_ref().map(own)).collect()
        };
        let copies = self.literal_copies.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            handles: self.handles.iter().map(own).collect(),
            by_pointer: self.by_pointer.clone(),
            leaves: self.leaves.clone(),
            type_by_pointer: self.type_by_pointer.clone(),
            primitive_by_pointer: self.primitive_by_pointer.clone(),
            params: self.params.iter().map(|(&id, params)| (id, params.clone_ref(py))).collect(),
            subgraphs: self.subgraphs.iter().map(graphs).collect(),
            effects: self.effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            no_effects: self.no_effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            consts: each(&self.consts),
            vars: each(&self.vars),
            var_by_pointer: self.var_by_pointer.clone(),
            new_vars: self.new_vars.clone(),
            literal_by_pointer: self.literal_by_pointer.clone(),
            copied_literals: self.copied_literals.clone(),
            literal_copies: Mutex::new(each(&copies)),
            ..Self::default()
        }
    }

    /// Lets go of the objects of programs within and of variables that a program does not need: those
    /// of outputs that nobody used, where somebody does now.
    pub fn keep_what_is_used(&mut self, py: Python<'_>, jax: &Jax, program: &Program) {
        let within: rustc_hash::FxHashSet<ForeignId> = program
            .subprograms()
            .filter(|(_, subprogram)| subprogram.program.is_some())
            .map(|(_, subprogram)| subprogram.object)
            .collect();
        self.subgraphs.retain(|object, _| within.contains(object));
        let atoms = program.eqns().flat_map(|eqn| program.eqn_invars(eqn));
        for var in atoms.chain(program.outvars()).filter_map(|atom| atom.as_var()) {
            if let Some(object) = self.vars.get_mut(var.as_u32() as usize) {
                let is_dropped =
                    |object: &Object| object.bind(py).get_type().is(&jax.drop_var_type);
                if object.as_ref().is_some_and(is_dropped) {
                    *object = None;
                }
            }
        }
    }

    /// The objects behind some handles, and nothing else.
    pub fn only(&self, py: Python<'_>, needed: &EntitySet<ForeignId>) -> Self {
        let keep = |(index, object): (usize, &Object)| {
            let id = u32::try_from(index).map(ForeignId::from_u32);
            let is_needed = id.is_ok_and(|id| needed.contains(id));
            if is_needed { object.clone_ref(py) } else { py.None() }
        };
        Self { handles: self.handles.iter().enumerate().map(keep).collect(), ..Self::default() }
    }

    /// Gives a constant a value.
    pub fn set_constant(&mut self, id: ConstId, value: &Bound<'_, PyAny>) {
        let index = id.as_u32() as usize;
        if index >= self.consts.len() {
            self.consts.resize_with(index + 1, || None);
        }
        self.consts[index] = Some(value.clone().unbind());
    }

    /// What outlives the trace.
    pub fn leaves(&self) -> &Arc<Leaves> {
        &self.leaves
    }

    /// A side that has nothing else.
    pub fn of_leaves(leaves: Arc<Leaves>) -> Self {
        Self { leaves, ..Self::default() }
    }

    /// Gives up everything but the leaves.
    pub fn keep_leaves(&mut self) -> Self {
        let leaves = self.leaves.clone();
        std::mem::replace(self, Self::of_leaves(leaves))
    }

    fn push_source(&mut self, object: &Bound<'_, PyAny>) -> ForeignId {
        let sources = &mut Arc::make_mut(&mut self.leaves).sources;
        let id = ForeignId::from_u32(u32::try_from(sources.len()).unwrap_or(u32::MAX - 1));
        sources.push(object.clone().unbind());
        id
    }

    /// Notes the graph of a nested program.
    pub fn set_subgraph(&mut self, object: ForeignId, graph: &Bound<'_, Graph>) {
        self.subgraphs.insert(object, graph.clone().unbind());
    }

    /// Has another object behind a handle.
    pub fn set_object(&mut self, id: ForeignId, object: &Bound<'_, PyAny>) {
        if let Some(known) = self.handles.get_mut(id.as_u32() as usize) {
            *known = object.clone().unbind();
        }
    }

    /// The graph of a nested program that was read.
    pub fn subgraph<'py>(&self, py: Python<'py>, object: ForeignId) -> Option<Bound<'py, Graph>> {
        self.subgraphs.get(&object).map(|graph| graph.bind(py).clone())
    }

    /// The graph of a nested program that was read, by the object among params.
    pub fn known_subgraph<'py>(&self, jaxpr: &Bound<'py, PyAny>) -> Option<Bound<'py, Graph>> {
        self.subgraph(jaxpr.py(), *self.by_pointer.get(&address(jaxpr))?)
    }

    /// A handle that is not looked up again.
    fn push(&mut self, object: &Bound<'_, PyAny>) -> ForeignId {
        let id = ForeignId::from_u32(u32::try_from(self.handles.len()).unwrap_or(u32::MAX - 1));
        self.handles.push(object.clone().unbind());
        id
    }

    /// The object behind a handle.
    pub fn object<'py>(&self, py: Python<'py>, id: ForeignId) -> Bound<'py, PyAny> {
        self.handles[index(id)].bind(py).clone()
    }

    /// The type of `aval`; each aval object keeps a type of its own, so that the way back is exact.
    pub fn ty(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        aval: &Bound<'_, PyAny>,
    ) -> PyResult<TypeId> {
        if let Some(&ty) = self.type_by_pointer.get(&address(aval)) {
            return Ok(ty);
        }
        let info = convert::aval_info(jax, aval)?;
        self.new_type(builder, aval, &info)
    }

    fn new_type(
        &mut self,
        builder: &mut Builder,
        aval: &Bound<'_, PyAny>,
        info: &AvalInfo,
    ) -> PyResult<TypeId> {
        let described = match &info.ty {
            Some(ty) => ty.clone(),
            None => self.opaque_type(aval)?,
        };
        let mut ty = builder.ty(described);
        if (ty.as_u32() as usize) < self.leaves.avals.len() {
            // Another aval object reads the same: keep both apart.
            let opaque = self.opaque_type(aval)?;
            ty = builder.ty(opaque);
        }
        debug_assert_eq!(ty.as_u32() as usize, self.leaves.avals.len());
        Arc::make_mut(&mut self.leaves).avals.push(aval.clone().unbind());
        self.type_by_pointer.insert(address(aval), ty);
        Ok(ty)
    }

    fn opaque_type(&mut self, aval: &Bound<'_, PyAny>) -> PyResult<Type> {
        let name = aval.get_type().name()?.to_string();
        Ok(Type::Opaque { name: name.into(), object: self.handle(aval) })
    }

    /// The aval of a type.
    pub fn aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Bound<'py, PyAny> {
        self.leaves.aval(py, ty)
    }

    pub fn primitive(
        &mut self,
        builder: &mut Builder,
        primitive: &Bound<'_, PyAny>,
    ) -> PyResult<PrimitiveId> {
        if let Some(&id) = self.primitive_by_pointer.get(&address(primitive)) {
            return Ok(id);
        }
        let py = primitive.py();
        let name: String = primitive.getattr(pyo3::intern!(py, "name"))?.str()?.to_string();
        let multiple: bool =
            primitive.getattr(pyo3::intern!(py, "multiple_results"))?.is_truthy()?;
        let object = self.handle(primitive);
        let id = builder.primitive(&name, multiple, object);
        self.primitive_by_pointer.insert(address(primitive), id);
        Ok(id)
    }

    pub fn params_id(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        params: &Bound<'_, PyDict>,
    ) -> PyResult<ParamsId> {
        let canonical = params::canonical_params(jax, builder, self, params)?;
        let id = builder.params(canonical);
        self.params.entry(id).or_insert_with(|| params.clone().unbind());
        Ok(id)
    }

    /// As `params_id`, read when somebody asks for the IR: a trace has no use for the content.
    pub fn deferred_params_id(
        &mut self,
        builder: &mut Builder,
        params: &Bound<'_, PyDict>,
    ) -> ParamsId {
        let object = self.handle(params);
        let id = builder.deferred_params(object);
        self.params.entry(id).or_insert_with(|| params.clone().unbind());
        id
    }

    /// Reads all deferred params.
    pub fn resolve_params(
        &mut self,
        py: Python<'_>,
        jax: &Jax,
        builder: &mut Builder,
    ) -> PyResult<()> {
        let mut known = Vec::new();
        for id in builder.unresolved_params() {
            let params = self.params_dict(py, id);
            known.push((id, params::canonical_params(jax, builder, self, &params)?));
        }
        builder.resolve_params(known);
        Ok(())
    }

    /// The dict that equations with these params share.
    pub fn params_dict<'py>(&self, py: Python<'py>, id: ParamsId) -> Bound<'py, PyDict> {
        match self.params.get(&id) {
            Some(params) => params.bind(py).clone(),
            None => PyDict::new(py),
        }
    }

    /// Gives equations other params.
    pub fn set_params(&mut self, id: ParamsId, params: &Bound<'_, PyDict>) {
        self.params.insert(id, params.clone().unbind());
    }

    /// A dict of its own for one equation.
    pub fn params_copy<'py>(&self, py: Python<'py>, id: ParamsId) -> PyResult<Bound<'py, PyDict>> {
        self.params_dict(py, id).copy()
    }

    /// Interns a non-empty set of resolved effects.
    pub fn effects_id(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        effects: &Bound<'_, PyAny>,
    ) -> PyResult<EffectsId> {
        let canonical = convert::canonical_effects(jax, self, effects)?;
        let id = builder.effects(&canonical);
        if id != EffectsId::NONE {
            self.effects.entry(id).or_insert_with(|| effects.clone().unbind());
        }
        Ok(id)
    }

    /// Gives a twin's equations effects on its own variables.
    ///
    /// # Errors
    /// An effect cannot be replaced.
    pub fn set_own_effects(
        &mut self,
        py: Python<'_>,
        jax: &Jax,
        program: &Program,
    ) -> PyResult<()> {
        let ids: Vec<EffectsId> = self.effects.keys().copied().collect();
        for id in ids {
            let list = program.effect_list(id);
            if list.iter().all(|effect| effect.input.is_none()) {
                continue;
            }
            let own = PySet::empty(py)?;
            for effect in list {
                let object = self.object(py, effect.object);
                own.add(match effect.input {
                    Some(var) => self.own_effect(jax, program, &object, var)?,
                    None => object,
                })?;
            }
            self.effects.insert(id, own.into_any().unbind());
        }
        Ok(())
    }

    /// A set of effects, those on variables of the recorded program on the twin's.
    ///
    /// # Errors
    /// An effect cannot be replaced.
    pub fn own_effects<'py>(
        &mut self,
        jax: &Jax,
        program: &Program,
        effects: &Bound<'py, PyAny>,
        recorded: &mut Self,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = effects.py();
        let own = PySet::empty(py)?;
        let mut is_own = false;
        for effect in effects.try_iter()? {
            let effect = effect?;
            let input = effect.getattr_opt(intern!(py, "input"))?;
            own.add(match input.and_then(|input| recorded.var_of(&input)) {
                Some(var) => {
                    is_own = true;
                    self.own_effect(jax, program, &effect, var)?
                }
                None => effect,
            })?;
        }
        Ok(if is_own { own.into_any() } else { effects.clone() })
    }

    fn own_effect<'py>(
        &mut self,
        jax: &Jax,
        program: &Program,
        effect: &Bound<'py, PyAny>,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = effect.py();
        let own = self.var_object(py, jax, program.var_type(var), var)?;
        effect.call_method1(intern!(py, "replace"), (own,))
    }

    /// Notes what `primitive` says for no effects, where that is not an empty set.
    pub fn note_no_effects(&mut self, primitive: PrimitiveId, effects: &Bound<'_, PyAny>) {
        if !effects.is_instance_of::<PySet>() && !effects.is_instance_of::<PyFrozenSet>() {
            self.no_effects.insert(primitive, effects.clone().unbind());
        }
    }

    /// What `primitive` says for no effects, where that is not an empty set.
    pub fn stands_for_no_effects(&self, primitive: PrimitiveId) -> Option<&Object> {
        self.no_effects.get(&primitive)
    }

    /// A traceback or name stack of a source.
    pub fn source_object<'py>(&self, py: Python<'py>, id: ForeignId) -> Bound<'py, PyAny> {
        self.leaves.sources[index(id)].bind(py).clone()
    }

    /// As `source_object`; none of a program that was abridged.
    pub fn known_source<'py>(&self, py: Python<'py>, id: ForeignId) -> Option<Bound<'py, PyAny>> {
        self.leaves.sources.get(index(id)).map(|source| source.bind(py).clone())
    }

    /// The effects of an equation of `primitive`.
    pub fn effects<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        id: EffectsId,
        primitive: PrimitiveId,
    ) -> Bound<'py, PyAny> {
        let known = match id {
            EffectsId::NONE => self.no_effects.get(&primitive),
            _ => self.effects.get(&id),
        };
        known.unwrap_or(&jax.no_effects).bind(py).clone()
    }

    pub fn source(&mut self, builder: &mut Builder, source: &SourceRef<'_>) -> PyResult<SourceId> {
        let traceback = match &source.traceback {
            Some(traceback) => Some(self.traceback(traceback)?),
            None => None,
        };
        let name_stack = self.name_stack(&source.name_stack)?;
        Ok(builder.source(Source { traceback, name_stack }))
    }

    /// As `source`, where it may be one that is known; that is then this one.
    pub fn source_again(
        &mut self,
        builder: &mut Builder,
        source: &SourceRef<'_>,
        known: &mut Option<SourceId>,
    ) -> PyResult<SourceId> {
        if let (Some(id), Some(traceback)) = (*known, &source.traceback) {
            let known = builder.source_data(id);
            if let Some(same) = known.traceback
                && self.is_known(&source.name_stack, known.name_stack)
                && self.leaves.sources[index(same)].bind(traceback.py()).eq(traceback)?
            {
                return Ok(id);
            }
        }
        let id = self.source(builder, source)?;
        *known = Some(id);
        Ok(id)
    }

    /// Whether a name stack is the object seen last as one that is known, or the empty one.
    fn is_known(&self, name_stack: &Bound<'_, PyAny>, known: Option<ForeignId>) -> bool {
        match known {
            None => self.empty_name_stack.as_ref().is_some_and(|empty| empty.is(name_stack)),
            Some(id) => self.name_stack_by_pointer.get(&address(name_stack)) == Some(&id),
        }
    }

    fn traceback(&mut self, traceback: &Bound<'_, PyAny>) -> PyResult<ForeignId> {
        let hash = traceback.hash()?;
        let py = traceback.py();
        if let Some(same) = self.tracebacks.get(&hash) {
            for &id in same {
                if self.leaves.sources[index(id)].bind(py).eq(traceback)? {
                    return Ok(id);
                }
            }
        }
        let id = self.push_source(traceback);
        self.tracebacks.entry(hash).or_default().push(id);
        Ok(id)
    }

    /// None for the empty stack.
    fn name_stack(&mut self, name_stack: &Bound<'_, PyAny>) -> PyResult<Option<ForeignId>> {
        if self.empty_name_stack.as_ref().is_some_and(|empty| empty.is(name_stack)) {
            return Ok(None);
        }
        if let Some(&id) = self.name_stack_by_pointer.get(&address(name_stack)) {
            return Ok(Some(id));
        }
        let py = name_stack.py();
        let scopes = name_stack.getattr(pyo3::intern!(py, "stack"))?;
        if scopes.len()? == 0 {
            self.empty_name_stack = Some(name_stack.clone().unbind());
            return Ok(None);
        }
        let hash = typed_hash(&scopes);
        if let Some(same) = hash.and_then(|hash| self.name_stacks.get(&hash)) {
            for &id in same {
                let other = self.leaves.sources[index(id)].bind(py);
                if typed_equal(&other.getattr(pyo3::intern!(py, "stack"))?, &scopes) {
                    return Ok(Some(id));
                }
            }
        }
        let id = self.push_source(name_stack);
        self.name_stack_by_pointer.insert(address(name_stack), id);
        if let Some(hash) = hash {
            self.name_stacks.entry(hash).or_default().push(id);
        }
        Ok(Some(id))
    }

    /// A new `SourceInfo` of a recorded source.
    pub fn source_info<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        source: Source,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.leaves.source_info(py, jax, source)
    }

    pub fn new_const(&mut self, value: &Bound<'_, PyAny>) -> ConstId {
        let id = ConstId::from_u32(u32::try_from(self.consts.len()).unwrap_or(u32::MAX - 1));
        self.consts.push(Some(value.clone().unbind()));
        id
    }

    pub fn constant<'py>(&self, py: Python<'py>, id: ConstId) -> Option<Bound<'py, PyAny>> {
        self.consts.get(id.as_u32() as usize)?.as_ref().map(|value| value.bind(py).clone())
    }

    /// Gives up a constant; the caller drops it once no borrow is held.
    pub fn take_const(&mut self, id: ConstId) -> Option<Object> {
        self.consts.get_mut(id.as_u32() as usize)?.take()
    }

    /// The literal for a jax `Literal` object.
    pub fn literal(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        literal: &Bound<'_, PyAny>,
    ) -> PyResult<LiteralId> {
        if let Some(&id) = self.literal_by_pointer.get(&address(literal)) {
            return Ok(id);
        }
        let id = self.fresh_literal(jax, builder, literal)?;
        self.literal_by_pointer.insert(address(literal), id);
        Ok(id)
    }

    /// Another literal equal to one, an object of its own: jax tells literals apart by identity.
    pub fn copy_literal(
        &mut self,
        builder: &mut Builder,
        literal: LiteralId,
    ) -> PyResult<LiteralId> {
        let copy = builder.copy_literal(literal).map_err(convert::build_error)?;
        self.copied_literals.insert(copy);
        Ok(copy)
    }

    /// The jax `Literal` of a literal.
    pub fn literal_object<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        id: LiteralId,
        object: ForeignId,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = self.object(py, object);
        if !self.copied_literals.contains(id) {
            return Ok(object);
        }
        let copies = || self.literal_copies.lock().unwrap_or_else(PoisonError::into_inner);
        let place = id.as_u32() as usize;
        if let Some(Some(known)) = copies().get(place) {
            return Ok(known.bind(py).clone());
        }
        // Not while the lock is held: this may run Python code.
        let copy = jax.copy_literal(&object)?;
        let mut copies = copies();
        if place >= copies.len() {
            copies.resize_with(place + 1, || None);
        }
        Ok(copies[place].get_or_insert_with(|| copy.unbind()).bind(py).clone())
    }

    /// The object of a literal that Python may have seen.
    pub fn seen_literal<'py>(
        &self,
        py: Python<'py>,
        id: LiteralId,
        object: ForeignId,
    ) -> Bound<'py, PyAny> {
        let copies = self.literal_copies.lock().unwrap_or_else(PoisonError::into_inner);
        match copies.get(id.as_u32() as usize) {
            Some(Some(copy)) => copy.bind(py).clone(),
            _ => self.object(py, object),
        }
    }

    /// As `literal`, for an object that nobody else holds.
    pub fn fresh_literal(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        literal: &Bound<'_, PyAny>,
    ) -> PyResult<LiteralId> {
        let aval = literal.getattr(pyo3::intern!(literal.py(), "aval"))?;
        let ty = self.ty(jax, builder, &aval)?;
        let object = self.push(literal);
        builder.literal(ty, object).map_err(convert::build_error)
    }

    /// The `Var` object of a variable, made where it does not exist yet.
    pub fn var_object<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        ty: TypeId,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(Some(object)) = self.vars.get(var.as_u32() as usize) {
            return Ok(object.bind(py).clone());
        }
        let object = jax.new_var(self.aval(py, ty))?;
        self.set_var_object(var, &object);
        Ok(object)
    }

    /// The `Var` objects that Python has seen.
    pub fn seen_vars<'py>(
        &self,
        py: Python<'py>,
    ) -> impl Iterator<Item = (Var, Bound<'py, PyAny>)> {
        let seen = move |(index, object): (usize, &Option<Object>)| {
            let object = object.as_ref()?.bind(py).clone();
            Some((Var::from_u32(u32::try_from(index).ok()?), object))
        };
        self.vars.iter().enumerate().filter_map(seen)
    }

    /// Makes `object` stand for `var` from now on.
    pub fn set_var_object(&mut self, var: Var, object: &Bound<'_, PyAny>) {
        self.new_vars.push(var);
        let index = var.as_u32() as usize;
        if index >= self.vars.len() {
            self.vars.resize_with(index + 1, || None);
        }
        self.vars[index] = Some(object.clone().unbind());
    }

    /// The variable that a `Var` object stands for.
    pub fn var_of(&mut self, object: &Bound<'_, PyAny>) -> Option<Var> {
        for var in self.new_vars.drain(..) {
            if let Some(Some(known)) = self.vars.get(var.as_u32() as usize) {
                self.var_by_pointer.insert(address(known.bind(object.py())), var);
            }
        }
        self.var_by_pointer.get(&address(object)).copied()
    }

    /// Frees what only growth needs.
    pub fn shrink(&mut self) {
        self.tracebacks = FxHashMap::default();
        self.name_stacks = FxHashMap::default();
        self.name_stack_by_pointer = FxHashMap::default();
        self.empty_name_stack = None;
        self.handles.shrink_to_fit();
    }

    /// Shows every object to the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for object in
            self.handles.iter().chain(self.effects.values()).chain(self.no_effects.values())
        {
            visit.call(object)?;
        }
        for params in self.params.values() {
            visit.call(params)?;
        }
        for graph in self.subgraphs.values() {
            visit.call(graph)?;
        }
        for object in self.consts.iter().flatten().chain(self.vars.iter().flatten()) {
            visit.call(object)?;
        }
        Ok(())
    }
}

/// Whether `object` is exactly of the type at `class`.
#[inline]
pub fn is_exactly(object: *mut ffi::PyObject, class: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: `object` is a live object wherever this is called.
    unsafe { ffi::Py_TYPE(object) == class }
}
