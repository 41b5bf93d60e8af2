//! The text of programs, as jax prints jaxprs.
//!
//! What jax's text says, and in which order its variables get their names, is in [`jaxpr`]; how text is
//! broken into lines in [`layout`]. Texts of objects that only the embedding knows it gives, by
//! [`Texts`]; [`Plain`] does without.

mod jaxpr;
mod layout;
mod names;
mod plain;

pub use jaxpr::{
    EqnText, Limits, Param, ParamText, Settings, Texts, VariableNames, Wanted, print, print_eqns,
    variable_names,
};
pub use layout::{Options, Stop};
pub use names::Identity;
pub use plain::{Plain, TooDeep};
