//! A finished program with its Python objects, and jax's own jaxpr filled from it on demand.
//!
//! The trace hands out a `Jaxpr` whose equations, inputs and outputs do not exist yet: a subclass of
//! jax's `Jaxpr` whose lists are made from the arena the first time anything reads them. Until then
//! their slots hold the `Graph`, which is all the jaxpr keeps alive.

use std::sync::Arc;
use std::thread;

use cranelift_entity::SecondaryMap;
use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{
    Atom, AtomKind, Builder, DeadCode, DebugInfo, EffectsId, Eqn, EqnData, ForeignId, ParamsId,
    Program, SourceId, Var, verify,
};

use crate::structure::{equal, fingerprint};

use super::abridge::abridge;
use super::convert::{self, build_error};
use super::expand::owned::OwnedParams;
use super::jax::{EqnParts, Inputs, Jax, jax};
use super::native::{Args, NoCollection, Slot, TypeSpec, attribute, heap_type, method};
use super::params::programs_of;
use super::read::{self, Detail, resolve_subprograms};
use super::side::{Side, is_exactly};
use super::structure::{PyObjects, describe_step, purpose, repeated, step_fingerprints};

/// A finished program and the Python objects behind its ids.
#[pyclass(module = "jaxide._core")]
pub struct Graph {
    program: Arc<Program>,
    side: Side,
    effects: Py<PyAny>,
    debug_info: Py<PyAny>,
    is_high: bool,
    /// Nested programs have been read, and the names of arguments and results.
    resolved: bool,
    /// The lists of jax's jaxpr that anything has asked for.
    lists: [Option<Py<PyList>>; 3],
    /// Where the program is that of another graph, but for some params.
    derived: Option<Derived>,
}

/// A program that shares its variables, and the equations that are the same, with another.
struct Derived {
    base: Py<Graph>,
    params: FxHashMap<ParamsId, Arc<OwnedParams>>,
}

/// The program of a jaxpr that nobody has read, with its objects.
pub struct Unread<'py> {
    pub program: Arc<Program>,
    /// What has the objects.
    pub graph: Bound<'py, Graph>,
    /// Params that are others than the graph's.
    pub params: FxHashMap<ParamsId, Arc<OwnedParams>>,
}

/// A list of a jaxpr that is made when it is first read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Eqns,
    /// With the constvars where jax keeps both in one list.
    Invars,
    Outvars,
}

impl Part {
    const ALL: [Self; 3] = [Self::Eqns, Self::Invars, Self::Outvars];

    fn slot(self, jax: &Jax) -> Slot {
        match self {
            Self::Eqns => jax.slots.jaxpr_eqns,
            Self::Invars => jax.slots.jaxpr_invars.slot(),
            Self::Outvars => jax.slots.jaxpr_outvars,
        }
    }
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
    /// Finishes what `builder` holds, with the outputs and effects of `jaxpr`; `names` are known where
    /// nested programs have been read.
    pub fn finish<'py>(
        builder: Builder,
        side: Side,
        outvars: &[Atom],
        jaxpr: &JaxprFields<'py>,
        names: Option<DebugInfo>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = jaxpr.effects.py();
        let resolved = names.is_some();
        let names = names.unwrap_or_default();
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
                lists: [const { None }; 3],
                derived: None,
            },
        )
    }

    /// The jaxpr of the same program with other params, as unread as `jaxpr`, which is the one of
    /// this graph.
    pub fn derive<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        jaxpr: &Bound<'py, PyAny>,
        params: FxHashMap<ParamsId, Arc<OwnedParams>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let constvars = jaxpr.getattr(intern!(py, "constvars"))?.cast_into::<PyList>()?;
        let derived = {
            let base = slf.borrow();
            Self {
                program: base.program.clone(),
                side: Side::default(),
                effects: base.effects.clone_ref(py),
                debug_info: base.debug_info.clone_ref(py),
                is_high: base.is_high,
                resolved: false,
                lists: [const { None }; 3],
                derived: Some(Derived { base: slf.clone().unbind(), params }),
            }
        };
        lazy_jaxpr(jax, &Bound::new(py, derived)?, &constvars.get_slice(0, constvars.len()))
    }

    /// A jaxpr that is the same but for some params, all of whose variables and literals are others,
    /// some of them given.
    pub fn twin<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        params: &[(ParamsId, Bound<'py, PyDict>)],
        vars: &[(Var, Bound<'py, PyAny>)],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let twin = {
            let mut graph = borrow_mut(slf);
            let graph = &mut *graph;
            let mut side = graph.side.twin(py, graph.program.literal_ids());
            for (id, params) in params {
                side.set_params(*id, params);
                // Programs within say what they said, and are other objects.
                for (within, jaxpr) in programs_of(graph.program.params(*id), params)? {
                    side.set_object(graph.program.subprogram(within).object, &jaxpr);
                }
            }
            for (var, object) in vars {
                side.set_var_object(*var, object);
            }
            side.set_own_effects(py, jax, &graph.program)?;
            let effects = graph.effects.bind(py);
            let effects = side.own_effects(jax, &graph.program, effects, &mut graph.side)?;
            Self {
                program: graph.program.clone(),
                side,
                effects: effects.unbind(),
                debug_info: graph.debug_info.clone_ref(py),
                is_high: graph.is_high,
                resolved: graph.resolved,
                lists: [const { None }; 3],
                derived: None,
            }
        };
        Ok(new_nested_jaxpr(jax, &Bound::new(py, twin)?)?.0)
    }

    /// The graph of a program that this one's has become.
    pub fn rewritten<'py>(
        slf: &Bound<'py, Self>,
        program: Arc<Program>,
        side: Side,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let graph = {
            let was = slf.borrow();
            Self {
                program,
                side,
                effects: was.effects.clone_ref(py),
                debug_info: was.debug_info.clone_ref(py),
                is_high: was.is_high,
                resolved: true,
                lists: [const { None }; 3],
                derived: None,
            }
        };
        Bound::new(py, graph)
    }

    /// Gives the program what jax says of where it comes from.
    pub fn set_debug_info(&mut self, debug_info: &Bound<'_, PyAny>) {
        self.debug_info = debug_info.clone().unbind();
    }

    /// A program that is only compared.
    pub fn abridged_of(
        py: Python<'_>,
        program: Arc<Program>,
        side: Side,
    ) -> PyResult<Bound<'_, Self>> {
        let graph = Self {
            program,
            side,
            effects: py.None(),
            debug_info: py.None(),
            is_high: false,
            resolved: true,
            lists: [const { None }; 3],
            derived: None,
        };
        Bound::new(py, graph)
    }

    /// The program, and where its objects are.
    pub fn unread<'py>(slf: &Bound<'py, Self>) -> Unread<'py> {
        let graph = slf.borrow();
        let program = graph.program.clone();
        match &graph.derived {
            None => Unread { program, graph: slf.clone(), params: FxHashMap::default() },
            Some(Derived { base, params }) => {
                Unread { program, graph: base.bind(slf.py()).clone(), params: params.clone() }
            }
        }
    }

    /// Whether the program is that of another graph.
    pub fn is_derived(&self) -> bool {
        self.derived.is_some()
    }

    /// The program, its nested programs read as well.
    pub fn resolved_program(slf: &Bound<'_, Self>, jax: &Jax) -> PyResult<Arc<Program>> {
        let py = slf.py();
        let mut borrowed = borrow_mut(slf);
        let graph = &mut *borrowed;
        if !graph.resolved {
            let program = Program::clone(&graph.program);
            let outvars = program.outvars().to_vec();
            let names = convert::debug_info(graph.debug_info.bind(py))?;
            let effects = program.effects();
            let mut builder = program.into_builder(DeadCode::Keep);
            graph.side.resolve_params(py, jax, &mut builder)?;
            resolve_subprograms(jax, py, &mut builder, &mut graph.side, Detail::Whole)?;
            let program = builder.finish(&outvars, names, effects).map_err(build_error)?;
            graph.program = Arc::new(program);
            graph.resolved = true;
        }
        Ok(graph.program.clone())
    }

    /// The graph of a nested program, which is kept from now on.
    pub fn read_subgraph<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        object: ForeignId,
    ) -> PyResult<Bound<'py, Self>> {
        let jaxpr = slf.borrow().side.object(slf.py(), object);
        let graph = read::graph_of(jax, &jaxpr)?;
        borrow_mut(slf).side.set_subgraph(object, &graph);
        Ok(graph)
    }

    /// The program as recorded.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The effects of the program as a whole, as jax has them.
    pub fn effects_object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.effects.bind(py).clone()
    }

    pub fn side(&self) -> &Side {
        &self.side
    }

    /// Whether the program has types that are made of others.
    pub fn is_high(&self) -> bool {
        self.is_high
    }

    /// The variable that a `Var` object stands for.
    pub fn var_of(&mut self, object: &Bound<'_, PyAny>) -> Option<Var> {
        self.side.var_of(object)
    }

    /// Gives the constants of the program their values.
    pub fn set_constants(&mut self, values: &[Bound<'_, PyAny>]) {
        for (&(_, id), value) in self.program.constvars().iter().zip(values) {
            self.side.set_constant(id, value);
        }
    }

    /// jax's set of the program's effects.
    pub fn effects<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.effects.bind(py).clone()
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
            AtomKind::Literal(literal) => {
                let object = self.program.literal(literal).object;
                self.side.literal_object(py, jax, literal, object)
            }
        }
    }

    /// A list of jax's jaxpr, the same one each time.
    fn list<'py>(slf: &Bound<'py, Self>, jax: &Jax, part: Part) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let mut graph = borrow_mut(slf);
        if let Some(list) = &graph.lists[part as usize] {
            return Ok(list.bind(py).clone());
        }
        let _no_collection = NoCollection::start(py);
        let list = match part {
            _ if graph.derived.is_some() => graph.derived_list(py, jax, part)?,
            Part::Eqns => graph.eqns(py, jax)?,
            Part::Invars => graph.invars(py, jax)?,
            Part::Outvars => graph.outvars(py, jax)?,
        };
        graph.lists[part as usize] = Some(list.clone().unbind());
        Ok(list)
    }

    /// A list made from that of the graph whose program this is.
    fn derived_list<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        part: Part,
    ) -> PyResult<Bound<'py, PyList>> {
        let Some(derived) = &self.derived else { return Ok(PyList::empty(py)) };
        let base = Self::list(derived.base.bind(py), jax, part)?;
        if part != Part::Eqns {
            return Ok(base.get_slice(0, base.len()));
        }
        let list = PyList::empty(py);
        for (id, eqn) in self.program.eqns().zip(base.iter()) {
            list.append(match derived.params.get(&self.program.eqn(id).params) {
                None => eqn,
                Some(params) => jax.with_params(&eqn, params.bind(py).copy()?)?,
            })?;
        }
        Ok(list)
    }

    fn invars<'py>(&mut self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = self.program.clone();
        let constvars = program.constvars().iter().map(|&(var, _)| var);
        let constvars = constvars.filter(|_| matches!(jax.slots.jaxpr_invars, Inputs::All(_)));
        let vars = constvars.chain(program.invars().iter().copied());
        let objects: Vec<_> =
            vars.map(|var| self.var_object(py, jax, var)).collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    fn outvars<'py>(&mut self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = self.program.clone();
        let atoms = program.outvars().iter().map(|&atom| self.atom(py, jax, atom));
        let objects: Vec<_> = atoms.collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    /// All equations as jax's, in order.
    fn eqns<'py>(&mut self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = self.program.clone();
        let list = PyList::empty(py);
        let mut sources: SecondaryMap<SourceId, Option<Bound<'py, PyAny>>> = SecondaryMap::new();
        for eqn in program.eqns() {
            let source = program.eqn(eqn).source;
            let source_info = if let Some(known) = &sources[source] {
                known.clone()
            } else {
                let new = self.side.source_info(py, jax, program.source(source))?;
                sources[source].insert(new).clone()
            };
            list.append(self.eqn_with(py, jax, &program, eqn, source_info)?)?;
        }
        Ok(list)
    }

    /// An equation as jax's.
    fn eqn_with<'py>(
        &mut self,
        py: Python<'py>,
        jax: &Jax,
        program: &Program,
        eqn: Eqn,
        source_info: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let data = program.eqn(eqn);
        let mut atom = |atom: &Atom| self.atom(py, jax, *atom);
        let invars: SmallVec<[_; 4]> =
            program.eqn_invars(eqn).iter().map(&mut atom).collect::<PyResult<_>>()?;
        let outvars: SmallVec<[_; 2]> =
            data.outvars().map(|var| atom(&Atom::var(var))).collect::<PyResult<_>>()?;
        let objects = EqnObjects {
            invars: &invars,
            outvars: &outvars,
            primitive: program.primitive(data.primitive).object,
            context: program.context(data.context),
            source_info,
        };
        eqn_object(py, jax, &self.side, data, objects)
    }

    /// One equation as jax's, for somebody who asks for no other.
    pub fn eqn_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        eqn: Eqn,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut graph = borrow_mut(slf);
        let program = graph.program.clone();
        let source = program.source(program.eqn(eqn).source);
        let source_info = graph.side.source_info(py, jax, source)?;
        graph.eqn_with(py, jax, &program, eqn, source_info)
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

    /// 128 bits that stand for what the program says: its "structure" (constants by type), its
    /// "content" (constants by value), or what its "execution" depends on.
    ///
    /// Raises:
    ///     What describing an object of the program raises.
    fn fingerprint(slf: &Bound<'_, Self>, of: &str) -> PyResult<u128> {
        let purpose = purpose(of)?;
        let program = PyObjects::of(jax(slf.py())?, slf, purpose)?;
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

    /// What stands for the program up to each of its equations, those of programs within before the
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

    /// Pairs of jaxprs within the program that say the same to whoever executes it: one that can stand
    /// for the other, and the other.
    ///
    /// Raises:
    ///     What comparing objects of the programs raises.
    fn repeated<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        repeated(jax(slf.py())?, slf)
    }

    /// Whether a program within has constants.
    ///
    /// Raises:
    ///     A program within cannot be read.
    fn captures_within(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(Self::resolved_program(slf, jax(slf.py())?)?.captures_within())
    }

    /// As much of the program as comparing it for its execution needs: neither sources nor names,
    /// nor the program's constants. Also what lives with it: the objects among its params that count,
    /// and constants of programs within.
    ///
    /// Raises:
    ///     `RecursionError`: Programs are nested too deeply.
    fn abridged<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, Self>, Bound<'py, PyList>)> {
        abridge(jax(slf.py())?, slf)
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
        for list in &self.lists {
            visit.call(list)?;
        }
        if let Some(Derived { base, .. }) = &self.derived {
            visit.call(base)?;
        }
        visit.call(&self.effects)?;
        visit.call(&self.debug_info)
    }

    fn __clear__(&mut self) {
        self.derived = None;
        self.side = Side::default();
        self.lists = [const { None }; 3];
    }
}

/// A jaxpr of the installed jax over `graph`, its lists not yet made, and its constants.
pub fn new_jaxpr<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
    let py = graph.py();
    let (constvars, consts) = (PyList::empty(py), PyList::empty(py));
    {
        let mut graph = borrow_mut(graph);
        let program = graph.program.clone();
        for &(var, value) in program.constvars() {
            constvars.append(graph.var_object(py, jax, var)?)?;
            consts.append(graph.side.constant(py, value))?;
        }
    }
    Ok((lazy_jaxpr(jax, graph, &constvars)?, consts))
}

/// A jaxpr whose lists are not yet made, but for the constvars.
fn lazy_jaxpr<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
    constvars: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = graph.py();
    let (effects, debug_info, is_high) = {
        let graph = graph.borrow();
        (graph.effects.clone_ref(py), graph.debug_info.clone_ref(py), graph.is_high)
    };
    let class = lazy_jaxpr_type(py, jax)?;
    let (invars, outvars) = if jax.checks_jaxprs(py)? {
        // jax counts the names of arguments and results.
        let invars = Graph::list(graph, jax, Part::Invars)?;
        let outvars = Graph::list(graph, jax, Part::Outvars)?;
        let own = graph.borrow().program.invars().len();
        (invars.get_slice(invars.len() - own, invars.len()), outvars)
    } else {
        (PyList::empty(py), PyList::empty(py))
    };
    let eqns = PyTuple::empty(py);
    let jaxpr = class.call1((constvars, invars, outvars, eqns, effects, debug_info, is_high))?;
    for part in Part::ALL {
        // SAFETY: `class` extends jax's Jaxpr, whose slots these are.
        unsafe { part.slot(jax).set(jaxpr.as_ptr(), graph.clone().into_any()) };
    }
    Ok(jaxpr)
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

/// The subclass of jax's `Jaxpr` with lists on demand. Shows itself under jax's own name, and
/// becomes jax's own class when the equations are there.
pub fn lazy_jaxpr_type<'py>(py: Python<'py>, jax: &Jax) -> PyResult<&'py Bound<'py, PyType>> {
    let class = LAZY_JAXPR.get_or_try_init(py, || {
        heap_type(
            jax.jaxpr_type.bind(py),
            TypeSpec {
                name: "jax._src.core.Jaxpr",
                extra_size: 0,
                methods: vec![method!("with_consts", with_consts)],
                attributes: vec![
                    attribute!("_eqns", eqns, set_eqns),
                    match jax.slots.jaxpr_invars {
                        Inputs::Own(_) => attribute!("_invars", invars, set_invars),
                        Inputs::All(_) => attribute!("_all_invars", invars, set_invars),
                    },
                    attribute!("_outvars", outvars, set_outvars),
                ],
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
    if unfilled(jax, slf).is_none() {
        return stock.call1((slf, consts));
    }
    if consts.len()? > 0 {
        invars(slf)?;
    }
    // jax's method copies the lists into a plain Jaxpr: lend it empty ones meanwhile.
    let slots = Part::ALL.map(|part| part.slot(jax));
    // SAFETY: `slf` is of the lazy subclass.
    let lists = slots.map(|slot| unsafe { slot.get(slf) });
    for (slot, list) in slots.iter().zip(&lists) {
        if list.as_ref().is_some_and(PyAnyMethods::is_instance_of::<Graph>) {
            // SAFETY: as above; the graph goes back before anything else can run on it but jax's
            // own copying.
            unsafe { slot.set(slf.as_ptr(), PyList::empty(py).into_any()) };
        }
    }
    let copied = stock.call1((slf, consts));
    let give_back = |jaxpr: &Bound<'py, PyAny>| {
        for (slot, list) in slots.iter().zip(&lists) {
            if let Some(list) = list {
                // SAFETY: as above.
                unsafe { slot.set(jaxpr.as_ptr(), list.clone()) };
            }
        }
    };
    give_back(slf);
    let copied = copied?;
    copied.setattr(intern!(py, "__class__"), lazy_jaxpr_type(py, jax)?)?;
    give_back(&copied);
    Ok(copied)
}

/// Whether an object is a jaxpr that was traced here and whose equations nobody has read.
pub fn is_lazy(py: Python<'_>, object: *mut ffi::PyObject) -> bool {
    LAZY_JAXPR.get(py).is_some_and(|class| is_exactly(object, class.as_ptr().cast()))
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

/// The equations of a lazy jaxpr.
pub fn eqns<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let jax = jax(py)?;
    if unfilled(jax, slf).is_some() {
        invars(slf)?;
        outvars(slf)?;
        list(slf, Part::Eqns)?;
        // Nothing of ours is left in it: from now on it is exactly jax's.
        slf.setattr(intern!(py, "__class__"), &jax.jaxpr_type)?;
    }
    list(slf, Part::Eqns)
}

fn invars<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    list(slf, Part::Invars)
}

fn outvars<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    list(slf, Part::Outvars)
}

/// A list of a jaxpr, which stays in it.
fn list<'py>(slf: &Bound<'py, PyAny>, part: Part) -> PyResult<Bound<'py, PyAny>> {
    let jax = jax(slf.py())?;
    let slot = part.slot(jax);
    // SAFETY: the getters belong to the lazy subclass of Jaxpr.
    let Some(current) = (unsafe { slot.get(slf) }) else {
        return Err(PyAttributeError::new_err("the jaxpr is not initialized"));
    };
    let Ok(graph) = current.cast::<Graph>() else { return Ok(current) };
    let list = Graph::list(graph, jax, part)?.into_any();
    // SAFETY: as above. Whichever thread comes first, the graph's list is the one.
    unsafe { slot.set(slf.as_ptr(), list.clone()) };
    Ok(list)
}

fn set_eqns(slf: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    set_list(slf, Part::Eqns, value)
}

fn set_invars(slf: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    set_list(slf, Part::Invars, value)
}

fn set_outvars(slf: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    set_list(slf, Part::Outvars, value)
}

fn set_list(slf: &Bound<'_, PyAny>, part: Part, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    let jax = jax(slf.py())?;
    let value =
        value.ok_or_else(|| PyAttributeError::new_err("a list of a jaxpr cannot be deleted"))?;
    // SAFETY: the setters belong to the lazy subclass of Jaxpr.
    unsafe { part.slot(jax).set(slf.as_ptr(), value) };
    Ok(())
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
    Graph::fingerprint(&read::read(jax, jaxpr, Detail::Structure)?, purpose)
}
