//! What is done with a finished program.
//!
//! ```text
//! graph_methods.rs  the methods of `Graph`, as Python has them
//! print.rs          the texts of Python objects in programs, for printing them
//! print_memo.rs     those that are remembered from one program to the next
//! structure.rs      the objects of programs, for their structural hash and equality
//! skeleton.rs       comparison skeletons: what is kept of a program to compare others with
//! scopes.rs         name scopes without what transformations add
//! diff.rs           where two programs differ, as Python has it
//! passes.rs         passes, and the params, literals and jaxprs that they ask for
//! analysis/         analyses of programs, as Python has their results
//! export.rs         programs as tables, for other formats
//! ```

pub mod analysis;
pub mod diff;
pub mod export;
pub mod graph_methods;
pub mod passes;
pub mod print;
pub mod print_memo;
pub mod scopes;
pub mod skeleton;
pub mod structure;
