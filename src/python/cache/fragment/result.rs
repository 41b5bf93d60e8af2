//! What a call returned, as a recipe: traced values by where they come from, all else as it was.

use std::cell::RefCell;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple, PyType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{Atom, Var};

use crate::python::cache::fragment::agree::same_literal;
use crate::python::cache::fragment::recorded::Part;
use crate::python::cache::fragment::replay::Tracers;
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::objects::is_plain_namedtuple;
use crate::python::cache::key::transformations::{Parts, Stack};
use crate::python::cache::reasons::{
    CAPTURED_CONSTANT, FOREIGN_TRACER, OUTER_VALUE, Reason, TANGENT, UNKNOWN_RESULT,
};
use crate::python::cpython::native::entries;
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::typed_hash;
use crate::python::trace::frame::Frame;
use crate::python::trace::jaxpr_trace::frame_of;
use crate::python::trace::tracer::{
    Traced as Tracer, constant_of, new_literal_tracer, traced, variable,
};

const MAX_DEPTH: u32 = 64;

/// How to make a result again.
pub enum Recipe {
    /// The traced argument itself.
    Arg(usize),
    /// The output of an equation, counted over all of the fragment; one tracer each.
    Out(usize),
    /// As `Out`, of the tangents' fragment of the differentiation of a level.
    Tangent(usize, usize),
    /// A tracer of a transformation, by its number among those of the call.
    Transformed(usize),
    /// The argument that is a tracer of a literal.
    LiteralArg(usize),
    /// The argument that is a value of an enclosing trace.
    Enclosing(usize),
    /// The tracer of an argument that is a concrete array.
    Constant(usize),
    /// A new tracer of a literal of the equations, and its number among the call's.
    OwnLiteral(usize, usize),
    /// A new tracer of a literal that is equal to this, its aval, and its number.
    Literal(Py<PyAny>, Py<PyAny>, usize),
    /// An immutable object.
    Object(Py<PyAny>),
    Tuple(Vec<Recipe>),
    List(Vec<Recipe>),
    Dict(Vec<(Py<PyAny>, Recipe)>),
    /// A named tuple of a class.
    Named(Py<PyType>, Vec<Recipe>),
}

/// How to make a tracer of a transformation.
pub struct TransformedRecipe {
    pub(super) level: usize,
    pub(super) aval: Py<PyAny>,
    /// What it is made of; those that are transformed themselves have smaller numbers.
    pub(super) parts: SmallVec<[Recipe; 2]>,
}

/// The outputs of the tangents' programs, with the level of their differentiation.
pub type TangentOuts = SmallVec<[(usize, FxHashMap<Var, usize>); 1]>;

/// Where the results of a call may come from.
pub struct Origin<'a, 'py> {
    pub jax: &'a Jax,
    pub trace: &'a Bound<'py, PyAny>,
    pub stack: Option<&'a Stack>,
    pub call: &'a Call,
    pub part: &'a Part,
    pub outs: &'a FxHashMap<Var, usize>,
    /// Those of the tangents' programs that were read so far.
    pub tangent_outs: &'a RefCell<TangentOuts>,
    /// The tracers of transformations so far, each with its address.
    pub transformed: &'a RefCell<Vec<(usize, TransformedRecipe)>>,
    /// The variables of constants that are used without an equation.
    pub constants: &'a RefCell<Vec<Var>>,
    /// The tracers of literals so far, by address: what was recorded holds them meanwhile.
    pub literal_tracers: &'a RefCell<Vec<usize>>,
}

impl Origin<'_, '_> {
    /// The number of a tracer of a literal: residuals and results that are one tracer have one number.
    pub fn literal_tracer(&self, tracer: &Bound<'_, PyAny>) -> usize {
        let address = tracer.as_ptr() as usize;
        let mut known = self.literal_tracers.borrow_mut();
        known.iter().position(|&other| other == address).unwrap_or_else(|| {
            known.push(address);
            known.len() - 1
        })
    }

    /// The argument, a concrete array, that a tracer is a constant of.
    ///
    /// # Errors
    /// It is no argument.
    pub fn constant(&self, tracer: &Bound<'_, PyAny>) -> Result<usize, Reason> {
        let value = constant_of(self.jax, tracer).ok_or(CAPTURED_CONSTANT)?;
        let found = self.call.enclosing.iter().position(|&arg| arg == value.as_ptr());
        self.constants.borrow_mut().extend(variable(tracer.py(), tracer.as_ptr()));
        found.ok_or(CAPTURED_CONSTANT)
    }
}

/// A named tuple.
///
/// # Errors
/// Out of memory.
pub fn new_named<'py>(
    class: &Bound<'py, PyType>,
    items: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let args = PyTuple::new(py, [items])?;
    // SAFETY: a subclass of tuple; `tuple.__new__` makes an instance of any of them.
    unsafe {
        let new = ffi::PyTuple_Type.tp_new;
        let made = new.map(|new| new(class.as_ptr().cast(), args.as_ptr(), std::ptr::null_mut()));
        Bound::from_owned_ptr_or_err(py, made.unwrap_or(std::ptr::null_mut()))
    }
}

/// What the results of a call are made of.
pub struct Made<'a, 'py> {
    pub jax: &'a Jax,
    pub trace: &'a Bound<'py, PyAny>,
    pub stack: Option<&'a Stack>,
    pub call: &'a Call,
    /// The tracers of the outputs that are needed.
    pub outs: &'a [(usize, Bound<'py, PyAny>)],
    /// Those of the tangents' programs that were appended to so far, by level.
    pub tangents: &'a RefCell<SmallVec<[(usize, Tracers<'py>); 1]>>,
    /// How the tracers of transformations are made, and those that are.
    pub recipes: &'a [TransformedRecipe],
    pub transformed: &'a RefCell<Vec<Option<Bound<'py, PyAny>>>>,
    /// The literals of the equations.
    pub literals: &'a dyn Fn(usize) -> PyResult<Bound<'py, PyAny>>,
    /// The tracers of literals that were made so far, with their numbers.
    pub literal_tracers: &'a RefCell<Tracers<'py>>,
    pub source: &'a SourceRef<'py>,
}

impl<'py> Made<'_, 'py> {
    /// The tracer, by its number, of a literal of the equations.
    pub fn own_literal(&self, index: usize, number: usize) -> PyResult<Bound<'py, PyAny>> {
        self.literal_tracer(number, || (self.literals)(index))
    }

    /// The tracer, by its number, of a literal that is equal to one.
    pub fn literal(
        &self,
        literal: &Bound<'py, PyAny>,
        number: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.literal_tracer(number, || self.jax.copy_literal(literal))
    }

    fn literal_tracer(
        &self,
        number: usize,
        literal: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let known = self.literal_tracers.borrow().iter().find(|(of, _)| *of == number).cloned();
        if let Some((_, tracer)) = known {
            return Ok(tracer);
        }
        let literal = literal()?;
        let aval = literal.getattr(pyo3::intern!(self.trace.py(), "aval"))?;
        let source = self.source.to_object(self.jax)?;
        let tracer = new_literal_tracer(self.jax, self.trace, literal, aval, source)?;
        self.literal_tracers.borrow_mut().push((number, tracer.clone()));
        Ok(tracer)
    }

    /// The tracer of an argument that is a concrete array.
    fn constant(&self, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.trace.py();
        // SAFETY: an argument of the call under way.
        let value = unsafe { Bound::from_borrowed_ptr(py, self.call.enclosing[index]) };
        let aval = value.getattr(pyo3::intern!(py, "aval"))?;
        let frame = frame_of(self.jax, self.trace)
            .ok_or_else(|| PyRuntimeError::new_err("a constant of no program"))?;
        Frame::const_tracer(&frame, self.jax, self.trace, &value, &aval, self.source)
    }

    /// A tracer of a transformation, made once.
    fn transformed(&self, number: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = &self.transformed.borrow()[number] {
            return Ok(made.clone());
        }
        let missing = || PyRuntimeError::new_err("a result under no transformation");
        let recipe = &self.recipes[number];
        let transformation = self.stack.and_then(|stack| stack.transformations.get(recipe.level));
        let parts: SmallVec<[_; 2]> =
            recipe.parts.iter().map(|part| part.make(self)).collect::<PyResult<_>>()?;
        let aval = recipe.aval.bind(self.trace.py()).clone();
        let made =
            transformation.ok_or_else(missing)?.new_tracer(self.jax, aval, &parts, self.source)?;
        self.transformed.borrow_mut()[number] = Some(made.clone());
        Ok(made)
    }
}

/// Whether two objects are structurally equal.
pub type Same<'a> = &'a dyn Fn(&Bound<'_, PyAny>, &Bound<'_, PyAny>) -> bool;

impl TransformedRecipe {
    /// Whether another recording has the same.
    pub fn agrees(&self, py: Python<'_>, other: &Self, same: Same<'_>) -> bool {
        self.level == other.level
            && same(self.aval.bind(py), other.aval.bind(py))
            && all_agree(py, &self.parts, &other.parts, same)
    }

    /// Marks the outputs that it needs tracers of.
    pub fn outs(&self, needed: &mut Needed) {
        for part in &self.parts {
            part.outs(needed);
        }
    }
}

/// Outputs that have tracers.
#[derive(Default)]
pub struct Needed {
    pub outs: SmallVec<[usize; 4]>,
    /// Those of the tangents' programs, by level.
    tangents: SmallVec<[(usize, SmallVec<[usize; 4]>); 1]>,
}

impl Needed {
    fn tangent(&mut self, level: usize, index: usize) {
        let known = self.tangents.iter().position(|(known, _)| *known == level);
        let place = known.unwrap_or_else(|| {
            self.tangents.push((level, SmallVec::new()));
            self.tangents.len() - 1
        });
        let (_, outs) = &mut self.tangents[place];
        if !outs.contains(&index) {
            outs.push(index);
        }
    }

    /// The outputs of the tangents' program of a level.
    pub fn of_level(&self, level: usize) -> &[usize] {
        self.tangents.iter().find(|(known, _)| *known == level).map_or(&[], |(_, outs)| outs)
    }
}

fn all_agree(py: Python<'_>, one: &[Recipe], another: &[Recipe], same: Same<'_>) -> bool {
    one.len() == another.len() && one.iter().zip(another).all(|(a, b)| a.agrees(py, b, same))
}

impl Recipe {
    /// Reads a result.
    ///
    /// # Errors
    /// It cannot be made again.
    pub fn of(
        from: &Origin<'_, '_>,
        result: &Bound<'_, PyAny>,
        depth: u32,
    ) -> Result<Self, Reason> {
        let py = result.py();
        if depth == MAX_DEPTH {
            return Err(UNKNOWN_RESULT);
        }
        if let Some(index) = from.call.enclosing.iter().position(|&arg| arg == result.as_ptr()) {
            return Ok(Self::Enclosing(index));
        }
        match traced(py, from.jax, result.as_ptr(), from.trace.as_ptr()) {
            Some(Tracer::Variable(var)) => return Self::of_variable(from, result, var),
            Some(Tracer::Constant) => return Self::of_constant(from, result),
            Some(Tracer::Literal) => return Self::of_literal(from, result),
            Some(Tracer::Foreign | Tracer::Enclosing) => {
                return Err(FOREIGN_TRACER);
            }
            None => {}
        }
        if let Some(stack) = from.stack
            && let Some((level, parts)) = stack.parts(py, from.jax, result.as_ptr(), 0)
        {
            return Self::of_transformed(from, stack, result, level, parts);
        }
        let of_all = |items: &mut dyn Iterator<Item = Bound<'_, PyAny>>| {
            items.map(|item| Self::of(from, &item, depth + 1)).collect::<Result<Vec<_>, _>>()
        };
        let class = result.get_type();
        if class.is(&from.jax.shape_dtype_struct_type) {
            return Ok(Self::Object(result.clone().unbind()));
        }
        if let Ok(tuple) = result.cast_exact::<PyTuple>() {
            return of_all(&mut tuple.iter()).map(Self::Tuple);
        }
        if let Ok(list) = result.cast_exact::<PyList>() {
            return of_all(&mut list.iter()).map(Self::List);
        }
        if let Ok(dict) = result.cast_exact::<PyDict>() {
            let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
                typed_hash(&key).ok_or(UNKNOWN_RESULT)?;
                Ok((key.unbind(), Self::of(from, &value, depth + 1)?))
            };
            return entries(dict).into_iter().map(entry).collect::<Result<_, _>>().map(Self::Dict);
        }
        if let Ok(tuple) = result.cast::<PyTuple>() {
            // SAFETY: a type.
            if unsafe { is_plain_namedtuple(py, class.as_type_ptr()) } {
                return of_all(&mut tuple.iter())
                    .map(|items| Self::Named(class.clone().unbind(), items));
            }
            return Err(UNKNOWN_RESULT);
        }
        let zero = class.is(&from.jax.zero_type);
        if zero || typed_hash(result).is_some() || result.is(py.NotImplemented()) {
            return Ok(Self::Object(result.clone().unbind()));
        }
        Err(UNKNOWN_RESULT)
    }

    fn of_variable(
        from: &Origin<'_, '_>,
        result: &Bound<'_, PyAny>,
        var: Var,
    ) -> Result<Self, Reason> {
        let call = from.call;
        if let Some(index) = call.traced.iter().position(|&arg| arg == result.as_ptr()) {
            return Ok(Self::Arg(index));
        }
        if call.args.contains(&Atom::var(var)) {
            // Another tracer of an argument's variable: not seen to happen.
            return Err(OUTER_VALUE);
        }
        from.outs.get(&var).copied().map(Self::Out).ok_or(OUTER_VALUE)
    }

    fn of_transformed(
        from: &Origin<'_, '_>,
        stack: &Stack,
        result: &Bound<'_, PyAny>,
        level: usize,
        parts: Parts,
    ) -> Result<Self, Reason> {
        let (py, jax) = (result.py(), from.jax);
        let given = |object| from.call.traced.iter().position(|&arg| arg == object);
        if let Some(index) = given(result.as_ptr()) {
            return Ok(Self::Arg(index));
        }
        let address = result.as_ptr() as usize;
        let known = from.transformed.borrow().iter().position(|&(known, _)| known == address);
        if let Some(number) = known {
            return Ok(Self::Transformed(number));
        }
        // SAFETY: a tracer of jax's, which has these slots.
        let aval = unsafe { jax.slots.tracer_aval.get(result) }.ok_or(UNKNOWN_RESULT)?;
        let mut made = SmallVec::new();
        for part in parts.below() {
            // SAFETY: the result holds it.
            let part = unsafe { Bound::from_borrowed_ptr(py, part) };
            made.push(Self::of_part(from, stack, &part, level + 1)?);
        }
        match parts {
            Parts::Jvp { .. } => {}
            Parts::Batch { dim, .. } => {
                // SAFETY: as above.
                let dim = unsafe { Bound::from_borrowed_ptr(py, dim) };
                if !dim.is_exact_instance_of::<PyInt>() && !dim.is_none() {
                    return Err(UNKNOWN_RESULT);
                }
                made.push(Self::Object(dim.unbind()));
            }
            Parts::Linearize { tangent, .. } => made.push(match given(tangent) {
                Some(index) => Self::Arg(index),
                None => stack
                    .linearization(level)
                    .and_then(|transformation| transformation.tangent_variable(py, jax, tangent))
                    .and_then(|var| {
                        let all = from.tangent_outs.borrow();
                        let (_, outs) = all.iter().find(|(known, _)| *known == level)?;
                        outs.get(&var).copied()
                    })
                    .map(|index| Self::Tangent(level, index))
                    .ok_or(TANGENT)?,
            }),
        }
        let mut transformed = from.transformed.borrow_mut();
        transformed.push((address, TransformedRecipe { level, aval: aval.unbind(), parts: made }));
        Ok(Self::Transformed(transformed.len() - 1))
    }

    /// A part of a tracer, of the levels from `level` on.
    fn of_part(
        from: &Origin<'_, '_>,
        stack: &Stack,
        part: &Bound<'_, PyAny>,
        level: usize,
    ) -> Result<Self, Reason> {
        let py = part.py();
        if let Some(index) = from.call.enclosing.iter().position(|&arg| arg == part.as_ptr()) {
            return Ok(Self::Enclosing(index));
        }
        match traced(py, from.jax, part.as_ptr(), from.trace.as_ptr()) {
            Some(Tracer::Variable(var)) => Self::of_variable(from, part, var),
            Some(Tracer::Constant) => Self::of_constant(from, part),
            Some(_) => Err(OUTER_VALUE),
            None => match stack.parts(py, from.jax, part.as_ptr(), level) {
                Some((level, parts)) => Self::of_transformed(from, stack, part, level, parts),
                None => Err(OUTER_VALUE),
            },
        }
    }

    /// A value of the levels from `level` on that a tangents' program captures.
    ///
    /// # Errors
    /// It cannot be made again.
    pub fn of_residual(
        from: &Origin<'_, '_>,
        value: &Bound<'_, PyAny>,
        level: usize,
    ) -> Result<Option<Self>, Reason> {
        let Some(stack) = from.stack else { return Ok(None) };
        let parts = stack.parts(value.py(), from.jax, value.as_ptr(), level);
        parts
            .map(|(level, parts)| Self::of_transformed(from, stack, value, level, parts))
            .transpose()
    }

    fn of_constant(from: &Origin<'_, '_>, tracer: &Bound<'_, PyAny>) -> Result<Self, Reason> {
        match from.call.traced.iter().position(|&arg| arg == tracer.as_ptr()) {
            Some(index) => Ok(Self::Arg(index)),
            None => from.constant(tracer).map(Self::Constant),
        }
    }

    fn of_literal(from: &Origin<'_, '_>, result: &Bound<'_, PyAny>) -> Result<Self, Reason> {
        let given = from.call.literals.iter().position(|&given| given == result.as_ptr());
        if let Some(index) = given {
            return Ok(Self::LiteralArg(index));
        }
        let slots = &from.jax.slots;
        // SAFETY: `traced` found our type, which has jax's slots.
        let (val, aval) = unsafe { (slots.tracer_val.get(result), slots.tracer_aval.get(result)) };
        match (val, aval) {
            (Some(literal), Some(aval)) => {
                let number = from.literal_tracer(result);
                if let Some(index) = from.part.own_literal(&literal) {
                    return Ok(Self::OwnLiteral(index, number));
                }
                Ok(Self::Literal(literal.unbind(), aval.unbind(), number))
            }
            _ => Err(FOREIGN_TRACER),
        }
    }

    /// Whether another recording returns the same.
    pub fn agrees(&self, py: Python<'_>, other: &Self, same: Same<'_>) -> bool {
        match (self, other) {
            (Self::Arg(a), Self::Arg(b))
            | (Self::Out(a), Self::Out(b))
            | (Self::Transformed(a), Self::Transformed(b))
            | (Self::LiteralArg(a), Self::LiteralArg(b))
            | (Self::Enclosing(a), Self::Enclosing(b))
            | (Self::Constant(a), Self::Constant(b)) => a == b,
            (Self::Tangent(one, a), Self::Tangent(other, b))
            | (Self::OwnLiteral(a, one), Self::OwnLiteral(b, other)) => (one, a) == (other, b),
            (Self::Literal(a, aval, one), Self::Literal(b, other, another)) => {
                one == another
                    && same_literal(a.bind(py), b.bind(py)).unwrap_or(false)
                    && same(aval.bind(py), other.bind(py))
            }
            (Self::Object(a), Self::Object(b)) => same(a.bind(py), b.bind(py)),
            (Self::Tuple(a), Self::Tuple(b)) | (Self::List(a), Self::List(b)) => {
                all_agree(py, a, b, same)
            }
            (Self::Dict(a), Self::Dict(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|((key, a), (other, b))| {
                        same(key.bind(py), other.bind(py)) && a.agrees(py, b, same)
                    })
            }
            (Self::Named(class, a), Self::Named(other, b)) => {
                class.is(other) && all_agree(py, a, b, same)
            }
            _ => false,
        }
    }

    fn any(&self, of: &impl Fn(&Self) -> bool) -> bool {
        of(self)
            || match self {
                Self::Tuple(items) | Self::List(items) | Self::Named(_, items) => {
                    items.iter().any(|item| item.any(of))
                }
                Self::Dict(items) => items.iter().any(|(_, item)| item.any(of)),
                _ => false,
            }
    }

    /// Whether the result has a tracer at all.
    pub fn is_traced(&self) -> bool {
        let container = |recipe: &Self| {
            matches!(recipe, Self::Tuple(_) | Self::List(_) | Self::Named(..) | Self::Dict(_))
        };
        self.any(&|recipe| !container(recipe) && !matches!(recipe, Self::Object(_)))
    }

    /// Marks the outputs that the result needs tracers of.
    pub fn outs(&self, needed: &mut Needed) {
        match self {
            Self::Out(index) if !needed.outs.contains(index) => needed.outs.push(*index),
            Self::Tangent(level, index) => needed.tangent(*level, *index),
            Self::Tuple(items) | Self::List(items) | Self::Named(_, items) => {
                for item in items {
                    item.outs(needed);
                }
            }
            Self::Dict(items) => {
                for (_, item) in items {
                    item.outs(needed);
                }
            }
            _ => {}
        }
    }

    /// Makes the result.
    ///
    /// # Errors
    /// Out of memory.
    pub fn make<'py>(&self, from: &Made<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = from.trace.py();
        let all = |items: &[Self]| -> PyResult<Vec<_>> {
            items.iter().map(|item| item.make(from)).collect()
        };
        let tracer = |outs: &[(usize, Bound<'py, PyAny>)], index: usize| {
            let found = outs.iter().find(|(out, _)| *out == index);
            found
                .map(|(_, tracer)| tracer.clone())
                .ok_or_else(|| PyRuntimeError::new_err("a result without a tracer"))
        };
        match self {
            Self::Arg(index) => {
                // SAFETY: an argument of the call under way.
                Ok(unsafe { Bound::from_borrowed_ptr(py, from.call.traced[*index]) })
            }
            Self::LiteralArg(index) => {
                // SAFETY: as above.
                Ok(unsafe { Bound::from_borrowed_ptr(py, from.call.literals[*index]) })
            }
            Self::Enclosing(index) => {
                // SAFETY: as above.
                Ok(unsafe { Bound::from_borrowed_ptr(py, from.call.enclosing[*index]) })
            }
            Self::Out(index) => tracer(from.outs, *index),
            Self::Tangent(level, index) => {
                let tangents = from.tangents.borrow();
                let of_level = tangents.iter().find(|(known, _)| known == level);
                tracer(of_level.map_or(&[], |(_, tracers)| tracers), *index)
            }
            Self::Transformed(number) => from.transformed(*number),
            Self::Constant(index) => from.constant(*index),
            Self::OwnLiteral(index, number) => from.own_literal(*index, *number),
            Self::Literal(literal, _, number) => from.literal(literal.bind(py), *number),
            Self::Object(object) => Ok(object.bind(py).clone()),
            Self::Tuple(items) => Ok(PyTuple::new(py, all(items)?)?.into_any()),
            Self::List(items) => Ok(PyList::new(py, all(items)?)?.into_any()),
            Self::Dict(items) => {
                let dict = PyDict::new(py);
                for (key, item) in items {
                    dict.set_item(key, item.make(from)?)?;
                }
                Ok(dict.into_any())
            }
            Self::Named(class, items) => new_named(class.bind(py), &PyTuple::new(py, all(items)?)?),
        }
    }
}
