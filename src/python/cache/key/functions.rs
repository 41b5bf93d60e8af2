//! Functions of the user among the arguments of a call.
//!
//! One whose instructions only compute (`jaxide._native.pure_functions` looks through them) does the same whenever
//! what it reads is the same. jax has caches that go by the identity of functions, and does not look at
//! what they read: so the key of a function has its identity. Where nobody but the call holds it, jax cannot
//! have seen it before: then its code is enough.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use hashlink::LruCache;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyFunction, PyString};

use crate::expand::Tag;

use crate::python::cache::key::encoder::Encoder;
use crate::python::cache::key::transformations::Stack;
use crate::python::cache::reasons::{
    CALLABLE, LARGE_VALUE, ORDERS, Reason, SEEN, UNKNOWN_OBJECT, UNREAD_CODE,
};
use crate::python::cpython::address_cache::Locked;
use crate::python::cpython::shared::Once;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::world::is_own_module;

/// More functions than this have no key together.
const MAX_FUNCTIONS: usize = 512;

/// Before the number of a function that was written.
const WRITTEN: usize = 1 << 20;

/// Codes that are remembered.
const MAX_CODES: usize = 4096;

/// Something that a function reads at each call.
struct Read {
    name: Py<PyString>,
    /// Where in the closure; None for a global or builtin variable.
    cell: Option<usize>,
    /// What is read of it, as far as it is modules; and whether that may be read of anything.
    attributes: Vec<(Py<PyString>, bool)>,
}

/// What functions do besides computing.
#[derive(Clone, Copy, Default)]
pub(super) struct FunctionEffects {
    /// They change lists or dicts in place.
    pub(super) changes: bool,
    /// They call methods that may write to an array.
    pub(super) fills: bool,
    /// They make texts of values.
    pub(super) writes: bool,
}

impl FunctionEffects {
    /// Adds those of another function.
    fn add(&mut self, other: Self) {
        self.changes |= other.changes;
        self.fills |= other.fills;
        self.writes |= other.writes;
    }
}

/// What is known of code.
struct Code {
    /// None where it may do more than compute.
    reads: Option<Vec<Read>>,
    effects: FunctionEffects,
    /// It is of a function of jax, whose closure stays as it is.
    is_of_jax: bool,
    /// Where in the closure is what it returns, where it does nothing else.
    returns: Option<usize>,
    /// It may go by the order of a set's items, which is another one in each process.
    orders: bool,
    /// Keeps the address from becoming another code's.
    _owner: Py<PyAny>,
}

/// Which functions of the user a call may be given.
#[derive(Clone, Copy)]
pub enum Functions {
    /// Those with a derivative rule, which a module has.
    Rules,
    /// Any, by what they do and by what they are: params of an equation.
    Params,
    /// Any, since only the types of what they return are asked for. They may refer to traced values.
    Typed {
        /// Nobody but the call holds it; null where somebody does.
        temporary: *mut ffi::PyObject,
    },
    /// All that is traced, by what it does: functions that jax cannot have seen, but for the one that is traced. Types
    /// stand for arrays.
    Whole,
}

/// How many references to a function there are in such a call where nobody else has one; zero where
/// nobody has looked.
static REFERENCES: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static PROBING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a call is there to count the references to its first argument, which it then has.
pub fn is_probed(args: &[*mut ffi::PyObject]) -> bool {
    let probed = PROBING.take();
    if let (true, Some(&first)) = (probed, args.first()) {
        // SAFETY: an argument of the call under way.
        REFERENCES.store(unsafe { ffi::Py_REFCNT(first) }, Ordering::Relaxed);
    }
    probed
}

impl Functions {
    /// Those of a call that asks for types.
    ///
    /// # Errors
    /// jax's function cannot be called.
    pub fn typed(py: Python<'_>, args: &[*mut ffi::PyObject]) -> PyResult<Self> {
        let temporary = match args.first() {
            // SAFETY: an argument of the call under way. From CPython 3.14 on a variable need not
            // have a reference of its own while it is passed.
            Some(&first) if py.version_info() < (3, 14) => unsafe {
                let function = ffi::Py_TYPE(first) == &raw mut ffi::PyFunction_Type;
                if function && REFERENCES.load(Ordering::Relaxed) == 0 {
                    PROBING.set(true);
                    let probe =
                        py.import("jaxide._native.pure_functions")?.getattr("probe")?.call0();
                    PROBING.set(false);
                    probe?;
                }
                let references = REFERENCES.load(Ordering::Relaxed);
                if function && ffi::Py_REFCNT(first) <= references { first } else { null_mut() }
            },
            _ => null_mut(),
        };
        Ok(Self::Typed { temporary })
    }

    /// Whether these are all that is traced.
    pub(super) fn are_whole(self) -> bool {
        matches!(self, Self::Whole)
    }

    /// Whether nobody but the call holds the function whose types are asked for.
    pub fn are_temporary(self) -> bool {
        matches!(self, Self::Typed { temporary } if !temporary.is_null())
    }

    /// Whether a function among the arguments has a key, and by its code.
    fn by_code(self, function: *mut ffi::PyObject, named: bool) -> Option<bool> {
        match self {
            Self::Typed { temporary } if temporary == function => Some(true),
            Self::Params => Some(false),
            Self::Whole => Some(true),
            Self::Typed { .. } if named => Some(false),
            _ => None,
        }
    }
}

static CODES: Locked<LruCache<usize, Arc<Code>>> = Locked::new(|| LruCache::new(usize::MAX));

fn find(code: *mut ffi::PyObject) -> Option<Arc<Code>> {
    CODES.with(|codes| codes.get(&(code as usize)).cloned())
}

/// Looks through code, so that functions with it can have a key.
///
/// # Errors
/// What `reads` raises.
#[cold]
pub fn look_through(code: &Bound<'_, PyAny>) -> PyResult<()> {
    static READS: Once<Py<PyAny>> = Once::new();
    let py = code.py();
    let reads = READS
        .get_or_try_init(py, || {
            let reads = py.import("jaxide._native.pure_functions")?.getattr("reads")?;
            PyResult::Ok(reads.unbind())
        })?
        .bind(py)
        .call1((code,))?;
    let mut returns = None;
    let (variables, [changes, fills, writes, is_of_jax, orders]) = if reads.is_none() {
        (None, [false; 5])
    } else {
        returns = reads.getattr("returns")?.extract()?;
        let flag = |name: &str| reads.getattr(name)?.is_truthy();
        let mut variables = Vec::new();
        for read in reads.getattr(intern!(py, "variables"))?.try_iter()? {
            let (name, cell, attributes) = read?.extract()?;
            variables.push(Read { name, cell, attributes });
        }
        let flags = ["changes", "fills", "writes", "is_of_jax", "orders"].map(flag);
        let [changes, fills, writes, is_of_jax, orders] = flags;
        (Some(variables), [changes?, fills?, writes?, is_of_jax?, orders?])
    };
    let owner = code.clone().unbind();
    let effects = FunctionEffects { changes, fills, writes };
    let known =
        Arc::new(Code { reads: variables, effects, is_of_jax, returns, orders, _owner: owner });
    drop(CODES.evict(|codes| {
        let same = codes.insert(code.as_ptr() as usize, known);
        let last = if codes.len() > MAX_CODES { codes.remove_lru() } else { None };
        (same, last)
    }));
    Ok(())
}

/// What is in a cell of a function's closure, borrowed; None where there is nothing.
///
/// # Safety
/// `function` is a live function.
unsafe fn in_closure(
    function: *mut ffi::PyFunctionObject,
    index: usize,
) -> Option<*mut ffi::PyObject> {
    // SAFETY: the closure of a function is null or a tuple of cells, which hold what is in them.
    unsafe {
        let closure = (*function).func_closure;
        if closure.is_null() || index >= ffi::PyTuple_GET_SIZE(closure).unsigned_abs() {
            return None;
        }
        let cell = ffi::PyTuple_GET_ITEM(closure, index.cast_signed());
        let value = ffi::PyCell_Get(cell);
        if value.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        ffi::Py_DECREF(value);
        Some(value)
    }
}

/// What a function reads, borrowed; None where it is not there.
///
/// # Safety
/// `function` is a live function.
unsafe fn value_of(
    function: *mut ffi::PyFunctionObject,
    read: &Read,
) -> Option<*mut ffi::PyObject> {
    // SAFETY: the parts of a function are what CPython says they are. Nothing of Python runs before
    // the value is used, so what holds it holds it that long.
    unsafe {
        let entry = |dict: *mut ffi::PyObject, name: &Py<PyString>| {
            // A subclass may look names up in its own way.
            let value = if ffi::PyDict_CheckExact(dict) != 0 {
                ffi::PyDict_GetItemWithError(dict, name.as_ptr())
            } else {
                null_mut()
            };
            if value.is_null() {
                ffi::PyErr_Clear();
            }
            (!value.is_null()).then_some(value)
        };
        let mut value = match read.cell {
            Some(index) => in_closure(function, index)?,
            None if ffi::PyDict_CheckExact((*function).func_globals) == 0 => return None,
            None => entry((*function).func_globals, &read.name)
                .or_else(|| entry((*function).func_builtins, &read.name))?,
        };
        for (index, (attribute, _)) in read.attributes.iter().enumerate() {
            if ffi::PyModule_CheckExact(value) == 0 {
                let pure = read.attributes[index..].iter().all(|(_, pure)| *pure);
                return pure.then_some(value);
            }
            value = entry(ffi::PyModule_GetDict(value), attribute)?;
        }
        Some(value)
    }
}

/// Whether a module calls an object by the name that a function has: it is the same one at each call.
///
/// # Safety
/// `function` is a live function.
unsafe fn is_named(function: *mut ffi::PyFunctionObject, object: *mut ffi::PyObject) -> bool {
    // SAFETY: as promised; the name is a string, so nothing of Python runs.
    unsafe {
        let named = ffi::PyDict_GetItemWithError((*function).func_globals, (*function).func_name);
        if named.is_null() {
            ffi::PyErr_Clear();
        }
        named == object
    }
}

/// What a function without parameters has captured and returns, where it does nothing else.
///
/// # Errors
/// Its code cannot be looked through.
pub fn captured_result<'py>(function: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = function.py();
    if !function.is_exact_instance_of::<PyFunction>() {
        return Ok(None);
    }
    let own: *mut ffi::PyFunctionObject = function.as_ptr().cast();
    // SAFETY: the exact type was checked; the function holds its code.
    let code = unsafe { Bound::from_borrowed_ptr(py, (*own).func_code) };
    if find(code.as_ptr()).is_none() {
        look_through(&code)?;
    }
    let Some(index) = find(code.as_ptr()).and_then(|code| code.returns) else { return Ok(None) };
    // SAFETY: as above; the value is held from now on.
    Ok(unsafe { in_closure(own, index).map(|value| Bound::from_borrowed_ptr(py, value)) })
}

impl Encoder<'_, '_> {
    /// A function that is not one of a module of jax.
    pub(super) fn function(&mut self, value: *mut ffi::PyObject, depth: u32) -> Result<(), Reason> {
        let function: *mut ffi::PyFunctionObject = value.cast();
        let is_whole = self.functions.are_whole();
        if is_whole && self.whole.written.first() == Some(&value) {
            // jax may have seen the one that is traced.
            return Err(SEEN);
        }
        if if is_whole { self.is_known(value) } else { self.is_within(value) } {
            return Ok(());
        }
        // SAFETY: the caller checked the exact type.
        let (code, named) = unsafe { ((*function).func_code, is_named(function, value)) };
        let outermost = self.within.is_empty() || is_whole;
        let by_code = outermost.then(|| self.functions.by_code(value, named).ok_or(CALLABLE));
        let by_code = by_code.transpose()?;
        let Some(known) = find(code) else {
            self.call.unread_codes.push(code);
            // All that is unread here is looked through at once.
            return if is_whole { Ok(()) } else { Err(UNREAD_CODE) };
        };
        if self.whole.written.len() > MAX_FUNCTIONS {
            return Err(LARGE_VALUE);
        }
        let reads = match &known.reads {
            Some(_) if is_omitted(Item::Reads) => &[],
            Some(reads) => &reads[..],
            None if is_omitted(Item::Effects) => &[],
            None => return Err(CALLABLE),
        };
        if is_whole && known.orders {
            return Err(ORDERS);
        }
        // SAFETY: as above.
        let globals = unsafe { (*function).func_globals };
        if known.is_of_jax && !is_own_module(globals as usize) {
            return Err(CALLABLE);
        }
        self.effects.add(known.effects);
        let may_be_seen = std::mem::take(&mut self.whole.may_be_seen) || self.whole.ever_seen;
        if is_whole && !may_be_seen && self.whole.written.len() > 1 {
            // jax's caches that go by identity have weak references to the functions in them.
            // SAFETY: as above.
            if unsafe { !(*function).func_weakreflist.is_null() } {
                return Err(SEEN);
            }
        }
        let key = if is_omitted(Item::Code) { 0 } else { code as u64 };
        self.call.signature.address(Tag::Function, reads.len(), key);
        self.pin(code);
        if !by_code.unwrap_or(known.is_of_jax) {
            self.identity(value);
        }
        self.enter(value);
        // SAFETY: as above.
        let parts = unsafe {
            let dict = (*function).func_dict;
            let empty = dict.is_null() || ffi::PyDict_Size(dict) == 0;
            let dict = if empty { null_mut() } else { dict };
            let printed =
                [(*function).func_name, (*function).func_qualname, (*function).func_module];
            [
                (Item::Names, printed),
                (Item::Reads, [(*function).func_defaults, (*function).func_kwdefaults, dict]),
            ]
        };
        for (item, parts) in parts {
            for part in parts {
                // SAFETY: a constant of the interpreter.
                let part = if part.is_null() { unsafe { ffi::Py_None() } } else { part };
                // SAFETY: a live object.
                if is_whole && unsafe { ffi::PyDict_CheckExact(part) } != 0 {
                    self.own_dict(part, depth + 1)?;
                } else {
                    self.item(item, part, depth + 1)?;
                }
            }
        }
        let mutable = std::mem::take(&mut self.mutable);
        let of_jax = std::mem::replace(&mut self.whole.of_jax, known.is_of_jax);
        for read in reads {
            // SAFETY: as above.
            let value = unsafe { value_of(function, read) }.ok_or(UNKNOWN_OBJECT)?;
            self.value(value, depth + 1)?;
        }
        self.whole.of_jax = of_jax;
        if known.is_of_jax && self.mutable {
            return Err(CALLABLE);
        }
        self.mutable |= mutable;
        self.within.pop();
        Ok(())
    }

    /// A function with a derivative rule of the user's.
    pub(super) fn custom_jvp(
        &mut self,
        value: *mut ffi::PyObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if self.is_within(value) {
            return Ok(());
        }
        let py = self.py;
        // SAFETY: a live argument, whose class is jax's own: these are attributes of the instance,
        // which holds what it returns.
        let object = unsafe { Bound::from_borrowed_ptr(py, value) };
        let field = |name: &Bound<'_, PyString>| -> Result<_, Reason> {
            object.getattr(name).map(|field| field.as_ptr()).map_err(|_| UNKNOWN_OBJECT)
        };
        let (fun, rule) = (field(intern!(py, "fun"))?, field(intern!(py, "jvp"))?);
        // SAFETY: a live object; the type is checked before more is read.
        let usable = unsafe {
            ffi::Py_TYPE(fun) == &raw mut ffi::PyFunction_Type
                && (!self.within.is_empty() || is_named(fun.cast(), value))
        };
        if !usable {
            return Err(CALLABLE);
        }
        // SAFETY: a live object.
        self.call.signature.address(Tag::Fields, 4, unsafe { ffi::Py_TYPE(value) } as u64);
        let may_run = self.rule_may_run()?;
        self.enter(value);
        self.function(fun, depth + 1)?;
        self.derivative(rule, may_run, depth)?;
        self.value(field(intern!(py, "nondiff_argnums"))?, depth + 1)?;
        self.value(field(intern!(py, "symbolic_zeros"))?, depth + 1)?;
        self.within.pop();
        Ok(())
    }

    /// As `custom_jvp`, of a function with a rule for the backward pass, which runs later.
    pub(super) fn custom_vjp(
        &mut self,
        value: *mut ffi::PyObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if self.is_within(value) {
            return Ok(());
        }
        let py = self.py;
        // SAFETY: as in `custom_jvp`.
        let object = unsafe { Bound::from_borrowed_ptr(py, value) };
        let field = |name: &str| object.getattr(name).map_err(|_| UNKNOWN_OBJECT);
        let [fun, fwd, bwd] = ["fun", "fwd", "bwd"].map(field);
        let (fun, fwd, bwd) = (fun?, fwd?, bwd?);
        let is_nested = !self.within.is_empty();
        // SAFETY: as in `custom_jvp`.
        let usable = unsafe {
            ffi::Py_TYPE(fun.as_ptr()) == &raw mut ffi::PyFunction_Type
                && (is_nested || is_named(fun.as_ptr().cast(), value))
        };
        if !usable {
            return Err(CALLABLE);
        }
        // SAFETY: a live object.
        self.call.signature.address(Tag::Fields, 6, unsafe { ffi::Py_TYPE(value) } as u64);
        let may_run = self.rule_may_run()?;
        self.enter(value);
        self.function(fun.as_ptr(), depth + 1)?;
        for (rule, may_run) in [(&fwd, may_run), (&bwd, is_nested)] {
            self.derivative(rule.as_ptr(), may_run, depth)?;
        }
        for name in ["nondiff_argnums", "symbolic_zeros", "optimize_remat"] {
            self.value(field(name)?.as_ptr(), depth + 1)?;
        }
        self.within.pop();
        Ok(())
    }

    /// A derivative rule, and what it does where it may run.
    fn derivative(
        &mut self,
        rule: *mut ffi::PyObject,
        may_run: bool,
        depth: u32,
    ) -> Result<(), Reason> {
        if is_omitted(Item::DerivativeRules) {
            return Ok(());
        }
        self.named_rule(rule)?;
        if may_run { self.value(rule, depth + 1) } else { Ok(()) }
    }

    /// A derivative rule that does not run: itself, and its names, which are printed.
    fn named_rule(&mut self, rule: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live object; the exact type is checked before its parts are read.
        unsafe {
            if ffi::Py_TYPE(rule) != &raw mut ffi::PyFunction_Type {
                return Err(CALLABLE);
            }
            let function: *mut ffi::PyFunctionObject = rule.cast();
            self.identity(rule);
            self.identity((*function).func_code);
            for name in [(*function).func_name, (*function).func_qualname, (*function).func_module]
            {
                let name = if name.is_null() { ffi::Py_None() } else { name };
                self.item(Item::Names, name, 0)?;
            }
        }
        Ok(())
    }

    /// Whether the derivative rule of a function may run when the function is called: under
    /// differentiation it does, and what it appends has the user's lines.
    fn rule_may_run(&mut self) -> Result<bool, Reason> {
        let differentiates = self.stack.is_some_and(Stack::differentiates);
        if !self.within.is_empty() {
            return if differentiates { Err(CALLABLE) } else { Ok(true) };
        }
        if differentiates {
            self.locate()?;
        }
        Ok(differentiates)
    }

    /// What follows is within a function, which is read where it is: it may be changed meanwhile.
    fn enter(&mut self, value: *mut ffi::PyObject) {
        self.within.push(value);
        self.call.may_change = true;
    }

    /// As `is_within`, or one that was written before: which functions are one counts for whoever keeps what
    /// becomes of a function.
    fn is_known(&mut self, value: *mut ffi::PyObject) -> bool {
        let position = self.whole.written.iter().position(|&other| other == value);
        match position {
            Some(position) => self.call.signature.tag(Tag::Within, WRITTEN + position),
            None => self.whole.written.push(value),
        }
        position.is_some()
    }

    /// Whether a function is one of those that lead here, which then says all of it.
    fn is_within(&mut self, value: *mut ffi::PyObject) -> bool {
        let position = self.within.iter().position(|&outer| outer == value);
        if let Some(position) = position {
            self.call.signature.tag(Tag::Within, position);
        }
        position.is_some()
    }
}
