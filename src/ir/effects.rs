//! Effects: what an equation or a program does besides computing its outputs.

use super::ids::{ForeignId, Var};

/// One effect. Lists of effects are interned as [`EffectsId`](super::EffectsId), in the order
/// given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The name of the kind of effect, for text.
    pub name: Box<str>,
    /// The variable it acts on, where it acts on one (reads and writes of a `Ref`).
    pub input: Option<Var>,
    /// The embedding's effect object.
    pub object: ForeignId,
}
