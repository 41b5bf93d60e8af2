//! The expansion cache at work: calls of the library caught, keyed, recorded and replayed.
//!
//! ```text
//! appended.rs  what was appended to a program under construction
//! audit.rs     replays compared with what jax does
//! backward.rs  transposing a linear program, equation by equation
//! derivations.rs  what jax makes of a program and keeps with it
//! encode.rs    the arguments of a call as a signature
//! now.rs       the trace, the configuration and the source info at the moment of a call
//! owned.rs     what is known of the params of fragments' equations
//! programs.rs  programs among the params of a rule, by what they say
//! renewed.rs   params that jax makes anew at each call
//! record.rs    what a call appended, as a fragment with its Python objects
//! result.rs    what a call returned, as a recipe
//! replay.rs    appending a fragment to a frame, making the result
//! script.rs    the user's code alone, for benches
//! stack.rs     calls under transformations
//! store.rs     the cache of the process: entries, counts, bounds
//! shared.rs    one object for all that are equal
//! site.rs      one callable that is caught, and the life of one call
//! caught.rs    the native callables that stand in for functions and methods
//! operators.rs number slots of the tracer type
//! switch.rs    functions and jits of jax that are caught while a trace of ours may run
//! rule.rs      rules of jax under transformations
//! transparent.rs  functions of the user that are part of a call's arguments
//! twins.rs     programs that a rule makes of those it is given
//! ```

pub mod appended;
pub mod audit;
pub mod backward;
pub mod caught;
pub mod classes;
pub mod derivations;
pub mod encode;
pub mod now;
pub mod operators;
pub mod owned;
pub mod pins;
pub mod programs;
pub mod record;
pub mod renewed;
pub mod replay;
pub mod result;
pub mod rule;
pub mod script;
pub mod shared;
pub mod site;
pub mod stack;
pub mod store;
pub mod switch;
pub mod transparent;
pub mod twins;
