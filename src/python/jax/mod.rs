//! The objects of the installed jax, and noticing that somebody changes it.
//!
//! ```text
//! names.rs           the objects of jax that the core talks to, resolved once
//! slots.rs           offsets of members of jax's slotted classes
//! avals.rs           avals, effects and debug info into the IR
//! derived_types.rs   types that jax derives from those of arrays
//! values.rs          params and other values: typed hashes and equality
//! instances.rs       instances of jax's classes, made without their constructors
//! current_trace.rs   jax's current trace
//! source.rs          source info: tracebacks and name stacks
//! settings.rs        settings of jax that traces depend on
//! numpy_errors.rs    what numpy does about errors in numbers
//! watch_config.rs    version counters of jax's configuration and current trace
//! watch_arrays.rs    the array-read detector
//! watch_warnings.rs  warnings that do not count trampolines
//! world/             whether jax is as it was: its modules, classes, registries and functions
//! omit.rs            leaving an item out of keys, for tests
//! ```

pub mod avals;
pub mod current_trace;
pub mod derived_types;
pub mod instances;
pub mod names;
pub mod numpy_errors;
pub mod omit;
pub mod paths;
pub mod settings;
pub mod slots;
pub mod source;
pub mod values;
pub mod watch_arrays;
pub mod watch_config;
pub mod watch_warnings;
pub mod world;
