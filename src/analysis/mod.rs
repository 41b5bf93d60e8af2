//! What can be said of a program without running it.
//!
//! An analysis reads a resolved [`Program`](crate::ir::Program), whose params are spelled out, in one
//! pass over its equations; nested programs are read once, however often they are called.

mod cost;

pub use cost::{Branches, Cost, Estimates, Line, Nested, NoEstimates, Report, Trips, cost};
