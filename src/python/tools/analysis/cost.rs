//! What programs cost, as Python has it.

use pyo3::intern;
use pyo3::prelude::*;

use crate::analysis::{Cost, Estimates, Line, Trips, cost};
use crate::ir::{Eqn, ParamValue, Program};

use crate::python::jax::names::jax;
use crate::python::program::graph::Graph;
use crate::python::tools::analysis::Graphs;

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
    /// By traceback.
    by_source: Vec<(Option<Bound<'py, PyAny>>, u128, Numbers)>,
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

/// What executing a program costs; loops of which nobody knows it run `trips` times.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "cost")]
pub fn cost_of<'py>(root: &Bound<'py, Graph>, trips: u64) -> PyResult<CostReport<'py>> {
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
        by_source: report
            .by_source
            .iter()
            .map(|(&(place, source), &Line { times, cost })| {
                (graphs.traceback(of(place), source), times, numbers(cost))
            })
            .collect(),
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
