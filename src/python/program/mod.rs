//! A finished program and the Python objects behind its ids.
//!
//! ```text
//! graph.rs         a finished program with its Python objects
//! content.rs       the program and its objects, and the objects of jax made from both
//! lazy_jaxpr.rs    jax's own jaxpr, filled from a graph on demand
//! jaxpr_view.rs    one way to read a jaxpr, from its graph or from jax's lists
//! objects/         the Python objects behind the ids of one program
//! lazy_objects.rs  those that are made when somebody asks for them
//! canonical.rs     params in their canonical form
//! read.rs          whole jaxprs into the IR
//! ```

pub mod canonical;
pub mod content;
pub mod graph;
pub mod jaxpr_view;
pub mod lazy_jaxpr;
pub mod lazy_objects;
pub mod objects;
pub mod read;
