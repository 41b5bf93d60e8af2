//! A finished program and the Python objects behind its ids.
//!
//! ```text
//! graph.rs         a finished program with its Python objects; filling a jax jaxpr from it
//! jaxpr_view.rs    one way to read a jaxpr, from its graph or from jax's lists
//! objects.rs       the Python objects behind the ids of one program
//! lazy_objects.rs  those that are made when somebody asks for them
//! read.rs          whole jaxprs into the IR
//! ```

pub mod graph;
pub mod jaxpr_view;
pub mod lazy_objects;
pub mod objects;
pub mod read;
