//! Variables of the environment of the process, where the compilers of devices look for them.

use std::ffi::OsString;

use pyo3::prelude::*;

/// The values of variables; None for those that are not set.
#[pyfunction]
pub fn environment_variables(names: Vec<String>) -> Vec<Option<OsString>> {
    names.into_iter().map(std::env::var_os).collect()
}
