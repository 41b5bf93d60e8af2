//! What a call returned, as a recipe: traced values by where they come from, all else as it was.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{Atom, Var};

use super::super::jax::Jax;
use super::super::params::typed_hash;
use super::super::source::SourceRef;
use super::super::tracer::{Traced as Tracer, new_literal_tracer, traced};
use super::encode::{Call, Reason};
use super::lifted::Lifted;
use super::record::Part;

pub const UNKNOWN_RESULT: Reason = "result of an unknown class";
pub const OUTER_VALUE: Reason = "value of the enclosing trace";

const MAX_DEPTH: u32 = 64;

/// How to make a result again.
pub enum Recipe {
    /// The traced argument itself.
    Arg(usize),
    /// The output of an equation, counted over all of the fragment; one tracer each.
    Out(usize),
    /// As `Out`, of the tangents' fragment.
    Tangent(usize),
    /// A tracer of the differentiation: its primal and its tangent.
    Lifted(Box<[Recipe; 2]>),
    /// The argument that is a tracer of a literal.
    LiteralArg(usize),
    /// A new tracer of a literal of the equations.
    OwnLiteral(usize),
    /// A new tracer of a literal that is equal to this, and its aval.
    Literal(Py<PyAny>, Py<PyAny>),
    /// An immutable object.
    Object(Py<PyAny>),
    Tuple(Vec<Recipe>),
    List(Vec<Recipe>),
    Dict(Vec<(Py<PyAny>, Recipe)>),
    /// A named tuple of a class.
    Named(Py<PyType>, Vec<Recipe>),
}

/// Where the results of a call may come from.
pub struct Origin<'a, 'py> {
    pub jax: &'a Jax,
    pub trace: &'a Bound<'py, PyAny>,
    pub lifted: Option<&'a Lifted>,
    pub call: &'a Call,
    pub part: &'a Part,
    pub outs: &'a FxHashMap<Var, usize>,
    pub tangent_outs: &'a FxHashMap<Var, usize>,
}

/// What the results of a call are made of.
pub struct Made<'a, 'py> {
    pub jax: &'a Jax,
    pub trace: &'a Bound<'py, PyAny>,
    pub lifted: Option<&'a Lifted>,
    pub call: &'a Call,
    /// The tracers of the outputs that are needed.
    pub outs: &'a [(usize, Bound<'py, PyAny>)],
    pub tangents: &'a [(usize, Bound<'py, PyAny>)],
    /// The literals of the equations.
    pub literals: &'a dyn Fn(usize) -> PyResult<Bound<'py, PyAny>>,
    pub source: &'a SourceRef<'py>,
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
        match traced(py, from.jax, result.as_ptr(), from.trace.as_ptr()) {
            Some(Tracer::Variable(var)) => return Self::of_variable(from, result, var),
            Some(Tracer::Constant) => return Err(super::encode::CAPTURED_CONSTANT),
            Some(Tracer::Literal) => return Self::of_literal(from, result),
            Some(Tracer::Foreign) => return Err(super::encode::FOREIGN_TRACER),
            None => {}
        }
        if let Some(lifted) = from.lifted
            && let Some(parts) = lifted.parts(from.jax, result.as_ptr())
        {
            return Self::of_lifted(from, lifted, result, parts);
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
            return dict.iter().map(entry).collect::<Result<_, _>>().map(Self::Dict);
        }
        if let Ok(tuple) = result.cast::<PyTuple>() {
            // SAFETY: a type.
            if unsafe { super::encode::is_plain_namedtuple(class.as_type_ptr()) } {
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

    fn of_lifted(
        from: &Origin<'_, '_>,
        lifted: &Lifted,
        result: &Bound<'_, PyAny>,
        [primal, tangent]: [*mut ffi::PyObject; 2],
    ) -> Result<Self, Reason> {
        let (py, call) = (result.py(), from.call);
        let given = |object| call.traced.iter().position(|&arg| arg == object);
        if let Some(index) = given(result.as_ptr()) {
            return Ok(Self::Arg(index));
        }
        let Some(Tracer::Variable(var)) = traced(py, from.jax, primal, from.trace.as_ptr()) else {
            return Err(OUTER_VALUE);
        };
        // SAFETY: the result holds it.
        let primal = unsafe { Bound::from_borrowed_ptr(py, primal) };
        let primal = Self::of_variable(from, &primal, var)?;
        let tangent = match given(tangent) {
            Some(index) => Self::Arg(index),
            None => lifted
                .tangent_variable(py, from.jax, tangent)
                .and_then(|var| from.tangent_outs.get(&var).copied())
                .map(Self::Tangent)
                .ok_or(super::encode::TANGENT)?,
        };
        Ok(Self::Lifted(Box::new([primal, tangent])))
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
                if let Some(index) = from.part.own_literal(&literal) {
                    return Ok(Self::OwnLiteral(index));
                }
                Ok(Self::Literal(literal.unbind(), aval.unbind()))
            }
            _ => Err(super::encode::FOREIGN_TRACER),
        }
    }

    fn any(&self, of: &impl Fn(&Self) -> bool) -> bool {
        of(self)
            || match self {
                Self::Tuple(items) | Self::List(items) | Self::Named(_, items) => {
                    items.iter().any(|item| item.any(of))
                }
                Self::Dict(items) => items.iter().any(|(_, item)| item.any(of)),
                Self::Lifted(parts) => parts.iter().any(|part| part.any(of)),
                _ => false,
            }
    }

    /// Whether the result has a new tracer of a literal.
    pub fn has_literal(&self) -> bool {
        self.any(&|recipe| matches!(recipe, Self::Literal(..) | Self::OwnLiteral(_)))
    }

    /// Whether the result has a tracer at all.
    pub fn is_traced(&self) -> bool {
        let container = |recipe: &Self| {
            matches!(recipe, Self::Tuple(_) | Self::List(_) | Self::Named(..) | Self::Dict(_))
        };
        self.any(&|recipe| !container(recipe) && !matches!(recipe, Self::Object(_)))
    }

    /// Marks the outputs that the result needs tracers of, and those of the tangents' fragment.
    pub fn outs(&self, needed: &mut SmallVec<[usize; 4]>, tangents: &mut SmallVec<[usize; 4]>) {
        match self {
            Self::Out(index) if !needed.contains(index) => needed.push(*index),
            Self::Tangent(index) if !tangents.contains(index) => tangents.push(*index),
            Self::Lifted(parts) => {
                for part in &**parts {
                    part.outs(needed, tangents);
                }
            }
            Self::Tuple(items) | Self::List(items) | Self::Named(_, items) => {
                for item in items {
                    item.outs(needed, tangents);
                }
            }
            Self::Dict(items) => {
                for (_, item) in items {
                    item.outs(needed, tangents);
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
            Self::Out(index) => tracer(from.outs, *index),
            Self::Tangent(index) => tracer(from.tangents, *index),
            Self::Lifted(parts) => {
                let [primal, tangent] = &**parts;
                let lifted = from
                    .lifted
                    .ok_or_else(|| PyRuntimeError::new_err("a result under no differentiation"))?;
                lifted.new_tracer(from.jax, primal.make(from)?, tangent.make(from)?)
            }
            Self::OwnLiteral(index) => {
                let literal = (from.literals)(*index)?;
                let aval = literal.getattr(pyo3::intern!(py, "aval"))?;
                let source = from.source.to_object(from.jax)?;
                new_literal_tracer(from.jax, from.trace, literal, aval, source)
            }
            Self::Literal(literal, aval) => new_literal_tracer(
                from.jax,
                from.trace,
                from.jax.copy_literal(literal.bind(py))?,
                aval.bind(py).clone(),
                from.source.to_object(from.jax)?,
            ),
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
            Self::Named(class, items) => {
                let items = PyTuple::new(py, all(items)?)?;
                let args = PyTuple::new(py, [items])?;
                // SAFETY: a subclass of tuple; `tuple.__new__` makes an instance of any of them.
                unsafe {
                    let made = pyo3::ffi::PyTuple_Type.tp_new.map(|new| {
                        new(
                            class.as_ptr().cast(),
                            args.as_ptr(),
                            std::ptr::null_mut::<ffi::PyObject>(),
                        )
                    });
                    Bound::from_owned_ptr_or_err(py, made.unwrap_or(std::ptr::null_mut()))
                }
            }
        }
    }
}
