//! The expansion cache: calls of the library are keyed, recorded and replayed.
//!
//! ```text
//! call.rs              the life of one call: found and replayed, or run and recorded
//! key/                 what a replay rests on, as a key
//! fragment/            what a call appended and returned, and appending that again
//! programs/            programs among the params of a call, by their structure
//! store.rs             the cache of the process: entries, counts, bounds
//! rules.rs             rules of jax under transformations
//! backward_pass.rs     transposing a linear program, equation by equation
//! linear_program.rs    the equations of one, read once
//! linear_env.rs        what its variables stand for before they are transposed
//! derived_programs.rs  what jax makes of a program and keeps with it
//! dead_code.rs         dead-code removal of a linear program in which nothing is dead
//! audit.rs             replays compared with what jax does
//! parts.rs             calls that are part of a call that is being recorded
//! shapes.rs            calls that differ from a known one in nothing but the sizes of arrays
//! reasons.rs           why a call is not remembered
//! script.rs            the user's code alone, for benches
//! warm/                what was recorded in one process is there in the next
//! ```

pub mod audit;
pub mod backward_pass;
pub mod call;
pub mod dead_code;
pub mod derived_programs;
pub mod fragment;
pub mod key;
mod linear_env;
mod linear_program;
mod parts;
pub mod programs;
pub mod reasons;
pub mod rules;
pub mod script;
pub mod shapes;
pub mod store;
pub mod warm;
