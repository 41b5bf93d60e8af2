//! The methods of `Graph`, as Python has them.

use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::ir::verify;
use crate::structure::{equal, fingerprint};

use crate::python::jax::names::jax;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::new_jaxpr;
use crate::python::program::read::{self, Detail, read};
use crate::python::tools::skeleton::comparison_skeleton;
use crate::python::tools::structure::{
    PyObjects, describe_step, purpose, repeated, step_fingerprints,
};

#[pymethods]
impl Graph {
    /// Number of equations, not counting nested ones.
    fn __len__(&self) -> usize {
        self.program().num_eqns()
    }

    /// A new open jaxpr of the installed jax and the list of its constants.
    fn to_jaxpr<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
        let py = slf.py();
        let jax = jax(py)?;
        new_jaxpr(jax, slf)
    }

    /// The program as text with the IR's own names, nested programs included.
    fn dump(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        Ok(Self::resolved_program(slf, jax(py)?)?.to_string())
    }

    /// 128 bits that stand for what the program says: its "structure" (constants by type), its
    /// "content" (constants by value), or what its "execution" depends on. `objects` says what the
    /// objects of the program are, where it is given.
    ///
    /// Raises:
    ///     What describing an object of the program raises.
    #[pyo3(signature = (of, objects=None))]
    fn fingerprint(
        slf: &Bound<'_, Self>,
        of: &str,
        objects: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u128> {
        let (jax, purpose) = (jax(slf.py())?, purpose(of)?);
        let program = match objects {
            None => PyObjects::of(jax, slf, purpose)?,
            Some(source) => PyObjects::said_by(jax, slf, purpose, source)?,
        };
        Ok(fingerprint(program, purpose)?.0)
    }

    /// Whether another program is the same but for the names of variables and sources.
    ///
    /// Raises:
    ///     What comparing objects of the programs raises.
    fn equals(slf: &Bound<'_, Self>, other: &Bound<'_, Self>, of: &str) -> PyResult<bool> {
        let jax = jax(slf.py())?;
        let purpose = purpose(of)?;
        let of = |graph| PyObjects::of(jax, graph, purpose);
        equal(of(slf)?, of(other)?, purpose)
    }

    /// What stands for the program up to each of its equations, those of nested programs before the
    /// equation that they are in; the inputs are first, the results last.
    ///
    /// Raises:
    ///     What describing an object of the program raises.
    fn steps(slf: &Bound<'_, Self>, of: &str) -> PyResult<Vec<u128>> {
        let purpose = purpose(of)?;
        step_fingerprints(PyObjects::of(jax(slf.py())?, slf, purpose)?, purpose)
    }

    /// What is done in one of these steps, in words, and the traceback of its equation.
    ///
    /// Raises:
    ///     `IndexError`: There is no such step.
    fn describe_step<'py>(
        slf: &Bound<'py, Self>,
        of: &str,
        index: usize,
    ) -> PyResult<(String, Option<Bound<'py, PyAny>>)> {
        let purpose = purpose(of)?;
        describe_step(PyObjects::of(jax(slf.py())?, slf, purpose)?, purpose, index)
    }

    /// Pairs of nested jaxprs that are equal when they are executed: one that can stand
    /// for the other, and the other.
    ///
    /// Raises:
    ///     What comparing objects of the programs raises.
    fn repeated<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        repeated(jax(slf.py())?, slf)
    }

    /// Whether a nested program has constants.
    ///
    /// Raises:
    ///     A nested program cannot be read.
    fn has_nested_constants(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(Self::resolved_program(slf, jax(slf.py())?)?.has_nested_constants())
    }

    /// As much of the program as comparing it for its execution needs: neither sources nor names,
    /// nor the program's constants. Also what lives with it: the objects among its params that count,
    /// and constants of nested programs.
    ///
    /// Raises:
    ///     `RecursionError`: Programs are nested too deeply.
    fn comparison_skeleton<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, Self>, Bound<'py, PyList>)> {
        comparison_skeleton(jax(slf.py())?, slf)
    }

    /// Every violated invariant of the IR, as text; empty for a well-formed program.
    fn violations(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let py = slf.py();
        let program = Self::resolved_program(slf, jax(py)?)?;
        Ok(match verify(&program) {
            Ok(()) => Vec::new(),
            Err(violations) => violations.iter().map(ToString::to_string).collect(),
        })
    }

    /// Bytes of the arena, nested programs not counted.
    fn memory_bytes(&self) -> usize {
        self.program().memory_bytes()
    }

    #[allow(clippy::needless_pass_by_value)] // the signature pyo3 wants
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse(&visit)
    }

    fn __clear__(&self) {
        self.clear();
    }
}

/// The graph of any jaxpr, closed or open.
///
/// Raises:
///   `TypeError`: the argument is not a jaxpr.
#[pyfunction]
pub fn graph_of<'py>(jaxpr: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Graph>> {
    read::graph_of(jax(jaxpr.py())?, jaxpr)
}

/// The fingerprint of any jaxpr, of which no more is read than that takes.
///
/// Raises:
///   `TypeError`: the argument is not a jaxpr.
#[pyfunction]
pub fn fingerprint_of(jaxpr: &Bound<'_, PyAny>, purpose: &str) -> PyResult<u128> {
    let jax = jax(jaxpr.py())?;
    Graph::fingerprint(&read(jax, jaxpr, Detail::Structure)?, purpose, None)
}
