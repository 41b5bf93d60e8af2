//! Long common subsequences, in time that grows as the sequences do.

use imara_diff::{Algorithm, Diff, Token};
use rustc_hash::FxHashMap;

/// Of longer sequences, so many are aligned at a time.
const WINDOW: usize = 256;
/// So many where those have too little in common.
const WIDE_WINDOW: usize = 1024;

/// Finds long common subsequences, of one pair of sequences after the other in the same room.
#[derive(Default)]
pub(super) struct Common {
    diff: Diff,
    known: FxHashMap<u64, u32>,
    tokens: [Vec<Token>; 2],
    /// How many windows, up to where it is, have too little in common.
    misses: usize,
}

impl Common {
    /// Shows places of a long common subsequence, in time that grows as the sequences do.
    pub(super) fn find(
        &mut self,
        one: &[u64],
        another: &[u64],
        mut found: impl FnMut(usize, usize),
    ) {
        let before = common_prefix(one, another);
        let (own, others) = (&one[before..], &another[before..]);
        let after = own.iter().rev().zip(others.iter().rev()).take_while(|(a, b)| a == b).count();
        (0..before).for_each(|index| found(index, index));
        (1..=after).for_each(|index| found(one.len() - index, another.len() - index));
        let (own, others) = (&own[..own.len() - after], &others[..others.len() - after]);
        let mut divisions = Vec::new();
        if own.len().max(others.len()) > WINDOW {
            match anchors(own, others) {
                Some(anchors) => divisions = anchors,
                None => return,
            }
        }
        self.misses = 0;
        let mut from = (0, 0);
        for (index, other) in divisions {
            found(before + index, before + other);
            let between = (&own[from.0..index], &others[from.1..other]);
            self.follow(between, |i, j| found(before + from.0 + i, before + from.1 + j));
            from = (index + 1, other + 1);
        }
        let rest = (&own[from.0..], &others[from.1..]);
        self.follow(rest, |i, j| found(before + from.0 + i, before + from.1 + j));
    }

    /// The same where nothing divides the sequences: a window at the front of both is aligned, then the
    /// next one from where that alignment ends.
    pub(super) fn follow(
        &mut self,
        (one, another): (&[u64], &[u64]),
        mut found: impl FnMut(usize, usize),
    ) {
        let (mut at, mut other_at) = (0, 0);
        loop {
            let same = common_prefix(&one[at..], &another[other_at..]);
            (0..same).for_each(|index| found(at + index, other_at + index));
            (at, other_at) = (at + same, other_at + same);
            let (own, others) = (&one[at..], &another[other_at..]);
            if own.is_empty() || others.is_empty() {
                return;
            }
            // A wide window costs more: where those have nothing in common either, they get rare.
            let size = if self.misses.is_power_of_two() { WIDE_WINDOW } else { WINDOW };
            let most = own.len().max(others.len());
            // As much of both, for the longer one to have as much too many here as everywhere.
            let window = |of: usize| of.min((of * size).div_ceil(most));
            let lengths = (window(own.len()), window(others.len()));
            let pairs = self.in_window(&own[..lengths.0], &others[..lengths.1]);
            let is_last = most <= size;
            let (kept, next) =
                if is_last { (pairs.len(), lengths) } else { settled(&pairs, lengths) };
            let is_miss = kept < lengths.0.max(lengths.1) / 4;
            self.misses = if is_miss { self.misses + 1 } else { 0 };
            if self.misses == 1 && !is_last {
                // Once more from here, in a wide window.
                continue;
            }
            for &(index, other) in &pairs[..kept] {
                found(at + index, other_at + other);
            }
            (at, other_at) = (at + next.0, other_at + next.1);
        }
    }

    /// What two windows have in common.
    pub(super) fn in_window(&mut self, one: &[u64], another: &[u64]) -> Vec<(usize, usize)> {
        let Some(count) = self.intern(one, another) else { return Vec::new() };
        let pairs = self.edit(Algorithm::Myers, count);
        if one.len().max(another.len()) <= WINDOW {
            return pairs;
        }
        // Myers' algorithm as it is there gives up where much was inserted. The other one begins with
        // what is rare, and so finds what follows.
        let others = self.edit(Algorithm::Histogram, count);
        if others.len() > pairs.len() { others } else { pairs }
    }

    /// Takes the tokens of two sequences; how many different ones there are, where they have any in
    /// common.
    pub(super) fn intern(&mut self, one: &[u64], another: &[u64]) -> Option<u32> {
        self.known.clear();
        let mut intern = |side: usize, items: &[u64]| {
            let (known, tokens) = (&mut self.known, &mut self.tokens[side]);
            tokens.clear();
            tokens.extend(items.iter().map(|&item| {
                let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
                Token(*known.entry(item).or_insert(next))
            }));
            u32::try_from(known.len()).unwrap_or(u32::MAX)
        };
        let own = intern(0, one);
        let count = intern(1, another);
        self.tokens[1].iter().any(|token| token.0 < own).then_some(count)
    }

    /// What the tokens of the two sequences have in common.
    pub(super) fn edit(&mut self, algorithm: Algorithm, count: u32) -> Vec<(usize, usize)> {
        let Self { diff, tokens: [tokens, others], .. } = self;
        diff.compute_with(algorithm, tokens, others, count);
        let kept = (0_u32..).zip(tokens).filter(|&(index, _)| !diff.is_removed(index));
        let others_kept = (0_u32..).zip(others).filter(|&(index, _)| !diff.is_added(index));
        let pairs = kept.zip(others_kept);
        pairs.map(|((index, _), (other, _))| (index as usize, other as usize)).collect()
    }
}

/// How many of the pairs found in a window to keep, and where the next window is to begin.
pub(super) fn settled(
    pairs: &[(usize, usize)],
    lengths: (usize, usize),
) -> (usize, (usize, usize)) {
    let up_to = |quarters: usize| {
        let limits = (lengths.0 * quarters / 4, lengths.1 * quarters / 4);
        pairs.partition_point(|pair| pair.0 < limits.0 && pair.1 < limits.1)
    };
    // What is close to the end may be matched only because the window has nothing that suits better.
    let (half, most) = (up_to(2), up_to(3));
    let kept = if most > half { most } else { pairs.len() };
    // With none in the second half it is not known which are beside each other; as long as there is
    // one, each window is much further than the one before.
    let next = if kept > half { pairs.get(kept - 1) } else { None };
    (kept, next.map_or(lengths, |pair| (pair.0 + 1, pair.1 + 1)))
}

/// How many at the front are the same.
pub(super) fn common_prefix(one: &[u64], another: &[u64]) -> usize {
    one.iter().zip(another).take_while(|(a, b)| a == b).count()
}

/// Places of what occurs once in both sequences, as many as are in the same order in both; None where
/// they have nothing in common.
pub(super) fn anchors(one: &[u64], another: &[u64]) -> Option<Vec<(usize, usize)>> {
    let unique = |items: &[u64]| {
        let mut places: FxHashMap<u64, Option<usize>> = FxHashMap::default();
        for (place, &item) in items.iter().enumerate() {
            places.entry(item).and_modify(|known| *known = None).or_insert(Some(place));
        }
        places
    };
    let (own, others) = (unique(one), unique(another));
    if !own.keys().any(|item| others.contains_key(item)) {
        return None;
    }
    let pairs = one.iter().enumerate().filter_map(|(place, item)| {
        own[item]?;
        Some((place, others.get(item).copied()??))
    });
    // The longest increasing subsequence, by patience sorting.
    let mut ends: Vec<usize> = Vec::new();
    let mut nodes: Vec<((usize, usize), Option<usize>)> = Vec::new();
    for pair in pairs {
        let at = ends.partition_point(|&end| nodes[end].0.1 < pair.1);
        let before = at.checked_sub(1).map(|before| ends[before]);
        nodes.push((pair, before));
        if at == ends.len() {
            ends.push(nodes.len() - 1);
        } else {
            ends[at] = nodes.len() - 1;
        }
    }
    let mut found = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some((pair, before)) = next.map(|next| nodes[next]) {
        found.push(pair);
        next = before;
    }
    found.reverse();
    Some(found)
}
