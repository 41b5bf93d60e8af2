//! Helpers for CPython's C API.
//!
//! ```text
//! address_cache.rs what is known of objects by their address
//! native.rs        slots of Python classes, heap types, method trampolines
//! patch.rs         function pointers of CPython's that are ours at times
//! shared.rs        state that no Python code finds half changed
//! immortals.rs     objects that are never freed, by address
//! stack_chunks.rs  chunks of the interpreter's stack, kept for the next call
//! environment.rs   environment variables as the process has them
//! ```

pub mod address_cache;
pub mod environment;
pub mod immortals;
pub mod native;
pub mod patch;
pub mod shared;
pub mod stack_chunks;
