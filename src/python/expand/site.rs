//! One callable that is caught, and the life of one call of it.

use std::cell::Cell;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use crate::expand::CallableId;

use super::super::graph::borrow_mut;
use super::super::hook;
use super::super::jax::{Jax, jax};
use super::super::memo::Context;
use super::super::source::SourceRef;
use super::super::trace::frame_of;
use super::encode::{Reason, encode};
use super::record::{NEW_OBJECTS, record};
use super::replay::replay;
use super::store::{self, Known};

pub const DROPS_DEAD_CODE: Reason = "trace that drops dead code";
pub const FOLDS_EAGERLY: Reason = "eager constant folding";
pub const LEAK_CHECK: Reason = "leak checking";
pub const WARNED: Reason = "function that warned";

/// A callable that is caught.
pub struct Site {
    pub id: CallableId,
    /// Beyond the config context, the function reads the settings of random numbers.
    pub reads_prng_settings: bool,
    /// Its owner can make it forget its program, so what is known of it is checked once in each
    /// trace.
    pub revalidates: bool,
}

impl Site {
    /// A function of jax, which reads nothing but its arguments and the config context.
    pub fn pure(name: &str) -> Self {
        let id = store::new_callable(name);
        Self { id, reads_prng_settings: false, revalidates: false }
    }
}

thread_local! {
    /// How many warnings this thread has seen while it recorded.
    static WARNINGS: Cell<u64> = const { Cell::new(0) };
}

/// Notes that a warning was issued: a replay would be silent.
pub fn note_warning() {
    WARNINGS.set(WARNINGS.get() + 1);
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
    if !hook::is_tracing() {
        return proceed();
    }
    let jax = jax(py)?;
    let trace = jax.trace_state.bind(py).getattr(intern!(py, "value"))?;
    let Some(frame) = frame_of(jax, &trace) else { return proceed() };
    let encoded = match configuration(py, jax, site, &frame) {
        Ok(configuration) => encode(py, jax, trace.as_ptr(), configuration?, args, kwnames),
        Err(reason) => Err(reason),
    };
    let call = match encoded {
        Ok(call) => call,
        Err(reason) => {
            store::count_bypass(site.id, reason);
            return proceed();
        }
    };
    let known = store::find(site.id, &call.signature, site.revalidates);
    let candidate = match &known {
        Some(entry) => match &entry.known {
            Known::Replay(recorded) if !site.revalidates || entry.is_current() => {
                return replay(jax, &trace, &frame, &call, recorded);
            }
            Known::Bypass(_) => return proceed(),
            Known::Replay(recorded) | Known::Candidate(recorded) => Some(recorded),
        },
        None => None,
    };

    // SAFETY: alive now, as parts of arguments; from here on Python runs.
    let pins: Vec<Py<PyAny>> = call
        .pins
        .iter()
        .map(|&pin| unsafe { Bound::from_borrowed_ptr(py, pin) }.unbind())
        .collect();
    let base = SourceRef::current(py, jax)?;
    let mark = borrow_mut(&frame).mark();
    let warnings = WARNINGS.get();
    let recording = hook::Recording::begin(py)?;
    let result = proceed();
    drop(recording);
    let result = result?;
    let learnt = if WARNINGS.get() == warnings {
        record(jax, &trace, &frame, &mark, &base, &call, &result, store::new_fragment())
    } else {
        Err(WARNED)
    };
    let known = match (learnt, candidate) {
        (Err(reason), _) => Known::Bypass(reason),
        (Ok(recorded), Some(candidate)) => {
            if recorded.agrees(py, jax, candidate) {
                Known::Replay(recorded)
            } else if site.revalidates {
                Known::Candidate(recorded)
            } else {
                Known::Bypass(NEW_OBJECTS)
            }
        }
        (Ok(recorded), None) if recorded.needs_confirmation(py) => Known::Candidate(recorded),
        (Ok(recorded), None) => Known::Replay(recorded),
    };
    store::insert(site.id, &call.signature, known, pins);
    Ok(result)
}

/// The number of everything a call reads besides its arguments.
fn configuration(
    py: Python<'_>,
    jax: &Jax,
    site: &Site,
    frame: &Bound<'_, super::super::frame::Frame>,
) -> Result<PyResult<u64>, Reason> {
    if borrow_mut(frame).auto_dce() {
        return Err(DROPS_DEAD_CODE);
    }
    if hook::checks_leaks() {
        return Err(LEAK_CHECK);
    }
    let number = match Context::current_number(py, jax) {
        Ok((_, true)) => return Err(FOLDS_EAGERLY),
        Ok((number, false)) => u64::from(number),
        Err(error) => return Ok(Err(error)),
    };
    if !site.reads_prng_settings {
        return Ok(Ok(number));
    }
    Ok(jax.prng_settings_number(py).map(|settings| number | u64::from(settings) << 32))
}
