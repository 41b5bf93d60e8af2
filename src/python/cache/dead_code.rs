//! Dead-code removal of a program that was just recorded, where nothing in it is dead.
//!
//! The program of a linearization drops dead code while it is recorded, so that jax, which looks for
//! dead code once more, finds none: what it makes is the same program, but for the programs of nested
//! jits, which it looks through as well. Those are others before jax 0.12, and from then on only where
//! something in them is dead. That is said here without an equation being made. Whatever else there is
//! to do, jax does.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use cranelift_entity::EntitySet;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{AtomKind, EffectsId, PrimitiveId, Var};

use crate::python::cache::call::derive_params;
use crate::python::cache::fragment::record::same_value;
use crate::python::cache::programs::instantiate::run_rule;
use crate::python::cache::programs::params::{
    OwnedParams, is_owned, note_without_dead_code, without_dead_code,
};
use crate::python::cache::rules::Sites;
use crate::python::cpython::native::address;
use crate::python::jax::names::{EqnParts, Jax, jax};
use crate::python::jax::world::{difference, poll_soon};
use crate::python::program::graph::{ChangedParams, Graph};
use crate::python::program::lazy_jaxpr::unfilled;

/// Stands in for `dce_jaxpr_consts(jaxpr, used_outputs, instantiate)`.
#[pyfunction]
pub fn dce_jaxpr_consts<'py>(
    jaxpr: &Bound<'py, PyAny>,
    used_outputs: &Bound<'py, PyAny>,
    instantiate: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = jaxpr.py();
    let jax = jax(py)?;
    // Where jax 0.12 calls this it may go on to have the result in an equation, which then has to be read.
    if !jax.trim_keeps_programs.is_truthy(py)?
        && let Some(graph) = unfilled(jax, jaxpr)
        && all_true(used_outputs)
        && are_all_instantiated(&graph, instantiate)
        && let Some(changed) = nothing_dead(jax, jaxpr, &graph)?
    {
        let (consts, inputs) = {
            let program = graph.get().program();
            (program.constvars().len(), program.invars().len())
        };
        let all = |len: usize| PyList::new(py, std::iter::repeat_n(true, len));
        let new = Graph::derive(&graph, jax, jaxpr, changed)?;
        return Ok((new, all(consts)?, all(inputs)?).into_pyobject(py)?.into_any());
    }
    jax.stock_dce.bind(py).call1((jaxpr, used_outputs, instantiate))
}

/// Stands in for `_dce_consts(jaxpr, consts)`, by which jax does so from 0.11 on: all outputs and inputs are
/// used, constants are the first of the inputs.
#[pyfunction]
pub fn dce_consts<'py>(
    jaxpr: &Bound<'py, PyAny>,
    consts: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = jaxpr.py();
    let jax = jax(py)?;
    if let Some(new) = with_live_programs(jax, jaxpr, consts.len()?)? {
        let consts = consts.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        return Ok((new, PyList::new(py, consts)?).into_pyobject(py)?.into_any());
    }
    jax.stock_dce_consts.bind(py).call1((jaxpr, consts))
}

/// What becomes of a jaxpr in which nothing is dead but in the programs within, where all outputs are used
/// and all inputs but the first so many. None where something is, or it is not so plain.
fn with_live_programs<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
    num_consts: usize,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = jaxpr.py();
    if has_changed_rules(py)? || jax.checks_jaxprs(py)? || has_names_or_effects(jaxpr)? {
        return Ok(None);
    }
    let mut live: FxHashSet<usize> = FxHashSet::default();
    let mut rules: FxHashMap<usize, Rule> = FxHashMap::default();
    let is_var = |atom: &Bound<'_, PyAny>| !jax.is_literal(atom.as_ptr());
    for atom in jaxpr.getattr(intern!(py, "outvars"))?.try_iter()? {
        live.insert(address(&atom?));
    }
    let eqns = jaxpr.getattr(intern!(py, "eqns"))?.cast_into::<PyList>()?;
    let whole = jax.whole_programs.bind(py);
    let mut others: Vec<(usize, Bound<'py, PyAny>)> = Vec::new();
    for (index, eqn) in eqns.iter().enumerate().rev() {
        let Some(parts) = EqnParts::of(jax, &eqn) else { return Ok(None) };
        let used = parts.outvars.iter().filter(|var| live.contains(&address(var))).count();
        if used == 0 || parts.effects.is_truthy()? {
            return Ok(None);
        }
        let rule = match rules.get(&address(&parts.primitive)) {
            Some(&rule) => rule,
            None => Rule::of(jax, &parts.primitive)?,
        };
        rules.insert(address(&parts.primitive), rule);
        if let Rule::Own { of_jit } = rule {
            if used < parts.outvars.len() {
                return Ok(None);
            }
            // For a jit the rule looks at nothing but its program.
            let program = parts.params.get_item(intern!(py, "jaxpr"))?.filter(|_| of_jit);
            let is_whole = |program| whole.contains(program);
            if !program.as_ref().map_or(Ok(false), is_whole)? {
                let Some(new) = run_rule(|| trimmed(jax, &parts.primitive, &eqn))? else {
                    return Ok(None);
                };
                if !same_params(jax, &parts.params, &new) {
                    others.push((index, jax.with_params(&eqn, new)?));
                } else if let Some(program) = program {
                    whole.call_method1(intern!(py, "add"), (program,))?;
                }
            }
        }
        live.extend(parts.invars.iter().filter(is_var).map(|var| address(&var)));
    }
    let invars = jaxpr.getattr(intern!(py, "invars"))?.cast_into::<PyList>()?;
    if !invars.iter().take(num_consts).all(|var| live.contains(&address(&var))) {
        return Ok(None);
    }
    if others.is_empty() {
        return Ok(Some(jaxpr.clone()));
    }
    let eqns = eqns.get_slice(0, eqns.len());
    for (index, eqn) in others {
        eqns.set_item(index, eqn)?;
    }
    let changes = PyDict::new(py);
    changes.set_item(intern!(py, "eqns"), eqns)?;
    jaxpr.call_method(intern!(py, "replace"), (), Some(&changes)).map(Some)
}

/// Whether somebody has changed jax, so that what is done here may not be what it does.
fn has_changed_rules(py: Python<'_>) -> PyResult<bool> {
    poll_soon();
    Ok(difference(py)?.is_total())
}

/// Whether there are names of arguments or results, which jax would filter, or effects, which it would
/// gather.
fn has_names_or_effects(jaxpr: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = jaxpr.py();
    let debug_info = jaxpr.getattr(intern!(py, "debug_info"))?;
    Ok(!debug_info.getattr(intern!(py, "arg_names"))?.is_none()
        || !debug_info.getattr(intern!(py, "result_paths"))?.is_none()
        || jaxpr.getattr(intern!(py, "effects"))?.is_truthy()?)
}

/// Whether inputs that nobody uses stay; constants need not.
fn are_all_instantiated(graph: &Bound<'_, Graph>, instantiate: &Bound<'_, PyAny>) -> bool {
    let program = graph.get().program();
    let (consts, inputs) = (program.constvars().len(), program.invars().len());
    instantiate.cast_exact::<PyList>().is_ok_and(|instantiate| {
        instantiate.len() == consts + inputs
            && all_true(&instantiate.get_slice(consts, instantiate.len()))
    })
}

/// The params that change where all else stays; None where something is dead or not so plain.
fn nothing_dead<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
    graph: &Bound<'py, Graph>,
) -> PyResult<Option<ChangedParams>> {
    let py = jaxpr.py();
    if has_changed_rules(py)?
        || graph.get().is_derived()
        || jax.checks_jaxprs(py)?
        || has_names_or_effects(jaxpr)?
    {
        return Ok(None);
    }
    let program = graph.get().program();
    let mut live: EntitySet<Var> = EntitySet::with_capacity(program.num_vars());
    let mut rules: FxHashMap<PrimitiveId, Rule> = FxHashMap::default();
    let mut changed = ChangedParams::default();
    let object = |id| graph.get().table().object(py, program.primitive(id).object);
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
            None => Rule::of(jax, &object(data.primitive))?,
        };
        rules.insert(data.primitive, rule);
        match rule {
            Rule::Default => {}
            Rule::Own { of_jit } if used == program.eqn_outvars(id).len() => {
                let params = graph.get().table().params_dict(py, data.params);
                let eqn = || Graph::eqn_object(graph, jax, id);
                let primitive = object(data.primitive);
                let Some(new) = params_by_rule(jax, &primitive, &params, of_jit, eqn)? else {
                    return Ok(None);
                };
                match changed.entry(data.params) {
                    Entry::Vacant(unknown) => {
                        unknown.insert(new);
                    }
                    // Equations that share params may come to have programs of their own.
                    Entry::Occupied(known)
                        if same_params(jax, known.get().dict().bind(py), new.bind(py)) => {}
                    Entry::Occupied(_) => return Ok(None),
                }
            }
            Rule::Own { .. } => return Ok(None),
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
    Own { of_jit: bool },
}

impl Rule {
    fn of(jax: &Jax, primitive: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = primitive.py();
        if !jax.dce_rules.bind(py).contains(primitive)? {
            return Ok(Self::Default);
        }
        Ok(Self::Own { of_jit: jax.is_jit(primitive) })
    }
}

/// The sites of such rules.
static SITES: Sites = Sites::new("dead code of ");

/// What a rule makes of the params of an equation all of whose outputs are used; None where it changes
/// more.
fn params_by_rule<'py>(
    jax: &Jax,
    primitive: &Bound<'py, PyAny>,
    params: &Bound<'py, PyDict>,
    of_jit: bool,
    eqn: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Arc<OwnedParams>>> {
    // jax remembers what this is for the program of a jit, and makes others anew for each equation.
    let is_remembered = of_jit && is_owned(params);
    if is_remembered && let Some(known) = without_dead_code(params) {
        return Ok(Some(known));
    }
    let run = || trimmed(jax, primitive, &eqn()?);
    let new = derive_params(jax, &*SITES.of(primitive)?, primitive, params, run)?;
    let Some(new) = new else { return Ok(None) };
    if !is_remembered {
        return Ok(Some(Arc::new(OwnedParams::of_program(new))));
    }
    let new = Arc::new(OwnedParams::new(new));
    note_without_dead_code(params, &new);
    Ok(Some(new))
}

/// The params of an equation after a rule of jax's, all of its outputs being used; None where the rule
/// changes more.
fn trimmed<'py>(
    jax: &Jax,
    primitive: &Bound<'py, PyAny>,
    eqn: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = eqn.py();
    let outvars = eqn.getattr(intern!(py, "outvars"))?;
    let used = PyList::new(py, std::iter::repeat_n(true, outvars.len()?))?;
    let (used_inputs, new) = jax.unpack_pair(&jax.trim.bind(py).call1((used, eqn))?)?;
    if new.is_none()
        || !all_true(&used_inputs)
        || new.getattr(intern!(py, "effects"))?.is_truthy()?
        || !same_items(&new, eqn, intern!(py, "invars"))?
        || !same_items(&new, eqn, intern!(py, "outvars"))?
        || !new.getattr(intern!(py, "primitive"))?.is(primitive)
    {
        return Ok(None);
    }
    Ok(Some(new.getattr(intern!(py, "params"))?.cast_into::<PyDict>()?))
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
