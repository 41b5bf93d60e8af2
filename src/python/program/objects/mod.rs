//! The Python objects behind the ids of one program.
//!
//! The IR knows a Python object only as a number. `ObjectTable` holds the objects: one aval per type, one
//! params dict per params id, one `Var` per variable that Python has seen, and handles for all
//! else. Everything here is append-only while the program grows.
//!
//! ```text
//! types.rs     types, primitives and params
//! values.rs    constants, literals and variables
//! effects.rs   effects of equations
//! sources.rs   tracebacks and name stacks
//! retained.rs  what outlives the trace
//! ```

mod effects;
mod retained;
mod sources;
mod types;
mod values;

use std::sync::Arc;

use cranelift_entity::EntitySet;
use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{EffectsId, ForeignId, LiteralId, ParamsId, PrimitiveId, Program, TypeId, Var};

use crate::python::cpython::native::address;
use crate::python::cpython::shared::{Quiet, Shared};
use crate::python::jax::names::Jax;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_objects::{LiteralCopies, Vars};
pub use crate::python::program::objects::effects::ReadEffects;
pub use crate::python::program::objects::retained::Retained;
pub use crate::python::program::objects::sources::{SourceKey, StackPlace};
pub use crate::python::program::objects::types::PrimitiveFacts;
pub use crate::python::program::objects::values::literal_type;

type Object = Py<PyAny>;

/// An object, or None where there is none any more.
fn bound<'py>(py: Python<'py>, object: Option<&Object>) -> Bound<'py, PyAny> {
    match object {
        Some(object) => object.bind(py).clone(),
        None => py.None().into_bound(py),
    }
}

/// The Python objects of one program.
#[derive(Default)]
pub struct ObjectTable {
    handles: Vec<Object>,
    by_pointer: FxHashMap<usize, ForeignId>,
    /// Shared with the frame once the program is finished.
    retained: Arc<Retained>,
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

impl ObjectTable {
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
    pub fn fresh_copy(&self, py: Python<'_>, literals: impl Iterator<Item = LiteralId>) -> Self {
        let own = |object: &Object| object.clone_ref(py);
        let params = |(&id, params): (&ParamsId, &Py<PyDict>)| (id, params.clone_ref(py));
        let mut copied_literals = EntitySet::new();
        for literal in literals {
            copied_literals.insert(literal);
        }
        Self {
            handles: self.handles.iter().map(own).collect(),
            retained: self.retained.clone(),
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
            retained: self.retained.clone(),
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

    /// Lets go of the objects of nested programs and of variables that a program does not need: those
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
