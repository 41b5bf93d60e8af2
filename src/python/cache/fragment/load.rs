//! What `save.rs` wrote of a call, for another one with an equal key.
//!
//! Whatever the bytes are, places are compared with what the call has, and with what was read before.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use smallvec::SmallVec;

use crate::expand::{Fragment, Operand, Template};

use crate::python::cache::fragment::read_part::row;
use crate::python::cache::fragment::recorded::{
    Captured, EquationObjects, Part, Recorded, Rows, Scope,
};
use crate::python::cache::fragment::result::{Recipe, TransformedRecipe};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::canonical::canonical;
use crate::python::cache::key::transformations::Stack;
use crate::python::cache::programs::custom_rules::RegeneratedRule;
use crate::python::cache::programs::params::FragmentParams;
use crate::python::cache::programs::references::References;
use crate::python::cache::programs::stored_rules;
use crate::python::jax::names::Jax;
use crate::python::jax::world::owns_primitive;
use crate::python::store::pieces::Reading;
use crate::python::trace::abstract_eval::PrimitiveInfo;

/// Deeper nesting of results than this is not read.
const MAX_DEPTH: usize = 64;
/// More tracers of literals than this no call has.
const MAX_NUMBER: usize = 1 << 16;

/// Reads what a call appends. `context` is that of the configuration.
///
/// # Errors
/// The bytes say nothing that the call could append.
pub fn load<'py>(
    reading: &mut Reading<'_, 'py>,
    jax: &Jax,
    context: &Bound<'py, PyAny>,
    call: &Call,
    stack: Option<&Stack>,
) -> PyResult<Recorded> {
    let references = References::default();
    let mut reader = Reader { reading, jax, context, call, stack, references, outs: Vec::new() };
    let part = reader.part(call.args.len(), None)?;
    reader.outs.push((usize::MAX, part.out_rows.len()));
    let tangents = reader.list(|reader| {
        let level = reader.differentiation()?;
        let part = reader.part(call.tangents_of(level).len(), Some(&part))?;
        reader.outs.push((level, part.out_rows.len()));
        Ok((level, part))
    })?;
    let mut transformed = Vec::new();
    let len = reader.reading.number(MAX_NUMBER, "tracer")?;
    for _ in 0..len {
        let recipe = reader.transformed(&part, transformed.len())?;
        transformed.push(recipe);
    }
    for (captured, _) in tangents.iter().flat_map(|(_, part)| &part.consts) {
        if matches!(captured, Captured::Transformed(place) if *place >= transformed.len()) {
            return Err(reader.reading.error("a tracer that is not there"));
        }
    }
    let recipe = reader.recipe(&part, transformed.len(), 0)?;
    let structured_residuals = reader.list(|reader| {
        let level = reader.differentiation()?;
        Ok((level, reader.recipe(&part, transformed.len(), 0)?))
    })?;
    let tangents = SmallVec::from_vec(tangents);
    Recorded::new(part, tangents, recipe, transformed, structured_residuals)
        .map_err(|_| reader.reading.error("an output that nobody needs"))
}

struct Reader<'r, 'p, 'py> {
    reading: &'r mut Reading<'p, 'py>,
    jax: &'r Jax,
    context: &'r Bound<'py, PyAny>,
    call: &'r Call,
    stack: Option<&'r Stack>,
    references: References<'py>,
    /// How many outputs the equations of each level have.
    outs: Vec<(usize, usize)>,
}

impl<'py> Reader<'_, '_, 'py> {
    fn py(&self) -> Python<'py> {
        self.context.py()
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> PyResult<T>) -> PyResult<Vec<T>> {
        let len = self.reading.number(MAX_NUMBER, "length")?;
        (0..len).map(|_| item(self)).collect()
    }

    fn flag(&mut self) -> PyResult<bool> {
        Ok(self.place(2)? == 1)
    }

    fn place(&mut self, len: usize) -> PyResult<usize> {
        self.reading.number(len, "place")
    }

    /// The level of a differentiation.
    fn differentiation(&mut self) -> PyResult<usize> {
        let levels = self.stack.map_or(0, |stack| stack.transformations.len());
        let level = self.reading.number(levels, "level")?;
        match self.stack.and_then(|stack| stack.linearization(level)) {
            Some(_) => Ok(level),
            None => Err(self.reading.error("a level without a program of tangents")),
        }
    }

    fn num_outs(&self, level: usize) -> usize {
        self.outs.iter().find(|(known, _)| *known == level).map_or(0, |&(_, outs)| outs)
    }

    /// An object of a class.
    fn instance(&mut self, class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.reading.object()?;
        if object.get_type().is(class) {
            Ok(object)
        } else {
            Err(self.reading.error("an object of another class"))
        }
    }

    fn aval(&mut self) -> PyResult<Bound<'py, PyAny>> {
        self.instance(self.jax.shaped_array_type.bind(self.py()))
    }

    fn literal(&mut self) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let value = self.reading.value()?;
        let aval = self.aval()?;
        Ok((self.jax.new_literal(&value, &aval)?, aval))
    }

    /// What is appended to one program; to that of tangents where `primal` is what is appended to the one of
    /// primal values.
    fn part(&mut self, num_args: usize, primal: Option<&Part>) -> PyResult<Part> {
        let py = self.py();
        let types = self.list(|reader| Ok(reader.aval()?.unbind()))?;
        let literals = self.list(|reader| {
            let given = reader.reading.optional(reader.call.literals.len(), "literal")?;
            Ok((reader.literal()?.0.unbind(), given))
        })?;
        let consts = self.list(|reader| {
            let captured = reader.captured(primal)?;
            Ok((captured, reader.aval()?.unbind()))
        })?;
        let scopes = self.list(|reader| {
            let (has_stack, is_whole) = (reader.flag()?, reader.flag()?);
            let name_stack = if has_stack {
                let class = reader.jax.empty_name_stack.bind(py).get_type();
                Some(canonical(&reader.instance(&class)?)?.unbind())
            } else {
                None
            };
            Ok(Scope { name_stack, is_whole, traceback: None })
        })?;
        if self.place(MAX_NUMBER)? != num_args {
            return Err(self.reading.error("another number of arguments"));
        }
        let (mut equations, mut regenerated) = (Vec::new(), Vec::new());
        let templates = self.list(|reader| {
            let (equation, template, rule) = reader.equation(types.len(), scopes.len())?;
            regenerated.extend(rule.map(|rule| (equations.len(), rule)));
            equations.push(equation);
            Ok(template)
        })?;
        let lens = (row(num_args), row(literals.len()), row(consts.len()));
        let fragment = Fragment::new(templates, lens.0, lens.1, lens.2)
            .map_err(|error| self.reading.error(&error.to_string()))?;
        let rows = Rows { equations, types, literals, consts, scopes };
        let mut part = Part::new(self.jax, py, fragment, rows)?;
        part.regenerated = regenerated;
        Ok(part)
    }

    fn equation(
        &mut self,
        num_types: usize,
        num_scopes: usize,
    ) -> PyResult<(EquationObjects, Template, Option<RegeneratedRule>)> {
        let jax = self.jax;
        let primitive = self.reading.object()?;
        if !owns_primitive(jax, &primitive) {
            return Err(self.reading.error("an object that is no primitive of jax's"));
        }
        let (params, rule) = match self.place(3)? {
            0 => {
                let params = self.reading.object()?.cast_into_exact::<PyDict>();
                (params.map_err(|_| self.reading.error("params that are no dict"))?, None)
            }
            1 => (self.references.read(self.reading, jax, None)?, None),
            _ => {
                let params = stored_rules::load(self.reading, jax, self.context)?;
                let rule = RegeneratedRule::of_one(jax, &primitive, &params)?;
                let error = || self.reading.error("params that are not regenerated");
                (params, Some(rule.ok_or_else(error)?))
            }
        };
        let no_effects = self.flag()?.then(|| jax.no_effects.clone_ref(self.py()));
        let operands = self.list(|reader| {
            let kind = reader.place(4)?;
            let place = row(reader.place(u32::MAX as usize)?);
            Ok(match kind {
                0 => Operand::Arg(place),
                1 => Operand::Out(place),
                2 => Operand::Literal(place),
                _ => Operand::Const(place),
            })
        })?;
        let out_types = self.list(|reader| Ok(row(reader.place(num_types)?)))?;
        if out_types.len() != 1 && !PrimitiveInfo::of(jax, &primitive)?.multiple_results {
            return Err(self.reading.error("another number of results"));
        }
        let scope = row(self.place(num_scopes)?);
        let equation = EquationObjects {
            primitive: primitive.unbind(),
            params: FragmentParams::new(params),
            effects: None,
            on_operands: Vec::new(),
            no_effects,
            context: self.context.clone().unbind(),
        };
        let template = Template::new(operands.into(), out_types.into(), scope);
        Ok((equation, template, rule))
    }

    fn captured(&mut self, primal: Option<&Part>) -> PyResult<Captured> {
        let outs = primal.map_or(0, |part| part.out_rows.len());
        let own_literals = primal.map_or(0, |part| part.literals.len());
        let call = self.call;
        Ok(match self.place(8)? {
            0 => Captured::Enclosing(self.place(call.enclosing.len())?),
            1 => Captured::Constant(self.place(call.enclosing.len())?),
            2 => Captured::Arg(self.place(call.traced.len())?),
            3 => Captured::Out(self.place(outs)?),
            // Compared with the tracers once they are read.
            4 => Captured::Transformed(self.place(MAX_NUMBER)?),
            5 => Captured::LiteralArg(self.place(call.literals.len())?),
            6 => Captured::OwnLiteral(self.place(own_literals)?, self.place(MAX_NUMBER)?),
            _ => {
                let number = self.place(MAX_NUMBER)?;
                Captured::Literal(self.literal()?.0.unbind(), number)
            }
        })
    }

    /// The tracer of a transformation after `earlier` ones.
    fn transformed(&mut self, part: &Part, earlier: usize) -> PyResult<TransformedRecipe> {
        let levels = self.stack.map_or(0, |stack| stack.transformations.len());
        let level = self.place(levels)?;
        let aval = self.aval()?.unbind();
        let parts = self.recipes(part, earlier, 0)?;
        if parts.len() != 2 {
            return Err(self.reading.error("a tracer that has not two parts"));
        }
        Ok(TransformedRecipe { level, aval, parts: parts.into() })
    }

    fn recipes(&mut self, part: &Part, tracers: usize, depth: usize) -> PyResult<Vec<Recipe>> {
        self.list(|reader| reader.recipe(part, tracers, depth))
    }

    /// A result that may have the first `tracers` of transformations in it.
    fn recipe(&mut self, part: &Part, tracers: usize, depth: usize) -> PyResult<Recipe> {
        if depth == MAX_DEPTH {
            return Err(self.reading.error("a result is nested too deeply"));
        }
        let call = self.call;
        Ok(match self.place(14)? {
            0 => Recipe::Arg(self.place(call.traced.len())?),
            1 => Recipe::Out(self.place(part.out_rows.len())?),
            2 => {
                let level = self.differentiation()?;
                Recipe::Tangent(level, self.place(self.num_outs(level))?)
            }
            3 => Recipe::Transformed(self.place(tracers)?),
            4 => Recipe::LiteralArg(self.place(call.literals.len())?),
            5 => Recipe::Enclosing(self.place(call.enclosing.len())?),
            6 => Recipe::Constant(self.place(call.enclosing.len())?),
            7 => Recipe::OwnLiteral(self.place(part.literals.len())?, self.place(MAX_NUMBER)?),
            8 => {
                let number = self.place(MAX_NUMBER)?;
                let (literal, aval) = self.literal()?;
                Recipe::Literal(literal.unbind(), aval.unbind(), number)
            }
            9 => Recipe::Object(self.reading.value()?.unbind()),
            10 => Recipe::Tuple(self.recipes(part, tracers, depth + 1)?),
            11 => Recipe::List(self.recipes(part, tracers, depth + 1)?),
            12 => Recipe::Dict(self.list(|reader| {
                let key = reader.reading.value()?.unbind();
                Ok((key, reader.recipe(part, tracers, depth + 1)?))
            })?),
            _ => {
                let Ok(class) = self.reading.object()?.cast_into::<PyType>() else {
                    return Err(self.reading.error("a class that is none"));
                };
                Recipe::Named(class.unbind(), self.recipes(part, tracers, depth + 1)?)
            }
        })
    }
}
