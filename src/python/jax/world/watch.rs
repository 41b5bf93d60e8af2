//! Noticing that a dict of jax, or a function of jax, may have changed.
//!
//! From CPython 3.12 on the interpreter says so (`PyDict_Watch`, `PyFunction_AddWatcher`). Before, each
//! dict has a version. The versions of modules, registries and custom rules are compared before each
//! replay, those of primitives when a trace begins, its surroundings change, or what was learnt is
//! proven (`validity.rs`). Attributes of classes and of functions are assigned by functions of CPython
//! that are ours (`assigned.rs`); in all versions those of names.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyString};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

use crate::python::cpython::immortals::Immortals;
use crate::python::cpython::shared::{Quiet, Shared};

/// What is watched, and what was noticed.
#[derive(Default)]
struct Watched {
    /// By kind. Never freed: their addresses are known.
    dicts: [Vec<Dict>; 3],
    /// The addresses of those that are looked at, by kind, in order: neighbours cost less.
    #[cfg(not(Py_3_12))]
    polled: [Vec<usize>; 2],
    by_address: FxHashMap<usize, u32>,
    /// Numbers of dicts that may have changed since the last look.
    changed: FxHashSet<u32>,
    /// The functions of jax, by address, with their code. They are kept alive.
    own: FxHashMap<usize, [Py<PyAny>; 2]>,
    /// Functions that were changed since the last look, by address, as they were.
    functions: FxHashMap<usize, Function>,
    /// Defaults of keywords that functions of jax have handed out, by the numbers of their dicts.
    handed_out: FxHashMap<u32, HandedOut>,
}

/// Defaults of keywords, which whoever has them may change where they are.
struct HandedOut {
    function: Py<PyAny>,
    /// What they were.
    was: Py<PyAny>,
}

#[cfg_attr(Py_3_12, allow(dead_code))]
struct Dict {
    number: u32,
    object: Py<PyAny>,
    version: u64,
}

/// How often a dict is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HowOften {
    /// Before each replay: modules, registries, and instances but for primitives.
    Frequent,
    /// When a trace begins or what was learnt is used first: primitives, and defaults of functions that
    /// were handed out.
    Seldom,
    /// Never: whoever changes a class tells.
    Told,
}

/// A function before it was changed: itself, its code, its defaults, its names.
pub struct Function([Py<PyAny>; 6]);

impl Function {
    /// The function, and what it had.
    pub fn parts(&self, py: Python<'_>) -> [Py<PyAny>; 6] {
        self.0.each_ref().map(|part| part.clone_ref(py))
    }

    /// Whether the function certainly is as it was: what it was given is what it had. Defaults of keywords
    /// may have been changed in place.
    pub fn is_as_it_was(&self, py: Python<'_>) -> bool {
        // SAFETY: a live function.
        let now = owned(py, unsafe { parts_of(self.0[0].as_ptr()) });
        let [_, code, defaults, by_keyword, names @ ..] = &self.0;
        let [_, now_code, now_defaults, now_by_keyword, now_names @ ..] = &now.0;
        let is_same_name = |(one, other): (&Py<PyAny>, &Py<PyAny>)| {
            let names = [one, other].map(|name| name.bind(py).cast_exact::<PyString>());
            matches!(names, [Ok(one), Ok(other)] if one.to_string_lossy() == other.to_string_lossy())
        };
        (now_code.is(code) || is_code_for(now_code.as_ptr() as usize, self.address()))
            && now_defaults.is(defaults)
            && by_keyword.is_none(py)
            && now_by_keyword.is_none(py)
            && names.iter().zip(now_names).all(is_same_name)
    }

    fn address(&self) -> usize {
        self.0[0].as_ptr() as usize
    }
}

static WATCHED: Shared<Option<Watched>> = Shared::new(None);
/// There is something to look at.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// How often something was noticed.
static TIMES: AtomicU64 = AtomicU64::new(0);

fn with<R: Send>(body: impl FnOnce(&mut Watched) -> R + Send) -> R {
    WATCHED.peek(|watched| body(watched.get_or_insert_default()))
}

/// How often something was noticed so far: what has changed and was taken back counts as well.
pub fn times() -> u64 {
    TIMES.load(Ordering::Relaxed)
}

fn noticed() {
    TIMES.fetch_add(1, Ordering::Relaxed);
    CHANGED.store(true, Ordering::Relaxed);
    crate::python::jax::watch_config::note_change();
}

/// The dict of a module, of a class or of an instance, or the dict itself.
///
/// # Errors
/// There is none.
pub fn dict_of<'py>(owner: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    // SAFETY: a live object, whose kind is checked; a class has a dict for as long as it lives.
    let dict = unsafe {
        let pointer = owner.as_ptr();
        let dict = if ffi::PyModule_Check(pointer) != 0 {
            ffi::PyModule_GetDict(pointer)
        } else if ffi::PyType_Check(pointer) != 0 {
            (*pointer.cast::<ffi::PyTypeObject>()).tp_dict
        } else if ffi::PyDict_Check(pointer) != 0 {
            pointer
        } else {
            return Ok(owner.getattr(pyo3::intern!(owner.py(), "__dict__"))?.cast_into()?);
        };
        Bound::from_borrowed_ptr_or_opt(owner.py(), dict)
    };
    match dict {
        Some(dict) => Ok(dict.cast_into()?),
        None => Err(PyTypeError::new_err("what has no dict cannot be watched")),
    }
}

/// Has CPython say what changes.
///
/// # Errors
/// It is not what it was when this was written.
pub fn start(py: Python<'_>) -> PyResult<()> {
    noticing::start(py)?;
    crate::python::jax::world::assigned::start(py)
}

/// Watches the dict of a module, a class or an instance, or a dict, from now on. Its number; what is
/// watched already keeps its own.
///
/// # Errors
/// It has no dict, or CPython cannot watch it.
pub fn watch(kind: HowOften, owner: &Bound<'_, PyAny>) -> PyResult<u32> {
    let dict = dict_of(owner)?;
    detach(owner, &dict)?;
    notify(&dict)?;
    let version = version(dict.as_ptr());
    let address = dict.as_ptr() as usize;
    let object = dict.into_any().unbind();
    let (number, late) = with(move |watched| {
        let next = u32::try_from(watched.by_address.len()).unwrap_or(u32::MAX);
        let Entry::Vacant(unknown) = watched.by_address.entry(address) else {
            return (watched.by_address[&address], Some(object));
        };
        unknown.insert(next);
        #[cfg(not(Py_3_12))]
        if let Some(polled) = watched.polled.get_mut(kind as usize) {
            polled.insert(polled.partition_point(|&other| other < address), address);
        }
        watched.dicts[kind as usize].push(Dict { number: next, object, version });
        (next, None)
    });
    drop(late);
    Ok(number)
}

/// Puts a value in its place if there is none, else gives it back: the caller drops it.
fn keep_first<T>(known: &mut FxHashMap<usize, T>, address: usize, value: T) -> Option<T> {
    match known.entry(address) {
        Entry::Vacant(unknown) => {
            unknown.insert(value);
            None
        }
        Entry::Occupied(_) => Some(value),
    }
}

/// Whether something may have changed since the last time.
#[inline]
pub fn has_changed() -> bool {
    CHANGED.load(Ordering::Relaxed)
}

/// What may have changed since the last time: numbers of dicts, and functions.
pub fn take() -> Option<(Vec<u32>, Vec<Function>)> {
    if !CHANGED.swap(false, Ordering::Relaxed) {
        return None;
    }
    Some(with(|watched| {
        let dicts = std::mem::take(&mut watched.changed).into_iter().collect();
        (dicts, std::mem::take(&mut watched.functions).into_values().collect())
    }))
}

/// A dict may have changed.
pub fn note_changed(dict: u32) {
    with(|watched| watched.changed.insert(dict));
    noticed();
}

/// Gives back what was taken. A function that has changed once more is as it was first.
pub fn put_back(dicts: Vec<u32>, functions: Vec<Function>) {
    let late: Vec<_> = with(move |watched| {
        watched.changed.extend(dicts);
        let back = functions.into_iter().map(|function| (function.address(), function));
        back.filter_map(|(address, function)| watched.functions.insert(address, function)).collect()
    });
    drop(late);
    noticed();
}

fn note_dict(watched: &mut Watched, dict: usize) -> bool {
    let Some(&number) = watched.by_address.get(&dict) else { return false };
    watched.changed.insert(number);
    true
}

/// A class has been changed.
pub fn note_class(class: *mut ffi::PyObject) {
    // SAFETY: a live class.
    let dict = unsafe { (*class.cast::<ffi::PyTypeObject>()).tp_dict } as usize;
    if with(|watched| note_dict(watched, dict)) {
        noticed();
    }
}

/// Part of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Code,
    Other,
}

/// A function is about to be changed. It counts where its globals are watched; what jaxide itself
/// changes does not.
///
/// # Safety
/// `function` is a live function.
pub unsafe fn note_function(
    py: Python<'_>,
    function: *mut ffi::PyObject,
    changed: Changed,
    new: *mut ffi::PyObject,
) {
    if changed == Changed::Code && INTERPOSED.has(function as usize) {
        // SAFETY: as promised.
        GIVEN.add(&unsafe { Bound::from_borrowed_ptr(py, function) });
        CODE_WAS_GIVEN.store(true, Ordering::Relaxed);
    }
    let (address, quiet) = (function as usize, Quiet::of(py));
    let code = with(|watched| watched.own.get(&address).map(|[_, code]| quiet.own(code)));
    let Some(code) = code else { return };
    // SAFETY: a live function, as promised.
    let parts = unsafe { parts_of(function) };
    let is_as_ever =
        |other: *mut ffi::PyObject| other == code.as_ptr() || is_code_for(other as usize, address);
    if is_as_ever(new) && is_as_ever(parts[1]) {
        // jaxide interposes it, or restores it.
        return;
    }
    // What it has was there from the start, but for the code: each change comes here first.
    let mut was = owned(py, parts);
    let defaults = first_defaults(&was.0[3].bind(py).clone());
    drop([(1, code), (3, defaults)].map(|(at, part)| std::mem::replace(&mut was.0[at], part)));
    let late = with(|watched| keep_first(&mut watched.functions, address, was));
    drop(late);
    noticed();
}

/// Functions of jax that are interposed.
static INTERPOSED: Immortals = Immortals::new();
/// Those that were given a code through the interpreter: another one, or one that they have at times.
static GIVEN: Immortals = Immortals::new();
static CODE_WAS_GIVEN: AtomicBool = AtomicBool::new(false);

/// Notes a function that is interposed.
pub fn note_interposed(function: &Bound<'_, PyAny>) {
    INTERPOSED.add(function);
}

/// Whether somebody has given an interposed function a code, even if he took it back.
pub fn was_given_code(function: usize) -> bool {
    CODE_WAS_GIVEN.load(Ordering::Relaxed) && GIVEN.has(function)
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

/// A function hands out its defaults of keywords. Those of a function of jax are watched from now on.
///
/// # Safety
/// Both are live objects.
pub unsafe fn note_handed_out(
    py: Python<'_>,
    function: *mut ffi::PyObject,
    defaults: *mut ffi::PyObject,
) {
    let (address, dict) = (function as usize, defaults as usize);
    let is_new = |watched: &mut Watched| {
        watched.own.contains_key(&address) && !watched.by_address.contains_key(&dict)
    };
    if !with(is_new) {
        return;
    }
    // SAFETY: as promised.
    let (function, defaults) =
        unsafe { (Bound::from_borrowed_ptr(py, function), Bound::from_borrowed_ptr(py, defaults)) };
    let Ok(dict) = defaults.cast::<PyDict>() else { return };
    let watched = dict.copy().and_then(|was| Ok((was, watch(HowOften::Seldom, &defaults)?)));
    match watched {
        Ok((was, number)) => {
            let (function, was) = (function.unbind(), was.into_any().unbind());
            let late =
                with(|watched| watched.handed_out.insert(number, HandedOut { function, was }));
            drop(late);
        }
        // Without memory nobody knows what becomes of them.
        Err(error) => error.write_unraisable(py, Some(&function)),
    }
}

/// The function whose defaults of keywords are in the dict with this number, as it was.
pub fn whose_defaults(py: Python<'_>, number: u32) -> Option<Function> {
    let quiet = Quiet::of(py);
    let (function, code, defaults) = with(|watched| {
        let HandedOut { function, was } = watched.handed_out.get(&number)?;
        let [_, code] = watched.own.get(&(function.as_ptr() as usize))?;
        Some((quiet.own(function), quiet.own(code), quiet.own(was)))
    })?;
    // SAFETY: a live function.
    let mut was = owned(py, unsafe { parts_of(function.as_ptr()) });
    drop([(1, code), (3, defaults)].map(|(at, part)| std::mem::replace(&mut was.0[at], part)));
    Some(was)
}

/// A copy of defaults of keywords, as they were before they were handed out.
fn first_defaults(defaults: &Bound<'_, PyAny>) -> Py<PyAny> {
    let (dict, quiet) = (defaults.as_ptr() as usize, Quiet::of(defaults.py()));
    let first = with(|watched| {
        let number = watched.by_address.get(&dict)?;
        watched.handed_out.get(number).map(|handed_out| quiet.own(&handed_out.was))
    });
    let copy = || defaults.cast::<PyDict>().ok()?.copy().ok().map(Bound::into_any);
    first.unwrap_or_else(|| copy().unwrap_or_else(|| defaults.clone()).unbind())
}

/// Notes a function of jax.
pub fn note_function_of_jax(function: &Bound<'_, PyFunction>) {
    let py = function.py();
    // SAFETY: parts of a live function.
    let was = unsafe {
        let [function, code, ..] = parts_of(function.as_ptr());
        [function, code].map(|part| Bound::from_borrowed_ptr(py, part).unbind())
    };
    let address = function.as_ptr() as usize;
    let late = with(|watched| keep_first(&mut watched.own, address, was));
    drop(late);
}

/// Notes a function that is not jax's, whose code counts: `jaxide._native.world` is told when that changes.
#[pyfunction]
pub fn watch_function(function: &Bound<'_, PyFunction>) {
    note_function_of_jax(function);
}

/// The defaults of keywords of a function, for who does not change them.
#[pyfunction]
pub fn keyword_defaults<'py>(function: &Bound<'py, PyFunction>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: parts of a live function, which may be missing.
    unsafe {
        let [_, _, _, defaults, ..] = parts_of(function.as_ptr());
        Bound::from_borrowed_ptr_or_opt(function.py(), defaults)
    }
}

/// Codes that jaxide gives to functions of jax, by address, with the address of the function that each
/// is for. Both stay alive.
static OURS: Shared<Option<FxHashMap<usize, usize>>> = Shared::new(None);

fn is_code_for(code: usize, function: usize) -> bool {
    OURS.peek(|ours| ours.as_ref().and_then(|ours| ours.get(&code)).copied()) == Some(function)
}

/// Whether a code is one that jaxide gives to this function of jax.
#[pyfunction]
pub fn is_noted_code(function: &Bound<'_, PyFunction>, code: &Bound<'_, PyAny>) -> bool {
    is_code_for(code.as_ptr() as usize, function.as_ptr() as usize)
}

/// Notes a code that jaxide will give to a function of jax.
#[pyfunction]
pub fn note_code(function: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) {
    let (at, of) = (code.as_ptr() as usize, function.as_ptr() as usize);
    if OURS.peek(|ours| ours.get_or_insert_default().insert(at, of)).is_none() {
        std::mem::forget([function.clone().unbind(), code.clone().unbind()]);
    }
}

#[cfg(not(Py_3_12))]
mod noticing {
    use std::sync::atomic::AtomicU64;

    use super::{Bound, HowOften, Ordering, PyAny, PyDict, PyResult, Python, ffi, noticed, with};

    /// Whether changes are noticed when they happen.
    pub const IS_TOLD: bool = false;

    /// The version of a dict, which is another after each change.
    pub fn version(dict: *mut ffi::PyObject) -> u64 {
        // SAFETY: a dict, which has a version in this CPython.
        unsafe { (*dict.cast::<ffi::PyDictObject>()).ma_version_tag }
    }

    #[allow(clippy::unnecessary_wraps)] // as where CPython tells
    pub fn detach(_owner: &Bound<'_, PyAny>, _dict: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }

    #[allow(clippy::unnecessary_wraps)] // as where CPython tells
    pub fn notify(_dict: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }

    /// The version that a new dict had when dicts were last looked at, by kind.
    static LAST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

    /// Looks for changes in all dicts that are looked at.
    pub fn poll() {
        if let Some(next) = next_version() {
            look_since(HowOften::Frequent, next);
            look_since(HowOften::Seldom, next);
        }
    }

    /// Looks for changes in the dicts that are looked at before each replay.
    #[inline]
    pub fn poll_soon() {
        if let Some(next) = next_version() {
            look_since(HowOften::Frequent, next);
        }
    }

    /// The version that a new dict has: each change of a dict, and each new dict, takes the next number.
    fn next_version() -> Option<u64> {
        // SAFETY: with the interpreter attached; the dict is ours, and is gone at once.
        unsafe {
            let probe = ffi::PyDict_New();
            if probe.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            let next = version(probe);
            ffi::Py_DECREF(probe);
            Some(next)
        }
    }

    /// Looks for changes in the dicts of a kind, if any dict of the process has changed since the last
    /// time. Who has changed since has a greater version than a new dict had then.
    #[inline]
    fn look_since(kind: HowOften, next: u64) {
        let last = &LAST[kind as usize];
        // Attached, so nobody is in between; to swap is slower.
        let before = last.load(Ordering::Relaxed);
        last.store(next, Ordering::Relaxed);
        if before + 1 != next && some_changed_since(kind, before) {
            note_changes(kind);
        }
    }

    /// Whether one of the dicts of a kind has changed since a version was given.
    fn some_changed_since(kind: HowOften, before: u64) -> bool {
        let is_new = |dict: usize| version(dict as *mut ffi::PyObject) > before;
        with(|watched| {
            // Several in one step, which is faster, and from the last to the first: where addresses rise
            // the machine fetches what comes after each, and what it drops for that is missed later.
            let (steps, rest) = watched.polled[kind as usize].as_chunks::<8>();
            rest.iter().rev().any(|&dict| is_new(dict))
                || steps.iter().rev().any(|step| step.iter().rev().any(|&dict| is_new(dict)))
        })
    }

    /// Notes the dicts of a kind whose versions are others than they were.
    fn note_changes(kind: HowOften) {
        let found = with(|watched| {
            let mut found = false;
            for dict in &mut watched.dicts[kind as usize] {
                let now = version(dict.object.as_ptr());
                if now != dict.version {
                    dict.version = now;
                    watched.changed.insert(dict.number);
                    found = true;
                }
            }
            found
        });
        if found {
            noticed();
        }
    }

    #[allow(clippy::unnecessary_wraps)] // as where CPython tells
    pub fn start(_py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
}

#[cfg(Py_3_12)]
mod noticing {
    use std::ffi::c_int;
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicI32;

    use pyo3::intern;
    use pyo3::prelude::*;
    use pyo3::types::{PyModule, PyType};

    use super::{Changed, Ordering, PyDict, ffi, note_dict, note_function, noticed, with};

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
    /// Whether changes are noticed when they happen.
    pub const IS_TOLD: bool = true;

    pub fn version(_dict: *mut ffi::PyObject) -> u64 {
        0
    }

    /// The interpreter says what changes.
    pub fn poll() {}

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
        if OF_LIFE.contains(&event) {
            return 0;
        }
        let changed = if event == OF_CODE { Changed::Code } else { Changed::Other };
        // SAFETY: CPython passes a live function, with the interpreter attached.
        unsafe { note_function(Python::assume_attached(), function, changed, new) };
        0
    }

    /// Moves the values of an instance into its dict. CPython 3.13.0 does not tell of attributes whose
    /// values lie in the instance itself (python/cpython#125608).
    pub fn detach(owner: &Bound<'_, PyAny>, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        static IS_SILENT: OnceLock<bool> = OnceLock::new();
        let is_silent = IS_SILENT.get_or_init(|| {
            let version = owner.py().version_info();
            (version.major, version.minor, version.patch) == (3, 13, 0)
        });
        let is_instance = !owner.is(dict)
            && !owner.is_instance_of::<PyModule>()
            && !owner.is_instance_of::<PyType>();
        if !is_silent || !is_instance {
            return Ok(());
        }
        // Both ways have CPython make a table of the dict's own; the order of the attributes stays.
        if dict.is_empty() {
            dict.set_item(0, 0)?;
            return dict.del_item(0);
        }
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            dict.call_method0(intern!(owner.py(), "popitem"))?.extract()?;
        dict.set_item(name, value)
    }

    pub fn notify(dict: &Bound<'_, PyDict>) -> PyResult<()> {
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

pub use noticing::{IS_TOLD, poll, poll_soon};
use noticing::{detach, notify, version};
