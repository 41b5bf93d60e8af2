//! The methods of a frame, as jax's own code calls them.

use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyTuple, PyType};
use rustc_hash::FxHashSet;

use crate::ir::{Atom, AtomKind, Eqn, TypeId, Var};

use crate::python::cpython::native::string_of;
use crate::python::jax::avals::aval_info;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::{JaxprFields, new_jaxpr};
use crate::python::trace::frame::Frame;
use crate::python::trace::frame::operands::{Appended, Ready};
use crate::python::trace::frame::state::{Phase, State};
use crate::python::trace::jaxpr_trace::operand_of_tracer;
use crate::python::trace::tracer;

#[pymethods]
impl Frame {
    #[getter]
    fn debug_info<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.own_debug_info(py)
    }

    #[setter]
    fn set_debug_info(&self, value: Py<PyAny>) {
        drop(self.peek(|state| state.debug_info.replace(value)));
    }

    #[getter]
    fn get_auto_dce(&self) -> bool {
        self.auto_dce
    }

    #[getter]
    fn get_is_high(&self) -> bool {
        self.peek(|state| state.is_high)
    }

    #[setter]
    fn set_is_high(&self, value: bool) {
        self.peek(|state| state.is_high = value);
    }

    /// jax keeps an empty set here.
    #[getter]
    #[allow(clippy::unused_self)] // a getter
    fn effects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        PySet::empty(py)
    }

    /// What makes jax `Var`s.
    #[getter]
    #[allow(clippy::unused_self)] // a getter
    fn gensym<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyType>> {
        Ok(jax(py)?.var_type.bind(py).clone())
    }

    /// The tracers of the constants that have one, by the id of the value.
    #[getter]
    fn constid_to_tracer<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let dict = PyDict::new(py);
        let alive: Vec<_> = slf.get().with(py, |state, quiet| {
            let alive = |(&address, &var)| Some((address, state.alive_tracer(var, quiet)?));
            state.const_by_id.iter().filter_map(alive).collect()
        });
        for (address, tracer) in alive {
            dict.set_item(address, tracer)?;
        }
        Ok(dict)
    }

    /// Variables with quasi-dynamic data (jax before 0.11).
    #[getter]
    fn mutable_qdds<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let qdds = slf.get().with(py, |state, quiet| state.own_qdds(quiet));
        let list = PyList::empty(py);
        for (var, qdd) in qdds {
            list.append((Self::var_object(slf, jax(py)?, var)?, qdd))?;
        }
        Ok(list)
    }

    /// The inputs so far, as jax `Var`s.
    #[getter]
    fn invars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let jax = jax(py)?;
        let vars = slf.get().peek(|state| state.program_invars());
        let list = PyList::empty(py);
        for var in vars {
            list.append(Self::var_object(slf, jax, var)?)?;
        }
        Ok(list)
    }

    /// The constants so far: jax `Var` to value.
    #[getter]
    fn constvar_to_val<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let jax = jax(py)?;
        let dict = PyDict::new(py);
        let constvars: Vec<_> = slf.get().with(py, |state, quiet| match state.phase.recording() {
            Some(builder) => {
                let value = |(var, id)| (var, state.table.constant_of(quiet, id));
                builder.constvars().map(value).collect()
            }
            None => Vec::new(),
        });
        for (var, value) in constvars {
            dict.set_item(Self::var_object(slf, jax, var)?, value)?;
        }
        Ok(dict)
    }

    /// The live equations as jax's `JaxprEqn`s.
    fn get_eqns<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let jax = jax(slf.py())?;
        let raw = slf.get().with(slf.py(), |state, quiet| match state.phase.recording() {
            Some(builder) => state.raw_eqns(jax, builder.live_eqns(), quiet),
            None => Vec::new(),
        });
        Self::eqn_objects(slf, jax, raw)
    }

    /// As `get_eqns`.
    #[getter]
    fn tracing_eqns<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        Self::get_eqns(slf)
    }

    /// A jax `Var` that no equation defines yet.
    #[staticmethod]
    fn newvar<'py>(aval: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = aval.py();
        let jax = jax(py)?;
        if !jax.aval_qdd_type.bind(py).is_none() && aval.is_instance(jax.aval_qdd_type.bind(py))? {
            let (aval, qdd) = (aval.getattr("aval")?, aval.getattr("qdd")?);
            return jax.var_type.bind(py).call1((aval, qdd));
        }
        jax.var_type.bind(py).call1((aval,))
    }

    /// Appends a jax `TracingEqn` made by `make_eqn`.
    fn add_eqn(slf: &Bound<'_, Self>, eqn: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let jax = jax(py)?;
        if !eqn.get_type().is(&jax.tracing_eqn_type) {
            return Err(PyTypeError::new_err(format!(
                "not a TracingEqn: {}",
                string_of(&eqn.repr()?)
            )));
        }
        let mut operands = Vec::new();
        for tracer in eqn.getattr("in_tracers")?.try_iter()? {
            operands.push(operand_of_tracer(jax, slf, &tracer?)?);
        }
        let outvars: Vec<Bound<'_, PyAny>> =
            eqn.getattr("outvars")?.try_iter()?.collect::<PyResult<_>>()?;
        let out_avals: Vec<_> =
            outvars.iter().map(|var| var.getattr("aval")).collect::<PyResult<_>>()?;
        let params = eqn.getattr("params")?.cast_into::<PyDict>()?;
        let source = SourceRef::of(jax, &eqn.getattr("source_info")?)?;
        let effects = eqn.getattr("effects")?;
        let has_effects = effects.is_truthy()?;
        let primitive = eqn.getattr("primitive")?;
        let ctx = eqn.getattr("ctx")?;
        let local = Self::describe(slf, jax, &primitive, &params, &out_avals)?;
        let eqn = Appended {
            local: &local,
            operands: &operands,
            effects: has_effects.then_some(&effects),
            no_effects: (!has_effects).then_some(&effects),
            source: Self::source(slf, jax, &source)?,
            context: &ctx,
        };
        let vars = Self::append(slf, jax, &eqn)?;
        // The tracers that make_eqn made are jax's and are not counted: the outputs stay retained.
        for (new, object) in vars.iter().zip(&outvars) {
            Self::set_var_object(slf, new.var, object);
        }
        Ok(())
    }

    /// The finished jaxpr and its constants.
    fn to_jaxpr<'py>(
        slf: &Bound<'py, Self>,
        trace: &Bound<'py, PyAny>,
        out_tracers: &Bound<'py, PyAny>,
        debug_info: &Bound<'py, PyAny>,
        source_info: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
        let _ = (trace, source_info);
        let py = slf.py();
        let jax = jax(py)?;
        let postponed = || -> PyResult<bool> {
            let paths = debug_info.getattr(intern!(py, "result_paths"))?;
            Ok(paths.get_type().is(&jax.postponed_paths))
        };
        let debug_info = if debug_info.is_none() {
            debug_info.clone()
        } else if postponed()? {
            let unknown = PyDict::new(py);
            unknown.set_item(intern!(py, "result_paths"), py.None())?;
            debug_info.call_method(intern!(py, "_replace"), (), Some(&unknown))?
        } else {
            debug_info.call_method0(intern!(py, "resolve_result_paths"))?
        };
        let mut outs = Vec::new();
        for tracer in out_tracers.try_iter()? {
            outs.push(operand_of_tracer(jax, slf, &tracer?)?);
        }
        let ready: Vec<_> = outs.iter().map(|out| Ready::of(jax, out)).collect::<PyResult<_>>()?;
        let atoms: Vec<Atom> = slf.get().with(py, |state, quiet| {
            ready.iter().map(|out| state.atom(out, quiet)).collect::<PyResult<_>>()
        })?;
        let effects = Self::jaxpr_effects(slf, jax, &atoms)?;
        let is_high = Self::is_high_program(slf, jax, &atoms)?;
        Self::store_final_qdds(slf)?;
        let graph = Graph::to_be(&JaxprFields { effects, debug_info, is_high })?;
        let finished = graph.as_unbound();
        // In one go: whoever asks finds the program in the frame, or in the graph.
        let given_up = slf.get().with(py, |state, quiet| state.finish(&atoms, finished, quiet))?;
        drop(given_up);
        new_jaxpr(jax, &graph)
    }

    /// Which inputs a tracer depends on, else the equations with constants it may come from.
    fn find_progenitors<'py>(
        slf: &Bound<'py, Self>,
        tracer: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let jax = jax(py)?;
        let none = py.None().into_bound(py);
        let Some(var) = tracer::variable(py, tracer.as_ptr()) else {
            return (&none, &none).into_pyobject(py);
        };
        let (positions, with_consts) = slf.get().with(py, |state, quiet| {
            let (positions, with_consts) = state.progenitors(var);
            (positions, state.raw_eqns(jax, with_consts, quiet))
        });
        let eqns = Self::eqn_objects(slf, jax, with_consts)?;
        (positions, eqns).into_pyobject(py)
    }

    /// Forgets the equations, as jax does when a trace is over: they may refer to functions that
    /// refer to the trace.
    fn invalidate(slf: &Bound<'_, Self>) {
        drop(slf.get().peek(State::invalidate));
    }

    #[allow(clippy::needless_pass_by_value)] // the signature pyo3 wants
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state.visit(|state| state.traverse(&visit)).unwrap_or(Ok(()))
    }

    fn __clear__(&self) {
        drop(self.peek(|state| {
            let rest = (state.debug_info.take(), std::mem::take(&mut state.qdds));
            let phase = std::mem::replace(&mut state.phase, Phase::Gone);
            (rest, phase, std::mem::take(&mut state.table))
        }));
    }
}

impl Frame {
    fn is_high_program(slf: &Bound<'_, Self>, jax: &Jax, outs: &[Atom]) -> PyResult<bool> {
        let py = slf.py();
        let avals = slf.get().with(py, |state, quiet| {
            if state.is_high {
                return Ok(None);
            }
            let (builder, table) = state.recording()?;
            let vars = builder.constvars().map(|(var, _)| var);
            let vars = vars.chain(builder.invars().iter().copied()).map(Atom::var);
            let type_of = |atom: Atom| match atom.kind() {
                AtomKind::Var(var) => builder.type_of(var),
                AtomKind::Literal(literal) => builder.literal_data(literal).ty,
            };
            let types: FxHashSet<TypeId> = vars.chain(outs.iter().copied()).map(type_of).collect();
            let avals: Vec<_> =
                types.into_iter().filter_map(|ty| table.aval_of(quiet, ty)).collect();
            Ok::<_, PyErr>(Some(avals))
        })?;
        let Some(avals) = avals else { return Ok(true) };
        for aval in avals {
            let aval = aval.bind(py);
            if !aval.get_type().is(&jax.shaped_array_type) && aval_info(jax, aval)?.is_high {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn store_final_qdds(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let qdds = slf.get().with(py, |state, quiet| state.own_qdds(quiet));
        for (var, qdd) in qdds {
            let object = Self::var_object(slf, jax(py)?, var)?;
            object.setattr("final_qdd", qdd.bind(py).getattr("cur_val")?)?;
        }
        Ok(())
    }
}

impl State {
    /// As jax's `find_progenitors`: positions of inputs that `var` depends on; where there are
    /// none, all equations that use a literal or one of the constants it depends on.
    fn progenitors(&self, var: Var) -> (Vec<usize>, Vec<Eqn>) {
        let mut active = FxHashSet::from_iter([var]);
        let (invars, eqns) = match self.phase.recording() {
            Some(builder) => {
                for eqn in builder.live_eqns().rev() {
                    let mut produced = false;
                    for out in builder.eqn_data(eqn).outvars() {
                        produced |= active.remove(&out);
                    }
                    if produced {
                        active.extend(builder.eqn_invars(eqn).iter().filter_map(|a| a.as_var()));
                    }
                }
                let constants: FxHashSet<Var> = builder
                    .constvars()
                    .map(|(constant, _)| constant)
                    .filter(|constant| active.contains(constant))
                    .collect();
                let uses_constant = |eqn: &Eqn| {
                    builder.eqn_invars(*eqn).iter().any(|atom| match atom.kind() {
                        AtomKind::Var(var) => constants.contains(&var),
                        AtomKind::Literal(_) => true,
                    })
                };
                (builder.invars().to_vec(), builder.live_eqns().filter(uses_constant).collect())
            }
            None => (self.program_invars(), Vec::new()),
        };
        let positions: Vec<usize> =
            (0..invars.len()).filter(|&i| active.contains(&invars[i])).collect();
        // jax's message names the inputs, and the equations only where there are none.
        let eqns = if positions.is_empty() { eqns } else { Vec::new() };
        (positions, eqns)
    }
}
