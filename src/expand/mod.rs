//! The expansion cache, without Python: what a call of a library function appends to a program,
//! remembered under the call's signature.
//!
//! A function of the library is a macro: for the same callable, the same abstract arguments, the
//! same static arguments and the same configuration it appends the same equations. The first call
//! with a [`Signature`] runs, and what it appended is kept as a [`Fragment`]; later calls append the
//! fragment at once. Neither knows what a callable or an equation means: that is the embedding's.

mod cache;
mod fragment;
mod signature;

pub use cache::{Bounds, Cache, CallableId, Counts};
pub use fragment::{Fragment, FragmentError, Operand, Operands, Template, out};
pub use signature::{Local, Signature, Tag};
