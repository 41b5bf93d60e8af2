//! Programs among the params of calls.
//!
//! ```text
//! structural_id.rs programs by their structure
//! registry.rs      what is known of programs for as long as they live
//! sharing.rs       programs that come together, and those of which there are several
//! forms.rs         jaxprs, open and closed
//! given.rs         the programs that a call has
//! decision.rs      whether what is known for some programs holds for others
//! compare.rs       two recordings of a call, for structurally equal programs
//! plan.rs          what differs in them: how params are made for other programs
//! instantiate.rs   params made by a plan
//! fresh_copy.rs    fresh copies of programs, and where each is known
//! canonicalize.rs  programs that a rule has made, put in the place of those that replays have made
//! running.rs       whether a rule with programs runs in this thread
//! params.rs        what is known of the params of fragments' equations
//! warned.rs        programs of which jax has warned
//! custom_rules.rs  params that jax regenerates at each call
//! requests.rs      params that jax makes again when it is asked
//! references.rs    how entries of the store refer to programs
//! stored.rs        programs that were derived, as bytes and back
//! stored_rules.rs  params that jax regenerates at each call, as bytes and back
//! ```

pub mod canonicalize;
pub mod compare;
pub mod custom_rules;
pub mod decision;
pub mod forms;
pub mod fresh_copy;
pub mod given;
pub mod instantiate;
pub mod params;
pub mod plan;
pub mod references;
pub mod registry;
pub mod requests;
pub mod running;
mod sharing;
pub mod stored;
pub mod stored_rules;
pub mod structural_id;
mod warned;
