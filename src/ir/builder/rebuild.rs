//! Programs under construction again.

use cranelift_entity::{ListPool, PrimaryMap};

use super::{Builder, DeadCode};
use crate::ir::{
    ids::EffectsId,
    program::{DebugInfo, Def, Program},
};

impl Program {
    /// Starts the program anew: the tables, inputs and constants are there, the equations are not.
    /// Variables keep their ids, so [`Builder::append_again`] can define those of equations.
    pub fn rebuild(&self) -> Builder {
        let mut vars = self.vars.clone();
        for eqn in self.eqns.values() {
            for var in eqn.outvars() {
                vars[var].set_def(Def::Removed);
            }
        }
        let program = Self {
            types: self.types.clone(),
            primitives: self.primitives.clone(),
            params: self.params.clone(),
            effect_lists: self.effect_lists.clone(),
            sources: self.sources.clone(),
            contexts: self.contexts.clone(),
            subprograms: self.subprograms.clone(),
            literals: self.literals.clone(),
            vars,
            eqns: PrimaryMap::with_capacity(self.eqns.len()),
            operands: ListPool::new(),
            invars: self.invars.clone(),
            constvars: self.constvars.clone(),
            outvars: Box::default(),
            effects: EffectsId::NONE,
            debug_info: DebugInfo::default(),
        };
        let mut builder = Builder::from_program(program, DeadCode::Keep);
        for &(var, _) in &self.constvars {
            // The program's own handle: constants stay where nobody removes them.
            builder.retain(var);
        }
        builder
    }

    /// Goes on appending. The outputs, effects and names are forgotten, and no handle is counted:
    /// the embedding retains what it refers to before it releases anything.
    pub fn into_builder(mut self, dce: DeadCode) -> Builder {
        self.outvars = Box::default();
        self.effects = EffectsId::NONE;
        self.debug_info = DebugInfo::default();
        Builder::from_program(self, dce)
    }
}
