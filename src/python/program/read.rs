//! Whole jaxprs of jax, read into the IR.

use std::hash::Hasher;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;

use crate::ir::{
    Atom, Builder, ContextId, DeadCode, DebugInfo, EffectsId, ParamsId, Source, SourceId,
    SubprogramId, TypeId,
};

use crate::python::cpython::native::{NoCollection, Slot, address, is_exactly};
use crate::python::jax::avals::{build_error, debug_info};
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::{equal_params, hash_params};
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::{JaxprFields, eqns, unfilled};
use crate::python::program::objects::ObjectTable;

/// How much of a jaxpr is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All of it.
    Whole,
    /// What the program says: no sources, and no names of arguments and results.
    Structure,
}

/// The graph of any jaxpr, closed or not: its own where it was traced here and not yet filled.
///
/// # Errors
/// The object is no jaxpr, or not a well-formed one.
pub fn graph_of<'py>(jax: &Jax, jaxpr: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Graph>> {
    read(jax, jaxpr, Detail::Whole)
}

/// As `graph_of`, of which at least `detail` is read.
///
/// # Errors
/// As `graph_of`.
pub fn read<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
    detail: Detail,
) -> PyResult<Bound<'py, Graph>> {
    let py = jaxpr.py();
    let _no_collection = NoCollection::start(py);
    let mut top = match Opened::of(jax, jaxpr, detail)? {
        Opened::Known(graph) => return Ok(graph),
        Opened::New(reading) => reading,
    };
    // Programs may be nested deeply: those whose equations run others wait until these are read.
    let mut waiting = Vec::new();
    // By the address of the jaxpr, which what refers to it keeps.
    let mut known: FxHashMap<usize, Bound<'py, Graph>> = FxHashMap::default();
    let mut met = FxHashSet::default();
    loop {
        let Some(&id) = top.unresolved.last() else {
            let graph = top.finish()?;
            let Some(caller) = waiting.pop() else { return Ok(graph) };
            top = caller;
            if let Some(&id) = top.unresolved.last() {
                known.insert(address(&top.within(py, id)), graph);
            }
            continue;
        };
        let within = top.within(py, id);
        let graph = match known.get(&address(&within)) {
            Some(graph) => graph.clone(),
            None => match Opened::of(jax, &within, detail)? {
                Opened::Known(graph) => graph,
                Opened::New(reading) => {
                    // What was read since is known.
                    if !met.insert(address(&within)) {
                        return Err(PyValueError::new_err("a jaxpr must not contain itself"));
                    }
                    waiting.push(std::mem::replace(&mut top, reading));
                    continue;
                }
            },
        };
        top.unresolved.pop();
        resolve(jax, &mut top.builder, &mut top.table, id, &graph)?;
    }
}

fn resolve(
    jax: &Jax,
    builder: &mut Builder,
    table: &mut ObjectTable,
    id: SubprogramId,
    graph: &Bound<'_, Graph>,
) -> PyResult<()> {
    table.set_subgraph(builder.subprogram_data(id).object, graph);
    builder.resolve_subprogram(id, Graph::resolved_program(graph, jax)?);
    Ok(())
}

/// Reads the nested jaxprs that params refer to.
///
/// # Errors
/// One of them is not well-formed.
pub fn resolve_subprograms(
    jax: &Jax,
    py: Python<'_>,
    builder: &mut Builder,
    table: &mut ObjectTable,
    detail: Detail,
) -> PyResult<()> {
    for id in builder.unresolved_subprograms() {
        let within = table.object(py, builder.subprogram_data(id).object);
        resolve(jax, builder, table, id, &read(jax, &within, detail)?)?;
    }
    Ok(())
}

/// A jaxpr whose equations are read.
enum Opened<'py> {
    /// It was traced here.
    Known(Bound<'py, Graph>),
    New(Box<Reading<'py>>),
}

impl<'py> Opened<'py> {
    fn of(jax: &Jax, jaxpr: &Bound<'py, PyAny>, detail: Detail) -> PyResult<Self> {
        let (open, consts) = jax
            .open_jaxpr
            .bind(jaxpr.py())
            .call1((jaxpr,))?
            .extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
        if let Some(graph) = unfilled(jax, &open) {
            if !graph.get().is_derived() {
                return Ok(Self::Known(graph));
            }
            eqns(&open)?;
        }
        Ok(Self::New(Box::new(Reader::new(jax, detail).jaxpr(open, &consts)?)))
    }
}

/// A program for which the nested programs are still to be read.
struct Reading<'py> {
    jaxpr: Bound<'py, PyAny>,
    builder: Builder,
    table: ObjectTable,
    outvars: Vec<Atom>,
    /// The last one is read next.
    unresolved: Vec<SubprogramId>,
    detail: Detail,
}

impl<'py> Reading<'py> {
    fn within(&self, py: Python<'py>, id: SubprogramId) -> Bound<'py, PyAny> {
        self.table.object(py, self.builder.subprogram_data(id).object)
    }

    fn finish(self: Box<Self>) -> PyResult<Bound<'py, Graph>> {
        let fields = JaxprFields::of(&self.jaxpr)?;
        let names = match self.detail {
            Detail::Whole => debug_info(&fields.debug_info)?,
            Detail::Structure => DebugInfo::default(),
        };
        Graph::finish(self.builder, self.table, &self.outvars, &fields, Some(names))
    }
}

/// One jaxpr that is being read, equation by equation; nested jaxprs become nested programs.
struct Reader<'a, 'py> {
    jax: &'a Jax,
    detail: Detail,
    builder: Builder,
    table: ObjectTable,
    /// Params that were read, by their typed hash: jax has a dict for each equation.
    known_params: FxHashMap<u64, SmallVec<[ParamsId; 1]>>,
    /// The context of the last equation, which mostly is that of the next.
    context: Option<(Bound<'py, PyAny>, ContextId)>,
    /// The source of all equations where none are read.
    no_source: Option<SourceId>,
}

impl<'a, 'py> Reader<'a, 'py> {
    fn new(jax: &'a Jax, detail: Detail) -> Self {
        Self {
            jax,
            detail,
            builder: Builder::new(DeadCode::Keep),
            table: ObjectTable::default(),
            known_params: FxHashMap::default(),
            context: None,
            no_source: None,
        }
    }

    fn jaxpr(
        mut self,
        jaxpr: Bound<'py, PyAny>,
        consts: &Bound<'py, PyAny>,
    ) -> PyResult<Reading<'py>> {
        let py = jaxpr.py();
        let consts: Vec<Bound<'_, PyAny>> = consts.try_iter()?.collect::<PyResult<_>>()?;
        let mut values = consts.iter();
        each(&jaxpr.getattr(intern!(py, "constvars"))?, |_, var| {
            let none = py.None().into_bound(py);
            let value = self.table.new_const(values.next().unwrap_or(&none));
            let ty = self.type_of(&var)?;
            let id = self.builder.constvar(ty, value).map_err(build_error)?;
            // The program's own handle: constants of a finished program stay.
            self.builder.retain(id);
            self.table.set_var_object(id, &var);
            Ok(())
        })?;
        each(&jaxpr.getattr(intern!(py, "invars"))?, |_, var| {
            let ty = self.type_of(&var)?;
            let id = self.builder.invar(ty).map_err(build_error)?;
            self.table.set_var_object(id, &var);
            Ok(())
        })?;
        let (mut operands, mut types) = (Vec::new(), Vec::new());
        each(&jaxpr.getattr(intern!(py, "eqns"))?, |position, eqn| {
            self.eqn(position, &eqn, &mut operands, &mut types)
        })?;
        let mut outvars = Vec::new();
        each(&jaxpr.getattr(intern!(py, "outvars"))?, |_, atom| {
            outvars.push(self.atom(&atom, || "the outputs".to_owned())?);
            Ok(())
        })?;
        let Self { detail, builder, table, .. } = self;
        let mut unresolved = builder.unresolved_subprograms();
        unresolved.reverse();
        Ok(Reading { jaxpr, builder, table, outvars, unresolved, detail })
    }

    /// An equation; `operands` and `types` are only room.
    fn eqn(
        &mut self,
        position: usize,
        eqn: &Bound<'py, PyAny>,
        operands: &mut Vec<Atom>,
        types: &mut Vec<TypeId>,
    ) -> PyResult<()> {
        let (py, jax) = (eqn.py(), self.jax);
        let slots = &jax.slots;
        let is_own = is_exactly(eqn.as_ptr(), jax.eqn_type.as_ptr().cast());
        let field = |slot: Slot, name: &Bound<'py, PyString>| {
            // SAFETY: the exact type was checked.
            let known = if is_own { unsafe { slot.get(eqn) } } else { None };
            known.map_or_else(|| eqn.getattr(name), Ok)
        };
        let primitive = field(slots.eqn_primitive, intern!(py, "primitive"))?;
        let params = field(slots.eqn_params, intern!(py, "params"))?.cast_into::<PyDict>()?;
        let invars = field(slots.eqn_invars, intern!(py, "invars"))?;
        let outvars = field(slots.eqn_outvars, intern!(py, "outvars"))?;
        let effects = field(slots.eqn_effects, intern!(py, "effects"))?;
        let context = field(slots.eqn_ctx, intern!(py, "ctx"))?;
        let source = match self.detail {
            Detail::Structure => self.no_source(),
            Detail::Whole => {
                let source_info = field(slots.eqn_source_info, intern!(py, "source_info"))?;
                let source = SourceRef::of(jax, &source_info)?;
                self.table.source(self.jax, &mut self.builder, &source)?
            }
        };

        let primitive = self.table.primitive(&mut self.builder, &primitive)?;
        let params = self.params(&params)?;
        operands.clear();
        each(&invars, |_, atom| {
            operands.push(self.atom(&atom, || format!("equation {position}"))?);
            Ok(())
        })?;
        types.clear();
        each(&outvars, |_, var| {
            types.push(self.type_of(&var)?);
            Ok(())
        })?;
        let effects = if effects.is(&jax.no_effects) {
            EffectsId::NONE
        } else if effects.len()? == 0 {
            self.table.note_no_effects(primitive, &effects);
            EffectsId::NONE
        } else {
            self.table.effects_id(jax, &mut self.builder, &effects)?
        };
        let context = self.context(context);
        let id = self
            .builder
            .eqn(primitive, params, operands, types, effects, source, context)
            .map_err(build_error)?;
        let mut vars = self.builder.eqn_data(id).outvars();
        each(&outvars, |_, object| {
            if let Some(var) = vars.next() {
                self.table.set_var_object(var, &object);
            }
            Ok(())
        })
    }

    fn atom(&mut self, atom: &Bound<'py, PyAny>, place: impl FnOnce() -> String) -> PyResult<Atom> {
        if is_exactly(atom.as_ptr(), self.jax.literal_type.as_ptr().cast()) {
            return Ok(Atom::literal(self.table.literal(self.jax, &mut self.builder, atom)?));
        }
        self.table.var_of(atom).map(Atom::var).ok_or_else(|| {
            PyRuntimeError::new_err(format!("{} use a variable that is not defined", place()))
        })
    }

    fn type_of(&mut self, var: &Bound<'py, PyAny>) -> PyResult<TypeId> {
        let is_own = is_exactly(var.as_ptr(), self.jax.var_type.as_ptr().cast());
        // SAFETY: the exact type was checked.
        let known = if is_own { unsafe { self.jax.slots.var_aval.get(var) } } else { None };
        let aval = known.map_or_else(|| var.getattr(intern!(var.py(), "aval")), Ok)?;
        self.table.ty(self.jax, &mut self.builder, &aval)
    }

    fn params(&mut self, params: &Bound<'py, PyDict>) -> PyResult<ParamsId> {
        let mut hasher = FxHasher::default();
        if !hash_params(params, &mut hasher) {
            return self.table.params_id(self.jax, &mut self.builder, params);
        }
        let same = self.known_params.entry(hasher.finish()).or_default();
        for &id in same.iter() {
            if equal_params(&self.table.params_dict(params.py(), id), params) {
                return Ok(id);
            }
        }
        let id = self.table.params_id(self.jax, &mut self.builder, params)?;
        same.push(id);
        Ok(id)
    }

    fn context(&mut self, context: Bound<'py, PyAny>) -> ContextId {
        if let Some((known, id)) = &self.context
            && known.is(&context)
        {
            return *id;
        }
        let id = self.builder.context(self.table.handle(&context));
        self.context = Some((context, id));
        id
    }

    fn no_source(&mut self) -> SourceId {
        let none = Source { traceback: None, name_stack: None };
        *self.no_source.get_or_insert_with(|| self.builder.source(none))
    }
}

/// Each item of a list, or of anything else that can be iterated, with its place.
fn each<'py>(
    items: &Bound<'py, PyAny>,
    mut body: impl FnMut(usize, Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(list) = items.cast_exact::<PyList>() {
        return list.iter().enumerate().try_for_each(|(position, item)| body(position, item));
    }
    for (position, item) in items.try_iter()?.enumerate() {
        body(position, item?)?;
    }
    Ok(())
}
