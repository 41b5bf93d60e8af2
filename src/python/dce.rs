//! Dead-code removal of a program that was just recorded, where nothing in it is dead.
//!
//! The program of a linearization drops dead code while it is recorded, so that jax, which looks for
//! dead code once more, finds none: what it makes is the same program, but for the programs of nested
//! jits, which it looks through as well. That is said here without an equation being made. Whatever
//! else there is to do, jax does.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use cranelift_entity::EntitySet;
use pyo3::exceptions::PyKeyError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};
use rustc_hash::FxHashMap;

use crate::ir::{AtomKind, EffectsId, Eqn, ParamsId, PrimitiveId, Var};

use super::expand::owned::{OwnedParams, is_owned, note_without_dead_code, without_dead_code};
use super::expand::record::same_value;
use super::expand::rule::Sites;
use super::expand::site::derive_params;
use super::graph::{Graph, Unread, unfilled};
use super::jax::{Jax, jax};

/// Params that are others once dead code is removed.
type Changed = FxHashMap<ParamsId, Arc<OwnedParams>>;

/// Stands in for `dce_jaxpr_consts(jaxpr, used_outputs, instantiate)`.
#[pyfunction]
pub fn dce_jaxpr_consts<'py>(
    jaxpr: &Bound<'py, PyAny>,
    used_outputs: &Bound<'py, PyAny>,
    instantiate: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = jaxpr.py();
    let jax = jax(py)?;
    if let Some(graph) = unfilled(jax, jaxpr)
        && !graph.borrow().is_derived()
        && let Some(changed) = nothing_dead(jax, jaxpr, &graph, used_outputs, instantiate)?
    {
        let (consts, inputs) = {
            let graph = graph.borrow();
            (graph.program().constvars().len(), graph.program().invars().len())
        };
        let all = |len: usize| PyList::new(py, std::iter::repeat_n(true, len));
        let new = Graph::derive(&graph, jax, jaxpr, changed)?;
        return Ok((new, all(consts)?, all(inputs)?).into_pyobject(py)?.into_any());
    }
    jax.stock_dce.bind(py).call1((jaxpr, used_outputs, instantiate))
}

/// The params that change where all else stays; None where something is dead or not so plain.
fn nothing_dead<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
    graph: &Bound<'py, Graph>,
    used_outputs: &Bound<'py, PyAny>,
    instantiate: &Bound<'py, PyAny>,
) -> PyResult<Option<Changed>> {
    let py = jaxpr.py();
    let Unread { program, .. } = Graph::unread(graph);
    if !all_true(used_outputs)
        || jax.enable_checks.bind(py).getattr(intern!(py, "value"))?.is_truthy()?
    {
        return Ok(None);
    }
    let Ok(instantiate) = instantiate.cast_exact::<PyList>() else { return Ok(None) };
    let num_consts = program.constvars().len();
    if instantiate.len() != num_consts + program.invars().len()
        || !all_true(&instantiate.get_slice(num_consts, instantiate.len()))
    {
        return Ok(None);
    }
    // Names would be filtered, effects gathered.
    let debug_info = jaxpr.getattr(intern!(py, "debug_info"))?;
    if !debug_info.getattr(intern!(py, "arg_names"))?.is_none()
        || !debug_info.getattr(intern!(py, "result_paths"))?.is_none()
        || jaxpr.getattr(intern!(py, "effects"))?.is_truthy()?
    {
        return Ok(None);
    }

    let mut live: EntitySet<Var> = EntitySet::with_capacity(program.num_vars());
    let mut rules: FxHashMap<PrimitiveId, Rule> = FxHashMap::default();
    let mut changed = Changed::default();
    for atom in program.outvars() {
        if let AtomKind::Var(var) = atom.kind() {
            live.insert(var);
        }
    }
    for id in program.eqns().rev() {
        let data = program.eqn(id);
        let used = program.eqn_outvars(id).filter(|&var| live.contains(var)).count();
        if used == 0 || data.effects != EffectsId::NONE {
            return Ok(None);
        }
        let rule = match rules.get(&data.primitive) {
            Some(&rule) => rule,
            None => Rule::of(jax, graph, program.primitive(data.primitive).object)?,
        };
        rules.insert(data.primitive, rule);
        match rule {
            Rule::Default => {}
            Rule::Own if used == program.eqn_outvars(id).len() => {
                let Some(new) = params_by_rule(jax, graph, id, data.params)? else {
                    return Ok(None);
                };
                match changed.entry(data.params) {
                    Entry::Vacant(unknown) => {
                        unknown.insert(new);
                    }
                    // Equations that share params may come to have programs of their own.
                    Entry::Occupied(known)
                        if same_params(jax, known.get().bind(py), new.bind(py)) => {}
                    Entry::Occupied(_) => return Ok(None),
                }
            }
            Rule::Own | Rule::Other => return Ok(None),
        }
        for atom in program.eqn_invars(id) {
            if let AtomKind::Var(var) = atom.kind() {
                live.insert(var);
            }
        }
    }
    let all_used = program.constvars().iter().all(|&(var, _)| live.contains(var));
    Ok(all_used.then_some(changed))
}

fn all_true(list: &Bound<'_, PyAny>) -> bool {
    list.cast_exact::<PyList>().is_ok_and(|list| {
        list.iter().all(|item| item.cast_exact::<PyBool>().is_ok_and(PyBoolMethods::is_true))
    })
}

/// How jax removes dead code in an equation.
#[derive(Clone, Copy)]
enum Rule {
    /// All or nothing.
    Default,
    /// By a rule of the primitive, which looks through the programs within.
    Own,
    /// By one that asks for more than the equation.
    Other,
}

impl Rule {
    fn of(jax: &Jax, graph: &Bound<'_, Graph>, primitive: crate::ir::ForeignId) -> PyResult<Self> {
        let py = graph.py();
        let primitive = graph.borrow().side().object(py, primitive);
        Ok(match jax.dce_rules.bind(py).contains(primitive)? {
            false => Self::Default,
            true if jax.plain_dce_rules.is_truthy(py)? => Self::Own,
            true => Self::Other,
        })
    }
}

/// The sites of such rules.
static SITES: Sites = Sites::new("dead code of ");

/// What a rule makes of the params of an equation all of whose outputs are used; None where it changes
/// more.
fn params_by_rule<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
    id: Eqn,
    params: ParamsId,
) -> PyResult<Option<Arc<OwnedParams>>> {
    let py = graph.py();
    let (primitive, params) = {
        let graph = graph.borrow();
        let primitive = graph.program().primitive(graph.program().eqn(id).primitive).object;
        (graph.side().object(py, primitive), graph.side().params_dict(py, params))
    };
    // jax remembers what this is for the program of a jit, and makes others anew for each equation.
    let is_remembered = is_owned(&params) && primitive.is(&jax.jit_primitive);
    if is_remembered && let Some(known) = without_dead_code(&params) {
        return Ok(Some(known));
    }
    let run = || {
        let eqn = Graph::eqn_object(graph, jax, id)?;
        let rule = jax.dce_rules.bind(py).get_item(&primitive)?;
        let rule = rule.ok_or_else(|| PyKeyError::new_err(primitive.clone().unbind()))?;
        let outvars = eqn.getattr(intern!(py, "outvars"))?;
        let used = PyList::new(py, std::iter::repeat_n(true, outvars.len()?))?;
        let (used_inputs, new) =
            rule.call1((used, &eqn))?.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
        if new.is_none()
            || !all_true(&used_inputs)
            || new.getattr(intern!(py, "effects"))?.is_truthy()?
            || !same_items(&new, &eqn, intern!(py, "invars"))?
            || !same_items(&new, &eqn, intern!(py, "outvars"))?
            || !new.getattr(intern!(py, "primitive"))?.is(&primitive)
        {
            return Ok(None);
        }
        Ok(Some(new.getattr(intern!(py, "params"))?.cast_into::<PyDict>()?))
    };
    let new = derive_params(jax, &*SITES.of(&primitive)?, &primitive, &params, run)?;
    let Some(new) = new else { return Ok(None) };
    if !is_remembered {
        return Ok(Some(Arc::new(OwnedParams::of_program(new))));
    }
    let new = Arc::new(OwnedParams::new(new));
    note_without_dead_code(&params, &new);
    Ok(Some(new))
}

/// Whether params have the same values, programs by identity.
fn same_params(jax: &Jax, one: &Bound<'_, PyDict>, another: &Bound<'_, PyDict>) -> bool {
    one.len() == another.len()
        && one.iter().all(|(name, value)| {
            another
                .get_item(name)
                .is_ok_and(|other| other.is_some_and(|other| same_value(jax, &value, &other)))
        })
}

/// Whether two equations have the same variables.
fn same_items<'py>(
    one: &Bound<'py, PyAny>,
    another: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<bool> {
    let (one, another) = (one.getattr(name)?, another.getattr(name)?);
    let (one, another) = (one.cast_into::<PyList>()?, another.cast_into::<PyList>()?);
    Ok(one.len() == another.len() && one.iter().zip(another.iter()).all(|(a, b)| a.is(&b)))
}
