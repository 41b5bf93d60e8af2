//! Numbers, texts and containers in a key: by what is in them.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::expand::{Local, Tag};

use crate::python::cache::key::classes::version;
use crate::python::cache::key::encoder::Encoder;
use crate::python::cache::key::objects::is_plain_namedtuple;
use crate::python::cache::key::transformations::is_transformed;
use crate::python::cache::key::whole::has_attributes;
use crate::python::cache::reasons::{
    CAPTURES, CONCRETE_ARRAY, FOREIGN_TRACER, LARGE_VALUE, NOT_A_NUMBER, ORDERS, Reason,
    TRACED_PARAM, UNHASHABLE, UNKNOWN_OBJECT, USERS_CLASS,
};
use crate::python::cpython::native::is_exactly;
use crate::python::cpython::native::with_bytes;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::trace::tracer::{Traced as Tracer, traced};

/// Deeper nesting than this is not keyed: bounded recursion.
const MAX_DEPTH: u32 = 64;

/// A call with more than this in it is not keyed.
const MAX_WORDS: usize = 1 << 14;

/// An array of numpy's with more bytes than this is not keyed.
const MAX_ARRAY: usize = 256;

/// How a call has a literal: a replay hands on those that it has by tracers, and makes the others.
#[derive(Clone, Copy)]
pub(super) enum Held {
    ByTracer,
    Bare,
}

impl Encoder<'_, '_> {
    pub(super) fn value(&mut self, value: *mut ffi::PyObject, depth: u32) -> Result<(), Reason> {
        // SAFETY: `value` is a live argument; only its type is read.
        let class = unsafe { ffi::Py_TYPE(value) };
        if self.mode.is_program() && self.is_traced(value) {
            return Err(TRACED_PARAM);
        }
        match traced(self.py, self.jax, value, self.trace) {
            Some(Tracer::Foreign) if !self.within.is_empty() => return Err(CAPTURES),
            Some(_) if !self.within.is_empty() => return self.captured(value),
            Some(Tracer::Variable(var)) => return self.variable(value, var),
            Some(Tracer::Constant) => return self.constant(value),
            Some(Tracer::Literal) => return self.literal(value),
            Some(Tracer::Enclosing) => return self.enclosing(value),
            Some(Tracer::Foreign) => return Err(FOREIGN_TRACER),
            None => {}
        }
        if let Some(stack) = self.stack
            && let Some((level, parts)) = stack.parts(self.py, self.jax, value, 0)
        {
            if !self.within.is_empty() {
                return self.captured(value);
            }
            return self.transformed(stack, value, level, parts);
        }
        if is_transformed(self.jax, value) {
            if !self.within.is_empty() {
                return self.captured(value);
            }
            return self.enclosing(value);
        }
        // SAFETY: the exact type is checked before each access; nothing here runs Python code.
        unsafe {
            if value == ffi::Py_None()
                || class == &raw mut ffi::PyBool_Type
                || value == ffi::Py_Ellipsis()
                || value == ffi::Py_NotImplemented()
            {
                self.call.signature.address(Tag::Identity, 0, value as u64);
                return Ok(());
            }
            if class == &raw mut ffi::PyLong_Type {
                let mut overflow = 0;
                let small = ffi::PyLong_AsLongLongAndOverflow(value, &raw mut overflow);
                if overflow != 0 {
                    return Err(LARGE_VALUE);
                }
                let key = Self::masked(Item::Numbers, small.cast_unsigned());
                self.call.signature.pair(Tag::Int, 0, key);
                return Ok(());
            }
            if class == &raw mut ffi::PyFloat_Type {
                let float = ffi::PyFloat_AS_DOUBLE(value);
                self.call.finite_float |= float.is_finite();
                let key = Self::masked(Item::Numbers, float.to_bits());
                self.call.signature.pair(Tag::Float, 0, key);
                return if float.is_nan() { self.nan(value) } else { Ok(()) };
            }
            if class == &raw mut ffi::PyUnicode_Type {
                return self.text(value);
            }
        }
        self.container(value, class, depth)
    }

    #[allow(clippy::too_many_lines)] // one case for each class
    fn container(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if depth == MAX_DEPTH {
            return Err(LARGE_VALUE);
        }
        // SAFETY: the type is checked before each access; borrowed items are alive, since nothing
        // here runs Python code that could change their containers.
        unsafe {
            if ffi::PyTuple_Check(value) != 0 {
                let len = ffi::PyTuple_GET_SIZE(value);
                if class != &raw mut ffi::PyTuple_Type && self.functions.are_whole() {
                    self.named_class(class, depth)?;
                    if has_attributes(self.py, value) {
                        return Err(USERS_CLASS);
                    }
                    let items = (0..len.unsigned_abs())
                        .map(|i| ffi::PyTuple_GET_ITEM(value, i.cast_signed()));
                    return self.sequence(&raw mut ffi::PyTuple_Type, items, depth);
                }
                if class != &raw mut ffi::PyTuple_Type {
                    if !is_plain_namedtuple(self.py, class) && !is_omitted(Item::Classes) {
                        return Err(USERS_CLASS);
                    }
                    self.pin(class.cast());
                    let version = version(class).ok_or(USERS_CLASS)?.into();
                    self.call.signature.local(Local::Version, version);
                    self.registration(class);
                }
                let items =
                    (0..len.unsigned_abs()).map(|i| ffi::PyTuple_GET_ITEM(value, i.cast_signed()));
                return self.sequence(class, items, depth);
            }
            if class == &raw mut ffi::PyList_Type {
                (self.mutable, self.call.may_change) = (true, true);
                let len = ffi::PyList_GET_SIZE(value);
                let len = if is_omitted(Item::Mutable) { 0 } else { len };
                let items =
                    (0..len.unsigned_abs()).map(|i| ffi::PyList_GET_ITEM(value, i.cast_signed()));
                return self.sequence(class, items, depth);
            }
            if class == &raw mut ffi::PyDict_Type {
                (self.mutable, self.call.may_change) = (true, true);
                let len = ffi::PyDict_Size(value);
                self.call.signature.tag(Tag::Dict, len.unsigned_abs());
                if is_omitted(Item::Mutable) {
                    return Ok(());
                }
                let mut position = 0;
                let (mut name, mut item) = (std::ptr::null_mut(), std::ptr::null_mut());
                while ffi::PyDict_Next(value, &raw mut position, &raw mut name, &raw mut item) != 0
                {
                    self.value(name, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                return Ok(());
            }
            if class == &raw mut ffi::PySet_Type && self.functions.are_whole() {
                return Err(ORDERS);
            }
            if class == &raw mut ffi::PySet_Type && !self.within.is_empty() {
                self.call.may_change = true;
                return self.set_of_names(value, depth);
            }
            if class == &raw mut ffi::PySlice_Type {
                let slice = value.cast::<ffi::PySliceObject>();
                self.call.signature.tag(Tag::Slice, 0);
                for part in [(*slice).start, (*slice).stop, (*slice).step] {
                    self.value(part, depth + 1)?;
                }
                return Ok(());
            }
            if class == &raw mut ffi::PyComplex_Type {
                let parts = ffi::PyComplex_AsCComplex(value);
                self.call.signature.pair(Tag::Complex, 0, parts.real.to_bits());
                self.call.signature.word(parts.imag.to_bits());
                let is_nan = parts.real.is_nan() || parts.imag.is_nan();
                return if is_nan { self.nan(value) } else { Ok(()) };
            }
            if class == &raw mut ffi::PyBytes_Type {
                let len = ffi::PyBytes_Size(value).unsigned_abs();
                if len > MAX_WORDS {
                    return Err(LARGE_VALUE);
                }
                let data = ffi::PyBytes_AsString(value).cast::<u8>();
                self.call.signature.bytes(Tag::Bytes, std::slice::from_raw_parts(data, len));
                return Ok(());
            }
        }
        self.object(value, class, depth)
    }

    fn sequence(
        &mut self,
        class: *mut ffi::PyTypeObject,
        items: impl ExactSizeIterator<Item = *mut ffi::PyObject>,
        depth: u32,
    ) -> Result<(), Reason> {
        if self.call.signature.words().len() > MAX_WORDS {
            return Err(LARGE_VALUE);
        }
        self.call.signature.address(Tag::Sequence, items.len(), class as u64);
        for item in items {
            self.value(item, depth + 1)?;
        }
        Ok(())
    }

    /// A set of strings that a function reads, in one order whatever the set's own.
    fn set_of_names(&mut self, set: *mut ffi::PyObject, depth: u32) -> Result<(), Reason> {
        // SAFETY: a live set; to iterate over it and to compare strings runs no Python code.
        let items = unsafe { Bound::from_borrowed_ptr(self.py, set) };
        let mut names = Vec::new();
        for item in items.try_iter().map_err(|_| UNKNOWN_OBJECT)? {
            let item = item.map_err(|_| UNKNOWN_OBJECT)?;
            let name = item.cast_into_exact::<PyString>().map_err(|_| UNHASHABLE)?;
            names.push((name.to_str().map_err(|_| UNKNOWN_OBJECT)?.to_owned(), name));
        }
        names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let items = names.iter().map(|(_, name)| name.as_ptr());
        // SAFETY: the class of a live object.
        self.sequence(unsafe { ffi::Py_TYPE(set) }, items, depth)
    }

    unsafe fn text(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        let mut len = 0;
        // SAFETY: a string; CPython keeps the UTF-8 form with it.
        let bytes = unsafe {
            let data = ffi::PyUnicode_AsUTF8AndSize(value, &raw mut len);
            if data.is_null() {
                ffi::PyErr_Clear();
                return Err(UNKNOWN_OBJECT);
            }
            std::slice::from_raw_parts(data.cast::<u8>(), len.unsigned_abs())
        };
        if bytes.len() > MAX_WORDS {
            return Err(LARGE_VALUE);
        }
        self.call.signature.bytes(Tag::Text, if is_omitted(Item::Texts) { &[] } else { bytes });
        Ok(())
    }

    /// A number that is equal to itself only where Python goes by identity first: which object it is
    /// counts for whoever compares. A function of the user's may compare with others.
    pub(super) fn nan(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        if !self.within.is_empty() {
            return Err(NOT_A_NUMBER);
        }
        self.identity(value);
        Ok(())
    }

    pub(super) fn literal_value(
        &mut self,
        value: *mut ffi::PyObject,
        aval: *mut ffi::PyObject,
        held: Held,
    ) -> Result<(), Reason> {
        if value.is_null() || aval.is_null() {
            return Err(FOREIGN_TRACER);
        }
        // SAFETY: a live object; the type is checked before each access.
        unsafe {
            let class = ffi::Py_TYPE(value);
            self.call.signature.address(Tag::Literal, held as usize, aval as u64);
            self.call.signature.local(Local::Object, class as u64);
            self.pin(aval);
            self.pin(class.cast());
            if ffi::PyFloat_Check(value) != 0 {
                let float = ffi::PyFloat_AS_DOUBLE(value);
                self.call.finite_float |= float.is_finite();
                self.call.signature.word(Self::masked(Item::Numbers, float.to_bits()));
            } else if ffi::PyLong_Check(value) != 0 {
                let mut overflow = 0;
                let small = ffi::PyLong_AsLongLongAndOverflow(value, &raw mut overflow);
                if overflow != 0 {
                    return Err(LARGE_VALUE);
                }
                self.call.signature.word(Self::masked(Item::Numbers, small.cast_unsigned()));
            } else {
                self.buffer(value)?;
            }
        }
        Ok(())
    }

    pub(super) fn numpy_scalar(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
    ) -> Result<(), Reason> {
        self.call.signature.address(Tag::Scalar, 0, class as u64);
        self.pin(class.cast());
        if !self.within.is_empty() && !is_equal_to_itself(self.py, value) {
            return Err(NOT_A_NUMBER);
        }
        self.buffer(value)
    }

    /// A small array of numpy's, such as a list of places, by what is in it now. It may change, so a
    /// call that keeps it is refused later.
    pub(super) fn numpy_array(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live array; its buffer and what describes it are read while it is held.
        unsafe {
            let mut view: ffi::Py_buffer = std::mem::zeroed();
            let flags = ffi::PyBUF_FORMAT | ffi::PyBUF_C_CONTIGUOUS;
            if ffi::PyObject_GetBuffer(value, &raw mut view, flags) != 0 {
                ffi::PyErr_Clear();
                return Err(CONCRETE_ARRAY);
            }
            let dims = usize::try_from(view.ndim).unwrap_or(0);
            let len = view.len.unsigned_abs();
            let format: &[u8] = if view.format.is_null() {
                &[]
            } else {
                std::ffi::CStr::from_ptr(view.format).to_bytes()
            };
            // Objects may change, wherever they are.
            let is_plain = !format.is_empty() && !format.contains(&b'O');
            let fits = dims > 0 && len <= MAX_ARRAY && is_plain;
            if fits {
                self.call.signature.tag(Tag::Array, dims);
                for &dim in std::slice::from_raw_parts(view.shape, dims) {
                    self.call.signature.word(dim.cast_unsigned() as u64);
                }
                self.call.signature.bytes(Tag::Text, format);
                let bytes: &[u8] = match len {
                    _ if is_omitted(Item::Mutable) => &[],
                    0 => &[],
                    _ => std::slice::from_raw_parts(view.buf.cast::<u8>(), len),
                };
                self.call.signature.bytes(Tag::Bytes, bytes);
            }
            ffi::PyBuffer_Release(&raw mut view);
            if !fits {
                return Err(CONCRETE_ARRAY);
            }
        }
        self.call.finite_float = true;
        self.call.has_mutable_arrays = true;
        (self.mutable, self.call.may_change) = (true, true);
        Ok(())
    }

    /// The bytes of a numpy scalar, or of an array without dimensions.
    pub(super) fn buffer(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        // To ask one of jax's for its buffer may append an equation.
        if is_exactly(value, self.jax.array_type.as_ptr().cast()) {
            return Err(CONCRETE_ARRAY);
        }
        let signature = &mut self.call.signature;
        let fits = with_bytes(value, |bytes| {
            let fits = bytes.len() <= 64;
            if fits {
                let omitted = is_omitted(Item::Numbers);
                signature.bytes(Tag::Bytes, if omitted { &[] } else { bytes });
            }
            fits
        });
        if !fits.ok_or(UNKNOWN_OBJECT)? {
            return Err(LARGE_VALUE);
        }
        self.call.finite_float = true;
        Ok(())
    }
}

/// Whether a scalar of numpy's is no NaN.
fn is_equal_to_itself(py: Python<'_>, value: *mut ffi::PyObject) -> bool {
    // SAFETY: a live scalar of a class of numpy's; to compare it runs no code of the user's.
    let result = unsafe { ffi::PyObject_RichCompare(value, value, ffi::Py_EQ) };
    // SAFETY: the result is ours, if there is one.
    let result = unsafe { Bound::from_owned_ptr_or_opt(py, result) };
    if result.is_none() {
        let _ = PyErr::take(py);
    }
    result.is_some_and(|result| result.is_truthy().unwrap_or(false))
}
