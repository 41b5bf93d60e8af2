//! A finished program with its Python objects, and jax's own jaxpr filled from it on demand.
//!
//! The trace hands out a `Jaxpr` whose equations, inputs and outputs do not exist yet: a subclass of
//! jax's `Jaxpr` whose lists are made from the arena the first time anything reads them. Until then
//! their slots hold the `Graph`, which is all the jaxpr keeps alive.

use std::ops::Deref;
use std::sync::Arc;

use cranelift_entity::SecondaryMap;
use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{
    Atom, AtomKind, Builder, DeadCode, DebugInfo, Def, EffectsId, Eqn, EqnData, ForeignId,
    LiteralId, ParamsId, Program, SourceId, Var, verify,
};

use crate::structure::{equal, fingerprint};

use crate::python::cache::programs::params::OwnedParams;
use crate::python::cpython::native::{
    Args, NoCollection, Slot, TypeSpec, allocate, attribute, heap_type, is_exactly, method,
    owned_slots,
};
use crate::python::cpython::shared::{Once, Quiet, Shared};
use crate::python::jax::avals::{self, build_error};
use crate::python::jax::names::{EqnParts, Inputs, Jax, jax};
use crate::python::program::canonical::programs_of;
use crate::python::program::lazy_objects::OwnLiteral;
use crate::python::program::objects::Side;
use crate::python::program::read::{self, Detail, resolve_subprograms};
use crate::python::tools::abridge::abridge;
use crate::python::tools::structure::{
    PyObjects, describe_step, purpose, repeated, step_fingerprints,
};

/// A finished program and the Python objects behind its ids.
#[pyclass(module = "jaxide._core", frozen)]
pub struct Graph {
    state: Shared<State>,
}

struct State {
    content: Arc<Content>,
    effects: Option<Py<PyAny>>,
    debug_info: Option<Py<PyAny>>,
    is_high: bool,
    /// The lists of jax's jaxpr that anything has asked for.
    lists: [Option<Py<PyList>>; 3],
    /// Where the program is that of another graph, but for some params.
    derived: Option<Arc<Derived>>,
}

/// A program with its objects, which does not change: where more of it is read, another takes its
/// place. Numbers of the one are those of the other.
#[derive(Default)]
struct Content {
    program: Arc<Program>,
    side: Side,
    /// Nested programs have been read, and the names of arguments and results.
    resolved: bool,
}

/// The objects of a graph at some moment.
pub struct SideOf(Arc<Content>);

impl Deref for SideOf {
    type Target = Side;

    fn deref(&self) -> &Side {
        &self.0.side
    }
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

impl State {
    fn new(content: Content) -> Self {
        Self {
            content: Arc::new(content),
            effects: None,
            debug_info: None,
            is_high: false,
            lists: [const { None }; 3],
            derived: None,
        }
    }

    fn with_fields(content: Content, fields: &JaxprFields<'_>) -> Self {
        Self {
            effects: Some(fields.effects.clone().unbind()),
            debug_info: Some(fields.debug_info.clone().unbind()),
            is_high: fields.is_high,
            ..Self::new(content)
        }
    }
}

impl Graph {
    fn made(py: Python<'_>, state: State) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { state: Shared::new(state) })
    }

    /// Finishes what `builder` holds, with the outputs and effects of `jaxpr`; `names` are known where
    /// nested programs have been read.
    pub fn finish<'py>(
        builder: Builder,
        mut side: Side,
        outvars: &[Atom],
        jaxpr: &JaxprFields<'py>,
        names: Option<DebugInfo>,
    ) -> PyResult<Bound<'py, Self>> {
        let resolved = names.is_some();
        let names = names.unwrap_or_default();
        let program = builder.finish(outvars, names, EffectsId::NONE).map_err(build_error)?;
        drop(side.shrink());
        let content = Content { program: Arc::new(program), side, resolved };
        Self::made(jaxpr.effects.py(), State::with_fields(content, jaxpr))
    }

    /// The graph of a program that is about to be finished.
    pub fn to_be<'py>(fields: &JaxprFields<'py>) -> PyResult<Bound<'py, Self>> {
        Self::made(fields.effects.py(), State::with_fields(Content::default(), fields))
    }

    /// Gives a graph that nobody has seen its program.
    pub fn fill(&self, program: Program, side: Side) {
        let content = Arc::new(Content { program: Arc::new(program), side, resolved: false });
        // What was there has no objects.
        self.state.peek(|state| state.content = content);
    }

    fn content(&self) -> Arc<Content> {
        self.state.peek(|state| state.content.clone())
    }

    fn derived(&self) -> Option<Arc<Derived>> {
        self.state.peek(|state| state.derived.clone())
    }

    fn fields<'py>(&self, py: Python<'py>) -> JaxprFields<'py> {
        let (effects, debug_info, is_high) = self.state.with(py, |state, quiet| {
            let own = |object: &Option<Py<PyAny>>| object.as_ref().map(|o| quiet.own(o));
            (own(&state.effects), own(&state.debug_info), state.is_high)
        });
        let bound = |object: Option<Py<PyAny>>| object.unwrap_or_else(|| py.None()).into_bound(py);
        JaxprFields { effects: bound(effects), debug_info: bound(debug_info), is_high }
    }

    /// The jaxpr of the same program with other params, as unread as `jaxpr`, which is the one of
    /// this graph.
    pub fn derive<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        jaxpr: &Bound<'py, PyAny>,
        params: FxHashMap<ParamsId, Arc<OwnedParams>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let constvars = jaxpr.getattr(intern!(slf.py(), "constvars"))?.cast_into::<PyList>()?;
        let base = slf.get();
        let content = Content { program: base.program(), ..Content::default() };
        let derived = State {
            derived: Some(Arc::new(Derived { base: slf.clone().unbind(), params })),
            ..State::with_fields(content, &base.fields(slf.py()))
        };
        let derived = Self::made(slf.py(), derived)?;
        lazy_jaxpr(jax, &derived, &constvars.get_slice(0, constvars.len()))
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
        let recorded = slf.get().content();
        let program = &recorded.program;
        let mut side = recorded.side.twin(py, program.literal_ids());
        for (id, params) in params {
            side.set_params(*id, params);
            // Programs within say what they said, and are other objects.
            for (within, jaxpr) in programs_of(program.params(*id), params)? {
                side.set_object(program.subprogram(within).object, &jaxpr);
            }
        }
        for (var, object) in vars {
            side.set_var_object(*var, object);
        }
        side.set_own_effects(py, jax, program)?;
        let mut fields = slf.get().fields(py);
        fields.effects = side.own_effects(jax, program, &fields.effects, &recorded.side)?;
        let content = Content { program: program.clone(), side, resolved: recorded.resolved };
        let twin = Self::made(py, State::with_fields(content, &fields))?;
        Ok(new_nested_jaxpr(jax, &twin)?.0)
    }

    /// The graph of a program that this one's has become.
    pub fn rewritten<'py>(
        slf: &Bound<'py, Self>,
        program: Arc<Program>,
        side: Side,
    ) -> PyResult<Bound<'py, Self>> {
        let content = Content { program, side, resolved: true };
        Self::made(slf.py(), State::with_fields(content, &slf.get().fields(slf.py())))
    }

    /// Gives the program what jax says of where it comes from.
    pub fn set_debug_info(&self, debug_info: &Bound<'_, PyAny>) {
        let own = debug_info.clone().unbind();
        drop(self.state.with(debug_info.py(), |state, _| state.debug_info.replace(own)));
    }

    /// A program that is only compared.
    pub fn abridged_of(
        py: Python<'_>,
        program: Arc<Program>,
        side: Side,
    ) -> PyResult<Bound<'_, Self>> {
        Self::made(py, State::new(Content { program, side, resolved: true }))
    }

    /// The program, and where its objects are.
    pub fn unread<'py>(slf: &Bound<'py, Self>) -> Unread<'py> {
        let graph = slf.get();
        let program = graph.program();
        match graph.derived() {
            None => Unread { program, graph: slf.clone(), params: FxHashMap::default() },
            Some(derived) => Unread {
                program,
                graph: derived.base.bind(slf.py()).clone(),
                params: derived.params.clone(),
            },
        }
    }

    /// Whether the program is that of another graph.
    pub fn is_derived(&self) -> bool {
        self.state.peek(|state| state.derived.is_some())
    }

    /// The program, its nested programs read as well.
    pub fn resolved_program(slf: &Bound<'_, Self>, jax: &Jax) -> PyResult<Arc<Program>> {
        let (py, graph) = (slf.py(), slf.get());
        let content = graph.content();
        if content.resolved {
            return Ok(content.program.clone());
        }
        // To read it runs Python code: what is read comes into a content of its own.
        let mut side = content.side.regrown(py);
        let program = Program::clone(&content.program);
        let outvars = program.outvars().to_vec();
        let names = avals::debug_info(&graph.fields(py).debug_info)?;
        let effects = program.effects();
        let mut builder = program.into_builder(DeadCode::Keep);
        side.resolve_params(py, jax, &mut builder)?;
        resolve_subprograms(jax, py, &mut builder, &mut side, Detail::Whole)?;
        let program = builder.finish(&outvars, names, effects).map_err(build_error)?;
        let read = Arc::new(Content { program: Arc::new(program), side, resolved: true });
        // Somebody may have done the same meanwhile, and gone on: the numbers are theirs then.
        let given_up = graph.state.peek(|state| {
            if state.content.resolved { read } else { std::mem::replace(&mut state.content, read) }
        });
        drop(given_up);
        Ok(graph.program())
    }

    /// The graph of a nested program, which is kept from now on.
    pub fn read_subgraph<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        object: ForeignId,
    ) -> PyResult<Bound<'py, Self>> {
        let side = slf.get().side();
        let graph = read::graph_of(jax, &side.object(slf.py(), object))?;
        Ok(side.set_subgraph(object, &graph))
    }

    /// The program as recorded.
    pub fn program(&self) -> Arc<Program> {
        self.state.peek(|state| state.content.program.clone())
    }

    /// The effects of the program as a whole, as jax has them.
    pub fn effects_object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.fields(py).effects
    }

    pub fn side(&self) -> SideOf {
        SideOf(self.content())
    }

    /// Whether the program has types that are made of others.
    pub fn is_high(&self) -> bool {
        self.state.peek(|state| state.is_high)
    }

    /// The variable that a `Var` object stands for.
    pub fn var_of(&self, object: &Bound<'_, PyAny>) -> Option<Var> {
        self.side().var_of(object)
    }

    /// Gives the constants of the program their values.
    pub fn set_constants(&self, values: &[Bound<'_, PyAny>]) {
        let content = self.content();
        for (&(_, id), value) in content.program.constvars().iter().zip(values) {
            content.side.set_constant(id, value);
        }
    }

    /// jax's set of the program's effects.
    pub fn effects<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.fields(py).effects
    }

    /// The `Var` object of a variable.
    pub fn var_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.get().content().var_object(slf.py(), jax, var)
    }

    /// What the object of a literal is, or is made of.
    pub fn own_literal(&self, quiet: Quiet<'_>, id: LiteralId) -> OwnLiteral {
        let content = self.content();
        content.side.own_literal(quiet, id, content.program.literal(id).object)
    }

    /// The value of a constant.
    pub fn constant_of(&self, quiet: Quiet<'_>, var: Var) -> Option<Py<PyAny>> {
        let content = self.content();
        match content.program.var(var).def {
            Def::Constvar(id) => content.side.constant_of(quiet, id),
            _ => None,
        }
    }

    /// The traceback and the name stack of a source.
    pub fn source_parts(
        &self,
        quiet: Quiet<'_>,
        jax: &Jax,
        source: SourceId,
    ) -> [Option<Py<PyAny>>; 2] {
        let content = self.content();
        content.side.leaves().parts(quiet, jax, content.program.source(source))
    }

    /// A list of jax's jaxpr, the same one each time.
    fn list<'py>(slf: &Bound<'py, Self>, jax: &Jax, part: Part) -> PyResult<Bound<'py, PyList>> {
        let (py, graph) = (slf.py(), slf.get());
        let place = part as usize;
        let known = graph
            .state
            .with(py, |state, quiet| state.lists[place].as_ref().map(|list| quiet.own(list)));
        if let Some(list) = known {
            return Ok(list.into_bound(py));
        }
        let content = graph.content();
        let list = {
            let _no_collection = NoCollection::start(py);
            match (part, graph.derived()) {
                (_, Some(derived)) => content.derived_list(py, jax, &derived, part)?,
                (Part::Eqns, None) => content.eqns(py, jax)?,
                (Part::Invars, None) => content.invars(py, jax)?,
                (Part::Outvars, None) => content.outvars(py, jax)?,
            }
        };
        // Somebody may have asked for the same meanwhile: the first one is the list.
        let made = list.unbind();
        let (list, late) = graph.state.with(py, |state, quiet| {
            if let Some(known) = &state.lists[place] {
                return (quiet.own(known), Some(made));
            }
            let list = quiet.own(&made);
            state.lists[place] = Some(made);
            (list, None)
        });
        drop(late);
        Ok(list.into_bound(py))
    }

    /// One equation as jax's, for somebody who asks for no other.
    pub fn eqn_object<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        eqn: Eqn,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, content) = (slf.py(), slf.get().content());
        let source = content.program.source(content.program.eqn(eqn).source);
        let source_info = content.side.source_info(py, jax, source)?;
        content.eqn_with(py, jax, eqn, source_info)
    }
}

impl Content {
    /// The `Var` object of a variable.
    fn var_object<'py>(&self, py: Python<'py>, jax: &Jax, var: Var) -> PyResult<Bound<'py, PyAny>> {
        self.side.var_object(py, jax, self.program.var_type(var), var)
    }

    /// The jax atom of an operand or output.
    fn atom<'py>(&self, py: Python<'py>, jax: &Jax, atom: Atom) -> PyResult<Bound<'py, PyAny>> {
        match atom.kind() {
            AtomKind::Var(var) => self.var_object(py, jax, var),
            AtomKind::Literal(literal) => {
                let object = self.program.literal(literal).object;
                self.side.literal_object(py, jax, literal, object)
            }
        }
    }

    /// A list made from that of the graph whose program this is.
    fn derived_list<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        derived: &Derived,
        part: Part,
    ) -> PyResult<Bound<'py, PyList>> {
        let base = Graph::list(derived.base.bind(py), jax, part)?;
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

    fn invars<'py>(&self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = &self.program;
        let constvars = program.constvars().iter().map(|&(var, _)| var);
        let constvars = constvars.filter(|_| matches!(jax.slots.jaxpr_invars, Inputs::All(_)));
        let vars = constvars.chain(program.invars().iter().copied());
        let objects: Vec<_> =
            vars.map(|var| self.var_object(py, jax, var)).collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    fn outvars<'py>(&self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = &self.program;
        let atoms = program.outvars().iter().map(|&atom| self.atom(py, jax, atom));
        let objects: Vec<_> = atoms.collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    /// All equations as jax's, in order.
    fn eqns<'py>(&self, py: Python<'py>, jax: &Jax) -> PyResult<Bound<'py, PyList>> {
        let program = &self.program;
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
            list.append(self.eqn_with(py, jax, eqn, source_info)?)?;
        }
        Ok(list)
    }

    /// An equation as jax's.
    fn eqn_with<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        eqn: Eqn,
        source_info: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let program = &self.program;
        let data = program.eqn(eqn);
        let atom = |atom: &Atom| self.atom(py, jax, *atom);
        let invars: SmallVec<[_; 4]> =
            program.eqn_invars(eqn).iter().map(atom).collect::<PyResult<_>>()?;
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
        self.program().memory_bytes()
    }

    #[allow(clippy::needless_pass_by_value)] // the signature pyo3 wants
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state.visit(|state| state.traverse(&visit)).unwrap_or(Ok(()))
    }

    fn __clear__(&self) {
        let given_up =
            self.state.peek(|state| std::mem::replace(state, State::new(Content::default())));
        drop(given_up);
    }
}

impl State {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.content.side.traverse(visit)?;
        for list in &self.lists {
            visit.call(list)?;
        }
        if let Some(derived) = &self.derived {
            visit.call(&derived.base)?;
        }
        visit.call(&self.effects)?;
        visit.call(&self.debug_info)
    }
}

/// A jaxpr of the installed jax over `graph`, its lists not yet made, and its constants.
pub fn new_jaxpr<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
    let py = graph.py();
    let (constvars, consts) = (PyList::empty(py), PyList::empty(py));
    let content = graph.get().content();
    for &(var, value) in content.program.constvars() {
        constvars.append(content.var_object(py, jax, var)?)?;
        consts.append(content.side.constant(py, value))?;
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
    let JaxprFields { effects, debug_info, is_high } = graph.get().fields(py);
    let class = lazy_jaxpr_type(py, jax)?;
    let (invars, outvars) = if jax.checks_jaxprs(py)? {
        // jax counts the names of arguments and results.
        let invars = Graph::list(graph, jax, Part::Invars)?;
        let outvars = Graph::list(graph, jax, Part::Outvars)?;
        let own = graph.get().program().invars().len();
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

static LAZY_JAXPR: Once<Py<PyType>> = Once::new();

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
    // jax's method copies the lists of a plain Jaxpr: it is given one that nobody sees, with empty ones.
    let lent = allocate(jax.jaxpr_type.bind(py))?;
    let slots = JAXPR_SLOTS.get_or_try_init(py, || owned_slots(jax.jaxpr_type.bind(py)))?;
    let mut lazy: SmallVec<[(Slot, Bound<'py, PyAny>); 3]> = SmallVec::new();
    for &slot in slots {
        // SAFETY: `slf` is of the lazy subclass, which has jax's slots, and `lent` is a fresh instance of
        // jax's class.
        unsafe {
            let Some(value) = slot.get(slf) else { continue };
            if value.is_instance_of::<Graph>() {
                lazy.push((slot, value));
                slot.fill(lent.as_ptr(), PyList::empty(py).into_any());
            } else {
                slot.fill(lent.as_ptr(), value);
            }
        }
    }
    let copied = stock.call1((lent, consts))?;
    for (slot, graph) in lazy {
        // SAFETY: an instance of jax's class.
        unsafe { slot.set(copied.as_ptr(), graph) };
    }
    copied.setattr(intern!(py, "__class__"), lazy_jaxpr_type(py, jax)?)?;
    Ok(copied)
}

/// What a jaxpr consists of.
static JAXPR_SLOTS: Once<Vec<Slot>> = Once::new();

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
    // SAFETY: as above. Whoever comes first, the graph's list is the one, unless somebody has put
    // another one there meanwhile.
    unsafe {
        if let Some(now) = slot.get(slf)
            && !now.is(graph)
        {
            return Ok(now);
        }
        slot.set(slf.as_ptr(), list.clone());
    }
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
