//! Where calls are caught.
//!
//! ```text
//! install.rs      switching the interposition on and off
//! bind.rs         `Primitive.bind` while a trace of ours is current
//! trace_class.rs  the class of traces, whose instances are ours while anything is active
//! functions.rs    functions and jits of jax that are caught while a trace of ours may run
//! operators.rs    number slots of the tracer type
//! stand_in.rs     the native callables that stand in for functions and methods
//! code_switch.rs  a function of jax and its two codes
//! ```

pub mod bind;
pub mod code_switch;
pub mod functions;
pub mod install;
pub mod operators;
pub mod stand_in;
pub mod trace_class;
