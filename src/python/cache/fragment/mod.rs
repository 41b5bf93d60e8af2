//! What a call appended and returned.
//!
//! ```text
//! appended.rs  what was appended to a program under construction
//! record.rs    that as a fragment, with its Python objects
//! result.rs    what the call returned, as a recipe
//! replay.rs    appending a fragment to a frame, making the result
//! ```

pub mod appended;
pub mod record;
pub mod replay;
pub mod result;
