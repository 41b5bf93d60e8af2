//! A finished program and the Python objects behind its ids.
//!
//! ```text
//! graph.rs         a finished program with its Python objects; filling a jax jaxpr from it
//! objects.rs       the Python objects behind the ids of one program
//! lazy_objects.rs  those that are made when somebody asks for them
//! canonical.rs    params in their canonical form
//! read.rs          whole jaxprs into the IR
//! ```

pub mod canonical;
pub mod graph;
pub mod lazy_objects;
pub mod objects;
pub mod read;
