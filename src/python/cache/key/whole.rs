//! What is traced as a whole: classes, jits and modules that a function reads, and the types of its arguments.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::expand::Tag;

use crate::python::cache::key::classes::{Verdict, verdict};
use crate::python::cache::key::encoder::Encoder;
use crate::python::cache::key::stable::is_stable;
use crate::python::cache::reasons::{
    CALLABLE, LARGE_VALUE, ORDERS, Reason, SEEN, UNHASHABLE, UNKNOWN_OBJECT, USERS_CLASS,
};
use crate::python::cpython::native::is_exactly;
use crate::python::jax::values::value_classes;

/// Before what stands for a class of named tuples, and for a jit.
const NAMED_CLASS: usize = 1 << 20;
const JIT: usize = NAMED_CLASS + 1;
/// Deeper arguments than this are not keyed: bounded recursion.
const MAX_DEPTH: u32 = 64;

/// What is known while something is written that is traced as a whole.
#[derive(Default)]
pub(super) struct Whole {
    /// The functions that were written: which are one counts.
    pub(super) written: Vec<*mut ffi::PyObject>,
    /// What comes next is the function of a jit, which has a weak reference to it.
    pub(super) may_be_seen: bool,
    /// jax may have seen any function.
    pub(super) ever_seen: bool,
    /// What is written is read by a function of jax's.
    pub(super) of_jax: bool,
    /// How many types of arrays were written.
    pub(super) traced: usize,
}

/// Whether an instance of a named tuple's class has attributes besides its items.
pub(super) fn has_attributes(py: Python<'_>, value: *mut ffi::PyObject) -> bool {
    // SAFETY: a live argument, whose class adds nothing to `tuple`: to read its dict runs no code of the user's.
    let value = unsafe { Bound::from_borrowed_ptr(py, value) };
    let Ok(own) = value.getattr_opt(intern!(py, "__dict__")) else { return true };
    own.is_some_and(|own| own.cast::<PyDict>().map_or(true, |own| !own.is_empty()))
}

/// Attributes that functions with a derivative rule have of their own.
const OWN: [&str; 11] = [
    "bwd",
    "fun",
    "fwd",
    "generic_batching",
    "jvp",
    "nondiff_argnums",
    "optimize_remat",
    "remat_rules",
    "symbolic_zeros",
    "with_accums",
    "with_logs",
];

/// Whether an object that a key has by its place, or a class of named tuples, may have attributes that somebody has given
/// it. Code that only computes reads none whose name begins with an underscore.
fn may_be_given(value: &Bound<'_, PyAny>) -> bool {
    let py = value.py();
    let Ok(own) = value.getattr_opt(intern!(py, "__dict__")) else { return true };
    let Some(own) = own else { return false };
    let fields = value.getattr_opt(intern!(py, "_fields")).ok().flatten();
    let is_own = |name: &Bound<'_, PyAny>| {
        let Ok(text) = name.extract::<&str>() else { return false };
        let is_field = || fields.as_ref().is_some_and(|all| all.contains(name).unwrap_or(false));
        text.starts_with('_') || OWN.contains(&text) || is_field()
    };
    own.try_iter().is_ok_and(|mut names| !names.all(|name| name.is_ok_and(|name| is_own(&name))))
}

impl Encoder<'_, '_> {
    /// Whether somebody may have given attributes to a function that a key has by its place, or to a jit.
    pub(super) fn has_given(&self, value: *mut ffi::PyObject) -> bool {
        // SAFETY: a live object; only types are read.
        let (class, is_class) = unsafe { (ffi::Py_TYPE(value), ffi::PyType_Check(value) != 0) };
        let classes = [&self.jax.jit_type, &self.jax.custom_jvp_type, &self.jax.custom_vjp_type];
        // Others are what they consist of, or have no key.
        let is_looked_at =
            is_stable(value) && !is_class || classes.iter().any(|of| class == of.as_ptr().cast());
        // SAFETY: a live object of jax's, whose dict is read without code of the user's.
        is_looked_at && may_be_given(&unsafe { Bound::from_borrowed_ptr(self.py, value) })
    }

    /// Whether an object is one that only something that is traced as a whole may have.
    pub(super) fn of_whole(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<bool, Reason> {
        let known = value_classes(self.py).map_err(|_| UNKNOWN_OBJECT)?;
        if is_exactly(value, known.ufunc.as_ptr().cast()) {
            // It writes to an array that it is given as the last argument.
            self.effects.fills = true;
            self.identity(value);
            return Ok(true);
        }
        if value == known.numpy_array.as_ptr() {
            self.identity(value);
            return Ok(true);
        }
        // SAFETY: live objects; only types are read.
        unsafe {
            if ffi::PyModule_CheckExact(value) != 0 {
                if self.whole.of_jax {
                    self.identity(value);
                }
                return Ok(self.whole.of_jax);
            }
            if value == (&raw mut ffi::PySet_Type).cast()
                || value == (&raw mut ffi::PyFrozenSet_Type).cast()
                || class == &raw mut ffi::PyFrozenSet_Type
            {
                return Err(ORDERS);
            }
            if ffi::PyType_Check(value) != 0
                && ffi::PyType_IsSubtype(value.cast(), &raw mut ffi::PyTuple_Type) != 0
                && !std::ptr::eq(value.cast(), &raw const ffi::PyTuple_Type)
            {
                self.named_class(value.cast(), depth)?;
                return Ok(true);
            }
        }
        self.users_jit(value, class, depth)
    }

    /// An argument: containers that jax makes anew for the function, with the types of arrays, and static values.
    pub(super) fn argument(&mut self, value: *mut ffi::PyObject, depth: u32) -> Result<(), Reason> {
        if depth > MAX_DEPTH {
            return Err(LARGE_VALUE);
        }
        // SAFETY: a live argument; the exact type is checked before each access. Nothing of the user's runs.
        unsafe {
            let class = ffi::Py_TYPE(value);
            if class == self.jax.shaped_array_type.as_ptr().cast() {
                self.whole.traced += 1;
                self.call.signature.address(Tag::Traced, 0, value as u64);
                return Ok(());
            }
            if ffi::PyTuple_Check(value) != 0 {
                if class == &raw mut ffi::PyTuple_Type {
                    self.call.signature.address(Tag::Sequence, 0, class as u64);
                } else {
                    self.named_class(class, depth)?;
                    if has_attributes(self.py, value) {
                        return Err(USERS_CLASS);
                    }
                }
                let len = ffi::PyTuple_GET_SIZE(value);
                self.call.signature.tag(Tag::Sequence, len.unsigned_abs());
                return (0..len).try_for_each(|place| {
                    self.argument(ffi::PyTuple_GET_ITEM(value, place), depth + 1)
                });
            }
            if class == &raw mut ffi::PyList_Type {
                let len = ffi::PyList_GET_SIZE(value);
                self.call.signature.address(Tag::Sequence, len.unsigned_abs(), class as u64);
                return (0..len).try_for_each(|place| {
                    self.argument(ffi::PyList_GET_ITEM(value, place), depth + 1)
                });
            }
            if class == &raw mut ffi::PyDict_Type {
                return self.arguments_by_name(value, depth);
            }
        }
        self.value(value, depth)
    }

    /// The items of a dict of texts, in jax's order.
    fn arguments_by_name(&mut self, dict: *mut ffi::PyObject, depth: u32) -> Result<(), Reason> {
        // SAFETY: a live argument of the exact class.
        let dict = unsafe { Bound::from_borrowed_ptr(self.py, dict) };
        let dict = dict.cast_exact::<PyDict>().map_err(|_| UNKNOWN_OBJECT)?;
        let mut items = Vec::with_capacity(dict.len());
        for (name, item) in dict.iter() {
            let name = name.cast_into_exact::<PyString>().map_err(|_| UNHASHABLE)?;
            items.push((name.to_str().map_err(|_| UNKNOWN_OBJECT)?.to_owned(), item));
        }
        items.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        self.call.signature.tag(Tag::Dict, items.len());
        for (name, item) in items {
            self.call.signature.bytes(Tag::Text, name.as_bytes());
            self.argument(item.as_ptr(), depth + 1)?;
        }
        Ok(())
    }

    /// The dict of a function's attributes or defaults, which no code that only computes comes to: what is in it.
    pub(super) fn own_dict(&mut self, dict: *mut ffi::PyObject, depth: u32) -> Result<(), Reason> {
        // SAFETY: a live dict.
        let dict = unsafe { Bound::from_borrowed_ptr(self.py, dict) };
        let dict = dict.cast_exact::<PyDict>().map_err(|_| UNKNOWN_OBJECT)?;
        self.call.signature.tag(Tag::Dict, dict.len());
        for (name, item) in dict.iter() {
            self.value(name.as_ptr(), depth)?;
            self.value(item.as_ptr(), depth)?;
        }
        Ok(())
    }

    /// A class of named tuples whose instances are what their items are, by where it is and its fields.
    pub(super) fn named_class(
        &mut self,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        let py = self.py;
        // SAFETY: a live class.
        let (plain, object) = unsafe {
            (verdict(py, class) != Verdict::Other, Bound::from_borrowed_ptr(py, class.cast()))
        };
        let registered = self.jax.tree_registry.bind(py).contains(&object);
        if !plain || registered.unwrap_or(true) || may_be_given(&object) {
            return Err(USERS_CLASS);
        }
        let place =
            self.jax.requests.bind(py).call_method1(intern!(py, "place_of_class"), (&object,));
        let place: Option<String> =
            place.and_then(|place| place.extract()).map_err(|_| USERS_CLASS)?;
        let place = place.ok_or(USERS_CLASS)?;
        self.call.signature.tag(Tag::Fields, NAMED_CLASS);
        self.call.signature.bytes(Tag::Text, place.as_bytes());
        let made_by = object.getattr(intern!(py, "__new__")).map_err(|_| USERS_CLASS)?;
        let parts = [
            object.getattr(intern!(py, "_fields")),
            made_by.getattr(intern!(py, "__defaults__")),
            made_by.getattr(intern!(py, "__kwdefaults__")),
        ];
        for part in parts {
            let part = part.map_err(|_| USERS_CLASS)?;
            self.value(part.as_ptr(), depth + 1)?;
            self.call.own().held.push(part.unbind());
        }
        // SAFETY: a live class has its bases.
        let base = unsafe { (*class).tp_base };
        if depth > MAX_DEPTH {
            return Err(LARGE_VALUE);
        }
        if std::ptr::eq(base, &raw const ffi::PyTuple_Type) {
            return Ok(());
        }
        self.named_class(base, depth + 1)
    }

    /// Whether an object is a jit of the user's, which is what its function and its settings are: jax cannot have
    /// traced it.
    fn users_jit(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<bool, Reason> {
        let py = self.py;
        if class != self.jax.jit_type.as_ptr().cast() {
            return Ok(false);
        }
        // SAFETY: a live object.
        let object = unsafe { Bound::from_borrowed_ptr(py, value) };
        let requests = self.jax.requests.bind(py);
        let parts =
            requests.call_method1(intern!(py, "parts_of_jit"), (object, self.whole.ever_seen));
        let parts: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)> =
            parts.and_then(|parts| parts.extract()).map_err(|_| UNKNOWN_OBJECT)?;
        let Some((function, settings)) = parts else { return Err(SEEN) };
        if function.get_type_ptr() != &raw mut ffi::PyFunction_Type {
            return Err(CALLABLE);
        }
        self.call.signature.tag(Tag::Fields, JIT);
        self.value(settings.as_ptr(), depth + 1)?;
        self.whole.may_be_seen = true;
        let written = self.function(function.as_ptr(), depth + 1);
        self.whole.may_be_seen = false;
        let held = [settings.unbind(), function.unbind()];
        self.call.own().held.extend(held);
        written.map(|()| true)
    }
}
