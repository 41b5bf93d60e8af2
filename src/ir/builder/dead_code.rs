//! Counts of references, and the equations and constants that go with the last one.

use std::mem;

use cranelift_entity::{EntitySet, PrimaryMap};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::Builder;
use crate::ir::{
    ids::{ConstId, EffectsId, Eqn, Var},
    program::{Def, Program},
};

/// How many handles and operands of live equations refer to a variable.
#[derive(Clone, Debug)]
pub(super) enum Uses {
    /// Only constants are ever removed.
    OfConstvars(FxHashMap<Var, u32>),
    /// Any variable may be removed.
    OfAll(PrimaryMap<Var, u32>),
}

impl Uses {
    #[inline]
    pub(super) fn get_mut(&mut self, var: Var, def: Def) -> Option<&mut u32> {
        match self {
            Self::OfAll(uses) => uses.get_mut(var),
            Self::OfConstvars(uses) => match def {
                Def::Constvar(_) => uses.get_mut(&var),
                Def::Invar | Def::Eqn(_) | Def::Removed => None,
            },
        }
    }

    #[inline]
    pub(super) fn add(&mut self, var: Var, def: Def) {
        if let Some(uses) = self.get_mut(var, def) {
            *uses = uses.saturating_add(1);
        }
    }
}

impl Builder {
    /// Counts one more outside handle on a variable.
    #[inline]
    pub fn retain(&mut self, var: Var) {
        if let Some(data) = self.program.vars.get(var) {
            self.uses.add(var, data.def());
        }
    }

    /// Counts one handle less on a variable. Each release must follow a retain of its own.
    ///
    /// With the last reference goes a constant, whose value is pushed to `dropped`, and, where dead
    /// code is removed, an equation without effects once none of its outputs is referred to. Its
    /// operands then lose a reference in turn.
    pub fn release(&mut self, var: Var, dropped: &mut Vec<ConstId>) {
        let mut pending: SmallVec<[Var; 16]> = smallvec![var];
        while let Some(var) = pending.pop() {
            let Some(def) = self.program.vars.get(var).map(|data| data.def()) else {
                debug_assert!(false, "{var} is unknown");
                continue;
            };
            let Some(uses) = self.uses.get_mut(var, def) else { continue };
            debug_assert!(*uses > 0, "{var} is released more often than retained");
            if *uses != 1 {
                *uses = uses.saturating_sub(1);
                continue;
            }
            *uses = 0;
            match def {
                Def::Constvar(value) => {
                    self.program.vars[var].set_def(Def::Removed);
                    if let Uses::OfConstvars(uses) = &mut self.uses {
                        uses.remove(&var);
                    }
                    dropped.push(value);
                }
                Def::Eqn(eqn) if self.is_unreferenced(eqn) => {
                    let operands = self.program.eqn_invars(eqn);
                    pending.extend(operands.iter().filter_map(|atom| atom.as_var()));
                    self.mark_removed(eqn);
                }
                Def::Invar | Def::Eqn(_) | Def::Removed => {}
            }
        }
    }

    /// Removes the equations from `first` on, whose outputs nobody holds; as after `release`.
    pub fn retract(&mut self, first: Eqn, dropped: &mut Vec<ConstId>) {
        let end = self.program.eqns.next_key();
        for eqn in (first.as_u32()..end.as_u32()).rev().map(Eqn::from_u32) {
            if !self.is_live(eqn) {
                continue;
            }
            let operands = self.program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var());
            let operands: SmallVec<[Var; 8]> = operands.collect();
            self.mark_removed(eqn);
            for var in operands {
                self.release(var, dropped);
            }
        }
    }

    pub(super) fn is_unreferenced(&self, eqn: Eqn) -> bool {
        let Uses::OfAll(uses) = &self.uses else { return false };
        let data = self.program.eqn(eqn);
        data.effects == EffectsId::NONE && data.outvars().all(|var| uses[var] == 0)
    }

    /// Removes an equation; its row stays until the end, its operand list is free for reuse.
    pub(super) fn mark_removed(&mut self, eqn: Eqn) {
        let Program { eqns, vars, operands, .. } = &mut self.program;
        eqns[eqn].invars.clear(operands);
        for var in eqns[eqn].outvars() {
            vars[var].set_def(Def::Removed);
        }
        self.removed.insert(eqn);
        self.num_removed += 1;
    }
}

/// Drops the rows of removed equations, and says to the variables which rows the others are now.
pub(super) fn compact(program: &mut Program, removed: &EntitySet<Eqn>, num_removed: usize) {
    let mut live = PrimaryMap::with_capacity(program.num_eqns() - num_removed);
    for (eqn, data) in mem::take(&mut program.eqns) {
        if !removed.contains(eqn) {
            for var in data.outvars() {
                program.vars[var].set_def(Def::Eqn(live.next_key()));
            }
            live.push(data);
        }
    }
    program.eqns = live;
}
