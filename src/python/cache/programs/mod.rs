//! Programs among the params of calls.
//!
//! ```text
//! registry.rs      programs by what they say
//! instantiate.rs   programs that a rule makes of those it is given
//! params.rs        what is known of the params of fragments' equations
//! custom_rules.rs  params that jax makes anew at each call
//! ```

pub mod custom_rules;
pub mod instantiate;
pub mod params;
pub mod registry;
