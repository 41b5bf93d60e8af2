//! What a replay rests on, as a key.
//!
//! ```text
//! encode.rs           the kinds of calls, each as a key
//! arguments.rs        the key of a call, and the objects that it refers to
//! encoder.rs          what writes a key
//! whole.rs            what only a function has that is traced as a whole
//! values.rs           numbers, texts and containers
//! objects.rs          types, dtypes, members of enums, objects of jax
//! functions.rs        functions of the user
//! jaxprs.rs           jaxprs
//! traced.rs           traced values and concrete arrays
//! trace_context.rs    the trace, the configuration and the source info that a call is made in
//! transformations.rs  calls under transformations
//! classes.rs          classes of values, and whether what is used of them is known
//! canonical.rs        one object for all that are equal
//! stable.rs           functions of jax that live as long as the process
//! pins.rs             objects whose addresses are part of a key
//! ```

pub mod arguments;
pub mod canonical;
pub mod classes;
pub mod encode;
mod encoder;
pub mod functions;
mod jaxprs;
pub mod objects;
pub mod pins;
pub mod stable;
pub mod trace_context;
mod traced;
pub mod transformations;
mod values;
mod whole;
