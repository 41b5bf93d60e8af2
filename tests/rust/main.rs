//! Tests of the IR and of the expansion cache through their public interface.

mod allocations;
mod builder;
mod common;
mod cost;
mod dead_code;
mod diff;
mod expand;
mod ids;
mod nesting;
mod params;
mod passes;
mod print;
mod queries;
mod random;
mod rooms;
mod segments;
mod specs;
mod store;
mod structure;
mod text;
mod types;
mod verify;
