//! Which programs come together in calls, and of which jax makes several that are structurally equal: what is made of
//! one is then not known from its structure.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::python::cache::programs::forms::Form;
use crate::python::cache::programs::registry::{Kind, beside_others, serial_of};
use crate::python::cache::programs::structural_id::StructuralId;
use crate::python::cpython::address_cache::Locked;

/// What is known of programs by their structure.
#[derive(Default)]
struct Lore {
    /// Programs that calls had beside different others.
    mingled: FxHashSet<(StructuralId, Place)>,
    /// jax makes more than one of them of the same programs.
    several: FxHashSet<(Kind, Form)>,
    serial: u64,
}

static LORE: Locked<Lore> = Locked::new(Lore::default);

/// Where a call has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Given,
    Within,
}

/// The serials of the programs of a call.
pub(super) type Together = SmallVec<[u64; 2]>;

/// Whether some program of a call came beside others before, or one within them, new in this outermost
/// trace, within others: what is made of it alone would be taken for what is made of all. Notes which
/// came together where `outermost` says that the call is no part of another one's rule.
pub fn are_mingled(
    given: &[Py<PyAny>],
    within: &[Bound<'_, PyAny>],
    outermost: bool,
    py: Python<'_>,
) -> bool {
    let together: Together = given.iter().filter_map(|open| serial_of(open.bind(py))).collect();
    let given = given.iter().map(|open| (open.bind(py), Place::Given));
    let within = within.iter().map(|open| (open, Place::Within));
    let mut mingled = false;
    for (program, place) in given.chain(within) {
        let Some((id, is_new, apart)) = beside_others(program, place, &together, outermost) else {
            continue;
        };
        if place == Place::Given || is_new {
            mingled |= LORE.with(|lore| {
                if apart {
                    lore.mingled.insert((id, place));
                }
                lore.mingled.contains(&(id, place))
            });
        }
    }
    mingled
}

/// Notes that jax makes several programs of a kind of the same programs.
pub fn note_several(kind: Kind, form: Form) {
    LORE.with(|lore| lore.several.insert((kind, form)));
}

/// Whether jax was seen to do so.
pub fn are_several(kind: Kind, form: Form) -> bool {
    LORE.with(|lore| lore.several.contains(&(kind, form)))
}

/// A number that no other program has had.
pub(super) fn next_serial() -> u64 {
    LORE.with(|lore| {
        lore.serial += 1;
        lore.serial
    })
}

/// Forgets all but which numbers were given.
pub(super) fn forget_sharing() {
    LORE.with(|lore| *lore = Lore { serial: lore.serial, ..Lore::default() });
}
