//! What was recorded, with arrays of other sizes.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple};

use crate::python::cache::fragment::recorded::{
    Captured, EquationObjects, Part, Recorded, Rows, Scope,
};
use crate::python::cache::fragment::result::{Recipe, TransformedRecipe};
use crate::python::cache::programs::params::FragmentParams;
use crate::python::cache::reasons::Reason;
use crate::python::cache::shapes::{is_broadcast, is_pointwise_primitive};
use crate::python::jax::names::Jax;

/// Shapes, and those that stand for each of them, of the same ranks.
pub struct Sizes<'a, 'py> {
    pub from: &'a [Bound<'py, PyTuple>],
    pub to: &'a [Bound<'py, PyTuple>],
}

impl<'py> Sizes<'_, 'py> {
    /// The shape that stands for another; None where that is none of those.
    fn shape(&self, shape: &Bound<'py, PyAny>) -> PyResult<Option<&Bound<'py, PyTuple>>> {
        Ok(place_of(self.from, shape)?.and_then(|place| self.to.get(place)))
    }

    /// A type, with the shape that stands for its own. One without dimensions is what it was.
    fn aval(&self, aval: &Py<PyAny>, py: Python<'py>) -> PyResult<Py<PyAny>> {
        let aval = aval.bind(py);
        let shape = aval.getattr(intern!(py, "shape"))?;
        let Some(shape) = self.shape(&shape)? else { return Ok(aval.clone().unbind()) };
        let with = PyDict::new(py);
        with.set_item(intern!(py, "shape"), shape)?;
        Ok(aval.call_method(intern!(py, "update"), (), Some(&with))?.unbind())
    }
}

/// Which of some shapes a shape is.
///
/// # Errors
/// It cannot be compared.
pub fn place_of(
    shapes: &[Bound<'_, PyTuple>],
    shape: &Bound<'_, PyAny>,
) -> PyResult<Option<usize>> {
    for (place, known) in shapes.iter().enumerate() {
        if known.eq(shape)? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Whether a type is of an array without dimensions, or with one of some shapes.
fn is_of(aval: &Bound<'_, PyAny>, shapes: &[Bound<'_, PyTuple>]) -> PyResult<bool> {
    let shape = aval.getattr(intern!(aval.py(), "shape"))?;
    Ok(shape.len()? == 0 || place_of(shapes, &shape)?.is_some())
}

impl Recorded {
    /// Whether it is the same for arrays of whatever sizes, but for the types: those that it has are without
    /// dimensions, or of the shapes of the call.
    ///
    /// # Errors
    /// A type cannot be read.
    pub fn is_pointwise(&self, shapes: &[Bound<'_, PyTuple>]) -> PyResult<bool> {
        let Some(first) = shapes.first() else { return Ok(false) };
        let py = first.py();
        let mut residuals = self.structured_residuals.iter();
        if self.programs.is_some() || !residuals.all(|(_, recipe)| is_of_values(py, recipe)) {
            return Ok(false);
        }
        for part in self.parts() {
            if !part.is_pointwise(shapes)? {
                return Ok(false);
            }
        }
        for recipe in &self.transformed {
            if !is_of(recipe.aval.bind(py), shapes)?
                || !recipe.parts.iter().all(|part| is_of_values(py, part))
            {
                return Ok(false);
            }
        }
        Ok(is_of_values(py, &self.recipe))
    }

    /// The same with other sizes.
    ///
    /// # Errors
    /// Out of memory.
    pub fn resized<'py>(
        &self,
        jax: &Jax,
        py: Python<'py>,
        sizes: &Sizes<'_, 'py>,
    ) -> PyResult<Self> {
        let part = self.part.resized(jax, py, sizes)?;
        let tangents = self.tangents.iter();
        let tangents = tangents.map(|(level, part)| Ok((*level, part.resized(jax, py, sizes)?)));
        let tangents = tangents.collect::<PyResult<_>>()?;
        let transformed = self.transformed.iter().map(|recipe| {
            let aval = sizes.aval(&recipe.aval, py)?;
            let parts = recipe.parts.iter().map(|part| copied(part, py)).collect();
            Ok(TransformedRecipe { level: recipe.level, aval, parts })
        });
        let transformed = transformed.collect::<PyResult<_>>()?;
        let residuals = self.structured_residuals.iter();
        let residuals = residuals.map(|(level, recipe)| (*level, copied(recipe, py))).collect();
        let recipe = copied(&self.recipe, py);
        Self::new(part, tangents, recipe, transformed, residuals).map_err(refused)
    }
}

fn refused(reason: Reason) -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err(reason)
}

/// Whether a result is made of traced values, None, and numbers: of which dimension is mapped.
fn is_of_values(py: Python<'_>, recipe: &Recipe) -> bool {
    match recipe {
        Recipe::Object(object) => {
            let object = object.bind(py);
            object.is_none() || object.cast_exact::<PyInt>().is_ok()
        }
        Recipe::List(_) | Recipe::Dict(_) | Recipe::Named(..) => false,
        Recipe::Tuple(items) => items.iter().all(|item| is_of_values(py, item)),
        _ => true,
    }
}

fn copied(recipe: &Recipe, py: Python<'_>) -> Recipe {
    let all = |items: &[Recipe]| items.iter().map(|item| copied(item, py)).collect();
    match recipe {
        Recipe::Arg(place) => Recipe::Arg(*place),
        Recipe::Out(place) => Recipe::Out(*place),
        Recipe::Tangent(level, place) => Recipe::Tangent(*level, *place),
        Recipe::Transformed(place) => Recipe::Transformed(*place),
        Recipe::LiteralArg(place) => Recipe::LiteralArg(*place),
        Recipe::Enclosing(place) => Recipe::Enclosing(*place),
        Recipe::Constant(place) => Recipe::Constant(*place),
        Recipe::OwnLiteral(place, number) => Recipe::OwnLiteral(*place, *number),
        Recipe::Literal(literal, aval, number) => {
            Recipe::Literal(literal.clone_ref(py), aval.clone_ref(py), *number)
        }
        Recipe::Object(object) => Recipe::Object(object.clone_ref(py)),
        Recipe::Tuple(items) => Recipe::Tuple(all(items)),
        Recipe::List(items) => Recipe::List(all(items)),
        Recipe::Dict(items) => {
            let item = |(key, item): &(Py<PyAny>, Recipe)| (key.clone_ref(py), copied(item, py));
            Recipe::Dict(items.iter().map(item).collect())
        }
        Recipe::Named(class, items) => Recipe::Named(class.clone_ref(py), all(items)),
    }
}

impl Part {
    fn is_pointwise(&self, shapes: &[Bound<'_, PyTuple>]) -> PyResult<bool> {
        let Some(first) = shapes.first() else { return Ok(false) };
        let py = first.py();
        let is_more = !self.regenerated.is_empty() || !self.plans.is_empty() || self.is_on_operands;
        if is_more || self.scopes.iter().any(|scope| scope.traceback.is_some()) {
            return Ok(false);
        }
        for equation in &self.equations {
            if !equation.is_pointwise(shapes)? {
                return Ok(false);
            }
        }
        let of_consts = self.consts.iter().map(|(captured, aval)| {
            (!matches!(captured, Captured::Value(_) | Captured::Literal(..))).then_some(aval)
        });
        for aval in self.types.iter().map(Some).chain(of_consts) {
            match aval {
                Some(aval) if is_of(aval.bind(py), shapes)? => {}
                _ => return Ok(false),
            }
        }
        for (aval, _) in &self.literal_types {
            if !is_of(aval.bind(py), &[])? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn resized<'py>(&self, jax: &Jax, py: Python<'py>, sizes: &Sizes<'_, 'py>) -> PyResult<Self> {
        let types = self.types.iter().map(|aval| sizes.aval(aval, py));
        let equations = self.equations.iter().map(|equation| equation.resized(py, sizes));
        let consts = self
            .consts
            .iter()
            .map(|(captured, aval)| Ok::<_, PyErr>((captured.copied(py), sizes.aval(aval, py)?)));
        let literal =
            |(literal, given): &(Py<PyAny>, Option<usize>)| (literal.clone_ref(py), *given);
        let scope = |scope: &Scope| Scope {
            name_stack: scope.name_stack.as_ref().map(|stack| stack.clone_ref(py)),
            is_whole: scope.is_whole,
            traceback: scope.traceback.as_ref().map(|traceback| traceback.clone_ref(py)),
        };
        let rows = Rows {
            equations: equations.collect::<PyResult<_>>()?,
            types: types.collect::<PyResult<_>>()?,
            literals: self.literals.iter().map(literal).collect(),
            consts: consts.collect::<PyResult<_>>()?,
            scopes: self.scopes.iter().map(scope).collect(),
        };
        Self::new(jax, py, self.fragment.clone(), rows)
    }
}

impl Captured {
    fn copied(&self, py: Python<'_>) -> Self {
        match self {
            Self::Value(value) => Self::Value(value.clone_ref(py)),
            Self::Enclosing(place) => Self::Enclosing(*place),
            Self::Constant(place) => Self::Constant(*place),
            Self::Arg(place) => Self::Arg(*place),
            Self::Out(place) => Self::Out(*place),
            Self::Transformed(place) => Self::Transformed(*place),
            Self::LiteralArg(place) => Self::LiteralArg(*place),
            Self::OwnLiteral(place, number) => Self::OwnLiteral(*place, *number),
            Self::Literal(literal, number) => Self::Literal(literal.clone_ref(py), *number),
        }
    }
}

impl EquationObjects {
    /// Whether the equation says nothing of sizes, but for a shape of the call that an operand without dimensions is
    /// brought to.
    fn is_pointwise(&self, shapes: &[Bound<'_, PyTuple>]) -> PyResult<bool> {
        let Some(first) = shapes.first() else { return Ok(false) };
        let py = first.py();
        if self.effects.is_some() || self.is_on_operands() {
            return Ok(false);
        }
        let params = self.params.bind(py);
        let param = |name: &str| params.get_item(name);
        if param("sharding")?.is_some_and(|sharding| !sharding.is_none()) {
            return Ok(false);
        }
        let primitive = self.primitive.bind(py);
        if !is_broadcast(primitive) {
            return Ok(is_pointwise_primitive(primitive));
        }
        let dimensions = param("broadcast_dimensions")?;
        let is_of_scalar = dimensions.is_some_and(|dims| dims.len().is_ok_and(|len| len == 0));
        let Some(shape) = param("shape")? else { return Ok(false) };
        Ok(is_of_scalar && place_of(shapes, &shape)?.is_some())
    }

    fn resized<'py>(&self, py: Python<'py>, sizes: &Sizes<'_, 'py>) -> PyResult<Self> {
        let mut params = self.params.bind(py).clone();
        if is_broadcast(self.primitive.bind(py))
            && let Some(shape) = params.get_item(intern!(py, "shape"))?
            && let Some(shape) = sizes.shape(&shape)?
        {
            params = params.copy()?;
            params.set_item(intern!(py, "shape"), shape)?;
        }
        Ok(Self {
            primitive: self.primitive.clone_ref(py),
            params: FragmentParams::new(params),
            effects: None,
            on_operands: Vec::new(),
            no_effects: self.no_effects.as_ref().map(|none| none.clone_ref(py)),
            context: self.context.clone_ref(py),
        })
    }
}
