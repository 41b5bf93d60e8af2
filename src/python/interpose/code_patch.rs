//! A function of jax and its two codes: its own, and that of a trampoline that calls us.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use crate::python::cpython::native::string_of;
use crate::python::jax::watch_warnings::note_trampoline;
use crate::python::jax::world::{note_code, note_interposed, was_given_code};

#[derive(Clone, Copy)]
pub enum Code {
    Stock,
    Trampoline,
}

/// A function whose code is changed, and its codes, all of which live as long as the process. Hundreds
/// of them are gone through for each trace, so they lie side by side.
#[derive(Clone, Copy)]
pub struct PatchedFunction {
    function: *mut ffi::PyFunctionObject,
    stock: *mut ffi::PyObject,
    trampoline: *mut ffi::PyObject,
}

// SAFETY: never freed, and used with the interpreter attached only.
unsafe impl Send for PatchedFunction {}
// SAFETY: as above.
unsafe impl Sync for PatchedFunction {}

/// A variable of code that calls us in the place of something else (`python/jaxide/_native/instrumented.py`).
const CALLED: &str = "jaxide_called";

impl PatchedFunction {
    /// A function that has its own code, and a code for it to have at times. The one that it does not
    /// have just now has one more reference, which is the function's own while it has it.
    ///
    /// # Errors
    /// `TypeError`: it is no function, or the code does not fit its closure.
    pub fn new(function: &Bound<'_, PyAny>, trampoline: &Bound<'_, PyAny>) -> PyResult<Self> {
        let free_variables = intern!(function.py(), "co_freevars");
        let stock = function.getattr(intern!(function.py(), "__code__"))?;
        let is_function = function.get_type_ptr() == &raw mut ffi::PyFunction_Type;
        if !is_function || !trampoline.getattr(free_variables)?.eq(stock.getattr(free_variables)?)?
        {
            let function = string_of(&function.repr()?);
            return Err(PyTypeError::new_err(format!("jaxide: no trampoline fits {function}")));
        }
        note_interposed(function);
        // What a function is called through is in its own frame, which counts.
        if !trampoline.getattr(intern!(function.py(), "co_varnames"))?.contains(CALLED)? {
            note_trampoline(trampoline);
        }
        note_code(function, trampoline);
        std::mem::forget(trampoline.clone().unbind());
        Ok(Self {
            function: function.clone().unbind().into_ptr().cast(),
            stock: stock.unbind().into_ptr(),
            trampoline: trampoline.clone().unbind().into_ptr(),
        })
    }

    pub fn function<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        // SAFETY: never freed.
        unsafe { Bound::from_borrowed_ptr(py, self.function.cast()) }
    }

    /// Whether the function has this code. That is not asked for as an attribute: of that the
    /// interpreter tells audit hooks.
    pub fn has(&self, code: Code) -> bool {
        // SAFETY: never freed.
        unsafe { (*self.function).func_code == self.code(code) }
    }

    fn code(&self, code: Code) -> *mut ffi::PyObject {
        match code {
            Code::Stock => self.stock,
            Code::Trampoline => self.trampoline,
        }
    }

    /// `function.__code__ = code`, for hundreds of functions at a time: nothing but the function is
    /// touched, since most are not in the machine's caches.
    ///
    /// CPython specializes calls by a function's version and checks nothing else: a function
    /// without one has to be looked at again. In 3.13 a table has functions by their versions, and
    /// compares these: it may go on naming this one, which lives as long as the process. From 3.14 on
    /// a version that was cleared means something else, so the interpreter changes the code itself.
    ///
    /// # Errors
    /// Audit hooks, which the interpreter tells of the change where it makes it itself.
    pub fn put(&self, py: Python<'_>, code: Code, keeps_versions: bool) -> PyResult<()> {
        let other = match code {
            Code::Stock => Code::Trampoline,
            Code::Trampoline => Code::Stock,
        };
        if !self.has(other) {
            // It has the code already, or one that somebody gave it, which it keeps.
            return Ok(());
        }
        let (code, function) = (self.code(code), self.function);
        // Who gives a function a code, be it one of these two, takes the reference that its code had.
        if keeps_versions || was_given_code(function as usize) {
            // SAFETY: never freed.
            let code = unsafe { Bound::from_borrowed_ptr(py, code) };
            return self.function(py).setattr(intern!(py, "__code__"), code);
        }
        // SAFETY: both codes have as many free variables as the function's closure. The reference that
        // comes with `code` becomes the function's, and the function's becomes the one that comes with
        // the other code.
        unsafe {
            (*function).func_code = code;
            (*function).func_version = 0;
        }
        Ok(())
    }
}

/// Whether a function that lost its version is another case for CPython than one that has none yet.
pub fn keeps_versions(py: Python<'_>) -> bool {
    py.version_info() >= (3, 14)
}
