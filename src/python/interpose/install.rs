//! Putting the interposition in place, and taking it away.
//!
//! While anything is active, the `tp_new` of `DynamicJaxprTrace` is ours, so that a thread that is
//! ours makes our traces, and so is the code of `make_jaxpr` and `trace_to_jaxpr`. While a trace of ours may run, so are the code of `Primitive.bind`, of
//! `inline_jaxpr_into_trace` and of some more functions of jax, which first ask whether the trace is
//! ours, and all that is interposed. All of that is put back when the last activation ends, but for what
//! counts changes of settings (`watch_config.rs`). An activation of the whole process may last for long: then
//! the functions are ours from the first trace on to the first call that finds no trace recording, so
//! that calls outside of traces cost what they do without jaxide.
//! Names, classes and functions keep their identity; a thread that is not ours sees no difference.

use std::ffi::CString;

use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use pyo3::wrap_pyfunction;

use crate::python::cache::key::trace_context;
use crate::python::cache::warm::whole;
use crate::python::cpython::native::string_of;
use crate::python::cpython::shared::Once;
use crate::python::interpose::code_patch::{Code, PatchedFunction, keeps_versions};
use crate::python::interpose::{functions, operators, trace_class};
use crate::python::jax::names::{Jax, jax, set_jax};
use crate::python::jax::world::{self, difference};
use crate::python::trace::jaxpr_trace::trace_type;
use crate::python::trace::session::{self, Hooks, Scope, Wanted};
use crate::python::trace::tracer::{self, tracer_type};

/// Makes jax what is wanted. Python code may run meanwhile (the interpreter tells audit hooks of each
/// change), which may want something else, in this thread or in another. So nobody waits, each step can be
/// done again, and whoever was interrupted goes on towards what is wanted by then.
///
/// Where somebody has given a function of jax that is to be ours another code, all is left to jax.
///
/// # Errors
/// CPython refuses a change. jax's functions are then its own.
fn reconcile(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    loop {
        let wanted = Wanted::now();
        let replaced = if wanted.interposed { replaced(py)? } else { None };
        let interposed = wanted.interposed && replaced.is_none();
        let active = wanted.active && replaced.is_none();
        if active {
            trace_class::patch(jax);
        } else {
            trace_class::restore(jax);
        }
        let done = put_outermost(py, active, wanted).and_then(|()| {
            if interposed { patch(py, jax, wanted) } else { restore(py, jax, wanted) }
        });
        match done {
            Err(error) if interposed && !wanted.is_outdated() => {
                session::give_up_interposition();
                // The first error says what is wrong.
                let _ = restore(py, jax, Wanted::now());
                return Err(error);
            }
            _ if wanted.is_outdated() => {}
            done => {
                wanted.note_reconciled();
                return match replaced {
                    Some(replaced) => done.and(warn_of(py, replaced)),
                    None => done,
                };
            }
        }
    }
}

/// Functions of jax whose trampolines ask us first.
static HOOKED: Once<Vec<PatchedFunction>> = Once::new();
/// As those, of what is called before an outermost trace begins: while anything is active.
static OUTERMOST: Once<Vec<PatchedFunction>> = Once::new();

/// `make_trampoline(name, hook)` returns the function of jax and the code for it; None where that is
/// left to jax.
fn hook_function(
    make_trampoline: &Bound<'_, PyAny>,
    name: &str,
    hook: &Bound<'_, PyAny>,
) -> PyResult<Option<PatchedFunction>> {
    let made: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)> =
        make_trampoline.call1((name, hook))?.extract()?;
    made.map(|(function, trampoline)| PatchedFunction::new(&function, &trampoline)).transpose()
}

/// Says that somebody has given a function another code.
fn warn_of(py: Python<'_>, replaced: &PatchedFunction) -> PyResult<()> {
    let name: String = replaced.function(py).getattr("__qualname__")?.extract()?;
    let text = format!("jaxide: the code of jax's {name} was replaced; tracing is left to jax");
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &CString::new(text)?, 2)
}

/// A function of jax to which somebody has given another code.
fn replaced(py: Python<'_>) -> PyResult<Option<&'static PatchedFunction>> {
    let other =
        |hooked: &&PatchedFunction| !hooked.has(Code::Stock) && !hooked.has(Code::Trampoline);
    Ok(hooked(py)?.iter().chain(OUTERMOST.get(py).into_iter().flatten()).find(other))
}

/// Whether somebody has changed jax in a way that may affect anything: all is left to stock jax. The
/// attributes of primitives are looked at when a trace begins. Whoever has given a function that jaxide
/// steps into another code is warned.
#[pyfunction]
pub fn is_jax_altered(py: Python<'_>) -> PyResult<bool> {
    world::poll_soon();
    if !difference(py)?.is_total() {
        return Ok(false);
    }
    // No trace of ours begins meanwhile, so nobody else looks whether that was taken back.
    world::poll();
    let is_total = difference(py)?.is_total();
    if is_total && let Some(replaced) = replaced(py)? {
        warn_of(py, replaced)?;
    }
    Ok(is_total)
}

/// Makes the tracer type, with the operators and methods of arrays interposed.
fn define_tracer(py: Python<'_>, jax: &Jax) -> PyResult<()> {
    let base = jax.tracer_type.bind(py);
    let mut methods = Vec::new();
    // Those that jax's tracer has.
    for name in jax.array_methods.bind(py).iter() {
        let name = name.cast_into::<PyString>()?;
        if let Some(method) = base.getattr_opt(&name)? {
            let method = operators::uninterposed(jax, &method)?;
            let interposed = functions::method(&format!("Array.{}", string_of(&name)), &method)?;
            methods.push((name, interposed));
        }
    }
    operators::initialize(py, jax)?;
    tracer::define(py, jax, operators::slots(), methods)
}

/// Takes the objects of jax. Called once, by `jaxide._compat`. Returns the type of jaxprs that nobody
/// has read.
///
/// Raises:
///     `AttributeError`, `TypeError`: jax lacks an object or it is not what it was.
#[pyfunction]
pub fn initialize<'py>(namespace: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyType>> {
    let py = namespace.py();
    set_jax(py, Jax::from_namespace(namespace)?);
    Ok(crate::python::program::lazy_jaxpr::lazy_jaxpr_type(py, jax(py)?)?.clone())
}

/// Makes the types of traces and tracers. Called once, after `initialize`.
///
/// `make_trampoline(name, hook)` returns a function of jax and a code object for it that calls
/// `hook`, or None. Returns the tracer type and the trace type.
///
/// Raises:
///     `AttributeError`, `TypeError`: jax lacks an object or it is not what it was.
#[pyfunction]
pub fn initialize_traces<'py>(
    make_trampoline: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyType>)> {
    let py = make_trampoline.py();
    let jax = jax(py)?;
    let ours = [
        ("bind", wrap_pyfunction!(crate::python::interpose::bind::bind, py)?),
        ("inline", wrap_pyfunction!(crate::python::trace::inline::inline_jaxpr, py)?),
        ("backward", wrap_pyfunction!(crate::python::cache::backward_pass::backward_pass, py)?),
        ("dce", wrap_pyfunction!(crate::python::cache::dead_code::dce_jaxpr_consts, py)?),
        ("check_input", wrap_pyfunction!(crate::python::trace::arguments::check_input_type, py)?),
        ("map_leaves", wrap_pyfunction!(crate::python::trace::arguments::map_leaves, py)?),
        (
            "check_types",
            wrap_pyfunction!(crate::python::trace::arguments::check_returned_types, py)?,
        ),
        ("eval", wrap_pyfunction!(crate::python::interpose::evaluate::eval_jaxpr, py)?),
        ("value", wrap_pyfunction!(crate::python::jax::watch_arrays::read_value, py)?),
        ("check_refs", wrap_pyfunction!(crate::python::trace::arguments::check_returned_refs, py)?),
    ];
    let mut hooked = Vec::new();
    let mut add = |name: &str, hook: &Bound<'_, PyAny>| -> PyResult<()> {
        hooked.extend(hook_function(make_trampoline, name, hook)?);
        Ok(())
    };
    let optional = [
        ("result_paths", &jax.result_paths_hook),
        ("clean_path", &jax.clean_path_hook),
        ("vjp", &jax.vjp_hook),
        ("debug_info", &jax.debug_info_hook),
        ("include_filename", &jax.include_filename_hook),
        ("resolve_kwargs", &jax.resolve_kwargs_hook),
    ];
    for (name, hook) in optional {
        let hook = hook.bind(py);
        if !hook.is_none() {
            add(name, hook)?;
        }
    }
    if !jax.stock_struct_eq.is_none(py) {
        let equal = wrap_pyfunction!(crate::python::trace::arguments::structs_are_equal, py)?;
        let hash = wrap_pyfunction!(crate::python::trace::arguments::hash_of_struct, py)?;
        add("struct_eq", equal.as_any())?;
        add("struct_hash", hash.as_any())?;
    }
    if !jax.stock_flat_tree_map2.is_none(py) {
        let hook = wrap_pyfunction!(crate::python::trace::arguments::map_two_leaves, py)?;
        add("map_two_leaves", hook.as_any())?;
    }
    if !jax.stock_dce_consts.is_none(py) {
        let hook = wrap_pyfunction!(crate::python::cache::dead_code::dce_consts, py)?;
        add("dce_consts", hook.as_any())?;
    }
    for (name, hook) in jax.derivation_hooks.bind(py) {
        add(&name.extract::<String>()?, &hook)?;
    }
    for (name, hook) in ours {
        add(name, hook.as_any())?;
    }
    let _ = HOOKED.set(py, hooked);
    let trace = wrap_pyfunction!(crate::python::interpose::functions::call_traced, py)?;
    let mut outermost = Vec::new();
    let evict = wrap_pyfunction!(crate::python::interpose::functions::evict_jit, py)?;
    let make_jaxpr = jax.make_jaxpr_hook.bind(py);
    for (name, hook) in
        [("make_jaxpr", make_jaxpr), ("trace", trace.as_any()), ("evict", evict.as_any())]
    {
        if !hook.is_none() {
            outermost.extend(hook_function(make_trampoline, name, hook)?);
        }
    }
    let _ = OUTERMOST.set(py, outermost);
    let settle = whole::settle;
    session::set_hooks(Hooks { reconcile, forget_trace: trace_context::forget, settle });
    functions::set_jit_type(jax.jit_type.bind(py))?;
    crate::python::jax::watch_config::initialize(py, jax)?;
    define_tracer(py, jax)?;
    Ok((tracer_type(py)?.clone(), trace_type(py, jax)?.clone()))
}

/// A context manager: traces that start inside are recorded by jaxide; those of this thread, or of
/// the whole process.
#[pyclass(module = "jaxide._core", frozen)]
pub struct Activation {
    scope: Scope,
}

#[pymethods]
impl Activation {
    #[new]
    #[pyo3(signature = (*, process = false))]
    fn new(process: bool) -> Self {
        Self { scope: if process { Scope::Process } else { Scope::Thread } }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        session::enter(py, self.scope)
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, py: Python<'_>, _exc: &Bound<'_, PyAny>) -> PyResult<()> {
        // The next trace may be stock jax's.
        session::settle(py)?;
        if self.scope == Scope::Process && session::num_installed() == 1 {
            whole::tell_all(py)?;
        }
        session::leave(py, self.scope)
    }
}

/// Whether all traces of the process are recorded by jaxide.
#[pyfunction]
pub fn is_installed() -> bool {
    session::num_installed() != 0
}

fn hooked(py: Python<'_>) -> PyResult<&'static [PatchedFunction]> {
    HOOKED
        .get(py)
        .map(Vec::as_slice)
        .ok_or_else(|| PyRuntimeError::new_err("jaxide._core is not initialized"))
}

/// Makes the functions ours that are called before an outermost trace begins, or puts them back.
fn put_outermost(py: Python<'_>, on: bool, wanted: Wanted) -> PyResult<()> {
    let code = if on { Code::Trampoline } else { Code::Stock };
    let keeps_versions = keeps_versions(py);
    for hooked in OUTERMOST.get(py).into_iter().flatten() {
        if wanted.is_outdated() {
            return Ok(());
        }
        hooked.put(py, code, keeps_versions)?;
    }
    Ok(())
}

/// Makes jax's functions ours.
fn patch(py: Python<'_>, jax: &Jax, wanted: Wanted) -> PyResult<()> {
    let keeps_versions = keeps_versions(py);
    for hooked in hooked(py)? {
        if wanted.is_outdated() {
            return Ok(());
        }
        hooked.put(py, Code::Trampoline, keeps_versions)?;
    }
    crate::python::cpython::stack_chunks::keep(py);
    crate::python::jax::watch_warnings::on(py)?;
    crate::python::jax::watch_config::on(py, jax);
    crate::python::jax::watch_arrays::on(jax);
    functions::put(py, true, || wanted.is_outdated())
}

/// Puts jax's functions back.
fn restore(py: Python<'_>, jax: &Jax, wanted: Wanted) -> PyResult<()> {
    trace_context::forget();
    functions::put(py, false, || wanted.is_outdated())?;
    crate::python::jax::watch_arrays::off(jax);
    crate::python::jax::watch_config::off(py, jax);
    crate::python::jax::watch_warnings::off(py, jax)?;
    let keeps_versions = keeps_versions(py);
    for hooked in hooked(py)? {
        if wanted.is_outdated() {
            return Ok(());
        }
        // What somebody else has put there stays.
        hooked.put(py, Code::Stock, keeps_versions)?;
    }
    Ok(())
}
