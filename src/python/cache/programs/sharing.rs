//! Sharing facts: which programs come together in calls, and of which jax makes several instances that are
//! structurally equal. A structural id alone does not tell what is made of such a program.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::python::cache::programs::forms::Form;
use crate::python::cache::programs::registry::{Lineage, beside_others, serial_of};
use crate::python::cache::programs::structural_id::StructuralId;
use crate::python::cpython::address_cache::Locked;

/// What is known of programs by their structure.
#[derive(Default)]
struct SharingFacts {
    /// Programs that calls had beside different others: what is made of one alone is ambiguous.
    ambiguous: FxHashSet<(StructuralId, Place)>,
    /// jax makes more than one of them of the same programs.
    multiple: FxHashSet<(Lineage, Form)>,
    serial: u64,
}

static FACTS: Locked<SharingFacts> = Locked::new(SharingFacts::default);

/// Where a call has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Given,
    Nested,
}

/// The serials of the programs of a call.
pub(super) type Together = SmallVec<[u64; 2]>;

/// Whether the grouping of a call's programs is ambiguous: what is made of one alone would be taken for what
/// is made of all. That is so where one came beside others before; or where one nested in them, new in this
/// outermost trace, was nested in others. Notes which came together where `outermost` says that the call is
/// no part of another one's rule.
pub fn are_ambiguous(
    given: &[Py<PyAny>],
    nested: &[Bound<'_, PyAny>],
    outermost: bool,
    py: Python<'_>,
) -> bool {
    let together: Together = given.iter().map(|open| serial_of(open.bind(py))).collect();
    let given = given.iter().map(|open| (open.bind(py), Place::Given));
    let nested = nested.iter().map(|open| (open, Place::Nested));
    let mut ambiguous = false;
    for (program, place) in given.chain(nested) {
        let Some((id, is_new, apart)) = beside_others(program, place, &together, outermost) else {
            continue;
        };
        if place == Place::Given || is_new {
            ambiguous |= FACTS.with(|facts| {
                if apart {
                    facts.ambiguous.insert((id, place));
                }
                facts.ambiguous.contains(&(id, place))
            });
        }
    }
    ambiguous
}

/// Notes that jax makes multiple instances of a kind of the same programs.
pub fn note_multiple(lineage: Lineage, form: Form) {
    FACTS.with(|facts| facts.multiple.insert((lineage, form)));
}

/// Whether jax was seen to do so.
pub fn has_multiple(lineage: Lineage, form: Form) -> bool {
    FACTS.with(|facts| facts.multiple.contains(&(lineage, form)))
}

/// A number that no other program has had.
pub(super) fn next_serial() -> u64 {
    FACTS.with(|facts| {
        facts.serial += 1;
        facts.serial
    })
}

/// Forgets all but which numbers were given.
pub(super) fn forget_sharing() {
    FACTS.with(|facts| *facts = SharingFacts { serial: facts.serial, ..SharingFacts::default() });
}
