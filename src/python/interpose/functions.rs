//! Functions, jits and other callables of jax that are interposed while a trace of ours may run.
//!
//! A function keeps its identity: its code object is changed for a trampoline with the same
//! parameters. Other callables are interposed through their type, whose `tp_call` is ours meanwhile. A
//! jit has a call pointer of its own, which CPython forgets with the flag of the type that says
//! so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyFunction, PyTuple, PyType};
use smallvec::SmallVec;

use crate::python::cache::call::{Site, call, call_of_user};
use crate::python::cache::key::stable::{is_stable, register_stable};
use crate::python::cache::store;
use crate::python::cache::warm::library;
use crate::python::cache::warm::lookup::{is_recording, note_unheard};
use crate::python::cache::warm::whole;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::{address, guarded_by_caller, string_of};
use crate::python::cpython::shared::{Once, Shared};
use crate::python::interpose::code_patch::{Code, PatchedFunction, keeps_versions};
use crate::python::interpose::stand_in::{Layout, Stand, new_stand_in};
use crate::python::jax::watch_warnings;
use crate::python::jax::world::is_own_module;
use crate::python::trace::session;

/// The functions that are interposed. Each lives as long as the process.
static FUNCTIONS: Shared<Option<Arc<Vec<PatchedFunction>>>> = Shared::new(None);
/// They have the code of their trampolines, or are about to.
static ARE_ON: AtomicBool = AtomicBool::new(false);

fn functions() -> Arc<Vec<PatchedFunction>> {
    FUNCTIONS.peek(|functions| functions.clone()).unwrap_or_default()
}

/// Makes a stand-in for a function of jax. `copy` is the function with the code it has now;
/// `make_code(stand_in)` returns the code of a trampoline that calls the stand-in; `types_only` says
/// that it asks traced values for nothing else.
///
/// Raises:
///     `TypeError`: the code does not fit the function.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // the description of a function's parameters
pub fn interpose_function(
    name: &str,
    function: &Bound<'_, PyAny>,
    copy: &Bound<'_, PyAny>,
    make_code: &Bound<'_, PyAny>,
    positional: usize,
    varargs: bool,
    keywords: Bound<'_, PyTuple>,
    varkeywords: bool,
    types_only: bool,
) -> PyResult<()> {
    let py = function.py();
    let site = Site { types_only, ..Site::pure(name).lasting("function", name) };
    let num_keywords = keywords.len();
    let keywords = keywords.unbind();
    let layout = Some(Layout { positional, varargs, keywords, num_keywords, varkeywords });
    let stand_in = new_stand_in(py, Stand { site, original: copy.clone().unbind(), layout })?;
    let trampoline = make_code.call1((stand_in,))?;
    let patched = PatchedFunction::new(function, &trampoline)?;
    register_stable(function);
    FUNCTIONS.peek(|functions| Arc::make_mut(functions.get_or_insert_default()).push(patched));
    while ARE_ON.load(Ordering::Relaxed) {
        patched.put(py, Code::Trampoline, keeps_versions(py))?;
        if ARE_ON.load(Ordering::Relaxed) {
            return Ok(());
        }
        patched.put(py, Code::Stock, keeps_versions(py))?;
    }
    Ok(())
}

/// Lets an object of jax that lives as long as the process be an argument of cached calls.
#[pyfunction]
pub fn trust_callable(callable: &Bound<'_, PyAny>) {
    register_stable(callable);
}

/// A stand-in for a method of jax's tracer.
pub fn method<'py>(name: &str, method: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let site = Site::pure(name).lasting("method", name);
    let stand = Stand { site, original: method.clone().unbind(), layout: None };
    new_stand_in(method.py(), stand)
}

/// How many functions are interposed while a trace of ours may run.
#[pyfunction]
pub fn interposed_functions(py: Python<'_>) -> Vec<Py<PyAny>> {
    functions().iter().map(|patched| patched.function(py).unbind()).collect()
}

/// Jits by address, with a weak reference that says when one is gone.
static JITS: AddressCache<Jit> = AddressCache::new();

struct Jit {
    site: Arc<Site>,
    _weakref: Py<PyAny>,
}

struct JitType {
    class: *mut ffi::PyTypeObject,
    call: ffi::ternaryfunc,
}

// SAFETY: a type that is never freed, and a function.
unsafe impl Send for JitType {}
// SAFETY: as above.
unsafe impl Sync for JitType {}

static JIT_TYPE: Once<JitType> = Once::new();

/// Notes the type of what `jax.jit` returns.
///
/// # Errors
/// It is not called through a pointer of its own.
pub fn set_jit_type(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    // SAFETY: a live type.
    let stock = unsafe { (*class.as_type_ptr()).tp_call };
    let Some(call) = stock else {
        return Err(PyTypeError::new_err("the type of jax.jit's result cannot be called"));
    };
    let kept = class.clone().unbind();
    let class = class.as_type_ptr();
    std::mem::forget(kept);
    let _ = JIT_TYPE.set(py, JitType { class, call });
    Ok(())
}

/// A class of jax whose instances are callables.
struct CalledType {
    class: *mut ffi::PyTypeObject,
    call: ffi::ternaryfunc,
    site: Site,
}

// SAFETY: a type that is never freed, and a function.
unsafe impl Send for CalledType {}
// SAFETY: as above.
unsafe impl Sync for CalledType {}

static CALLED_TYPES: Mutex<Vec<&'static CalledType>> = Mutex::new(Vec::new());

fn called_types() -> MutexGuard<'static, Vec<&'static CalledType>> {
    CALLED_TYPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Interposes the calls of the instances of a class made in Python, which lives as long as the process.
///
/// Raises:
///     `TypeError`: its instances cannot be called.
#[pyfunction]
pub fn interpose_instances(name: &str, class: &Bound<'_, PyType>) -> PyResult<()> {
    // SAFETY: a live type.
    let Some(call) = (unsafe { (*class.as_type_ptr()).tp_call }) else {
        let class = string_of(&class.repr()?);
        return Err(PyTypeError::new_err(format!("instances of {class} cannot be called")));
    };
    std::mem::forget(class.clone().unbind());
    let class = class.as_type_ptr();
    let mut all = called_types();
    if !all.iter().any(|known| known.class == class) {
        let site = Site::pure(name).lasting("instance", name);
        all.push(Box::leak(Box::new(CalledType { class, call, site })));
    }
    Ok(())
}

/// `tp_call` of the classes of `interpose_instances`.
unsafe extern "C" fn call_instance(
    slf: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython passes a tuple, and a dict or null, with the interpreter attached.
    unsafe {
        guarded_by_caller(std::ptr::null_mut(), |py| {
            let class = ffi::Py_TYPE(slf);
            let of = |known: &&'static CalledType| ffi::PyType_IsSubtype(class, known.class) != 0;
            let known = called_types().iter().copied().find(of);
            let Some(called) = known else {
                return Err(PyTypeError::new_err("jaxide: a call of an unknown class"));
            };
            let stock = || Bound::from_owned_ptr_or_err(py, (called.call)(slf, args, kwargs));
            let given = Given::of(py, args, kwargs, Some(slf))?;
            call(py, &called.site, &given.args, given.names(), stock).map(Bound::into_ptr)
        })
    }
}

/// Arguments as a vectorcall has them.
struct Given<'py> {
    args: SmallVec<[*mut ffi::PyObject; 8]>,
    names: Option<Bound<'py, PyTuple>>,
}

impl<'py> Given<'py> {
    /// The arguments of a call that is under way, after what it is called on.
    ///
    /// # Safety
    /// `args` is a tuple, and `kwargs` a dict or null.
    unsafe fn of(
        py: Python<'py>,
        args: *mut ffi::PyObject,
        kwargs: *mut ffi::PyObject,
        first: Option<*mut ffi::PyObject>,
    ) -> PyResult<Self> {
        let mut all: SmallVec<[*mut ffi::PyObject; 8]> = first.into_iter().collect();
        // SAFETY: as promised by the caller; both live as long as the call.
        let keywords = unsafe {
            for index in 0..ffi::PyTuple_GET_SIZE(args) {
                all.push(ffi::PyTuple_GET_ITEM(args, index));
            }
            Bound::from_borrowed_ptr_or_opt(py, kwargs)
        };
        let names = match keywords.map(Bound::cast_into::<PyDict>).transpose()? {
            Some(keywords) if !keywords.is_empty() => {
                all.extend(keywords.iter().map(|(_, value)| value.as_ptr()));
                Some(PyTuple::new(py, keywords.keys())?)
            }
            _ => None,
        };
        Ok(Self { args: all, names })
    }

    fn names(&self) -> *mut ffi::PyObject {
        self.names.as_ref().map_or(std::ptr::null_mut(), Bound::as_ptr)
    }
}

/// Puts the trampolines in place, or what was there before; all of it, unless something else is wanted
/// meanwhile.
///
/// # Errors
/// CPython refuses the code.
pub fn put(py: Python<'_>, on: bool, is_outdated: impl Fn() -> bool) -> PyResult<()> {
    let types = called_types().clone();
    for called in types {
        // SAFETY: a heap type of jax, changed with the interpreter attached.
        unsafe { (*called.class).tp_call = Some(if on { call_instance } else { called.call }) };
    }
    if let Some(jit) = JIT_TYPE.get(py) {
        // SAFETY: as above.
        unsafe {
            (*jit.class).tp_call = Some(if on { call_jit } else { jit.call });
            if on {
                (*jit.class).tp_flags &= !ffi::Py_TPFLAGS_HAVE_VECTORCALL;
            } else {
                (*jit.class).tp_flags |= ffi::Py_TPFLAGS_HAVE_VECTORCALL;
            }
        }
    }
    ARE_ON.store(on, Ordering::Relaxed);
    let keeps_versions = keeps_versions(py);
    let code = if on { Code::Trampoline } else { Code::Stock };
    for function in functions().iter() {
        // To change a function may run Python code, which may want something else.
        if is_outdated() {
            return Ok(());
        }
        function.put(py, code, keeps_versions)?;
    }
    Ok(())
}

/// Notes that a jit is called.
///
/// # Safety
/// Live objects: a jit, a tuple, a dict or null.
unsafe fn begin_request(
    py: Python<'_>,
    jitted: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> PyResult<()> {
    // SAFETY: as promised.
    let given = unsafe {
        let kwargs = Bound::from_borrowed_ptr_or_opt(py, kwargs);
        (Bound::from_borrowed_ptr(py, jitted), Bound::from_borrowed_ptr(py, args), kwargs)
    };
    let requests = crate::python::jax::names::jax(py)?.requests.bind(py);
    requests.call_method1(pyo3::intern!(py, "begin"), given).map(drop)
}

/// Notes that the call that was noted last is over.
fn end_request(py: Python<'_>) -> PyResult<()> {
    let requests = crate::python::jax::names::jax(py)?.requests.bind(py);
    requests.call_method0(pyo3::intern!(py, "end")).map(drop)
}

/// Notes which program a jit has for arguments with which it was called. Whether somebody who traces it may hear
/// what was not heard now.
///
/// # Safety
/// Live objects: a jit, a tuple, a dict or null.
unsafe fn note_request(
    py: Python<'_>,
    jitted: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
    was_traced: bool,
    was_silent: bool,
) -> PyResult<bool> {
    // SAFETY: as promised.
    let given = unsafe {
        let kwargs = Bound::from_borrowed_ptr_or_opt(py, kwargs);
        let (jitted, args) =
            (Bound::from_borrowed_ptr(py, jitted), Bound::from_borrowed_ptr(py, args));
        (jitted, args, kwargs, was_traced, was_silent, is_recording())
    };
    let requests = crate::python::jax::names::jax(py)?.requests.bind(py);
    match requests.call_method1(pyo3::intern!(py, "note"), given) {
        Ok(is_unheard) => is_unheard.extract(),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(true),
        Err(error) => Err(error),
    }
}

/// `tp_call` of the type of jits while a trace of ours may run.
unsafe extern "C" fn call_jit(
    slf: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let body = |py: Python<'_>| {
        let Some(jit) = JIT_TYPE.get(py) else {
            return Err(PyTypeError::new_err("jaxide: not a jit"));
        };
        let stock = |site: Option<&Site>| {
            let (made, warned) = (session::traces_made(), watch_warnings::count());
            let is_open = site.is_some() && library::is_open();
            // Nobody asks for the program of a user's jit.
            let is_own = site.is_some_and(|site| site.lasting.is_some());
            let is_noted = is_open && (is_own || is_recording());
            if is_noted {
                // SAFETY: CPython passes a tuple, and a dict or null.
                unsafe { begin_request(py, slf, args, kwargs) }?;
            }
            // SAFETY: the type's own function, with what CPython passed.
            let result = unsafe { Bound::from_owned_ptr_or_err(py, (jit.call)(slf, args, kwargs)) };
            if is_noted {
                end_request(py)?;
            }
            let result = result?;
            if is_noted {
                let was_traced = session::traces_made() != made;
                let was_silent = watch_warnings::count() == warned;
                // SAFETY: as above.
                if unsafe { note_request(py, slf, args, kwargs, was_traced, was_silent) }? {
                    note_unheard();
                }
            } else if is_open {
                note_unheard();
            }
            Ok(result)
        };
        if session::is_idle(py)? {
            return stock(None).map(Bound::into_ptr);
        }
        // SAFETY: CPython passes a tuple, and a dict or null.
        let (jitted, given) =
            unsafe { (Bound::from_borrowed_ptr(py, slf), Given::of(py, args, kwargs, None)?) };
        let site = site_of(&jitted)?;
        let stock = || stock(Some(&site));
        if !site.forgets {
            return call(py, &site, &given.args, given.names(), stock).map(Bound::into_ptr);
        }
        let captures = || {
            let jax = crate::python::jax::names::jax(py)?;
            // SAFETY: as above.
            let (positional, keywords) = unsafe {
                let keywords = Bound::from_borrowed_ptr_or_opt(py, kwargs);
                let keywords = keywords.unwrap_or_else(|| PyDict::new(py).into_any());
                (Bound::from_borrowed_ptr(py, args), keywords)
            };
            jax.jit_captures.bind(py).call1((&jitted, positional, keywords))?.is_truthy()
        };
        call_of_user(py, &site, &given.args, given.names(), stock, captures).map(Bound::into_ptr)
    };
    // SAFETY: CPython calls this with the interpreter attached.
    unsafe { guarded_by_caller(std::ptr::null_mut(), body) }
}

/// The functions of jax that its own jits trace, by address. They live as long as their modules.
static BODIES: AddressCache<Arc<Site>> = AddressCache::new();

/// Where the calls of a function are remembered that is being traced: of one that a jit of jax's own traces. None
/// for any other.
fn site_of_body(function: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Site>>> {
    let Ok(function) = function.cast_exact::<PyFunction>() else { return Ok(None) };
    // SAFETY: a live function.
    let globals = unsafe { ffi::PyFunction_GetGlobals(function.as_ptr()) } as usize;
    if !is_own_module(globals) {
        return Ok(None);
    }
    let py = function.py();
    let place = address(function.as_any());
    if let Some(site) = BODIES.get(&place, |site| site.clone()) {
        return Ok(Some(site));
    }
    let requests = crate::python::jax::names::jax(py)?.requests.bind(py);
    let found = requests.call_method1(intern!(py, "place_of_body"), (function,))?;
    let found: Option<String> = found.extract()?;
    let Some(found) = found else { return Ok(None) };
    let site = Site::pure(&format!("body of {found}")).lasting("body", &found);
    let (site, late) = BODIES.get_or_insert(place, Arc::new(site), |site| site.clone());
    drop(late);
    Ok(Some(site))
}

/// Calls a function that is being traced: what jax's own jits trace is replayed where there is a store, since another
/// process may have it. Within one process jax itself traces it once for the types of its arguments.
#[pyfunction]
pub fn call_traced<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyAny>,
    kwargs: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    // As `function(*args, **kwargs)`: jax has a list or a tuple, and a dict.
    let args = match args.cast_exact::<PyTuple>() {
        Ok(args) => args.clone(),
        Err(_) => py.get_type::<PyTuple>().call1((args,))?.cast_into()?,
    };
    let kwargs = match kwargs.cast_exact::<PyDict>() {
        Ok(kwargs) => kwargs.clone(),
        Err(_) => py.get_type::<PyDict>().call1((kwargs,))?.cast_into()?,
    };
    let stock = || function.call(&args, Some(&kwargs));
    if !library::is_open() || session::is_idle(py)? {
        return stock();
    }
    let Some(site) = site_of_body(function)? else { return stock() };
    // SAFETY: a tuple and a dict.
    let given = unsafe { Given::of(py, args.as_ptr(), kwargs.as_ptr(), None) }?;
    call(py, &site, &given.args, given.names(), stock)
}

/// Where in a module of jax a jit is; None where it is in none.
fn place_of(jitted: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = jitted.py();
    let requests = crate::python::jax::names::jax(py)?.requests.bind(py);
    requests.call_method1(pyo3::intern!(py, "place"), (jitted,))?.extract()
}

/// The site of a jit, made when it is first called.
fn site_of(jitted: &Bound<'_, PyAny>) -> PyResult<Arc<Site>> {
    let address = jitted.as_ptr() as usize;
    if let Some(site) = JITS.get(&address, |jit| jit.site.clone()) {
        return Ok(site);
    }
    let py = jitted.py();
    let name = match jitted.getattr_opt("__qualname__")? {
        Some(name) => string_of(&name.str()?),
        None => "<jit>".to_owned(),
    };
    let forgets = !is_stable(jitted.as_ptr());
    let pure = Site { forgets, ..Site::pure(&name) };
    let site = Arc::new(match place_of(jitted)? {
        Some(place) => pure.lasting("jit", &place),
        None => pure,
    });
    let id = site.id;
    let gone = PyCFunction::new_closure(py, None, None, move |_args, _kwargs| {
        let jit = JITS.remove(&address);
        store::forget_callable(id);
        drop(jit);
    })?;
    let weakref = py
        .import(pyo3::intern!(py, "weakref"))?
        .getattr(pyo3::intern!(py, "ref"))?
        .call1((jitted, gone))?
        .unbind();
    let own = Jit { site: site.clone(), _weakref: weakref };
    // Somebody may have called it meanwhile: the first one is its site.
    let (site, late) = JITS.get_or_insert(address, own, |jit| jit.site.clone());
    drop(late);
    Ok(site)
}

/// Stands in for `clear_cache` of a jit, which forgets its program.
#[pyfunction]
pub fn evict_jit<'py>(jitted: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let address = jitted.as_ptr() as usize;
    if let Some(site) = JITS.get(&address, |jit| jit.site.clone()) {
        store::forget_entries(site.id);
    }
    let py = jitted.py();
    if let Ok(function) = jitted.getattr(intern!(py, "_fun")) {
        whole::forget_function(&function)?;
    }
    crate::python::jax::names::jax(py)?.stock_evict.bind(py).call1((jitted,))
}
