//! The Python half of jaxide: the only folder that knows pyo3 and CPython's C API.
//!
//! Each room imports only those below it:
//!
//! ```text
//! interpose/  where calls are interposed: functions, operators, `Primitive.bind`
//! cache/      the expansion cache: keys of calls, recorded fragments, replays, nested programs calls
//! trace/      the trace and tracer types, frames, staging, abstract evaluation, arguments
//! tools/      what is done with a finished program: print, diff, passes, analysis, structure
//! store/      programs and their objects as bytes, and back
//! program/    a finished program, and the Python objects behind its ids
//! jax/        the objects of the installed jax, its values and avals, and noticing that it changes
//! cpython/    helpers for CPython's C API
//! ```

mod cache;
mod clear;
mod cpython;
mod interpose;
mod jax;
mod program;
mod store;
mod tools;
mod trace;

use pyo3::prelude::*;

/// The native core of jaxide. Private: use the `jaxide` package.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::cache::derived_programs::{DerivationCache, Parts};
    #[pymodule_export]
    use super::cache::key::classes::set_known_classes;
    #[pymodule_export]
    use super::cache::script::Script;
    #[pymodule_export]
    use super::cache::shapes::tell_pointwise;
    #[pymodule_export]
    use super::cache::store::{clear_barred, clear_fragments, fragment_info, set_fragment_bounds};
    #[pymodule_export]
    use super::cache::warm::library::{
        clear_store, forget_opening, inspect_store, name_configuration, open_store, pack_store,
        store_info, unpack_store, verify_store, write_store,
    };
    #[pymodule_export]
    use super::cache::warm::lookup::is_silent;
    #[pymodule_export]
    use super::cache::warm::programs::{
        key_of_program, may_store_program, store_program, stored_program,
    };
    #[pymodule_export]
    use super::cache::warm::values::{is_store_open, key_of_value, store_value, stored_value};
    #[pymodule_export]
    use super::cache::warm::whole::{
        as_recorded, is_still_promised, is_whole_audited, kept_by_jax, key_of_code, key_of_whole,
        num_traces, promise_derivation, promise_trace, promised_trace, record_whole, refused_whole,
        settle, settle_later, tell_whole_differs, use_jit_programs, use_whole_traces,
    };
    #[pymodule_export]
    use super::clear::clear_memo;
    #[pymodule_export]
    use super::cpython::environment::environment_variables;
    #[pymodule_export]
    use super::interpose::functions::{
        interpose_function, interpose_instances, interposed_functions, trust_callable,
    };
    #[pymodule_export]
    use super::interpose::install::{
        Activation, initialize, initialize_traces, is_installed, is_jax_altered,
    };
    #[pymodule_export]
    use super::jax::names::namespace_fields;
    #[pymodule_export]
    use super::jax::omit::{key_items, omit_key_item};
    #[pymodule_export]
    use super::jax::paths::PathNames;
    #[pymodule_export]
    use super::jax::watch_config::assigned;
    #[pymodule_export]
    use super::jax::watch_warnings::{HeardWarnings, set_warning_hook};
    #[pymodule_export]
    use super::jax::world::{
        Place, Survey, Trust, is_noted_code, keyword_defaults, note_code, watch_function,
    };
    #[pymodule_export]
    use super::jax::world::{
        extend_world, lowers_as_ever, prints_as_ever, set_world, world_number,
    };
    #[pymodule_export]
    use super::program::graph::Graph;
    #[pymodule_export]
    use super::store::{load_program, load_shared_program, save_program};
    #[pymodule_export]
    use super::tools::analysis::cost::cost_of;
    #[pymodule_export]
    use super::tools::analysis::equations::Found;
    #[pymodule_export]
    use super::tools::analysis::liveness::liveness_of;
    #[pymodule_export]
    use super::tools::analysis::queries::{
        critical_path_of, dead_of, dependencies_of, duplicates_of, effects_of, find_equations,
        histogram_of, large_constants_of, precision_of, unused_inputs_of, uses_of,
    };
    #[pymodule_export]
    use super::tools::diff::{Rows, diff_of};
    #[pymodule_export]
    use super::tools::export::tables;
    #[pymodule_export]
    use super::tools::graph_methods::{fingerprint_of, graph_of};
    #[pymodule_export]
    use super::tools::passes::optimize_graph;
    #[pymodule_export]
    use super::tools::print::print_jaxpr;
    #[pymodule_export]
    use super::trace::abstract_eval::memo_len;
    #[pymodule_export]
    use super::trace::arguments::{array_types, new_accumulators, plain_types, result_structs};
    #[pymodule_export]
    use super::trace::audit_schedule::{audit_counts, clear_audit_counts, set_audit};
}
