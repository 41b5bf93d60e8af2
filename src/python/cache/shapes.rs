//! Calls that differ from a known one in nothing but the sizes of arrays.
//!
//! A function that computes element by element appends the same equations whatever the sizes are, only with other types.
//! What was recorded of such a function is also kept under the key without sizes, and others are put in when they
//! are asked for. Not every call of the function is like that: all arrays have to be of one shape, or without
//! dimensions, and no equation may depend on the sizes.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::expand::{Local, Signature};
use crate::ir::{ArrayType, DType, Dim, Type};

use crate::python::cache::call::Site;
use crate::python::cache::fragment::resized::{Sizes, place_of};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::pins::Pins;
use crate::python::cache::key::stable::is_stable;
use crate::python::cache::reasons::Reason;
use crate::python::cache::store::{self, Entry, Known};
use crate::python::cache::warm::lookup::Lasting;
use crate::python::cpython::native::is_exactly;
use crate::python::cpython::shared::Once;
use crate::python::jax::avals::aval_info;
use crate::python::jax::names::Jax;
use crate::python::jax::values::value_classes;
use crate::python::jax::world::Validity;

/// What computes element by element.
struct Pointwise {
    /// The functions: what kind of site they have, and its name.
    functions: FxHashSet<String>,
    /// The primitives: their params say nothing of shapes.
    primitives: Py<PyFrozenSet>,
    /// The primitive that brings an operand to a shape.
    broadcast: Py<PyAny>,
}

static POINTWISE: Once<Pointwise> = Once::new();

/// Tells which functions and primitives compute element by element, and which primitive brings an operand to a shape.
/// Before functions are interposed.
#[pyfunction]
pub fn tell_pointwise(
    py: Python<'_>,
    functions: Vec<String>,
    primitives: Py<PyFrozenSet>,
    broadcast: Py<PyAny>,
) {
    let functions = functions.into_iter().collect();
    let _ = POINTWISE.set(py, Pointwise { functions, primitives, broadcast });
}

/// Whether a function computes element by element.
pub fn is_pointwise(kind: &str, name: &str) -> bool {
    let is_one_of = |py: Python<'_>| {
        let known: Option<&Pointwise> = POINTWISE.get(py);
        known.is_some_and(|known| known.functions.contains(&format!("{kind} {name}")))
    };
    Python::attach(is_one_of)
}

/// Whether a primitive computes element by element.
pub fn is_pointwise_primitive(primitive: &Bound<'_, PyAny>) -> bool {
    let known = POINTWISE.get(primitive.py());
    known.is_some_and(|known| {
        known.primitives.bind(primitive.py()).contains(primitive).unwrap_or(false)
    })
}

/// Whether a primitive is the one that brings an operand to a shape.
pub fn is_broadcast(primitive: &Bound<'_, PyAny>) -> bool {
    POINTWISE.get(primitive.py()).is_some_and(|known| known.broadcast.is(primitive))
}

/// A call whatever its sizes are.
pub struct Sizeless<'py> {
    signature: Signature,
    /// The shapes of its arrays, in the order of their first mention.
    shapes: Vec<Bound<'py, PyTuple>>,
    pins: Pins,
}

/// More dimensions are not described.
const MAX_RANK: usize = 16;
/// More shapes are not described.
const MAX_SHAPES: usize = 32;
/// What no address has.
const TYPE: u64 = 1 << 63;

impl<'py> Sizeless<'py> {
    /// That of a call of a function that computes element by element; None where it depends on the sizes, or where
    /// that is not known.
    ///
    /// # Errors
    /// A type cannot be read.
    fn of(
        py: Python<'py>,
        jax: &Jax,
        call: &Call,
        arguments: &[*mut ffi::PyObject],
        describe: &impl Fn(&mut Call) -> Result<(), Reason>,
    ) -> PyResult<Option<Self>> {
        let has_more = !call.programs.is_empty()
            || call.located
            || call.has_arrays
            || call.has_mutable_arrays
            || call.may_change
            || !call.unread_codes.is_empty();
        // What a rule is given is all of one shape.
        let is_of_rule = arguments.is_empty();
        if has_more || !is_of_rule && !have_one_shape(py, call, arguments)? {
            return Ok(None);
        }
        let signature = Signature::new(call.signature.configuration()).noting_locals();
        let mut again = Call { pins: Some(Vec::new()), signature, ..call.empty() };
        if describe(&mut again).is_err() || again.signature.words() != call.signature.words() {
            return Ok(None);
        }
        let mut types = FxHashMap::default();
        let mut shapes = Vec::new();
        for &pin in again.pins.iter().flatten() {
            if !is_exactly(pin, jax.shaped_array_type.as_ptr().cast()) {
                continue;
            }
            // SAFETY: a part of the arguments.
            let aval = unsafe { Bound::from_borrowed_ptr(py, pin) };
            let Some(word) = word_of(jax, &aval, &mut shapes)? else { return Ok(None) };
            types.insert(pin as u64, word);
        }
        if is_of_rule && shapes.len() > 1 {
            return Ok(None);
        }
        let replaced = |local, word| match local {
            Local::Object => types.get(&word).copied().unwrap_or(word),
            _ => word,
        };
        let signature = again.signature.with_locals(replaced);
        // SAFETY: alive, as parts of the arguments.
        let pin = |pin| unsafe { Bound::from_borrowed_ptr(py, pin) };
        let mut pins = Pins::new(again.pins.take().into_iter().flatten().map(pin));
        pins.keep(std::mem::take(&mut again.own().kept));
        Ok(Some(Self { signature, shapes, pins }))
    }

    /// What it is known by.
    pub fn words(&self) -> &[u64] {
        self.signature.words()
    }

    /// The shapes of its arrays.
    pub fn shapes(&self) -> &[Bound<'py, PyTuple>] {
        &self.shapes
    }

    /// Notes that what was learnt of the call holds for other sizes.
    pub fn note(&self, site: &Site, call: &Call) {
        store::note_sizeless(site.id, &self.signature, &call.signature);
    }
}

/// What stands for a type of arrays whatever their sizes are; that of an array with dimensions has the place of its shape
/// among `shapes`. None where there is more to it.
fn word_of<'py>(
    jax: &Jax,
    aval: &Bound<'py, PyAny>,
    shapes: &mut Vec<Bound<'py, PyTuple>>,
) -> PyResult<Option<u64>> {
    let info = aval_info(jax, aval)?;
    let Some(Type::Array(ty)) = info.ty.as_ref().filter(|_| info.empty_mesh) else {
        return Ok(None);
    };
    let Some(dtype) = DType::NAMED.iter().position(|named| *named == ty.dtype) else {
        return Ok(None);
    };
    let Some(dims) = kinds_of_dims(ty) else { return Ok(None) };
    let place = if ty.shape.is_empty() {
        MAX_SHAPES
    } else {
        let shape = aval.getattr(intern!(aval.py(), "shape"))?.cast_into::<PyTuple>()?;
        let place = place_of(shapes, &shape)?.unwrap_or(shapes.len());
        if place == shapes.len() {
            shapes.push(shape);
        }
        if place >= MAX_SHAPES {
            return Ok(None);
        }
        place
    };
    let numbers = [(dtype, 52), (usize::from(ty.weak_type), 50), (place, 40), (ty.shape.len(), 32)];
    let parts = numbers.iter().fold(0, |word, &(number, shift)| word | (number as u64) << shift);
    Ok(Some(TYPE | parts | u64::from(dims)))
}

/// Which dimensions have the sizes 0 and 1, which mean something of their own; None where a type is not plain.
fn kinds_of_dims(ty: &ArrayType) -> Option<u32> {
    let ArrayType {
        dtype: _,
        shape,
        weak_type: _,
        sharding,
        manual_axis_type,
        memory_space,
        layout,
    } = ty;
    if [sharding, manual_axis_type, memory_space, layout].into_iter().any(Option::is_some)
        || shape.len() > MAX_RANK
    {
        return None;
    }
    shape.iter().try_fold(0, |kinds, dim| match dim {
        Dim::Static(size) => Some(kinds << 2 | u32::try_from(*size).unwrap_or(2).min(2)),
        Dim::Symbolic(_) => None,
    })
}

/// Whether all arrays among the arguments of a call are of one shape, or without dimensions, and there is nothing
/// else that a function could look for shapes in.
fn have_one_shape(py: Python<'_>, call: &Call, arguments: &[*mut ffi::PyObject]) -> PyResult<bool> {
    let mut common: Option<Bound<'_, PyTuple>> = None;
    // SAFETY: arguments of the call under way.
    let object = |argument: &_| unsafe { Bound::from_borrowed_ptr(py, *argument) };
    let mut objects: SmallVec<[Bound<'_, PyAny>; 8]> = arguments.iter().map(object).collect();
    let mut next = 0;
    while let Some(object) = objects.get(next).cloned() {
        next += 1;
        let traced = [&call.traced[..], &call.enclosing, &call.literals];
        if !traced.iter().any(|traced| traced.contains(&object.as_ptr())) {
            match object.cast_exact::<PyTuple>() {
                // The arguments behind a star.
                Ok(items) => objects.extend(items),
                Err(_) if is_without_shape(&object)? => {}
                Err(_) => return Ok(false),
            }
            continue;
        }
        let Ok(shape) = object.getattr(intern!(py, "shape"))?.cast_into::<PyTuple>() else {
            return Ok(false);
        };
        match &common {
            _ if shape.is_empty() => {}
            Some(common) if !common.eq(&shape)? => return Ok(false),
            _ => common = Some(shape),
        }
    }
    Ok(common.is_some())
}

/// A number, None, a dtype, or what lives as long as jax: a universal function, a type of scalars.
fn is_without_shape(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let pointer = object.as_ptr();
    // SAFETY: a live object; only types are looked at.
    let is_plain = unsafe {
        let number = [
            &raw mut ffi::PyLong_Type,
            &raw mut ffi::PyBool_Type,
            &raw mut ffi::PyFloat_Type,
            &raw mut ffi::PyComplex_Type,
        ];
        pointer == ffi::Py_None()
            || number.iter().any(|&class| is_exactly(pointer, class))
            || ffi::PyType_Check(pointer) != 0
    };
    let dtype = &value_classes(object.py())?.dtype;
    Ok(is_plain || is_stable(pointer) || object.is_instance(dtype.bind(object.py()))?)
}

/// What is known of a call by one of other sizes, as an entry that the cache has from now on; else the call whatever its
/// sizes are, under which what is learnt of it may be noted.
///
/// # Errors
/// A type cannot be read.
pub fn find<'py>(
    py: Python<'py>,
    jax: &Jax,
    site: &Site,
    call: &Call,
    arguments: &[*mut ffi::PyObject],
    describe: &impl Fn(&mut Call) -> Result<(), Reason>,
    lasting: Option<Lasting>,
) -> PyResult<(Option<Bound<'py, Entry>>, Option<Sizeless<'py>>)> {
    if !site.pointwise || site.forgets {
        return Ok((None, None));
    }
    let Some(sizeless) = Sizeless::of(py, jax, call, arguments, describe)? else {
        return Ok((None, None));
    };
    let Some(known) = store::find_sizeless(py, site.id, &sizeless.signature)? else {
        return Ok((None, Some(sizeless)));
    };
    let Entry { known: Known::Replay(recorded), of_all_sizes: Some(from), is_unheard, .. } =
        known.get()
    else {
        return Ok((None, Some(sizeless)));
    };
    let from: SmallVec<[_; 4]> = from.shapes.iter().map(|shape| shape.bind(py).clone()).collect();
    let resized = recorded.resized(jax, py, &Sizes { from: &from, to: &sizeless.shapes })?;
    let (validity, pins) = (Validity::of_what_lasts(), sizeless.pins);
    let mut entry = Entry::new(Known::Replay(resized), validity, pins, None);
    entry.note_lasting(py, jax, lasting, *is_unheard)?;
    store::insert_loaded(py, site.id, &call.signature, entry)?;
    Ok((store::find(py, site.id, &call.signature)?, None))
}
