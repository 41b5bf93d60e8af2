//! Calls under transformations: the current trace is one of jax's, over others, down to a trace of
//! ours. Every traced argument is taken apart down to variables of the programs that record.
//!
//! A `JVPTrace` or `BatchTrace` appends what it does to the trace below. A `LinearizeTrace` has a
//! program of its own besides, of tangents, which knows values of the trace below as constants.

use std::rc::Rc;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString, PyTuple, PyType};
use smallvec::{SmallVec, smallvec};

use crate::expand::{Local, Signature, Tag};
use crate::ir::{Def, Var};

use crate::python::cpython::native::{Slot, allocate, is_exactly};
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::trace::frame::Frame;
use crate::python::trace::jaxpr_trace::frame_of;
use crate::python::trace::tracer::variable_of_trace;

/// The transformations between the current trace and the one that records.
pub struct Stack {
    /// The current one first.
    pub transformations: SmallVec<[Transformation; 2]>,
    /// What else of the trace context a call depends on, as the start of a signature.
    key: Signature,
}

/// A transformation.
pub struct Transformation {
    /// jax holds the current trace, and each holds the one below.
    trace: *mut ffi::PyObject,
    kind: Kind,
}

enum Kind {
    /// Its tracers know each other by a tag: several traces may have the same.
    Jvp {
        tag: Py<PyAny>,
    },
    Batch {
        tag: Py<PyAny>,
    },
    Linearize(Linearization),
}

/// A differentiation.
pub struct Linearization {
    /// How many scopes had been entered when it began.
    outer_scopes: u64,
    pub tangent_trace: *mut ffi::PyObject,
    pub tangent_frame: Py<Frame>,
    /// Residuals that rules passed by, from jax 0.11 on.
    structured_residuals: Option<Py<PyList>>,
}

/// What a tracer of a transformation consists of, borrowed.
#[derive(Clone, Copy)]
pub enum Parts {
    Jvp {
        primal: *mut ffi::PyObject,
        tangent: *mut ffi::PyObject,
    },
    Batch {
        value: *mut ffi::PyObject,
        dim: *mut ffi::PyObject,
    },
    /// The tangent is of the transformation's own program.
    Linearize {
        primal: *mut ffi::PyObject,
        tangent: *mut ffi::PyObject,
    },
}

/// Deeper nesting than this is left to jax.
const MAX_LEVELS: usize = 8;

impl Stack {
    /// Whether a trace is a transformation.
    pub fn is_one(jax: &Jax, trace: &Bound<'_, PyAny>) -> bool {
        [&jax.linearize_trace_type, &jax.jvp_trace_type, &jax.batch_trace_type]
            .iter()
            .any(|class| is_exactly(trace.as_ptr(), class.as_ptr().cast()))
    }

    /// The transformations that `trace` is the first of, and the trace that records; None where
    /// there are none, or where something is unusual.
    ///
    /// # Errors
    /// jax's traces are not what they were.
    pub fn read<'py>(
        jax: &Jax,
        trace: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Self, Bound<'py, PyAny>)>> {
        let py = trace.py();
        let mut stack =
            Self { transformations: SmallVec::new(), key: Signature::new(0).noting_locals() };
        let mut base = trace.clone();
        while Self::is_one(jax, &base) {
            if stack.transformations.len() == MAX_LEVELS
                || base.getattr(intern!(py, "requires_low"))?.is_truthy()?
            {
                return Ok(None);
            }
            let Some(transformation) = stack.read_transformation(jax, &base)? else {
                return Ok(None);
            };
            stack.transformations.push(transformation);
            base = base.getattr(intern!(py, "parent_trace"))?;
        }
        let Some(frame) = frame_of(jax, &base) else { return Ok(None) };
        if stack.transformations.is_empty() || frame.get().auto_dce() {
            return Ok(None);
        }
        stack.key.tag(Tag::Sequence, stack.transformations.len());
        Ok(Some((stack, base)))
    }

    /// A transformation, whose key is written.
    fn read_transformation(
        &mut self,
        jax: &Jax,
        trace: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Transformation>> {
        let py = trace.py();
        let is =
            |class: &Py<pyo3::types::PyType>| is_exactly(trace.as_ptr(), class.as_ptr().cast());
        let tag = || trace.getattr(intern!(py, "tag")).map(Bound::unbind);
        let kind = if is(&jax.jvp_trace_type) {
            self.key.tag(Tag::Transformation, 0);
            Kind::Jvp { tag: tag()? }
        } else if is(&jax.batch_trace_type) {
            let axis = trace.getattr(intern!(py, "axis_data"))?;
            let name = axis.getattr(intern!(py, "name"))?;
            let size = axis.getattr(intern!(py, "size"))?;
            let meshless = axis.getattr(intern!(py, "spmd_name"))?.is_none()
                && axis.getattr(intern!(py, "_ema"))?.is_none();
            let Ok(size) = size.cast_exact::<PyInt>() else { return Ok(None) };
            self.key.tag(Tag::Transformation, 1);
            self.key.word(size.extract()?);
            if let Ok(name) = name.cast_exact::<PyString>() {
                self.key.bytes(Tag::Text, name.to_str()?.as_bytes());
            } else if name.is(&jax.no_axis_name) {
                self.key.tag(Tag::Identity, 0);
            } else {
                return Ok(None);
            }
            if !meshless {
                return Ok(None);
            }
            Kind::Batch { tag: tag()? }
        } else {
            let tangent_trace = trace.getattr(intern!(py, "tangent_trace"))?;
            let Some(frame) = frame_of(jax, &tangent_trace) else { return Ok(None) };
            if !frame.get().auto_dce() {
                return Ok(None);
            }
            self.key.tag(Tag::Transformation, 2);
            let is_vjp = trace.getattr(intern!(py, "is_vjp"))?.is_truthy()?;
            self.key.word(u64::from(is_vjp));
            let outer_scopes = trace.getattr(intern!(py, "_name_stack_prefix_len"))?.extract()?;
            self.key.word(outer_scopes);
            let residuals = trace.getattr_opt(intern!(py, "structured_residuals"))?;
            Kind::Linearize(Linearization {
                outer_scopes,
                tangent_trace: tangent_trace.as_ptr(),
                tangent_frame: frame.unbind(),
                structured_residuals: residuals
                    .map(|residuals| residuals.cast_into::<PyList>().map(Bound::unbind))
                    .transpose()?,
            })
        };
        Ok(Some(Transformation { trace: trace.as_ptr(), kind }))
    }

    /// What every signature under these transformations starts with.
    pub fn key(&self) -> &Signature {
        &self.key
    }

    /// Whether the scopes of what is recorded are whole, not below the caller's: jax gives tangents those
    /// that were entered since a differentiation began. They are the caller's where none was before.
    pub fn has_whole_scopes(&self) -> bool {
        self.linearizations().any(|(_, linearization)| linearization.outer_scopes != 0)
    }

    /// What a call depends on of a name stack: all of it where the scopes of what is recorded are whole, or
    /// whether there are any.
    ///
    /// # Errors
    /// jax's name stack is not what it was.
    pub fn scope_key(&self, name_stack: &Bound<'_, PyAny>) -> PyResult<Option<Rc<Signature>>> {
        let py = name_stack.py();
        if !self.linearizes() {
            return Ok(None);
        }
        let scopes = name_stack.getattr(intern!(py, "stack"))?.cast_into::<PyTuple>()?;
        let mut key = Signature::new(0).noting_locals();
        if !self.has_whole_scopes() {
            // Who leaves all scopes stays in an empty one.
            key.tag(Tag::Sequence, usize::from(scopes.is_empty()));
            return Ok(Some(Rc::new(key)));
        }
        Self::add_scopes(&mut key, &scopes)?;
        Ok(Some(Rc::new(key)))
    }

    /// Adds all of a name stack to a key.
    pub(super) fn add_scopes(key: &mut Signature, scopes: &Bound<'_, PyTuple>) -> PyResult<()> {
        let py = scopes.py();
        for scope in scopes.iter() {
            key.tag(Tag::Identity, 0);
            key.local(Local::Object, scope.get_type_ptr() as u64);
            let name = scope.getattr(intern!(py, "name"))?.str()?;
            key.bytes(Tag::Text, name.to_str()?.as_bytes());
        }
        key.tag(Tag::Sequence, key.words().len());
        Ok(())
    }

    /// Whether a differentiation is among them.
    pub fn linearizes(&self) -> bool {
        self.linearizations().next().is_some()
    }

    /// Whether derivative rules run at once.
    pub fn differentiates(&self) -> bool {
        !self
            .transformations
            .iter()
            .all(|transformation| matches!(transformation.kind, Kind::Batch { .. }))
    }

    /// The differentiations with their levels, those first whose values others may be made of.
    pub fn linearizations(&self) -> impl Iterator<Item = (usize, &Linearization)> {
        self.transformations.iter().enumerate().rev().filter_map(|(level, transformation)| {
            match &transformation.kind {
                Kind::Linearize(linearization) => Some((level, linearization)),
                _ => None,
            }
        })
    }

    /// The differentiation of a level.
    pub fn linearization(&self, level: usize) -> Option<&Linearization> {
        match &self.transformations.get(level)?.kind {
            Kind::Linearize(linearization) => Some(linearization),
            _ => None,
        }
    }

    /// The level that a tracer is of, among those from `from` on, and its parts; None where it is of
    /// none.
    pub fn parts(
        &self,
        py: Python<'_>,
        jax: &Jax,
        tracer: *mut ffi::PyObject,
        from: usize,
    ) -> Option<(usize, Parts)> {
        let transformations = self.transformations.iter().enumerate().skip(from);
        transformations.into_iter().find_map(|(level, transformation)| {
            Some((level, transformation.parts(py, jax, tracer)?))
        })
    }
}

/// Whether an object is a tracer of some transformation.
pub fn is_transformed(jax: &Jax, object: *mut ffi::PyObject) -> bool {
    [&jax.linearize_tracer_type, &jax.jvp_tracer_type, &jax.batch_tracer_type]
        .iter()
        .any(|class| is_exactly(object, class.as_ptr().cast()))
}

impl Transformation {
    fn parts(&self, py: Python<'_>, jax: &Jax, tracer: *mut ffi::PyObject) -> Option<Parts> {
        let (class, slots) = self.tracer_layout(jax);
        if !is_exactly(tracer, class.as_ptr().cast()) {
            return None;
        }
        // SAFETY: the exact type was checked.
        let (trace, [first, second]) =
            unsafe { (jax.slots.tracer_trace.peek(tracer), slots.map(|slot| slot.peek(tracer))) };
        if trace.is_null() || first.is_null() || second.is_null() || !self.is_of(py, trace) {
            return None;
        }
        Some(match &self.kind {
            Kind::Jvp { .. } => Parts::Jvp { primal: first, tangent: second },
            Kind::Batch { .. } => Parts::Batch { value: first, dim: second },
            Kind::Linearize(_) => Parts::Linearize { primal: first, tangent: second },
        })
    }

    /// The class of its tracers, and where their parts are.
    fn tracer_layout<'a>(&self, jax: &'a Jax) -> (&'a Py<PyType>, [Slot; 2]) {
        match &self.kind {
            Kind::Jvp { .. } => (&jax.jvp_tracer_type, jax.slots.jvp_tracer),
            Kind::Batch { .. } => (&jax.batch_tracer_type, jax.slots.batch_tracer),
            Kind::Linearize(_) => (&jax.linearize_tracer_type, jax.slots.linearize_tracer),
        }
    }

    /// Whether the tracers of a trace are those of this transformation's.
    fn is_of(&self, py: Python<'_>, trace: *mut ffi::PyObject) -> bool {
        if trace == self.trace {
            return true;
        }
        match &self.kind {
            Kind::Jvp { tag } | Kind::Batch { tag } => {
                // SAFETY: the trace of a live tracer, which has a dict.
                let trace = unsafe { Bound::from_borrowed_ptr(py, trace) };
                trace.getattr(intern!(py, "tag")).is_ok_and(|other| other.is(tag))
            }
            Kind::Linearize(_) => false,
        }
    }

    /// A new tracer of this transformation.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new_tracer<'py>(
        &self,
        jax: &Jax,
        aval: Bound<'py, PyAny>,
        parts: &[Bound<'py, PyAny>],
        source: &SourceRef<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = aval.py();
        // SAFETY: the trace of a transformation that is current.
        let trace = unsafe { Bound::from_borrowed_ptr(py, self.trace) };
        let (class, slots) = self.tracer_layout(jax);
        let tracer = allocate(class.bind(py))?;
        let raw = tracer.as_ptr();
        // SAFETY: a fresh instance of jax's class, which has these slots, all empty.
        unsafe {
            jax.slots.tracer_trace.fill(raw, trace);
            jax.slots.tracer_aval.fill(raw, aval);
            for (slot, part) in slots.into_iter().zip(parts) {
                slot.fill(raw, part.clone());
            }
            if let Kind::Batch { .. } = &self.kind {
                jax.slots.batch_tracer_source.fill(raw, source.to_object(jax)?);
            }
        }
        Ok(tracer)
    }
}

impl Parts {
    /// Those that are values of the levels below.
    pub fn below(self) -> SmallVec<[*mut ffi::PyObject; 2]> {
        match self {
            Self::Jvp { primal, tangent } => smallvec![primal, tangent],
            Self::Batch { value, .. } => smallvec![value],
            Self::Linearize { primal, .. } => smallvec![primal],
        }
    }
}

impl Linearization {
    /// The residuals that rules have passed by so far; None where jax has no such list.
    pub fn structured_residuals<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyList>> {
        self.structured_residuals.as_ref().map(|residuals| residuals.bind(py).clone())
    }

    /// The variable of a tangent that was computed, not captured.
    pub fn tangent_variable(
        &self,
        py: Python<'_>,
        jax: &Jax,
        tangent: *mut ffi::PyObject,
    ) -> Option<Var> {
        let var = variable_of_trace(py, jax, tangent, self.tangent_trace)?;
        let is_computed = self.tangent_frame.bind(py).get().peek(|state| {
            let (builder, _) = state.recorded()?;
            Some(matches!(builder.var(var).def, Def::Invar | Def::Eqn(_)))
        });
        is_computed?.then_some(var)
    }
}
