//! Whether jax was as it was while something was learnt.
//!
//! Where the interpreter does not say what changes, one looks (`watch.rs`). To look at everything
//! whenever something was learnt is most of what noticing costs a first trace, and most of what that
//! learns is not used before its end. So what was learnt has numbers, and whoever uses it first, or ends
//! the trace, looks: if something has changed since the last look, what was learnt since does not hold.
//! Most changes matter to nobody, so in a trace in which there are some one looks whenever something is
//! learnt.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::python::cpython::shared::Shared;
use crate::python::jax::world::watch;

/// Whether something that was learnt holds.
pub struct Validity {
    /// The number of what was learnt; `HOLDS` once that is proven.
    number: AtomicU64,
}

const HOLDS: u64 = u64::MAX;
/// More ranges of what does not hold become one.
const MAX_RANGES: usize = 256;

/// The number of what was learnt last.
static LEARNT: AtomicU64 = AtomicU64::new(0);

/// Something has changed within this trace, or was found not to hold.
static IS_WARY: AtomicBool = AtomicBool::new(false);

/// What the last look at everything has come to.
struct Look {
    /// The number of what had been learnt last.
    learnt: u64,
    /// How often something had been noticed.
    times: u64,
    /// The numbers of what does not hold.
    doubtful: Vec<RangeInclusive<u64>>,
}

static LAST: Shared<Look> = Shared::new(Look { learnt: 0, times: 0, doubtful: Vec::new() });

/// Notices what has changed since the last trace.
pub fn begin_trace() {
    poll();
    IS_WARY.store(false, Ordering::Relaxed);
}

/// Notices what has changed since the last look, or since the surroundings of this trace changed.
pub fn poll() {
    watch::poll();
    let (learnt, times) = (LEARNT.load(Ordering::Relaxed), watch::times());
    let has_changed = LAST.peek(|last| {
        let has_changed = last.times != times;
        if has_changed && last.learnt != learnt {
            last.doubtful.push(last.learnt + 1..=learnt);
            if last.doubtful.len() > MAX_RANGES {
                let both = *last.doubtful[0].start()..=*last.doubtful[1].end();
                last.doubtful.splice(..2, [both]);
            }
        }
        (last.learnt, last.times) = (learnt, times);
        has_changed
    });
    if has_changed {
        IS_WARY.store(true, Ordering::Relaxed);
    }
}

/// Looks where something is learnt in a trace in which there are changes: before, and after.
pub fn look_if_wary() {
    if IS_WARY.load(Ordering::Relaxed) {
        poll();
    }
}

/// Proves what was learnt so far, as far as it holds.
pub fn prove_what_was_learnt() {
    if LAST.peek(|last| last.learnt) != LEARNT.load(Ordering::Relaxed) {
        poll();
    }
}

impl Validity {
    /// Of what was just learnt, while nothing was noticed.
    pub fn of_next() -> Self {
        if watch::IS_TOLD {
            return Self { number: AtomicU64::new(HOLDS) };
        }
        let number = LEARNT.fetch_add(1, Ordering::Relaxed) + 1;
        look_if_wary();
        Self { number: AtomicU64::new(number) }
    }

    /// Of what does not depend on this process.
    pub fn of_what_lasts() -> Self {
        Self { number: AtomicU64::new(HOLDS) }
    }

    /// Whether it holds.
    #[inline]
    pub fn holds(&self) -> bool {
        self.number.load(Ordering::Relaxed) == HOLDS || self.is_proven()
    }

    #[cold]
    fn is_proven(&self) -> bool {
        let number = self.number.load(Ordering::Relaxed);
        if LAST.peek(|last| last.learnt) < number {
            poll();
        }
        let holds = LAST.peek(|last| !last.doubtful.iter().any(|range| range.contains(&number)));
        if holds {
            self.number.store(HOLDS, Ordering::Relaxed);
        } else {
            IS_WARY.store(true, Ordering::Relaxed);
        }
        holds
    }
}
