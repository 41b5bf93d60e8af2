//! State behind Python objects, which is looked at only while no Python code can run.
//!
//! Python code may run at almost any call of CPython: a finalizer, a callback of the collector, a
//! signal handler, a profiler, another thread. So nothing of the state is lent to what could make such
//! a call. `Shared::with` takes a closure that cannot have a `Python` token, nor anything bound to one,
//! since these are not `Send`: in it references are counted up, and never down. What the state gives up
//! is handed out of the closure, and dies outside. `docs/reentrance.md` has the rules.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

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
    #[allow(clippy::unused_self)] // it shows that the thread is attached
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
        unsafe { Bound::from_borrowed_ptr(self.token(), address as *mut ffi::PyObject) }.unbind()
    }

    /// The token that this was made from.
    #[allow(clippy::unused_self)] // as in `own`
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
        // SAFETY: two live objects, and this thread is attached.
        let same =
            unsafe { ffi::PyObject_RichCompareBool(one.as_ptr(), other.as_ptr(), ffi::Py_EQ) };
        if same < 0 { Err(PyErr::fetch(self.token())) } else { Ok(same == 1) }
    }
}

/// What several threads, and whatever comes in between in one, look at in turns.
///
/// Whoever looks is attached to the interpreter, and stays attached until the end of the closure, which
/// cannot call Python. So the interpreter's own lock keeps others out, and no other lock is taken; builds of
/// CPython without that lock have a mutex.
#[derive(Default)]
pub struct Shared<T> {
    #[cfg(Py_GIL_DISABLED)]
    lock: std::sync::Mutex<()>,
    is_open: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, as said above.
unsafe impl<T: Send> Sync for Shared<T> {}

/// Closes a `Shared` again, also where the closure panics.
struct Open<'a>(&'a AtomicBool);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<T> Shared<T> {
    pub const fn new(value: T) -> Self {
        Self {
            #[cfg(Py_GIL_DISABLED)]
            lock: std::sync::Mutex::new(()),
            is_open: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Reads or changes it. Nobody waits here: what has it open neither runs Python code nor lets go
    /// of the interpreter.
    #[inline]
    pub fn with<'py, R: Send>(
        &self,
        py: Python<'py>,
        body: impl FnOnce(&mut T, Quiet<'py>) -> R + Send,
    ) -> R {
        self.open(|value| body(value, Quiet::of(py)))
    }

    /// As `with`, for what counts no references.
    #[inline]
    pub fn peek<R: Send>(&self, body: impl FnOnce(&mut T) -> R + Send) -> R {
        self.open(body)
    }

    #[inline]
    fn open<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: asks only.
        debug_assert!(unsafe { ffi::PyGILState_Check() } != 0, "not attached");
        #[cfg(Py_GIL_DISABLED)]
        let _lock = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.is_open.load(Ordering::Relaxed) {
            in_itself();
        }
        self.is_open.store(true, Ordering::Relaxed);
        let _open = Open(&self.is_open);
        // SAFETY: nobody else has it open, and nobody else can come in, as said above.
        body(unsafe { &mut *self.value.get() })
    }

    /// For the collector, which may come only where nobody has it open.
    pub fn visit<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        if self.is_open.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the collector runs attached, and `body` visits only.
        Some(body(unsafe { &*self.value.get() }))
    }
}

/// A closure has looked at the very state that it was given: a mistake in jaxide's own code.
#[cold]
fn in_itself() -> ! {
    panic!("jaxide: a state is looked at within itself");
}

/// What is made when somebody asks for it, and stays. To make it may run Python code, in which somebody
/// else asks for it: nobody waits, and the first one that is made is the one. (pyo3's `PyOnceLock` waits
/// for whoever is making it.)
#[derive(Default)]
pub struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    pub fn get(&self, _py: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    /// Puts the value there if there is none, else gives it back.
    pub fn set(&self, _py: Python<'_>, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    #[inline]
    pub fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        match self.0.get() {
            Some(value) => value,
            None => self.put(py, make()),
        }
    }

    #[inline]
    pub fn get_or_try_init<E>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.0.get() {
            Some(value) => Ok(value),
            None => Ok(self.put(py, make()?)),
        }
    }

    #[cold]
    fn put(&self, _py: Python<'_>, value: T) -> &T {
        // The closure only moves the value, and a late one dies outside of the lock.
        self.0.get_or_init(|| value)
    }
}

/// Numbers for what has a hash, from 0 on; it stays alive.
pub struct Numbers(Once<Py<PyDict>>);

impl Numbers {
    pub const fn new() -> Self {
        Self(Once::new())
    }

    /// The number of `key`, the next one where it is new.
    ///
    /// # Errors
    /// It has no hash, or cannot be compared.
    pub fn of(&self, key: &Bound<'_, PyAny>) -> PyResult<u32> {
        let py = key.py();
        let known = self.0.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
        if let Some(number) = known.get_item(key)? {
            return number.extract();
        }
        let number = u32::try_from(known.len())?;
        known.set_item(key, number)?;
        Ok(number)
    }
}
