//! Source info: the traceback and the name stack an equation is recorded with.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::cpython::native::allocate;
use crate::python::jax::names::Jax;

/// The current Python stack as jaxlib's `Traceback`; None where jax takes none.
///
/// jaxlib collects the frames in a buffer of the thread and makes objects meanwhile. A finalizer that
/// takes a traceback then (a collection runs where an object is made, up to Python 3.11) writes to the
/// same buffer: the code of some frames is counted once too little, and is freed while it is in use.
///
/// # Errors
/// The stack cannot be read.
pub fn current_traceback<'py>(py: Python<'py>, jax: &Jax) -> PyResult<Option<Bound<'py, PyAny>>> {
    #[cfg(not(Py_3_12))]
    let _held = crate::python::cpython::native::NoCollection::start(py);
    Ok(Some(jax.get_traceback.bind(py).call0()?).filter(|traceback| !traceback.is_none()))
}

/// Where an operation came from, as jax's `SourceInfo`.
#[derive(Clone)]
pub struct SourceRef<'py> {
    pub traceback: Option<Bound<'py, PyAny>>,
    pub name_stack: Bound<'py, PyAny>,
}

impl<'py> SourceRef<'py> {
    /// `source_info_util.current()`: the user's context, else the current Python stack.
    pub fn current(py: Python<'py>, jax: &Jax) -> PyResult<Self> {
        let context = jax.source_info_context.bind(py).getattr(pyo3::intern!(py, "context"))?;
        let mut source = Self::of(jax, &context)?;
        if source.traceback.is_none() {
            source.traceback = current_traceback(py, jax)?;
        }
        Ok(source)
    }

    /// The parts of a `SourceInfo`.
    pub fn of(jax: &Jax, source_info: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = source_info.py();
        let (traceback, name_stack) = if source_info.get_type().is(&jax.source_info_type) {
            // SAFETY: the exact type was checked.
            unsafe {
                (
                    jax.slots.source_traceback.get(source_info),
                    jax.slots.source_name_stack.get(source_info),
                )
            }
        } else {
            (
                Some(source_info.getattr(pyo3::intern!(py, "traceback"))?),
                Some(source_info.getattr(pyo3::intern!(py, "name_stack"))?),
            )
        };
        Ok(Self {
            traceback: traceback.filter(|t| !t.is_none()),
            name_stack: match name_stack {
                Some(stack) => stack,
                None => jax.empty_name_stack.bind(py).clone(),
            },
        })
    }

    /// As jax's `source_info or source_info_util.new_source_info()`.
    pub fn or_empty(
        jax: &Jax,
        py: Python<'py>,
        given: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        match given {
            Some(source_info) => Self::of(jax, source_info),
            None => Ok(Self { traceback: None, name_stack: jax.empty_name_stack.bind(py).clone() }),
        }
    }

    /// As jax's `source_info or source_info_util.current()`.
    pub fn or_current(
        jax: &Jax,
        py: Python<'py>,
        given: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        match given {
            Some(source_info) => Self::of(jax, source_info),
            None => Self::current(py, jax),
        }
    }

    /// A new `SourceInfo`.
    pub fn to_object(&self, jax: &Jax) -> PyResult<Bound<'py, PyAny>> {
        jax.new_source_info(self.traceback.clone(), self.name_stack.clone())
    }
}

/// The name stack `inner` below `outer`: `outer + inner`.
///
/// # Errors
/// They cannot be added.
pub fn join_name_stacks<'py>(
    jax: &Jax,
    outer: &Bound<'py, PyAny>,
    inner: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = outer.py();
    let class = jax.empty_name_stack.bind(py).get_type();
    let scopes = |stack: &Bound<'py, PyAny>| {
        let slot = jax.slots.name_stack_scopes.filter(|_| stack.get_type().is(&class))?;
        // SAFETY: the exact class was checked.
        let scopes = unsafe { slot.get(stack) }?;
        scopes.cast_into_exact::<PyTuple>().ok().map(|scopes| (slot, scopes))
    };
    let Some(((slot, above), (_, below))) = scopes(outer).zip(scopes(inner)) else {
        return outer.add(inner);
    };
    if above.is_empty() || below.is_empty() {
        return Ok(if above.is_empty() { inner } else { outer }.clone());
    }
    // SAFETY: two tuples; the new object is of the class that the slot is of, which is empty.
    unsafe {
        let joined = ffi::PySequence_Concat(above.as_ptr(), below.as_ptr());
        let joined = Bound::from_owned_ptr_or_err(py, joined)?;
        let stack = allocate(&class)?;
        slot.fill(stack.as_ptr(), joined);
        Ok(stack)
    }
}
