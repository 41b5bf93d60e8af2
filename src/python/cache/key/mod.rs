//! What a replay rests on, as words.
//!
//! ```text
//! encode.rs           the arguments of a call
//! trace_context.rs    the trace, the configuration and the source info at the moment of a call
//! transformations.rs  calls under transformations
//! functions.rs        functions of the user that are part of a call's arguments
//! classes.rs          classes of values, and whether what is used of them is known
//! canonical.rs        one object for all that are equal
//! pins.rs             objects whose addresses are words
//! ```

pub mod canonical;
pub mod classes;
pub mod encode;
pub mod functions;
pub mod pins;
pub mod trace_context;
pub mod transformations;
