//! Types, dtypes, members of enums and objects of jax in a key.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::expand::{Local, Tag};

use crate::python::cache::key::canonical::canonical;
use crate::python::cache::key::classes::{Verdict, verdict};
use crate::python::cache::key::encoder::Encoder;
use crate::python::cache::key::stable::is_stable;
use crate::python::cache::programs::forms::is_jaxpr;
use crate::python::cache::reasons::{
    CALLABLE, CONCRETE_ARRAY, FOREIGN_TRACER, REF, Reason, UNHASHABLE, UNKNOWN_OBJECT, USERS_CLASS,
};
use crate::python::cpython::native::Slot;
use crate::python::cpython::native::is_exactly;
use crate::python::jax::names::Jax;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::values::{ValueClasses, value_classes};

impl<'py> Encoder<'_, 'py> {
    /// Functions, programs, immutable objects of jax; else as `library_object`.
    pub(super) fn object(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if self.concrete(value, class)? {
            return Ok(());
        }
        if self.functions.are_whole() && self.has_given(value) {
            return Err(USERS_CLASS);
        }
        if is_stable(value) {
            self.identity(value);
            return Ok(());
        }
        if self.functions.are_whole() && self.of_whole(value, class, depth)? {
            return Ok(());
        }
        if self.mode.has_rules() {
            let wrapped = is_exactly(value, self.jax.wrapped_function_type.as_ptr().cast());
            let function = class == &raw mut ffi::PyFunction_Type && self.within.is_empty();
            if (wrapped || function) && self.derivative_rule(value, depth)? {
                return Ok(());
            }
            if is_exactly(value, self.jax.shaped_array_type.as_ptr().cast()) {
                self.identity(value);
                return Ok(());
            }
        }
        if class == &raw mut ffi::PyFunction_Type {
            return self.function(value, depth);
        }
        if is_exactly(value, self.jax.custom_vjp_type.as_ptr().cast()) {
            return self.custom_vjp(value, depth);
        }
        if is_exactly(value, self.jax.custom_jvp_type.as_ptr().cast()) {
            return self.custom_jvp(value, depth);
        }
        if self.mode.has_programs() && is_jaxpr(self.py, self.jax, value) {
            return self.program(value);
        }
        if self.is_immutable(value, class) {
            // SAFETY: a live argument. jax's own comparison runs, which changes nothing.
            let object = unsafe { Bound::from_borrowed_ptr(self.py, value) };
            let canonical = canonical(&object).map_err(|_| UNKNOWN_OBJECT)?;
            self.identity(canonical.as_ptr());
            self.call.own().kept.push(canonical.unbind());
            return Ok(());
        }
        if self.mode.has_programs() && is_exactly(value, self.jax.ref_type.as_ptr().cast()) {
            // SAFETY: a live argument.
            return self.ref_type(&unsafe { Bound::from_borrowed_ptr(self.py, value) });
        }
        self.library_object(value, class, depth)
    }

    /// Whether an object is what it is equal to.
    fn is_immutable(&self, value: *mut ffi::PyObject, class: *mut ffi::PyTypeObject) -> bool {
        if is_exactly(value, self.jax.shape_dtype_struct_type.as_ptr().cast()) {
            return true;
        }
        // SAFETY: looking up a type runs no Python code.
        self.mode.has_programs()
            && unsafe {
                ffi::PySet_Contains(self.jax.immutable_types.as_ptr(), class.cast()) == 1
                    || class == &raw mut ffi::PyFrozenSet_Type && has_names_only(self.py, value)
            }
    }

    /// Classes of jax and numpy, and what is refused.
    fn library_object(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        let Ok(known) = value_classes(self.py) else { return Err(UNKNOWN_OBJECT) };
        let subtype = |class: *mut ffi::PyTypeObject, of: &Py<pyo3::types::PyType>| {
            // SAFETY: two types; the method resolution order is read, no Python runs.
            unsafe { ffi::PyType_IsSubtype(class, of.as_ptr().cast()) != 0 }
        };
        let is_fixed = |class: *mut ffi::PyObject| {
            // SAFETY: looking up a type runs no Python code.
            unsafe { ffi::PySet_Contains(self.jax.fixed_types.as_ptr(), class) == 1 }
        };
        // SAFETY: as above; types are live objects.
        if unsafe { ffi::PyType_Check(value) != 0 } {
            // Another class may do anything when it is called, and may change.
            if !is_fixed(value) && !is_omitted(Item::Classes) {
                return Err(USERS_CLASS);
            }
            // A function calls it.
            self.effects.writes |=
                !self.within.is_empty() && value == (&raw mut ffi::PyUnicode_Type).cast();
            self.identity(value);
            return Ok(());
        }
        if subtype(class, &known.dtype) {
            return self.dtype(value, class, known);
        }
        // SAFETY: the type of a type.
        if subtype(unsafe { ffi::Py_TYPE(class.cast()) }, &known.enum_meta) {
            return self.enum_member(value, class, depth);
        }
        if subtype(class, &known.numpy_scalar) {
            if !is_fixed(class.cast()) && !is_omitted(Item::Classes) {
                return Err(USERS_CLASS);
            }
            return self.numpy_scalar(value, class);
        }
        if class == known.numpy_array.as_ptr().cast() && !self.mode.is_program() {
            return self.numpy_array(value);
        }
        if is_exactly(value, self.jax.index_update_ref_type.as_ptr().cast()) {
            return self.index_update_ref(value, class, depth);
        }
        if is_exactly(value, self.jax.named_sharding_type.as_ptr().cast()) {
            // SAFETY: a live argument. jax's own comparison runs, which changes nothing.
            let sharding = unsafe { Bound::from_borrowed_ptr(self.py, value) };
            let canonical = canonical(&sharding).map_err(|_| UNKNOWN_OBJECT)?;
            // The argument is alive, and so is what stands for it.
            self.identity(canonical.as_ptr());
            return Ok(());
        }
        if is_exactly(value, self.jax.zero_type.as_ptr().cast()) {
            // SAFETY: the exact type was checked.
            let aval = unsafe { self.jax.slots.zero_aval.peek(value) };
            if aval.is_null() {
                return Err(UNKNOWN_OBJECT);
            }
            self.call.signature.address(Tag::Fields, 1, class as u64);
            self.identity(aval);
            return Ok(());
        }
        if self.mode.has_programs() && self.record(value, class, depth)? {
            return Ok(());
        }
        self.unknown(value, class)
    }

    /// A member of an enum: itself, and of a user's enum the value that it has now.
    fn enum_member(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        // SAFETY: the class of a live argument.
        let verdict = unsafe { verdict(self.py, class) };
        let unknown = verdict == Verdict::Other;
        if unknown && !is_omitted(Item::Classes) {
            return Err(USERS_CLASS);
        }
        if unknown || verdict == Verdict::Library {
            self.identity(value);
            return Ok(());
        }
        // Its class has it for as long as that lives.
        self.call.signature.address(Tag::Identity, 0, value as u64);
        self.pin(class.cast());
        self.registration(class);
        // SAFETY: a live argument, whose class has no descriptors of the user's.
        let member = unsafe { Bound::from_borrowed_ptr(self.py, value) };
        let own = member.getattr(intern!(self.py, "__dict__")).map_err(|_| UNKNOWN_OBJECT)?;
        let own = own.cast_into::<PyDict>().map_err(|_| UNKNOWN_OBJECT)?;
        for (name, part) in own.iter() {
            let name = name.cast_into_exact::<PyString>().map_err(|_| UNKNOWN_OBJECT)?;
            match name.to_str().map_err(|_| UNKNOWN_OBJECT)? {
                "_value_" | "_inverted_" => self.value(part.as_ptr(), depth + 1)?,
                "_name_" | "__objclass__" | "_sort_order_" => {}
                _ => return Err(USERS_CLASS),
            }
        }
        Ok(())
    }

    /// How a class is registered as a tree, which jax goes by where an instance is flattened.
    pub(super) fn registration(&mut self, class: *mut ffi::PyTypeObject) {
        if is_omitted(Item::Trees) {
            return;
        }
        // SAFETY: a class has a hash of its own, since its class is `type`: no Python runs.
        let entry =
            unsafe { ffi::PyDict_GetItemWithError(self.jax.tree_registry.as_ptr(), class.cast()) };
        self.call.signature.local(Local::Registration, entry as u64);
        if !entry.is_null() {
            self.pin(entry);
        }
    }

    /// What `x.at[i]` is.
    fn index_update_ref(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        self.call.signature.address(Tag::Fields, 2, class as u64);
        let slots: [Slot; 2] = self.jax.slots.index_update_ref;
        for slot in slots {
            // SAFETY: the exact type was checked.
            let field = unsafe { slot.peek(value) };
            if field.is_null() {
                return Err(UNKNOWN_OBJECT);
            }
            self.value(field, depth + 1)?;
        }
        Ok(())
    }

    /// An object among params that is what its fields are; whether it is one.
    fn record(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<bool, Reason> {
        // SAFETY: a live argument.
        let record = unsafe { Bound::from_borrowed_ptr(self.py, value) };
        let Some(fields) = fields_of(self.jax, &record) else { return Ok(false) };
        self.call.signature.address(Tag::Fields, fields.len(), class as u64);
        for name in fields.iter() {
            // An attribute of the instance, which holds it.
            let field = record.getattr(name.cast::<PyString>().map_err(|_| UNKNOWN_OBJECT)?);
            self.value(field.map_err(|_| UNKNOWN_OBJECT)?.as_ptr(), depth + 1)?;
        }
        Ok(true)
    }

    /// The type of an array, or of a Ref to one.
    pub(super) fn aval(&mut self, aval: &Bound<'py, PyAny>) -> Result<(), Reason> {
        if is_exactly(aval.as_ptr(), self.jax.shaped_array_type.as_ptr().cast()) {
            self.identity(aval.as_ptr());
            return Ok(());
        }
        if is_exactly(aval.as_ptr(), self.jax.ref_type.as_ptr().cast()) {
            return self.ref_type(aval);
        }
        Err(REF)
    }

    pub(super) fn ref_type(&mut self, aval: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let field = |name| aval.getattr(name).map_err(|_| UNKNOWN_OBJECT);
        let inner = field(intern!(self.py, "inner_aval"))?;
        if !is_exactly(inner.as_ptr(), self.jax.shaped_array_type.as_ptr().cast()) {
            return Err(REF);
        }
        self.call.signature.address(Tag::Fields, 3, aval.get_type_ptr() as u64);
        self.identity(inner.as_ptr());
        for name in [intern!(self.py, "memory_space"), intern!(self.py, "kind")] {
            self.value(field(name)?.as_ptr(), 0)?;
        }
        Ok(())
    }

    /// A dtype: itself. The names of its fields may change.
    fn dtype(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        known: &ValueClasses,
    ) -> Result<(), Reason> {
        if class == known.void_dtype.as_ptr().cast() {
            return Err(UNKNOWN_OBJECT);
        }
        self.identity(value);
        Ok(())
    }

    /// An object of which nothing is known.
    #[cold]
    fn unknown(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
    ) -> Result<(), Reason> {
        // SAFETY: a live argument.
        let is_callable = unsafe { ffi::PyCallable_Check(value) != 0 };
        if is_omitted(if is_callable { Item::Callables } else { Item::Classes }) {
            self.identity(value);
            return Ok(());
        }
        Err(self.refusal(value, class))
    }

    /// Why an object is refused.
    #[cold]
    fn refusal(&self, value: *mut ffi::PyObject, class: *mut ffi::PyTypeObject) -> Reason {
        let jax = self.jax;
        // SAFETY: types only; no Python runs.
        unsafe {
            let is = |of: &Py<pyo3::types::PyType>| {
                ffi::PyType_IsSubtype(class, of.as_ptr().cast()) != 0
            };
            if is(&jax.any_tracer_type) {
                return FOREIGN_TRACER;
            }
            if ffi::PySet_Contains(jax.plain_const_types.as_ptr(), class.cast()) == 1
                || value_classes(self.py).is_ok_and(|known| is(&known.numpy_array))
            {
                return CONCRETE_ARRAY;
            }
            if ffi::PyCallable_Check(value) != 0 {
                return CALLABLE;
            }
            if (*class).tp_hash.is_none_or(|hash| {
                std::ptr::fn_addr_eq(hash, ffi::PyObject_HashNotImplemented as ffi::hashfunc)
            }) {
                return UNHASHABLE;
            }
        }
        UNKNOWN_OBJECT
    }
}

/// The names of the fields of an object that is what these are.
pub fn fields_of<'py>(jax: &Jax, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyTuple>> {
    let class = object.get_type();
    let known = jax.records.bind(object.py()).get_item(&class).ok()?;
    let fields = match known {
        Some(fields) => fields,
        None => jax.find_record.bind(object.py()).call1((class,)).ok()?,
    };
    fields.cast_into().ok()
}

/// Whether the items of a set are strings.
fn has_names_only(py: Python<'_>, set: *mut ffi::PyObject) -> bool {
    // SAFETY: a live frozen set; to iterate over it runs no Python code.
    let items = unsafe { Bound::from_borrowed_ptr(py, set) };
    items.try_iter().is_ok_and(|mut items| {
        items.all(|item| item.is_ok_and(|item| item.is_exact_instance_of::<PyString>()))
    })
}

/// Whether a subclass of tuple has nothing of the user's beyond its items, and names for them.
///
/// # Safety
/// `class` is a live type.
pub unsafe fn is_plain_namedtuple(py: Python<'_>, class: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: as promised.
    unsafe { (*class).tp_dictoffset == 0 && verdict(py, class) != Verdict::Other }
}
