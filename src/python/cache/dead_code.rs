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
use rustc_hash::FxHashMap;

use crate::ir::Var;

use crate::python::cache::call::derive_params;
use crate::python::cache::fragment::agree::same_value;
use crate::python::cache::programs::forms::open;
use crate::python::cache::programs::params::{
    FragmentParams, is_of_fragment, note_without_dead_code, without_dead_code,
};
use crate::python::cache::rules::Sites;
use crate::python::cpython::native::address;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::world::{difference, poll_soon};
use crate::python::program::graph::{ChangedParams, Graph};
use crate::python::program::jaxpr_view::{GraphView, JaxprView, ListsView, Operand};
use crate::python::program::lazy_jaxpr::{graph_behind, unfilled};

/// Stands in for `dce_jaxpr_consts(jaxpr, used_outputs, instantiate)`.
#[pyfunction]
pub fn dce_jaxpr_consts<'py>(
    jaxpr: &Bound<'py, PyAny>,
    used_outputs: &Bound<'py, PyAny>,
    instantiate: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = jaxpr.py();
    let jax = jax(py)?;
    // What jax 0.12 makes may be the same jaxpr.
    if !jax.trim_keeps_programs.is_truthy(py)?
        && let Some(graph) = graph_behind(jax, jaxpr)
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

/// What becomes of a jaxpr in which nothing is dead but in nested programs, where all outputs are used
/// and all inputs but the first so many. None where something is, or it is not so plain.
fn with_live_programs<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
    num_consts: usize,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(graph) = graph_behind(jax, jaxpr) else { return Ok(None) };
    if graph.get().program().constvars().len() != num_consts {
        return Ok(None);
    }
    let Some(mut changed) = nothing_dead(jax, jaxpr, &graph)? else { return Ok(None) };
    let view = GraphView::new(jax, &graph);
    changed
        .retain(|&id, new| !same_params(jax, &view.params_by_id(id), new.dict().bind(jaxpr.py())));
    if changed.is_empty() {
        return Ok(Some(jaxpr.clone()));
    }
    Graph::derive(&graph, jax, jaxpr, changed).map(Some)
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
    let view = GraphView::new(jax, graph);
    let program = graph.get().program();
    let mut changed = ChangedParams::default();
    let live = all_live(jax, &view, |_, &eqn, primitive, of_jit| {
        let params = view.params(&eqn);
        let object = || view.eqn_object(&eqn);
        let Some(new) = params_by_rule(jax, primitive, &params, of_jit, object)? else {
            return Ok(false);
        };
        match changed.entry(program.eqn(eqn).params) {
            Entry::Vacant(unknown) => {
                unknown.insert(new);
                Ok(true)
            }
            // Equations that share params may come to have programs of their own.
            Entry::Occupied(known) => {
                Ok(same_params(jax, known.get().dict().bind(py), new.bind(py)))
            }
        }
    })?;
    let Some(live) = live else { return Ok(None) };
    let all_used = view.constvars()?.iter().all(|var| live.has(view.number(var)));
    Ok(all_used.then_some(changed))
}

/// The variables of a jaxpr that are used.
struct Live(EntitySet<Var>);

impl Live {
    fn has(&self, number: u32) -> bool {
        self.0.contains(Var::from_u32(number))
    }

    fn add<'py, V: JaxprView<'py>>(&mut self, view: &V, operand: &Operand<'py, V::Var>) {
        if let Operand::Var(var) = operand {
            self.0.insert(Var::from_u32(view.number(var)));
        }
    }
}

/// What is used of a jaxpr in which no equation is dead; None where one is, or has effects. `by_rule` is
/// told of each equation whose primitive has a rule, and whether that is a jit; it says whether to go on.
fn all_live<'py, V: JaxprView<'py>>(
    jax: &Jax,
    view: &V,
    mut by_rule: impl FnMut(usize, &V::Eqn, &Bound<'py, PyAny>, bool) -> PyResult<bool>,
) -> PyResult<Option<Live>> {
    let mut live = Live(EntitySet::with_capacity(view.num_vars()));
    let mut rules: FxHashMap<usize, Rule> = FxHashMap::default();
    view.outvars()?.iter().for_each(|out| live.add(view, out));
    for (index, eqn) in view.eqns()?.enumerate().rev() {
        let Some(eqn) = eqn else { return Ok(None) };
        let outs = view.eqn_outvars(&eqn);
        let num_outs = outs.len();
        let used = outs.filter(|var| live.has(view.number(var))).count();
        if used == 0 || view.has_effects(&eqn)? {
            return Ok(None);
        }
        let primitive = view.primitive(&eqn);
        let rule = match rules.get(&address(&primitive)) {
            Some(&rule) => rule,
            None => Rule::of(jax, &primitive)?,
        };
        rules.insert(address(&primitive), rule);
        if let Rule::Own { of_jit } = rule
            && (used < num_outs || !by_rule(index, &eqn, &primitive, of_jit)?)
        {
            return Ok(None);
        }
        view.eqn_invars(&eqn).for_each(|operand| live.add(view, &operand));
    }
    Ok(Some(live))
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
    /// By a rule of the primitive, which looks through the nested programs.
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
    eqn: impl Fn() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Arc<FragmentParams>>> {
    // jax remembers what this is for the program of a jit, and regenerates others for each equation.
    let is_remembered = of_jit && is_of_fragment(params);
    if is_remembered && let Some(known) = without_dead_code(params) {
        return Ok(Some(known));
    }
    if of_jit && jax.trim_keeps_programs.is_truthy(primitive.py())? && is_live(jax, params)? {
        return Ok(Some(Arc::new(FragmentParams::of_program(params.clone()))));
    }
    let run = || trimmed(jax, primitive, &eqn()?);
    if !of_jit && jax.trim_shares_programs.is_truthy(primitive.py())? {
        return Ok(run()?.map(|new| Arc::new(FragmentParams::of_program(new))));
    }
    let new = derive_params(jax, &*SITES.of(primitive)?, primitive, params, run)?;
    let Some(new) = new else { return Ok(None) };
    if !is_remembered {
        return Ok(Some(Arc::new(FragmentParams::of_program(new))));
    }
    let new = Arc::new(FragmentParams::new(new));
    note_without_dead_code(params, &new);
    Ok(Some(new))
}

/// Whether nothing is dead in the program of a jit, all of its outputs being used: jax 0.12 leaves its equation as it
/// is.
fn is_live(jax: &Jax, params: &Bound<'_, PyDict>) -> PyResult<bool> {
    let Some(program) = params.get_item(intern!(params.py(), "jaxpr"))? else { return Ok(false) };
    let Ok((open, _)) = open(jax, &program) else { return Ok(false) };
    match unfilled(jax, &open) {
        Some(graph) => is_all_live(jax, &GraphView::new(jax, &graph)),
        None => is_all_live(jax, &ListsView::new(jax, &open)),
    }
}

fn is_all_live<'py, V: JaxprView<'py>>(jax: &Jax, view: &V) -> PyResult<bool> {
    if view.outvars()?.is_empty() || !view.effects()?.is_empty() || !view.constvars()?.is_empty() {
        return Ok(false);
    }
    let invars = view.invars()?;
    // Of a jit's node in a backward pass jax makes an equation anew, so its program is a new one too.
    let live = all_live(jax, view, |_, eqn, primitive, _| {
        Ok(primitive.is(&jax.jit_primitive) && is_live(jax, &view.params(eqn))?)
    })?;
    Ok(live.is_some_and(|live| invars.iter().all(|var| live.has(view.number(var)))))
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
