//! A finished program with its Python objects.

use std::ops::Deref;
use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rustc_hash::FxHashMap;

use crate::ir::{
    Atom, Builder, DeadCode, DebugInfo, Def, EffectsId, Eqn, ForeignId, LiteralId, ParamsId,
    Program, SourceId, Var,
};

use crate::python::cpython::native::NoCollection;
use crate::python::cpython::shared::{Quiet, Shared};
use crate::python::jax::avals::{self, build_error};
use crate::python::jax::names::Jax;
use crate::python::program::canonical::programs_of;
use crate::python::program::content::Content;
use crate::python::program::lazy_jaxpr::{JaxprFields, Part, lazy_jaxpr, new_jaxpr};
use crate::python::program::lazy_objects::OwnLiteral;
use crate::python::program::objects::ObjectTable;
use crate::python::program::read::{self, Detail, resolve_subprograms};

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
    derived: Option<Arc<Variant>>,
}

/// The objects of a graph as it is now.
pub struct TableOf(Arc<Content>);

impl Deref for TableOf {
    type Target = ObjectTable;

    fn deref(&self) -> &ObjectTable {
        &self.0.table
    }
}

/// A dict of params that lives as long as the handle; whoever made the handle may know more of it.
pub trait ParamsHandle: Send + Sync {
    fn dict(&self) -> &Py<PyDict>;
}

/// Params that are others than those recorded.
pub type ChangedParams = FxHashMap<ParamsId, Arc<dyn ParamsHandle>>;

/// A program that shares its variables, and the equations that are the same, with another.
pub struct Variant {
    pub base: Py<Graph>,
    pub params: ChangedParams,
}

/// The program of a jaxpr that nobody has read, with its objects.
pub struct Unread<'py> {
    pub program: Arc<Program>,
    /// What has the objects.
    pub graph: Bound<'py, Graph>,
    /// Params that are others than the graph's.
    pub params: ChangedParams,
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
    fn new(py: Python<'_>, state: State) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { state: Shared::new(state) })
    }

    /// Finishes what `builder` holds, with the outputs and effects of `jaxpr`; `names` are known where
    /// nested programs have been read.
    pub fn finish<'py>(
        builder: Builder,
        mut table: ObjectTable,
        outvars: &[Atom],
        jaxpr: &JaxprFields<'py>,
        names: Option<DebugInfo>,
    ) -> PyResult<Bound<'py, Self>> {
        let resolved = names.is_some();
        let names = names.unwrap_or_default();
        let program = builder.finish(outvars, names, EffectsId::NONE).map_err(build_error)?;
        drop(table.shrink());
        let content = Content { program: Arc::new(program), table, resolved };
        Self::new(jaxpr.effects.py(), State::with_fields(content, jaxpr))
    }

    /// The graph of a program that is about to be finished.
    pub fn to_be<'py>(fields: &JaxprFields<'py>) -> PyResult<Bound<'py, Self>> {
        Self::new(fields.effects.py(), State::with_fields(Content::default(), fields))
    }

    /// Gives a graph that nobody has seen its program.
    pub fn fill(&self, program: Program, table: ObjectTable) {
        let content = Arc::new(Content { program: Arc::new(program), table, resolved: false });
        // What was there has no objects.
        self.state.peek(|state| state.content = content);
    }

    pub fn content(&self) -> Arc<Content> {
        self.state.peek(|state| state.content.clone())
    }

    fn variant(&self) -> Option<Arc<Variant>> {
        self.state.peek(|state| state.derived.clone())
    }

    pub fn fields<'py>(&self, py: Python<'py>) -> JaxprFields<'py> {
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
        params: ChangedParams,
    ) -> PyResult<Bound<'py, PyAny>> {
        let constvars = jaxpr.getattr(intern!(slf.py(), "constvars"))?.cast_into::<PyList>()?;
        let base = slf.get();
        let content = Content { program: base.program(), ..Content::default() };
        let derived = State {
            derived: Some(Arc::new(Variant { base: slf.clone().unbind(), params })),
            ..State::with_fields(content, &base.fields(slf.py()))
        };
        let derived = Self::new(slf.py(), derived)?;
        lazy_jaxpr(jax, &derived, &constvars.get_slice(0, constvars.len()))
    }

    /// A jaxpr that is the same but for some params, all of whose variables and literals are others,
    /// some of them given.
    pub fn fresh_copy<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        params: &[(ParamsId, Bound<'py, PyDict>)],
        vars: &[(Var, Bound<'py, PyAny>)],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let recorded = slf.get().content();
        let program = &recorded.program;
        let mut table = recorded.table.fresh_copy(py, program.literal_ids());
        for (id, params) in params {
            table.set_params(*id, params);
            // Nested programs are structurally equal, and other objects.
            for (within, jaxpr) in programs_of(program.params(*id), params)? {
                table.set_object(program.subprogram(within).object, &jaxpr);
            }
        }
        for (var, object) in vars {
            table.set_var_object(*var, object);
        }
        table.set_own_effects(py, jax, program)?;
        let mut fields = slf.get().fields(py);
        fields.effects = table.own_effects(jax, program, &fields.effects, &recorded.table)?;
        let content = Content { program: program.clone(), table, resolved: recorded.resolved };
        let copy = Self::new(py, State::with_fields(content, &fields))?;
        Ok(new_jaxpr(jax, &copy)?.0)
    }

    /// The graph of a program that this one's has become.
    pub fn rewritten<'py>(
        slf: &Bound<'py, Self>,
        program: Arc<Program>,
        table: ObjectTable,
    ) -> PyResult<Bound<'py, Self>> {
        let content = Content { program, table, resolved: true };
        Self::new(slf.py(), State::with_fields(content, &slf.get().fields(slf.py())))
    }

    /// Gives the program what jax says of where it comes from.
    pub fn set_debug_info(&self, debug_info: &Bound<'_, PyAny>) {
        let own = debug_info.clone().unbind();
        drop(self.state.with(debug_info.py(), |state, _| state.debug_info.replace(own)));
    }

    /// A program that is only compared, with what that needs.
    pub fn skeleton_of(
        py: Python<'_>,
        program: Arc<Program>,
        table: ObjectTable,
    ) -> PyResult<Bound<'_, Self>> {
        Self::new(py, State::new(Content { program, table, resolved: true }))
    }

    /// The program, and where its objects are.
    pub fn unread<'py>(slf: &Bound<'py, Self>) -> Unread<'py> {
        let graph = slf.get();
        let program = graph.program();
        match graph.variant() {
            None => Unread { program, graph: slf.clone(), params: ChangedParams::default() },
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
        let mut table = content.table.regrown(py);
        let program = Program::clone(&content.program);
        let outvars = program.outvars().to_vec();
        let names = avals::debug_info(&graph.fields(py).debug_info)?;
        let effects = program.effects();
        let mut builder = program.into_builder(DeadCode::Keep);
        table.resolve_params(py, jax, &mut builder)?;
        resolve_subprograms(jax, py, &mut builder, &mut table, Detail::Whole)?;
        let program = builder.finish(&outvars, names, effects).map_err(build_error)?;
        let read = Arc::new(Content { program: Arc::new(program), table, resolved: true });
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
        let table = slf.get().table();
        let graph = read::graph_of(jax, &table.object(slf.py(), object))?;
        Ok(table.set_subgraph(object, &graph))
    }

    /// The program as recorded.
    pub fn program(&self) -> Arc<Program> {
        self.state.peek(|state| state.content.program.clone())
    }

    pub fn table(&self) -> TableOf {
        TableOf(self.content())
    }

    /// Whether the program has types that are made of others.
    pub fn is_high(&self) -> bool {
        self.state.peek(|state| state.is_high)
    }

    /// The variable that a `Var` object stands for.
    pub fn var_of(&self, object: &Bound<'_, PyAny>) -> Option<Var> {
        self.table().var_of(object)
    }

    /// Gives the constants of the program their values.
    pub fn set_constants(&self, values: &[Bound<'_, PyAny>]) {
        let content = self.content();
        for (&(_, id), value) in content.program.constvars().iter().zip(values) {
            content.table.set_constant(id, value);
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
        content.table.own_literal(quiet, id, content.program.literal(id).object)
    }

    /// The value of a constant.
    pub fn constant_of(&self, quiet: Quiet<'_>, var: Var) -> Option<Py<PyAny>> {
        let content = self.content();
        match content.program.var(var).def {
            Def::Constvar(id) => content.table.constant_of(quiet, id),
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
        content.table.retained().parts(quiet, jax, content.program.source(source))
    }

    /// A list of jax's jaxpr, the same one each time.
    pub fn list<'py>(
        slf: &Bound<'py, Self>,
        jax: &Jax,
        part: Part,
    ) -> PyResult<Bound<'py, PyList>> {
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
            match (part, graph.variant()) {
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
        if let Some(variant) = slf.get().variant() {
            let made = Self::eqn_object(variant.base.bind(py), jax, eqn)?;
            return match variant.params.get(&content.program.eqn(eqn).params) {
                None => Ok(made),
                Some(params) => jax.with_params(&made, params.dict().bind(py).copy()?),
            };
        }
        let source = content.program.source(content.program.eqn(eqn).source);
        let source_info = content.table.source_info(py, jax, source)?;
        content.eqn_with(py, jax, eqn, source_info)
    }

    /// Shows every object to the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state.visit(|state| state.traverse(visit)).unwrap_or(Ok(()))
    }

    /// Gives up every object.
    pub fn clear(&self) {
        let given_up =
            self.state.peek(|state| std::mem::replace(state, State::new(Content::default())));
        drop(given_up);
    }
}

impl State {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.content.table.traverse(visit)?;
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
