//! Programs with their Python objects as bytes, and back.
//!
//! What objects are is said in Python (`_native/storage.py`): one side makes records of objects, the other
//! objects of records. Here are the programs around them.

mod load;
mod save;

pub use load::load_program;
pub use save::save_program;
