//! Ids are checked against the tables of the program under construction.

use std::fmt;

use cranelift_entity::EntityRef;

use super::{BuildError, Builder};
use crate::ir::{
    ids::{Atom, AtomKind, EffectsId, TypeId, Var},
    program::Def,
};

impl Builder {
    #[inline]
    pub(super) fn check_type(&self, ty: TypeId) -> Result<(), BuildError> {
        check_id("types", ty, self.program.types.len())
    }

    /// Whether it is a constant.
    #[inline]
    pub(super) fn check_var(&self, var: Var) -> Result<bool, BuildError> {
        match self.program.vars.get(var).map(|data| data.def()) {
            None => Err(BuildError::UnknownVar(var)),
            Some(Def::Removed) => Err(BuildError::RemovedVar(var)),
            Some(Def::Constvar(_)) => Ok(true),
            Some(Def::Invar | Def::Eqn(_)) => Ok(false),
        }
    }

    /// Whether it is a constant.
    #[inline]
    pub(super) fn check_atom(&self, atom: Atom) -> Result<bool, BuildError> {
        match atom.kind() {
            AtomKind::Var(var) => self.check_var(var),
            AtomKind::Literal(literal) => {
                check_id("literals", literal, self.program.literals.len())?;
                Ok(false)
            }
        }
    }

    #[inline]
    pub(super) fn check_effects(&self, effects: EffectsId) -> Result<(), BuildError> {
        if effects == EffectsId::NONE {
            return Ok(());
        }
        check_id("effect lists", effects, self.program.effect_lists.len())?;
        let mut inputs = self.program.effect_list(effects).iter().filter_map(|effect| effect.input);
        inputs.try_for_each(|input| self.check_var(input).map(drop))
    }
}

#[inline]
pub(super) fn check_id<K: EntityRef + fmt::Display>(
    table: &'static str,
    id: K,
    len: usize,
) -> Result<(), BuildError> {
    if id.index() < len {
        return Ok(());
    }
    Err(BuildError::UnknownId { table, id: id.to_string(), len })
}

#[inline]
pub(super) fn check_room(
    what: &'static str,
    len: usize,
    additional: usize,
    limit: usize,
) -> Result<(), BuildError> {
    if additional <= limit.saturating_sub(len) {
        return Ok(());
    }
    Err(BuildError::TooMany { what, limit })
}
