//! What programs cost, as Python has it.

use indexmap::IndexSet;
use pyo3::intern;
use pyo3::prelude::*;
use rustc_hash::FxBuildHasher;

use crate::analysis::{Cost, Estimates, Line, Name, Report, Trips, by_name, by_scope, cost};
use crate::ir::{Eqn, ParamValue, Program};

use crate::python::jax::names::jax;
use crate::python::program::graph::Graph;
use crate::python::tools::analysis::Graphs;
use crate::python::tools::scopes::scopes_of;

/// Flops, transcendentals, bytes read and bytes written.
pub type Numbers = (u128, u128, u128, u128);

pub fn numbers(cost: Cost) -> Numbers {
    (cost.flops, cost.transcendentals, cost.bytes_read, cost.bytes_written)
}

/// What a program costs, as Python has it.
#[derive(IntoPyObject)]
pub struct CostReport<'py> {
    total: Numbers,
    /// By the name of the primitive: how often, and what.
    by_primitive: Vec<(String, u128, Numbers)>,
    /// By line of the user's code; None where there is none, nor around the program.
    by_line: Vec<(Option<String>, u128, Numbers)>,
    /// By the names of scopes, the outermost one first; without those of scopes within.
    by_scope: Vec<(Vec<String>, u128, Numbers)>,
    /// By program: where its function is, how often it runs, what it costs each time.
    by_program: Vec<(String, u128, Numbers)>,
    unknown: Vec<(String, u128)>,
    /// Where loops are of which nobody knows how often they run.
    loops: Vec<Option<Bound<'py, PyAny>>>,
    /// Where equations with branches are, and what each branch costs.
    branches: Vec<(Option<Bound<'py, PyAny>>, Vec<Numbers>)>,
}

impl Estimates for Graphs<'_> {
    fn estimate(&self, program: &Program, eqn: Eqn) -> Option<Cost> {
        let params = program.params(program.eqn(eqn).params);
        let ParamValue::Opaque(object) = params.get("cost_estimate")? else { return None };
        let graph = self.get(program)?;
        let py = graph.py();
        let estimate = graph.get().table().object(py, *object);
        let number = |name| estimate.getattr(name).ok()?.extract::<u128>().ok();
        Some(Cost {
            flops: number(intern!(py, "flops"))?,
            transcendentals: number(intern!(py, "transcendentals"))?,
            // Which of them are read a kernel does not say.
            bytes_read: number(intern!(py, "bytes_accessed"))?,
            bytes_written: 0,
        })
    }
}

/// Names that are numbered, and the first thing that was wrong with one.
#[derive(Default)]
struct Names {
    known: IndexSet<String, FxBuildHasher>,
    failed: Option<PyErr>,
}

impl Names {
    fn number(&mut self, name: String) -> Name {
        u32::try_from(self.known.insert_full(name).0).unwrap_or(Name::MAX)
    }

    /// What was found; a default where that is an error.
    fn checked<T: Default>(&mut self, found: PyResult<T>) -> T {
        found.unwrap_or_else(|error| {
            self.failed = Some(error);
            T::default()
        })
    }

    fn text(&self, name: Name) -> String {
        self.known.get_index(name as usize).cloned().unwrap_or_default()
    }
}

/// What the equations of each line cost.
fn lines<'py>(
    report: &Report,
    graphs: &Graphs<'py>,
    line: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Option<String>, u128, Numbers)>> {
    let mut names = Names::default();
    let found = by_name(report, |place, source| {
        let traceback = graphs.traceback(&report.programs[place].program, source)?;
        let found = line.call1((traceback,)).and_then(|found| found.extract::<Option<String>>());
        names.checked(found).map(|line| names.number(line))
    });
    if let Some(error) = names.failed {
        return Err(error);
    }
    let row = |(name, line): (Option<Name>, Line)| {
        (name.map(|name| names.text(name)), line.times, numbers(line.cost))
    };
    Ok(found.into_iter().map(row).collect())
}

/// What the equations of each scope cost.
fn scopes(report: &Report, graphs: &Graphs<'_>) -> PyResult<Vec<(Vec<String>, u128, Numbers)>> {
    let mut names = Names::default();
    let found = by_scope(report, |place, source| {
        let stack = graphs.name_stack(&report.programs[place].program, source);
        let scopes = stack.map_or_else(|| Ok(Vec::new()), |stack| scopes_of(&stack));
        names.checked(scopes).into_iter().map(|name| names.number(name)).collect()
    });
    if let Some(error) = names.failed {
        return Err(error);
    }
    let row = |(scope, line): (Vec<Name>, Line)| {
        let scope = scope.into_iter().map(|name| names.text(name)).collect();
        (scope, line.times, numbers(line.cost))
    };
    Ok(found.into_iter().map(row).collect())
}

/// What executing a program costs; loops of which nobody knows it run `trips` times. `line` says on which line of the
/// user's code a traceback is, or None.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "cost")]
pub fn cost_of<'py>(
    root: &Bound<'py, Graph>,
    trips: u64,
    line: &Bound<'py, PyAny>,
) -> PyResult<CostReport<'py>> {
    let jax = jax(root.py())?;
    let program = Graph::resolved_program(root, jax)?;
    let graphs = Graphs::of(jax, root)?;
    let report = cost(&program, Trips(trips), &graphs);
    let of = |place: usize| &*report.programs[place].program;
    let place_of = |place: usize, eqn: Eqn| graphs.traceback(of(place), of(place).eqn(eqn).source);
    Ok(CostReport {
        total: numbers(report.total),
        by_primitive: report
            .by_primitive
            .iter()
            .map(|(name, line)| (name.to_string(), line.times, numbers(line.cost)))
            .collect(),
        by_line: lines(&report, &graphs, line)?,
        by_scope: scopes(&report, &graphs)?,
        by_program: report
            .programs
            .iter()
            .map(|nested| {
                let name = nested.program.debug_info().func_src_info.to_string();
                (name, nested.times, numbers(nested.each))
            })
            .collect(),
        unknown: report.unknown.iter().map(|(name, &count)| (name.to_string(), count)).collect(),
        loops: report.loops.iter().map(|&(place, eqn)| place_of(place, eqn)).collect(),
        branches: report
            .branches
            .iter()
            .map(|branches| {
                let costs = branches.costs.iter().copied().map(numbers).collect();
                (place_of(branches.program, branches.eqn), costs)
            })
            .collect(),
    })
}
