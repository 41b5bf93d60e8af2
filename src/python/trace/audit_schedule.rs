//! Which replays and remembered answers are audited, and what came of it.
//!
//! What runs takes as long as it does without jaxide, which is up to a hundred times as long as a replay. So
//! there is a budget, unless nearly all is to be audited: a hundredth of the time of traces.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::cpython::native::string_of;
use crate::python::jax::watch_warnings;

/// What was seen, and what was audited of it. Changed with the interpreter attached only.
struct Counter {
    seen: AtomicU64,
    /// How many are to be seen before the next one is audited.
    next: AtomicU64,
    audited: AtomicU64,
    differences: AtomicU64,
}

/// Seen, audited, different.
type Counts = (u64, u64, u64);

/// Of how many one is audited; 0 where none is.
static EVERY: AtomicU64 = AtomicU64::new(0);
static REPLAYS: Counter = Counter::new();
static EVALUATIONS: Counter = Counter::new();
/// Audited calls that are structurally equal with other objects.
static OTHER_OBJECTS: AtomicU64 = AtomicU64::new(0);

impl Counter {
    const fn new() -> Self {
        Self {
            seen: AtomicU64::new(0),
            next: AtomicU64::new(0),
            audited: AtomicU64::new(0),
            differences: AtomicU64::new(0),
        }
    }

    /// Counts one more; whether it is to be audited.
    #[cold]
    fn is_next(&self, every: u64) -> bool {
        let seen = add_one(&self.seen);
        if seen < self.next.load(Ordering::Relaxed) {
            return false;
        }
        let is_next = every < BUDGETED || is_affordable();
        let wait = if is_next { every } else { every / 8 };
        self.next.store(seen + wait, Ordering::Relaxed);
        if is_next {
            add_one(&self.audited);
        }
        is_next
    }

    /// Starts to wait for the first one.
    fn begin(&self, every: u64) {
        self.next.store(self.seen.load(Ordering::Relaxed) + every, Ordering::Relaxed);
    }

    fn values(&self) -> Counts {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (value(&self.seen), value(&self.audited), value(&self.differences))
    }
}

fn add_one(count: &AtomicU64) -> u64 {
    let more = count.load(Ordering::Relaxed) + 1;
    count.store(more, Ordering::Relaxed);
    more
}

/// From so many on audits have a budget.
const BUDGETED: u64 = 100;
/// An audit may take a nanosecond for each so many that traces take.
const SHARE: u128 = 100;
/// What may be saved up, in nanoseconds.
const MAX_BUDGET: i64 = 200_000;
static BUDGET: AtomicI64 = AtomicI64::new(MAX_BUDGET);

thread_local! {
    /// Since when the outermost trace of this thread has not been counted.
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The outermost trace of this thread begins.
pub fn trace_begins() {
    if EVERY.load(Ordering::Relaxed) != 0 {
        SINCE.set(Some(Instant::now()));
    }
}

/// No trace of this thread records any more.
pub fn trace_ends() {
    save(None);
}

/// Adds the share of a trace so far to the budget. It is counted from `next` on.
fn save(next: Option<Instant>) {
    let Some(since) = SINCE.replace(next) else { return };
    let share = i64::try_from(since.elapsed().as_nanos() / SHARE).unwrap_or(MAX_BUDGET);
    let saved = BUDGET.load(Ordering::Relaxed).saturating_add(share);
    BUDGET.store(saved.min(MAX_BUDGET), Ordering::Relaxed);
}

#[cold]
fn is_affordable() -> bool {
    save(Some(Instant::now()));
    BUDGET.load(Ordering::Relaxed) > 0
}

/// An audit, which takes of the budget what it takes.
pub struct Running(Instant);

impl Running {
    /// From now on.
    pub fn begin() -> Self {
        Self(Instant::now())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let taken: Duration = self.0.elapsed();
        let taken = i64::try_from(taken.as_nanos()).unwrap_or(i64::MAX);
        let left = BUDGET.load(Ordering::Relaxed).saturating_sub(taken);
        BUDGET.store(left, Ordering::Relaxed);
    }
}

/// Whether the replay that is about to happen is to be audited.
#[inline]
pub fn is_due() -> bool {
    let every = EVERY.load(Ordering::Relaxed);
    every != 0 && REPLAYS.is_next(every)
}

/// As `is_due`, of an answer that is remembered of abstract evaluation.
#[inline]
pub fn is_evaluation_due() -> bool {
    let every = EVERY.load(Ordering::Relaxed);
    every != 0 && EVALUATIONS.is_next(every)
}

/// Of how many replays one is audited from now on; 0 for none. What it was before.
#[pyfunction]
pub fn set_audit(every: u64) -> u64 {
    for counter in [&REPLAYS, &EVALUATIONS] {
        counter.begin(every);
    }
    EVERY.swap(every, Ordering::Relaxed)
}

/// What was counted: of replays and of abstract evaluations what was seen, audited, and differed; and how
/// many audited calls had other objects that are structurally equal.
#[pyfunction]
pub fn audit_counts() -> (Counts, Counts, u64) {
    (REPLAYS.values(), EVALUATIONS.values(), OTHER_OBJECTS.load(Ordering::Relaxed))
}

/// Starts counting anew.
#[pyfunction]
pub fn clear_audit_counts() {
    for counter in [&REPLAYS, &EVALUATIONS] {
        for count in [&counter.seen, &counter.audited, &counter.differences] {
            count.store(0, Ordering::Relaxed);
        }
        counter.begin(EVERY.load(Ordering::Relaxed));
    }
    OTHER_OBJECTS.store(0, Ordering::Relaxed);
}

/// Says that abstract evaluation answers otherwise than is remembered.
///
/// # Errors
/// The warning is an error.
pub fn evaluation<'py>(
    primitive: &Bound<'py, PyAny>,
    params: &Bound<'py, PyDict>,
    remembered: &Bound<'py, PyAny>,
    real: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = primitive.py();
    add_one(&EVALUATIONS.differences);
    let key = PyDict::new(py);
    key.set_item("params", params)?;
    watch_warnings::uncounted(|| {
        let module = py.import(intern!(py, "jaxide._reports.audit"))?;
        let name = format!("abstract evaluation of {}", string_of(&primitive.str()?));
        let reason = "types, effects, or the operand that is forwarded";
        let args = (name, reason, key, remembered, real);
        module.call_method1(intern!(py, "replay_differs"), args)?;
        Ok(())
    })
}

/// An audited replay has differed.
pub fn note_difference() {
    add_one(&REPLAYS.differences);
}

/// An audited call has had other objects that are structurally equal.
pub fn note_other_objects() {
    add_one(&OTHER_OBJECTS);
}
