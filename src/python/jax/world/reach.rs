//! Whether a call reaches something of jax that differs from what it was.
//!
//! While the call runs, the interpreter says which code does. Code that belongs to what differs, or that
//! has one of the differing names among those that it looks up, may do something else next time.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFrozenSet, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::python::cpython::shared::Once;

/// What differs.
pub struct Differing {
    /// Names that are looked up.
    names: Py<PyFrozenSet>,
    /// Instructions that do something else.
    operations: Vec<u8>,
    /// Code, by address, which is kept alive.
    codes: FxHashSet<usize>,
    _kept: Py<PyAny>,
}

impl Differing {
    /// Reads what `jaxide._native.world` has found.
    ///
    /// # Errors
    /// It is not as expected.
    pub fn read(found: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = found.py();
        let names = found.getattr(intern!(py, "names"))?.cast_into::<PyFrozenSet>()?.unbind();
        let operations = found.getattr(intern!(py, "operations"))?.extract()?;
        let kept = found.getattr(intern!(py, "codes"))?;
        let codes = kept.try_iter()?.map(|code| Ok(code?.as_ptr() as usize));
        let codes = codes.collect::<PyResult<_>>()?;
        Ok(Self { names, operations, codes, _kept: kept.unbind() })
    }

    /// Whether there is nothing that code could reach.
    pub fn is_empty(&self, py: Python<'_>) -> bool {
        self.codes.is_empty() && !self.is_looked_at(py)
    }

    /// Whether one of these code objects differs, or has a name or instruction that does.
    ///
    /// # Errors
    /// There is something else among them.
    pub fn concerns(&self, codes: &Bound<'_, PyTuple>) -> PyResult<bool> {
        for code in codes.iter() {
            if self.codes.contains(&(code.as_ptr() as usize)) || self.is_looked_up_by(&code)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether code is looked at for the names and instructions that it has.
    fn is_looked_at(&self, py: Python<'_>) -> bool {
        !self.names.bind(py).is_empty() || !self.operations.is_empty()
    }

    /// Whether code has one of the names or instructions that differ.
    fn is_looked_up_by(&self, code: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = code.py();
        let names = self.names.bind(py);
        // A name may also be looked up by `getattr`.
        for part in [intern!(py, "co_names"), intern!(py, "co_consts")] {
            for name in code.getattr(part)?.cast::<PyTuple>()?.iter_borrowed() {
                if name.is_exact_instance_of::<PyString>() && names.contains(name)? {
                    return Ok(true);
                }
            }
        }
        if self.operations.is_empty() {
            return Ok(false);
        }
        let code = code.getattr(intern!(py, "co_code"))?.cast_into::<PyBytes>()?;
        // Each instruction takes two bytes.
        Ok(code.as_bytes().iter().step_by(2).any(|operation| self.operations.contains(operation)))
    }
}

/// What is seen of the calls of a thread.
struct Seen {
    differing: Arc<Differing>,
    /// Code that was looked at, by address; it stays alive, so that an address is of one code.
    known: FxHashMap<usize, Py<PyAny>>,
    is_looked_at: bool,
    reached: bool,
}

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
    /// How many calls this thread was told of.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Whether the interpreter still tells this thread of calls: somebody may have set a profiler, or taken
/// ours away. To find out, a function is called.
fn is_told(py: Python<'_>) -> PyResult<bool> {
    static PROBE: Once<Py<PyAny>> = Once::new();
    let probe = PROBE.get_or_try_init(py, || {
        let probe = py
            .import(intern!(py, "jaxide._native.pure_functions"))?
            .getattr(intern!(py, "nothing"))?;
        PyResult::Ok(probe.unbind())
    })?;
    let before = CALLS.get();
    probe.bind(py).call0()?;
    Ok(CALLS.get() != before)
}

/// While it lives, calls of this thread are seen.
pub struct Reached {
    _private: (),
}

impl Reached {
    /// Begins to look at calls; None where somebody else does, such as a profiler.
    pub fn start(py: Python<'_>, differing: Arc<Differing>) -> PyResult<Option<Self>> {
        let is_first = SEEN.with_borrow(Vec::is_empty);
        let sys = py.import(intern!(py, "sys"))?;
        let is_free =
            || -> PyResult<bool> { Ok(sys.call_method0(intern!(py, "getprofile"))?.is_none()) };
        if !(if is_first { is_free()? } else { is_told(py)? }) {
            return Ok(None);
        }
        SEEN.with_borrow_mut(|seen| {
            let (known, is_looked_at) = (FxHashMap::default(), differing.is_looked_at(py));
            seen.push(Seen { differing, known, is_looked_at, reached: false });
        });
        if is_first {
            // SAFETY: with the interpreter attached; `note_call` is what the interpreter expects.
            unsafe { ffi::PyEval_SetProfile(Some(note_call), std::ptr::null_mut()) };
        }
        Ok(Some(Self { _private: () }))
    }

    /// Whether something that differs was reached, or may have been: somebody else has begun to look at
    /// calls meanwhile.
    ///
    /// # Errors
    /// Calls are not looked at any more.
    #[allow(clippy::unused_self)] // whoever has it looks at calls
    pub fn finish(self, py: Python<'_>) -> PyResult<bool> {
        let missed = !is_told(py)?;
        SEEN.with_borrow_mut(|seen| {
            let seen = seen.last_mut()?;
            seen.reached |= missed;
            Some(seen.reached)
        })
        .ok_or_else(|| PyRuntimeError::new_err("jaxide: no call is looked at"))
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        let (last, outer) = SEEN.with_borrow_mut(|seen| {
            let last = seen.pop();
            if let (Some(last), Some(outer)) = (&last, seen.last_mut()) {
                outer.reached |= last.reached;
            }
            (last, seen.len())
        });
        drop(last);
        if outer == 0 {
            // SAFETY: a call under way has the interpreter attached.
            let py = unsafe { Python::assume_attached() };
            // An exception may be on its way: it has to survive this.
            let error = PyErr::take(py);
            // A profiler that somebody has set stays.
            if is_told(py).unwrap_or(false) {
                // SAFETY: as above.
                unsafe { ffi::PyEval_SetProfile(None, std::ptr::null_mut()) };
            }
            if let Some(error) = error {
                error.restore(py);
            }
        }
    }
}

unsafe extern "C" fn note_call(
    _object: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    _arg: *mut ffi::PyObject,
) -> c_int {
    if what != ffi::PyTrace_CALL {
        return 0;
    }
    CALLS.set(CALLS.get() + 1);
    // SAFETY: the interpreter passes the frame that begins.
    let code: Bound<'_, PyAny> = unsafe {
        let py = Python::assume_attached();
        Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(frame).cast())
    };
    let address = code.as_ptr() as usize;
    let ask = SEEN.with_borrow_mut(|seen| {
        let seen = seen.last_mut()?;
        if seen.reached || seen.differing.codes.contains(&address) {
            seen.reached = true;
            return None;
        }
        let is_new = seen.is_looked_at && !seen.known.contains_key(&address);
        is_new.then(|| {
            seen.known.insert(address, code.clone().unbind());
            seen.differing.clone()
        })
    });
    // Without the borrow, since names may compare in any way.
    if let Some(differing) = ask
        && differing.is_looked_up_by(&code).unwrap_or(true)
    {
        SEEN.with_borrow_mut(|seen| {
            if let Some(seen) = seen.last_mut() {
                seen.reached = true;
            }
        });
    }
    0
}
