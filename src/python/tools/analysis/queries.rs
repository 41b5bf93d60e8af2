//! Questions about the equations of programs, answered for Python.

use std::cell::RefCell;
use std::collections::hash_map::Entry;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::{
    Capture, Conversion, Counting, Filter, Site, Trips, Weight, critical_path, dead, depends_on,
    duplicates, effects, find, histogram, large_constants, precision, unused_inputs, used_by,
};
use crate::ir::{DType, Dim, SourceId};
use crate::structure::{Objects, Purpose};

use crate::python::jax::names::jax;
use crate::python::program::graph::Graph;
use crate::python::tools::analysis::equations::{EquationRecord, Equations, Found};
use crate::python::tools::structure::PyObjects;

/// A size of a dimension, as Python has it: a number, or the text of an expression.
#[derive(FromPyObject)]
pub enum Size {
    Known(u64),
    Symbolic(String),
}

impl From<Size> for Dim {
    fn from(size: Size) -> Self {
        match size {
            Size::Known(size) => Self::Static(size),
            Size::Symbolic(text) => Self::Symbolic(text.into()),
        }
    }
}

/// Whether name scopes have some scopes, which follow each other, among them.
fn is_within(name_stack: &str, scope: &str) -> bool {
    let wanted: Vec<&str> = scope.split('/').collect();
    let around: Vec<&str> = name_stack.split('/').collect();
    around.windows(wanted.len()).any(|scopes| *scopes == *wanted)
}

/// The equations that are as asked; `is_wanted` is asked of the traceback of each line.
///
/// Raises:
///     A nested program cannot be read, or what `is_wanted` raises.
#[pyfunction]
#[pyo3(name = "find")]
pub fn find_equations<'py>(
    root: &Bound<'py, Graph>,
    primitive: Option<&str>,
    dtype: Option<&str>,
    shape: Option<Vec<Size>>,
    name_scope: Option<&str>,
    is_wanted: Option<&Bound<'py, PyAny>>,
) -> PyResult<Found> {
    let equations = Equations::of(root)?;
    let filter = Filter {
        primitive: primitive.map(Into::into),
        dtype: dtype.map(DType::from_name),
        shape: shape.map(|shape| shape.into_iter().map(Into::into).collect()),
    };
    let known: RefCell<FxHashMap<(usize, SourceId), bool>> = RefCell::default();
    let accepts = |place: usize, source: SourceId| -> PyResult<bool> {
        if name_scope.is_none() && is_wanted.is_none() {
            return Ok(true);
        }
        if let Some(&known) = known.borrow().get(&(place, source)) {
            return Ok(known);
        }
        let in_scope = match name_scope {
            None => true,
            Some(scope) => is_within(&equations.name_stack(place, source)?, scope),
        };
        let accepted = in_scope
            && match is_wanted {
                None => true,
                Some(is_wanted) => {
                    is_wanted.call1((equations.traceback(place, source),))?.is_truthy()?
                }
            };
        known.borrow_mut().insert((place, source), accepted);
        Ok(accepted)
    };
    Ok(equations.in_order(find(equations.nest(), &filter, accepts)?))
}

/// How many equations of each primitive there are, the most frequent first.
///
/// Raises:
///     `ValueError`: `nested` is none of the ways to count.
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "histogram")]
pub fn histogram_of(root: &Bound<'_, Graph>, nested: &str) -> PyResult<Vec<(String, u128)>> {
    let counting = match nested {
        "none" => Counting::Outermost,
        "once" => Counting::Once,
        "each call" => Counting::EachCall,
        _ => {
            let message = format!("nested must be 'once', 'each call' or 'none', got '{nested}'");
            return Err(PyValueError::new_err(message));
        }
    };
    let counts = histogram(Equations::of(root)?.nest(), counting);
    Ok(counts.into_iter().map(|(name, count)| (name.into(), count)).collect())
}

/// A constant, as `jaxide._reports.queries.Constant` is made of it.
#[derive(IntoPyObject)]
pub struct ConstantRecord<'py> {
    path: Bound<'py, PyTuple>,
    position: usize,
    aval: Bound<'py, PyString>,
    bytes: u128,
    first_use: Option<EquationRecord<'py>>,
}

fn constant<'py>(equations: &Equations<'py>, capture: &Capture) -> PyResult<ConstantRecord<'py>> {
    let place = capture.constant.place;
    let first_use = capture.first_use.map(|eqn| equations.record(Site { place, eqn }));
    Ok(ConstantRecord {
        path: equations.path(place)?,
        position: capture.constant.position,
        aval: equations.type_text(place, capture.ty),
        bytes: capture.bytes,
        first_use: first_use.transpose()?,
    })
}

/// What an output depends on, as Python has it.
#[derive(IntoPyObject)]
pub struct DependenciesRecord<'py> {
    inputs: Vec<u32>,
    constants: Vec<ConstantRecord<'py>>,
    equations: Found,
}

fn check_position(what: &str, position: usize, number: usize) -> PyResult<u32> {
    match u32::try_from(position) {
        Ok(known) if position < number => Ok(known),
        _ => {
            let message =
                format!("the program has {number} {what}s, there is no {what} {position}");
            Err(PyIndexError::new_err(message))
        }
    }
}

/// What an output depends on.
///
/// Raises:
///     `IndexError`: There is no such output.
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "depends_on")]
pub fn dependencies_of<'py>(
    root: &Bound<'py, Graph>,
    output: usize,
) -> PyResult<DependenciesRecord<'py>> {
    let equations = Equations::of(root)?;
    let nest = equations.nest();
    let output = check_position("output", output, nest.program(nest.root()).outvars().len())?;
    let found = depends_on(nest, output);
    let needed: FxHashSet<_> = found.constants.iter().map(|c| (c.place, c.position)).collect();
    let captures = large_constants(nest, 0);
    let captures =
        captures.iter().filter(|c| needed.contains(&(c.constant.place, c.constant.position)));
    Ok(DependenciesRecord {
        inputs: found.inputs,
        constants: captures
            .map(|capture| constant(&equations, capture))
            .collect::<PyResult<_>>()?,
        equations: equations.in_order(found.eqns),
    })
}

/// What an input is used for: positions of outputs, and equations.
///
/// Raises:
///     `IndexError`: There is no such input.
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "used_by")]
pub fn uses_of(root: &Bound<'_, Graph>, input: usize) -> PyResult<(Vec<u32>, Found)> {
    let equations = Equations::of(root)?;
    let nest = equations.nest();
    let input = check_position("input", input, nest.program(nest.root()).invars().len())?;
    let found = used_by(nest, input);
    Ok((found.outputs, equations.in_order(found.eqns)))
}

/// The positions of inputs that no output and no effect depends on.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "unused_inputs")]
pub fn unused_inputs_of(root: &Bound<'_, Graph>) -> PyResult<Vec<u32>> {
    Ok(unused_inputs(Equations::of(root)?.nest()))
}

/// The equations that no output and no effect depends on.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "dead")]
pub fn dead_of(root: &Bound<'_, Graph>) -> PyResult<Found> {
    let equations = Equations::of(root)?;
    Ok(equations.in_order(dead(equations.nest())))
}

/// The longest chain of equations: its length, that of all equations one after another, and the
/// equations.
///
/// Raises:
///     `ValueError`: There is no such measure.
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "critical_path")]
pub fn critical_path_of(
    root: &Bound<'_, Graph>,
    by: &str,
    trips: u64,
) -> PyResult<(u128, u128, Found)> {
    let weight = match by {
        "equations" => Weight::Equations,
        "operations" => Weight::Operations,
        "bytes" => Weight::Bytes,
        _ => {
            let message = format!("by must be 'equations', 'operations' or 'bytes', got '{by}'");
            return Err(PyValueError::new_err(message));
        }
    };
    let equations = Equations::of(root)?;
    let path = critical_path(equations.nest(), weight, Trips(trips), equations.graphs());
    Ok((path.length, path.total, equations.found(path.eqns)))
}

/// The groups of equations that compute the same thing.
///
/// Raises:
///     A nested program cannot be read, or a literal cannot be described.
#[pyfunction]
#[pyo3(name = "duplicates")]
pub fn duplicates_of(root: &Bound<'_, Graph>) -> PyResult<(Vec<usize>, Found)> {
    let equations = Equations::of(root)?;
    let jax = jax(root.py())?;
    let mut objects: FxHashMap<usize, PyObjects<'_>> = FxHashMap::default();
    let groups = duplicates(equations.nest(), |place, literal| {
        let program = equations.nest().program(place);
        let Some(graph) = equations.graph(place) else {
            // Only a literal that is the same object is the same.
            return Ok(u128::from(literal.as_u32()));
        };
        let objects = match objects.entry(place) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(PyObjects::of(jax, graph, Purpose::Content)?.objects)
            }
        };
        PyResult::Ok(objects.describe(program.literal(literal).object)?.0)
    })?;
    let lengths = groups.iter().map(Vec::len).collect();
    Ok((lengths, equations.found(groups.concat())))
}

/// The constants that take at least so many bytes, the largest first.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "large_constants")]
pub fn large_constants_of<'py>(
    root: &Bound<'py, Graph>,
    least: u128,
) -> PyResult<Vec<ConstantRecord<'py>>> {
    let equations = Equations::of(root)?;
    let captures = large_constants(equations.nest(), least);
    captures.iter().map(|capture| constant(&equations, capture)).collect()
}

/// A change of precision, as `jaxide._reports.queries.Conversion` is made of it.
#[derive(IntoPyObject)]
pub struct ConversionRecord<'py> {
    equation: EquationRecord<'py>,
    from_dtype: String,
    to_dtype: String,
    widens: bool,
    explicit: bool,
    bytes_before: u128,
    bytes_after: u128,
}

/// What is done to the precision of numbers.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "precision")]
pub fn precision_of<'py>(root: &Bound<'py, Graph>) -> PyResult<Vec<ConversionRecord<'py>>> {
    let equations = Equations::of(root)?;
    let record = |conversion: Conversion| {
        Ok(ConversionRecord {
            equation: equations.record(conversion.site)?,
            from_dtype: conversion.from.into(),
            to_dtype: conversion.to.into(),
            widens: conversion.widens,
            explicit: conversion.is_explicit,
            bytes_before: conversion.bytes_before,
            bytes_after: conversion.bytes_after,
        })
    };
    precision(equations.nest()).into_iter().map(record).collect()
}

/// The kinds of effects, and the equations that have each.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
#[pyo3(name = "effects")]
pub fn effects_of(root: &Bound<'_, Graph>) -> PyResult<Vec<(String, Found)>> {
    let equations = Equations::of(root)?;
    let kinds = effects(equations.nest()).into_iter();
    Ok(kinds.map(|(name, sites)| (name.into(), equations.in_order(sites))).collect())
}
