//! One callable that is caught, and the life of one call of it.

use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::expand::CallableId;

use crate::python::cache::audit;
use crate::python::cache::fragment::record::{Before, NEW_OBJECTS, Recorded, Renew, record};
use crate::python::cache::fragment::replay::replay;
use crate::python::cache::key::encode::{Call, Reason, encode, encode_params, is_stable};
use crate::python::cache::key::functions::{self, Functions, look_through};
use crate::python::cache::key::pins::Pins;
use crate::python::cache::key::trace_context::{
    Configuration, FOLDS_EAGERLY, Now, configuration_now,
};
use crate::python::cache::programs::instantiate::{
    Given, Making, Programs, Settling, Way, is_running, run_rule,
};
use crate::python::cache::script;
use crate::python::cache::store::{self, Entry, Hits, Known};
use crate::python::cpython::native::attached;
use crate::python::jax::current_trace::within_trace;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::watch_arrays;
use crate::python::jax::watch_config;
use crate::python::jax::watch_warnings;
use crate::python::jax::world::{self, Reach, Validity};
use crate::python::trace::session;

pub const JIT_DISABLED: Reason = "disabled jit of a user's function";
pub const CAPTURES: Reason = "user's function that refers to traced values";
pub const GIVEN_TRACEBACK: Reason = "rule within a program that is evaluated";
pub const READ: Reason = "function that looks into a concrete array";
pub const WARNED: Reason = "function that warned";
pub const KEPT: Reason = "new program that may be used again";
pub const REACHES_CHANGE: Reason = "function that reaches what was changed of jax";
/// Says nothing about the next call, so it is not kept.
pub const CHANGED_MEANWHILE: Reason = "call during which jax changed";
pub const MINGLED: Reason = "program that other calls have beside others";
pub const BARRED: Reason = "barred by audit";

/// Runs what is to be remembered in a configuration, as long as that is valid; why it must not be: for
/// what it reaches of jax, or since somebody, a signal handler or another thread, changed jax or a setting
/// meanwhile, even if he took that back.
///
/// # Errors
/// jax's state cannot be read.
pub fn watched<R>(
    py: Python<'_>,
    jax: &Jax,
    configuration: Result<Configuration, Reason>,
    body: impl FnOnce() -> R,
) -> PyResult<(R, Option<Reason>, Validity)> {
    let assigned = watch_config::assigned();
    let (result, reach, validity) = world::reaching(py, body)?;
    let refusal = match reach {
        Reach::Difference => Some(REACHES_CHANGE),
        Reach::Unknown => Some(CHANGED_MEANWHILE),
        Reach::Nothing => {
            let is_same = configuration_now(py, jax)?
                .is_ok_and(|now| configuration.is_ok_and(|before| now.is(before)));
            (!is_same || watch_config::assigned() != assigned).then_some(CHANGED_MEANWHILE)
        }
    };
    Ok((result, refusal, validity))
}

/// A callable that is caught.
pub struct Site {
    pub id: CallableId,
    pub hits: Arc<Hits>,
    /// Its owner can make it forget its program; what is known of it is then checked again.
    pub forgets: bool,
    /// It asks traced values for nothing but their types.
    pub types_only: bool,
    /// It is a jit of jax, or calls one.
    pub is_compiled: bool,
    pub programs: Use,
}

/// What a callable does with the programs that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It makes something of them.
    Rule,
    /// So it does, and they may be used again later in the same trace: programs of jits, which the jits
    /// have.
    Kept,
    /// It evaluates them, equation by equation, each of which may be known.
    Evaluated,
}

impl Site {
    /// A function of jax, which reads nothing but its arguments and the config context.
    pub fn pure(name: &str) -> Self {
        let (id, hits) = store::new_callable(name);
        Self {
            id,
            hits,
            forgets: false,
            types_only: false,
            is_compiled: false,
            programs: Use::Rule,
        }
    }

    /// Runs a rule that is given programs, of which nothing is to be known.
    fn run<R>(&self, rule: impl FnOnce() -> R) -> R {
        if self.programs == Use::Evaluated { rule() } else { run_rule(rule) }
    }
}

/// Calls a caught callable: replays what is known of the call, else runs `proceed` and learns.
///
/// # Errors
/// Whatever the callable raises.
pub fn call<'py>(
    py: Python<'py>,
    site: &Site,
    args: &[*mut ffi::PyObject],
    kwnames: *mut ffi::PyObject,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if session::is_idle(py)? {
        return proceed();
    }
    if script::is_used() {
        return script::around(py, || {
            replay_or_run(py, site, args, kwnames, proceed, || Ok(false))
        });
    }
    replay_or_run(py, site, args, kwnames, proceed, || Ok(false))
}

/// As `call`, for a function of the user. `captures` says, once it has run, whether it refers to
/// traced values of the enclosing function: where one of them is an argument too, a fragment could
/// not tell which of the two an operand is.
///
/// # Errors
/// Whatever the callable raises.
pub fn call_of_user<'py>(
    py: Python<'py>,
    site: &Site,
    args: &[*mut ffi::PyObject],
    kwnames: *mut ffi::PyObject,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    captures: impl FnOnce() -> PyResult<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    script::around(py, || replay_or_run(py, site, args, kwnames, proceed, captures))
}

fn replay_or_run<'py>(
    py: Python<'py>,
    site: &Site,
    args: &[*mut ffi::PyObject],
    kwnames: *mut ffi::PyObject,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    captures: impl FnOnce() -> PyResult<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let jax = jax(py)?;
    let Some(now) = Now::read(py, jax)? else { return proceed() };
    let configuration = match now.configuration() {
        Ok(configuration) if site.forgets && configuration.jit_disabled => Err(JIT_DISABLED),
        configuration => configuration,
    };
    let computes = configuration.is_err_and(|reason| reason == FOLDS_EAGERLY);
    if computes && site.is_compiled && now.stack().is_none() && are_concrete(jax, args) {
        store::count_bypass(site.id, FOLDS_EAGERLY);
        return computed(jax, &now, proceed);
    }
    let mut call = Call::new(configuration.map_or(0, |configuration| configuration.number));
    let functions = match site.types_only {
        true if functions::is_probed(args) => return Ok(py.None().into_bound(py)),
        true => Functions::typed(py, args)?,
        false => Functions::Rules,
    };
    let describe = |call: &mut Call| encode(py, jax, &now, args, kwnames, functions, call);
    let described = match configuration {
        Ok(_) => put_in_words(py, &mut call, describe)?,
        Err(reason) => Err(reason),
    };
    if let Err(reason) = described {
        store::count_bypass(site.id, reason);
        return proceed();
    }
    replay_or_learn(py, jax, site, &now, &call, describe, proceed, captures)
}

/// Whether nothing traced can be among the arguments of a function of jax: they are arrays, scalars,
/// types, and what lives as long as the process.
fn are_concrete(jax: &Jax, args: &[*mut ffi::PyObject]) -> bool {
    let plain = [&raw mut ffi::PyBool_Type, &raw mut ffi::PyLong_Type, &raw mut ffi::PyFloat_Type];
    args.iter().all(|&arg| {
        // SAFETY: live arguments; looking up a type in a set runs no Python code.
        unsafe {
            let class = ffi::Py_TYPE(arg);
            plain.contains(&class)
                || arg == ffi::Py_None()
                || ffi::PyType_Check(arg) != 0
                || ffi::PySet_Contains(jax.plain_const_types.as_ptr(), class.cast()) == 1
                || is_stable(arg)
        }
    })
}

/// Runs a function of jax on concrete values where what can be computed is: as outside of all traces,
/// where jax finds what is compiled sooner.
fn computed<'py>(
    jax: &Jax,
    now: &Now<'py>,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let eval_trace = jax.eval_trace.bind(now.trace.py());
    within_trace(jax, eval_trace, &now.trace, || attached(proceed))
}

/// Describes a call, once all code that is part of it was looked through.
///
/// # Errors
/// Code cannot be looked through.
pub fn put_in_words(
    py: Python<'_>,
    call: &mut Call,
    describe: impl Fn(&mut Call) -> Result<(), Reason>,
) -> PyResult<Result<(), Reason>> {
    let mut described = describe(call);
    while let Some(code) = call.unread_code.take() {
        // SAFETY: the code of a function among the arguments.
        let code = unsafe { Bound::from_borrowed_ptr(py, code) };
        attached(|| look_through(&code))?;
        *call = call.empty();
        described = describe(call);
    }
    Ok(described)
}

/// Replays what is known of a call whose arguments are in words, else runs it and learns.
/// `describe` puts the arguments in words once more.
///
/// # Errors
/// Whatever the callable raises.
#[allow(clippy::too_many_arguments)] // a call, where it happens, and what it may need to ask
pub fn replay_or_learn<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    now: &Now<'py>,
    call: &Call,
    describe: impl Fn(&mut Call) -> Result<(), Reason>,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    captures: impl FnOnce() -> PyResult<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let generation = if site.forgets { Some(session::jit_generation(py, jax)?) } else { None };
    let known = store::find(py, site.id, &call.signature)?;
    let known = known.as_ref().map(Bound::get);
    let given = Given::of(py, jax, call);
    if given.as_ref().is_some_and(|given| given.are_mingled(py, jax)) {
        store::count_bypass(site.id, MINGLED);
        return site.run(proceed);
    }
    let candidate = match known {
        Some(Entry { known: Known::Replay(recorded), .. }) if given.is_some() => {
            match way(py, site, recorded, given.as_ref()) {
                Way::Replay => {
                    site.hits.add_one();
                    if audit::is_due() {
                        return attached(|| {
                            audit::call(py, jax, site, now, call, recorded, describe, proceed)
                        });
                    }
                    let making = given
                        .zip(recorded.programs.as_ref())
                        .map(|(given, own)| Making::new(py, given, recorded.number, own));
                    return replay(jax, now, call, recorded, making.as_ref());
                }
                Way::Learn => Some(recorded),
                Way::Run => {
                    store::count_bypass(site.id, KEPT);
                    return site.run(proceed);
                }
            }
        }
        Some(entry) => match &entry.known {
            Known::Replay(recorded) if recorded.renews() && now.has_given_traceback() => {
                store::count_bypass(site.id, GIVEN_TRACEBACK);
                return proceed();
            }
            Known::Replay(recorded) if entry.is_current(generation) => {
                site.hits.add_one();
                if audit::is_due() {
                    return attached(|| {
                        audit::call(py, jax, site, now, call, recorded, describe, proceed)
                    });
                }
                return replay(jax, now, call, recorded, None);
            }
            Known::Bypass(reason) => {
                store::count_bypass(site.id, reason);
                return if given.is_some() { site.run(proceed) } else { proceed() };
            }
            Known::Replay(recorded) | Known::Candidate(recorded) => Some(recorded),
        },
        None if store::is_barred(site.id) => {
            store::count_bypass(site.id, BARRED);
            return if given.is_some() { site.run(proceed) } else { proceed() };
        }
        None => None,
    };

    attached(|| {
        let mut pinned = pins(py, call, &describe);
        let (result, known, validity) =
            learn(py, jax, site, now, call, candidate, proceed, captures)?;
        if call.may_change && pinned.is_some() {
            let after = pins(py, call, &describe);
            drop(std::mem::replace(&mut pinned, after));
        }
        if let Some(pins) = pinned {
            let entry = Entry { known, validity, pins, generation };
            store::insert(py, site.id, &call.signature, entry)?;
        }
        Ok(result)
    })
}

/// Params that are made of others with programs in them: as `replay_or_learn`, of nothing but that.
/// `run` makes them; None where there is more to it than params.
///
/// # Errors
/// Whatever `run` raises.
pub fn derive_params<'py>(
    jax: &Jax,
    site: &Site,
    primitive: &Bound<'py, PyAny>,
    params: &Bound<'py, PyDict>,
    run: impl FnOnce() -> PyResult<Option<Bound<'py, PyDict>>>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    if is_running() {
        return run();
    }
    let py = params.py();
    let Ok(configuration) = configuration_now(py, jax)? else { return run_rule(run) };
    let mut call = Call::new(configuration.number);
    let describe = |call: &mut Call| encode_params(py, jax, params.as_ptr(), call);
    let given = match put_in_words(py, &mut call, describe)? {
        Ok(()) => Given::of(py, jax, &call),
        Err(reason) => {
            store::count_bypass(site.id, reason);
            None
        }
    };
    let Some(given) = given else { return run_rule(run) };
    if given.are_mingled(py, jax) {
        store::count_bypass(site.id, MINGLED);
        return run_rule(run);
    }
    let known = store::find(py, site.id, &call.signature)?;
    let candidate = match known.as_ref().map(|entry| &entry.get().known) {
        Some(Known::Replay(recorded)) => match way(py, site, recorded, Some(&given)) {
            Way::Replay => {
                site.hits.add_one();
                if audit::is_due() {
                    return audited_params(jax, site, &call, primitive, recorded, &given, run);
                }
                let Some(own) = &recorded.programs else { return run_rule(run) };
                let making = Making::new(py, given, recorded.number, own);
                return recorded.made_params(jax, &making, py);
            }
            Way::Learn => Some(recorded),
            Way::Run => {
                store::count_bypass(site.id, KEPT);
                return run_rule(run);
            }
        },
        Some(Known::Candidate(recorded)) => Some(recorded),
        Some(Known::Bypass(reason)) => {
            store::count_bypass(site.id, reason);
            return run_rule(run);
        }
        None if store::is_barred(site.id) => {
            store::count_bypass(site.id, BARRED);
            return run_rule(run);
        }
        None => None,
    };
    let (made, refusal, validity) = watched(py, jax, Ok(configuration), || run_rule(run))?;
    let Some(made) = made? else { return Ok(None) };
    let settling = Settling::new(jax, &given, (site.id, call.signature.words()));
    let made = settling.params(primitive, &made)?.unwrap_or(made);
    if let Some(pins) = pins(py, &call, describe) {
        let learnt = Recorded::of_params(primitive, made.clone());
        let learnt = refusal.map_or(learnt, Err);
        let known = known_of(py, jax, learnt, candidate, given);
        store::insert(
            py,
            site.id,
            &call.signature,
            Entry { known, validity, pins, generation: None },
        )?;
    }
    Ok(Some(made))
}

/// Makes params as the rule does, and compares them with what is remembered.
#[cold]
fn audited_params<'py>(
    jax: &Jax,
    site: &Site,
    call: &Call,
    primitive: &Bound<'py, PyAny>,
    recorded: &Recorded,
    given: &Given,
    run: impl FnOnce() -> PyResult<Option<Bound<'py, PyDict>>>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = primitive.py();
    let _running = audit::Running::begin();
    if let (Some(again), Some(own)) = (Given::of(py, jax, call), &recorded.programs) {
        drop(Making::new(py, again, recorded.number, own));
    }
    let Some(made) = run_rule(run)? else {
        audit::params(jax, site, primitive, recorded, None, given)?;
        return Ok(None);
    };
    let settling = Settling::new(jax, given, (site.id, call.signature.words()));
    let made = settling.params(primitive, &made)?.unwrap_or(made);
    audit::params(jax, site, primitive, recorded, Some(&made), given)?;
    Ok(Some(made))
}

/// How a call with programs is replayed.
fn way(py: Python<'_>, site: &Site, recorded: &Recorded, given: Option<&Given>) -> Way {
    match (&recorded.programs, given) {
        (Some(programs), Some(given)) => {
            programs.way(py, given, recorded.number, site.programs == Use::Kept)
        }
        _ => Way::Learn,
    }
}

/// What is known of a call with programs once it has run.
fn known_of(
    py: Python<'_>,
    jax: &Jax,
    learnt: Result<Recorded, Reason>,
    candidate: Option<&Recorded>,
    given: Given,
) -> Known {
    let mut recorded = match learnt {
        Ok(recorded) => recorded,
        Err(reason) => return Known::Bypass(reason),
    };
    let Some((candidate, before)) =
        candidate.and_then(|candidate| Some((candidate, candidate.programs.as_ref()?)))
    else {
        recorded.programs = Some(Programs::new(given));
        return Known::Candidate(recorded);
    };
    if let Some(repeat) = before.repeats(&given) {
        let both = before.beside(jax, &given);
        if !recorded.agrees(py, candidate, &Renew { jax, rules: false, programs: Some(&both) }) {
            return Known::Bypass(NEW_OBJECTS);
        }
        drop(both);
        if before.is_confirmed() {
            recorded.take_plans(candidate);
        }
        recorded.programs = Some(before.again(given, repeat));
        return Known::Replay(recorded);
    }
    let both = before.beside(jax, &given);
    if !recorded.agrees(py, candidate, &Renew { jax, rules: false, programs: Some(&both) }) {
        return Known::Bypass(NEW_OBJECTS);
    }
    let made = both.made();
    recorded.programs = Some(before.confirmed(given, made));
    Known::Replay(recorded)
}

/// What the signature of a call refers to by identity, to be kept alive; None where the arguments
/// are no longer the same.
fn pins(
    py: Python<'_>,
    call: &Call,
    describe: impl FnOnce(&mut Call) -> Result<(), Reason>,
) -> Option<Pins> {
    let mut again = Call { pins: Some(Vec::new()), ..call.empty() };
    describe(&mut again).ok()?;
    let same = again.signature.words() == call.signature.words();
    // SAFETY: alive, as parts of the arguments.
    let pin = |pin| unsafe { Bound::from_borrowed_ptr(py, pin) };
    let mut pins = Pins::new(again.pins.take().filter(|_| same)?.into_iter().map(pin));
    pins.keep(std::mem::take(&mut again.own().kept));
    Some(pins)
}

/// A call that ran.
pub struct Ran<'py> {
    pub result: Bound<'py, PyAny>,
    /// What it appended; or why that cannot be replayed.
    pub learnt: Result<Recorded, Reason>,
    /// The programs that it had.
    pub given: Option<Given>,
    pub before: Before<'py>,
    pub validity: Validity,
}

/// Runs a call, and reads what it has appended.
///
/// # Errors
/// Whatever the callable raises.
pub fn run_recorded<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    now: &Now<'py>,
    call: &Call,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    audited: bool,
) -> PyResult<Ran<'py>> {
    let before = Before::now(jax, now, call)?;
    let (warnings, reads) = (watch_warnings::count(), watch_arrays::count());
    let recording = watch_warnings::Recording::begin(py, jax)?;
    let (result, refusal, validity) = watched(py, jax, now.configuration(), || {
        if call.programs.is_empty() { proceed() } else { run_rule(proceed) }
    })?;
    drop(recording);
    let result = result?;
    let given = Given::of(py, jax, call);
    if let Some(given) = &given {
        let settling = Settling::new(jax, given, (site.id, call.signature.words()));
        before.frames().try_for_each(|(frame, first)| settling.settle(frame, first))?;
    }
    // An audit has jax do more than it does for calls within that are replayed, so it goes by what came
    // of that.
    let refusal = refusal.filter(|&reason| reason == CHANGED_MEANWHILE || !audited);
    let refusal = if audited && !validity.holds() { Some(CHANGED_MEANWHILE) } else { refusal };
    let learnt = if let Some(reason) = refusal {
        Err(reason)
    } else if watch_warnings::count() != warnings {
        Err(WARNED)
    } else if call.has_arrays && watch_arrays::count() != reads && !audited {
        Err(READ)
    } else {
        record(jax, now, &before, call, &result, audited)
    };
    Ok(Ran { result, learnt, given, before, validity })
}

/// Runs a call; its result, and what is known of it now, as long as that is valid.
#[cold]
#[allow(clippy::too_many_arguments)] // what `replay_or_learn` has, and what it found
fn learn<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    now: &Now<'py>,
    call: &Call,
    candidate: Option<&Recorded>,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    captures: impl FnOnce() -> PyResult<bool>,
) -> PyResult<(Bound<'py, PyAny>, Known, Validity)> {
    let Ran { result, learnt, given, before, validity } =
        run_recorded(py, jax, site, now, call, proceed, false)?;
    drop(before);
    let learnt = match learnt {
        Ok(_) if captures()? => Err(CAPTURES),
        learnt => learnt,
    };
    if let Some(given) = given {
        return Ok((result, known_of(py, jax, learnt, candidate, given), validity));
    }
    let renew = Renew { jax, rules: !site.forgets, programs: None };
    let known = match (learnt, candidate) {
        (Err(reason), _) => Known::Bypass(reason),
        (Ok(mut recorded), Some(candidate)) => {
            if recorded.agrees(py, candidate, &renew) {
                // The programs within should have the sources of an ordinary call.
                let ordinary = !recorded.renews() || !now.has_given_traceback();
                if ordinary { Known::Replay(recorded) } else { Known::Candidate(recorded) }
            } else if site.forgets {
                Known::Candidate(recorded)
            } else {
                Known::Bypass(NEW_OBJECTS)
            }
        }
        (Ok(recorded), None) if recorded.needs_confirmation(py) => Known::Candidate(recorded),
        (Ok(recorded), None) => Known::Replay(recorded),
    };
    Ok((result, known, validity))
}
