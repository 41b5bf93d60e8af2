//! Tests of the intermediate representation through its public interface.

mod allocations;
mod builder;
mod common;
mod dead_code;
mod ids;
mod nesting;
mod params;
mod random;
mod text;
mod types;
mod verify;
