//! What is known of programs for as long as they live.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::python::cache::programs::forms::Form;
use crate::python::cache::programs::sharing::{Place, Together, forget_sharing, next_serial};
use crate::python::cache::programs::structural_id::StructuralId;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::{address, is_exactly};
use crate::python::jax::names::Jax;
use crate::python::jax::settings::programs_begun;
use crate::python::trace::session;

/// What is known of a program for as long as it lives.
struct ProgramFacts {
    program: Py<PyWeakrefReference>,
    id: StructuralId,
    /// Tells it from all other programs that ever were.
    serial: u64,
    /// The programs nested in it, however deep, in order; as they are, closed or not.
    nested: Vec<(StructuralId, Py<PyAny>)>,
    /// Those of them that jits have, which may use them elsewhere too.
    of_jits: Vec<Py<PyAny>>,
    /// The closed ones of it that calls had, with the serial of each.
    closed: SmallVec<[(Py<PyWeakrefReference>, u64); 1]>,
    /// Calls that had it, each with the serial of the one, closed or not, that was given last.
    given: SmallVec<[(u64, u64); 2]>,
    /// What was made of it, by what else it was made of and by its structural id.
    made: FxHashMap<(Others, Label), Made>,
    /// In which outermost trace it was first seen.
    since: u64,
    /// The programs of the first call that had it, and of the first that had one that it is nested in.
    together: [Option<Together>; 2],
    /// Variables of what was made of it, by the address of the recorded ones.
    vars: FxHashMap<usize, [Py<PyAny>; 2]>,
    /// Where it was first transposed, for operands of each kind.
    transposed: SmallVec<[FirstTransposed; 1]>,
}

/// The first transposition of a program for operands of some kinds.
struct FirstTransposed {
    /// The serial of the one, closed or not, that was given.
    given: u64,
    kinds: u64,
    traceback: Py<PyAny>,
}

/// Programs that are structurally equal and were made of programs that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lineage {
    pub id: StructuralId,
    /// Names what those say that it was made of.
    pub of: u64,
}

/// What tells a program from others that are made of the same ones: its structural id, and where several
/// are structurally equal, which call has made it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    pub lineage: Lineage,
    pub maker: u64,
}

/// A program that was made of others: the open one, and the closed one where there is one. jax knows
/// either by identity.
#[derive(Default)]
struct Made {
    open: Option<(Py<PyAny>, Maker)>,
    closed: Option<(Py<PyAny>, Maker)>,
}

/// Who has made a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// A rule of jax.
    Rule,
    /// A replay, as a fresh copy of one.
    Replay,
}

/// The serials of the programs that a call has besides the first one.
pub type Others = SmallVec<[u64; 1]>;

static PROGRAMS: AddressCache<ProgramFacts> = AddressCache::new();

/// Reads or changes what is known of a program. In `body` nothing is dropped, and no Python runs.
fn with<R>(program: &Bound<'_, PyAny>, body: impl FnOnce(&mut ProgramFacts) -> R) -> Option<R> {
    let py = program.py();
    let body = |known: &mut ProgramFacts| {
        let alive = known.program.bind(py).upgrade();
        alive.is_some_and(|alive| alive.is(program)).then(|| body(known))
    };
    PROGRAMS.get(&address(program), body)?
}

/// Notes the structural id of a program.
///
/// # Errors
/// There is no weak reference to it.
pub fn note(
    program: &Bound<'_, PyAny>,
    id: StructuralId,
    nested: Vec<(StructuralId, Py<PyAny>)>,
) -> PyResult<()> {
    let py = program.py();
    let known = ProgramFacts {
        program: PyWeakrefReference::new(program)?.unbind(),
        id,
        serial: next_serial(),
        nested,
        of_jits: Vec::new(),
        closed: SmallVec::new(),
        given: SmallVec::new(),
        made: FxHashMap::default(),
        since: session::outermost(),
        together: [None, None],
        vars: FxHashMap::default(),
        transposed: SmallVec::new(),
    };
    drop(PROGRAMS.insert(address(program), known));
    if LOOKED.swap(programs_begun(), Ordering::Relaxed) != programs_begun() {
        forget_gone(py);
    }
    Ok(())
}

/// In which outermost trace programs that are gone were last forgotten.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Forgets programs that are gone, and those that only these have kept.
fn forget_gone(py: Python<'_>) {
    loop {
        let gone = PROGRAMS.retain_not(|known| known.program.bind(py).upgrade().is_none());
        if gone.is_empty() {
            return;
        }
    }
}

/// The nested programs of one that has a structural id.
pub fn nested_of(program: &Bound<'_, PyAny>) -> Vec<(StructuralId, Py<PyAny>)> {
    let py = program.py();
    let copy = |known: &mut ProgramFacts| {
        known.nested.iter().map(|(id, inner)| (*id, inner.clone_ref(py))).collect()
    };
    with(program, copy).unwrap_or_default()
}

/// The serial of a program as it is given, closed or not: its address may be used again. A new one where
/// nothing is known of it.
pub fn serial_as_given(open: &Bound<'_, PyAny>, program: &Bound<'_, PyAny>) -> u64 {
    if program.is(open) {
        return serial_of(open);
    }
    let py = open.py();
    let find = |known: &mut ProgramFacts| {
        let mut closed = known.closed.iter();
        let is_it = |weak: &Py<PyWeakrefReference>| {
            weak.bind(py).upgrade().is_some_and(|closed| closed.is(program))
        };
        closed.find(|(weak, _)| is_it(weak)).map(|&(_, serial)| serial)
    };
    if let Some(serial) = with(open, find).flatten() {
        return serial;
    }
    let serial = next_serial();
    let Ok(weak) = PyWeakrefReference::new(program) else { return serial };
    let gone = with(open, |known| {
        let all = std::mem::take(&mut known.closed).into_iter();
        let (mut alive, gone): (Vec<_>, Vec<_>) =
            all.partition(|(weak, _)| weak.bind(py).upgrade().is_some());
        alive.push((weak.unbind(), serial));
        known.closed = alive.into();
        gone
    });
    drop(gone);
    serial
}

/// As what a call had a program last: its serial, closed or not.
pub(super) fn last_given(program: &Bound<'_, PyAny>, call: u64) -> Option<u64> {
    let find = |known: &mut ProgramFacts| {
        let all = known.given.iter();
        all.rev().find(|(other, _)| *other == call).map(|&(_, given)| given)
    };
    with(program, find)?
}

/// Whether some call had a program as the one with a serial.
pub(super) fn was_given_as(program: &Bound<'_, PyAny>, given: u64) -> bool {
    let any = |known: &mut ProgramFacts| known.given.iter().any(|&(_, other)| other == given);
    with(program, any).unwrap_or(false)
}

/// Notes that a call has a program.
pub(super) fn note_given(program: &Bound<'_, PyAny>, call: u64, given: u64) {
    with(program, |known| {
        known.given.retain(|(other, _)| *other != call);
        known.given.push((call, given));
    });
}

/// The structural id of a program.
pub(super) fn known_id(program: &Bound<'_, PyAny>) -> Option<StructuralId> {
    with(program, |known| known.id)
}

/// The nested programs of one that jits have.
pub(super) fn jits_of(program: &Bound<'_, PyAny>) -> Vec<Py<PyAny>> {
    let py = program.py();
    let copy =
        |known: &mut ProgramFacts| known.of_jits.iter().map(|jit| jit.clone_ref(py)).collect();
    with(program, copy).unwrap_or_default()
}

/// Notes which these are.
pub(super) fn note_jits(program: &Bound<'_, PyAny>, of_jits: Vec<Py<PyAny>>) {
    with(program, |known| known.of_jits = of_jits);
}

/// Whether a program has a nested one that is new in this outermost trace and that a jit has: it may be
/// used elsewhere too.
pub fn has_new_jit(program: &Bound<'_, PyAny>) -> bool {
    let py = program.py();
    let is_new = |known: &mut ProgramFacts| known.since == session::outermost();
    jits_of(program).iter().any(|inner| with(inner.bind(py), is_new).unwrap_or(true))
}

/// What stands for a recorded variable in what is made of a program.
///
/// # Errors
/// Out of memory.
pub fn own_var<'py>(
    jax: &Jax,
    first: &Bound<'py, PyAny>,
    recorded: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = first.py();
    let find = |known: &mut ProgramFacts| {
        known.vars.get(&address(recorded)).map(|[_, own]| own.bind(py).clone())
    };
    if let Some(own) = with(first, find).flatten() {
        return Ok(own);
    }
    let aval = recorded.getattr(intern!(py, "aval"))?;
    let own = if is_exactly(recorded.as_ptr(), jax.drop_var_type.as_ptr().cast()) {
        jax.drop_var_type.bind(py).call1((aval,))?
    } else {
        jax.new_var(aval)?
    };
    let both = [recorded.clone().unbind(), own.clone().unbind()];
    let old = with(first, |known| known.vars.insert(address(recorded), both));
    drop(old);
    Ok(own)
}

/// The traceback at which a program, given as the one with a serial, was first transposed for operands of
/// some kinds: `traceback` where it was not before.
pub fn first_transposed_at<'py>(
    program: &Bound<'py, PyAny>,
    given: u64,
    kinds: u64,
    traceback: &Bound<'py, PyAny>,
) -> Bound<'py, PyAny> {
    let py = program.py();
    let find = |known: &mut ProgramFacts| {
        let before =
            known.transposed.iter().find(|first| (first.given, first.kinds) == (given, kinds));
        if let Some(before) = before {
            return before.traceback.bind(py).clone();
        }
        let first = FirstTransposed { given, kinds, traceback: traceback.clone().unbind() };
        known.transposed.push(first);
        traceback.clone()
    };
    with(program, find).unwrap_or_else(|| traceback.clone())
}

/// What tells a program from others that were made of the same ones, where it is known.
pub fn label_of(
    first: &Bound<'_, PyAny>,
    others: &Others,
    lineage: Lineage,
    open: &Bound<'_, PyAny>,
) -> Option<Label> {
    let find = |known: &mut ProgramFacts| {
        let is = |made: &Made| made.open.as_ref().is_some_and(|(made, _)| made.is(open));
        let mut all = known.made.iter();
        let of = |(key, made): &(&(Others, Label), &Made)| {
            key.1.lineage == lineage && key.0 == *others && is(made)
        };
        all.find(of).map(|(key, _)| key.1)
    };
    with(first, find)?
}

/// What was made of programs and has a label.
pub fn made<'py>(
    first: &Bound<'py, PyAny>,
    others: &Others,
    label: Label,
    form: Form,
) -> Option<(Bound<'py, PyAny>, Maker)> {
    let py = first.py();
    let find = |known: &mut ProgramFacts| {
        let made = known.made.get(&(others.clone(), label))?;
        let made = if form == Form::Open { &made.open } else { &made.closed };
        made.as_ref().map(|(made, maker)| (made.bind(py).clone(), *maker))
    };
    with(first, find)?
}

/// Whether a replay has made something of a program.
pub(super) fn has_replays(first: &Bound<'_, PyAny>) -> bool {
    let by_replay = |made: &Option<(Py<PyAny>, Maker)>| {
        made.as_ref().is_some_and(|made| made.1 == Maker::Replay)
    };
    let any = |known: &mut ProgramFacts| {
        known.made.values().any(|made| by_replay(&made.open) || by_replay(&made.closed))
    };
    with(first, any).unwrap_or(false)
}

/// Notes what was made of programs, which does not have any of them in it.
pub fn note_made(
    first: &Bound<'_, PyAny>,
    others: &Others,
    label: Label,
    form: Form,
    made: &Bound<'_, PyAny>,
    maker: Maker,
) {
    let new = (made.clone().unbind(), maker);
    let old = with(first, |known| {
        let made = known.made.entry((others.clone(), label)).or_default();
        if form == Form::Open { made.open.replace(new) } else { made.closed.replace(new) }
    });
    drop(old);
}

/// What tells a program from all others that ever were; a new one where nothing is known of it.
pub(super) fn serial_of(program: &Bound<'_, PyAny>) -> u64 {
    with(program, |known| known.serial).unwrap_or_else(next_serial)
}

/// The structural id of a program, whether the program is new in this outermost trace, and whether it came
/// beside others than `together` before. Notes what came together where `outermost` says that the call is no
/// part of another one's rule.
pub(super) fn beside_others(
    program: &Bound<'_, PyAny>,
    place: Place,
    together: &Together,
    outermost: bool,
) -> Option<(StructuralId, bool, bool)> {
    with(program, |known| {
        let is_new = known.since == session::outermost();
        let differs =
            |other: &Option<Together>| other.as_ref().is_some_and(|other| other != together);
        let own = differs(&known.together[place as usize]);
        let other = is_new && differs(&known.together[1 - place as usize]);
        if outermost {
            known.together[place as usize].get_or_insert_with(|| together.clone());
        }
        (known.id, is_new, outermost && (own || other))
    })
}

/// Forgets what is known of programs.
pub fn forget() {
    drop(PROGRAMS.clear());
    forget_sharing();
}
