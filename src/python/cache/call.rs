//! One interposed callable, and the life of one call of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PySet};

use crate::expand::CallableId;
use crate::segments::{Key, key_of};

use crate::python::cache::audit;
use crate::python::cache::fragment::agree::Tolerance;
use crate::python::cache::fragment::before::Before;
use crate::python::cache::fragment::record::record;
use crate::python::cache::fragment::recorded::Recorded;
use crate::python::cache::fragment::replay::replay;
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encode::{encode, encode_fully, encode_params};
use crate::python::cache::key::functions::{self, Functions, captured_result};
use crate::python::cache::key::pins::Pins;
use crate::python::cache::key::stable::is_stable;
use crate::python::cache::key::trace_context::{Configuration, TraceContext, configuration_now};
use crate::python::cache::parts;
use crate::python::cache::programs::canonicalize::{Canonicalizer, appended_since};
use crate::python::cache::programs::decision::{Decision, Programs};
use crate::python::cache::programs::given::{Given, Repeat};
use crate::python::cache::programs::instantiate::Instantiation;
use crate::python::cache::programs::running::{is_running, run_rule};
use crate::python::cache::reasons::{
    AMBIGUOUS, BARRED, CAPTURES, CHANGED_MEANWHILE, FOLDS_EAGERLY, GIVEN_TRACEBACK, JIT_DISABLED,
    KEPT, NEW_OBJECTS, OTHER_SCOPE, REACHES_CHANGE, READ, Reason, WARNED,
};
use crate::python::cache::script;
use crate::python::cache::shapes::{self, Sizeless};
use crate::python::cache::store::{self, Entry, Hits, Known};
use crate::python::cache::warm::library;
use crate::python::cache::warm::lookup::{self, Found};
use crate::python::cpython::native::attached;
use crate::python::jax::current_trace::within_trace;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::watch_arrays;
use crate::python::jax::watch_config;
use crate::python::jax::watch_warnings;
use crate::python::jax::world::{self, Reach, Validity};
use crate::python::trace::{flags, session};

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
                .is_ok_and(|after| configuration.is_ok_and(|before| after.is(before)));
            (!is_same || watch_config::assigned() != assigned).then_some(CHANGED_MEANWHILE)
        }
    };
    Ok((result, refusal, validity))
}

/// An interposed callable.
pub struct Site {
    pub id: CallableId,
    pub hits: Arc<Hits>,
    /// Its owner can make it forget its program; what is known of it is then checked again.
    pub forgets: bool,
    /// It asks traced values for nothing but their types.
    pub types_only: bool,
    /// What names it in every process.
    pub lasting: Option<Key>,
    pub programs: Use,
    /// It computes element by element.
    pub pointwise: bool,
    /// What it appends under a differentiation has the caller's scopes somewhere within its own.
    pub needs_scopes: AtomicBool,
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
        let (forgets, types_only, pointwise, lasting) = (false, false, false, None);
        let (programs, needs_scopes) = (Use::Rule, AtomicBool::new(false));
        Self { id, hits, forgets, types_only, lasting, programs, pointwise, needs_scopes }
    }

    /// A call of it in a configuration, not described yet.
    pub fn call(&self, configuration: u64) -> Call {
        let within_scopes = self.needs_scopes.load(Ordering::Relaxed);
        Call { within_scopes, ..Call::new(configuration) }
    }

    /// With a name that it has in every process, and nothing else has.
    pub fn lasting(self, kind: &str, name: &str) -> Self {
        let lasting = Some(key_of(format!("{kind} {name}").as_bytes()));
        Self { lasting, pointwise: shapes::is_pointwise(kind.trim_end(), name), ..self }
    }

    /// Runs a rule that is given programs, of which nothing is to be known.
    fn run<R>(&self, rule: impl FnOnce() -> R) -> R {
        if self.programs == Use::Evaluated { rule() } else { run_rule(rule) }
    }
}

/// Calls an interposed callable: replays what is known of the call, else runs `proceed` and learns.
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
            replay_or_run(py, site, args, kwnames, false, proceed, || Ok(false))
        });
    }
    replay_or_run(py, site, args, kwnames, false, proceed, || Ok(false))
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
    script::around(py, || replay_or_run(py, site, args, kwnames, true, proceed, captures))
}

fn replay_or_run<'py>(
    py: Python<'py>,
    site: &Site,
    args: &[*mut ffi::PyObject],
    kwnames: *mut ffi::PyObject,
    is_of_user: bool,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    captures: impl FnOnce() -> PyResult<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let jax = jax(py)?;
    let Some(context) = TraceContext::read(py, jax)? else { return proceed() };
    let configuration = match context.configuration() {
        Ok(configuration) if site.forgets && configuration.jit_disabled => Err(JIT_DISABLED),
        configuration => configuration,
    };
    let computes = configuration.is_ok_and(|configuration| configuration.folds);
    if computes && !site.forgets && context.stack().is_none() && are_concrete(jax, args) {
        store::count_bypass(site.id, FOLDS_EAGERLY);
        let by_numpy = flags::are_left() && are_flags(py, jax, args)?;
        return if by_numpy { proceed() } else { computed(jax, &context, proceed) };
    }
    let mut call = site.call(configuration.map_or(0, |configuration| configuration.number));
    call.within_scopes |= is_of_user;
    let functions = match site.types_only {
        true if functions::is_probed(args) => return Ok(py.None().into_bound(py)),
        true => Functions::typed(py, args)?,
        false => Functions::Rules,
    };
    if functions.are_temporary()
        && configuration.is_ok()
        && let Some(shapes) = shapes_of_captured(py, jax, args)?
    {
        return Ok(shapes);
    }
    let describe = |call: &mut Call| encode(py, jax, &context, args, kwnames, functions, call);
    let described = match configuration {
        Ok(_) => encode_fully(py, &mut call, describe)?,
        Err(reason) => Err(reason),
    };
    if let Err(reason) = described {
        store::count_bypass(site.id, reason);
        return proceed();
    }
    replay_or_learn(py, jax, site, &context, &call, args, describe, proceed, captures, None)
}

/// What `eval_shape` says of `lambda: value`, with which libraries ask for the types of a pytree. Nobody but
/// the call holds the function: jax knows others by their identity, whatever they return by now.
fn shapes_of_captured<'py>(
    py: Python<'py>,
    jax: &Jax,
    args: &[*mut ffi::PyObject],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let shapes = jax.captured_shapes.bind(py);
    let &[function, positional, keywords] = args else { return Ok(None) };
    // SAFETY: the arguments of the call under way: those of `eval_shape(fun, *args, **kwargs)`.
    let (function, is_alone) = unsafe {
        let is_alone = ffi::PyTuple_GET_SIZE(positional) == 0 && ffi::PyDict_Size(keywords) == 0;
        (Bound::from_borrowed_ptr(py, function), is_alone)
    };
    if !is_alone || shapes.is_none() {
        return Ok(None);
    }
    let Some(value) = captured_result(&function)? else { return Ok(None) };
    match shapes.call1((value,)) {
        Ok(shapes) => Ok((!shapes.is_none()).then_some(shapes)),
        // jax says what is wrong with it.
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether nothing traced can be among the arguments of a function of jax: they are arrays, scalars,
/// types, and what lives as long as the process.
fn are_concrete(jax: &Jax, args: &[*mut ffi::PyObject]) -> bool {
    args.iter().all(|&arg| {
        // SAFETY: live arguments; looking up a type in a set runs no Python code.
        unsafe {
            let is_one_of =
                |types: &Py<PySet>, class| ffi::PySet_Contains(types.as_ptr(), class) == 1;
            let class = ffi::Py_TYPE(arg);
            arg == ffi::Py_None()
                // Any other class may be called by a function that is given it.
                || ffi::PyType_Check(arg) != 0 && is_one_of(&jax.literalable_scalar_types, arg)
                || is_one_of(&jax.plain_const_types, class.cast())
                || is_one_of(&jax.literalable_scalar_types, class.cast())
                || is_stable(arg)
        }
    })
}

/// Whether the arrays and scalars among concrete arguments, one at least, are booleans.
fn are_flags(py: Python<'_>, jax: &Jax, args: &[*mut ffi::PyObject]) -> PyResult<bool> {
    let mut found = false;
    for &arg in args {
        // SAFETY: a live argument; looking up a type in a set runs no Python code.
        let (arg, is_array, is_scalar) = unsafe {
            let class = ffi::Py_TYPE(arg).cast();
            let is_one_of = |types: &Py<PySet>| ffi::PySet_Contains(types.as_ptr(), class) == 1;
            let arg = Bound::from_borrowed_ptr(py, arg);
            (arg, is_one_of(&jax.plain_const_types), is_one_of(&jax.literalable_scalar_types))
        };
        let is_flag = match arg.getattr_opt(pyo3::intern!(py, "dtype"))? {
            Some(dtype) if is_array || is_scalar => {
                dtype.getattr(pyo3::intern!(py, "kind"))?.eq("b")?
            }
            _ if is_scalar => arg.is_exact_instance_of::<PyBool>(),
            _ => continue,
        };
        if !is_flag {
            return Ok(false);
        }
        found = true;
    }
    Ok(found)
}

/// Runs a function of jax on concrete values where what can be computed is: as outside of all traces,
/// where jax finds what is compiled sooner.
fn computed<'py>(
    jax: &Jax,
    context: &TraceContext<'py>,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let eval_trace = jax.eval_trace.bind(context.trace.py());
    within_trace(jax, eval_trace, &context.trace, || attached(proceed))
}

/// The params of the equations that a call appends when jax is asked once more.
pub type Asked<'py> = Vec<Bound<'py, PyDict>>;

/// Has a rule run, and takes back what it appends.
///
/// # Errors
/// Those of the rule.
pub fn run_aside<'py, R>(
    jax: &Jax,
    context: &TraceContext<'py>,
    call: &Call,
    rule: impl FnOnce() -> PyResult<R>,
) -> PyResult<Asked<'py>> {
    let before = Before::call(jax, context, call)?;
    let result = run_rule(rule)?;
    let appended = before.frames().flat_map(|(frame, first)| appended_since(frame, first));
    let asked = appended.map(|(_, _, params)| params).collect();
    drop(result);
    before.retract()?;
    Ok(asked)
}

/// What is known of a call, or of one of other sizes; and the call whatever its sizes are, where nothing is known of it.
fn look_up<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    context: &TraceContext<'py>,
    call: &Call,
    arguments: &[*mut ffi::PyObject],
    describe: &impl Fn(&mut Call) -> Result<(), Reason>,
) -> PyResult<(Found<'py>, Option<Sizeless<'py>>)> {
    if let Some(known) = store::find(py, site.id, &call.signature)? {
        let lasting = known.get().lasting;
        return Ok((Found { entry: Some(known), lasting }, None));
    }
    let found = lookup::find(py, jax, site, context, call, describe)?;
    if found.entry.is_some() {
        return Ok((found, None));
    }
    let (entry, sizeless) = shapes::find(py, jax, site, call, arguments, describe, found.lasting)?;
    Ok((Found { entry, ..found }, sizeless))
}

/// Keeps what was learnt of a call, for other sizes too where it is the same.
fn keep(
    py: Python<'_>,
    site: &Site,
    call: &Call,
    mut entry: Entry,
    sizeless: Option<Sizeless<'_>>,
) -> PyResult<()> {
    entry.note_of_all_sizes(sizeless.as_ref())?;
    let of_all_sizes = sizeless.filter(|_| entry.of_all_sizes.is_some());
    let is_there = store::insert(py, site.id, &call.signature, entry)?;
    if let Some(sizeless) = of_all_sizes.filter(|_| is_there) {
        sizeless.note(site, call);
    }
    Ok(())
}

/// Replays what is known of a call whose arguments have a key, else runs it and learns.
/// `arguments` are those of a function, `describe` encodes what there is once more; `ask` asks jax once more,
/// with the same programs or with these closed anew, and takes back what that appends, where that can be done.
///
/// # Errors
/// Whatever the callable raises.
#[allow(clippy::too_many_arguments)] // a call, where it happens, and what it may need to ask
pub fn replay_or_learn<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    context: &TraceContext<'py>,
    call: &Call,
    arguments: &[*mut ffi::PyObject],
    describe: impl Fn(&mut Call) -> Result<(), Reason>,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    captures: impl FnOnce() -> PyResult<bool>,
    ask: Option<&dyn Fn(Repeat) -> PyResult<Option<Asked<'py>>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let generation = if site.forgets { Some(session::jit_generation(py, jax)?) } else { None };
    let (Found { entry: known, lasting }, sizeless) =
        look_up(py, jax, site, context, call, arguments, &describe)?;
    let known = known.as_ref().map(Bound::get);
    let given = Given::of(py, jax, call);
    if given.as_ref().is_some_and(|given| given.are_ambiguous(py, jax)) {
        store::count_bypass(site.id, AMBIGUOUS);
        return site.run(proceed);
    }
    let candidate = match action(py, site, known, given.as_ref(), generation, Some(context)) {
        Action::Replay(recorded) => {
            site.hits.add_one();
            if known.is_some_and(|known| known.is_unheard) {
                lookup::note_unheard();
            }
            if audit::is_due() {
                return attached(|| {
                    audit::call(py, jax, site, context, call, recorded, describe, proceed)
                });
            }
            let instantiation = given
                .zip(recorded.programs.as_ref())
                .map(|(given, own)| Instantiation::new(py, given, own));
            return replay(jax, context, call, recorded, instantiation.as_ref());
        }
        Action::Run(reason) => {
            store::count_bypass(site.id, reason);
            let Some(given) = given else { return proceed() };
            return run_given(jax, site, context, call, &given, proceed);
        }
        Action::Learn(candidate) => candidate,
    };
    let given = match given {
        Some(given) if given.has_warned(py, jax) => {
            store::count_bypass(site.id, WARNED);
            return run_given(jax, site, context, call, &given, proceed);
        }
        given => given,
    };
    if candidate.is_none() && given.is_none() && parts::is_part(site, &call.signature) {
        return proceed();
    }
    attached(|| {
        // Whether jax would make the programs of a replay again, or others, it shows when it is asked twice.
        let programs = candidate.and_then(|candidate| candidate.programs.as_ref());
        let repeat = given.as_ref().and_then(|given| {
            let replayed = programs.and_then(|programs| programs.replayed(py, given));
            // Of another call, with another key.
            replayed.or_else(|| given.replayed(py, jax))
        });
        let asked = match ask.zip(repeat) {
            Some((ask, repeat)) => {
                let warnings = watch_warnings::count();
                // Of programs that are closed anew jax warns again when it is given those at hand.
                let asked = match repeat {
                    Repeat::Same => ask(repeat)?,
                    Repeat::Closed => watch_warnings::silent(|| ask(repeat))?,
                };
                if let Some(given) = given.as_ref().filter(|_| watch_warnings::count() != warnings)
                {
                    given.note_warned(py, jax);
                    store::count_bypass(site.id, WARNED);
                    return run_given(jax, site, context, call, given, proceed);
                }
                asked
            }
            None => None,
        };
        let unheard = lookup::unheard();
        let mut pinned = pins(py, call, &describe);
        let (result, known, validity) = parts::recording(site, call, lasting, || {
            learn(py, jax, site, context, call, candidate, proceed, captures, asked.as_ref())
        })?;
        if call.may_change && pinned.is_some() {
            pinned = pins(py, call, &describe);
        }
        if let Some(pins) = pinned {
            let mut entry = Entry::new(known, validity, pins, generation);
            entry.note_lasting(py, jax, lasting, lookup::unheard() != unheard)?;
            keep(py, site, call, entry, sizeless)?;
        }
        Ok(result)
    })
}

/// Runs a rule that is given programs, of which nothing is learnt. Replays for the same programs may have
/// made some of those that it makes.
fn run_given<R>(
    jax: &Jax,
    site: &Site,
    context: &TraceContext<'_>,
    call: &Call,
    given: &Given,
    proceed: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let before = Before::call(jax, context, call)?;
    let warnings = watch_warnings::count();
    let result = site.run(proceed)?;
    if watch_warnings::count() != warnings {
        given.note_warned(context.trace.py(), jax);
    }
    canonicalize(jax, site, call, given, &before, None)?;
    Ok(result)
}

/// As `run_given`, for a call that has no key, whose programs are those among `params`.
///
/// # Errors
/// Whatever the rule raises.
pub fn run_without_key<R>(
    jax: &Jax,
    site: &Site,
    context: &TraceContext<'_>,
    params: &Bound<'_, PyDict>,
    rule: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let py = params.py();
    let Ok(configuration) = context.configuration() else { return run_rule(rule) };
    let mut call = Call::new(configuration.number);
    let encoded =
        encode_fully(py, &mut call, |call| encode_params(py, jax, params.as_ptr(), call))?;
    let given = if encoded.is_ok() { Given::of(py, jax, &call) } else { None };
    match given {
        Some(given) if !given.are_ambiguous(py, jax) => {
            run_given(jax, site, context, &call, &given, rule)
        }
        _ => run_rule(rule),
    }
}

/// Has one program of each in what a call has appended.
fn canonicalize(
    jax: &Jax,
    site: &Site,
    call: &Call,
    given: &Given,
    before: &Before<'_>,
    again: Option<&Asked<'_>>,
) -> PyResult<()> {
    let mut canonicalizer = Canonicalizer::new(jax, given, (site.id, call.signature.words()));
    if let Some(again) = again {
        canonicalizer.compare_with(again);
    }
    before.frames().try_for_each(|(frame, first)| canonicalizer.canonicalize(frame, first))
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
    run: impl Fn() -> PyResult<Option<Bound<'py, PyDict>>>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    if is_running() {
        return run();
    }
    let py = params.py();
    let Ok(configuration) = configuration_now(py, jax)? else { return run_rule(run) };
    let mut call = Call::new(configuration.number);
    let describe = |call: &mut Call| encode_params(py, jax, params.as_ptr(), call);
    let given = match encode_fully(py, &mut call, describe)? {
        Ok(()) => Given::of(py, jax, &call),
        Err(reason) => {
            store::count_bypass(site.id, reason);
            None
        }
    };
    let Some(given) = given else { return run_rule(run) };
    if given.are_ambiguous(py, jax) {
        store::count_bypass(site.id, AMBIGUOUS);
        return run_rule(run);
    }
    let known = store::find(py, site.id, &call.signature)?;
    let known = known.as_ref().map(Bound::get);
    let candidate = match action(py, site, known, Some(&given), None, None) {
        Action::Replay(recorded) => {
            site.hits.add_one();
            if audit::is_due() {
                return audited_params(jax, site, &call, primitive, recorded, &given, run);
            }
            let Some(own) = &recorded.programs else { return run_rule(run) };
            let instantiation = Instantiation::new(py, given, own);
            return recorded.made_params(jax, &instantiation, py);
        }
        Action::Run(reason) => {
            store::count_bypass(site.id, reason);
            return run_rule(run);
        }
        Action::Learn(candidate) => candidate,
    };
    let (made, refusal, validity) = watched(py, jax, Ok(configuration), || run_rule(&run))?;
    let Some(made) = made? else { return Ok(None) };
    let mut canonicalizer = Canonicalizer::new(jax, &given, (site.id, call.signature.words()));
    // A replay may have made some of the same programs. Whether jax would make these again, or others, it
    // shows when it is asked twice.
    let known_programs = candidate.and_then(|candidate| candidate.programs.as_ref());
    if known_programs.is_some_and(|programs| programs.were_given(py, &given)) {
        canonicalizer.compare_with(run_rule(&run)?.as_slice());
    }
    let made = canonicalizer.params(primitive, &made)?.unwrap_or(made);
    if let Some(pins) = pins(py, &call, describe) {
        let learnt = Recorded::of_params(primitive, made.clone());
        let learnt = refusal.map_or(learnt, Err);
        let known = known_of(py, jax, learnt, candidate, given);
        let entry = Entry::new(known, validity, pins, None);
        store::insert(py, site.id, &call.signature, entry)?;
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
        drop(Instantiation::new(py, again, own));
    }
    let Some(made) = run_rule(run)? else {
        audit::params(jax, site, primitive, recorded, None, given)?;
        return Ok(None);
    };
    let canonicalizer = Canonicalizer::new(jax, given, (site.id, call.signature.words()));
    let made = canonicalizer.params(primitive, &made)?.unwrap_or(made);
    audit::params(jax, site, primitive, recorded, Some(&made), given)?;
    Ok(Some(made))
}

/// What to do with a call.
enum Action<'a> {
    Replay(&'a Recorded),
    /// It runs, and is recorded beside a candidate where there is one.
    Learn(Option<&'a Recorded>),
    /// It runs, and nothing is learnt.
    Run(Reason),
}

/// What to do with a call of which something is `known` or nothing.
fn action<'a>(
    py: Python<'_>,
    site: &Site,
    known: Option<&'a Entry>,
    given: Option<&Given>,
    generation: Option<u64>,
    context: Option<&TraceContext<'_>>,
) -> Action<'a> {
    let Some(entry) = known else {
        return if store::is_barred(site.id) { Action::Run(BARRED) } else { Action::Learn(None) };
    };
    match (&entry.known, given) {
        (Known::Bypass(reason), _) => Action::Run(reason),
        (Known::Candidate(recorded), _) => Action::Learn(Some(recorded)),
        (Known::Replay(recorded), Some(given)) => {
            let kept = site.programs == Use::Kept;
            let programs = recorded.programs.as_ref();
            match programs.map(|programs| programs.decide(py, given, kept)) {
                Some(Decision::Replay) => Action::Replay(recorded),
                Some(Decision::Run) => Action::Run(KEPT),
                Some(Decision::Learn) | None => Action::Learn(Some(recorded)),
            }
        }
        (Known::Replay(recorded), None) => {
            let has_given = || context.is_some_and(TraceContext::has_given_traceback);
            if recorded.regenerates() && has_given() {
                Action::Run(GIVEN_TRACEBACK)
            } else if entry.is_current(generation) {
                Action::Replay(recorded)
            } else {
                Action::Learn(Some(recorded))
            }
        }
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
        let programs = Programs::new(given);
        programs.note_own(py);
        recorded.programs = Some(programs);
        return Known::Candidate(recorded);
    };
    let (repeat, was_replayed) = (before.repeats(&given), before.replayed(py, &given).is_some());
    before.note_given(py, &given);
    let both = before.beside(jax, &given);
    if !recorded.agrees(py, candidate, &Tolerance { jax, rules: false, programs: Some(&both) }) {
        return Known::Bypass(NEW_OBJECTS);
    }
    let made = both.made();
    if was_replayed {
        // How programs repeat shows where both calls run.
        recorded.programs = Some(before.unrepeated(given));
        return Known::Candidate(recorded);
    }
    recorded.programs = Some(if let Some(repeat) = repeat {
        if before.is_confirmed() {
            recorded.take_plans(candidate);
        }
        before.again(given, repeat)
    } else {
        before.confirmed(given, made)
    });
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
#[allow(clippy::too_many_arguments)] // a call, where it happens, and what is known besides
pub fn run_recorded<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    context: &TraceContext<'py>,
    call: &Call,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    again: Option<&Asked<'py>>,
    audited: bool,
) -> PyResult<Ran<'py>> {
    let before = Before::call(jax, context, call)?;
    let (warnings, reads) = (watch_warnings::count(), watch_arrays::count());
    let recording = watch_warnings::Recording::begin(py, jax)?;
    let (result, refusal, validity) = watched(py, jax, context.configuration(), || {
        if call.programs.is_empty() { proceed() } else { run_rule(proceed) }
    })?;
    drop(recording);
    let result = result?;
    let given = Given::of(py, jax, call);
    if let Some(given) = &given {
        canonicalize(jax, site, call, given, &before, again)?;
    }
    // An audit has jax do more than it does for calls within that are replayed, so it goes by what came
    // of that.
    let refusal = refusal.filter(|&reason| reason == CHANGED_MEANWHILE || !audited);
    let refusal = if audited && !validity.holds() { Some(CHANGED_MEANWHILE) } else { refusal };
    let learnt = if let Some(reason) = refusal {
        Err(reason)
    } else if watch_warnings::count() != warnings {
        if let Some(given) = &given {
            given.note_warned(py, jax);
        }
        Err(WARNED)
    } else if call.has_arrays && watch_arrays::count() != reads && !audited {
        Err(READ)
    } else {
        record(jax, context, &before, call, &result, audited)
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
    context: &TraceContext<'py>,
    call: &Call,
    candidate: Option<&Recorded>,
    proceed: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    captures: impl FnOnce() -> PyResult<bool>,
    again: Option<&Asked<'py>>,
) -> PyResult<(Bound<'py, PyAny>, Known, Validity)> {
    let Ran { result, learnt, given, before, validity } =
        run_recorded(py, jax, site, context, call, proceed, again, false)?;
    drop(before);
    let learnt = match learnt {
        Ok(_) if captures()? => Err(CAPTURES),
        learnt => learnt,
    };
    // The next time with another key.
    let needs_scopes = matches!(learnt, Err(OTHER_SCOPE)) && !call.within_scopes;
    site.needs_scopes.fetch_or(needs_scopes, Ordering::Relaxed);
    if let Some(given) = given {
        return Ok((result, known_of(py, jax, learnt, candidate, given), validity));
    }
    let tolerance = Tolerance { jax, rules: !site.forgets, programs: None };
    let known = match (learnt, candidate) {
        (Err(reason), _) => Known::Bypass(reason),
        (Ok(mut recorded), Some(candidate)) => {
            if recorded.agrees(py, candidate, &tolerance) {
                // The nested programs should have the sources of an ordinary call.
                let ordinary = !recorded.regenerates() || !context.has_given_traceback();
                if ordinary { Known::Replay(recorded) } else { Known::Candidate(recorded) }
            } else if site.forgets {
                Known::Candidate(recorded)
            } else {
                Known::Bypass(NEW_OBJECTS)
            }
        }
        (Ok(mut recorded), None) => {
            let is_own = !site.forgets || site.lasting.is_some();
            let asks = library::is_open() && is_own && !context.has_given_traceback();
            if recorded.is_confirmed(jax, py, asks)? {
                Known::Replay(recorded)
            } else {
                Known::Candidate(recorded)
            }
        }
    };
    Ok((result, known, validity))
}
