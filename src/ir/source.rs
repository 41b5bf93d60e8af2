//! Source information: where in the traced code an equation comes from.
//!
//! A program has about as many sources as equations: each call that is traced has a traceback of
//! its own, shared by the equations that it appends. A full interning table would cost several
//! times the sources themselves, in memory and in time, and find little. So a new source is
//! compared with the recent ones only: equal ids mean equal sources, but not always the other way
//! round.

use std::hash::BuildHasher;

use cranelift_entity::{PrimaryMap, packed_option::PackedOption};
use rustc_hash::FxBuildHasher;

use super::ids::{ForeignId, SourceId};

/// The origin of an equation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// The embedding's traceback object.
    pub traceback: Option<ForeignId>,
    /// The embedding's name stack; `None` is the empty one.
    pub name_stack: Option<ForeignId>,
}

/// A [`Source`] in the 8 bytes in which it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PackedSource {
    traceback: PackedOption<ForeignId>,
    name_stack: PackedOption<ForeignId>,
}

impl From<Source> for PackedSource {
    fn from(source: Source) -> Self {
        Self { traceback: source.traceback.into(), name_stack: source.name_stack.into() }
    }
}

impl From<PackedSource> for Source {
    fn from(source: PackedSource) -> Self {
        Self { traceback: source.traceback.expand(), name_stack: source.name_stack.expand() }
    }
}

/// Where recent sources are in their table, each in the slot of its hash.
#[derive(Clone, Debug)]
pub(super) struct RecentSources([PackedOption<SourceId>; Self::SLOTS]);

impl RecentSources {
    const SLOTS: usize = 64;

    pub(super) fn new() -> Self {
        Self([PackedOption::default(); Self::SLOTS])
    }

    /// The id of a source: that of an equal recent one, or that of a new row.
    #[inline]
    pub(super) fn intern(
        &mut self,
        source: PackedSource,
        table: &mut PrimaryMap<SourceId, PackedSource>,
    ) -> SourceId {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash will do")]
        let slot = &mut self.0[FxBuildHasher.hash_one(source) as usize % Self::SLOTS];
        match slot.expand() {
            Some(id) if table[id] == source => id,
            _ => {
                let id = table.push(source);
                *slot = id.into();
                id
            }
        }
    }
}
