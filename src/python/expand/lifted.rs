//! Calls under differentiation: the current trace is a `LinearizeTrace`, which records into two
//! programs, of primal values and of tangents. Every traced argument is taken apart down to
//! variables of these.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::expand::{Signature, Tag};
use crate::ir::{Def, Var};

use super::super::frame::Frame;
use super::super::graph::borrow_mut;
use super::super::jax::Jax;
use super::super::native::allocate;
use super::super::side::is_exactly;
use super::super::trace::frame_of;
use super::super::tracer::variable_of_trace;

/// The trace of a differentiation over a trace of ours.
pub struct Lifted {
    /// The current trace. jax holds it, and it holds the other.
    pub trace: *mut ffi::PyObject,
    pub tangent_trace: *mut ffi::PyObject,
    pub tangent_frame: Py<Frame>,
    /// Residuals that rules passed by, from jax 0.11 on.
    structured_residuals: Option<Py<PyList>>,
    /// What else of the moment a call depends on, as the start of a signature.
    words: Signature,
}

impl Lifted {
    /// Whether a trace is a differentiation.
    pub fn is_one(jax: &Jax, trace: &Bound<'_, PyAny>) -> bool {
        is_exactly(trace.as_ptr(), jax.linearize_trace_type.as_ptr().cast())
    }

    /// The differentiation that `trace` is, and the trace of its primal values; None where it is
    /// none, or not over a trace of ours.
    ///
    /// # Errors
    /// jax's trace is not what it was.
    pub fn read<'py>(
        jax: &Jax,
        trace: &Bound<'py, PyAny>,
        name_stack: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Self, Bound<'py, PyAny>)>> {
        let py = trace.py();
        if !Self::is_one(jax, trace) {
            return Ok(None);
        }
        let parent = trace.getattr(intern!(py, "parent_trace"))?;
        let tangent_trace = trace.getattr(intern!(py, "tangent_trace"))?;
        let (Some(frame), Some(tangent_frame)) =
            (frame_of(jax, &parent), frame_of(jax, &tangent_trace))
        else {
            return Ok(None);
        };
        let requires_low = trace.getattr(intern!(py, "requires_low"))?.is_truthy()?;
        if requires_low || borrow_mut(&frame).auto_dce() || !borrow_mut(&tangent_frame).auto_dce() {
            return Ok(None);
        }
        let is_vjp = trace.getattr(intern!(py, "is_vjp"))?.is_truthy()?;
        let prefix: usize = trace.getattr(intern!(py, "_name_stack_prefix_len"))?.extract()?;
        let mut words = Signature::new(u64::from(is_vjp));
        words.tag(Tag::Sequence, prefix);
        // Scopes and transformations, each a class and a name.
        for scope in name_stack.getattr(intern!(py, "stack"))?.cast_into::<PyTuple>()?.iter() {
            words.tag(Tag::Identity, 0);
            words.word(scope.get_type_ptr() as u64);
            let name = scope.getattr(intern!(py, "name"))?.str()?;
            words.bytes(Tag::Text, name.to_str()?.as_bytes());
        }
        let residuals = trace.getattr_opt(intern!(py, "structured_residuals"))?;
        let lifted = Self {
            trace: trace.as_ptr(),
            tangent_trace: tangent_trace.as_ptr(),
            tangent_frame: tangent_frame.unbind(),
            structured_residuals: residuals
                .map(|residuals| residuals.cast_into::<PyList>().map(Bound::unbind))
                .transpose()?,
            words,
        };
        Ok(Some((lifted, parent)))
    }

    /// What every signature under this differentiation starts with.
    pub fn words(&self) -> &[u64] {
        self.words.words()
    }

    /// The residuals that rules have passed by so far; None where jax has no such list.
    pub fn structured_residuals<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyList>> {
        self.structured_residuals.as_ref().map(|residuals| residuals.bind(py).clone())
    }

    /// The parts of a tracer of this differentiation, borrowed.
    pub fn parts(&self, jax: &Jax, tracer: *mut ffi::PyObject) -> Option<[*mut ffi::PyObject; 2]> {
        if !is_exactly(tracer, jax.linearize_tracer_type.as_ptr().cast()) {
            return None;
        }
        // SAFETY: the exact type was checked; a part that was never set is refused below.
        let (own, parts) = unsafe {
            let own = jax.slots.tracer_trace.peek(tracer) == self.trace;
            (own, jax.slots.linearize_tracer.map(|slot| slot.peek(tracer)))
        };
        (own && parts.iter().all(|part| !part.is_null())).then_some(parts)
    }

    /// The variable of a tangent that was computed, not captured.
    pub fn tangent_variable(
        &self,
        py: Python<'_>,
        jax: &Jax,
        tangent: *mut ffi::PyObject,
    ) -> Option<Var> {
        let var = variable_of_trace(py, jax, tangent, self.tangent_trace)?;
        let frame = self.tangent_frame.bind(py).try_borrow().ok()?;
        let (builder, _) = frame.recorded()?;
        matches!(builder.var(var).def, Def::Invar | Def::Eqn(_)).then_some(var)
    }

    /// `LinearizeTracer(trace, primal, tangent)`.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new_tracer<'py>(
        &self,
        jax: &Jax,
        primal: Bound<'py, PyAny>,
        tangent: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the current trace.
        let trace = unsafe { Bound::from_borrowed_ptr(primal.py(), self.trace) };
        new_lifted(jax, &trace, primal, tangent)
    }
}

/// Name stacks that fragments have, by themselves.
static NAME_STACKS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
const MAX_NAME_STACKS: usize = 4096;

/// A name stack that is equal to one, the same for all that are: what is made of it is then known by
/// its address.
///
/// # Errors
/// It has no hash.
pub fn shared_name_stack<'py>(stack: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = stack.py();
    let known = NAME_STACKS.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(same) = known.get_item(stack)? {
        return Ok(same);
    }
    if known.len() >= MAX_NAME_STACKS {
        known.clear();
    }
    known.set_item(stack, stack)?;
    Ok(stack.clone())
}

/// `LinearizeTracer(trace, primal, tangent)`, of a primal that is a tracer of ours.
///
/// # Errors
/// Out of memory.
pub fn new_lifted<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    primal: Bound<'py, PyAny>,
    tangent: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let tracer = allocate(jax.linearize_tracer_type.bind(primal.py()))?;
    // SAFETY: a fresh instance of jax's class, which has these slots, all empty; the primal has the
    // slots of a tracer.
    unsafe {
        let raw = tracer.as_ptr();
        let aval = jax.slots.tracer_aval.get(&primal);
        let aval = aval.ok_or_else(|| PyRuntimeError::new_err("a tracer without an aval"))?;
        jax.slots.tracer_trace.fill(raw, trace.clone());
        jax.slots.tracer_aval.fill(raw, aval);
        let [primal_slot, tangent_slot] = jax.slots.linearize_tracer;
        primal_slot.fill(raw, primal);
        tangent_slot.fill(raw, tangent);
    }
    Ok(tracer)
}
