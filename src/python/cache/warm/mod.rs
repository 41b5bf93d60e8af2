//! The store: what was recorded in one process is there in the next.
//!
//! ```text
//! library.rs  the segments that are open, and what is written when the process ends
//! names.rs    portable names of objects and configurations
//! keys.rs     words that mean the same in every process
//! lookup.rs   the portable key of a call, and what the store has under it
//! derivations.rs  the same of what functions of jax have made of a program
//! programs.rs programs of jits of jax's own
//! values.rs   plain values of Python's under portable keys
//! whole.rs    programs of functions that are traced as a whole
//! ```
//!
//! An entry of the expansion cache is under a key of addresses, one of the store is under their portable names
//! (`python/jaxide/_native/portable.py`). The store is asked where the cache of the process knows nothing; what it
//! has is an entry of that from then on.

pub mod derivations;
pub mod keys;
pub mod library;
pub mod lookup;
mod names;
pub mod programs;
pub mod values;
pub mod whole;
