//! Tells the crate which `CPython` it is built for, where it is built for one.

fn main() {
    #[cfg(feature = "python")]
    pyo3_build_config::use_pyo3_cfgs();
}
