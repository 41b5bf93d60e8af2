//! Params that jax regenerates at each call.
//!
//! A function with a custom derivative rule is a macro like others, but some of its params are new
//! objects each time: the program of the function, and the functions that trace the rule or run it. A
//! replay regenerates them as well, since jax tells programs apart by identity, and prints one
//! that occurs twice as such.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::ir::{Atom, AtomKind, Eqn, EqnData, LiteralId, ParamsId, Program, Var};

use crate::python::cache::fragment::agree::same_literal;
use crate::python::cache::programs::forms::{close, is_closed};
use crate::python::jax::names::Jax;
use crate::python::jax::values::typed_equal;
use crate::python::program::graph::Graph;
use crate::python::program::objects::ObjectTable;
use crate::python::program::read::graph_of;

/// How to regenerate the params of a custom derivative.
pub struct RegeneratedRule {
    /// The names of programs, with what they are copies of.
    programs: Vec<(Py<PyAny>, Py<Graph>)>,
    /// The names of functions, with what returns new ones; those of one equation belong together.
    rules: Vec<(Py<PyAny>, Py<PyAny>)>,
}

/// The param that has the rule.
pub fn name_of_rule(py: Python<'_>) -> &Bound<'_, PyString> {
    intern!(py, "jvp_jaxpr_fun")
}

impl RegeneratedRule {
    /// What two recordings of an equation have in common; None where they differ in more, or where
    /// the rule may refer to traced values.
    ///
    /// # Errors
    /// jax's objects are not what they were.
    pub fn of<'py>(
        jax: &Jax,
        primitive: &Bound<'py, PyAny>,
        before: &Bound<'py, PyDict>,
        params: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Self>> {
        let py = primitive.py();
        let renewal = jax.renewal.bind(py);
        if renewal.is_none()
            || !jax.rule_primitives.bind(py).contains(primitive)?
            || before.len() != params.len()
        {
            return Ok(None);
        }
        let mut regenerated = Self { programs: Vec::new(), rules: Vec::new() };
        for (name, value) in before {
            let Some(other) = params.get_item(&name)? else { return Ok(None) };
            let is_rule = name.eq(name_of_rule(py))?;
            if is_closed(jax, &value) && is_closed(jax, &other) {
                let programs = (graph_of(jax, &value)?, graph_of(jax, &other)?);
                if !same_program(py, jax, &programs.0, &programs.1)? {
                    return Ok(None);
                }
                regenerated.programs.push((name.unbind(), programs.1.unbind()));
            } else if is_rule || !same_value(&value, &other) {
                // A `custom_jvp` function is what the caller knows it by.
                let alike = |one, another| jax.rules_alike.bind(py).call1((one, another));
                if !is_rule && !alike(&value, &other)?.is_truthy()? {
                    return Ok(None);
                }
                let rule = renewal.call1((&other,))?;
                if rule.is_none() || renewal.call1((&value,))?.is_none() {
                    return Ok(None);
                }
                regenerated.rules.push((name.unbind(), rule.unbind()));
            }
        }
        Ok(Some(regenerated))
    }

    /// What is new in each call of a function whose calls were compared before: its programs, and the
    /// function that traces its rule. None where that may refer to traced values.
    ///
    /// # Errors
    /// jax's objects are not what they were.
    pub fn of_one<'py>(
        jax: &Jax,
        primitive: &Bound<'py, PyAny>,
        params: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Self>> {
        let py = primitive.py();
        let renewal = jax.renewal.bind(py);
        if renewal.is_none() || !jax.rule_primitives.bind(py).contains(primitive)? {
            return Ok(None);
        }
        let mut regenerated = Self { programs: Vec::new(), rules: Vec::new() };
        for (name, value) in params {
            if is_closed(jax, &value) {
                let program = graph_of(jax, &value)?.unbind();
                regenerated.programs.push((name.unbind(), program));
            } else if name.eq(name_of_rule(py))? {
                let rule = renewal.call1((&value,))?;
                if rule.is_none() {
                    return Ok(None);
                }
                regenerated.rules.push((name.unbind(), rule.unbind()));
            }
        }
        Ok(Some(regenerated))
    }

    /// Whether another one regenerates the same params.
    ///
    /// # Errors
    /// Names cannot be compared.
    pub fn is_like(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        let names = |made: &Self| {
            let programs = made.programs.iter().map(|(name, _)| name.clone_ref(py));
            let rules = made.rules.iter().map(|(name, _)| name.clone_ref(py));
            PyTuple::new(py, [programs.collect::<Vec<_>>(), rules.collect()])
        };
        names(self)?.eq(names(other)?)
    }

    /// The params of one more call.
    ///
    /// # Errors
    /// Out of memory.
    pub fn make<'py>(
        &self,
        jax: &Jax,
        params: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = params.py();
        let made = params.copy()?;
        for (name, program) in &self.programs {
            let program = Graph::fresh_copy(program.bind(py), jax, &[], &[])?;
            made.set_item(name, close(jax, &program)?)?;
        }
        let stands_for = PyDict::new(py);
        for (name, rule) in &self.rules {
            made.set_item(name, rule.bind(py).call1((&stands_for,))?)?;
        }
        Ok(made)
    }
}

/// Whether two params are the same, or lists of the same.
fn same_value(one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>) -> bool {
    let same = |a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>| a.is(b) || typed_equal(a, b);
    same(one, another)
        || one.cast_exact::<PyList>().is_ok_and(|own| {
            another.cast_exact::<PyList>().is_ok_and(|other| {
                own.len() == other.len() && own.iter().zip(other.iter()).all(|(a, b)| same(&a, &b))
            })
        })
}

/// A program with its objects.
struct Objects<'a, 'py> {
    py: Python<'py>,
    program: &'a Program,
    side: &'a ObjectTable,
}

impl<'py> Objects<'_, 'py> {
    fn type_of(&self, var: Var) -> Bound<'py, PyAny> {
        self.side.aval(self.py, self.program.var_type(var))
    }

    fn literal(&self, literal: LiteralId) -> Bound<'py, PyAny> {
        self.side.object(self.py, self.program.literal(literal).object)
    }

    /// The primitive and the context of an equation.
    fn fixed(&self, eqn: &EqnData) -> [Bound<'py, PyAny>; 2] {
        let ids = [self.program.primitive(eqn.primitive).object, self.program.context(eqn.context)];
        ids.map(|id| self.side.object(self.py, id))
    }

    fn has_effects(&self, jax: &Jax, eqn: &EqnData) -> PyResult<bool> {
        self.side.effects(self.py, jax, eqn.effects, eqn.primitive).is_truthy()
    }

    fn outs(&self, eqn: Eqn) -> Vec<Atom> {
        self.program.eqn_outvars(eqn).map(Atom::var).collect()
    }

    fn same_atoms(&self, own: &[Atom], other: &Self, others: &[Atom]) -> PyResult<bool> {
        for (&atom, &of_other) in own.iter().zip(others) {
            let same = match (atom.kind(), of_other.kind()) {
                (AtomKind::Var(var), AtomKind::Var(of_other)) => {
                    var == of_other && self.type_of(var).is(other.type_of(of_other))
                }
                (AtomKind::Literal(literal), AtomKind::Literal(of_other)) => {
                    same_literal(&self.literal(literal), &other.literal(of_other))?
                }
                _ => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(own.len() == others.len())
    }

    fn same_params(&self, own: ParamsId, other: &Self, others: ParamsId) -> bool {
        let own = self.side.params_dict(self.py, own);
        let others = other.side.params_dict(self.py, others);
        let same = |one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>| {
            one.is(another) || typed_equal(one, another)
        };
        own.len() == others.len()
            && own.iter().zip(others.iter()).all(|((name, value), (other_name, other_value))| {
                same(&name, &other_name) && same(&value, &other_value)
            })
    }

    fn same_eqn(&self, jax: &Jax, own: Eqn, other: &Self, of_other: Eqn) -> PyResult<bool> {
        let (data, other_data) = (self.program.eqn(own), other.program.eqn(of_other));
        let fixed = self.fixed(data).into_iter().zip(other.fixed(other_data));
        let operands = (self.program.eqn_invars(own), other.program.eqn_invars(of_other));
        Ok(fixed.into_iter().all(|(one, another)| one.is(another))
            && self.same_atoms(operands.0, other, operands.1)?
            && self.same_atoms(&self.outs(own), other, &other.outs(of_other))?
            && !self.has_effects(jax, data)?
            && !other.has_effects(jax, other_data)?
            && self.same_params(data.params, other, other_data.params))
    }
}

/// Whether two programs without constants and effects are the same but for their variables: the same
/// objects everywhere, and equal literals.
fn same_program(
    py: Python<'_>,
    jax: &Jax,
    one: &Bound<'_, Graph>,
    another: &Bound<'_, Graph>,
) -> PyResult<bool> {
    let (one, another) = (one.get(), another.get());
    let (programs, sides) = ([one.program(), another.program()], [one.table(), another.table()]);
    let [one, another] =
        [0, 1].map(|index| Objects { py, program: &programs[index], side: &sides[index] });
    let counts =
        |program: &Program| (program.constvars().len(), program.num_eqns(), program.num_vars());
    if counts(one.program) != counts(another.program)
        || !one.program.constvars().is_empty()
        || one.program.invars() != another.program.invars()
    {
        return Ok(false);
    }
    for (own, of_other) in one.program.eqns().zip(another.program.eqns()) {
        if !one.same_eqn(jax, own, &another, of_other)? {
            return Ok(false);
        }
    }
    one.same_atoms(one.program.outvars(), &another, another.program.outvars())
}
