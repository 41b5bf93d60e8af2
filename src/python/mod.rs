//! The Python half of jaxide: the only folder that knows pyo3 and CPython's C API.
//!
//! ```text
//! jax.rs       the objects of the installed jax that the trace talks to, resolved once
//! native.rs    C-level helpers: slots of Python classes, heap types, method trampolines
//! shared.rs    state that no Python code finds half changed
//! side.rs      the Python objects behind the ids of one program
//! objects.rs   those that are made when somebody asks for them
//! params.rs    equation params: canonical values, and the typed hash that keys the memo
//! convert.rs   avals, effects and debug info into the IR
//! print.rs     the texts of Python objects in programs, for printing them
//! texts.rs     those that are remembered from one program to the next
//! read.rs      whole jaxprs into the IR
//! frame.rs     `Frame`: one program under construction, in the role of jax's JaxprStackFrame
//! tracer.rs    the tracer type: jax's DynamicJaxprTracer with its attributes filled on demand
//! trace.rs     the trace type: jax's DynamicJaxprTrace
//! stage.rs     staging one primitive: abstract evaluation, folding, forwarding, appending
//! memo.rs      abstract evaluation remembered by (primitive, avals, params, config context)
//! bind.rs      `Primitive.bind` while a trace of ours is current
//! leaves.rs    arguments, results and accumulators, all at once
//! dce.rs       dead-code removal of a linear program in which nothing is dead
//! inline.rs    inlining a jaxpr, which is what most of jax.numpy does
//! chunks.rs    chunks of the interpreter's stack, kept for the next call
//! epoch.rs     noticing that jax's state may have changed
//! omit.rs      leaving an item out of keys, for tests
//! reads.rs     noticing that somebody reads the elements of a concrete array
//! expand/      what library functions append, remembered and replayed
//! warn.rs      warnings that do not count trampolines
//! world/       whether jax is as it was: its modules, classes, registries and functions
//! hook.rs      switching the interposition on and off
//! structure.rs the objects of programs, for their structural hash and equality
//! diff.rs      where two programs differ, as Python has it
//! abridge.rs   what is kept of a program to compare others with
//! analysis/    analyses of programs, as Python has their results
//! passes.rs    passes, and the params, literals and jaxprs that they ask for
//! store/       programs with their objects as bytes, and back
//! export.rs    programs as tables, for other formats
//! graph.rs     a finished program with its Python objects; filling a jax jaxpr from it
//! ```

mod abridge;
mod analysis;
mod bind;
mod chunks;
mod convert;
mod dce;
mod diff;
mod environment;
mod epoch;
mod expand;
mod export;
mod frame;
mod graph;
mod hook;
mod immortals;
mod inline;
mod jax;
mod leaves;
mod memo;
mod native;
mod numpy_errors;
mod objects;
mod omit;
mod params;
mod passes;
mod print;
mod read;
mod reads;
mod settings;
mod shared;
mod side;
mod source;
mod stage;
mod store;
mod structure;
mod switched;
mod texts;
mod trace;
mod tracer;
mod warn;
mod world;

use pyo3::prelude::*;

/// The native core of jaxide. Private: use the `jaxide` package.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::analysis::cost::cost_of;
    #[pymodule_export]
    use super::analysis::equations::Found;
    #[pymodule_export]
    use super::analysis::liveness::liveness_of;
    #[pymodule_export]
    use super::analysis::queries::{
        critical_path_of, dead_of, dependencies_of, duplicates_of, effects_of, find_equations,
        histogram_of, large_constants_of, precision_of, unused_inputs_of, uses_of,
    };
    #[pymodule_export]
    use super::diff::{Rows, diff_of};
    #[pymodule_export]
    use super::environment::environment_variables;
    #[pymodule_export]
    use super::epoch::assigned;
    #[pymodule_export]
    use super::expand::audit::{audit_counts, clear_audit_counts, set_audit};
    #[pymodule_export]
    use super::expand::classes::set_known_classes;
    #[pymodule_export]
    use super::expand::derivations::DerivationCache;
    #[pymodule_export]
    use super::expand::script::Script;
    #[pymodule_export]
    use super::expand::store::{clear_barred, clear_fragments, fragment_info, set_fragment_bounds};
    #[pymodule_export]
    use super::expand::switch::{
        catch_function, catch_instances, caught_functions, trust_callable,
    };
    #[pymodule_export]
    use super::export::tables;
    #[pymodule_export]
    use super::graph::{Graph, fingerprint_of, graph_of};
    #[pymodule_export]
    use super::hook::{Activation, initialize};
    #[pymodule_export]
    use super::leaves::{new_accumulators, plain_types, result_structs};
    #[pymodule_export]
    use super::memo::{clear_memo, memo_len};
    #[pymodule_export]
    use super::omit::{key_items, omit_key_item};
    #[pymodule_export]
    use super::passes::optimize_graph;
    #[pymodule_export]
    use super::print::print_jaxpr;
    #[pymodule_export]
    use super::store::{load_program, save_program};
    #[pymodule_export]
    use super::warn::{HeardWarnings, set_warning_hook};
    #[pymodule_export]
    use super::world::{
        Place, Survey, Trust, is_noted_code, keyword_defaults, note_code, watch_function,
    };
    #[pymodule_export]
    use super::world::{
        extend_world, is_jax_altered, lowers_as_ever, prints_as_ever, set_world, world_number,
    };
}
