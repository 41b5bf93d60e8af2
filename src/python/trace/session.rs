//! Which traces are recording, within which activations, and what that asks of jax.
//!
//! The counters are here, below the rooms that act on them. Those say once what they do (`Hooks`).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

use crate::python::cpython::shared::Shared;
use crate::python::jax::current_trace::current_trace;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::settings;
use crate::python::jax::watch_config;
use crate::python::jax::world;
use crate::python::trace::audit_schedule;

thread_local! {
    /// How many activations this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// How many traces of this thread are recording.
    static RECORDING: Arc<AtomicUsize> = Arc::default();
    /// Names the outermost trace of this thread.
    static OUTERMOST: Cell<u64> = const { Cell::new(0) };
}

thread_local! {
    /// How many traces were made in this thread.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// A trace is made.
pub fn note_trace() {
    MADE.set(MADE.get() + 1);
}

/// How many traces were made in this thread so far.
pub fn traces_made() -> u64 {
    MADE.get()
}

/// How many outermost traces there were.
static OUTERMOSTS: AtomicU64 = AtomicU64::new(0);
/// How many activations of all threads there are.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
/// How many traces of ours are recording.
static TRACES: AtomicUsize = AtomicUsize::new(0);

/// What the rooms above do.
pub struct Hooks {
    /// Makes jax what is wanted, by the functions below.
    ///
    /// # Errors
    /// CPython refuses a change.
    pub reconcile: fn(Python<'_>, &Jax) -> PyResult<()>,
    /// Forgets what this thread remembers of a trace that ends.
    pub forget_trace: fn(),
    /// Does what is to be done before the next trace begins.
    ///
    /// # Errors
    /// A signal handler raises.
    pub settle: fn(Python<'_>) -> PyResult<()>,
}

/// Whether there is something to be done before the next trace begins.
static PENDING: AtomicBool = AtomicBool::new(false);

/// Does what is to be done before the next trace begins.
///
/// # Errors
/// A signal handler raises.
pub fn settle(py: Python<'_>) -> PyResult<()> {
    match HOOKS.get() {
        Some(hooks) if PENDING.load(Ordering::Relaxed) => (hooks.settle)(py),
        _ => Ok(()),
    }
}

/// Says whether there is something to be done before the next trace begins.
pub fn set_pending(pending: bool) {
    PENDING.store(pending, Ordering::Relaxed);
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Takes what the rooms above do. Called once, before the first trace.
pub fn set_hooks(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

fn reconcile(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    HOOKS.get().map_or(Ok(()), |hooks| (hooks.reconcile)(py, jax))
}

/// A trace of this thread ends.
pub fn forget_trace() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.forget_trace)();
    }
}

/// Whether traces of this thread are ours.
#[inline]
pub fn is_active() -> bool {
    DEPTH.get() > 0 || PROCESS.load(Ordering::Relaxed) > 0
}

/// Whether a trace of ours may be the current one in this thread.
#[inline]
pub fn is_tracing() -> bool {
    DEPTH.get() > 0 || (TRACES.load(Ordering::Relaxed) > 0 && PROCESS.load(Ordering::Relaxed) > 0)
}

/// Whether a trace of this thread is recording.
pub fn is_recording() -> bool {
    RECORDING.with(|count| count.load(Ordering::Relaxed) != 0)
}

/// A trace of ours from its beginning until its program is finished, or it is given up.
pub struct Recording {
    /// Those of the thread that it began in.
    of_thread: Arc<AtomicUsize>,
    /// Its program is not part of another.
    is_outermost: bool,
}

/// How many variables and equations the last program came to that is not part of another.
static LAST_SIZE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// For how many of them there is room beforehand at most.
const MAX_ROOM: usize = 1 << 14;

impl Recording {
    /// A trace begins: from now on jax's functions are ours. `is_within_ours` says whether the parent
    /// is a trace of ours.
    pub fn start(
        py: Python<'_>,
        jax: &Jax,
        parent: &Bound<'_, PyAny>,
        is_within_ours: bool,
    ) -> Self {
        let of_thread = RECORDING.with(Arc::clone);
        let is_part = !parent.is(&jax.eval_trace);
        if !is_part {
            settings::begin_program();
        }
        // Some rules of jax leave the trace that is under way for as long as they trace.
        let is_outermost = !is_part && of_thread.load(Ordering::Relaxed) == 0;
        if let Err(error) = settle(py) {
            if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                // SAFETY: the interpreter is attached. The next instruction raises it.
                unsafe { pyo3::ffi::PyErr_SetInterrupt() };
            } else {
                error.write_unraisable(py, None);
            }
        }
        if is_outermost {
            begin_outermost();
            audit_schedule::trace_begins();
        } else if !is_reconciled() || !is_within_ours {
            // As `begin_outermost` does, where this trace is within none of ours.
            world::poll();
        }
        of_thread.fetch_add(1, Ordering::Relaxed);
        // First, so that no other thread lets the functions go.
        TRACES.fetch_add(1, Ordering::Relaxed);
        // Where nothing is active, the trace was made by hand.
        let starts = STATE.peek(|state| {
            let starts = state.activations > 0;
            state.want(state.activations, starts || state.interposed);
            starts
        });
        if starts
            && !is_reconciled()
            && let Err(error) = reconcile(py, jax)
        {
            // Somebody has replaced a function of jax: it is called as it is.
            error.write_unraisable(py, None);
        }
        Self { of_thread, is_outermost }
    }

    /// For how many variables and equations to have room: mostly a program is traced again and again.
    pub fn room(&self) -> [usize; 2] {
        LAST_SIZE.each_ref().map(|last| {
            if self.is_outermost { last.load(Ordering::Relaxed).min(MAX_ROOM) } else { 0 }
        })
    }

    /// The program has so many variables and equations.
    pub fn note_size(&self, size: [usize; 2]) {
        if self.is_outermost {
            for (last, size) in LAST_SIZE.iter().zip(size) {
                last.store(size, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.of_thread.fetch_sub(1, Ordering::Relaxed) == 1 {
            audit_schedule::trace_ends();
        }
        TRACES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether nothing of ours can be traced in this thread. Where nothing but an activation of the
/// process is active, jax's functions are then left as they are until the next trace.
///
/// # Errors
/// CPython refuses a function's code.
#[inline]
pub fn is_idle(py: Python<'_>) -> PyResult<bool> {
    if is_tracing() {
        return Ok(false);
    }
    if PROCESS.load(Ordering::Relaxed) > 0 {
        become_idle(py)?;
    }
    Ok(true)
}

fn become_idle(py: Python<'_>) -> PyResult<()> {
    let stops = STATE.peek(|state| {
        let stops = state.interposed
            && TRACES.load(Ordering::Relaxed) == 0
            && state.activations == PROCESS.load(Ordering::Relaxed);
        state.want(state.activations, state.interposed && !stops);
        stops
    });
    if stops { reconcile(py, jax(py)?) } else { Ok(()) }
}

/// Names the outermost trace that is under way in this thread. One that failed is under way for as
/// long as its error is kept, but for `make_jaxpr`, with which a new one begins.
pub fn outermost() -> u64 {
    OUTERMOST.get()
}

fn begin_outermost() {
    // What has changed since the last trace may have gone unnoticed.
    world::begin_trace();
    watch_config::note_change();
    OUTERMOST.set(OUTERMOSTS.fetch_add(1, Ordering::Relaxed) + 1);
}

/// How often jits were made to forget their programs, as far as was noticed.
static JIT_GENERATION: AtomicU64 = AtomicU64::new(0);
/// How many programs had been begun when that was last looked into.
static LOOKED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Grows when `clear_cache` of some jit was called. While a trace of ours may run that is noticed
/// (`evict_jit`); for the time before, each outermost trace asks once.
///
/// # Errors
/// jax's cache cannot be asked.
pub fn jit_generation(py: Python<'_>, jax: &Jax) -> PyResult<u64> {
    let begun = settings::programs_begun();
    if LOOKED.swap(begun, Ordering::Relaxed) != begun
        && jax.jits_forgot.bind(py).call0()?.is_truthy()?
    {
        JIT_GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    Ok(JIT_GENERATION.load(Ordering::Relaxed))
}

/// What is to be changed of jax.
struct State {
    /// How many activations there are in the process: traces are ours.
    activations: usize,
    /// jax's functions are ours.
    interposed: bool,
}

static STATE: Shared<State> = Shared::new(State { activations: 0, interposed: false });
/// How often that became something else.
static VERSION: AtomicU64 = AtomicU64::new(0);
/// The version that jax was last made.
static RECONCILED: AtomicU64 = AtomicU64::new(0);

impl State {
    fn want(&mut self, activations: usize, interposed: bool) {
        if (self.activations > 0, self.interposed) != (activations > 0, interposed) {
            VERSION.fetch_add(1, Ordering::Relaxed);
        }
        (self.activations, self.interposed) = (activations, interposed);
    }
}

/// What jax is to be.
#[derive(Clone, Copy)]
pub struct Wanted {
    version: u64,
    /// Traces are ours.
    pub active: bool,
    /// jax's functions are ours.
    pub interposed: bool,
}

impl Wanted {
    /// What is wanted now.
    pub fn now() -> Self {
        let version = VERSION.load(Ordering::Relaxed);
        let (active, interposed) = STATE.peek(|state| (state.activations > 0, state.interposed));
        Self { version, active, interposed }
    }

    /// Whether something else is wanted by now: whoever is changing jax then begins anew.
    pub fn is_outdated(self) -> bool {
        VERSION.load(Ordering::Relaxed) != self.version
    }

    /// jax is what was wanted.
    pub fn note_reconciled(self) {
        RECONCILED.store(self.version, Ordering::Relaxed);
    }
}

/// Whether jax is what is wanted.
fn is_reconciled() -> bool {
    RECONCILED.load(Ordering::Relaxed) == VERSION.load(Ordering::Relaxed)
}

/// From now on jax's functions are to be its own.
pub fn give_up_interposition() {
    STATE.peek(|state| state.want(state.activations, false));
}

/// For whom traces are ours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Thread,
    Process,
}

/// An activation begins.
///
/// # Errors
/// CPython refuses a change of jax: then it has not begun.
pub fn enter(py: Python<'_>, scope: Scope) -> PyResult<()> {
    let jax = jax(py)?;
    STATE.peek(|state| state.want(state.activations + 1, true));
    let starts = !is_reconciled();
    if starts && let Err(error) = reconcile(py, jax) {
        end_activation(py, jax)?;
        return Err(error);
    }
    let trace = current_trace(py, jax)?;
    if scope == Scope::Thread && DEPTH.get() == 0 && trace.is(&jax.eval_trace) {
        begin_outermost();
    } else if starts {
        world::poll();
    }
    match scope {
        Scope::Thread => DEPTH.set(DEPTH.get() + 1),
        Scope::Process => {
            PROCESS.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// An activation ends.
///
/// # Errors
/// It has not begun; CPython refuses a change of jax.
pub fn leave(py: Python<'_>, scope: Scope) -> PyResult<()> {
    let jax = jax(py)?;
    let entered = match scope {
        Scope::Thread => DEPTH.get(),
        Scope::Process => PROCESS.load(Ordering::Relaxed),
    };
    if STATE.peek(|state| state.activations == 0) || entered == 0 {
        return Err(PyRuntimeError::new_err("jaxide: left an activation that was not entered"));
    }
    match scope {
        Scope::Thread => DEPTH.set(DEPTH.get() - 1),
        Scope::Process => {
            PROCESS.fetch_sub(1, Ordering::Relaxed);
        }
    }
    end_activation(py, jax)
}

/// How many activations of the whole process there are.
pub fn num_installed() -> usize {
    PROCESS.load(Ordering::Relaxed)
}

fn end_activation(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    STATE.peek(|state| {
        let activations = state.activations.saturating_sub(1);
        state.want(activations, state.interposed && activations > 0);
    });
    if is_reconciled() { Ok(()) } else { reconcile(py, jax) }
}
