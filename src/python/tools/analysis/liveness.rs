//! What is alive when in programs, as Python has it.

use cranelift_entity::EntityRef;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};

use crate::analysis::{Alive, Assumptions, Last, Origin, Value, liveness};

use crate::python::cpython::native::NoCollection;
use crate::python::program::graph::Graph;
use crate::python::tools::analysis::equations::{EquationRecord, Equations};

/// A value that is alive, as `jaxide._reports.liveness.LiveValue` is made of it.
#[derive(IntoPyObject)]
pub struct ValueRecord<'py> {
    kind: &'static str,
    position: usize,
    path: Bound<'py, PyTuple>,
    equation: Option<EquationRecord<'py>>,
    aval: Bound<'py, PyString>,
    bytes: u128,
}

/// What is alive when, as Python has it.
#[derive(IntoPyObject)]
pub struct LivenessRecord<'py> {
    peak: u128,
    peak_at: Option<EquationRecord<'py>>,
    alive: Vec<ValueRecord<'py>>,
    before: Bound<'py, PyTuple>,
    during: Bound<'py, PyTuple>,
    after: Bound<'py, PyTuple>,
    end: u128,
    /// The position of an equation, or the number of equations for the end.
    last_use_of_inputs: Bound<'py, PyTuple>,
    last_use_of_results: Bound<'py, PyTuple>,
    input_bytes: u128,
    constant_bytes: u128,
    output_bytes: u128,
}

/// A number of bytes; those that fit a word, as nearly all do, are made in a tenth of the time.
fn number(py: Python<'_>, bytes: u128) -> Bound<'_, PyInt> {
    let number = match u64::try_from(bytes) {
        Ok(small) => small.into_pyobject(py),
        Err(_) => bytes.into_pyobject(py),
    };
    number.unwrap_or_else(|never| match never {})
}

fn value<'py>(equations: &Equations<'py>, value: &Value) -> PyResult<ValueRecord<'py>> {
    let (kind, position, site) = match value.origin {
        Origin::Input(position) => ("input", position, None),
        Origin::Constant(_, position) => ("constant", position, None),
        Origin::Result(site, position) => ("result", position, Some(site)),
        Origin::Within(site, position) => ("within", position, Some(site)),
        Origin::Output(_, position) => ("output", position, None),
    };
    let (place, ty) = value.ty;
    Ok(ValueRecord {
        kind,
        position,
        path: equations.path(place)?,
        equation: site.map(|site| equations.record(site)).transpose()?,
        aval: equations.type_text(place, ty),
        bytes: value.bytes,
    })
}

/// What is alive when; of the inputs those are given back that are donated.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "liveness")]
pub fn liveness_of<'py>(
    root: &Bound<'py, Graph>,
    donated: Vec<bool>,
    fused: bool,
) -> PyResult<LivenessRecord<'py>> {
    let py = root.py();
    let equations = Equations::of(root)?;
    let nest = equations.nest();
    let found = liveness(nest, &Assumptions { donated, fused });
    let end = nest.program(nest.root()).num_eqns();
    let position = |last: &Last| match last {
        Last::Never => None,
        Last::At(eqn) => Some(eqn.index()),
        Last::End => Some(end),
    };
    // Many tuples are made, which refer to nothing that could refer to them.
    let _no_collection = NoCollection::start(py);
    let positions = |lasts: &Vec<Last>| PyTuple::new(py, lasts.iter().map(position));
    let results = found.results.iter().map(positions).collect::<PyResult<Vec<_>>>()?;
    let bytes = |of: fn(&Alive) -> u128| {
        PyTuple::new(py, found.curve.iter().map(|alive| number(py, of(alive))))
    };
    Ok(LivenessRecord {
        peak: found.peak,
        peak_at: found.peak_at.map(|site| equations.record(site)).transpose()?,
        alive: found.alive.iter().map(|live| value(&equations, live)).collect::<PyResult<_>>()?,
        before: bytes(|alive| alive.before)?,
        during: bytes(|alive| alive.during)?,
        after: bytes(|alive| alive.after)?,
        end: found.end,
        last_use_of_inputs: positions(&found.inputs)?,
        last_use_of_results: PyTuple::new(py, results)?,
        input_bytes: found.input_bytes,
        constant_bytes: found.constant_bytes,
        output_bytes: found.output_bytes,
    })
}
