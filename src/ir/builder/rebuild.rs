//! Programs under construction again.

use cranelift_entity::{EntityRef, ListPool, PrimaryMap};

use super::{Builder, DeadCode};
use crate::ir::{
    ids::{Atom, AtomKind, EffectsId, LiteralId, TypeId, Var},
    program::{DebugInfo, Def, EqnData, Program},
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

/// Equations of a program whose variables keep their ids, with other rows of tables.
impl Builder {
    /// A builder for the equations of a program, one after the other; their operands are there.
    pub(crate) fn adopting(program: &Program) -> Self {
        let (num_vars, num_eqns) = (program.num_vars(), program.num_eqns());
        let mut builder = Self::with_room(DeadCode::Keep, num_vars, num_eqns);
        builder.program.operands = program.operands.clone();
        builder
    }

    /// Puts this builder's literals in the place of those among the operands of the next equation.
    ///
    /// # Errors
    /// Those of `literal`, which says them.
    pub(crate) fn adopt_operands<E>(
        &mut self,
        data: &EqnData,
        mut literal: impl FnMut(&mut Self, LiteralId) -> Result<LiteralId, E>,
    ) -> Result<(), E> {
        let has_constants = !self.program.constvars.is_empty();
        let mut operands = data.invars;
        for place in 0..operands.len(&self.program.operands) {
            let Some(atom) = operands.get(place, &self.program.operands) else { break };
            match atom.kind() {
                AtomKind::Var(var) if has_constants => {
                    self.uses.add(var, self.program.vars[var].def());
                }
                AtomKind::Var(_) => {}
                AtomKind::Literal(id) => {
                    let own = literal(self, id)?;
                    operands.as_mut_slice(&mut self.program.operands)[place] = Atom::literal(own);
                }
            }
        }
        Ok(())
    }

    /// Appends that equation, with rows of this builder.
    pub(crate) fn adopt_eqn(&mut self, data: EqnData, types: &[TypeId]) {
        let eqn = self.program.eqns.push(data);
        for &ty in types {
            self.push_var(ty, Def::Eqn(eqn));
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
