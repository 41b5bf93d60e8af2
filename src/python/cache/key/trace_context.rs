//! What a call reads besides its arguments, read again only when it may have changed.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use crate::expand::Signature;

use crate::python::cache::key::transformations::Stack;
use crate::python::cache::reasons::{
    CHANGED_JAX, DROPS_DEAD_CODE, LEAK_CHECK, NO_TRACING, NUMPY_TELLS, Reason, UNKNOWN_JAX,
};
use crate::python::cpython::native::attached;
use crate::python::jax::current_trace::current_trace;
use crate::python::jax::names::Jax;
use crate::python::jax::numpy_errors;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::settings;
use crate::python::jax::source::{SourceRef, current_traceback};
use crate::python::jax::watch_config::Version;
use crate::python::jax::world::{self, Difference};
use crate::python::trace::abstract_eval::Context;
use crate::python::trace::frame::Frame;
use crate::python::trace::jaxpr_trace::{frame_of, is_ours};

/// What a configuration means to the cache.
#[derive(Clone, Copy)]
pub struct Configuration {
    /// Names everything that is configured.
    pub number: u64,
    /// Functions under jit run as if they were not.
    pub jit_disabled: bool,
    /// What has no traced operand is computed at once.
    pub folds: bool,
}

/// Where the number of what differs in jax is in that of a configuration.
const WORLD_SHIFT: u32 = 48;

/// The number of what differs in jax, of a configuration's.
pub fn world_of(configuration: u64) -> u64 {
    configuration >> WORLD_SHIFT
}

impl Configuration {
    /// Whether a program that is made in the other one is made in this.
    pub fn is(self, other: Self) -> bool {
        self.number == other.number
    }
}

/// Where a call happens: the trace, the configuration and the source info.
pub struct TraceContext<'py> {
    /// The trace that records; under transformations the one below them.
    pub trace: Bound<'py, PyAny>,
    read: Rc<ContextRead>,
    /// In place of the user's source info: that of an equation that is transposed.
    equation: Option<EquationSource<'py>>,
}

/// The source info of an equation, with the key of its name stack.
#[derive(Clone)]
pub struct EquationSource<'py> {
    pub source: SourceRef<'py>,
    pub scope_key: Option<Rc<Signature>>,
}

/// What was read at an version.
struct Remembered {
    version: Version,
    /// None where the trace is not ours.
    read: Option<Rc<ContextRead>>,
}

struct ContextRead {
    /// The current trace or one below it, so jax holds it.
    trace: *mut ffi::PyObject,
    frame: Py<Frame>,
    stack: Option<Stack>,
    configuration: Result<Configuration, Reason>,
    /// The user's source info: its traceback where it has one, its name stack.
    traceback: Option<Py<PyAny>>,
    name_stack: Py<PyAny>,
    scope_key: Option<Rc<Signature>>,
}

/// The configuration that was read last: it outlives the trace.
struct LastConfiguration {
    version: Version,
    configuration: Result<Configuration, Reason>,
}

thread_local! {
    static REMEMBERED: RefCell<Option<Remembered>> = const { RefCell::new(None) };
    static CONFIGURATION: RefCell<Option<LastConfiguration>> = const { RefCell::new(None) };
}

/// Forgets what this thread remembers of a trace that ends.
pub fn forget() {
    let old = REMEMBERED.take();
    drop(old);
}

impl<'py> TraceContext<'py> {
    /// The current trace context; None where the current trace is not ours.
    ///
    /// # Errors
    /// jax's state cannot be read.
    #[inline]
    pub fn read(py: Python<'py>, jax: &Jax) -> PyResult<Option<Self>> {
        numpy_errors::poll(py, jax)?;
        let version = Version::current();
        let remembered = version.and_then(|version| {
            REMEMBERED.with_borrow(|remembered| {
                let known = remembered.as_ref().filter(|known| known.version == version)?;
                Some(known.read.clone())
            })
        });
        let read = match remembered {
            Some(read) => read,
            None => attached(|| ContextRead::read(py, jax, version))?,
        };
        Ok(read.map(|read| {
            // SAFETY: in this version it is the current trace or one below, which jax holds.
            let trace = unsafe { Bound::from_borrowed_ptr(py, read.trace) };
            Self { trace, read, equation: None }
        }))
    }

    /// The program that records.
    pub fn frame(&self) -> &Bound<'py, Frame> {
        self.read.frame.bind(self.trace.py())
    }

    /// The transformations between the current trace and the one that records.
    pub fn stack(&self) -> Option<&Stack> {
        self.read.stack.as_ref()
    }

    /// The configuration, or why nothing is remembered in it.
    pub fn configuration(&self) -> Result<Configuration, Reason> {
        self.read.configuration
    }

    /// This context with the source info of an equation, as jax transposes it: its traceback, and its
    /// name stack below the current one.
    pub fn at_equation(&self, equation: EquationSource<'py>) -> Self {
        let (trace, read) = (self.trace.clone(), self.read.clone());
        Self { trace, read, equation: Some(equation) }
    }

    /// Whether all equations have a traceback that is given, those of nested programs too: jax is
    /// evaluating another program.
    pub fn has_given_traceback(&self) -> bool {
        self.given_traceback().is_some()
    }

    /// That traceback.
    pub fn given_traceback(&self) -> Option<Bound<'py, PyAny>> {
        if let Some(equation) = &self.equation {
            return equation.source.traceback.clone();
        }
        let py = self.trace.py();
        self.read.traceback.as_ref().map(|traceback| traceback.bind(py).clone())
    }

    /// The current name stack.
    pub fn name_stack(&self) -> &Bound<'py, PyAny> {
        match &self.equation {
            Some(equation) => &equation.source.name_stack,
            None => self.read.name_stack.bind(self.trace.py()),
        }
    }

    /// What a call depends on of the name stack, beyond what its equations have below it.
    pub fn scope_key(&self) -> Option<&Signature> {
        let key = match &self.equation {
            Some(equation) => &equation.scope_key,
            None => &self.read.scope_key,
        };
        key.as_deref()
    }

    /// The current source: `source_info_util.current()`.
    ///
    /// # Errors
    /// The stack cannot be read.
    pub fn source(&self, jax: &Jax) -> PyResult<SourceRef<'py>> {
        let py = self.trace.py();
        let traceback = match self.given_traceback() {
            Some(traceback) => Some(traceback),
            None => current_traceback(py, jax)?,
        };
        Ok(SourceRef { traceback, name_stack: self.name_stack().clone() })
    }
}

impl ContextRead {
    #[cold]
    fn read(py: Python<'_>, jax: &Jax, version: Option<Version>) -> PyResult<Option<Rc<Self>>> {
        let trace = current_trace(py, jax)?;
        let remember = |read| {
            if let Some(version) = version {
                let old = REMEMBERED.replace(Some(Remembered { version, read }));
                drop(old);
            }
        };
        if !is_ours(py, trace.as_ptr()) && !Stack::is_one(jax, &trace) {
            remember(None);
            return Ok(None);
        }
        let context = jax.source_info_context.bind(py).getattr(intern!(py, "context"))?;
        let context = SourceRef::of(jax, &context)?;
        let (trace, stack) = match Stack::read(jax, &trace)? {
            Some((stack, base)) => (base, Some(stack)),
            None => (trace, None),
        };
        let Some(frame) = frame_of(jax, &trace) else {
            remember(None);
            return Ok(None);
        };
        let configuration = if frame.get().auto_dce() {
            Err(DROPS_DEAD_CODE)
        } else {
            configuration(py, jax, version)?
        };
        let scope_key = match &stack {
            Some(stack) => stack.scope_key(&context.name_stack)?,
            None => None,
        };
        let read = Rc::new(Self {
            trace: trace.as_ptr(),
            frame: frame.unbind(),
            stack,
            configuration,
            traceback: context.traceback.map(Bound::unbind),
            name_stack: context.name_stack.unbind(),
            scope_key,
        });
        // What is remembered keeps values alive.
        if !configuration.is_err_and(|reason| reason == LEAK_CHECK) {
            remember(Some(read.clone()));
        }
        Ok(Some(read))
    }
}

/// The current configuration, whatever the trace, or why nothing is remembered in it.
///
/// # Errors
/// jax's state cannot be read.
pub fn configuration_now(py: Python<'_>, jax: &Jax) -> PyResult<Result<Configuration, Reason>> {
    numpy_errors::poll(py, jax)?;
    configuration(py, jax, Version::current())
}

/// The number of the config context and of the other settings that a function may read.
fn configuration(
    py: Python<'_>,
    jax: &Jax,
    version: Option<Version>,
) -> PyResult<Result<Configuration, Reason>> {
    let known = version.and_then(|version| {
        CONFIGURATION.with_borrow(|known| {
            let known = known.as_ref().filter(|known| known.version.same_config(version))?;
            Some(known.configuration)
        })
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let is_on = |setting: &Py<PyAny>| -> PyResult<bool> {
        setting.bind(py).getattr(intern!(py, "value"))?.is_truthy()
    };
    let configuration = if !jax.replays.is_truthy(py)? {
        Err(UNKNOWN_JAX)
    } else if is_on(&jax.check_tracer_leaks)? {
        Err(LEAK_CHECK)
    } else if is_on(&jax.no_tracing)? {
        Err(NO_TRACING)
    } else if let Some(errors) = numpy_errors::number() {
        let context = Context::current(py, jax)?;
        let settings = settings::number_beside(py, jax, errors)?;
        let difference = world::difference(py)?;
        let numbers = (u16::try_from(settings), u16::try_from(difference.number()));
        match (difference, numbers) {
            (Difference::None | Difference::Some(..), (Ok(settings), Ok(world))) => {
                let configured = u64::from(context.number) | u64::from(settings) << 32;
                let written = !is_omitted(Item::Settings);
                Ok(Configuration {
                    number: (u64::from(written) * configured) | (u64::from(world) << WORLD_SHIFT),
                    jit_disabled: is_on(&jax.disable_jit)?,
                    folds: context.eager_folding,
                })
            }
            _ => Err(CHANGED_JAX),
        }
    } else {
        Err(NUMPY_TELLS)
    };
    if let Some(version) = version {
        CONFIGURATION.set(Some(LastConfiguration { version, configuration }));
    }
    Ok(configuration)
}
