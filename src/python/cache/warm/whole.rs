//! Programs of functions that are traced as a whole, not within another trace, as the store has them.
//!
//! A function that only computes comes to the same program whenever what it reads and the types of its arguments are
//! the same. So the store has the program under a key of these, and the next process does not run the function.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyLookupError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;

use crate::expand::Signature;
use crate::segments::{Key, key_of};

use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encode::{encode_fully, encode_whole};
use crate::python::cache::key::trace_context::{configuration_now, world_of};
use crate::python::cache::programs::forms::is_jaxpr;
use crate::python::cache::reasons::Reason;
use crate::python::cache::warm::derivations;
use crate::python::cache::warm::keys::{key_of_parts, place_of, portable_words};
use crate::python::cache::warm::library::{current, is_open};
use crate::python::cache::warm::lookup::{self, is_changed_by_hand};
use crate::python::cpython::native::string_of;
use crate::python::cpython::shared::{Once, Shared};
use crate::python::jax::current_trace::current_trace;
use crate::python::jax::names::jax;
use crate::python::jax::{watch_config, watch_warnings, world};
use crate::python::trace::{audit_schedule, session};

/// Tells these keys from all others.
const KIND: &[u8] = b"a whole trace";
/// Tells the keys of what code reads.
const READS: &[u8] = b"what code reads";

/// A function that jax is to trace, or the name of one; the result; and what is asked about the types of arguments.
type PromisedTrace = (Py<PyAny>, Py<PyTuple>, Py<PyAny>);

/// What a function is to say of a program.
struct Promise {
    function: String,
    program: Py<PyAny>,
    result: Py<PyAny>,
}

/// Says what becomes of a function that jax is to trace; there once there is a store.
static WHOLE_TRACES: Once<Py<PyAny>> = Once::new();

/// What there is to say of a function that jax is to trace, before that; there once there is a store.
static JIT_PROGRAMS: Once<JitPrograms> = Once::new();

/// How many functions jax was to trace.
static TRACES: AtomicU64 = AtomicU64::new(0);

/// Programs of jits of jax's own, of which jax is told once it asks.
struct JitPrograms {
    /// The program of a function that jax is to trace.
    traced: Py<PyAny>,
    /// jax forgets the programs of a function.
    forget: Py<PyAny>,
    /// jax is told of all.
    tell_all: Py<PyAny>,
}

/// What is to be called before the next trace begins.
static SETTLES: Shared<Vec<Py<PyAny>>> = Shared::new(Vec::new());

thread_local! {
    /// What was derived from programs while something whole is recorded.
    static DERIVED: RefCell<Option<Py<PyList>>> = const { RefCell::new(None) };
    /// A function that jax is asked to trace, what it is to come to, and what says whether it is traced for the
    /// arguments that were meant.
    static PROMISED_TRACE: RefCell<Option<PromisedTrace>> = const { RefCell::new(None) };
    /// The name of a function that jax must not trace now, and whether it was to.
    static REFUSED_TRACE: RefCell<Option<(String, bool)>> = const { RefCell::new(None) };
    static PROMISED: RefCell<Option<Promise>> = const { RefCell::new(None) };
    /// Why the function that was asked for last has no key.
    static REFUSED: Cell<Option<Reason>> = const { Cell::new(None) };
}

/// Whether what is traced next in this thread may be something whole, of which the store may have the program.
fn may_be_whole() -> bool {
    is_open() && session::is_active() && !session::is_recording()
}

/// The key of a function that is traced as a whole, for positional and named arguments in which types stand for so many
/// arrays; None where it has none. `again` says that it was just traced, so that jax has seen the functions which it reads.
///
/// # Errors
/// jax's state cannot be read.
#[pyfunction]
pub fn key_of_whole(
    function: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    traced: usize,
    context: &Bound<'_, PyAny>,
    again: bool,
) -> PyResult<Option<Key>> {
    let py = function.py();
    let jax = jax(py)?;
    // What has changed since the last trace may have gone unnoticed.
    world::begin_trace();
    watch_config::note_change();
    let Some(library) = current(py).filter(|_| !is_changed_by_hand()) else { return Ok(None) };
    let Ok(configuration) = configuration_now(py, jax)? else { return Ok(None) };
    // Where anything of jax differs, it counts who reaches it.
    if configuration.jit_disabled || configuration.folds || world_of(configuration.number) != 0 {
        return Ok(None);
    }
    let args: Vec<_> = args.iter().map(|arg| arg.as_ptr()).collect();
    let mut call = Call { signature: Signature::new(0).noting_locals(), ..Call::new(0) };
    let described = encode_fully(py, &mut call, |call| {
        if call.signature.locals().is_none() {
            call.signature = Signature::new(0).noting_locals();
        }
        encode_whole(py, jax, function.as_ptr(), &args, traced, again, call)
    })?;
    if let Err(reason) = described {
        REFUSED.set(Some(reason));
        return Ok(None);
    }
    REFUSED.set(None);
    let mut places = FxHashMap::default();
    let mut name = |_, word| Some(place_of(&mut places, word));
    let Some(words) = portable_words(py, &library, &call.signature, &mut name)? else {
        REFUSED.set(Some("something without a portable name"));
        return Ok(None);
    };
    let names = library.names();
    let Some(devices) = names.of_devices(py)? else { return Ok(None) };
    let Some(configuration) = names.of_configuration(py, configuration.number)? else {
        return Ok(None);
    };
    let Some(context) = names.of_value(context)? else { return Ok(None) };
    Ok(Some(key_of_parts(&[key_of(KIND), devices, configuration, context], &words)))
}

/// Why the function that was asked for last has no key; None where it has one.
#[pyfunction]
pub fn refused_whole() -> Option<Reason> {
    REFUSED.get()
}

/// A function that keeps its results, the program and the key that it was given, whether that was within an equation,
/// and what it has made of them.
type Derivation<'py> = (String, bool, Bound<'py, PyAny>, Bound<'py, PyTuple>, Bound<'py, PyAny>);

/// Traces something whole by `trace`: what it came to, and what was derived from programs meanwhile; None where it may
/// not be stored.
///
/// # Errors
/// Those of `trace`.
#[pyfunction]
pub fn record_whole<'py>(
    trace: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Option<Bound<'py, PyList>>)> {
    let py = trace.py();
    if !current(py).is_some_and(|library| library.is_writable()) {
        return Ok((trace.call0()?, None));
    }
    let list = PyList::empty(py);
    let (warned, unheard, made) =
        (watch_warnings::count(), lookup::unheard(), session::traces_made());
    let jax = jax(py)?;
    let hearing = watch_warnings::Recording::begin(py, jax)?;
    let outer = DERIVED.replace(Some(list.clone().unbind()));
    let result = lookup::recording(true, || trace.call0());
    DERIVED.set(outer);
    drop(hearing);
    let lasts = watch_warnings::count() == warned
        && lookup::unheard() == unheard
        && session::traces_made() != made;
    Ok((result?, lasts.then_some(list)))
}

/// Runs `load`, which has jax make programs as if a trace were under way.
///
/// # Errors
/// Those of `load`.
#[pyfunction]
pub fn as_recorded<'py>(load: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = load.py();
    let jax = jax(py)?;
    let parent = current_trace(py, jax)?;
    let _recording = session::Recording::start(py, jax, &parent, false);
    load.call0()
}

/// Whether what the store has is to be compared with what jax does.
#[pyfunction]
pub fn is_whole_audited() -> bool {
    audit_schedule::is_due()
}

/// Says that the store has something else of a function than jax has traced.
///
/// # Errors
/// The warning is an error.
#[pyfunction]
pub fn tell_whole_differs(py: Python<'_>, name: &str, replayed: &str, real: &str) -> PyResult<()> {
    audit_schedule::note_difference();
    watch_warnings::uncounted(|| {
        let module = py.import(intern!(py, "jaxide._reports.audit"))?;
        let reason = "the program of the store is another one";
        let args = (format!("trace of {name}"), reason, py.None(), replayed, real);
        module.call_method1(intern!(py, "replay_differs"), args).map(drop)
    })
}

/// Has `settle` be called before the next trace begins.
#[pyfunction]
pub fn settle_later(settle: Py<PyAny>) {
    SETTLES.peek(|all| all.push(settle));
    session::set_pending(true);
}

/// Calls what was to be called before the next trace begins.
///
/// # Errors
/// A signal handler raises.
#[pyfunction]
pub fn settle(py: Python<'_>) -> PyResult<()> {
    session::set_pending(false);
    for settle in SETTLES.peek(std::mem::take) {
        settle.call0(py)?;
    }
    Ok(())
}

/// Forgets what was to be called: jax has forgotten its programs.
pub fn forget() {
    session::set_pending(false);
    drop(SETTLES.peek(std::mem::take));
}

/// Has `function` say `result` when jax asks it for what it makes of a program next.
#[pyfunction]
pub fn promise_derivation(function: String, program: &Bound<'_, PyAny>, result: Py<PyAny>) {
    let promise = Promise { function, program: program.clone().unbind(), result };
    drop(PROMISED.replace(Some(promise)));
}

/// Has jax come to `result` when it traces a function next, or one that is called so, for arguments of which
/// `fits` says that they are meant.
#[pyfunction]
pub fn promise_trace(function: Py<PyAny>, result: Py<PyTuple>, fits: Py<PyAny>) {
    drop(PROMISED_TRACE.replace(Some((function, result, fits))));
}

/// Has jax come to what `trace` says of a function, where it says something, when it traces the function.
#[pyfunction]
pub fn use_whole_traces(py: Python<'_>, trace: Py<PyAny>) {
    let _ = WHOLE_TRACES.set(py, trace);
}

/// Has jax come to what `traced` says of a function, where it says something, when it traces the function; calls
/// `forget` when jax forgets the programs of one, and `tell_all` when jax is to be left alone.
#[pyfunction]
pub fn use_jit_programs(py: Python<'_>, traced: Py<PyAny>, forget: Py<PyAny>, tell_all: Py<PyAny>) {
    let _ = JIT_PROGRAMS.set(py, JitPrograms { traced, forget, tell_all });
}

/// How many functions jax was to trace while anything of jaxide's was active.
#[pyfunction]
pub fn num_traces() -> u64 {
    TRACES.load(Ordering::Relaxed)
}

/// Notes that jax forgets the programs of a function.
///
/// # Errors
/// A signal handler raises.
pub fn forget_function(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    JIT_PROGRAMS.get(py).map_or(Ok(()), |known| known.forget.bind(py).call1((function,)).map(drop))
}

/// Has jax know all programs that it was to be told when it asks.
///
/// # Errors
/// A signal handler raises.
pub fn tell_all(py: Python<'_>) -> PyResult<()> {
    JIT_PROGRAMS.get(py).map_or(Ok(()), |known| known.tell_all.bind(py).call0().map(drop))
}

/// What `ask` returns where jax need not trace a function with a name for it; None otherwise, and jax keeps
/// nothing then.
///
/// # Errors
/// Those of `ask`.
#[pyfunction]
pub fn kept_by_jax<'py>(
    name: &str,
    ask: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let before = REFUSED_TRACE.replace(Some((name.to_owned(), false)));
    let result = ask.call0();
    let refused = REFUSED_TRACE.replace(before).is_some_and(|(_, refused)| refused);
    if refused { Ok(None) } else { result.map(Some) }
}

/// Whether a function that jax is to trace is the one that must not be.
fn is_refused(function: &Bound<'_, PyAny>) -> bool {
    let Some(name) = REFUSED_TRACE.with_borrow(|refused| Some(refused.as_ref()?.0.clone())) else {
        return false;
    };
    let is_met = is_called(function, &name);
    if is_met {
        REFUSED_TRACE.set(Some((name, true)));
    }
    is_met
}

/// Whether a function is called so within its module.
fn is_called(function: &Bound<'_, PyAny>, name: &str) -> bool {
    let own = function.getattr(intern!(function.py(), "__qualname__"));
    own.is_ok_and(|own| own.extract::<String>().is_ok_and(|own| own == name))
}

/// What was promised of a function that jax traces for arguments of such types. A signal handler may trace something
/// else meanwhile, or the same function for others.
///
/// # Errors
/// Those of the types.
fn promised<'py>(
    function: &Bound<'py, PyAny>,
    given: &Bound<'py, PyTuple>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = function.py();
    let known = PROMISED_TRACE.with_borrow(|promised| {
        let (known, result, fits) = promised.as_ref()?;
        Some((known.clone_ref(py), result.clone_ref(py), fits.clone_ref(py)))
    });
    let Some((known, result, fits)) = known else { return Ok(None) };
    let known = known.bind(py);
    let is_meant = match known.cast::<PyString>() {
        Ok(name) => is_called(function, &string_of(name)),
        Err(_) => known.is(function),
    };
    if !is_meant || !fits.bind(py).call1((given.get_item(1)?,))?.is_truthy()? {
        return Ok(None);
    }
    // Python code has run meanwhile.
    PROMISED_TRACE.with_borrow_mut(|promised| promised.take_if(|(_, own, _)| own.is(&result)));
    Ok(Some(result.into_bound(py)))
}

/// What was promised, or what the function comes to as a whole, when jax traces one; else `NotImplemented`.
///
/// # Errors
/// Those of the function.
#[pyfunction]
#[pyo3(signature = (*given))]
pub fn promised_trace<'py>(given: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    let function = given.get_item(0)?;
    TRACES.fetch_add(1, Ordering::Relaxed);
    if is_refused(&function) {
        return Err(PyLookupError::new_err("a function that jax has not traced"));
    }
    let promised = promised(&function, given)?;
    // That jax keeps a program now counts wherever that is from.
    let known = match JIT_PROGRAMS.get(py) {
        Some(programs) => programs.traced.bind(py).call1(given)?,
        None => py.NotImplemented().into_bound(py),
    };
    if let Some(result) = promised {
        return Ok(result.into_any());
    }
    if !known.is(py.NotImplemented()) {
        return Ok(known);
    }
    match WHOLE_TRACES.get(py) {
        Some(trace) if may_be_whole() => trace.bind(py).call1(given),
        _ => Ok(py.NotImplemented().into_bound(py)),
    }
}

/// Whether nobody has asked for what was promised.
#[pyfunction]
pub fn is_still_promised() -> bool {
    PROMISED_TRACE.take().is_some() | PROMISED.take().is_some()
}

/// What a function makes of a program, and keeps with it, by `run`.
///
/// # Errors
/// Those of `run`.
pub fn derived<'py>(
    function: &str,
    program: &Bound<'py, PyAny>,
    key: &Bound<'py, PyTuple>,
    run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = program.py();
    let promised = PROMISED.with_borrow_mut(|promised| {
        promised.take_if(|known| known.function == function && known.program.is(program))
    });
    if let Some(promised) = promised {
        let result = promised.result.into_bound(py);
        note_promised(function, program, key, &result)?;
        return Ok(result);
    }
    let result = run()?;
    let list = DERIVED.with_borrow(|list| list.as_ref().map(|list| list.clone_ref(py)));
    if let Some(list) = list {
        let requests = jax(py)?.requests.bind(py);
        let within = requests.call_method0(intern!(py, "is_within_equation"))?.is_truthy()?;
        let made: Derivation<'_> =
            (function.to_owned(), within, program.clone(), key.clone(), result.clone());
        list.bind(py).append(made)?;
    }
    Ok(result)
}

/// Notes how jax has come to programs that were promised.
fn note_promised<'py>(
    function: &str,
    program: &Bound<'py, PyAny>,
    key: &Bound<'py, PyTuple>,
    result: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let (py, jax) = (program.py(), jax(program.py())?);
    let items: Vec<_> = match result.cast_exact::<PyTuple>() {
        Ok(items) => items.iter().collect(),
        Err(_) => vec![result.clone()],
    };
    let items = items.into_iter().enumerate();
    let made = items.filter(|(_, item)| is_jaxpr(py, jax, item.as_ptr())).collect();
    derivations::note(jax, function, program, key, made)
}

/// The key of what code reads; None where there is no store, or the code has no portable name.
///
/// # Errors
/// The code cannot be read.
#[pyfunction]
pub fn key_of_code(code: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    let Some(library) = current(code.py()) else { return Ok(None) };
    let name = library.names().of_value(code)?;
    Ok(name.map(|name| key_of_parts(&[key_of(READS), name], &[])))
}
