//! Where calls are interposed.
//!
//! ```text
//! install.rs      putting the interposition in place, and taking it away
//! bind.rs         `Primitive.bind` while a trace of ours is current
//! evaluate.rs     `core.eval_jaxpr` while a trace of ours may run
//! trace_class.rs  the class of traces, whose instances are ours while anything is active
//! functions.rs    functions and jits of jax that are interposed while a trace of ours may run
//! operators.rs    number slots of the tracer type
//! stand_in.rs     the native callables that stand in for functions and methods
//! code_patch.rs   a function of jax and its two codes
//! ```

pub mod bind;
pub mod code_patch;
pub mod evaluate;
pub mod functions;
pub mod install;
pub mod operators;
pub mod stand_in;
pub mod trace_class;
