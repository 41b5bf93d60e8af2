//! State behind Python objects, which is looked at only while no Python code can run.
//!
//! Python code may run at almost any call of `CPython`: a finalizer, a callback of the collector, a
//! signal handler, a profiler, another thread. So nothing of the state is lent to what could make such
//! a call. `Shared::with` takes a closure that cannot have a `Python` token, nor anything bound to one,
//! since these are not `Send`: in it references are counted up, and never down. What the state gives up
//! is handed out of the closure, and dies outside. `docs/reentrance.md` has the rules.

use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// Shows that this thread is attached, and lets references be counted up: no Python code runs by that.
#[derive(Clone, Copy)]
pub struct Quiet<'py>(PhantomData<&'py ()>);

impl<'py> Quiet<'py> {
    /// For state that nobody else has.
    pub fn of(_py: Python<'py>) -> Self {
        Self(PhantomData)
    }

    /// Another reference to an object.
    #[inline]
    pub fn own<T>(self, object: &Py<T>) -> Py<T> {
        // SAFETY: made from a token of this thread, which is attached for `'py`; closures of `with`
        // are `Send`, but run in the thread that calls it.
        object.clone_ref(unsafe { Python::assume_attached() })
    }

    /// Another reference to the object at an address.
    ///
    /// # Safety
    /// It is alive.
    pub unsafe fn own_at(self, address: usize) -> Py<PyAny> {
        // SAFETY: as promised, and as in `own`.
        unsafe { Bound::from_borrowed_ptr(self.token(), address as *mut pyo3::ffi::PyObject) }
            .unbind()
    }

    /// The token that this was made from.
    fn token(self) -> Python<'py> {
        // SAFETY: as in `own`.
        unsafe { Python::assume_attached() }
    }

    /// Whether two tracebacks of jax are equal, and the hash of one: functions of jaxlib that look at
    /// the memory of both, and make no object that is collected.
    ///
    /// # Errors
    /// Out of memory.
    pub fn same_traceback(self, one: &Py<PyAny>, other: &Py<PyAny>) -> PyResult<bool> {
        one.bind(self.token()).eq(other.bind(self.token()))
    }
}

/// What several threads, and whatever comes in between in one, look at in turns.
#[derive(Default)]
pub struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Reads or changes it. Nobody waits here: what has the lock neither runs Python code nor lets go
    /// of the interpreter.
    #[inline]
    pub fn with<'py, R: Send>(
        &self,
        py: Python<'py>,
        body: impl FnOnce(&mut T, Quiet<'py>) -> R + Send,
    ) -> R {
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), Quiet::of(py))
    }

    /// As `with`, for what counts no references.
    #[inline]
    pub fn peek<R: Send>(&self, body: impl FnOnce(&mut T) -> R + Send) -> R {
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For the collector, which may come only where nobody has the lock.
    pub fn visit<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_lock().ok().map(|value| body(&value))
    }
}
