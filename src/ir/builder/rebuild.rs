//! Programs under construction again.

use std::mem;

use cranelift_entity::{EntityRef, ListPool, PrimaryMap};

use super::{Builder, DeadCode};
use crate::ir::{
    ids::{EffectsId, Var},
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

impl Builder {
    /// Has the variables, inputs and equations of a program to whose rows this builder has given the same ids,
    /// and nothing else so far.
    pub(crate) fn adopt(&mut self, program: &Program) {
        let own = Program {
            vars: program.vars.clone(),
            eqns: program.eqns.clone(),
            operands: program.operands.clone(),
            invars: program.invars.clone(),
            constvars: program.constvars.clone(),
            ..mem::take(&mut self.program)
        };
        *self = Self::from_program(own, DeadCode::Keep);
        for &(var, _) in &program.constvars {
            self.retain(var);
        }
    }
}

impl Program {
    /// Whether variables are numbered as they are defined, first constants, then inputs, then the outputs
    /// of equations, and none is missing.
    pub(crate) fn is_in_order(&self) -> bool {
        let constvars = self.constvars.iter().map(|&(var, _)| var);
        let inputs = constvars.chain(self.invars.iter().copied()).enumerate();
        let mut next = self.constvars.len() + self.invars.len();
        let are_inputs_in_order = inputs.into_iter().all(|(place, var)| var == Var::new(place));
        are_inputs_in_order
            && self.eqns.values().all(|data| {
                let first = next;
                next += data.num_outvars as usize;
                data.num_outvars == 0 || data.first_outvar.index() == first
            })
            && next == self.vars.len()
    }
}
