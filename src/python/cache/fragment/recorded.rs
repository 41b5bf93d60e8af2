//! What a call appended and returned, with its Python objects.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::expand::{Fragment, Operand, Template};

use crate::python::cache::fragment::result::{Needed, Recipe, TransformedRecipe};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::programs::custom_rules::RegeneratedRule;
use crate::python::cache::programs::decision::Programs;
use crate::python::cache::programs::instantiate::Instantiation;
use crate::python::cache::programs::params::FragmentParams;
use crate::python::cache::programs::plan::Plan;
use crate::python::cache::reasons::{KEPT_ELSEWHERE, OUTER_VALUE, Reason};
use crate::python::cache::store;
use crate::python::jax::avals::{AvalInfo, aval_info};
use crate::python::jax::names::Jax;
use crate::python::program::objects::literal_type;

/// What a call appends to each program, and returns.
pub struct Recorded {
    /// Unique in the process.
    pub number: u64,
    pub part: Part,
    /// What it appends to the tangents' programs under differentiations, with their level; those
    /// first that values of others are made of.
    pub tangents: SmallVec<[(usize, Part); 1]>,
    pub recipe: Recipe,
    /// The tracers of transformations among the results and the residuals.
    pub transformed: Vec<TransformedRecipe>,
    /// Outputs that have tracers: those that the result needs, and residuals.
    pub needed: Needed,
    /// What rules pass by, one each, with the level, from jax 0.11 on.
    pub structured_residuals: Vec<(usize, Recipe)>,
    /// The programs that the call had.
    pub programs: Option<Programs>,
}

/// A fragment with its Python objects.
pub struct Part {
    pub fragment: Fragment,
    pub equations: Vec<EquationObjects>,
    pub types: Vec<Py<PyAny>>,
    /// What was read of each of the types.
    pub type_infos: Vec<Arc<AvalInfo>>,
    /// Literals, each with the position of the argument that is a tracer of it.
    pub literals: Vec<(Py<PyAny>, Option<usize>)>,
    /// The type of each of the literals, and what was read of it.
    pub literal_types: Vec<(Py<PyAny>, Arc<AvalInfo>)>,
    /// Captured values, with their avals, in the order of their first use.
    pub consts: Vec<(Captured, Py<PyAny>)>,
    pub scopes: Vec<Scope>,
    /// Params that are regenerated at each call, by the position of the equation.
    pub regenerated: Vec<(usize, RegeneratedRule)>,
    /// Params that are regenerated for other programs, by the position of the equation.
    pub plans: Vec<(usize, Arc<Plan>)>,
    /// Some equation has effects on operands.
    pub is_on_operands: bool,
    /// Some equation has effects on operands, or a literal that is an argument's.
    pub(super) is_of_call: bool,
    /// Rows of the types of all outputs.
    pub(super) out_rows: Box<[u32]>,
}

/// The rows that the equations of a fragment refer to.
pub(super) struct Rows {
    pub(super) equations: Vec<EquationObjects>,
    pub(super) types: Vec<Py<PyAny>>,
    pub(super) literals: Vec<(Py<PyAny>, Option<usize>)>,
    pub(super) consts: Vec<(Captured, Py<PyAny>)>,
    pub(super) scopes: Vec<Scope>,
}

/// An effect, with the place of the operand that it is on.
pub(super) type OnOperand = (Py<PyAny>, Option<usize>);

/// The Python objects of one equation.
pub struct EquationObjects {
    pub primitive: Py<PyAny>,
    pub params: FragmentParams,
    /// None where there are none.
    pub effects: Option<Py<PyAny>>,
    /// Where some of them are on Refs: all of them, each with the operand that it is on.
    pub on_operands: Vec<OnOperand>,
    /// What stands for no effects, where that is not an empty set.
    pub no_effects: Option<Py<PyAny>>,
    pub context: Py<PyAny>,
}

impl EquationObjects {
    /// Whether some effect is on an operand.
    pub fn is_on_operands(&self) -> bool {
        !self.on_operands.is_empty()
    }
}

/// Where equations come from.
pub struct Scope {
    /// Name stack below the caller's; None for the caller's own.
    pub name_stack: Option<Py<PyAny>>,
    /// It is not below the caller's.
    pub is_whole: bool,
    /// None for the caller's. A rule may evaluate a program that it is given, whose equations have
    /// their own.
    pub traceback: Option<Py<PyAny>>,
}

impl Scope {
    /// Whether it is the caller's own.
    pub fn is_callers(&self) -> bool {
        self.name_stack.is_none() && self.traceback.is_none()
    }
}

/// A value that a program captures.
pub enum Captured {
    /// A constant.
    Value(Py<PyAny>),
    /// The argument that is a value of an enclosing trace.
    Enclosing(usize),
    /// A residual: the tracer of an argument that is a concrete array.
    Constant(usize),
    /// A residual: the primal of a traced argument.
    Arg(usize),
    /// A residual: an output of the primal values' equations.
    Out(usize),
    /// A residual: a tracer of a transformation.
    Transformed(usize),
    /// A residual: the argument that is a tracer of a literal.
    LiteralArg(usize),
    /// A residual: a new tracer of a literal of the primal values' equations, and its number among the
    /// call's tracers of literals.
    OwnLiteral(usize, usize),
    /// A residual: a new tracer of a literal that is equal to this, and its number.
    Literal(Py<PyAny>, usize),
}

impl Captured {
    /// A value of an enclosing trace, where it is an argument.
    pub(super) fn enclosing(call: &Call, value: &Bound<'_, PyAny>) -> Option<Self> {
        call.enclosing.iter().position(|&known| known == value.as_ptr()).map(Self::Enclosing)
    }

    /// A value that is no tracer.
    pub(super) fn constant(jax: &Jax, value: &Bound<'_, PyAny>) -> Result<Self, Reason> {
        if value.is_instance(jax.any_tracer_type.bind(value.py())).unwrap_or(true) {
            return Err(OUTER_VALUE);
        }
        Ok(Self::Value(value.clone().unbind()))
    }
}

impl Recorded {
    /// What a call appends and returns, without programs.
    ///
    /// # Errors
    /// An output of an equation of tangents is kept by something else than the result and the residuals.
    pub(super) fn new(
        part: Part,
        tangents: SmallVec<[(usize, Part); 1]>,
        recipe: Recipe,
        transformed: Vec<TransformedRecipe>,
        structured_residuals: Vec<(usize, Recipe)>,
    ) -> Result<Recorded, Reason> {
        let needed = needed_outputs(&recipe, &transformed, &tangents)?;
        Ok(Recorded {
            number: store::new_fragment(),
            part,
            tangents,
            recipe,
            transformed,
            needed,
            structured_residuals,
            programs: None,
        })
    }

    /// Params that were made of others, as those of an equation that is not there.
    ///
    /// # Errors
    /// None: a fragment without equations is well-formed.
    pub fn of_params<'py>(
        primitive: &Bound<'py, PyAny>,
        params: Bound<'py, PyDict>,
    ) -> Result<Self, Reason> {
        let none = primitive.py().None();
        let equation = EquationObjects {
            primitive: primitive.clone().unbind(),
            params: FragmentParams::new(params),
            effects: None,
            on_operands: Vec::new(),
            no_effects: None,
            context: none.clone_ref(primitive.py()),
        };
        let part = Part {
            is_on_operands: false,
            is_of_call: false,
            fragment: Fragment::new(Vec::new(), 0, 0, 0).map_err(|_| OUTER_VALUE)?,
            equations: vec![equation],
            types: Vec::new(),
            type_infos: Vec::new(),
            literals: Vec::new(),
            literal_types: Vec::new(),
            consts: Vec::new(),
            scopes: Vec::new(),
            regenerated: Vec::new(),
            plans: Vec::new(),
            out_rows: Box::default(),
        };
        Ok(Self {
            number: store::new_fragment(),
            part,
            tangents: SmallVec::new(),
            recipe: Recipe::Object(none),
            transformed: Vec::new(),
            needed: Needed::default(),
            structured_residuals: Vec::new(),
            programs: None,
        })
    }

    /// Such params for other programs.
    ///
    /// # Errors
    /// Out of memory.
    pub fn made_params<'py>(
        &self,
        jax: &Jax,
        instantiation: &Instantiation<'py>,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(equation) = self.part.equations.first() else { return Ok(None) };
        let recorded = equation.params.bind(py);
        match self.part.plans.first() {
            Some((_, plan)) => instantiation.params(jax, recorded, plan).map(Some),
            None => Ok(Some(recorded.clone())),
        }
    }

    /// Regenerates params as another recording does, which has the same objects.
    pub fn take_plans(&mut self, other: &Self) {
        for (part, other) in self.parts_mut().zip(other.parts()) {
            part.plans.clone_from(&other.plans);
        }
    }

    pub(super) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let tangents = self.tangents.iter_mut().map(|(_, part)| part);
        std::iter::once(&mut self.part).chain(tangents)
    }

    /// Whether params are regenerated at each call.
    pub fn regenerates(&self) -> bool {
        self.parts().any(|part| !part.regenerated.is_empty())
    }

    /// What it appends to each program.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.part).chain(self.tangents.iter().map(|(_, part)| part))
    }

    /// Roughly the bytes that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.parts().map(Part::memory_bytes).sum::<usize>()
    }
}

impl Part {
    /// A fragment with its objects.
    ///
    /// # Errors
    /// A type is none of jax's.
    pub(super) fn new(jax: &Jax, py: Python<'_>, fragment: Fragment, rows: Rows) -> PyResult<Self> {
        let Rows { equations, types, literals, consts, scopes } = rows;
        let out_rows = fragment.templates().iter().flat_map(Template::out_types).copied().collect();
        let is_on_operands = equations.iter().any(EquationObjects::is_on_operands);
        let literal_type = |(literal, _): &(Py<PyAny>, _)| {
            let (aval, info) = literal_type(jax, literal.bind(py))?;
            Ok((aval.unbind(), info))
        };
        let infos = types.iter().map(|aval| aval_info(jax, aval.bind(py)));
        Ok(Self {
            is_on_operands,
            is_of_call: is_on_operands || literals.iter().any(|(_, given)| given.is_some()),
            fragment,
            equations,
            type_infos: infos.collect::<PyResult<_>>()?,
            types,
            literal_types: literals.iter().map(literal_type).collect::<PyResult<_>>()?,
            literals,
            consts,
            scopes,
            regenerated: Vec::new(),
            plans: Vec::new(),
            out_rows,
        })
    }

    /// Whether there is nothing to be appended.
    pub fn is_empty(&self) -> bool {
        self.equations.is_empty() && self.literals.is_empty() && self.consts.is_empty()
    }

    /// The name scope of all equations, where all but the operands is the same in each replay. `makes`
    /// says whether the programs are others than those that were recorded.
    #[inline]
    pub fn only_scope(&self, makes: bool) -> Option<&Scope> {
        match &self.scopes[..] {
            [scope]
                if !self.is_of_call
                    && self.regenerated.is_empty()
                    && (!makes || self.plans.is_empty()) =>
            {
                Some(scope)
            }
            _ => None,
        }
    }

    /// Which literal of the equations an object is.
    pub fn own_literal(&self, literal: &Bound<'_, PyAny>) -> Option<usize> {
        self.literals.iter().position(|(own, _)| own.is(literal))
    }

    /// Whether each equation has an effect, or is needed for one of the outputs. One that is not
    /// lives on only while somebody else keeps its result.
    pub(super) fn all_needed(&self, outputs: &[usize]) -> bool {
        let templates = self.fragment.templates();
        let mut needed: FxHashSet<usize> = outputs.iter().copied().collect();
        let mut first = self.out_rows.len();
        for (template, equation) in templates.iter().zip(&self.equations).rev() {
            let outs = first - template.out_types().len()..first;
            first = outs.start;
            if equation.effects.is_none() && !outs.clone().any(|out| needed.contains(&out)) {
                return false;
            }
            for operand in template.operands() {
                if let Operand::Out(out) = operand {
                    needed.insert(*out as usize);
                }
            }
        }
        true
    }

    /// The type of an output, counted over all equations.
    pub fn out_type(&self, index: usize) -> &Py<PyAny> {
        &self.types[self.out_rows[index] as usize]
    }

    fn memory_bytes(&self) -> usize {
        self.fragment.memory_bytes()
            + self.equations.len() * size_of::<EquationObjects>()
            + 2 * (self.types.len() + self.consts.len()) * size_of::<usize>()
            + 3 * self.literals.len() * size_of::<usize>()
    }
}

/// The outputs of equations that the result and the residuals are made of.
fn needed_outputs(
    recipe: &Recipe,
    transformed: &[TransformedRecipe],
    tangents: &[(usize, Part)],
) -> Result<Needed, Reason> {
    let residuals = tangents.iter().flat_map(|(_, part)| &part.consts);
    let mut needed = Needed::default();
    recipe.outs(&mut needed);
    for (captured, _) in residuals {
        if let Captured::Out(index) = captured {
            Recipe::Out(*index).outs(&mut needed);
        }
    }
    for recipe in transformed {
        recipe.outs(&mut needed);
    }
    for (level, part) in tangents {
        if !part.all_needed(needed.of_level(*level)) {
            return Err(KEPT_ELSEWHERE);
        }
    }
    Ok(needed)
}
