//! Forgetting what is remembered in several rooms.

use pyo3::prelude::*;

use crate::python::jax::avals::forget_avals;
use crate::python::jax::derived_types::forget_derived;
use crate::python::tools::print_memo::forget_texts;
use crate::python::trace::abstract_eval::forget_outcomes;
use crate::python::trace::flags::forget_counts;

/// Forgets what is remembered of types, texts and abstract evaluation; called by `jax.clear_caches()`.
#[pyfunction]
pub fn clear_memo() {
    forget_avals();
    forget_derived();
    forget_texts();
    forget_outcomes();
    forget_counts();
}
