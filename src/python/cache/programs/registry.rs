//! Programs among the params of a rule: jaxprs, which jax makes anew at each trace.
//!
//! Two of them say the same where they have the same number. What is counted is everything that a
//! rule of jax may read, sources and names included: all but which variables and lists they are made
//! of. Programs with constants, with effects on anything but Refs, or with types that are neither of
//! arrays nor of Refs have no number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hashlink::LruCache;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyFunction, PyList, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encode::{encode_derivative_rule, encode_jaxpr, put_in_words};
use crate::python::cache::key::pins::Pins;
use crate::python::cache::reasons::{CONSTANTS, Reason, UNKNOWN_OBJECT};
use crate::python::cpython::native::entries;
use crate::python::interpose::install;
use crate::python::jax::names::Jax;
use crate::python::program::graph::{self, unfilled};
use crate::python::program::jaxpr_view::{GraphView, JaxprView, ListsView};
use crate::python::program::objects::{address, is_exactly};

/// The number of what a program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number(u64);

impl Number {
    /// As a key.
    pub fn raw(self) -> u64 {
        self.0
    }
}

/// What is known of a program for as long as it lives.
struct Known {
    program: Py<PyWeakrefReference>,
    number: Number,
    /// Tells it from all other programs that ever were.
    serial: u64,
    /// The programs within it, however deep, in order; as they are, closed or not.
    nested: Vec<(Number, Py<PyAny>)>,
    /// Those of them that jits have, which may use them elsewhere too.
    of_jits: Vec<Py<PyAny>>,
    /// Fragments that were replayed for it, each with the closed one that was given.
    replayed: SmallVec<[(u64, usize); 2]>,
    /// What was made of it, by what else it was made of and by what it says.
    made: FxHashMap<(Others, Label), Made>,
    /// In which outermost trace it was first seen.
    since: u64,
    /// The programs of the first call that had it, and of the first that had one that it is within.
    together: [Option<Together>; 2],
    /// Variables of what was made of it, by the address of the recorded ones.
    vars: FxHashMap<usize, [Py<PyAny>; 2]>,
}

/// Programs that say the same and were made of programs that say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    pub number: Number,
    /// Names what those say that it was made of.
    pub of: u64,
}

/// What tells a program from others that are made of the same ones: what it says, and where several
/// say the same, which call has made it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    pub kind: Kind,
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
    /// A replay, as a twin of one.
    Replay,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Open,
    Closed,
}

/// The addresses of the programs that a call has besides the first one.
pub type Others = SmallVec<[usize; 1]>;

/// What is known of programs by what they say.
#[derive(Default)]
struct Lore {
    /// Programs that calls had beside different others.
    mingled: FxHashSet<(Number, Place)>,
    /// jax makes more than one of them of the same programs.
    several: FxHashSet<(Kind, Form)>,
    serial: u64,
}

static LORE: Mutex<Option<Lore>> = Mutex::new(None);

fn with_lore<R>(body: impl FnOnce(&mut Lore) -> R) -> R {
    body(LORE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// By address.
static KNOWN: Mutex<Option<FxHashMap<usize, Known>>> = Mutex::new(None);

/// What programs say.
struct Numbers {
    /// With the objects that the words name.
    by_words: LruCache<Box<[u64]>, (Number, Pins)>,
    /// The tracebacks of their equations, each one that stands for all that are equal.
    tracebacks: FxHashMap<Number, Arc<Vec<Py<PyAny>>>>,
    last: u64,
}

static NUMBERS: Mutex<Option<Numbers>> = Mutex::new(None);
const MAX_NUMBERS: usize = 1 << 13;

/// Nothing is dropped, and no Python runs, within `body`.
fn with_known<R>(body: impl FnOnce(&mut FxHashMap<usize, Known>) -> R) -> R {
    body(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// As `with_known`, for one program.
fn with<R>(program: &Bound<'_, PyAny>, body: impl FnOnce(&mut Known) -> R) -> Option<R> {
    let py = program.py();
    with_known(|all| {
        let known = all.get_mut(&address(program))?;
        let alive = known.program.bind(py).upgrade();
        alive.is_some_and(|alive| alive.is(program)).then(|| body(known))
    })
}

/// Whether an object is a jaxpr, closed or not.
pub fn is_jaxpr(py: Python<'_>, jax: &Jax, object: *mut ffi::PyObject) -> bool {
    is_exactly(object, jax.closed_jaxpr_type.as_ptr().cast())
        || is_exactly(object, jax.jaxpr_type.as_ptr().cast())
        || graph::is_lazy(py, object)
}

/// The open jaxpr of any jaxpr, and which of the two that was.
///
/// # Errors
/// It has constants.
pub fn open<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
) -> Result<(Bound<'py, PyAny>, Form), Reason> {
    let py = jaxpr.py();
    let consts = jaxpr.getattr_opt(intern!(py, "consts")).map_err(|_| UNKNOWN_OBJECT)?;
    if let Some(consts) = consts
        && consts.len().map_err(|_| UNKNOWN_OBJECT)? > 0
    {
        return Err(CONSTANTS);
    }
    let closed = is_exactly(jaxpr.as_ptr(), jax.closed_jaxpr_type.as_ptr().cast());
    if closed && !jax.closed_jaxpr_type.is(&jax.jaxpr_type) {
        let open = jaxpr.getattr(intern!(py, "jaxpr")).map_err(|_| UNKNOWN_OBJECT)?;
        return Ok((open, Form::Closed));
    }
    Ok((jaxpr.clone(), Form::Open))
}

/// The number of what an open jaxpr says.
///
/// # Errors
/// Why it has none.
pub fn number_of(jax: &Jax, program: &Bound<'_, PyAny>) -> Result<Number, Reason> {
    let py = program.py();
    if let Some(number) = with(program, |known| known.number) {
        return Ok(number);
    }
    let mut call = Call::new(0);
    let describe = |call: &mut Call| {
        call.pins = Some(Vec::new());
        encode_jaxpr(jax, program, call)
    };
    put_in_words(py, &mut call, describe).map_err(|_| UNKNOWN_OBJECT)??;
    let mut nested: Vec<(Number, Py<PyAny>)> = Vec::new();
    let mut of_jits: Vec<Py<PyAny>> = Vec::new();
    for &inner in &call.programs {
        // SAFETY: a part of the program.
        let inner = unsafe { Bound::from_borrowed_ptr(py, inner) };
        let (open, _) = open(jax, &inner)?;
        let number = number_of(jax, &open)?;
        let of_inner = nested_of(&open);
        of_jits.extend(with(&open, |known| clones(py, &known.of_jits)).into_iter().flatten());
        if call.of_jits.contains(&inner.as_ptr()) {
            of_jits.push(open.unbind());
        }
        nested.push((number, inner.unbind()));
        nested.extend(of_inner);
    }
    // SAFETY: alive, as parts of the program.
    let pin = |pin| unsafe { Bound::from_borrowed_ptr(py, pin) };
    let mut pins = Pins::new(call.pins.take().into_iter().flatten().map(pin));
    pins.keep(std::mem::take(&mut call.own().kept));
    let tracebacks = std::mem::take(&mut call.own().tracebacks);
    let (number, old) = number_of_words(py, call.signature.words().into(), pins, tracebacks);
    drop(old);
    note(program, number, nested).map_err(|_| UNKNOWN_OBJECT)?;
    with(program, |known| known.of_jits = of_jits);
    Ok(number)
}

/// What is replaced by this is to be dropped by the caller.
fn number_of_words(
    py: Python<'_>,
    words: Box<[u64]>,
    pins: Pins,
    tracebacks: Vec<Py<PyAny>>,
) -> (Number, impl Sized + use<>) {
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = numbers.get_or_insert_with(|| Numbers {
        by_words: LruCache::new(usize::MAX),
        tracebacks: FxHashMap::default(),
        last: 0,
    });
    if let Some((number, known)) = numbers.by_words.get(&words)
        && known.are_alive(py)
    {
        return (*number, (Some((pins, tracebacks)), None, None, (None, None)));
    }
    numbers.last += 1;
    let number = Number(numbers.last);
    let same = numbers.by_words.insert(words, (number, pins));
    let of_same = same.as_ref().and_then(|(number, _)| numbers.tracebacks.remove(number));
    numbers.tracebacks.insert(number, Arc::new(tracebacks));
    let many = numbers.by_words.len() > MAX_NUMBERS;
    let last = if many { numbers.by_words.remove_lru() } else { None };
    let of_last = last.as_ref().and_then(|(_, (number, _))| numbers.tracebacks.remove(number));
    (number, (None, last, of_last, (same, of_same)))
}

/// The tracebacks of the equations of programs that say what a number stands for; None where that is
/// forgotten.
pub fn tracebacks_of(number: Number) -> Option<Arc<Vec<Py<PyAny>>>> {
    let numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    numbers.as_ref()?.tracebacks.get(&number).cloned()
}

/// Notes what a program says.
///
/// # Errors
/// There is no weak reference to it.
pub fn note(
    program: &Bound<'_, PyAny>,
    number: Number,
    nested: Vec<(Number, Py<PyAny>)>,
) -> PyResult<()> {
    let py = program.py();
    let known = Known {
        program: PyWeakrefReference::new(program)?.unbind(),
        number,
        serial: with_lore(|lore| {
            lore.serial += 1;
            lore.serial
        }),
        nested,
        of_jits: Vec::new(),
        replayed: SmallVec::new(),
        made: FxHashMap::default(),
        since: install::outermost(),
        together: [None, None],
        vars: FxHashMap::default(),
    };
    let old = with_known(|all| all.insert(address(program), known));
    drop(old);
    if LOOKED.swap(install::epoch(), Ordering::Relaxed) != install::epoch() {
        forget_gone(py);
    }
    Ok(())
}

/// In which outermost trace programs that are gone were last forgotten.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Forgets programs that are gone, and those that only these have kept.
fn forget_gone(py: Python<'_>) {
    loop {
        let is_gone = |known: &mut Known| known.program.bind(py).upgrade().is_none();
        let gone: Vec<(usize, Known)> =
            with_known(|all| all.extract_if(|_, known| is_gone(known)).collect());
        if gone.is_empty() {
            return;
        }
    }
}

/// The programs within one that has a number.
pub fn nested_of(program: &Bound<'_, PyAny>) -> Vec<(Number, Py<PyAny>)> {
    let py = program.py();
    let copy = |known: &mut Known| {
        known.nested.iter().map(|(number, inner)| (*number, inner.clone_ref(py))).collect()
    };
    with(program, copy).unwrap_or_default()
}

/// What was given when a fragment was replayed for a program: its address, closed or not.
pub fn was_replayed(program: &Bound<'_, PyAny>, fragment: u64) -> Option<usize> {
    let find = |known: &mut Known| {
        let all = known.replayed.iter();
        all.rev().find(|(other, _)| *other == fragment).map(|&(_, given)| given)
    };
    with(program, find)?
}

/// Notes that a fragment is replayed for a program.
pub fn note_replayed(program: &Bound<'_, PyAny>, fragment: u64, given: usize) {
    with(program, |known| {
        known.replayed.retain(|(other, _)| *other != fragment);
        known.replayed.push((fragment, given));
    });
}

fn clones(py: Python<'_>, objects: &[Py<PyAny>]) -> Vec<Py<PyAny>> {
    objects.iter().map(|object| object.clone_ref(py)).collect()
}

/// Whether a program has one within that is new in this outermost trace and that a jit has: it may be
/// used elsewhere too.
pub fn has_new_jit(program: &Bound<'_, PyAny>) -> bool {
    let py = program.py();
    let of_jits = with(program, |known| clones(py, &known.of_jits)).unwrap_or_default();
    let is_new = |known: &mut Known| known.since == install::outermost();
    of_jits.iter().any(|inner| with(inner.bind(py), is_new).unwrap_or(true))
}

/// Whether some program of a call came beside others before, or one within them, new in this outermost
/// trace, within others: what is made of it alone would be taken for what is made of all. Notes which
/// came together where `outermost` says that the call is no part of another one's rule.
pub fn are_mingled(
    given: &[Py<PyAny>],
    within: &[Bound<'_, PyAny>],
    outermost: bool,
    py: Python<'_>,
) -> bool {
    let serial = |open: &Py<PyAny>| with(open.bind(py), |known| known.serial);
    let together: SmallVec<[u64; 2]> = given.iter().filter_map(serial).collect();
    let given = given.iter().map(|open| (open.bind(py), Place::Given));
    let within = within.iter().map(|open| (open, Place::Within));
    let mut mingled = false;
    for (program, place) in given.chain(within) {
        let look = |known: &mut Known| {
            let is_new = known.since == install::outermost();
            let differs =
                |other: &Option<Together>| other.as_ref().is_some_and(|other| *other != together);
            let own = differs(&known.together[place as usize]);
            let other = is_new && differs(&known.together[1 - place as usize]);
            if outermost {
                known.together[place as usize].get_or_insert_with(|| together.clone());
            }
            (known.number, is_new, outermost && (own || other))
        };
        let Some((number, is_new, apart)) = with(program, look) else { continue };
        if place == Place::Given || is_new {
            mingled |= with_lore(|lore| {
                if apart {
                    lore.mingled.insert((number, place));
                }
                lore.mingled.contains(&(number, place))
            });
        }
    }
    mingled
}

/// Where a call has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Given,
    Within,
}

/// The serials of the programs of a call.
type Together = SmallVec<[u64; 2]>;

/// All variables of a program, in order.
///
/// # Errors
/// It is no jaxpr.
pub fn all_vars<'py>(program: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = program.py();
    let eqns = program.getattr(intern!(py, "eqns"))?.cast_into::<PyList>()?;
    let constvars = program.getattr(intern!(py, "constvars"))?;
    let mut vars: Vec<_> = constvars.try_iter()?.collect::<PyResult<_>>()?;
    let invars: Vec<_> =
        program.getattr(intern!(py, "invars"))?.try_iter()?.collect::<PyResult<_>>()?;
    vars.extend(invars);
    for eqn in eqns.iter() {
        for var in eqn.getattr(intern!(py, "outvars"))?.try_iter()? {
            vars.push(var?);
        }
    }
    Ok(vars)
}

/// The functions of derivative rules that a program's equations have, in order.
///
/// # Errors
/// It is no jaxpr.
pub fn rules_of<'py>(jax: &Jax, program: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match unfilled(jax, program) {
        Some(graph) => rules_in(jax, program.py(), &GraphView::new(jax, &graph)),
        None => rules_in(jax, program.py(), &ListsView::new(jax, program)),
    }
}

fn rules_in<'py, V: JaxprView<'py>>(
    jax: &Jax,
    py: Python<'py>,
    view: &V,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let wrapped: *mut ffi::PyTypeObject = jax.wrapped_function_type.as_ptr().cast();
    let mut rules = Vec::new();
    for eqn in view.eqns()? {
        let eqn = eqn.ok_or_else(|| PyTypeError::new_err("an equation that is none of jax's"))?;
        if jax.rule_primitives.bind(py).contains(view.primitive(&eqn))? {
            let values = entries(&view.params(&eqn)).into_iter().map(|(_, value)| value);
            rules.extend(values.filter(|value| {
                is_exactly(value.as_ptr(), wrapped) || value.is_exact_instance_of::<PyFunction>()
            }));
        }
    }
    Ok(rules)
}

/// Whether two derivative rules say the same.
pub fn same_rule(jax: &Jax, one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>) -> bool {
    let py = one.py();
    let words = |rule: &Bound<'_, PyAny>| {
        let mut call = Call::new(0);
        let describe = |call: &mut Call| encode_derivative_rule(jax, rule, call);
        let described = put_in_words(py, &mut call, describe);
        matches!(described, Ok(Ok(()))).then_some(call)
    };
    // Both are kept until they were compared, since words name objects by address.
    match (words(one), words(another)) {
        (Some(one), Some(another)) => one.signature.words() == another.signature.words(),
        _ => false,
    }
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
    let find =
        |known: &mut Known| known.vars.get(&address(recorded)).map(|[_, own]| own.bind(py).clone());
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

/// Notes that jax makes several programs of a kind of the same programs.
pub fn note_several(kind: Kind, form: Form) {
    with_lore(|lore| lore.several.insert((kind, form)));
}

/// Whether jax was seen to do so.
pub fn are_several(kind: Kind, form: Form) -> bool {
    with_lore(|lore| lore.several.contains(&(kind, form)))
}

/// What tells a program from others that were made of the same ones, where it is known.
pub fn label_of(
    first: &Bound<'_, PyAny>,
    others: &Others,
    kind: Kind,
    open: &Bound<'_, PyAny>,
) -> Option<Label> {
    let find = |known: &mut Known| {
        let is = |made: &Made| made.open.as_ref().is_some_and(|(made, _)| made.is(open));
        let mut all = known.made.iter();
        let of = |(key, made): &(&(Others, Label), &Made)| {
            key.1.kind == kind && key.0 == *others && is(made)
        };
        all.find(of).map(|(key, _)| key.1)
    };
    with(first, find)?
}

/// Forgets what is known of programs.
pub fn forget() {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(known);
    let lore = with_lore(|lore| {
        let serial = lore.serial;
        std::mem::replace(lore, Lore { serial, ..Lore::default() })
    });
    drop(lore);
}

/// What was made of programs and has a label.
pub fn made<'py>(
    first: &Bound<'py, PyAny>,
    others: &Others,
    label: Label,
    form: Form,
) -> Option<(Bound<'py, PyAny>, Maker)> {
    let py = first.py();
    let find = |known: &mut Known| {
        let made = known.made.get(&(others.clone(), label))?;
        let made = if form == Form::Open { &made.open } else { &made.closed };
        made.as_ref().map(|(made, maker)| (made.bind(py).clone(), *maker))
    };
    with(first, find)?
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
