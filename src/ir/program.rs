//! The arena: one immutable program, all of whose parts are rows of tables addressed by typed ids.

use std::{
    fmt,
    mem::{size_of, size_of_val},
    ops::Index,
    sync::Arc,
};

use cranelift_entity::{EntityList, EntityRef, ListPool, PrimaryMap};
use rustc_hash::FxHashSet;

use super::{
    effects::Effect,
    ids::{
        Atom, AtomKind, ConstId, ContextId, EffectsId, Eqn, ForeignId, LiteralId, ParamsId,
        PrimitiveId, SourceId, SubprogramId, TypeId, Var,
    },
    params::Params,
    source::{PackedSource, Source},
    table::{FxIndexMap, Interner, index_bytes},
    types::Type,
};

/// A primitive operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimitiveData {
    /// Its name, as printed.
    pub name: Box<str>,
    /// Whether its result is a list; an equation of any other primitive has exactly one output.
    pub multiple_results: bool,
    /// The embedding's object.
    pub object: ForeignId,
}

impl PrimitiveData {
    /// What an equation of it does, as a name: that of the primitive, or of the one that it stands for in
    /// the linear program of a pullback (`vjp_node[jit]`, from jax 0.12 on).
    pub fn operation(&self) -> &str {
        let inner = self.name.strip_prefix("vjp_node[").and_then(|rest| rest.strip_suffix(']'));
        inner.unwrap_or(&self.name)
    }
}

/// What defines a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// It is an input of the program.
    Invar,
    /// It is a constant of the program.
    Constvar(ConstId),
    /// It is an output of an equation.
    Eqn(Eqn),
    /// It was a constant or an output that was removed as unreferenced; nothing refers to it.
    Removed,
}

/// A variable: its type and its definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VarData {
    /// The type.
    pub ty: TypeId,
    /// What defines it.
    pub def: Def,
}

/// A [`VarData`] in 8 bytes: the kind of definition is in the top two bits of its id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedVar {
    ty: TypeId,
    def: u32,
}

impl PackedVar {
    const TAG_SHIFT: u32 = 30;
    const ID_MASK: u32 = (1 << Self::TAG_SHIFT) - 1;
    /// How many equations or constants a definition can name.
    pub(super) const MAX_DEFS: usize = 1 << Self::TAG_SHIFT;

    #[inline]
    pub(super) fn new(ty: TypeId, def: Def) -> Self {
        let (tag, id) = match def {
            Def::Invar => (0, 0),
            Def::Constvar(value) => (1, value.as_u32()),
            Def::Eqn(eqn) => (2, eqn.as_u32()),
            Def::Removed => (3, 0),
        };
        debug_assert!(id <= Self::ID_MASK, "{def:?} does not fit a definition");
        Self { ty, def: tag << Self::TAG_SHIFT | id }
    }

    #[inline]
    pub(super) fn ty(self) -> TypeId {
        self.ty
    }

    #[inline]
    pub(super) fn def(self) -> Def {
        let id = self.def & Self::ID_MASK;
        match self.def >> Self::TAG_SHIFT {
            0 => Def::Invar,
            1 => Def::Constvar(ConstId::from_u32(id)),
            2 => Def::Eqn(Eqn::from_u32(id)),
            _ => Def::Removed,
        }
    }

    #[inline]
    pub(super) fn set_def(&mut self, def: Def) {
        *self = Self::new(self.ty, def);
    }
}

impl From<PackedVar> for VarData {
    #[inline]
    fn from(var: PackedVar) -> Self {
        Self { ty: var.ty(), def: var.def() }
    }
}

/// An equation. Its outputs are consecutive variables.
#[derive(Clone, Debug)]
pub struct EqnData {
    /// The operation.
    pub primitive: PrimitiveId,
    /// Its parameters.
    pub params: ParamsId,
    /// Its effects.
    pub effects: EffectsId,
    /// Where it comes from.
    pub source: SourceId,
    /// The embedding's context of the equation.
    pub context: ContextId,
    /// The operands, in the program's pool; [`Program::eqn_invars`] reads them.
    pub invars: EntityList<Atom>,
    /// The first output; without meaning where there are none.
    pub first_outvar: Var,
    /// How many outputs there are.
    pub num_outvars: u32,
}

impl EqnData {
    /// The outputs.
    #[inline]
    pub fn outvars(
        &self,
    ) -> impl ExactSizeIterator<Item = Var> + DoubleEndedIterator + Clone + use<> {
        let first = self.first_outvar.as_u32();
        (first..first + self.num_outvars).map(Var::from_u32)
    }
}

/// A literal operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiteralData {
    /// Its type.
    pub ty: TypeId,
    /// The embedding's value.
    pub object: ForeignId,
}

/// A program nested in a parameter.
#[derive(Clone, Debug)]
pub struct Subprogram {
    /// The embedding's object.
    pub object: ForeignId,
    /// Its program, once resolved.
    pub program: Option<Arc<Program>>,
}

/// Drops nested programs one after another, so that deep nesting does not exhaust the stack.
impl Drop for Subprogram {
    fn drop(&mut self) {
        let mut pending: Vec<_> = self.program.take().into_iter().collect();
        while let Some(program) = pending.pop() {
            if let Some(mut last_owner) = Arc::into_inner(program) {
                let nested = last_owner.subprograms.values_mut();
                pending.extend(nested.filter_map(|subprogram| subprogram.program.take()));
            }
        }
    }
}

/// Where a program comes from, and what its inputs and outputs are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// What it was traced for, as in `jit`.
    pub traced_for: Box<str>,
    /// The traced function and its place in the source.
    pub func_src_info: Box<str>,
    /// The name of each input.
    pub arg_names: Option<Vec<Box<str>>>,
    /// The path of each output in the result's tree.
    pub result_paths: Option<Vec<Box<str>>>,
}

/// An immutable program, made by a [`Builder`](super::Builder).
///
/// Methods that take an id panic where the id is out of the range of its table; an id that came
/// from the same program never is.
#[derive(Clone)]
pub struct Program {
    pub(super) types: Interner<TypeId, Type>,
    pub(super) primitives: FxIndexMap<ForeignId, PrimitiveData>,
    pub(super) params: Interner<ParamsId, Params>,
    pub(super) effect_lists: Interner<EffectsId, Box<[Effect]>>,
    pub(super) sources: PrimaryMap<SourceId, PackedSource>,
    pub(super) contexts: Interner<ContextId, ForeignId>,
    pub(super) subprograms: FxIndexMap<ForeignId, Subprogram>,
    pub(super) literals: PrimaryMap<LiteralId, LiteralData>,
    pub(super) vars: PrimaryMap<Var, PackedVar>,
    pub(super) eqns: PrimaryMap<Eqn, EqnData>,
    /// The operand lists of all equations.
    pub(super) operands: ListPool<Atom>,
    pub(super) invars: Vec<Var>,
    pub(super) constvars: Vec<(Var, ConstId)>,
    pub(super) outvars: Box<[Atom]>,
    /// The effects of the program as a whole.
    pub(super) effects: EffectsId,
    pub(super) debug_info: DebugInfo,
}

impl Default for Program {
    fn default() -> Self {
        Self::empty()
    }
}

impl Program {
    /// A program of nothing, which a builder fills.
    pub(super) fn empty() -> Self {
        let mut effect_lists = Interner::new();
        let none = effect_lists.intern(Box::default());
        debug_assert_eq!(none, EffectsId::NONE);
        Self {
            types: Interner::new(),
            primitives: FxIndexMap::default(),
            params: Interner::new(),
            effect_lists,
            sources: PrimaryMap::new(),
            contexts: Interner::new(),
            subprograms: FxIndexMap::default(),
            literals: PrimaryMap::new(),
            vars: PrimaryMap::new(),
            eqns: PrimaryMap::new(),
            operands: ListPool::new(),
            invars: Vec::new(),
            constvars: Vec::new(),
            outvars: Box::default(),
            effects: EffectsId::NONE,
            debug_info: DebugInfo::default(),
        }
    }

    /// The equations in order.
    pub fn eqns(&self) -> impl ExactSizeIterator<Item = Eqn> + DoubleEndedIterator + use<> {
        self.eqns.keys()
    }

    /// How many equations there are.
    pub fn num_eqns(&self) -> usize {
        self.eqns.len()
    }

    /// An equation.
    #[inline]
    pub fn eqn(&self, eqn: Eqn) -> &EqnData {
        &self.eqns[eqn]
    }

    /// The operands of an equation.
    #[inline]
    pub fn eqn_invars(&self, eqn: Eqn) -> &[Atom] {
        self.eqns[eqn].invars.as_slice(&self.operands)
    }

    /// The outputs of an equation.
    #[inline]
    pub fn eqn_outvars(
        &self,
        eqn: Eqn,
    ) -> impl ExactSizeIterator<Item = Var> + DoubleEndedIterator + Clone + use<> {
        self.eqns[eqn].outvars()
    }

    /// How many variable ids were handed out, those of removed variables included.
    pub fn num_vars(&self) -> usize {
        self.vars.len()
    }

    /// The type and the definition of a variable.
    #[inline]
    pub fn var(&self, var: Var) -> VarData {
        self.vars[var].into()
    }

    /// The type of a variable.
    #[inline]
    pub fn var_type(&self, var: Var) -> TypeId {
        self.vars[var].ty()
    }

    /// The inputs.
    pub fn invars(&self) -> &[Var] {
        &self.invars
    }

    /// The constants, in the order of their creation.
    pub fn constvars(&self) -> &[(Var, ConstId)] {
        &self.constvars
    }

    /// The outputs.
    pub fn outvars(&self) -> &[Atom] {
        &self.outvars
    }

    /// The literals.
    pub fn literal_ids(&self) -> impl ExactSizeIterator<Item = LiteralId> + use<> {
        self.literals.keys()
    }

    /// The effects of the program as a whole.
    pub fn effects(&self) -> EffectsId {
        self.effects
    }

    /// Names and origin.
    pub fn debug_info(&self) -> &DebugInfo {
        &self.debug_info
    }

    /// All types.
    pub fn types(&self) -> impl ExactSizeIterator<Item = (TypeId, &Type)> {
        self.types.iter()
    }

    /// All primitives.
    pub fn primitives(&self) -> impl ExactSizeIterator<Item = (PrimitiveId, &PrimitiveData)> {
        let primitives = self.primitives.values().enumerate();
        primitives.map(|(index, primitive)| (PrimitiveId::new(index), primitive))
    }

    /// All parameters.
    pub fn all_params(&self) -> impl ExactSizeIterator<Item = (ParamsId, &Params)> {
        self.params.iter()
    }

    /// All lists of effects, that of none first.
    pub fn effect_lists(&self) -> impl ExactSizeIterator<Item = (EffectsId, &[Effect])> {
        self.effect_lists.iter().map(|(id, list)| (id, &**list))
    }

    /// All sources.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = (SourceId, Source)> {
        self.sources.iter().map(|(id, &source)| (id, source.into()))
    }

    /// The embedding's objects of all contexts.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = (ContextId, ForeignId)> {
        self.contexts.iter().map(|(id, &context)| (id, context))
    }

    /// A type.
    #[inline]
    pub fn ty(&self, id: TypeId) -> &Type {
        &self.types[id]
    }

    /// A primitive.
    #[inline]
    pub fn primitive(&self, id: PrimitiveId) -> &PrimitiveData {
        &self.primitives[id.index()]
    }

    /// Parameters.
    #[inline]
    pub fn params(&self, id: ParamsId) -> &Params {
        &self.params[id]
    }

    /// A list of effects.
    #[inline]
    pub fn effect_list(&self, id: EffectsId) -> &[Effect] {
        &self.effect_lists[id]
    }

    /// Source information.
    #[inline]
    pub fn source(&self, id: SourceId) -> Source {
        self.sources[id].into()
    }

    /// The embedding's object of a context.
    #[inline]
    pub fn context(&self, id: ContextId) -> ForeignId {
        self.contexts[id]
    }

    /// A literal.
    #[inline]
    pub fn literal(&self, id: LiteralId) -> &LiteralData {
        &self.literals[id]
    }

    /// A nested program.
    #[inline]
    pub fn subprogram(&self, id: SubprogramId) -> &Subprogram {
        &self.subprograms[id.index()]
    }

    /// All nested programs.
    pub fn subprograms(&self) -> impl ExactSizeIterator<Item = (SubprogramId, &Subprogram)> {
        let subprograms = self.subprograms.values().enumerate();
        subprograms.map(|(index, subprogram)| (SubprogramId::new(index), subprogram))
    }

    /// Whether a nested program, however deep, has constants; those not resolved yet are not looked at.
    pub fn has_nested_constants(&self) -> bool {
        let mut seen = FxHashSet::default();
        let mut pending = vec![self];
        while let Some(program) = pending.pop() {
            for within in program.subprograms.values().filter_map(|s| s.program.as_deref()) {
                if !within.constvars.is_empty() {
                    return true;
                }
                if seen.insert(std::ptr::from_ref(within)) {
                    pending.push(within);
                }
            }
        }
        false
    }

    /// The type of an operand.
    #[inline]
    pub fn atom_type(&self, atom: Atom) -> TypeId {
        match atom.kind() {
            AtomKind::Var(var) => self.var_type(var),
            AtomKind::Literal(literal) => self.literals[literal].ty,
        }
    }

    /// About how many bytes the program holds, without its nested programs, which may be shared.
    pub fn memory_bytes(&self) -> usize {
        let Self {
            types,
            primitives,
            params,
            effect_lists,
            sources,
            contexts,
            subprograms,
            literals,
            vars,
            eqns,
            operands,
            invars,
            constvars,
            outvars,
            effects: _,
            debug_info,
        } = self;
        let texts = |texts: &Option<Vec<Box<str>>>| {
            let texts = texts.as_deref().unwrap_or_default();
            size_of_val(texts) + texts.iter().map(|text| text.len()).sum::<usize>()
        };
        let lists = effect_lists.iter().map(|(_, list)| {
            size_of_val::<[_]>(list) + list.iter().map(|effect| effect.name.len()).sum::<usize>()
        });
        size_of::<Self>()
            + types.table_bytes()
            + types.iter().map(|(_, ty)| ty.heap_bytes()).sum::<usize>()
            + index_bytes::<(ForeignId, PrimitiveData)>(primitives.capacity())
            + primitives.values().map(|primitive| primitive.name.len()).sum::<usize>()
            + params.table_bytes()
            + params.iter().map(|(_, params)| params.heap_bytes()).sum::<usize>()
            + effect_lists.table_bytes()
            + lists.sum::<usize>()
            + size_of_val(sources.as_values_slice())
            + contexts.table_bytes()
            + index_bytes::<(ForeignId, Subprogram)>(subprograms.capacity())
            + size_of_val(literals.as_values_slice())
            + size_of_val(vars.as_values_slice())
            + size_of_val(eqns.as_values_slice())
            + operands.capacity() * size_of::<Atom>()
            + invars.capacity() * size_of::<Var>()
            + constvars.capacity() * size_of::<(Var, ConstId)>()
            + size_of_val::<[_]>(outvars)
            + debug_info.traced_for.len()
            + debug_info.func_src_info.len()
            + texts(&debug_info.arg_names)
            + texts(&debug_info.result_paths)
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.types.shrink_to_fit();
        self.primitives.shrink_to_fit();
        self.params.shrink_to_fit();
        self.effect_lists.shrink_to_fit();
        self.sources.shrink_to_fit();
        self.contexts.shrink_to_fit();
        self.subprograms.shrink_to_fit();
        self.literals.shrink_to_fit();
        self.vars.shrink_to_fit();
        self.eqns.shrink_to_fit();
        self.invars.shrink_to_fit();
        self.constvars.shrink_to_fit();
    }
}

impl Index<Eqn> for Program {
    type Output = EqnData;

    #[inline]
    fn index(&self, eqn: Eqn) -> &EqnData {
        self.eqn(eqn)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
