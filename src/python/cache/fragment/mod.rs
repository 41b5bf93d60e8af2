//! What a call appended and returned.
//!
//! ```text
//! before.rs    where the programs that record were before the call
//! appended.rs  what was appended to a program under construction since then
//! record.rs    that and the result, read back
//! read_part.rs what was appended to one program, as a fragment
//! sources.rs   where equations come from, beside where the call is
//! recorded.rs  what was recorded, with its Python objects
//! agree.rs     whether two recordings agree
//! result.rs    what the call returned, as a recipe
//! replay.rs    appending a fragment to a frame, making the result
//! save.rs      what was recorded, as bytes
//! load.rs      the same, of bytes
//! resized.rs   the same, with arrays of other sizes
//! ```

pub mod agree;
pub mod appended;
pub mod before;
pub mod load;
mod read_part;
pub mod record;
pub mod recorded;
pub mod replay;
pub mod resized;
pub mod result;
pub mod save;
mod sources;
