//! Programs with their Python objects as bytes, and back.
//!
//! What objects are is said in Python (`_native/storage.py`): one side makes records of objects, the other
//! objects of records. Here are the programs around them.
//!
//! ```text
//! save.rs          values, objects and jaxprs as the rows of a document
//! program_rows.rs  the rows of one program as those of the document
//! load.rs          objects and jaxprs of a document
//! values.rs        values as Python has them
//! pieces.rs        entries of segments, written and read one at a time
//! ```

mod load;
pub mod pieces;
mod program_rows;
mod save;
pub mod values;

pub use load::{load_program, load_shared_program};
pub use save::save_program;
