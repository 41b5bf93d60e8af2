//! What a call appended and returned, as bytes: `load.rs` reads what is written here, in the same order.

use pyo3::prelude::*;

use crate::expand::Operand;

use crate::python::cache::fragment::recorded::{Captured, EquationObjects, Part, Recorded};
use crate::python::cache::fragment::result::{Recipe, TransformedRecipe};
use crate::python::cache::programs::references::{References, are_repeated};
use crate::python::cache::programs::requests::{is_requested, rule_of};
use crate::python::cache::programs::stored_rules;
use crate::python::cache::rules::has_programs;
use crate::python::jax::names::Jax;
use crate::python::jax::world::owns_primitive;
use crate::python::store::pieces::{Form, Piece};

/// Whether what was recorded says the same in another process: there are no arrays, no places in the
/// user's code, and no programs but of jax's own jits where `with_programs` says so. `context` is that of the
/// configuration, which all equations have.
pub fn is_lasting(
    jax: &Jax,
    context: &Bound<'_, PyAny>,
    recorded: &Recorded,
    with_programs: bool,
) -> bool {
    let lasts = |(equation, wording): (&EquationObjects, Wording)| {
        let has_form = wording == Wording::Form(Form::Content)
            || with_programs && is_made_again(jax, context, equation, wording);
        owns_primitive(jax, equation.primitive.bind(context.py()))
            && equation.effects.is_none()
            && !equation.is_on_operands()
            && equation.context.is(context)
            && equation.no_effects.as_ref().is_none_or(|none| none.is(&jax.no_effects))
            && has_form
    };
    recorded.parts().all(|part| {
        wordings(jax, context.py(), part).all(lasts)
            && part.scopes.iter().all(|scope| scope.traceback.is_none())
            && part.consts.iter().all(|(captured, _)| !matches!(captured, Captured::Value(_)))
    })
}

/// How the params of an equation are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wording {
    /// As one object.
    Form(Form),
    /// As those of an equation with a derivative rule, which jax makes anew at each call.
    Rule,
    /// With references to programs, each by how jax comes to it.
    References,
}

/// The equations of a part, each with how its params are written.
fn wordings<'p>(
    jax: &Jax,
    py: Python<'_>,
    part: &'p Part,
) -> impl Iterator<Item = (&'p EquationObjects, Wording)> {
    part.equations.iter().enumerate().map(move |(index, equation)| {
        let params = equation.params.bind(py);
        let wording = if part.regenerated.iter().any(|(other, _)| *other == index) {
            Wording::Rule
        } else if !has_programs(jax, params) {
            Wording::Form(Form::Content)
        } else if is_requested(jax, params) {
            Wording::Form(Form::Request)
        } else {
            Wording::References
        };
        (equation, wording)
    })
}

/// Whether jax makes the programs in params again when it is asked.
fn is_made_again(
    jax: &Jax,
    context: &Bound<'_, PyAny>,
    equation: &EquationObjects,
    wording: Wording,
) -> bool {
    let py = context.py();
    let (primitive, params) = (equation.primitive.bind(py), equation.params.bind(py));
    match wording {
        Wording::Rule => rule_of(jax, primitive, params).is_ok_and(|rule| rule.is_some()),
        Wording::Form(Form::Content | Form::Request) => is_requested(jax, params),
        Wording::References => are_repeated(jax, params),
    }
}

/// Writes what was recorded, which is lasting.
///
/// # Errors
/// Something in it has no form.
pub fn save<'py>(
    piece: &mut Piece<'_, '_, 'py>,
    jax: &Jax,
    py: Python<'py>,
    recorded: &Recorded,
) -> PyResult<()> {
    let references = References::default();
    let mut writer = Writer { piece, jax, py, references };
    writer.part(&recorded.part)?;
    writer.piece.number(recorded.tangents.len());
    for (level, part) in &recorded.tangents {
        writer.piece.number(*level);
        writer.part(part)?;
    }
    writer.piece.number(recorded.transformed.len());
    for recipe in &recorded.transformed {
        writer.transformed(recipe)?;
    }
    writer.recipe(&recorded.recipe)?;
    writer.piece.number(recorded.structured_residuals.len());
    for (level, recipe) in &recorded.structured_residuals {
        writer.piece.number(*level);
        writer.recipe(recipe)?;
    }
    Ok(())
}

struct Writer<'w, 's, 'a, 'py> {
    piece: &'w mut Piece<'s, 'a, 'py>,
    jax: &'w Jax,
    py: Python<'py>,
    references: References<'py>,
}

impl Writer<'_, '_, '_, '_> {
    fn object(&mut self, object: &Py<PyAny>) -> PyResult<()> {
        self.piece.object(object.bind(self.py))
    }

    fn numbers(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.piece.number(number);
        }
    }

    /// A jax `Literal`: its value and its type.
    fn literal(&mut self, literal: &Py<PyAny>) -> PyResult<()> {
        let (value, aval) = self.jax.parts_of_literal(literal.bind(self.py))?;
        self.piece.value(&value)?;
        self.piece.object(&aval)
    }

    fn part(&mut self, part: &Part) -> PyResult<()> {
        self.piece.number(part.types.len());
        for aval in &part.types {
            self.object(aval)?;
        }
        self.piece.number(part.literals.len());
        for (literal, given) in &part.literals {
            self.piece.optional(*given);
            // A replay has that of its own call.
            self.literal(literal)?;
        }
        self.piece.number(part.consts.len());
        for (captured, aval) in &part.consts {
            self.captured(captured)?;
            self.object(aval)?;
        }
        self.piece.number(part.scopes.len());
        for scope in &part.scopes {
            self.piece.number(usize::from(scope.name_stack.is_some()));
            self.piece.number(usize::from(scope.is_whole));
            if let Some(name_stack) = &scope.name_stack {
                self.object(name_stack)?;
            }
        }
        self.piece.number(part.fragment.num_args());
        self.piece.number(part.equations.len());
        let equations = wordings(self.jax, self.py, part);
        for (template, (equation, wording)) in part.fragment.templates().iter().zip(equations) {
            self.object(&equation.primitive)?;
            let params = equation.params.bind(self.py);
            match wording {
                Wording::Form(form) => {
                    self.piece.number(0);
                    self.piece.params(params, form)?;
                }
                Wording::References => {
                    self.piece.number(1);
                    self.references.write(self.piece, self.jax, params)?;
                }
                Wording::Rule => {
                    self.piece.number(2);
                    stored_rules::save(self.piece, self.jax, params)?;
                }
            }
            self.piece.number(usize::from(equation.no_effects.is_some()));
            self.piece.number(template.operands().len());
            for operand in template.operands() {
                let (kind, place) = match *operand {
                    Operand::Arg(place) => (0, place),
                    Operand::Out(place) => (1, place),
                    Operand::Literal(place) => (2, place),
                    Operand::Const(place) => (3, place),
                };
                self.numbers(&[kind, place as usize]);
            }
            self.piece.number(template.out_types().len());
            for &row in template.out_types() {
                self.piece.number(row as usize);
            }
            self.piece.number(template.scope() as usize);
        }
        Ok(())
    }

    fn captured(&mut self, captured: &Captured) -> PyResult<()> {
        match captured {
            // Not lasting.
            Captured::Value(_) => {}
            Captured::Enclosing(place) => self.numbers(&[0, *place]),
            Captured::Constant(place) => self.numbers(&[1, *place]),
            Captured::Arg(place) => self.numbers(&[2, *place]),
            Captured::Out(place) => self.numbers(&[3, *place]),
            Captured::Transformed(place) => self.numbers(&[4, *place]),
            Captured::LiteralArg(place) => self.numbers(&[5, *place]),
            Captured::OwnLiteral(place, number) => self.numbers(&[6, *place, *number]),
            Captured::Literal(literal, number) => {
                self.numbers(&[7, *number]);
                return self.literal(literal);
            }
        }
        Ok(())
    }

    fn transformed(&mut self, recipe: &TransformedRecipe) -> PyResult<()> {
        self.piece.number(recipe.level);
        self.object(&recipe.aval)?;
        self.recipes(&recipe.parts)
    }

    fn recipes(&mut self, recipes: &[Recipe]) -> PyResult<()> {
        self.piece.number(recipes.len());
        recipes.iter().try_for_each(|recipe| self.recipe(recipe))
    }

    fn recipe(&mut self, recipe: &Recipe) -> PyResult<()> {
        match recipe {
            Recipe::Arg(place) => self.numbers(&[0, *place]),
            Recipe::Out(place) => self.numbers(&[1, *place]),
            Recipe::Tangent(level, place) => self.numbers(&[2, *level, *place]),
            Recipe::Transformed(place) => self.numbers(&[3, *place]),
            Recipe::LiteralArg(place) => self.numbers(&[4, *place]),
            Recipe::Enclosing(place) => self.numbers(&[5, *place]),
            Recipe::Constant(place) => self.numbers(&[6, *place]),
            Recipe::OwnLiteral(place, number) => self.numbers(&[7, *place, *number]),
            Recipe::Literal(literal, _, number) => {
                self.numbers(&[8, *number]);
                self.literal(literal)?;
            }
            Recipe::Object(object) => {
                self.piece.number(9);
                self.piece.value(object.bind(self.py))?;
            }
            Recipe::Tuple(items) => {
                self.piece.number(10);
                self.recipes(items)?;
            }
            Recipe::List(items) => {
                self.piece.number(11);
                self.recipes(items)?;
            }
            Recipe::Dict(items) => {
                self.numbers(&[12, items.len()]);
                for (key, item) in items {
                    self.piece.value(key.bind(self.py))?;
                    self.recipe(item)?;
                }
            }
            Recipe::Named(class, items) => {
                self.piece.number(13);
                self.piece.object(class.bind(self.py))?;
                self.recipes(items)?;
            }
        }
        Ok(())
    }
}
