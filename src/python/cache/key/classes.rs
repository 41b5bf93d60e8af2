//! Classes of the user's whose values are nothing but what they consist of.
//!
//! A named tuple or an enum may have methods and properties, which read whatever they like. Here is
//! decided which have none. Nothing of Python runs: the dict of the class is read as it is.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;

use crate::python::cpython::native::string_of;
use crate::python::cpython::shared::{Once, Shared};

/// What is known of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Of jax, of Python, or of what jax is built on: it stays as it is.
    Library,
    /// Its values are what they consist of.
    Plain,
    /// They may be more.
    Other,
}

/// What named tuples and enums have that says nothing about them.
struct Known {
    /// The codes of the methods that each named tuple and each enum has.
    codes: Py<PySet>,
    /// Classes of what is no code of the user's.
    inert_types: Py<PySet>,
    /// Names of what a class statement writes.
    written: Py<PySet>,
    namedtuple_names: Py<PySet>,
    field_type: Py<PyType>,
    enum_meta: Py<PyType>,
    enum_names: Py<PySet>,
    /// Classes that an enum may have as bases.
    enum_bases: Py<PySet>,
    enum_property: Py<PyType>,
    /// Whether a class is of jax, of Python or of what jax is built on.
    is_library: Py<PyAny>,
}

static KNOWN: Once<Known> = Once::new();

/// Takes what `jaxide._native.classes` says of named tuples and enums.
#[pyfunction]
pub fn set_known_classes(py: Python<'_>, known: &Bound<'_, PyAny>) -> PyResult<()> {
    let set = |name: &str| -> PyResult<Py<PySet>> {
        Ok(known.getattr(name)?.cast_into::<PySet>()?.unbind())
    };
    let class = |name: &str| -> PyResult<Py<PyType>> {
        Ok(known.getattr(name)?.cast_into::<PyType>()?.unbind())
    };
    let known = Known {
        codes: set("codes")?,
        inert_types: set("inert_types")?,
        written: set("written")?,
        namedtuple_names: set("namedtuple_names")?,
        field_type: class("field_type")?,
        enum_meta: class("enum_meta")?,
        enum_names: set("enum_names")?,
        enum_bases: set("enum_bases")?,
        enum_property: class("enum_property")?,
        is_library: known.getattr("is_library")?.unbind(),
    };
    let _ = KNOWN.set(py, known);
    Ok(())
}

/// Verdicts by the address of the class, which is kept by a weak reference, and by its version.
type Verdicts = FxHashMap<usize, (u32, Py<PyAny>, Verdict)>;
static VERDICTS: Shared<Option<Verdicts>> = Shared::new(None);
const MAX_VERDICTS: usize = 1 << 12;

/// The version of a class, which is another after each change of it or of its bases; None where it
/// has none now.
///
/// # Safety
/// `class` is a live class.
pub unsafe fn version(class: *mut ffi::PyTypeObject) -> Option<u32> {
    // SAFETY: a live class, as promised. To look a name up gives a class its version.
    unsafe {
        let tag = (*class).tp_version_tag;
        let valid = cfg!(Py_3_12) || (*class).tp_flags & ffi::Py_TPFLAGS_VALID_VERSION_TAG != 0;
        (valid && tag != 0).then_some(tag)
    }
}

/// What is known of a subclass of `tuple`, or of an enum.
///
/// # Safety
/// `class` is a live class.
pub unsafe fn verdict(py: Python<'_>, class: *mut ffi::PyTypeObject) -> Verdict {
    let place = class as usize;
    // SAFETY: as promised.
    let before = unsafe { version(class) };
    if let Some(version) = before {
        // A version is given once in a process, so the class is the one that was judged.
        let known = VERDICTS.peek(|all| {
            let (known, _, verdict) = all.as_ref()?.get(&place)?;
            (*known == version).then_some(*verdict)
        });
        if let Some(verdict) = known {
            return verdict;
        }
    }
    // SAFETY: as promised.
    let bound = unsafe { Bound::from_borrowed_ptr(py, class.cast()) };
    let Ok(bound) = bound.cast_into::<PyType>() else { return Verdict::Other };
    let verdict = judge(&bound).unwrap_or(Verdict::Other);
    // SAFETY: as promised.
    let after = unsafe { version(class) };
    if let (Some(version), Ok(weak)) = (after, pyo3::types::PyWeakrefReference::new(&bound)) {
        let new = (version, weak.into_any().unbind(), verdict);
        let old = VERDICTS.peek(|all| {
            let all = all.get_or_insert_default();
            let many = (all.len() >= MAX_VERDICTS).then(|| std::mem::take(all));
            (all.insert(place, new), many)
        });
        drop(old);
    }
    verdict
}

fn judge(class: &Bound<'_, PyType>) -> PyResult<Verdict> {
    let py = class.py();
    let Some(known) = KNOWN.get(py) else { return Ok(Verdict::Other) };
    // SAFETY: a live class has its bases and its attributes for as long as it lives.
    let (bases, own) = unsafe {
        let class = class.as_type_ptr();
        (
            Bound::from_borrowed_ptr_or_opt(py, (*class).tp_bases),
            Bound::from_borrowed_ptr_or_opt(py, (*class).tp_dict),
        )
    };
    let (Some(bases), Some(own)) = (bases, own) else { return Ok(Verdict::Other) };
    let (bases, own) = (bases.cast_into::<PyTuple>()?, own.cast_into::<PyDict>()?);
    let meta = class.get_type();
    let is_plain = if meta.is(&known.enum_meta) {
        known.is_plain_enum(class, &bases, &own)?
    } else {
        let of_type = std::ptr::eq(meta.as_type_ptr(), &raw mut ffi::PyType_Type);
        let of_tuple = bases.len() == 1
            && bases.get_borrowed_item(0)?.as_ptr() == (&raw mut ffi::PyTuple_Type).cast();
        if !of_type {
            return Ok(Verdict::Other);
        }
        if of_tuple {
            known.is_plain_namedtuple(&own)?
        } else {
            known.adds_nothing(&bases, &own)?
        }
    };
    // What a library adds to a class stays as it is.
    Ok(if known.is_library.bind(py).call1((class,))?.is_truthy()? {
        Verdict::Library
    } else if is_plain {
        Verdict::Plain
    } else {
        Verdict::Other
    })
}

impl Known {
    /// Whether an attribute of a class is one that all such classes have.
    fn is_silent(
        &self,
        names: &Py<PySet>,
        name: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = name.py();
        if self.written.bind(py).contains(name)? {
            return Ok(true);
        }
        if !names.bind(py).contains(name)? {
            return Ok(false);
        }
        if function_of(value)?.is_none() {
            return self.inert_types.bind(py).contains(value.get_type());
        }
        let Some(code) = code_of(value)? else { return Ok(false) };
        Ok(self.codes.bind(py).contains(&code)? || is_made_by_namedtuple(value)?)
    }

    fn is_plain_namedtuple(&self, own: &Bound<'_, PyDict>) -> PyResult<bool> {
        let fields = own.get_item("_fields")?;
        let Some(fields) = fields.and_then(|fields| fields.cast_into_exact::<PyTuple>().ok())
        else {
            return Ok(false);
        };
        for (name, value) in own {
            let mut named = fields.iter().enumerate().filter(|(_, field)| field.is(&name));
            if let Some((place, _)) = named.next() {
                // Somebody may have given a field the getter of another one.
                let is_getter = value.get_type().is(&self.field_type)
                    && value.call_method0("__reduce__")?.get_item(1)?.get_item(0)?.eq(place)?;
                if !is_getter || named.next().is_some() {
                    return Ok(false);
                }
            } else if !self.is_silent(&self.namedtuple_names, &name, &value)? {
                return Ok(false);
            }
        }
        own.contains("__slots__")
    }

    /// Whether a class has nothing that its base, a named tuple of which nothing is unknown, has not.
    fn adds_nothing(&self, bases: &Bound<'_, PyTuple>, own: &Bound<'_, PyDict>) -> PyResult<bool> {
        let [base] = &*bases.iter().collect::<Vec<_>>() else { return Ok(false) };
        let base = base.cast::<PyType>()?;
        let is_tuple =
            base.is_subclass_of::<PyTuple>()? && !base.is(bases.py().get_type::<PyTuple>());
        // SAFETY: a live class.
        if !is_tuple || unsafe { verdict(bases.py(), base.as_type_ptr()) } == Verdict::Other {
            return Ok(false);
        }
        for name in own.keys() {
            if !self.written.bind(bases.py()).contains(name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_plain_enum(
        &self,
        class: &Bound<'_, PyType>,
        bases: &Bound<'_, PyTuple>,
        own: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let py = class.py();
        for base in bases {
            if !self.enum_bases.bind(py).contains(base)? {
                return Ok(false);
            }
        }
        for (name, value) in own {
            let member = value.get_type().is(class)
                || value.get_type().is(&self.enum_property)
                    && value.getattr_opt("fget")?.is_none_or(|read| read.is_none());
            if !member && !self.is_silent(&self.enum_names, &name, &value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The function that a class attribute is, or wraps.
fn function_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let is_function =
        |value: &Bound<'_, PyAny>| value.get_type_ptr() == &raw mut ffi::PyFunction_Type;
    if is_function(value) {
        return Ok(Some(value.clone()));
    }
    let wraps = value.get_type_ptr() == &raw mut ffi::PyClassMethod_Type
        || value.get_type_ptr() == &raw mut ffi::PyStaticMethod_Type;
    if !wraps {
        return Ok(None);
    }
    Ok(Some(value.getattr("__func__")?).filter(is_function))
}

fn code_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    function_of(value)?.map(|function| function.getattr("__code__")).transpose()
}

/// Whether a function is the `__new__` that `namedtuple` generates.
fn is_made_by_namedtuple(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(function) = function_of(value)? else { return Ok(false) };
    let globals = function.getattr("__globals__")?.cast_into::<PyDict>()?;
    let name = globals.get_item("__name__")?;
    let name = name.as_ref().and_then(|name| name.cast::<PyString>().ok());
    let made = name.is_some_and(|name| string_of(name).starts_with("namedtuple_"));
    Ok(made && !globals.contains("__file__")?)
}
