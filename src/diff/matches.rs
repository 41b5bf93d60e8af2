//! What is matched of two sequences, and what is not.

use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, entity_impl};
use rustc_hash::FxHashSet;

use super::common::Common;

/// How far from an equation its matched neighbours are looked for.
const MAX_DISTANCE: usize = 64;

/// A place in a sequence, in half the room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Index(u32);
entity_impl!(Index);

/// What is matched of two sequences, by place.
pub(super) struct Matches {
    matched: [Vec<PackedOption<Index>>; 2],
    /// Those of the first sequence that are matched out of order.
    pub(super) moved: FxHashSet<usize>,
}

impl Matches {
    pub(super) fn new(lengths: [usize; 2]) -> Self {
        let matched = lengths.map(|length| vec![PackedOption::default(); length]);
        Self { matched, moved: FxHashSet::default() }
    }

    /// How long one of the sequences is.
    pub(super) fn len(&self, side: usize) -> usize {
        self.matched[side].len()
    }

    /// What a place of one of the sequences is matched with.
    pub(super) fn of(&self, side: usize, index: usize) -> Option<usize> {
        Some(self.matched[side][index].expand()?.index())
    }

    /// What the places of one of the sequences are matched with.
    pub(super) fn all(&self, side: usize) -> impl Iterator<Item = Option<usize>> {
        (0..self.len(side)).map(move |index| self.of(side, index))
    }

    pub(super) fn set(&mut self, one: usize, another: usize) {
        self.matched[0][one] = Index::new(another).into();
        self.matched[1][another] = Index::new(one).into();
    }

    /// Takes apart what is matched.
    pub(super) fn free(&mut self, one: usize, another: usize) {
        self.matched[0][one] = None.into();
        self.matched[1][another] = None.into();
    }

    pub(super) fn transposed(self) -> Self {
        let moved = self.moved.iter().filter_map(|&index| self.of(0, index)).collect();
        let Self { matched: [one, another], .. } = self;
        Self { matched: [another, one], moved }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.matched.iter().all(|matched| matched.iter().all(PackedOption::is_some))
    }

    /// What is unmatched on both sides between two neighbours that are matched in order.
    pub(super) fn gaps(&self) -> Gaps {
        let mut gaps = Gaps::default();
        let unmatched = |range: std::ops::Range<usize>| {
            range.filter(|&other| self.matched[1][other].is_none()).map(Index::new)
        };
        let mut next = 0;
        for (index, other) in self.all(0).enumerate() {
            match other {
                None => gaps.places[0].push(Index::new(index)),
                Some(_) if self.moved.contains(&index) => {}
                Some(other) => {
                    gaps.end(unmatched(next..other));
                    next = other + 1;
                }
            }
        }
        gaps.end(unmatched(next..self.len(1)));
        gaps
    }

    /// Matches what has the same number, in the gaps that there are; what has none is left. Whether
    /// there was anything.
    pub(super) fn round(&mut self, number: impl Fn(&Self, usize, usize) -> Option<u64>) -> bool {
        let mut pairs = Vec::new();
        let mut common = Common::default();
        // Those of a gap that have a number.
        let mut places: [Vec<Index>; 2] = Default::default();
        let mut numbers: [Vec<u64>; 2] = Default::default();
        for gap in self.gaps().iter() {
            for side in [0, 1] {
                places[side].clear();
                numbers[side].clear();
                for &index in gap[side] {
                    if let Some(number) = number(self, side, index.index()) {
                        places[side].push(index);
                        numbers[side].push(number);
                    }
                }
            }
            let [own, others] = &places;
            common.find(&numbers[0], &numbers[1], |one, another| {
                pairs.push((own[one], others[another]));
            });
        }
        for &(one, another) in &pairs {
            self.set(one.index(), another.index());
        }
        !pairs.is_empty()
    }

    /// Matches what is left in gaps, in order, where that is said to be right.
    pub(super) fn pair_up(&mut self, is_right: impl Fn([&[Index]; 2]) -> bool) {
        for gap in self.gaps().iter().filter(|&gap| is_right(gap)) {
            for (&one, &another) in gap[0].iter().zip(gap[1]) {
                self.set(one.index(), another.index());
            }
        }
    }

    /// Whether two can be matched without crossing those that are, `freed` of the first left out.
    pub(super) fn fits(&self, one: usize, another: usize, freed: Option<usize>) -> bool {
        let own = |index: usize| self.of(0, index);
        let counts = |&index: &usize| {
            own(index).is_some() && Some(index) != freed && !self.moved.contains(&index)
        };
        let (before, after) = (one.saturating_sub(MAX_DISTANCE), one + 1 + MAX_DISTANCE);
        let previous = (before..one).rev().find(counts).and_then(own);
        let next = (one + 1..after.min(self.len(0))).find(counts).and_then(own);
        (if before > 0 { previous.is_some() } else { true })
            && (if after < self.len(0) { next.is_some() } else { true })
            && previous.is_none_or(|previous| previous < another)
            && next.is_none_or(|next| another < next)
    }
}

/// What is unmatched on both sides between neighbours that are matched: the places of both sequences,
/// one gap after the other.
#[derive(Default)]
pub(super) struct Gaps {
    places: [Vec<Index>; 2],
    /// Where each gap ends among the places.
    ends: Vec<[usize; 2]>,
}

impl Gaps {
    /// Ends a gap of which the first sequence's places are there; without any on a side it is none.
    pub(super) fn end(&mut self, others: impl Iterator<Item = Index>) {
        let start = self.ends.last().copied().unwrap_or_default();
        if self.places[0].len() > start[0] {
            self.places[1].extend(others);
            let end = [self.places[0].len(), self.places[1].len()];
            if end[1] > start[1] {
                self.ends.push(end);
            } else {
                self.places[0].truncate(start[0]);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = [&[Index]; 2]> {
        let starts = std::iter::once([0, 0]).chain(self.ends.iter().copied());
        let slice = |side: usize, from: [usize; 2], to: [usize; 2]| {
            &self.places[side][from[side]..to[side]]
        };
        starts.zip(&self.ends).map(move |(from, &to)| [slice(0, from, to), slice(1, from, to)])
    }
}
