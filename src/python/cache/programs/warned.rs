//! Programs of which jax has warned while it made something of them.
//!
//! jax remembers what it makes of a program, so it warns once: a later call with the program is silent
//! where the same call, coming first, is not. Nothing is learnt of such programs.

use rustc_hash::FxHashSet;

use crate::python::cache::programs::structural_id::StructuralId;
use crate::python::cpython::address_cache::Locked;

static WARNED: Locked<FxHashSet<StructuralId>> = Locked::new(FxHashSet::default);
/// From here on all programs count as such.
const MAX_WARNED: usize = 1 << 16;

/// Notes programs with these structural ids.
pub fn note(ids: impl IntoIterator<Item = StructuralId>) {
    WARNED.with(|warned| {
        for id in ids {
            if warned.len() < MAX_WARNED {
                warned.insert(id);
            }
        }
    });
}

/// Whether one of them was noted. They are asked for where any was.
pub fn has<I: IntoIterator<Item = StructuralId>>(ids: impl FnOnce() -> I) -> bool {
    let noted = WARNED.with(|warned| warned.len());
    if noted == 0 || noted >= MAX_WARNED {
        return noted > 0;
    }
    let ids = ids();
    WARNED.with(|warned| ids.into_iter().any(|id| warned.contains(&id)))
}
