//! jaxide: a Rust-accelerated tracer for JAX.
//!
//! The crate owns the intermediate representation (IR) of jax programs. It has no Python in it:
//! only the `python` feature adds the extension module, and with it everything that knows what a
//! Python object is. This page explains the IR, [`ir`], from the outside in.
//!
//! # A program is a list of equations
//!
//! A jaxpr is a list of equations in A-normal form. Each applies a *primitive* to *operands* and
//! binds the results to fresh *variables*:
//!
//! ```text
//! program0 { lambda v1:f32[3]=const0; v0:f32[3]. let
//!     v2:f32[3] = mul v0 v1  # src0 ctx0
//!     v3:f32[3] = add v2 lit0:f32[]  # src1 ctx0
//!   in (v3) }
//! ```
//!
//! Variables are of three kinds: *inputs* (invars), *constants* (constvars), which stand for arrays
//! that the traced function captured, and *outputs* of equations. An operand, an [`ir::Atom`], is a
//! variable or a *literal*: a scalar that is part of the program's text. The outputs of the program
//! are atoms too. Beside its operands an equation has *parameters*, which are fixed when the
//! program is traced; *effects*, for what it does besides computing; a *source*, the place in the
//! user's code that it comes from; and a *context*, the settings that were active there. A
//! parameter can be another program: loop bodies, branches and called functions nest in this way.
//!
//! # An arena of tables
//!
//! A [`Program`](ir::Program) is a handful of tables, one for each kind of thing, and a thing is
//! named by its row: a `u32`, wrapped in a type of its own for each table ([`ir::Eqn`],
//! [`ir::Var`], [`ir::TypeId`] and so on), so that a row of one cannot be looked up in another by
//! mistake. How an id is displayed is how it is spelled in the text above. There are no pointers
//! between equations and nothing to collect: an equation is 32 bytes, its operands are a slice of
//! one pool that all equations share, its outputs are consecutive variables, so that the first and
//! their number say it all, and a variable is 8 bytes: its type and its definition. One operand and
//! one result make 56 bytes, where the same equation in Python is about a kilobyte of
//! garbage-collected objects.
//!
//! What repeats is *interned*: equal types, parameters, lists of effects and contexts have the same
//! id, so that comparing ids compares values, and a table indexed by type ids can answer for a type
//! what was computed for it before.
//!
//! # What the IR does not know
//!
//! Some of what a jaxpr refers to has no meaning here: the object of a primitive, a traceback, the
//! value of a constant, a function in a parameter. The IR holds a [`ForeignId`](ir::ForeignId) or a
//! [`ConstId`](ir::ConstId) for it, a number that the embedding chose and whose object the
//! embedding keeps. The IR compares these numbers and never asks what they stand for. Whatever
//! *can* be said without the embedding is said: a type is dtype, shape and whatever else jax
//! tracks, a parameter is a canonical value, down to the bits of its floats.
//!
//! # Built once, then immutable
//!
//! The [`Builder`](ir::Builder) is the only way to append. It refuses what would not be a program,
//! by an error that is plain data: an operand that is not defined yet, an id of another program, a
//! table that is full. What it finishes needs no further checks, and rows are then looked up
//! infallibly. [`verify`](ir::verify()) states the invariants and checks them all. Passes that
//! rewrite programs run it on what they made.
//!
//! While it builds, it counts who refers to what. A trace hands out *handles* on variables
//! (tracers), and a constant that neither a handle nor an equation refers to any longer is dropped
//! at once, so that tracing does not keep arrays alive. Where jax asks for it (the tangent programs
//! of linearization) equations go the same way: one that nothing refers to is removed, then
//! whatever only it referred to, and so on. What is left depends on when handles go, exactly as in
//! jax, whose own trace leaves this to Python's reference counts.
//!
//! Variables are never renumbered, so that an embedding can keep tables beside the program, indexed
//! by variable. A variable that was removed leaves a gap.

// Whoever needs `unsafe` is in `python`. Without that feature nothing may allow it.
#![cfg_attr(not(feature = "python"), forbid(unsafe_code))]
#![cfg_attr(feature = "python", deny(unsafe_code))]

pub mod analysis;
pub mod diff;
pub mod expand;
pub mod ir;
pub mod passes;
pub mod print;
pub mod segments;
pub mod store;
pub mod structure;
// All of it is private: `pub` there means visible to its other modules.
#[allow(unreachable_pub, unsafe_code)]
#[cfg(feature = "python")]
mod python;
