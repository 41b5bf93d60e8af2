//! The portable key of a call, and what the store has under it.

use std::cell::Cell;

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::expand::{Local, Signature};
use crate::segments::{Key, key_of};

use crate::python::cache::call::Site;
use crate::python::cache::fragment::load::load;
use crate::python::cache::fragment::recorded::Recorded;
use crate::python::cache::fragment::save::is_lasting;
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::pins::Pins;
use crate::python::cache::key::trace_context::TraceContext;
use crate::python::cache::programs::decision::Programs;
use crate::python::cache::programs::given::Given;
use crate::python::cache::reasons::Reason;
use crate::python::cache::store::{self, Entry, Known};
use crate::python::cache::warm::keys::{key_of_parts, place_of, portable_words};
use crate::python::cache::warm::library::{Library, current};
use crate::python::jax::names::Jax;
use crate::python::jax::watch_warnings;
use crate::python::jax::world::{Validity, times_changed};
use crate::python::trace::abstract_eval::Context;
use crate::python::trace::session;

/// What the store says of a call.
#[derive(Default)]
pub struct Found<'py> {
    /// An entry, which the cache of the process has from now on.
    pub entry: Option<Bound<'py, Entry>>,
    /// How the store is to have what the call comes to; None where nothing is written.
    pub lasting: Option<Lasting>,
}

/// How the store may have what a call comes to.
#[derive(Clone, Copy)]
pub struct Lasting {
    /// The key.
    pub key: Key,
    /// The devices that there were when the call began.
    devices: Key,
    /// All equations have a traceback that is given, those of nested programs too: such a program is not what
    /// another call would lead jax to.
    is_given_traceback: bool,
}

impl Lasting {
    /// Whether what is known of the call is to be stored, once it can be replayed.
    ///
    /// # Errors
    /// jax's state cannot be read.
    pub fn holds(&self, py: Python<'_>, jax: &Jax, known: &Known) -> PyResult<bool> {
        let (Known::Replay(recorded) | Known::Candidate(recorded)) = known else {
            return Ok(false);
        };
        let Some(library) = current(py) else { return Ok(false) };
        if is_changed_by_hand() {
            return Ok(false);
        }
        // Who asks for devices where there are none starts a backend.
        if library.names().of_devices(py)? != Some(self.devices) {
            return Ok(false);
        }
        let context = Context::current(py, jax)?;
        Ok(is_lasting(jax, context.for_eqns.bind(py), recorded, !self.is_given_traceback))
    }
}

/// Whether somebody has changed jax by hand in this process, and be it for a while: jax's own caches keep what was
/// made meanwhile, so what is recorded may be of that, and stock jax may make what the store does not have.
pub fn is_changed_by_hand() -> bool {
    times_changed() != 0
}

/// Looks a call up of which the cache of the process knows nothing.
///
/// # Errors
/// jax's state cannot be read.
#[inline]
pub fn find<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    context: &TraceContext<'py>,
    call: &Call,
    describe: &impl Fn(&mut Call) -> Result<(), Reason>,
) -> PyResult<Found<'py>> {
    match current(py) {
        Some(library) => look(py, jax, &library, site, context, call, describe),
        None => Ok(Found::default()),
    }
}

thread_local! {
    static UNHEARD: Cell<u64> = const { Cell::new(0) };
    /// How many calls are under way that may be stored.
    static RECORDINGS: Cell<usize> = const { Cell::new(0) };
}

/// A call that may be stored is under way while this lives.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDINGS.set(RECORDINGS.get() - 1);
    }
}

/// Records a call: what it calls is part of something that may be stored, where the call may be.
pub fn recording<R>(may_be_stored: bool, body: impl FnOnce() -> R) -> R {
    if !may_be_stored {
        return body();
    }
    RECORDINGS.set(RECORDINGS.get() + 1);
    let _recording = Recording;
    body()
}

/// Whether a call that may be stored is under way in this thread.
pub fn is_recording() -> bool {
    RECORDINGS.get() != 0
}

/// A jit has found its program, which is part of the call, or what is replayed was recorded so: whoever traces it
/// may hear a warning that this process does not.
pub fn note_unheard() {
    UNHEARD.set(UNHEARD.get() + 1);
}

/// How often that was noted in this thread.
pub fn unheard() -> u64 {
    UNHEARD.get()
}

/// Whether a function gives no warning. Nobody hears those that it gives.
#[pyfunction]
pub fn is_silent(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    // No trace may be under way.
    let _hearing = watch_warnings::HeardWarnings::new(function.py())?;
    let before = watch_warnings::count();
    watch_warnings::silent(|| function.call0().map(drop))?;
    Ok(watch_warnings::count() == before)
}

#[cold]
fn look<'py>(
    py: Python<'py>,
    jax: &Jax,
    library: &Library,
    site: &Site,
    context: &TraceContext<'py>,
    call: &Call,
    describe: &impl Fn(&mut Call) -> Result<(), Reason>,
) -> PyResult<Found<'py>> {
    if is_changed_by_hand() {
        return Ok(Found::default());
    }
    let Some(lasting) = site.lasting.filter(|_| !store::is_barred(site.id)) else {
        return Ok(Found::default());
    };
    let signature = Signature::new(call.signature.configuration()).noting_locals();
    let mut again = Call { pins: Some(Vec::new()), signature, ..call.empty() };
    if describe(&mut again).is_err() || again.signature.words() != call.signature.words() {
        return Ok(Found::default());
    }
    let Some(devices) = library.names().of_devices(py)? else { return Ok(Found::default()) };
    let is_given_traceback = context.has_given_traceback();
    let mut programs = Vec::with_capacity(again.programs.len());
    for &program in &again.programs {
        // SAFETY: an argument of the call.
        let program = unsafe { Bound::from_borrowed_ptr(py, program) };
        // One of the store has lines of its own.
        let requests = jax.requests.bind(py);
        if requests.call_method1(intern!(py, "is_loaded"), (&program,))?.is_truthy()? {
            return Ok(Found::default());
        }
        let Some(name) = library.names().of_value(&program)? else { return Ok(Found::default()) };
        programs.push(name);
    }
    let mut programs = programs.into_iter();
    // What is appended has the lines of the call at hand, or is not stored.
    let mut places = FxHashMap::default();
    let mut name = |local, word| match local {
        Local::Program => programs.next(),
        _ => Some(place_of(&mut places, word)),
    };
    let Some(words) = portable_words(py, library, &again.signature, &mut name)? else {
        return Ok(Found::default());
    };
    let configuration = library.names().of_configuration(py, call.signature.configuration())?;
    let Some(configuration) = configuration else { return Ok(Found::default()) };
    let beside = [lasting, devices, u128::from(is_given_traceback), configuration];
    let key = key_of_parts(&beside, &words);
    let lasting = Lasting { key, devices, is_given_traceback };
    let found = |entry| Found { entry, lasting: library.is_writable().then_some(lasting) };
    let eqn_context = Context::current(py, jax)?.for_eqns.bind(py).clone();
    let read =
        library.read(py, key, |reading| load(reading, jax, &eqn_context, call, context.stack()));
    let recorded = match read {
        Ok(Some(recorded)) => Recorded { programs: of_store(py, jax, call), ..recorded },
        Ok(None) => return Ok(found(None)),
        Err(error) if error.is_instance_of::<PyException>(py) => {
            library.refuse(py, &error)?;
            return Ok(found(None));
        }
        Err(error) => return Err(error),
    };
    // SAFETY: alive, as parts of the arguments.
    let pin = |pin| unsafe { Bound::from_borrowed_ptr(py, pin) };
    let mut pins = Pins::new(again.pins.take().into_iter().flatten().map(pin));
    pins.keep(std::mem::take(&mut again.own().kept));
    let generation = if site.forgets { Some(session::jit_generation(py, jax)?) } else { None };
    let entry = Entry::new(Known::Replay(recorded), Validity::of_what_lasts(), pins, generation);
    store::insert_loaded(py, site.id, &call.signature, entry)?;
    Ok(found(store::find(py, site.id, &call.signature)?))
}

/// What is known of the programs of a call that the store has: jax comes to them again.
fn of_store(py: Python<'_>, jax: &Jax, call: &Call) -> Option<Programs> {
    let programs = Programs::new(Given::of(py, jax, call)?).repeating();
    programs.note_own(py);
    Some(programs)
}

/// Whether a value has a portable name: an equal one is the same to jax. It has none where there is no store.
pub fn has_name(value: &Bound<'_, PyAny>) -> bool {
    let library = current(value.py());
    library.is_some_and(|library| library.names().of_value(value).is_ok_and(|name| name.is_some()))
}

/// What names something that is done with a value, in every process; None where the value has no name, or where
/// there is no store.
///
/// # Errors
/// The value cannot be read.
pub fn lasting_name(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    let Some(library) = current(value.py()) else { return Ok(None) };
    let name = library.names().of_value(value)?;
    Ok(name.map(|name| key_of(format!("{what} {name:x}").as_bytes())))
}
