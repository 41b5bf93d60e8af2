//! The intermediate representation: programs of equations in tables, without any Python.
//!
//! - [`ids`]: the typed ids and [`Atom`], the operand
//! - [`types`], [`params`], [`effects`], [`source`]: what the interned tables hold
//! - [`program`]: the tables and how to read them
//! - [`builder`]: the only way to append
//! - [`mod@verify`]: the invariants and the check of them
//!
//! The crate's front page explains how they belong together.

pub mod builder;
mod display;
pub mod effects;
pub mod ids;
pub mod params;
pub mod program;
pub mod source;
mod table;
#[doc(hidden)]
pub mod testing;
pub mod types;
pub mod verify;

pub use builder::{BuildError, Builder, DeadCode, EqnShape};
pub use effects::Effect;
pub use ids::{
    Atom, AtomKind, ConstId, ContextId, EffectsId, Eqn, ForeignId, LiteralId, ParamsId,
    PrimitiveId, SourceId, SubprogramId, TypeId, Var,
};
pub use params::{DuplicateParam, ParamValue, Params};
pub use program::{
    DebugInfo, Def, EqnData, LiteralData, PrimitiveData, Program, Subprogram, VarData,
};
pub use source::Source;
pub use types::{ArrayType, DType, Dim, Type};
pub use verify::{Place, Violation, ViolationKind, verify};
