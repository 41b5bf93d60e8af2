//! Noticing that a dict of jax, or a function of jax, may have changed.
//!
//! From `CPython` 3.12 on the interpreter says so (`PyDict_Watch`, `PyFunction_AddWatcher`). Before, each
//! dict has a version. The versions of modules, registries and some classes are compared before each
//! call, those of other classes and of instances whenever a trace begins or its surroundings change. Assignments to what a
//! function does raise an audit event.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

use super::super::shared::{Quiet, Shared};
use super::super::warn::is_trampoline;

/// What is watched, and what was noticed.
#[derive(Default)]
struct Watched {
    /// Never freed: their addresses are known.
    dicts: Vec<Dict>,
    by_address: FxHashMap<usize, u32>,
    /// Numbers of dicts that may have changed since the last look.
    changed: FxHashSet<u32>,
    /// The functions of jax, by address, as they were. They are kept alive.
    own: FxHashMap<usize, Function>,
    /// Those that somebody has given a code.
    given_code: FxHashSet<usize>,
    /// Those whose names are printed.
    named: Vec<Named>,
    /// Functions that were changed since the last look, as they were.
    functions: Vec<Function>,
}

#[cfg_attr(Py_3_12, allow(dead_code))]
struct Dict {
    object: Py<PyAny>,
    version: u64,
    kind: Kind,
}

/// How often a dict is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Before each call: modules, registries, and the classes that most calls come to.
    Frequent,
    Seldom,
}

/// A function before it was changed: itself, its code, its defaults, its names.
pub struct Function(pub [Py<PyAny>; 6]);

/// A function whose names are printed.
struct Named {
    /// As it was.
    was: Function,
    /// The addresses of the names that it had last.
    last: [usize; 2],
}

static WATCHED: Shared<Option<Watched>> = Shared::new(None);
/// There is something to look at.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// Grows when something was noticed.
static NOTICED: AtomicU64 = AtomicU64::new(0);

fn with<R: Send>(body: impl FnOnce(&mut Watched) -> R + Send) -> R {
    WATCHED.peek(|watched| body(watched.get_or_insert_default()))
}

fn noticed() {
    CHANGED.store(true, Ordering::Relaxed);
    NOTICED.fetch_add(1, Ordering::Relaxed);
    super::super::epoch::note_change();
}

/// The dict of a module, of a class's attributes, or the dict itself.
fn dict_of<'py>(owner: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a live object, whose kind is checked; a class has a dict for as long as it lives.
    unsafe {
        let pointer = owner.as_ptr();
        let dict = if ffi::PyModule_Check(pointer) != 0 {
            ffi::PyModule_GetDict(pointer)
        } else if ffi::PyType_Check(pointer) != 0 {
            (*pointer.cast::<ffi::PyTypeObject>()).tp_dict
        } else if ffi::PyDict_Check(pointer) != 0 {
            pointer
        } else {
            return owner.getattr(pyo3::intern!(owner.py(), "__dict__"));
        };
        if dict.is_null() || ffi::PyDict_Check(dict) == 0 {
            return Err(pyo3::exceptions::PyTypeError::new_err("only dicts can be watched"));
        }
        Ok(Bound::from_borrowed_ptr(owner.py(), dict))
    }
}

/// Watches the dicts of modules, classes and registries from now on. They are numbered in order; the
/// flag says which classes are looked at as often as modules.
///
/// # Errors
/// One has no dict, or `CPython` cannot watch it.
pub fn watch(owners: &[(Bound<'_, PyAny>, bool)]) -> PyResult<()> {
    let Some((first, _)) = owners.first() else { return Ok(()) };
    start(first.py())?;
    for (owner, often) in owners {
        let dict = dict_of(owner)?;
        notify(&dict)?;
        let version = version(dict.as_ptr());
        let address = dict.as_ptr() as usize;
        // SAFETY: a live object.
        let is_frequent = unsafe {
            ffi::PyModule_Check(owner.as_ptr()) != 0 || ffi::PyDict_Check(owner.as_ptr()) != 0
        };
        let kind = if is_frequent || *often { Kind::Frequent } else { Kind::Seldom };
        let new = Dict { object: dict.unbind(), version, kind };
        with(|watched| {
            let number = u32::try_from(watched.dicts.len()).unwrap_or(u32::MAX);
            watched.by_address.insert(address, number);
            watched.dicts.push(new);
        });
    }
    Ok(())
}

/// Grows whenever something was noticed.
pub fn count() -> u64 {
    NOTICED.load(Ordering::Relaxed)
}

/// What may have changed since the last time: numbers of dicts, and functions.
pub fn take() -> Option<(Vec<u32>, Vec<Function>)> {
    if !CHANGED.swap(false, Ordering::Relaxed) {
        return None;
    }
    Some(with(|watched| {
        let dicts = std::mem::take(&mut watched.changed).into_iter().collect();
        (dicts, std::mem::take(&mut watched.functions))
    }))
}

#[cfg(Py_3_12)]
fn note_dict(watched: &mut Watched, dict: usize) -> bool {
    let Some(&number) = watched.by_address.get(&dict) else { return false };
    watched.changed.insert(number);
    true
}

/// A function is about to be changed. It counts where its globals are watched; what jaxide itself
/// changes does not.
unsafe fn note_function(py: Python<'_>, function: *mut ffi::PyObject, new: *mut ffi::PyObject) {
    if is_own_code(new as usize) {
        return;
    }
    let (address, quiet, new) = (function as usize, Quiet::of(py), new as usize);
    // SAFETY: a live function, as promised.
    let is_ours = is_own_code(unsafe { parts_of(function)[1] } as usize);
    let found = with(move |watched| {
        let Some(Function(was)) = watched.own.get(&address) else { return false };
        if is_ours && was[1].as_ptr() as usize == new {
            // jaxide puts back what was there.
            return false;
        }
        let was = Function(was.each_ref().map(|part| quiet.own(part)));
        watched.functions.push(was);
        true
    });
    if found {
        noticed();
    }
}

/// Notes that a function is given another code.
fn note_code_of(function: usize) {
    with(|watched| {
        if watched.own.contains_key(&function) {
            watched.given_code.insert(function);
        }
    });
}

/// Whether somebody has given a function another code, even if he took it back.
pub fn was_given_code(function: usize) -> bool {
    with(|watched| watched.given_code.contains(&function))
}

/// A function and its parts, borrowed.
unsafe fn parts_of(function: *mut ffi::PyObject) -> [*mut ffi::PyObject; 6] {
    let object: *mut ffi::PyFunctionObject = function.cast();
    // SAFETY: a live function, as promised.
    unsafe {
        [
            function,
            (*object).func_code,
            (*object).func_defaults,
            (*object).func_kwdefaults,
            (*object).func_name,
            (*object).func_qualname,
        ]
    }
}

fn owned(py: Python<'_>, parts: [*mut ffi::PyObject; 6]) -> Function {
    // SAFETY: parts of a live function; those that are not there are None.
    Function(parts.map(|part| unsafe {
        Bound::from_borrowed_ptr_or_opt(py, part)
            .unwrap_or_else(|| py.None().into_bound(py))
            .unbind()
    }))
}

/// Notes functions of jax; of some the names count as well.
pub fn note_functions(functions: &[Bound<'_, PyAny>], named: bool) {
    for function in functions {
        // SAFETY: a live object, whose exact type is checked.
        let parts = unsafe {
            if ffi::Py_TYPE(function.as_ptr()) != &raw mut ffi::PyFunction_Type {
                continue;
            }
            parts_of(function.as_ptr())
        };
        let was = owned(function.py(), parts);
        let address = function.as_ptr() as usize;
        let last = [parts[4] as usize, parts[5] as usize];
        let again = owned(function.py(), parts);
        let late = with(|watched| {
            if named {
                watched.named.push(Named { was, last });
            }
            match watched.own.entry(address) {
                Entry::Vacant(unknown) => {
                    unknown.insert(again);
                    None
                }
                Entry::Occupied(_) => Some(again),
            }
        });
        drop(late);
    }
}

/// Compares the names of functions.
pub fn poll_names(py: Python<'_>) {
    let quiet = Quiet::of(py);
    let found = with(move |watched| {
        let before = watched.functions.len();
        for Named { was: Function(was), last } in &mut watched.named {
            // SAFETY: a function that is kept alive.
            let [.., name, qualname] = unsafe { parts_of(was[0].as_ptr()) };
            let now = [name as usize, qualname as usize];
            if now != *last {
                *last = now;
                watched.functions.push(Function(was.each_ref().map(|part| quiet.own(part))));
            }
        }
        watched.functions.len() > before
    });
    if found {
        noticed();
    }
}

/// Addresses of codes that jaxide gives to functions of jax.
static OURS: Shared<Option<FxHashSet<usize>>> = Shared::new(None);

fn is_own_code(code: usize) -> bool {
    let noted = OURS.peek(|ours| ours.as_ref().is_some_and(|ours| ours.contains(&code)));
    noted || is_trampoline(code)
}

/// Whether a code is one that jaxide gives to a function of jax.
#[pyfunction]
pub fn is_noted_code(code: &Bound<'_, PyAny>) -> bool {
    is_own_code(code.as_ptr() as usize)
}

/// Notes a code that jaxide will give to a function of jax.
#[pyfunction]
pub fn note_code(code: &Bound<'_, PyAny>) {
    let address = code.as_ptr() as usize;
    if OURS.peek(|ours| ours.get_or_insert_default().insert(address)) {
        // Its address is known from now on, so it must stay its own.
        std::mem::forget(code.clone().unbind());
    }
}

#[cfg(not(Py_3_12))]
mod noticing {
    use std::cell::Cell;
    use std::ffi::{CStr, c_char, c_int, c_void};

    use super::{
        AtomicBool, Bound, Kind, Ordering, PyAny, PyErr, PyResult, Python, ffi, note_code_of,
        note_function, noticed, with,
    };

    /// The version of a dict, which is another after each change.
    pub fn version(dict: *mut ffi::PyObject) -> u64 {
        // SAFETY: a dict, which has a version in this CPython.
        unsafe { (*dict.cast::<ffi::PyDictObject>()).ma_version_tag }
    }

    #[allow(clippy::unnecessary_wraps)] // as where CPython is told
    pub fn notify(_dict: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(())
    }

    /// Compares the versions of dicts: of those that are often compared, or of all.
    pub fn poll(which: Option<Kind>) {
        let found = with(|watched| {
            let mut found = false;
            for (number, dict) in watched.dicts.iter_mut().enumerate() {
                if which.is_some_and(|which| which != dict.kind) {
                    continue;
                }
                let now = version(dict.object.as_ptr());
                if now != dict.version {
                    dict.version = now;
                    watched.changed.insert(u32::try_from(number).unwrap_or(u32::MAX));
                    found = true;
                }
            }
            found
        });
        if found {
            noticed();
        }
    }

    thread_local! {
        /// The version that a new dict had when dicts were last compared.
        static LAST: Cell<u64> = const { Cell::new(0) };
    }

    /// Compares the versions of the dicts of modules and registries, if any dict of the process has
    /// changed since the last time: each change, and each new dict, takes the next number.
    #[inline]
    pub fn poll_soon() {
        // SAFETY: with the interpreter attached; the dict is ours, and is gone at once.
        let next = unsafe {
            let probe = ffi::PyDict_New();
            if probe.is_null() {
                ffi::PyErr_Clear();
                return;
            }
            let next = version(probe);
            ffi::Py_DECREF(probe);
            next
        };
        if LAST.replace(next) + 1 != next {
            poll(Some(Kind::Frequent));
        }
    }

    type Hook = unsafe extern "C" fn(*const c_char, *mut ffi::PyObject, *mut c_void) -> c_int;

    // CPython's, which pyo3 does not declare.
    unsafe extern "C" {
        fn PySys_AddAuditHook(hook: Hook, data: *mut c_void) -> c_int;
    }

    /// An audit event: an assignment to what a function does raises one, before it is done.
    unsafe extern "C" fn note_event(
        event: *const c_char,
        args: *mut ffi::PyObject,
        _data: *mut c_void,
    ) -> c_int {
        // SAFETY: CPython passes a text, and a tuple of the arguments of the event.
        unsafe {
            if *event != b'o'.cast_signed() || CStr::from_ptr(event) != c"object.__setattr__" {
                return 0;
            }
            let is_triple = !args.is_null()
                && ffi::PyTuple_CheckExact(args) != 0
                && ffi::PyTuple_GET_SIZE(args) == 3;
            if is_triple {
                let function = ffi::PyTuple_GET_ITEM(args, 0);
                if ffi::Py_TYPE(function) == &raw mut ffi::PyFunction_Type {
                    let new = ffi::PyTuple_GET_ITEM(args, 2);
                    let name = ffi::PyTuple_GET_ITEM(args, 1);
                    if ffi::PyUnicode_CompareWithASCIIString(name, c"__code__".as_ptr()) == 0 {
                        note_code_of(function as usize);
                    }
                    note_function(Python::assume_attached(), function, new);
                }
            }
        }
        0
    }

    static STARTED: AtomicBool = AtomicBool::new(false);

    pub fn start(py: Python<'_>) -> PyResult<()> {
        if STARTED.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: with the interpreter attached; the function does what its type says.
        match unsafe { PySys_AddAuditHook(note_event, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

#[cfg(Py_3_12)]
mod noticing {
    use std::ffi::c_int;
    use std::sync::atomic::AtomicI32;

    use super::{
        Bound, Kind, Ordering, PyAny, PyErr, PyResult, Python, ffi, note_code_of, note_dict,
        note_function, noticed, with,
    };

    type DictCallback = unsafe extern "C" fn(
        c_int,
        *mut ffi::PyObject,
        *mut ffi::PyObject,
        *mut ffi::PyObject,
    ) -> c_int;
    type FunctionCallback =
        unsafe extern "C" fn(c_int, *mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

    // CPython's, which pyo3 does not declare.
    unsafe extern "C" {
        fn PyDict_AddWatcher(callback: DictCallback) -> c_int;
        fn PyDict_Watch(watcher: c_int, dict: *mut ffi::PyObject) -> c_int;
        fn PyFunction_AddWatcher(callback: FunctionCallback) -> c_int;
    }

    /// Of `PyFunction_WatchEvent`: created, destroyed.
    const OF_LIFE: [c_int; 2] = [0, 1];
    /// The code is exchanged.
    const OF_CODE: c_int = 2;
    static WATCHER: AtomicI32 = AtomicI32::new(-1);

    pub fn version(_dict: *mut ffi::PyObject) -> u64 {
        0
    }

    /// The interpreter says what changes.
    pub fn poll(_which: Option<Kind>) {}

    #[inline]
    pub fn poll_soon() {}

    unsafe extern "C" fn dict_changes(
        _event: c_int,
        dict: *mut ffi::PyObject,
        _key: *mut ffi::PyObject,
        _value: *mut ffi::PyObject,
    ) -> c_int {
        let dict = dict as usize;
        if with(|watched| note_dict(watched, dict)) {
            noticed();
        }
        0
    }

    unsafe extern "C" fn function_changes(
        event: c_int,
        function: *mut ffi::PyObject,
        new: *mut ffi::PyObject,
    ) -> c_int {
        if event == OF_CODE {
            note_code_of(function as usize);
        }
        if !OF_LIFE.contains(&event) {
            // SAFETY: CPython passes a live function, with the interpreter attached.
            unsafe { note_function(Python::assume_attached(), function, new) };
        }
        0
    }

    pub fn notify(dict: &Bound<'_, PyAny>) -> PyResult<()> {
        let watcher = WATCHER.load(Ordering::Relaxed);
        // SAFETY: a live dict, and a watcher of ours.
        match unsafe { PyDict_Watch(watcher, dict.as_ptr()) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(dict.py())),
        }
    }

    pub fn start(py: Python<'_>) -> PyResult<()> {
        if WATCHER.load(Ordering::Relaxed) >= 0 {
            return Ok(());
        }
        // SAFETY: both functions do what their types say, and live as long as the process.
        let (dicts, functions) =
            unsafe { (PyDict_AddWatcher(dict_changes), PyFunction_AddWatcher(function_changes)) };
        if dicts < 0 || functions < 0 {
            return Err(PyErr::fetch(py));
        }
        WATCHER.store(dicts, Ordering::Relaxed);
        Ok(())
    }
}

use noticing::{notify, start, version};
pub use noticing::{poll, poll_soon};
