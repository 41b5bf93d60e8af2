//! Passes ([`crate::passes`]) over programs with Python objects.
//!
//! A program that is rewritten begins with the tables of the one that it was, so its objects are the
//! same and some more. What the params, literals and values of jax are made of is in `_program/passes.py`.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyInt, PyTuple};
use rustc_hash::FxHashMap;

use crate::ir::{
    BuildError, Builder, ConstId, EffectsId, Eqn, EqnShape, ForeignId, LiteralId, ParamsId,
    PrimitiveId, Program, SourceId, TypeId,
};
use crate::passes::{Embedding, Invalid, Options, Pass, Scalar, Trimmed, optimize};

use crate::python::cpython::native::address;
use crate::python::jax::avals::build_error;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::program::content::{EqnObjects, eqn_object};
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::new_jaxpr;
use crate::python::program::objects::ObjectTable;
use crate::python::program::read::graph_of;
use crate::python::tools::analysis::Graphs;

impl From<BuildError> for PyErr {
    fn from(error: BuildError) -> Self {
        build_error(error)
    }
}

impl From<Invalid> for PyErr {
    fn from(error: Invalid) -> Self {
        PyRuntimeError::new_err(format!("jaxide: {error}"))
    }
}

/// What is asked for.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    passes: Vec<String>,
    allow_reassociation: bool,
    max_folded: u64,
    inline: Option<Vec<String>>,
    max_inlined: usize,
}

/// The graph with passes done to it, itself where they find nothing; `debug_info` is its jaxpr's, and
/// `helpers` is what they call of Python's.
///
/// Raises:
///     `ValueError`: There is no such pass.
#[pyfunction]
#[pyo3(name = "optimize")]
pub fn optimize_graph<'py>(
    graph: &Bound<'py, Graph>,
    debug_info: &Bound<'py, PyAny>,
    settings: Settings,
    helpers: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, Graph>> {
    let jax = jax(graph.py())?;
    let Settings { passes, allow_reassociation, max_folded, inline, max_inlined } = settings;
    let passes = passes
        .iter()
        .map(|name| Pass::from_name(name).ok_or_else(|| no_pass(name)))
        .collect::<PyResult<_>>()?;
    let inlined = inline.map(|names| names.into_iter().map(String::into_boxed_str).collect());
    let options =
        Options { passes, reassociate: allow_reassociation, max_folded, inlined, max_inlined };
    let program = Graph::resolved_program(graph, jax)?;
    let mut objects = Objects {
        jax,
        helpers: helpers.clone(),
        graphs: Graphs::of(jax, graph)?,
        jaxprs: FxHashMap::default(),
    };
    let now = optimize(&program, &options, &mut objects)?;
    let result = objects.graph(&now)?;
    if !result.is(graph) {
        // The names of results are known when the trace is over.
        result.get().set_debug_info(debug_info);
    }
    Ok(result)
}

fn no_pass(name: &str) -> PyErr {
    let known: Vec<_> = Pass::ALL.iter().map(|pass| format!("{:?}", pass.name())).collect();
    let known = known.join(", ");
    pyo3::exceptions::PyValueError::new_err(format!("there is no pass {name:?}, but {known}"))
}

/// The graphs of all programs that passes read or make.
struct Objects<'py> {
    jax: &'py Jax,
    helpers: Bound<'py, PyAny>,
    graphs: Graphs<'py>,
    /// Jaxprs of programs that were made, by the address of the program and whether they are closed.
    jaxprs: FxHashMap<(usize, bool), Bound<'py, PyAny>>,
}

/// The objects of one program: those of its graph, until some are added.
struct Own<'py> {
    graph: Bound<'py, Graph>,
    table: Option<ObjectTable>,
    scalars: std::cell::RefCell<FxHashMap<ForeignId, Option<Scalar>>>,
}

impl<'py> Own<'py> {
    /// What takes additions.
    fn table(&mut self) -> &mut ObjectTable {
        let graph = &self.graph;
        self.table.get_or_insert_with(|| graph.get().table().extended(graph.py()))
    }

    fn read<T>(&self, read: impl FnOnce(&ObjectTable) -> T) -> T {
        match &self.table {
            Some(table) => read(table),
            None => read(&self.graph.get().table()),
        }
    }

    fn object(&self, id: ForeignId) -> Bound<'py, PyAny> {
        self.read(|table| table.object(self.graph.py(), id))
    }

    /// The value of a literal.
    fn literal(&self, id: ForeignId) -> Option<Bound<'py, PyAny>> {
        self.object(id).getattr(intern!(self.graph.py(), "val")).ok()
    }
}

impl<'py> Objects<'py> {
    fn graph(&self, program: &Program) -> PyResult<Bound<'py, Graph>> {
        let known = self.graphs.get(program).cloned();
        known.ok_or_else(|| PyRuntimeError::new_err("jaxide: a program without its graph"))
    }

    fn call<A>(&self, name: &str, args: A) -> PyResult<Bound<'py, PyAny>>
    where
        A: pyo3::call::PyCallArgs<'py>,
    {
        self.helpers.getattr(name)?.call1(args)
    }

    /// The jaxpr of a program that was made, in the form of the one that it replaces.
    fn jaxpr(
        &mut self,
        program: &Arc<Program>,
        was: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let is_closed = self.call("is_closed", (was,))?.is_truthy()?;
        let key = (Arc::as_ptr(program) as usize, is_closed);
        if let Some(known) = self.jaxprs.get(&key) {
            return Ok(known.clone());
        }
        let (open, consts) = new_jaxpr(self.jax, &self.graph(program)?)?;
        let made = if is_closed { self.call("close", (open, consts))? } else { open };
        self.jaxprs.insert(key, made.clone());
        Ok(made)
    }

    /// Params as rows, the programs among them read; those that are `known` are not read again.
    fn params(
        &mut self,
        table: &mut ObjectTable,
        builder: &mut Builder,
        params: &Bound<'py, PyDict>,
        known: impl Fn(&Bound<'py, PyAny>) -> Option<Bound<'py, Graph>>,
    ) -> PyResult<ParamsId> {
        let id = table.params_id(self.jax, builder, params)?;
        for within in builder.params_data(id).subprograms() {
            let data = builder.subprogram_data(within);
            if data.program.is_some() {
                continue;
            }
            let object = data.object;
            let jaxpr = table.object(params.py(), object);
            let graph = match table.subgraph(params.py(), object).or_else(|| known(&jaxpr)) {
                Some(graph) => graph,
                None => graph_of(self.jax, &jaxpr)?,
            };
            self.graphs.add(self.jax, &graph)?;
            table.set_subgraph(object, &graph);
            builder.resolve_subprogram(within, Graph::resolved_program(&graph, self.jax)?);
        }
        Ok(id)
    }
}

impl<'py> Embedding for Objects<'py> {
    type Error = PyErr;
    type Objects = Own<'py>;
    type Value = Bound<'py, PyAny>;

    fn open(&mut self, program: &Arc<Program>) -> PyResult<Own<'py>> {
        let scalars = std::cell::RefCell::default();
        Ok(Own { graph: self.graph(program)?, table: None, scalars })
    }

    fn close(&mut self, _: &Arc<Program>, now: &Arc<Program>, mut own: Own<'py>) -> PyResult<()> {
        let py = own.graph.py();
        own.table().keep_what_is_used(py, self.jax, now);
        let table = std::mem::take(own.table());
        let graph = Graph::rewritten(&own.graph, now.clone(), table)?;
        self.graphs.add(self.jax, &graph)
    }

    fn is_known(&self, own: &Own<'py>, primitive: ForeignId) -> bool {
        let found = self.call("is_known", (own.object(primitive),));
        found.and_then(|found| found.is_truthy()).unwrap_or(false)
    }

    fn scalar(&self, own: &Own<'py>, literal: ForeignId) -> Option<Scalar> {
        if let Some(known) = own.scalars.borrow().get(&literal) {
            return *known;
        }
        let found = own.literal(literal).and_then(|value| {
            let number = self.call("number", (value,)).ok()?;
            scalar_of(&number)
        });
        own.scalars.borrow_mut().insert(literal, found);
        found
    }

    fn value(&self, own: &Own<'py>, literal: ForeignId) -> Bound<'py, PyAny> {
        own.literal(literal).unwrap_or_else(|| own.graph.py().None().into_bound(own.graph.py()))
    }

    fn evaluate(
        &mut self,
        own: &Own<'py>,
        program: &Program,
        eqn: Eqn,
        operands: &[Bound<'py, PyAny>],
        ty: TypeId,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = own.graph.py();
        let data = program.eqn(eqn);
        let primitive = own.object(program.primitive(data.primitive).object);
        let context = own.object(program.context(data.context));
        let params = own.read(|table| table.params_dict(py, data.params));
        let aval = own.read(|table| table.aval(py, ty));
        let operands = PyTuple::new(py, operands)?;
        let value = self.call("evaluate", (primitive, params, context, operands, aval))?;
        Ok((!value.is_none()).then_some(value))
    }

    fn literal(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
        value: &Bound<'py, PyAny>,
        ty: TypeId,
    ) -> PyResult<Option<LiteralId>> {
        let aval = own.read(|table| table.aval(value.py(), ty));
        let literal = self.call("literal", (value, aval))?;
        if literal.is_none() {
            return Ok(None);
        }
        Ok(Some(own.table().fresh_literal(self.jax, builder, &literal)?))
    }

    fn constant(
        &mut self,
        own: &mut Own<'py>,
        value: &Bound<'py, PyAny>,
        ty: TypeId,
    ) -> PyResult<Option<ConstId>> {
        let aval = own.read(|table| table.aval(value.py(), ty));
        let array = self.call("array", (value, aval))?;
        Ok((!array.is_none()).then(|| own.table().new_const(&array)))
    }

    fn number(&self, own: &Own<'py>, number: Scalar, ty: TypeId) -> Option<Bound<'py, PyAny>> {
        let py = own.graph.py();
        let Scalar::Float(bits) = number else { return None };
        let aval = own.read(|table| table.aval(py, ty));
        self.call("as_value", (f64::from_bits(bits), aval)).ok()
    }

    fn multiplication(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
    ) -> PyResult<Option<(PrimitiveId, ParamsId)>> {
        let (primitive, params) = self
            .call("multiplication", ())?
            .extract::<(Bound<'py, PyAny>, Bound<'py, PyDict>)>()?;
        let primitive = own.table().primitive(builder, &primitive)?;
        Ok(Some((primitive, self.params(own.table(), builder, &params, |_| None)?)))
    }

    fn with_programs(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
        params: ParamsId,
        programs: &[(ForeignId, Arc<Program>)],
    ) -> PyResult<ParamsId> {
        let py = own.graph.py();
        let used: Vec<ForeignId> = builder
            .params_data(params)
            .subprograms()
            .into_iter()
            .map(|id| builder.subprogram_data(id).object)
            .collect();
        let instead = PyDict::new(py);
        let mut made: FxHashMap<usize, Bound<'py, Graph>> = FxHashMap::default();
        for (object, program) in programs.iter().filter(|(object, _)| used.contains(object)) {
            let was = own.object(*object);
            let jaxpr = self.jaxpr(program, &was)?;
            made.insert(address(&jaxpr), self.graph(program)?);
            instead.set_item(address(&was), jaxpr)?;
        }
        let dict = own.table().params_dict(py, params);
        let new = self.call("with_programs", (dict, instead))?.cast_into::<PyDict>()?;
        self.params(own.table(), builder, &new, |jaxpr| made.get(&address(jaxpr)).cloned())
    }

    fn is_plain_call(&self, own: &Own<'py>, _: &Program, params: ParamsId) -> bool {
        let params = own.read(|table| table.params_dict(own.graph.py(), params));
        let found = self.call("is_plain_call", (params,));
        found.and_then(|found| found.is_truthy()).unwrap_or(false)
    }

    fn trim(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
        program: &Program,
        eqn: Eqn,
        used: &[bool],
    ) -> PyResult<Trimmed> {
        let py = own.graph.py();
        let jax = self.jax;
        let table = own.table();
        let data = program.eqn(eqn);
        let object = {
            let mut atom = |atom: &crate::ir::Atom| match atom.kind() {
                crate::ir::AtomKind::Var(var) => {
                    table.var_object(py, jax, program.var_type(var), var)
                }
                crate::ir::AtomKind::Literal(id) => {
                    table.literal_object(py, jax, id, program.literal(id).object)
                }
            };
            let invars: Vec<_> =
                program.eqn_invars(eqn).iter().map(&mut atom).collect::<PyResult<_>>()?;
            let outvars: Vec<_> =
                data.outvars().map(|var| atom(&var.into())).collect::<PyResult<_>>()?;
            let objects = EqnObjects {
                invars: &invars,
                outvars: &outvars,
                primitive: program.primitive(data.primitive).object,
                context: program.context(data.context),
                source_info: table.source_info(py, jax, program.source(data.source))?,
            };
            eqn_object(py, jax, table, data, objects)?
        };
        let found = self.call("trimmed", (object, used.to_vec()))?;
        if found.is_none() {
            return Ok(Trimmed::Same);
        }
        let found = found.cast_into::<PyTuple>()?;
        if found.is_empty() {
            return Ok(Trimmed::Gone);
        }
        let (operands, outputs, params, effects) =
            found.extract::<(Vec<bool>, Vec<bool>, Bound<'py, PyDict>, Bound<'py, PyAny>)>()?;
        if effects.len()? > 0 {
            return Ok(Trimmed::Same);
        }
        let params = self.params(own.table(), builder, &params, |_| None)?;
        Ok(Trimmed::To { operands, outputs, params, effects: EffectsId::NONE })
    }

    fn import_shape(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
        from: &Program,
        eqn: Eqn,
    ) -> PyResult<EqnShape> {
        let py = own.graph.py();
        let body = self.graph(from)?;
        let table = own.table();
        let data = from.eqn(eqn);
        let (primitive, params, context, avals, no_effects) = {
            let body = body.get();
            let theirs = body.table();
            let avals: Vec<_> =
                data.outvars().map(|var| theirs.aval(py, from.var_type(var))).collect();
            (
                theirs.object(py, from.primitive(data.primitive).object),
                theirs.params_dict(py, data.params),
                theirs.object(py, from.context(data.context)),
                avals,
                theirs.stands_for_no_effects(data.primitive).map(|object| object.bind(py).clone()),
            )
        };
        let primitive = table.primitive(builder, &primitive)?;
        if let Some(no_effects) = no_effects {
            table.note_no_effects(primitive, &no_effects);
        }
        let params =
            self.params(table, builder, &params, |jaxpr| body.get().table().known_subgraph(jaxpr))?;
        let types: Vec<TypeId> =
            avals.iter().map(|aval| table.ty(self.jax, builder, aval)).collect::<PyResult<_>>()?;
        let context = table.handle(&context);
        let context = builder.context(context);
        Ok(builder.shape(primitive, params, &types, EffectsId::NONE, context)?)
    }

    fn import_source(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
        from: &Program,
        source: SourceId,
        caller: SourceId,
    ) -> PyResult<SourceId> {
        let py = own.graph.py();
        let info =
            self.graph(from)?.get().table().source_info(py, self.jax, from.source(source))?;
        let inner = SourceRef::of(self.jax, &info)?;
        let caller = own.table().source_info(py, self.jax, builder.source_data(caller))?;
        let outer = SourceRef::of(self.jax, &caller)?;
        let name_stack = outer.name_stack.add(inner.name_stack)?;
        let traceback = inner.traceback.or(outer.traceback);
        own.table().source(self.jax, builder, &SourceRef { traceback, name_stack })
    }

    fn import_literal(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
        from: &Program,
        literal: LiteralId,
    ) -> PyResult<LiteralId> {
        let object = from.literal(literal).object;
        let object = {
            let body = self.graph(from)?;
            let body = body.get();
            body.table().literal_object(own.graph.py(), self.jax, literal, object)?
        };
        own.table().literal(self.jax, builder, &object)
    }

    fn import_constant(
        &mut self,
        own: &mut Own<'py>,
        builder: &mut Builder,
        from: &Program,
        (ty, value): (TypeId, ConstId),
    ) -> PyResult<(TypeId, ConstId)> {
        let py = own.graph.py();
        let (aval, value) = {
            let body = self.graph(from)?;
            let body = body.get();
            (body.table().aval(py, ty), body.table().constant(py, value))
        };
        let value = value.unwrap_or_else(|| py.None().into_bound(py));
        let table = own.table();
        Ok((table.ty(self.jax, builder, &aval)?, table.new_const(&value)))
    }
}

/// A Python number that is no NaN.
fn scalar_of(number: &Bound<'_, PyAny>) -> Option<Scalar> {
    if let Ok(value) = number.cast::<PyBool>() {
        return Some(Scalar::Bool(value.is_true()));
    }
    if number.is_instance_of::<PyInt>() {
        return number.extract().ok().map(Scalar::Int);
    }
    if let Ok(value) = number.cast::<PyFloat>() {
        return (!value.value().is_nan()).then(|| Scalar::Float(value.value().to_bits()));
    }
    let value = number.cast::<PyComplex>().ok()?;
    let is_nan = value.real().is_nan() || value.imag().is_nan();
    (!is_nan).then(|| Scalar::Complex(value.real().to_bits(), value.imag().to_bits()))
}
