//! Unchecked edits of a program, which no builder would make: for tests of the verifier.

use super::{
    effects::Effect,
    ids::{Atom, ConstId, EffectsId, Eqn, LiteralId, ParamsId, SubprogramId, Var},
    params::{ParamValue, Params},
    program::{DebugInfo, EqnData, LiteralData, PackedVar, Program, Subprogram, VarData},
};

/// Mutable access to the rows of a program.
pub struct UncheckedEdit<'p>(pub &'p mut Program);

impl UncheckedEdit<'_> {
    /// The row of an equation, but for its operands.
    pub fn eqn(&mut self, eqn: Eqn) -> &mut EqnData {
        &mut self.0.eqns[eqn]
    }

    /// The operands of an equation.
    pub fn eqn_invars(&mut self, eqn: Eqn) -> &mut [Atom] {
        self.0.eqns[eqn].invars.as_mut_slice(&mut self.0.operands)
    }

    /// Overwrites a variable.
    pub fn set_var(&mut self, var: Var, data: VarData) {
        self.0.vars[var] = PackedVar::new(data.ty, data.def);
    }

    /// The row of a literal.
    pub fn literal(&mut self, literal: LiteralId) -> &mut LiteralData {
        &mut self.0.literals[literal]
    }

    /// The list of inputs.
    pub fn invars(&mut self) -> &mut Vec<Var> {
        &mut self.0.invars
    }

    /// The list of constants.
    pub fn constvars(&mut self) -> &mut Vec<(Var, ConstId)> {
        &mut self.0.constvars
    }

    /// The outputs.
    pub fn outvars(&mut self) -> &mut [Atom] {
        &mut self.0.outvars
    }

    /// The names.
    pub fn debug_info(&mut self) -> &mut DebugInfo {
        &mut self.0.debug_info
    }

    /// The row of a nested program.
    pub fn subprogram(&mut self, id: SubprogramId) -> &mut Subprogram {
        &mut self.0.subprograms[cranelift_entity::EntityRef::index(id)]
    }

    /// Overwrites the effects of the program.
    pub fn set_effects(&mut self, effects: EffectsId) {
        self.0.effects = effects;
    }

    /// Adds a list of effects.
    pub fn add_effects(&mut self, effects: &[Effect]) -> EffectsId {
        self.0.effect_lists.intern_ref(effects)
    }

    /// Adds parameters in the order given.
    pub fn add_params(&mut self, entries: Vec<(Box<str>, ParamValue)>) -> ParamsId {
        self.0.params.intern(Params::new_unchecked(entries))
    }
}
