//! The Python objects behind the ids of one program.
//!
//! The IR knows a Python object only as a number. `Side` holds the objects: one aval per type, one
//! params dict per params id, one `Var` per variable that Python has seen, and handles for all
//! else. Everything here is append-only while the program grows.

use std::sync::Arc;

use cranelift_entity::EntitySet;
use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{
    Builder, ConstId, Effect, EffectsId, ForeignId, LiteralId, ParamsId, PrimitiveId, Program,
    Source, SourceId, Type, TypeId, Var,
};

use crate::python::cpython::native::{address, is_exactly, string_of};
use crate::python::cpython::shared::{Quiet, Shared};
use crate::python::jax::avals::{self, AvalInfo};
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::{typed_equal, typed_hash};
use crate::python::program::canonical::canonical_params;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_objects::{LiteralCopies, OwnLiteral, Vars};

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
    /// The aval of a type; None where the collector has taken everything.
    pub fn aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Bound<'py, PyAny> {
        bound(py, self.avals.get(ty.as_u32() as usize))
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
        let [traceback, name_stack] = self.parts(Quiet::of(py), jax, source);
        let name_stack = bound(py, name_stack.as_ref());
        jax.new_source_info(traceback.map(|traceback| traceback.into_bound(py)), name_stack)
    }

    /// The traceback and the name stack of a recorded source.
    pub fn parts(&self, quiet: Quiet<'_>, jax: &Jax, source: Source) -> [Option<Object>; 2] {
        let object = |id: ForeignId| self.sources.get(index(id)).map(|object| quiet.own(object));
        let name_stack = match source.name_stack {
            Some(id) => object(id),
            None => Some(quiet.own(&jax.empty_name_stack)),
        };
        [source.traceback.and_then(object), name_stack]
    }
}

/// An object, or None where there is none any more.
fn bound<'py>(py: Python<'py>, object: Option<&Object>) -> Bound<'py, PyAny> {
    match object {
        Some(object) => object.bind(py).clone(),
        None => py.None().into_bound(py),
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
    subgraphs: Shared<FxHashMap<ForeignId, Py<Graph>>>,
    /// By `EffectsId`: the set of effects of an equation, inputs resolved to variables.
    effects: FxHashMap<EffectsId, Object>,
    /// What stands for no effects, for the primitives that do not say so with an empty set.
    no_effects: FxHashMap<PrimitiveId, Object>,
    /// By `ConstId`.
    consts: Shared<Vec<Option<Object>>>,
    /// Shared with what this becomes when nested programs are read.
    vars: Arc<Vars>,
    literal_by_pointer: FxHashMap<usize, LiteralId>,
    /// Literals that have an object of their own, equal to the one of their handle.
    copied_literals: EntitySet<LiteralId>,
    /// Shared as `vars`.
    literal_copies: Arc<LiteralCopies>,
    /// Equal tracebacks (same code, same instruction) share one object; keyed by their hash, those of
    /// unknown classes by their address.
    tracebacks: FxHashMap<(isize, bool), SmallVec<[ForeignId; 1]>>,
    /// Equal name stacks share one object; keyed by typed hash.
    name_stacks: FxHashMap<u64, SmallVec<[ForeignId; 1]>>,
    name_stack_by_pointer: FxHashMap<usize, ForeignId>,
    /// The empty name stack that was seen last.
    empty_name_stack: Option<Object>,
}

fn index(id: ForeignId) -> usize {
    id.as_u32() as usize
}

impl Side {
    /// A handle on `object`, the same for the same object.
    pub fn handle(&mut self, object: &Bound<'_, PyAny>) -> ForeignId {
        self.handle_of(object.as_unbound(), Quiet::of(object.py()))
    }

    /// As `handle`.
    pub fn handle_of(&mut self, object: &Object, quiet: Quiet<'_>) -> ForeignId {
        let address = object.as_ptr() as usize;
        if let Some(&id) = self.by_pointer.get(&address) {
            return id;
        }
        let id = self.push(quiet.own(object));
        self.by_pointer.insert(address, id);
        id
    }

    /// The objects of a program that is the same, but whose variables and literals are others.
    pub fn twin(&self, py: Python<'_>, literals: impl Iterator<Item = LiteralId>) -> Self {
        let own = |object: &Object| object.clone_ref(py);
        let params = |(&id, params): (&ParamsId, &Py<PyDict>)| (id, params.clone_ref(py));
        let mut copied_literals = EntitySet::new();
        for literal in literals {
            copied_literals.insert(literal);
        }
        Self {
            handles: self.handles.iter().map(own).collect(),
            leaves: self.leaves.clone(),
            params: self.params.iter().map(params).collect(),
            subgraphs: self.own_subgraphs(py),
            effects: self.effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            no_effects: self.no_effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            consts: self.own_consts(py),
            copied_literals,
            ..Self::default()
        }
    }

    fn own_subgraphs(&self, py: Python<'_>) -> Shared<FxHashMap<ForeignId, Py<Graph>>> {
        Shared::new(self.subgraphs.with(py, |graphs, quiet| {
            graphs.iter().map(|(&id, graph)| (id, quiet.own(graph))).collect()
        }))
    }

    fn own_consts(&self, py: Python<'_>) -> Shared<Vec<Option<Object>>> {
        Shared::new(self.consts.with(py, |consts, quiet| {
            consts.iter().map(|value| value.as_ref().map(|value| quiet.own(value))).collect()
        }))
    }

    /// The objects of a program that begins with all that this one has, variables included.
    pub fn extended(&self, py: Python<'_>) -> Self {
        let (vars, literal_copies) = (self.vars.copy(py), self.literal_copies.copy(py));
        let shared = self.regrown(py);
        Self { vars: Arc::new(vars), literal_copies: Arc::new(literal_copies), ..shared }
    }

    /// The objects of the same program, of which more will be read: what is made of it when somebody
    /// asks is the same from here on.
    pub fn regrown(&self, py: Python<'_>) -> Self {
        let own = |object: &Object| object.clone_ref(py);
        Self {
            handles: self.handles.iter().map(own).collect(),
            by_pointer: self.by_pointer.clone(),
            leaves: self.leaves.clone(),
            type_by_pointer: self.type_by_pointer.clone(),
            primitive_by_pointer: self.primitive_by_pointer.clone(),
            params: self.params.iter().map(|(&id, params)| (id, params.clone_ref(py))).collect(),
            subgraphs: self.own_subgraphs(py),
            effects: self.effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            no_effects: self.no_effects.iter().map(|(&id, set)| (id, own(set))).collect(),
            consts: self.own_consts(py),
            vars: self.vars.clone(),
            literal_by_pointer: self.literal_by_pointer.clone(),
            copied_literals: self.copied_literals.clone(),
            literal_copies: self.literal_copies.clone(),
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
        let dropped: Vec<_> = self.subgraphs.with(py, |graphs, _| {
            graphs.extract_if(|object, _| !within.contains(object)).collect()
        });
        drop(dropped);
        let atoms = program.eqns().flat_map(|eqn| program.eqn_invars(eqn));
        let used: Vec<Var> =
            atoms.chain(program.outvars()).filter_map(|atom| atom.as_var()).collect();
        let class = jax.drop_var_type.as_ptr() as usize;
        drop(self.vars.take(py, &used, |object| object.get_type_ptr() as usize == class));
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
    pub fn set_constant(&self, id: ConstId, value: &Bound<'_, PyAny>) {
        let index = id.as_u32() as usize;
        let (py, value) = (value.py(), value.clone().unbind());
        drop(self.consts.with(py, |consts, _| {
            if index >= consts.len() {
                consts.resize_with(index + 1, || None);
            }
            consts[index].replace(value)
        }));
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

    fn push_source(&mut self, object: Object) -> ForeignId {
        let sources = &mut Arc::make_mut(&mut self.leaves).sources;
        let id = ForeignId::from_u32(u32::try_from(sources.len()).unwrap_or(u32::MAX - 1));
        sources.push(object);
        id
    }

    /// Notes the graph of a nested program; the one that is known from now on: the first.
    pub fn set_subgraph<'py>(
        &self,
        object: ForeignId,
        graph: &Bound<'py, Graph>,
    ) -> Bound<'py, Graph> {
        let py = graph.py();
        let given = graph.as_unbound();
        let known = self.subgraphs.with(py, |graphs, quiet| {
            quiet.own(graphs.entry(object).or_insert_with(|| quiet.own(given)))
        });
        known.into_bound(py)
    }

    /// Has another object behind a handle.
    pub fn set_object(&mut self, id: ForeignId, object: &Bound<'_, PyAny>) {
        if let Some(known) = self.handles.get_mut(index(id)) {
            *known = object.clone().unbind();
        }
    }

    /// The graph of a nested program that was read.
    pub fn subgraph<'py>(&self, py: Python<'py>, object: ForeignId) -> Option<Bound<'py, Graph>> {
        let known = self
            .subgraphs
            .with(py, |graphs, quiet| graphs.get(&object).map(|graph| quiet.own(graph)));
        known.map(|graph| graph.into_bound(py))
    }

    /// The graph of a nested program that was read, by the object among params.
    pub fn known_subgraph<'py>(&self, jaxpr: &Bound<'py, PyAny>) -> Option<Bound<'py, Graph>> {
        self.subgraph(jaxpr.py(), *self.by_pointer.get(&address(jaxpr))?)
    }

    /// A handle that is not looked up again.
    fn push(&mut self, object: Object) -> ForeignId {
        let id = ForeignId::from_u32(u32::try_from(self.handles.len()).unwrap_or(u32::MAX - 1));
        self.handles.push(object);
        id
    }

    /// The object behind a handle; None where the collector has taken everything.
    pub fn object<'py>(&self, py: Python<'py>, id: ForeignId) -> Bound<'py, PyAny> {
        bound(py, self.handles.get(index(id)))
    }

    /// As `object`.
    pub fn object_of(&self, quiet: Quiet<'_>, id: ForeignId) -> Option<Object> {
        self.handles.get(index(id)).map(|object| quiet.own(object))
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
        let info = avals::aval_info(jax, aval)?;
        Ok(self.type_of(builder, aval.as_unbound(), &info, Quiet::of(aval.py())))
    }

    /// As `ty`, of an aval that was read.
    pub fn type_of(
        &mut self,
        builder: &mut Builder,
        aval: &Object,
        info: &AvalInfo,
        quiet: Quiet<'_>,
    ) -> TypeId {
        let address = aval.as_ptr() as usize;
        if let Some(&ty) = self.type_by_pointer.get(&address) {
            return ty;
        }
        let opaque = |side: &mut Self| Type::Opaque {
            name: info.name.clone(),
            object: side.handle_of(aval, quiet),
        };
        let described = match &info.ty {
            Some(ty) => ty.clone(),
            None => opaque(self),
        };
        let mut ty = builder.ty(described);
        if (ty.as_u32() as usize) < self.leaves.avals.len() {
            // Another aval object reads the same: keep both apart.
            let opaque = opaque(self);
            ty = builder.ty(opaque);
        }
        debug_assert_eq!(ty.as_u32() as usize, self.leaves.avals.len());
        Arc::make_mut(&mut self.leaves).avals.push(quiet.own(aval));
        self.type_by_pointer.insert(address, ty);
        ty
    }

    /// The aval of a type.
    pub fn aval<'py>(&self, py: Python<'py>, ty: TypeId) -> Bound<'py, PyAny> {
        self.leaves.aval(py, ty)
    }

    /// As `aval`.
    pub fn aval_of(&self, quiet: Quiet<'_>, ty: TypeId) -> Option<Object> {
        self.leaves.avals.get(ty.as_u32() as usize).map(|aval| quiet.own(aval))
    }

    pub fn primitive(
        &mut self,
        builder: &mut Builder,
        primitive: &Bound<'_, PyAny>,
    ) -> PyResult<PrimitiveId> {
        if let Some(&id) = self.primitive_by_pointer.get(&address(primitive)) {
            return Ok(id);
        }
        let said = PrimitiveWords::of(primitive)?;
        Ok(self.primitive_of(builder, primitive.as_unbound(), &said, Quiet::of(primitive.py())))
    }

    /// The primitive at an address.
    pub fn known_primitive(&self, address: usize) -> Option<PrimitiveId> {
        self.primitive_by_pointer.get(&address).copied()
    }

    /// As `primitive`, of one that was read.
    pub fn primitive_of(
        &mut self,
        builder: &mut Builder,
        primitive: &Object,
        said: &PrimitiveWords,
        quiet: Quiet<'_>,
    ) -> PrimitiveId {
        let address = primitive.as_ptr() as usize;
        if let Some(&id) = self.primitive_by_pointer.get(&address) {
            return id;
        }
        let object = self.handle_of(primitive, quiet);
        let id = builder.primitive(&said.name, said.multiple, object);
        self.primitive_by_pointer.insert(address, id);
        id
    }

    pub fn params_id(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        params: &Bound<'_, PyDict>,
    ) -> PyResult<ParamsId> {
        let canonical = canonical_params(jax, builder, self, params)?;
        let id = builder.params(canonical);
        self.params.entry(id).or_insert_with(|| params.clone().unbind());
        Ok(id)
    }

    /// As `params_id`, read when somebody asks for the IR: a trace has no use for the content.
    pub fn deferred_params_id(
        &mut self,
        builder: &mut Builder,
        params: &Py<PyDict>,
        quiet: Quiet<'_>,
    ) -> ParamsId {
        let object = self.handle_of(params.as_any(), quiet);
        let id = builder.deferred_params(object);
        self.params.entry(id).or_insert_with(|| quiet.own(params));
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
            known.push((id, canonical_params(jax, builder, self, &params)?));
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

    /// As `params_dict`.
    pub fn params_of(&self, quiet: Quiet<'_>, id: ParamsId) -> Option<Py<PyDict>> {
        self.params.get(&id).map(|params| quiet.own(params))
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
        let read = ReadEffects::of(jax, effects)?;
        Ok(self.effects_of(builder, &read, Quiet::of(effects.py())))
    }

    /// As `effects_id`, of effects that were read.
    pub fn effects_of(
        &mut self,
        builder: &mut Builder,
        effects: &ReadEffects,
        quiet: Quiet<'_>,
    ) -> EffectsId {
        let ReadEffects { set, list } = effects;
        let mut canonical: Vec<Effect> = list
            .iter()
            .map(|(name, input, effect)| Effect {
                name: name.clone(),
                input: input.and_then(|address| self.vars.var_at(address)),
                object: self.handle_of(effect, quiet),
            })
            .collect();
        canonical.sort_by(|a, b| (&a.name, a.input, a.object).cmp(&(&b.name, b.input, b.object)));
        let id = builder.effects(&canonical);
        if id != EffectsId::NONE {
            self.effects.entry(id).or_insert_with(|| quiet.own(set));
        }
        id
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
        recorded: &Self,
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

    /// Notes what `primitive` says for no effects, where that is not an empty set; the first stays.
    pub fn note_no_effects(&mut self, primitive: PrimitiveId, effects: &Bound<'_, PyAny>) {
        self.note_no_effects_of(primitive, effects.as_unbound(), Quiet::of(effects.py()));
    }

    /// As `note_no_effects`.
    pub fn note_no_effects_of(
        &mut self,
        primitive: PrimitiveId,
        effects: &Object,
        quiet: Quiet<'_>,
    ) {
        // SAFETY: a live object; classes are compared.
        let is_set = unsafe { ffi::PyAnySet_Check(effects.as_ptr()) != 0 };
        if !is_set {
            self.no_effects.entry(primitive).or_insert_with(|| quiet.own(effects));
        }
    }

    /// What `primitive` says for no effects, where that is not an empty set.
    pub fn stands_for_no_effects(&self, primitive: PrimitiveId) -> Option<&Object> {
        self.no_effects.get(&primitive)
    }

    /// A traceback or name stack of a source.
    pub fn source_object<'py>(&self, py: Python<'py>, id: ForeignId) -> Bound<'py, PyAny> {
        bound(py, self.leaves.sources.get(index(id)))
    }

    /// As `source_object`.
    pub fn source_object_of(&self, quiet: Quiet<'_>, id: ForeignId) -> Option<Object> {
        self.leaves.sources.get(index(id)).map(|source| quiet.own(source))
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
        self.effects_object(Quiet::of(py), jax, id, primitive).into_bound(py)
    }

    /// As `effects`.
    pub fn effects_object(
        &self,
        quiet: Quiet<'_>,
        jax: &Jax,
        id: EffectsId,
        primitive: PrimitiveId,
    ) -> Object {
        let known = match id {
            EffectsId::NONE => self.no_effects.get(&primitive),
            _ => self.effects.get(&id),
        };
        quiet.own(known.unwrap_or(&jax.no_effects))
    }

    pub fn source(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        source: &SourceRef<'_>,
    ) -> PyResult<SourceId> {
        let quiet = Quiet::of(source.name_stack.py());
        let key = SourceKey::of(jax, source)?;
        if let Some(known) = self.known_source_id(builder, &key, quiet)? {
            return Ok(known);
        }
        let place = StackPlace::of(&source.name_stack, |hash| self.name_stacks_of(hash, quiet))?;
        let (id, old) = self.new_source(builder, &key, place, quiet)?;
        drop(old);
        Ok(id)
    }

    /// The source, where its name stack was seen before.
    pub fn known_source_id(
        &mut self,
        builder: &mut Builder,
        key: &SourceKey<'_>,
        quiet: Quiet<'_>,
    ) -> PyResult<Option<SourceId>> {
        let Some(name_stack) = self.known_name_stack(key.name_stack) else { return Ok(None) };
        let traceback = self.traceback(key, quiet)?;
        Ok(Some(builder.source(Source { traceback, name_stack })))
    }

    /// Whether a source is the one that is `known`.
    ///
    /// # Errors
    /// Out of memory.
    pub fn is_source(
        &self,
        builder: &Builder,
        key: &SourceKey<'_>,
        known: SourceId,
        quiet: Quiet<'_>,
    ) -> PyResult<bool> {
        let known = builder.source_data(known);
        if let Some(traceback) = &key.traceback
            && let Some(same) = known.traceback
            && self.known_name_stack(key.name_stack) == Some(known.name_stack)
            && let Some(recorded) = self.leaves.sources.get(index(same))
            && traceback.is_native
            && key.is_native(recorded)
        {
            return quiet.same_traceback(recorded, traceback.object);
        }
        Ok(false)
    }

    /// The place of a name stack that was seen before, none being that of the empty one.
    #[allow(clippy::option_option)] // whether it is known, and which it is
    fn known_name_stack(&self, name_stack: &Object) -> Option<Option<ForeignId>> {
        if self.empty_name_stack.as_ref().is_some_and(|empty| empty.is(name_stack)) {
            return Some(None);
        }
        self.name_stack_by_pointer.get(&(name_stack.as_ptr() as usize)).map(|&id| Some(id))
    }

    /// Name stacks with a typed hash.
    pub fn name_stacks_of(
        &self,
        hash: u64,
        quiet: Quiet<'_>,
    ) -> SmallVec<[(ForeignId, Object); 1]> {
        let same = self.name_stacks.get(&hash).into_iter().flatten();
        let object = |&id| Some((id, quiet.own(self.leaves.sources.get(index(id))?)));
        same.filter_map(object).collect()
    }

    /// The source, whose name stack was looked at; what the caller drops comes back.
    pub fn new_source(
        &mut self,
        builder: &mut Builder,
        key: &SourceKey<'_>,
        place: StackPlace,
        quiet: Quiet<'_>,
    ) -> PyResult<(SourceId, Option<Object>)> {
        let traceback = self.traceback(key, quiet)?;
        let (name_stack, old) = match place {
            StackPlace::Empty => (None, self.empty_name_stack.replace(quiet.own(key.name_stack))),
            StackPlace::Known(id) => (Some(id), None),
            StackPlace::New(hash) => {
                let id = self.push_source(quiet.own(key.name_stack));
                self.name_stack_by_pointer.insert(key.name_stack.as_ptr() as usize, id);
                if let Some(hash) = hash {
                    self.name_stacks.entry(hash).or_default().push(id);
                }
                (Some(id), None)
            }
        };
        Ok((builder.source(Source { traceback, name_stack }), old))
    }

    fn traceback(&mut self, key: &SourceKey<'_>, quiet: Quiet<'_>) -> PyResult<Option<ForeignId>> {
        let Some(traceback) = &key.traceback else { return Ok(None) };
        let bucket = traceback.hash.map(|hash| (hash, traceback.is_native));
        if let Some(same) = bucket.and_then(|bucket| self.tracebacks.get(&bucket)) {
            for &id in same {
                let Some(known) = self.leaves.sources.get(index(id)) else { continue };
                if known.is(traceback.object)
                    || traceback.is_native && quiet.same_traceback(known, traceback.object)?
                {
                    return Ok(Some(id));
                }
            }
        }
        let id = self.push_source(quiet.own(traceback.object));
        if let Some(bucket) = bucket {
            self.tracebacks.entry(bucket).or_default().push(id);
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
        self.new_const_of(value.as_unbound(), Quiet::of(value.py()))
    }

    /// As `new_const`.
    pub fn new_const_of(&mut self, value: &Object, quiet: Quiet<'_>) -> ConstId {
        self.consts.peek(|consts| {
            let id = ConstId::from_u32(u32::try_from(consts.len()).unwrap_or(u32::MAX - 1));
            consts.push(Some(quiet.own(value)));
            id
        })
    }

    pub fn constant<'py>(&self, py: Python<'py>, id: ConstId) -> Option<Bound<'py, PyAny>> {
        self.constant_of(Quiet::of(py), id).map(|value| value.into_bound(py))
    }

    /// As `constant`.
    pub fn constant_of(&self, quiet: Quiet<'_>, id: ConstId) -> Option<Object> {
        self.consts
            .peek(|consts| consts.get(id.as_u32() as usize)?.as_ref().map(|value| quiet.own(value)))
    }

    /// Gives up a constant; the caller drops it once no Python code is held off.
    pub fn take_const(&self, id: ConstId) -> Option<Object> {
        self.consts.peek(|consts| consts.get_mut(id.as_u32() as usize)?.take())
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
        let (aval, info) = literal_type(jax, literal)?;
        let quiet = Quiet::of(literal.py());
        self.literal_of(builder, literal.as_unbound(), (aval.as_unbound(), &info), quiet)
    }

    /// As `literal`, whose type was read.
    pub fn literal_of(
        &mut self,
        builder: &mut Builder,
        literal: &Object,
        (aval, info): (&Object, &AvalInfo),
        quiet: Quiet<'_>,
    ) -> PyResult<LiteralId> {
        let address = literal.as_ptr() as usize;
        if let Some(&id) = self.literal_by_pointer.get(&address) {
            return Ok(id);
        }
        let ty = self.type_of(builder, aval, info, quiet);
        let object = self.push(quiet.own(literal));
        let id = builder.literal(ty, object).map_err(avals::build_error)?;
        self.literal_by_pointer.insert(address, id);
        Ok(id)
    }

    /// Another literal equal to one, an object of its own: jax tells literals apart by identity.
    pub fn copy_literal(
        &mut self,
        builder: &mut Builder,
        literal: LiteralId,
    ) -> PyResult<LiteralId> {
        let copy = builder.copy_literal(literal).map_err(avals::build_error)?;
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
        let own = self.own_literal(Quiet::of(py), id, object);
        LiteralCopies::make(py, jax, id, own)
    }

    /// What a literal's object is, or is made of.
    pub fn own_literal(&self, quiet: Quiet<'_>, id: LiteralId, object: ForeignId) -> OwnLiteral {
        if !self.copied_literals.contains(id) {
            return OwnLiteral::Made(self.object_of(quiet, object));
        }
        match self.literal_copies.get(quiet, id) {
            Some(known) => OwnLiteral::Made(Some(known)),
            None => OwnLiteral::Copy {
                of: self.object_of(quiet, object),
                copies: self.literal_copies.clone(),
            },
        }
    }

    /// The object of a literal that Python may have seen.
    pub fn seen_literal<'py>(
        &self,
        py: Python<'py>,
        id: LiteralId,
        object: ForeignId,
    ) -> Bound<'py, PyAny> {
        bound(py, self.seen_literal_of(Quiet::of(py), id, object).as_ref())
    }

    /// As `seen_literal`.
    pub fn seen_literal_of(
        &self,
        quiet: Quiet<'_>,
        id: LiteralId,
        object: ForeignId,
    ) -> Option<Object> {
        self.literal_copies.get(quiet, id).or_else(|| self.object_of(quiet, object))
    }

    /// As `literal`, for an object that nobody else holds.
    pub fn fresh_literal(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        literal: &Bound<'_, PyAny>,
    ) -> PyResult<LiteralId> {
        let (aval, info) = literal_type(jax, literal)?;
        let quiet = Quiet::of(literal.py());
        let ty = self.type_of(builder, aval.as_unbound(), &info, quiet);
        let object = self.push(literal.clone().unbind());
        builder.literal(ty, object).map_err(avals::build_error)
    }

    /// The `Var` object of a variable, made where it does not exist yet.
    pub fn var_object<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        ty: TypeId,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.vars.get(Quiet::of(py), var) {
            Some(object) => Ok(object.into_bound(py)),
            None => self.vars.make(jax, var, self.aval(py, ty)),
        }
    }

    /// The `Var` objects of the program.
    pub fn vars(&self) -> &Arc<Vars> {
        &self.vars
    }

    /// The `Var` objects that Python has seen.
    pub fn seen_vars<'py>(
        &self,
        py: Python<'py>,
    ) -> impl Iterator<Item = (Var, Bound<'py, PyAny>)> {
        self.vars.seen(py).into_iter().map(move |(var, object)| (var, object.into_bound(py)))
    }

    /// Makes `object` stand for `var` from now on.
    pub fn set_var_object(&self, var: Var, object: &Bound<'_, PyAny>) {
        self.vars.set(var, object);
    }

    /// The variable that a `Var` object stands for.
    pub fn var_of(&self, object: &Bound<'_, PyAny>) -> Option<Var> {
        self.vars.var_at(address(object))
    }

    /// Frees what only growth needs; what the caller drops comes back.
    #[must_use]
    pub fn shrink(&mut self) -> Option<Object> {
        self.tracebacks = FxHashMap::default();
        self.name_stacks = FxHashMap::default();
        self.name_stack_by_pointer = FxHashMap::default();
        self.handles.shrink_to_fit();
        self.empty_name_stack.take()
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
        self.subgraphs
            .visit(|graphs| graphs.values().try_for_each(|graph| visit.call(graph)))
            .transpose()?;
        self.consts
            .visit(|consts| consts.iter().flatten().try_for_each(|value| visit.call(value)))
            .transpose()?;
        self.vars.traverse(visit)
    }
}

/// What a primitive says of itself.
pub struct PrimitiveWords {
    name: String,
    multiple: bool,
}

impl PrimitiveWords {
    /// # Errors
    /// An attribute cannot be read.
    pub fn of(primitive: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = primitive.py();
        Ok(Self {
            name: string_of(&primitive.getattr(intern!(py, "name"))?.str()?),
            multiple: primitive.getattr(intern!(py, "multiple_results"))?.is_truthy()?,
        })
    }
}

/// The effects of an equation, as far as only Python can tell.
pub struct ReadEffects {
    set: Object,
    /// The name, the address of the input that it is on, and the effect, which keeps the input.
    list: Vec<(Box<str>, Option<usize>, Object)>,
}

impl ReadEffects {
    /// # Errors
    /// An effect cannot be read.
    pub fn of(jax: &Jax, effects: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = effects.py();
        let mut list = Vec::new();
        for effect in effects.try_iter()? {
            let effect = effect?;
            let input = if effect.is_instance(jax.input_effect_type.bind(py))? {
                Some(address(&effect.getattr(intern!(py, "input"))?))
            } else {
                None
            };
            let name = effect.get_type().name()?.to_str()?.into();
            list.push((name, input, effect.unbind()));
        }
        Ok(Self { set: effects.clone().unbind(), list })
    }
}

/// The type of a jax `Literal`, read.
///
/// # Errors
/// An attribute cannot be read.
pub fn literal_type<'py>(
    jax: &Jax,
    literal: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Arc<AvalInfo>)> {
    let aval = literal.getattr(intern!(literal.py(), "aval"))?;
    let info = avals::aval_info(jax, &aval)?;
    Ok((aval, info))
}

/// The traceback of a source that is looked up.
struct TracebackKey<'a> {
    object: &'a Object,
    /// None where it is only compared.
    hash: Option<isize>,
    /// Its class is jaxlib's own, whose hash and equality are native.
    is_native: bool,
}

/// A source that is looked up.
pub struct SourceKey<'a> {
    traceback: Option<TracebackKey<'a>>,
    name_stack: &'a Object,
    native: usize,
}

impl<'a> SourceKey<'a> {
    /// A source that is compared with one that is known.
    #[inline]
    pub fn compared(jax: &Jax, source: &'a SourceRef<'_>) -> Self {
        let native = jax.traceback_type.as_ptr() as usize;
        let traceback = source.traceback.as_ref().map(|traceback| TracebackKey {
            object: traceback.as_unbound(),
            hash: None,
            is_native: traceback.get_type_ptr() as usize == native,
        });
        Self { traceback, name_stack: source.name_stack.as_unbound(), native }
    }

    /// # Errors
    /// Out of memory.
    pub fn of(jax: &Jax, source: &'a SourceRef<'_>) -> PyResult<Self> {
        let native = jax.traceback_type.as_ptr() as usize;
        let traceback = match &source.traceback {
            Some(traceback) => {
                let is_native = traceback.get_type_ptr() as usize == native;
                // What another class has for a hash may be anything.
                let hash =
                    if is_native { traceback.hash()? } else { address(traceback).cast_signed() };
                Some(TracebackKey { object: traceback.as_unbound(), hash: Some(hash), is_native })
            }
            None => None,
        };
        Ok(Self { traceback, name_stack: source.name_stack.as_unbound(), native })
    }

    fn is_native(&self, traceback: &Object) -> bool {
        is_exactly(traceback.as_ptr(), self.native as *mut ffi::PyTypeObject)
    }
}

/// Where a name stack is, that was not seen before.
#[derive(Clone, Copy)]
pub enum StackPlace {
    Empty,
    /// One that says the same.
    Known(ForeignId),
    /// Its typed hash.
    New(Option<u64>),
}

impl StackPlace {
    /// `known` are the name stacks with a hash.
    ///
    /// # Errors
    /// A name stack cannot be read.
    pub fn of(
        name_stack: &Bound<'_, PyAny>,
        known: impl FnOnce(u64) -> SmallVec<[(ForeignId, Object); 1]>,
    ) -> PyResult<Self> {
        let py = name_stack.py();
        let scopes = name_stack.getattr(intern!(py, "stack"))?;
        if scopes.len()? == 0 {
            return Ok(Self::Empty);
        }
        let hash = typed_hash(&scopes);
        for (id, other) in hash.map(known).into_iter().flatten() {
            if typed_equal(&other.bind(py).getattr(intern!(py, "stack"))?, &scopes) {
                return Ok(Self::Known(id));
            }
        }
        Ok(Self::New(hash))
    }
}
