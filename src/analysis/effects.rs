//! What effects mean to those who ask which equations depend on each other.

use crate::ir::{Def, Effect, Eqn, Program, Type, Var};

/// Effects that only say something, which removing an equation does not change (jax's
/// `dceable_effects`).
fn is_harmless(effect: &Effect) -> bool {
    matches!(&*effect.name, "ReadEffect" | "NamedAxisEffect" | "InternalMutableArrayEffect")
}

/// A set of kinds of effects that happen in the order of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ordered(u8);

impl Ordered {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: [Self; 2] = [Self(1), Self(2)];

    fn of(effect: &Effect) -> Self {
        match &*effect.name {
            "OrderedIOEffect" => Self::ALL[0],
            "OrderedDebugEffect" => Self::ALL[1],
            _ => Self::NONE,
        }
    }

    /// The kinds in it, each by itself.
    pub(super) fn kinds(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(move |kind| kind.and(self)).filter(|kind| !kind.is_none())
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an equation does besides computing.
#[derive(Clone, Debug, Default)]
pub(super) struct Doings {
    /// Somebody outside of the program sees it.
    pub(super) is_seen: bool,
    /// Effects whose order counts.
    pub(super) ordered: Ordered,
    /// Refs that it writes to.
    pub(super) writes: Vec<Var>,
}

/// The effects of an equation; those on Refs that the program has made itself are seen by nobody
/// who does not read these.
pub(super) fn doings(program: &Program, eqn: Eqn) -> Doings {
    let mut doings = Doings::default();
    for effect in program.effect_list(program.eqn(eqn).effects) {
        if is_harmless(effect) {
            continue;
        }
        doings.ordered = doings.ordered.or(Ordered::of(effect));
        if let Some(var) = effect.input {
            doings.is_seen |= !matches!(program.var(var).def, Def::Eqn(_));
            doings.writes.push(var);
            continue;
        }
        doings.is_seen = true;
        if matches!(&*effect.name, "WriteEffect" | "AccumEffect") {
            // It may be on any of its Refs.
            let operands = program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var());
            let is_ref = |var: &Var| matches!(program.ty(program.var_type(*var)), Type::Ref { .. });
            doings.writes.extend(operands.filter(is_ref));
        }
    }
    doings
}
