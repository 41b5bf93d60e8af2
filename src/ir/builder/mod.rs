//! The builder: the only way to append to a program.
//!
//! ```text
//! checks.rs     ids are checked against the tables
//! dead_code.rs  counts of references, and what goes with the last one
//! rebuild.rs    a finished program under construction again
//! ```

mod checks;
mod dead_code;
mod rebuild;

use std::sync::Arc;

use cranelift_entity::{EntityList, EntityRef, EntitySet};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thiserror::Error;

use checks::{check_id, check_room};
use dead_code::{Uses, compact};

use super::{
    effects::Effect,
    ids::{
        Atom, AtomKind, ConstId, ContextId, EffectsId, Eqn, ForeignId, LiteralId, ParamsId,
        PrimitiveId, SourceId, SubprogramId, TypeId, Var,
    },
    params::Params,
    program::{
        DebugInfo, Def, EqnData, LiteralData, PackedVar, PrimitiveData, Program, Subprogram,
        VarData,
    },
    source::{RecentSources, Source},
    types::Type,
};

/// Why the builder refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A variable that the program does not have (yet).
    #[error("{0} is not defined")]
    UnknownVar(Var),
    /// A variable whose definition was removed because nothing referred to it.
    #[error("{0} was removed")]
    RemovedVar(Var),
    /// Any other id that is out of the range of its table.
    #[error("{id} is not in the table of {len} {table}")]
    UnknownId {
        /// What the table holds.
        table: &'static str,
        /// The id, as printed.
        id: String,
        /// How many rows the table has.
        len: usize,
    },
    /// An equation with other than one output, of a primitive with a single result.
    #[error("{primitive} has a single result, but its equation has {found} outputs")]
    OutputCount {
        /// The primitive.
        primitive: PrimitiveId,
        /// How many outputs the equation was to have.
        found: usize,
    },
    /// The ids of a table are used up.
    #[error("a program cannot have more {what} than {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many fit.
        limit: usize,
    },
}

/// What becomes of an equation without effects that nothing refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadCode {
    /// It stays.
    Keep,
    /// It is removed, as under jax's `auto_dce`.
    RemoveUnreferenced,
}

/// What an equation of one program consists of besides its operands and its source.
#[derive(Clone, Debug)]
pub struct EqnShape {
    primitive: PrimitiveId,
    params: ParamsId,
    effects: EffectsId,
    context: ContextId,
    out_types: SmallVec<[TypeId; 2]>,
}

impl EqnShape {
    /// The shape with other parameters, which the same builder made.
    #[must_use]
    pub fn with_params(&self, params: ParamsId) -> Self {
        Self { params, ..self.clone() }
    }

    /// The shape with other effects, which the same builder interned.
    #[must_use]
    pub fn with_effects(&self, effects: EffectsId) -> Self {
        Self { effects, ..self.clone() }
    }
}

/// A program under construction.
///
/// Methods that take an id and do not return a `Result` panic where the id is out of the range of
/// its table; an id that came from the same builder never is.
#[derive(Clone, Debug)]
pub struct Builder {
    program: Program,
    recent_sources: RecentSources,
    uses: Uses,
    removed: EntitySet<Eqn>,
    num_removed: usize,
}

impl Builder {
    /// Starts an empty program.
    pub fn new(dce: DeadCode) -> Self {
        Self::from_program(Program::empty(), dce)
    }

    /// As `new`, with room for so many variables and equations. What is left of it at the end is given
    /// back.
    pub fn with_room(dce: DeadCode, num_vars: usize, num_eqns: usize) -> Self {
        let mut builder = Self::new(dce);
        builder.program.vars.reserve(num_vars);
        builder.program.eqns.reserve(num_eqns);
        if let Uses::OfAll(uses) = &mut builder.uses {
            uses.reserve(num_vars);
        }
        builder
    }

    /// Makes room for so many equations, with an output each.
    pub fn reserve(&mut self, num_eqns: usize) {
        self.program.vars.reserve(num_eqns);
        self.program.eqns.reserve(num_eqns);
    }

    pub(super) fn from_program(program: Program, dce: DeadCode) -> Self {
        let mut uses = match dce {
            DeadCode::Keep => {
                Uses::OfConstvars(program.constvars.iter().map(|&(var, _)| (var, 0)).collect())
            }
            DeadCode::RemoveUnreferenced => Uses::OfAll(program.vars.values().map(|_| 0).collect()),
        };
        let may_count = !matches!(&uses, Uses::OfConstvars(uses) if uses.is_empty());
        for eqn in program.eqns().filter(|_| may_count) {
            for var in program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var()) {
                uses.add(var, program.vars[var].def());
            }
        }
        Self {
            program,
            recent_sources: RecentSources::new(),
            uses,
            removed: EntitySet::new(),
            num_removed: 0,
        }
    }

    /// Interns a type.
    pub fn ty(&mut self, ty: Type) -> TypeId {
        self.program.types.intern(ty)
    }

    /// The type of a variable.
    #[inline]
    pub fn type_of(&self, var: Var) -> TypeId {
        self.program.var_type(var)
    }

    /// A type.
    pub fn ty_data(&self, id: TypeId) -> &Type {
        self.program.ty(id)
    }

    /// Interns a primitive by the embedding's object; the name and kind first given stay.
    pub fn primitive(
        &mut self,
        name: &str,
        multiple_results: bool,
        object: ForeignId,
    ) -> PrimitiveId {
        let entry = self.program.primitives.entry(object);
        let id = PrimitiveId::new(entry.index());
        entry.or_insert_with(|| PrimitiveData { name: name.into(), multiple_results, object });
        id
    }

    /// Interns parameters.
    pub fn params(&mut self, params: Params) -> ParamsId {
        self.program.params.intern(params)
    }

    /// Interns parameters by the embedding's object, yet to be resolved.
    pub fn deferred_params(&mut self, object: ForeignId) -> ParamsId {
        self.program.params.intern(Params::deferred(object))
    }

    /// Parameters of equations whose content is not known yet.
    pub fn unresolved_params(&self) -> Vec<ParamsId> {
        let mut met: EntitySet<ParamsId> = EntitySet::with_capacity(self.program.params.len());
        let ids = self.program.eqns.values().map(|data| data.params);
        let first = ids.filter(|&id| met.insert(id));
        first.filter(|&id| self.program.params[id].deferred_object().is_some()).collect()
    }

    /// Says what deferred parameters are. Of equal ones, equations have the first from now on. No id
    /// comes to stand for others: who took the program before may ask for the parameters it knows.
    pub fn resolve_params(&mut self, known: impl IntoIterator<Item = (ParamsId, Params)>) {
        let params = &mut self.program.params;
        let mut moved = FxHashMap::default();
        for (id, content) in known {
            if let Err(first) = params.replace(id, content) {
                moved.insert(id, first);
            }
        }
        for data in self.program.eqns.values_mut() {
            data.params = moved.get(&data.params).copied().unwrap_or(data.params);
        }
    }

    /// Interns a list of effects, in the order given.
    pub fn effects(&mut self, effects: &[Effect]) -> EffectsId {
        self.program.effect_lists.intern_ref(effects)
    }

    /// Adds source information, unless it is equal to a recent one.
    #[inline]
    pub fn source(&mut self, source: Source) -> SourceId {
        self.recent_sources.intern(source.into(), &mut self.program.sources)
    }

    /// Interns an equation context by the embedding's object.
    pub fn context(&mut self, object: ForeignId) -> ContextId {
        self.program.contexts.intern(object)
    }

    /// Interns a nested program by the embedding's object, yet to be resolved.
    pub fn subprogram(&mut self, object: ForeignId) -> SubprogramId {
        let entry = self.program.subprograms.entry(object);
        let id = SubprogramId::new(entry.index());
        entry.or_insert(Subprogram { object, program: None });
        id
    }

    /// Lets go of nested programs that no equation runs; their ids stay, and stand for nothing.
    pub fn forget_unused_programs(&mut self) {
        let program = &mut self.program;
        if program.subprograms.is_empty() {
            return;
        }
        let mut params: EntitySet<ParamsId> = EntitySet::with_capacity(program.params.len());
        let mut used: EntitySet<SubprogramId> = EntitySet::new();
        for data in program.eqns.values() {
            if params.insert(data.params) {
                used.extend(program.params[data.params].subprograms());
            }
        }
        for (index, subprogram) in program.subprograms.values_mut().enumerate() {
            if !used.contains(SubprogramId::new(index)) {
                subprogram.program = None;
            }
        }
    }

    /// Says what a nested program is.
    pub fn resolve_subprogram(&mut self, id: SubprogramId, program: Arc<Program>) {
        self.program.subprograms[id.index()].program = Some(program);
    }

    /// Appends a literal.
    ///
    /// # Errors
    /// When the type is unknown or the ids are used up.
    pub fn literal(&mut self, ty: TypeId, object: ForeignId) -> Result<LiteralId, BuildError> {
        self.check_type(ty)?;
        check_room("literals", self.program.literals.len(), 1, Atom::MAX_LITERALS)?;
        Ok(self.program.literals.push(LiteralData { ty, object }))
    }

    /// Appends a literal that is equal to another one.
    ///
    /// # Errors
    /// When the other one is unknown or the ids are used up.
    pub fn copy_literal(&mut self, id: LiteralId) -> Result<LiteralId, BuildError> {
        check_id("literals", id, self.program.literals.len())?;
        check_room("literals", self.program.literals.len(), 1, Atom::MAX_LITERALS)?;
        let data = self.program.literals[id];
        Ok(self.program.literals.push(data))
    }

    /// Appends an input; equations may come before it.
    ///
    /// # Errors
    /// When the type is unknown or the ids are used up.
    pub fn invar(&mut self, ty: TypeId) -> Result<Var, BuildError> {
        self.check_type(ty)?;
        check_room("variables", self.program.vars.len(), 1, Atom::MAX_VARS)?;
        let var = self.push_var(ty, Def::Invar);
        self.program.invars.push(var);
        Ok(var)
    }

    /// Appends a constant. It lives while it has a handle or is an operand of a live equation.
    ///
    /// # Errors
    /// When the type is unknown or the ids are used up.
    pub fn constvar(&mut self, ty: TypeId, value: ConstId) -> Result<Var, BuildError> {
        self.check_type(ty)?;
        check_room("variables", self.program.vars.len(), 1, Atom::MAX_VARS)?;
        check_room("constants", value.index(), 1, PackedVar::MAX_DEFS)?;
        let var = self.push_var(ty, Def::Constvar(value));
        if let Uses::OfConstvars(uses) = &mut self.uses {
            uses.insert(var, 0);
        }
        self.program.constvars.push((var, value));
        Ok(var)
    }

    /// Appends an equation. Its outputs are the next variables. It is not checked for handles:
    /// [`Builder::retain`] follows for each output, and only [`Builder::release`] removes. But
    /// where dead code is removed, an equation without outputs and effects is dead on arrival.
    ///
    /// # Errors
    /// When an id is unknown, an operand was removed, the number of outputs is not the primitive's,
    /// or the ids are used up. The builder is then as it was before.
    #[expect(clippy::too_many_arguments, reason = "the fields of an equation")]
    pub fn eqn(
        &mut self,
        primitive: PrimitiveId,
        params: ParamsId,
        invars: &[Atom],
        out_types: &[TypeId],
        effects: EffectsId,
        source: SourceId,
        context: ContextId,
    ) -> Result<Eqn, BuildError> {
        self.check_shape(primitive, params, out_types, effects, context)?;
        let data = EqnData {
            primitive,
            params,
            effects,
            source,
            context,
            invars: EntityList::new(),
            first_outvar: self.program.vars.next_key(),
            num_outvars: 0,
        };
        self.append(data, invars, out_types)
    }

    /// Checks what an equation consists of besides its operands and its source, for any number of
    /// equations of this program.
    ///
    /// # Errors
    /// When an id is unknown, or the number of outputs is not the primitive's.
    pub fn shape(
        &self,
        primitive: PrimitiveId,
        params: ParamsId,
        out_types: &[TypeId],
        effects: EffectsId,
        context: ContextId,
    ) -> Result<EqnShape, BuildError> {
        self.check_shape(primitive, params, out_types, effects, context)?;
        Ok(EqnShape { primitive, params, effects, context, out_types: out_types.into() })
    }

    fn check_shape(
        &self,
        primitive: PrimitiveId,
        params: ParamsId,
        out_types: &[TypeId],
        effects: EffectsId,
        context: ContextId,
    ) -> Result<(), BuildError> {
        let program = &self.program;
        check_id("primitives", primitive, program.primitives.len())?;
        check_id("parameter lists", params, program.params.len())?;
        check_id("contexts", context, program.contexts.len())?;
        self.check_effects(effects)?;
        for &ty in out_types {
            self.check_type(ty)?;
        }
        if out_types.len() != 1 && !program.primitive(primitive).multiple_results {
            return Err(BuildError::OutputCount { primitive, found: out_types.len() });
        }
        Ok(())
    }

    /// Appends an equation, as [`Builder::eqn`], of a shape that this builder checked.
    ///
    /// # Errors
    /// When an operand or the source is unknown, an operand was removed, or the ids are used up.
    pub fn eqn_of(
        &mut self,
        shape: &EqnShape,
        invars: &[Atom],
        source: SourceId,
    ) -> Result<Eqn, BuildError> {
        let data = EqnData {
            primitive: shape.primitive,
            params: shape.params,
            effects: shape.effects,
            source,
            context: shape.context,
            invars: EntityList::new(),
            first_outvar: self.program.vars.next_key(),
            num_outvars: 0,
        };
        self.append(data, invars, &shape.out_types)
    }

    /// Appends an equation with these operands and outputs.
    #[inline]
    fn append(
        &mut self,
        mut data: EqnData,
        invars: &[Atom],
        out_types: &[TypeId],
    ) -> Result<Eqn, BuildError> {
        let program = &self.program;
        check_id("sources", data.source, program.sources.len())?;
        let mut counted = matches!(self.uses, Uses::OfAll(_));
        for &atom in invars {
            counted |= self.check_atom(atom)?;
        }
        check_room("equations", program.eqns.len(), 1, PackedVar::MAX_DEFS)?;
        check_room("variables", program.vars.len(), out_types.len(), Atom::MAX_VARS)?;
        // The pool addresses its slots by `u32`; a list takes at most twice its length and 4 more.
        let slots = invars.len().saturating_mul(2).saturating_add(4);
        check_room("operands", program.operands.capacity(), slots, u32::MAX as usize)?;

        data.num_outvars = u32::try_from(out_types.len())
            .map_err(|_| BuildError::TooMany { what: "outputs", limit: u32::MAX as usize })?;

        let eqn = program.eqns.next_key();
        for &ty in out_types {
            self.push_var(ty, Def::Eqn(eqn));
        }
        let dead_on_arrival = out_types.is_empty()
            && data.effects == EffectsId::NONE
            && matches!(self.uses, Uses::OfAll(_));
        data.invars = EntityList::from_slice(invars, &mut self.program.operands);
        self.program.eqns.push(data);
        if dead_on_arrival {
            // Its operands were never counted as used by it.
            self.mark_removed(eqn);
        } else if counted {
            for &atom in invars {
                if let AtomKind::Var(var) = atom.kind() {
                    self.uses.add(var, self.program.vars[var].def());
                }
            }
        }
        Ok(eqn)
    }

    /// Appends an equation of the program that this one is a rebuilding of, with these operands; its
    /// outputs are the same variables.
    ///
    /// # Errors
    /// When an operand is unknown or was removed, or the ids are used up.
    pub fn append_again(&mut self, data: &EqnData, invars: &[Atom]) -> Result<Eqn, BuildError> {
        let program = &self.program;
        check_id("primitives", data.primitive, program.primitives.len())?;
        check_id("parameter lists", data.params, program.params.len())?;
        check_id("sources", data.source, program.sources.len())?;
        check_id("contexts", data.context, program.contexts.len())?;
        self.check_effects(data.effects)?;
        let mut has_constants = false;
        for &atom in invars {
            has_constants |= self.check_atom(atom)?;
        }
        for var in data.outvars() {
            check_id("variables", var, program.vars.len())?;
        }
        check_room("equations", program.eqns.len(), 1, PackedVar::MAX_DEFS)?;
        let eqn = program.eqns.next_key();
        for var in data.outvars() {
            debug_assert_eq!(self.program.vars[var].def(), Def::Removed, "{var} is defined twice");
            self.program.vars[var].set_def(Def::Eqn(eqn));
        }
        let list = EntityList::from_slice(invars, &mut self.program.operands);
        self.program.eqns.push(EqnData { invars: list, ..data.clone() });
        if has_constants {
            for var in invars.iter().filter_map(|atom| atom.as_var()) {
                self.uses.add(var, self.program.vars[var].def());
            }
        }
        Ok(eqn)
    }

    /// The first output of an equation and how many there are.
    #[inline]
    pub fn outvars_of(&self, eqn: Eqn) -> (Var, u32) {
        let data = self.program.eqn(eqn);
        (data.first_outvar, data.num_outvars)
    }

    /// How many equations were appended, removed ones included.
    pub fn num_appended(&self) -> usize {
        self.program.num_eqns()
    }

    /// How many variables there are, removed ones included.
    pub fn num_vars(&self) -> usize {
        self.program.vars.len()
    }

    /// The variable that comes next.
    pub fn next_var(&self) -> Var {
        self.program.vars.next_key()
    }

    /// How many equations live.
    pub fn num_eqns(&self) -> usize {
        self.program.num_eqns() - self.num_removed
    }

    /// An equation; a removed one has no operands.
    #[inline]
    pub fn eqn_data(&self, eqn: Eqn) -> &EqnData {
        self.program.eqn(eqn)
    }

    /// Gives an equation other params.
    pub fn set_params(&mut self, eqn: Eqn, params: ParamsId) {
        self.program.eqns[eqn].params = params;
    }

    /// The operands of an equation; none where it was removed.
    #[inline]
    pub fn eqn_invars(&self, eqn: Eqn) -> &[Atom] {
        self.program.eqn_invars(eqn)
    }

    /// Whether an equation was not removed.
    #[inline]
    pub fn is_live(&self, eqn: Eqn) -> bool {
        !self.removed.contains(eqn)
    }

    /// The live equations in order.
    pub fn live_eqns(&self) -> impl DoubleEndedIterator<Item = Eqn> {
        self.program.eqns().filter(|&eqn| self.is_live(eqn))
    }

    /// The type and the definition of a variable.
    #[inline]
    pub fn var(&self, var: Var) -> VarData {
        self.program.var(var)
    }

    /// The inputs.
    pub fn invars(&self) -> &[Var] {
        self.program.invars()
    }

    /// The live constants, in the order of their creation.
    pub fn constvars(&self) -> impl DoubleEndedIterator<Item = (Var, ConstId)> {
        self.program.constvars.iter().copied().filter(|&(var, _)| self.is_constvar(var))
    }

    /// A primitive.
    pub fn primitive_data(&self, id: PrimitiveId) -> &PrimitiveData {
        self.program.primitive(id)
    }

    /// Parameters.
    pub fn params_data(&self, id: ParamsId) -> &Params {
        self.program.params(id)
    }

    /// A list of effects.
    pub fn effect_list(&self, id: EffectsId) -> &[Effect] {
        self.program.effect_list(id)
    }

    /// Source information.
    pub fn source_data(&self, id: SourceId) -> Source {
        self.program.source(id)
    }

    /// The embedding's object of a context.
    pub fn context_object(&self, id: ContextId) -> ForeignId {
        self.program.context(id)
    }

    /// A literal.
    pub fn literal_data(&self, id: LiteralId) -> &LiteralData {
        self.program.literal(id)
    }

    /// Nested programs whose content is not known yet.
    pub fn unresolved_subprograms(&self) -> Vec<SubprogramId> {
        self.program
            .subprograms()
            .filter(|(_, subprogram)| subprogram.program.is_none())
            .map(|(id, _)| id)
            .collect()
    }

    /// A nested program.
    pub fn subprogram_data(&self, id: SubprogramId) -> &Subprogram {
        self.program.subprogram(id)
    }

    /// Ends the program: drops the rows of removed equations and constants. Variables keep their
    /// ids, equations do not.
    ///
    /// # Errors
    /// When an output or an effect is unknown or was removed.
    pub fn finish(
        self,
        outvars: &[Atom],
        debug: DebugInfo,
        effects: EffectsId,
    ) -> Result<Program, BuildError> {
        for &atom in outvars {
            self.check_atom(atom)?;
        }
        self.check_effects(effects)?;
        let mut program = self.program;
        if self.num_removed > 0 {
            compact(&mut program, &self.removed, self.num_removed);
        }
        let vars = &program.vars;
        program.constvars.retain(|&(var, _)| matches!(vars[var].def(), Def::Constvar(_)));
        program.outvars = outvars.into();
        program.effects = effects;
        program.debug_info = debug;
        program.shrink_to_fit();
        Ok(program)
    }

    #[inline]
    fn push_var(&mut self, ty: TypeId, def: Def) -> Var {
        if let Uses::OfAll(uses) = &mut self.uses {
            uses.push(0);
        }
        self.program.vars.push(PackedVar::new(ty, def))
    }

    fn is_constvar(&self, var: Var) -> bool {
        matches!(self.program.vars[var].def(), Def::Constvar(_))
    }
}
