//! Programs among the params of a rule: jaxprs, which jax makes anew at each trace.
//!
//! Two of them say the same where they have the same number. What is counted is everything that a
//! rule of jax may read, sources and names included: all but which variables and lists they are made
//! of. Programs with constants, with effects on anything but Refs, or with types that are neither of
//! arrays nor of Refs have no number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hashlink::LruCache;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::expand::Tag;
use crate::ir::{AtomKind, Effect, EffectsId, Var};

use crate::python::cache::call::put_in_words;
use crate::python::cache::key::canonical::shared;
use crate::python::cache::key::encode::{
    CALLABLE, Call, Encoder, FOREIGN_TRACER, Held, LITERAL_OF_OTHERS, REF, Reason, UNKNOWN_OBJECT,
};
use crate::python::cache::key::pins::Pins;
use crate::python::cpython::native::{address, entries, is_exactly};
use crate::python::jax::names::Jax;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::settings::programs_begun;
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::is_of_others;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::{is_lazy, unfilled};
use crate::python::trace::session;

pub const CONSTANTS: Reason = "program with constants or effects";

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
        || is_lazy(py, object)
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
        let mut encoder = Encoder::of_program(py, jax, call);
        encoder.words_of(program)?;
        encoder.finish()
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
        since: session::outermost(),
        together: [None, None],
        vars: FxHashMap::default(),
    };
    let old = with_known(|all| all.insert(address(program), known));
    drop(old);
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
    let is_new = |known: &mut Known| known.since == session::outermost();
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
            let is_new = known.since == session::outermost();
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
    let py = program.py();
    let mut rules = Vec::new();
    let mut add = |params: &Bound<'py, PyAny>| -> PyResult<()> {
        for (_, value) in entries(params.cast::<PyDict>()?) {
            let wrapped = is_exactly(value.as_ptr(), jax.wrapped_function_type.as_ptr().cast());
            if wrapped || value.is_exact_instance_of::<PyFunction>() {
                rules.push(value);
            }
        }
        Ok(())
    };
    let has_rule = |primitive: &Bound<'py, PyAny>| jax.rule_primitives.bind(py).contains(primitive);
    if let Some(graph) = unfilled(jax, program) {
        let program = Graph::unread(&graph).program;
        let side = graph.get().table();
        for id in program.eqns() {
            let data = program.eqn(id);
            if has_rule(&side.object(py, program.primitive(data.primitive).object))? {
                add(&side.params_dict(py, data.params))?;
            }
        }
        return Ok(rules);
    }
    for eqn in program.getattr(intern!(py, "eqns"))?.try_iter()? {
        let eqn = eqn?;
        if has_rule(&eqn.getattr(intern!(py, "primitive"))?)? {
            add(&eqn.getattr(intern!(py, "params"))?)?;
        }
    }
    Ok(rules)
}

/// Whether two derivative rules say the same.
pub fn same_rule(jax: &Jax, one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>) -> bool {
    let py = one.py();
    let words = |rule: &Bound<'_, PyAny>| {
        let mut call = Call::new(0);
        let describe = |call: &mut Call| Encoder::of_program(py, jax, call).value(rule.as_ptr(), 0);
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

impl<'py> Encoder<'_, 'py> {
    /// A jaxpr, by its number.
    pub(in crate::python::cache) fn program(
        &mut self,
        value: *mut ffi::PyObject,
    ) -> Result<(), Reason> {
        // SAFETY: a live argument.
        let value = unsafe { Bound::from_borrowed_ptr(self.py, value) };
        let (open, form) = open(self.jax, &value)?;
        let number = number_of(self.jax, &open)?;
        let word = Self::word_of(Item::Programs, number.0);
        self.call.signature.pair(Tag::Program, form as usize, word);
        self.call.programs.push(value.as_ptr());
        if self.of_jit {
            self.call.of_jits.push(value.as_ptr());
        }
        Ok(())
    }

    /// A function of jax's that traces a derivative rule, or goes with one; whether it is such a function.
    pub(in crate::python::cache) fn derivative_rule(
        &mut self,
        rule: *mut ffi::PyObject,
        depth: u32,
    ) -> Result<bool, Reason> {
        let words = self.jax.rule_words.bind(self.py);
        if words.is_none() {
            return Ok(false);
        }
        // SAFETY: a part of the program.
        let rule = unsafe { Bound::from_borrowed_ptr(self.py, rule) };
        let words = words.call1((rule,)).map_err(|_| UNKNOWN_OBJECT)?;
        let Ok((objects, values, held)) =
            words.extract::<(Bound<'_, PyTuple>, Bound<'_, PyAny>, Bound<'_, PyAny>)>()
        else {
            return Ok(false);
        };
        if !is_omitted(Item::DerivativeRules) {
            for object in objects.iter_borrowed() {
                self.identity(object.as_ptr());
            }
        }
        self.call.own().held.push(words.unbind());
        let programs = self.call.programs.len();
        self.item(Item::DerivativeRules, values.as_ptr(), depth + 1)?;
        // Last, since it takes longest.
        let holds = self.jax.may_hold_tracers.bind(self.py).call1((held,));
        if holds.and_then(|holds| holds.is_truthy()).map_err(|_| UNKNOWN_OBJECT)? {
            return Err(CALLABLE);
        }
        // A program that a rule refers to may have variables that others have too.
        if self.call.programs.len() > programs { Err(UNKNOWN_OBJECT) } else { Ok(true) }
    }

    /// What an open jaxpr consists of.
    fn words_of(&mut self, program: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let py = self.py;
        let get = |name| program.getattr(name).map_err(|_| UNKNOWN_OBJECT);
        let is_true = |value: Bound<'py, PyAny>| value.is_truthy().map_err(|_| UNKNOWN_OBJECT);
        if is_true(get(intern!(py, "is_high"))?)? {
            return Err(REF);
        }
        let names = get(intern!(py, "debug_info"))?;
        for name in ["traced_for", "func_src_info", "arg_names", "result_paths"] {
            let text = names.getattr(name).map_err(|_| UNKNOWN_OBJECT)?;
            self.names(&text)?;
        }
        match unfilled(self.jax, program) {
            Some(graph) if !graph.get().is_derived() => self.words_of_graph(&graph),
            _ => self.words_of_lists(program),
        }
    }

    /// A text, or some, or None.
    fn names(&mut self, names: &Bound<'py, PyAny>) -> Result<(), Reason> {
        if let Ok(names) = names.cast_exact::<PyTuple>() {
            self.call.signature.tag(Tag::Sequence, names.len());
            return names.iter().try_for_each(|name| self.names(&name));
        }
        if names.is_none() || names.is_exact_instance_of::<pyo3::types::PyString>() {
            return self.value(names.as_ptr(), 0);
        }
        Err(UNKNOWN_OBJECT)
    }

    fn words_of_graph(&mut self, graph: &Bound<'py, Graph>) -> Result<(), Reason> {
        let (py, jax) = (self.py, self.jax);
        let program = Graph::unread(graph).program;
        let graph = graph.get();
        let side = graph.table();
        // Variables that were removed have numbers too.
        let mut places: Vec<u32> = vec![u32::MAX; program.num_vars()];
        let mut next = 0;
        let mut define = |encoder: &mut Self, places: &mut Vec<u32>, var: Var| {
            places[var.as_u32() as usize] = next;
            encoder.defined(next, &side.aval(py, program.var_type(var)))?;
            next += 1;
            Ok(())
        };
        let constvars: SmallVec<[Var; 4]> =
            program.constvars().iter().map(|&(var, _)| var).collect();
        for vars in [&constvars[..], program.invars()] {
            self.call.signature.tag(Tag::Sequence, vars.len());
            for &var in vars {
                define(self, &mut places, var)?;
            }
        }
        let atom = |encoder: &mut Self, places: &[u32], atom: AtomKind| match atom {
            AtomKind::Var(var) => {
                encoder.call.signature.tag(Tag::Variable, places[var.as_u32() as usize] as usize);
                Ok(())
            }
            AtomKind::Literal(literal) => {
                encoder.program_literal(&side.object(py, program.literal(literal).object))
            }
        };
        for id in program.eqns() {
            let data = program.eqn(id);
            if data.effects != EffectsId::NONE {
                let effects = program.effect_list(data.effects).iter();
                let of = |effect: &Effect| {
                    let place = effect.input.map(|var| places[var.as_u32() as usize] as usize);
                    (side.object(py, effect.object), place)
                };
                self.effects(effects.map(of))?;
            }
            let operands = program.eqn_invars(id);
            let primitive = side.object(py, program.primitive(data.primitive).object);
            self.equation(
                operands.len(),
                &primitive,
                &side.object(py, program.context(data.context)),
            )?;
            let source = program.source(data.source);
            let stack = match source.name_stack {
                Some(id) => side.source_object(py, id),
                None => jax.empty_name_stack.bind(py).clone(),
            };
            let traceback = source.traceback.map(|id| side.source_object(py, id));
            self.source(&SourceRef { traceback, name_stack: stack })?;
            self.value(side.params_dict(py, data.params).as_ptr(), 1)?;
            for operand in operands {
                atom(self, &places, operand.kind())?;
            }
            for var in program.eqn_outvars(id) {
                define(self, &mut places, var)?;
            }
        }
        self.call.signature.tag(Tag::Sequence, program.outvars().len());
        program.outvars().iter().try_for_each(|out| atom(self, &places, out.kind()))?;
        let effects = graph.effects(py);
        if effects.is_truthy().map_err(|_| UNKNOWN_OBJECT)? {
            let place = |(var, object): (Var, Bound<'py, PyAny>)| {
                (address(&object), places[var.as_u32() as usize] as usize)
            };
            let places = side.seen_vars(py).map(place).collect();
            self.effects_of(&effects, &places)?;
        }
        Ok(())
    }

    /// What equations do to Refs, each with the place of the Ref's variable.
    fn effects(
        &mut self,
        effects: impl Iterator<Item = (Bound<'py, PyAny>, Option<usize>)>,
    ) -> Result<(), Reason> {
        let jax = self.jax;
        let (known, with_input) =
            (jax.ref_effects.bind(self.py), jax.input_effect_type.bind(self.py));
        let mut words: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (effect, place) in effects {
            let needs_place = effect.is_instance(with_input).unwrap_or(true);
            if needs_place && place.is_none() || !known.contains(effect.get_type()).unwrap_or(false)
            {
                return Err(CONSTANTS);
            }
            // Jax's classes live as long as the process.
            words.push((effect.get_type_ptr() as usize, place.unwrap_or(usize::MAX >> 8)));
        }
        words.sort_unstable();
        for (class, place) in words {
            self.call.signature.pair(Tag::Effect, place, class as u64);
        }
        Ok(())
    }

    /// As `effects`, of a set of jax's; `places` are those of variables, by address.
    fn effects_of(
        &mut self,
        effects: &Bound<'py, PyAny>,
        places: &FxHashMap<usize, usize>,
    ) -> Result<(), Reason> {
        let mut all: SmallVec<[_; 4]> = SmallVec::new();
        for effect in effects.try_iter().map_err(|_| UNKNOWN_OBJECT)? {
            let effect = effect.map_err(|_| UNKNOWN_OBJECT)?;
            let input =
                effect.getattr_opt(intern!(self.py, "input")).map_err(|_| UNKNOWN_OBJECT)?;
            let place = input.and_then(|input| places.get(&address(&input)).copied());
            all.push((effect, place));
        }
        self.effects(all.into_iter())
    }

    fn words_of_lists(&mut self, program: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let (py, jax) = (self.py, self.jax);
        let unknown = |_| UNKNOWN_OBJECT;
        let list = |object: &Bound<'py, PyAny>, name: &str| {
            object.getattr(name).map_err(unknown)?.cast_into::<PyList>().map_err(|_| UNKNOWN_OBJECT)
        };
        let mut places: FxHashMap<usize, usize> = FxHashMap::default();
        let define = |encoder: &mut Self, places: &mut FxHashMap<_, _>, var: &Bound<'py, PyAny>| {
            let place = places.len();
            places.insert(address(var), place);
            if is_exactly(var.as_ptr(), jax.drop_var_type.as_ptr().cast()) {
                encoder.call.signature.tag(Tag::Variable, usize::MAX >> 8);
            }
            let aval = var.getattr(intern!(py, "aval")).map_err(unknown)?;
            encoder.defined(u32::try_from(place).unwrap_or(u32::MAX), &aval)
        };
        let atom = |encoder: &mut Self, places: &FxHashMap<usize, usize>, atom: &Bound<'py, _>| {
            if is_exactly(atom.as_ptr(), jax.literal_type.as_ptr().cast()) {
                return encoder.program_literal(atom);
            }
            let place = places.get(&address(atom)).ok_or(UNKNOWN_OBJECT)?;
            encoder.call.signature.tag(Tag::Variable, *place);
            Ok(())
        };
        for name in ["constvars", "invars"] {
            let vars = list(program, name)?;
            self.call.signature.tag(Tag::Sequence, vars.len());
            for var in vars.iter() {
                define(self, &mut places, &var)?;
            }
        }
        for eqn in list(program, "eqns")?.iter() {
            let get = |name: &str| eqn.getattr(name).map_err(unknown);
            self.effects_of(&get("effects")?, &places)?;
            let operands = list(&eqn, "invars")?;
            self.equation(operands.len(), &get("primitive")?, &get("ctx")?)?;
            self.source(&SourceRef::of(jax, &get("source_info")?).map_err(unknown)?)?;
            self.value(get("params")?.as_ptr(), 1)?;
            for operand in operands.iter() {
                atom(self, &places, &operand)?;
            }
            for var in list(&eqn, "outvars")?.iter() {
                define(self, &mut places, &var)?;
            }
        }
        let outvars = list(program, "outvars")?;
        self.call.signature.tag(Tag::Sequence, outvars.len());
        outvars.iter().try_for_each(|out| atom(self, &places, &out))?;
        self.effects_of(&program.getattr(intern!(py, "effects")).map_err(unknown)?, &places)
    }

    /// An equation but for its source, params, operands and outputs.
    fn equation(
        &mut self,
        operands: usize,
        primitive: &Bound<'py, PyAny>,
        context: &Bound<'py, PyAny>,
    ) -> Result<(), Reason> {
        self.of_jit = self.jax.is_jit(primitive);
        self.call.signature.tag(Tag::Equation, operands);
        self.primitive(primitive.as_ptr())?;
        self.identity(context.as_ptr());
        Ok(())
    }

    fn source(&mut self, source: &SourceRef<'py>) -> Result<(), Reason> {
        match &source.traceback {
            Some(traceback) => self.traceback(traceback)?,
            // SAFETY: a constant of the interpreter.
            None => self.identity(unsafe { ffi::Py_None() }),
        }
        let stack = shared(&source.name_stack).map_err(|_| UNKNOWN_OBJECT)?;
        self.call.signature.pair(Tag::Identity, 2, stack.as_ptr() as u64);
        self.call.own().kept.push(stack.unbind());
        Ok(())
    }

    /// A variable where it is defined.
    fn defined(&mut self, place: u32, aval: &Bound<'py, PyAny>) -> Result<(), Reason> {
        self.call.signature.tag(Tag::Variable, place as usize);
        self.aval(aval)
    }

    fn program_literal(&mut self, literal: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let slots = &self.jax.slots;
        // SAFETY: a live jax `Literal`.
        let (value, aval) =
            unsafe { (slots.literal_val.get(literal), slots.literal_aval.get(literal)) };
        let (value, aval) = value.zip(aval).ok_or(FOREIGN_TRACER)?;
        if is_of_others(self.jax, &value).map_err(|_| UNKNOWN_OBJECT)? {
            return Err(LITERAL_OF_OTHERS);
        }
        self.literal_value(value.as_ptr(), aval.as_ptr(), Held::Bare)
    }
}
