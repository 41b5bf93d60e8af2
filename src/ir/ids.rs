//! Typed ids: one `u32` newtype per table, whose `Display` is its spelling in the text dump.

use std::fmt;

use cranelift_entity::entity_impl;

macro_rules! ids {
    ($($(#[doc = $doc:literal])+ $name:ident $prefix:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);
        entity_impl!($name, $prefix);
    )+};
}

ids! {
    /// A variable: an input, a constant or an output of an equation. Never renumbered.
    Var "v";
    /// An equation.
    Eqn "eqn";
    /// A literal operand.
    LiteralId "lit";
    /// An interned [`Type`](super::Type).
    TypeId "ty";
    /// A primitive, interned by the embedding's object.
    PrimitiveId "prim";
    /// An interned [`Params`](super::Params).
    ParamsId "params";
    /// An interned list of [`Effect`](super::Effect)s.
    EffectsId "eff";
    /// A [`Source`](super::Source).
    SourceId "src";
    /// An interned handle to the embedding's equation context.
    ContextId "ctx";
    /// The embedding's number for the value of a constant.
    ConstId "const";
    /// A program nested in a parameter, interned by the embedding's object.
    SubprogramId "sub";
    /// An opaque handle to an object that the embedding owns; the IR only compares it.
    ForeignId "obj";
}

impl ForeignId {
    /// The last number, for what no table has.
    pub const LAST: Self = Self(u32::MAX - 1);
}

impl EffectsId {
    /// The empty list of effects, which every program has.
    pub const NONE: Self = Self(0);
}

/// An operand: a variable or a literal, told apart by the top bit of one `u32`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Atom(u32);
entity_impl!(Atom);

/// An [`Atom`], taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomKind {
    /// A variable.
    Var(Var),
    /// A literal.
    Literal(LiteralId),
}

impl Atom {
    const LITERAL_BIT: u32 = 1 << 31;

    /// How many variables an atom can name.
    pub const MAX_VARS: usize = 1 << 31;
    /// How many literals an atom can name; one less, because `u32::MAX` is the reserved value.
    pub const MAX_LITERALS: usize = (1 << 31) - 1;

    /// The atom that names a variable. The id must be below [`Atom::MAX_VARS`], as every id that a
    /// builder hands out is.
    #[inline]
    pub fn var(var: Var) -> Self {
        debug_assert!(var.0 & Self::LITERAL_BIT == 0, "{var} does not fit an atom");
        Self(var.0)
    }

    /// The atom that names a literal. The id must be below [`Atom::MAX_LITERALS`], as every id that
    /// a builder hands out is.
    #[inline]
    pub fn literal(literal: LiteralId) -> Self {
        debug_assert!(literal.0 & Self::LITERAL_BIT == 0, "{literal} does not fit an atom");
        Self(literal.0 | Self::LITERAL_BIT)
    }

    /// Which of the two it is.
    #[inline]
    pub fn kind(self) -> AtomKind {
        if self.0 & Self::LITERAL_BIT == 0 {
            AtomKind::Var(Var(self.0))
        } else {
            AtomKind::Literal(LiteralId(self.0 & !Self::LITERAL_BIT))
        }
    }

    /// The variable, if it is one.
    #[inline]
    pub fn as_var(self) -> Option<Var> {
        match self.kind() {
            AtomKind::Var(var) => Some(var),
            AtomKind::Literal(_) => None,
        }
    }

    /// The literal, if it is one.
    #[inline]
    pub fn as_literal(self) -> Option<LiteralId> {
        match self.kind() {
            AtomKind::Var(_) => None,
            AtomKind::Literal(literal) => Some(literal),
        }
    }
}

impl From<Var> for Atom {
    fn from(var: Var) -> Self {
        Self::var(var)
    }
}

impl From<LiteralId> for Atom {
    fn from(literal: LiteralId) -> Self {
        Self::literal(literal)
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            AtomKind::Var(var) => var.fmt(f),
            AtomKind::Literal(literal) => literal.fmt(f),
        }
    }
}

impl fmt::Debug for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
