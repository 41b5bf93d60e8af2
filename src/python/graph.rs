//! A finished program with its Python objects, and jax's own jaxpr filled from it on demand.
//!
//! The trace hands out a `Jaxpr` whose equations do not exist yet: a subclass of jax's `Jaxpr` whose
//! `_eqns` is filled from the arena the first time anything reads it. Until then that slot holds the
//! `Graph`, which is all the jaxpr keeps alive.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::thread;

use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyType};
use rustc_hash::FxHashMap;

use crate::ir::{
    Atom, AtomKind, Builder, DeadCode, EffectsId, EqnData, ForeignId, LiteralId, Program, SourceId,
    Var, verify,
};

use super::convert::{self, build_error, resolve_subprograms};
use super::jax::{EqnParts, Jax, jax};
use super::native::{Args, NoCollection, TypeSpec, attribute, heap_type, method};
use super::side::Side;

/// A finished program and the Python objects behind its ids.
#[pyclass(module = "jaxide._core")]
pub struct Graph {
    program: Arc<Program>,
    side: Side,
    effects: Py<PyAny>,
    debug_info: Py<PyAny>,
    is_high: bool,
    /// Nested programs have been read.
    resolved: bool,
    /// The equations as jax's, once anything has asked for them.
    filled: Option<Py<PyList>>,
}

/// Borrows once no other thread is at it; nothing of jaxide re-enters a graph on the same thread.
pub fn borrow_mut<'py, T>(object: &Bound<'py, T>) -> PyRefMut<'py, T>
where
    T: pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::False>,
{
    loop {
        match object.try_borrow_mut() {
            Ok(borrowed) => return borrowed,
            Err(_) => object.py().detach(thread::yield_now),
        }
    }
}

impl Graph {
    /// Finishes what `builder` holds, with the outputs, effects and names of `jaxpr`.
    pub fn finish<'py>(
        builder: Builder,
        side: Side,
        outvars: &[Atom],
        jaxpr: &JaxprFields<'py>,
        resolved: bool,
    ) -> PyResult<Bound<'py, Self>> {
        let py = jaxpr.effects.py();
        let names = convert::debug_info(&jaxpr.debug_info)?;
        let program = builder.finish(outvars, names, EffectsId::NONE).map_err(build_error)?;
        let mut side = side;
        side.shrink();
        Bound::new(
            py,
            Self {
                program: Arc::new(program),
                side,
                effects: jaxpr.effects.clone().unbind(),
                debug_info: jaxpr.debug_info.clone().unbind(),
                is_high: jaxpr.is_high,
                resolved,
                filled: None,
            },
        )
    }

    /// The program, its nested programs read as well.
    pub fn resolved_program(slf: &Bound<'_, Self>, jax: &Jax) -> PyResult<Arc<Program>> {
        let py = slf.py();
        let mut borrowed = borrow_mut(slf);
        let graph = &mut *borrowed;
        if !graph.resolved {
            let program = Program::clone(&graph.program);
            let outvars = program.outvars().to_vec();
            let (names, effects) = (program.debug_info().clone(), program.effects());
            let mut builder = program.into_builder(DeadCode::Keep);
            graph.side.resolve_params(py, jax, &mut builder)?;
            resolve_subprograms(jax, py, &mut builder, &graph.side)?;
            let program = builder.finish(&outvars, names, effects).map_err(build_error)?;
            graph.program = Arc::new(program);
            graph.resolved = true;
        }
        Ok(graph.program.clone())
    }

    /// The program as recorded.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    pub fn side(&self) -> &Side {
        &self.side
    }

    /// The `Var` object of a variable.
    pub fn var_object<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ty = self.program.var_type(var);
        self.side.var_object(py, jax, ty, var)
    }

    /// The jax atom of an operand or output.
    fn atom<'py>(&mut self, py: Python<'py>, jax: &Jax, atom: Atom) -> PyResult<Bound<'py, PyAny>> {
        match atom.kind() {
            AtomKind::Var(var) => self.var_object(py, jax, var),
            AtomKind::Literal(literal) => Ok(self.literal(py, literal)),
        }
    }

    fn literal<'py>(&self, py: Python<'py>, literal: LiteralId) -> Bound<'py, PyAny> {
        self.side.object(py, self.program.literal(literal).object)
    }

    /// All equations as jax's, in order.
    fn fill<'py>(slf: &Bound<'py, Self>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let mut graph = borrow_mut(slf);
        if let Some(filled) = &graph.filled {
            return Ok(filled.bind(py).clone());
        }
        let _no_collection = NoCollection::start(py);
        let program = graph.program.clone();
        let list = PyList::empty(py);
        let mut sources: FxHashMap<SourceId, Bound<'py, PyAny>> = FxHashMap::default();
        for eqn in program.eqns() {
            let data = program.eqn(eqn);
            let mut atom = |atom: &Atom| graph.atom(py, jax, *atom);
            let invars: Vec<_> =
                program.eqn_invars(eqn).iter().map(&mut atom).collect::<PyResult<_>>()?;
            let outvars: Vec<_> =
                data.outvars().map(|var| atom(&Atom::var(var))).collect::<PyResult<_>>()?;
            let source_info = match sources.entry(data.source) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    new.insert(graph.side.source_info(py, jax, program.source(data.source))?)
                }
            };
            let objects = EqnObjects {
                invars: &invars,
                outvars: &outvars,
                primitive: program.primitive(data.primitive).object,
                context: program.context(data.context),
                source_info: source_info.clone(),
            };
            list.append(eqn_object(py, jax, &graph.side, data, objects)?)?;
        }
        graph.filled = Some(list.clone().unbind());
        Ok(list)
    }
}

/// The objects of one equation that are looked up outside.
pub struct EqnObjects<'a, 'py> {
    pub invars: &'a [Bound<'py, PyAny>],
    pub outvars: &'a [Bound<'py, PyAny>],
    pub primitive: ForeignId,
    pub context: ForeignId,
    pub source_info: Bound<'py, PyAny>,
}

/// One equation as jax's.
pub fn eqn_object<'py>(
    py: Python<'py>,
    jax: &Jax,
    side: &Side,
    data: &EqnData,
    objects: EqnObjects<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    jax.new_eqn(
        py,
        EqnParts {
            invars: PyList::new(py, objects.invars)?,
            outvars: PyList::new(py, objects.outvars)?,
            primitive: side.object(py, objects.primitive),
            params: side.params_copy(py, data.params)?,
            effects: side.effects(py, jax, data.effects, data.primitive),
            source_info: objects.source_info,
            ctx: side.object(py, objects.context),
        },
    )
}

/// What a jaxpr has besides its equations.
pub struct JaxprFields<'py> {
    pub effects: Bound<'py, PyAny>,
    pub debug_info: Bound<'py, PyAny>,
    pub is_high: bool,
}

impl<'py> JaxprFields<'py> {
    /// The fields of an existing jaxpr.
    pub fn of(jaxpr: &Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            effects: jaxpr.getattr("effects")?,
            debug_info: jaxpr.getattr("debug_info")?,
            is_high: jaxpr.getattr("is_high")?.is_truthy()?,
        })
    }
}

#[pymethods]
impl Graph {
    /// Number of equations, not counting nested ones.
    fn __len__(&self) -> usize {
        self.program.num_eqns()
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
        self.program.memory_bytes()
    }

    #[allow(clippy::needless_pass_by_value)] // the signature pyo3 wants
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.side.traverse(&visit)?;
        visit.call(&self.filled)?;
        visit.call(&self.effects)?;
        visit.call(&self.debug_info)
    }

    fn __clear__(&mut self) {
        self.side = Side::default();
        self.filled = None;
    }
}

/// A jaxpr of the installed jax over `graph`, its equations not yet filled, and its constants.
pub fn new_jaxpr<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
    let py = graph.py();
    let _no_collection = NoCollection::start(py);
    let (constvars, invars, outvars) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
    let consts = PyList::empty(py);
    let (effects, debug_info, is_high) = {
        let mut graph = borrow_mut(graph);
        let program = graph.program.clone();
        for &(var, value) in program.constvars() {
            constvars.append(graph.var_object(py, jax, var)?)?;
            consts.append(graph.side.constant(py, value))?;
        }
        for &var in program.invars() {
            invars.append(graph.var_object(py, jax, var)?)?;
        }
        for &atom in program.outvars() {
            outvars.append(graph.atom(py, jax, atom)?)?;
        }
        (graph.effects.clone_ref(py), graph.debug_info.clone_ref(py), graph.is_high)
    };
    let class = lazy_jaxpr_type(py, jax)?;
    let none: [Py<PyAny>; 0] = [];
    let jaxpr = class.call1((constvars, invars, outvars, none, effects, debug_info, is_high))?;
    // SAFETY: `class` extends jax's Jaxpr, whose slot this is.
    unsafe { jax.slots.jaxpr_eqns.set(jaxpr.as_ptr(), graph.clone().into_any()) };
    Ok((jaxpr, consts))
}

/// As `new_jaxpr`, for a program that becomes part of another: jax 0.11 on asks for a nested jaxpr to
/// be exactly a `Jaxpr`, so there it is filled at once.
pub fn new_nested_jaxpr<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
    let (jaxpr, consts) = new_jaxpr(jax, graph)?;
    if jax.closed_jaxpr_type.is(&jax.jaxpr_type) {
        eqns(&jaxpr)?;
    }
    Ok((jaxpr, consts))
}

static LAZY_JAXPR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The subclass of jax's `Jaxpr` with equations on demand. Shows itself under jax's own name, and
/// becomes jax's own class when the equations are there.
pub fn lazy_jaxpr_type<'py>(py: Python<'py>, jax: &Jax) -> PyResult<&'py Bound<'py, PyType>> {
    let class = LAZY_JAXPR.get_or_try_init(py, || {
        heap_type(
            jax.jaxpr_type.bind(py),
            TypeSpec {
                name: "jax._src.core.Jaxpr",
                extra_size: 0,
                methods: vec![method!("with_consts", with_consts)],
                attributes: vec![attribute!("_eqns", eqns, set_eqns)],
                slots: Vec::new(),
            },
        )
        .map(Bound::unbind)
    })?;
    Ok(class.bind(py))
}

/// `Jaxpr.with_consts` (jax 0.11 on), the result as unfilled as this jaxpr.
fn with_consts<'py>(slf: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let jax = jax(py)?;
    let stock = jax.jaxpr_type.bind(py).getattr(intern!(py, "with_consts"))?;
    let consts = args.required(0, "consts")?;
    let Some(graph) = unfilled(jax, slf) else { return stock.call1((slf, consts)) };
    // jax's method copies `_eqns` into a plain Jaxpr: lend it an empty list meanwhile.
    let eqns = jax.slots.jaxpr_eqns;
    // SAFETY: `slf` is of the lazy subclass; the graph goes back before anything else can run on it
    // but jax's own copying.
    let copied = unsafe {
        eqns.set(slf.as_ptr(), PyList::empty(py).into_any());
        let copied = stock.call1((slf, consts));
        eqns.set(slf.as_ptr(), graph.clone().into_any());
        copied?
    };
    copied.setattr(intern!(py, "__class__"), lazy_jaxpr_type(py, jax)?)?;
    // SAFETY: the copy is of the lazy subclass now.
    unsafe { eqns.set(copied.as_ptr(), graph.into_any()) };
    Ok(copied)
}

/// The graph of a jaxpr that was traced here and whose equations nobody has read.
pub fn unfilled<'py>(jax: &Jax, jaxpr: &Bound<'py, PyAny>) -> Option<Bound<'py, Graph>> {
    let py = jaxpr.py();
    let class = LAZY_JAXPR.get(py)?;
    if !jaxpr.get_type().is(class) {
        return None;
    }
    // SAFETY: the exact type was checked.
    let eqns = unsafe { jax.slots.jaxpr_eqns.get(jaxpr) }?;
    eqns.cast_into::<Graph>().ok()
}

fn eqns<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let jax = jax(py)?;
    // SAFETY: the getter belongs to the lazy subclass of Jaxpr.
    let read = || unsafe { jax.slots.jaxpr_eqns.get(slf) };
    let Some(current) = read() else {
        return Err(PyAttributeError::new_err("_eqns"));
    };
    let Ok(graph) = current.cast::<Graph>() else { return Ok(current) };
    let filled = Graph::fill(graph, jax)?;
    // Another thread may have come first: its list is the one.
    if read().is_some_and(|now| now.is(&current)) {
        // SAFETY: as above.
        unsafe { jax.slots.jaxpr_eqns.set(slf.as_ptr(), filled.clone().into_any()) };
        // Nothing of ours is left in it: from now on it is exactly jax's.
        slf.setattr(intern!(py, "__class__"), &jax.jaxpr_type)?;
        return Ok(filled.into_any());
    }
    eqns(slf)
}

fn set_eqns(slf: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    let jax = jax(slf.py())?;
    let value = value.ok_or_else(|| PyAttributeError::new_err("_eqns cannot be deleted"))?;
    // SAFETY: the setter belongs to the lazy subclass of Jaxpr.
    unsafe { jax.slots.jaxpr_eqns.set(slf.as_ptr(), value) };
    Ok(())
}

/// The graph of any jaxpr, closed or open.
///
/// Raises:
///   `TypeError`: the argument is not a jaxpr.
#[pyfunction]
pub fn graph_of<'py>(jaxpr: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Graph>> {
    convert::graph_of(jax(jaxpr.py())?, jaxpr)
}
