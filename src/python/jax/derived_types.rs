//! Types that jax derives from those of arrays, remembered.

use pyo3::intern;
use pyo3::prelude::*;

use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::{address, is_exactly};
use crate::python::jax::names::Jax;

/// Whether a type is that of an array.
pub fn is_shaped_array(jax: &Jax, aval: &Bound<'_, PyAny>) -> bool {
    is_exactly(aval.as_ptr(), jax.shaped_array_type.as_ptr().cast())
}

/// What jax derives from a type.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum DerivedType {
    /// `to_tangent_aval`
    Tangent,
    /// `to_ct_aval`
    Cotangent,
    /// The `ShapeDtypeStruct` that stands for a result.
    Struct {
        /// The setting `_check_vma`: whether it tells along which axes the result varies.
        varies: bool,
    },
}

/// What was derived, by the address of its origin, which is kept alive.
type DerivedTypes = AddressCache<(Py<PyAny>, Py<PyAny>), (usize, DerivedType)>;

static DERIVED: DerivedTypes = AddressCache::new();
const MAX_DERIVED: usize = 4096;

/// Forgets what is remembered of types.
pub fn forget_derived() {
    drop(DERIVED.clear());
}

/// What jax derives from a type: remembered, since arrays' types exist once and do not change.
///
/// # Errors
/// What jax's method raises.
pub fn derived_type<'py>(
    jax: &Jax,
    aval: &Bound<'py, PyAny>,
    derived: DerivedType,
) -> PyResult<Bound<'py, PyAny>> {
    let py = aval.py();
    let key = (address(aval), derived);
    if let Some(known) = DERIVED.get(&key, |(_, new)| new.bind(py).clone()) {
        return Ok(known);
    }
    let new = match derived {
        DerivedType::Tangent => aval.call_method0(intern!(py, "to_tangent_aval"))?,
        DerivedType::Cotangent => aval.call_method0(intern!(py, "to_ct_aval"))?,
        DerivedType::Struct { .. } => jax.result_struct.bind(py).call1((aval,))?,
    };
    if is_shaped_array(jax, aval) {
        let entry = (aval.clone().unbind(), new.clone().unbind());
        drop(DERIVED.insert_bounded(key, entry, MAX_DERIVED));
    }
    Ok(new)
}
