//! The name scopes of equations, without what transformations add.

use pyo3::intern;
use pyo3::prelude::*;

/// The scopes of a name stack, the outermost one first: what transformations add is left out.
///
/// Within a transformation the scopes around it may be there once more: `transpose(jvp(a))/jvp(a)` is in `a`.
pub fn scopes_of(stack: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let py = stack.py();
    let mut scopes: Vec<String> = Vec::new();
    let mut within: Vec<String> = Vec::new();
    let join = |scopes: &mut Vec<String>, within: Vec<String>| {
        if within.starts_with(scopes) {
            *scopes = within;
        } else if !scopes.starts_with(&within) {
            scopes.extend(within);
        }
    };
    for entry in stack.getattr(intern!(py, "stack"))?.try_iter()? {
        let entry = entry?;
        if entry.get_type().name()?.to_str()? == "Scope" {
            let name: String = entry.getattr(intern!(py, "name"))?.extract()?;
            let parts = name.split('/').filter(|name| !name.is_empty() && !is_added(name));
            within.extend(parts.map(str::to_owned));
        } else {
            join(&mut scopes, std::mem::take(&mut within));
        }
    }
    join(&mut scopes, within);
    Ok(scopes)
}

/// Whether jax adds a scope: of what a checkpoint computes again.
fn is_added(name: &str) -> bool {
    matches!(name, "checkpoint" | "rematted_computation")
}
