//! Whether two recordings of a call agree.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use crate::python::cache::fragment::recorded::{
    Captured, EquationObjects, OnOperand, Part, Recorded,
};
use crate::python::cache::programs::compare::Comparison;
use crate::python::cache::programs::custom_rules::RegeneratedRule;
use crate::python::cache::programs::references::are_repeated;
use crate::python::cache::programs::requests::{is_requested, rule_of};
use crate::python::cpython::native::with_bytes;
use crate::python::jax::names::Jax;
use crate::python::jax::values::{typed_equal, typed_hash};

/// What two recordings of a call may differ in.
pub struct Tolerance<'a> {
    pub jax: &'a Jax,
    /// Derivative rules of jax's that are traced at each call.
    pub rules: bool,
    /// What was made of other programs.
    pub programs: Option<&'a Comparison<'a>>,
}

impl Recorded {
    /// Whether no second recording has to show that its objects are the same at every call. Where `asks` says so,
    /// jax is asked for those that are new at each call.
    ///
    /// # Errors
    /// A signal handler raises.
    pub fn is_confirmed(&mut self, jax: &Jax, py: Python<'_>, asks: bool) -> PyResult<bool> {
        for part in self.parts_mut() {
            if !part.is_confirmed(jax, py, asks)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether another recording of the same call agrees. Params that are new objects in each
    /// are noted to be regenerated, where `tolerance` says that they may.
    pub fn agrees(&mut self, py: Python<'_>, other: &Self, tolerance: &Tolerance<'_>) -> bool {
        let mut parts = self.parts_mut();
        let mut agree = true;
        for other in other.parts() {
            agree &= parts.next().is_some_and(|part| part.agrees(py, other, tolerance));
        }
        agree && parts.next().is_none()
    }
}

impl Part {
    fn is_confirmed(&mut self, jax: &Jax, py: Python<'_>, asks: bool) -> PyResult<bool> {
        if self.consts.iter().any(|(captured, _)| matches!(captured, Captured::Value(_))) {
            return Ok(false);
        }
        let mut regenerated = Vec::new();
        for (index, equation) in self.equations.iter().enumerate() {
            let params = equation.params.bind(py);
            let is_plain = params.values().iter().all(|value| typed_hash(&value).is_some());
            // What jax has for a call of its own jit is the same at every call.
            if is_plain || is_requested(jax, params) || asks && are_repeated(jax, params) {
                continue;
            }
            let rule = if asks { rule_of(jax, equation.primitive.bind(py), params)? } else { None };
            let Some(rule) = rule else { return Ok(false) };
            regenerated.push((index, rule));
        }
        self.regenerated = regenerated;
        Ok(true)
    }

    fn agrees(&mut self, py: Python<'_>, other: &Self, tolerance: &Tolerance<'_>) -> bool {
        let jax = tolerance.jax;
        let same = |a: &Py<PyAny>, b: &Py<PyAny>| a.is(b);
        let (mut regenerated, mut plans) = (Vec::new(), Vec::new());
        let agrees = self.fragment == other.fragment
            && self.types.iter().zip(&other.types).all(|(a, b)| same(a, b))
            && self.literals.iter().zip(&other.literals).all(|((a, given_a), (b, given_b))| {
                given_a == given_b && same_literal(a.bind(py), b.bind(py)).unwrap_or(false)
            })
            && self.consts.iter().zip(&other.consts).all(|((a, _), (b, _))| a.agrees(py, b))
            && self.equations.iter().zip(&other.equations).enumerate().all(|(index, (a, b))| {
                if !same(&a.primitive, &b.primitive)
                    || !same(&a.context, &b.context)
                    || !a.has_effects_of(py, b)
                {
                    return false;
                }
                let (params, others) = (a.params.bind(py), b.params.bind(py));
                if same_params(jax, params, others) && tolerance.programs.is_none() {
                    return true;
                }
                if let Some(plan) = tolerance
                    .programs
                    .and_then(|both| both.plan(a.primitive.bind(py), others, params))
                {
                    plans.push((index, plan));
                    return true;
                }
                let primitive = a.primitive.bind(py);
                let found = if tolerance.rules {
                    RegeneratedRule::of(jax, primitive, others, params)
                } else {
                    Ok(None)
                };
                match found {
                    Ok(Some(new)) => {
                        regenerated.push((index, new));
                        true
                    }
                    _ => false,
                }
            });
        self.regenerated = regenerated;
        self.plans = plans;
        agrees
    }
}

impl EquationObjects {
    /// Whether this has the same effects on operands as another equation.
    pub fn has_effects_of(&self, py: Python<'_>, other: &Self) -> bool {
        let places = |equation: &Self| {
            let all = equation.on_operands.iter();
            let of =
                |(effect, operand): &OnOperand| (effect.bind(py).get_type_ptr() as usize, *operand);
            let mut places: SmallVec<[_; 4]> = all.map(of).collect();
            places.sort_unstable();
            places
        };
        places(self) == places(other)
    }
}

impl Captured {
    /// Whether another recording of the call captures the same.
    pub fn agrees(&self, py: Python<'_>, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(a), Self::Value(b)) => a.is(b),
            (Self::Arg(a), Self::Arg(b))
            | (Self::Out(a), Self::Out(b))
            | (Self::Transformed(a), Self::Transformed(b))
            | (Self::Enclosing(a), Self::Enclosing(b))
            | (Self::Constant(a), Self::Constant(b))
            | (Self::LiteralArg(a), Self::LiteralArg(b)) => a == b,
            (Self::OwnLiteral(a, tracer), Self::OwnLiteral(b, other)) => (a, tracer) == (b, other),
            (Self::Literal(a, tracer), Self::Literal(b, other)) => {
                tracer == other && same_literal(a.bind(py), b.bind(py)).unwrap_or(false)
            }
            _ => false,
        }
    }
}

/// Whether two of jax's literals are equal.
///
/// # Errors
/// They are none.
pub fn same_literal(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<bool> {
    if a.is(b) {
        return Ok(true);
    }
    let (value_a, value_b) = (a.getattr("val")?, b.getattr("val")?);
    if !a.getattr("aval")?.is(&b.getattr("aval")?) || !value_a.get_type().is(value_b.get_type()) {
        return Ok(false);
    }
    let bits =
        |value: &Bound<'_, PyAny>| with_bytes(value.as_ptr(), SmallVec::<[u8; 16]>::from_slice);
    match (bits(&value_a), bits(&value_b)) {
        (Some(a), Some(b)) => Ok(a == b),
        _ => Ok(value_a.repr()?.to_str()? == value_b.repr()?.to_str()?),
    }
}

fn same_params(jax: &Jax, a: &Bound<'_, PyDict>, b: &Bound<'_, PyDict>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b.iter()).all(|((name_a, value_a), (name_b, value_b))| {
            typed_equal(&name_a, &name_b) && same_value(jax, &value_a, &value_b)
        })
}

/// The same object, or one that no program can tell from it.
pub fn same_value(jax: &Jax, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    if a.is(b) || (typed_hash(a).is_some() && typed_equal(a, b)) {
        return true;
    }
    if !a.get_type().is(b.get_type()) {
        return false;
    }
    if let (Ok(a), Ok(b)) = (a.cast::<PyTuple>(), b.cast::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_value(jax, &a, &b));
    }
    if jax.immutable_types.bind(a.py()).contains(a.get_type()).unwrap_or(false) {
        return a.eq(b).unwrap_or(false);
    }
    // A jaxpr's identity counts, and a function may have anything in its closure.
    let py = a.py();
    let identity_counts = a.is_callable()
        || a.is_instance(jax.jaxpr_type.bind(py)).unwrap_or(true)
        || a.is_instance(jax.closed_jaxpr_type.bind(py)).unwrap_or(true)
        || a.hash().is_err();
    !identity_counts && a.eq(b).unwrap_or(false)
}
