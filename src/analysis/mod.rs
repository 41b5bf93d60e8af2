//! What can be said of a program without running it.
//!
//! An analysis reads a resolved [`Program`](crate::ir::Program), whose params are spelled out, in one
//! pass over its equations; nested programs ([`Nest`]) are read once, however often they are called.

mod captures;
mod cost;
mod critical_path;
mod duplicates;
mod effects;
mod liveness;
mod nest;
mod precision;
mod search;
mod slices;
mod values;
mod wiring;

pub use captures::{Capture, effects, large_constants};
pub use cost::{
    Branches, Cost, Estimates, Line, Name, Nested, NoEstimates, Report, Trips, by_name, by_scope,
    cost,
};
pub use critical_path::{CriticalPath, Weight, critical_path};
pub use duplicates::duplicates;
pub use liveness::{Alive, Assumptions, Last, Liveness, Origin, Value, liveness};
pub use nest::{Call, Nest, Site};
pub use precision::{Conversion, precision};
pub use search::{Counting, Filter, find, histogram};
pub use slices::{Constant, Dependencies, Uses, dead, depends_on, unused_inputs, used_by};
pub use wiring::{Body, Wiring, wiring};
