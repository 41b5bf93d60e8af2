//! Programs as tables of numbers and of the objects that these stand for, for other formats.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::Hash;
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyFloat, PyInt, PyList, PyString};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::analysis::{Assumptions, Nest, Nested, Report, Trips, cost, liveness};
use crate::ir::{
    Atom, AtomKind, ContextId, EffectsId, LiteralId, ParamValue, ParamsId, PrimitiveId, Program,
    SourceId, SubprogramId, TypeId, Var,
};

use crate::python::cpython::native::address;
use crate::python::jax::names::{Jax, jax};
use crate::python::program::graph::Graph;
use crate::python::tools::analysis::Graphs;
use crate::python::tools::analysis::cost::{Numbers, numbers};
use crate::python::tools::print::{VariableNames, variable_names};

/// A variable by its place among those of its program; a literal by minus one minus its place.
type AtomNumber = i64;

/// An equation: the places of its primitive, params, effects, source and context; its operands, its
/// first output, how many outputs there are, what it costs, and whether the programs that it runs do.
type EqnRow =
    (usize, usize, usize, usize, usize, Vec<AtomNumber>, usize, u32, Option<Numbers>, bool);

/// A traceback and a name stack.
type SourceRow<'py> = (Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// Params: jax's own, their values in plain terms, and the programs among them, by object.
type ParamsRow<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, Vec<(Bound<'py, PyAny>, usize)>);

/// A program. Variables are numbered from 0 on: its constants, its inputs, and what its equations
/// bind, in order.
#[derive(IntoPyObject)]
pub struct Table<'py> {
    /// The function it was traced from, and where that is.
    function: String,
    /// How often it runs.
    times: u128,
    /// The most bytes that are alive while each equation runs; of nested programs, of what they make
    /// themselves. None where nothing runs it.
    live: Option<Vec<u128>>,
    arg_names: Option<Vec<String>>,
    result_paths: Option<Vec<String>>,
    /// How many constants there are, and what they are.
    constants: Vec<Option<Bound<'py, PyAny>>>,
    num_inputs: usize,
    /// The names of the variables in the text of the whole, None for those that it does not mention;
    /// None where jax prints it.
    names: Option<VariableNames>,
    /// The type of each variable, by its place in `types`.
    variables: Vec<usize>,
    types: Vec<Bound<'py, PyAny>>,
    /// jax's literals.
    literals: Vec<Bound<'py, PyAny>>,
    outputs: Vec<AtomNumber>,
    primitives: Vec<Bound<'py, PyAny>>,
    params: Vec<ParamsRow<'py>>,
    effects: Vec<Bound<'py, PyAny>>,
    /// Tracebacks and name stacks.
    sources: Vec<SourceRow<'py>>,
    contexts: Vec<Bound<'py, PyAny>>,
    eqns: Vec<EqnRow>,
}

/// Things in the order in which they are met.
struct Met<T>(IndexSet<T, FxBuildHasher>);

impl<T: Hash + Eq> Met<T> {
    fn new() -> Self {
        Self(IndexSet::default())
    }

    fn place(&mut self, thing: T) -> usize {
        self.0.insert_full(thing).0
    }
}

/// What a program's rows refer to, each once, by its number.
struct Rows {
    /// The type of each variable.
    variables: Vec<usize>,
    types: Met<TypeId>,
    literals: Met<LiteralId>,
    primitives: Met<PrimitiveId>,
    params: Met<ParamsId>,
    effects: Met<(EffectsId, PrimitiveId)>,
    sources: Met<SourceId>,
    contexts: Met<ContextId>,
    eqns: Vec<EqnRow>,
    outputs: Vec<AtomNumber>,
}

impl Rows {
    fn of(program: &Program, costs: Option<&Nested>) -> Self {
        let vars: Vec<Var> = program
            .constvars()
            .iter()
            .map(|&(var, _)| var)
            .chain(program.invars().iter().copied())
            .chain(program.eqns().flat_map(|eqn| program.eqn_outvars(eqn)))
            .collect();
        let mut places = vec![0_usize; program.num_vars()];
        let mut types = Met::new();
        let mut variables = Vec::with_capacity(vars.len());
        for (number, var) in vars.iter().enumerate() {
            places[var.as_u32() as usize] = number;
            variables.push(types.place(program.var_type(*var)));
        }
        let mut literals = Met::<LiteralId>::new();
        let mut atom = |atom: &Atom| -> AtomNumber {
            let signed = |place: usize| AtomNumber::try_from(place).unwrap_or(AtomNumber::MAX);
            match atom.kind() {
                AtomKind::Var(var) => signed(places[var.as_u32() as usize]),
                AtomKind::Literal(literal) => -1 - signed(literals.place(literal)),
            }
        };
        let (mut primitives, mut params, mut sources) = (Met::new(), Met::new(), Met::new());
        let (mut effects, mut contexts) = (Met::new(), Met::new());
        let mut first = program.constvars().len() + program.invars().len();
        let mut eqns = Vec::with_capacity(program.num_eqns());
        let mut leaves = costs.map_or(&[][..], |costs| &*costs.leaves).iter().peekable();
        for (position, eqn) in program.eqns().enumerate() {
            let data = program.eqn(eqn);
            eqns.push((
                primitives.place(data.primitive),
                params.place(data.params),
                effects.place((data.effects, data.primitive)),
                sources.place(data.source),
                contexts.place(data.context),
                program.eqn_invars(eqn).iter().map(&mut atom).collect(),
                first,
                data.num_outvars,
                costs.and_then(|costs| *costs.eqns.get(position)?).map(numbers),
                leaves.next_if_eq(&&eqn).is_none(),
            ));
            first += data.num_outvars as usize;
        }
        let outputs = program.outvars().iter().map(&mut atom).collect();
        Self {
            variables,
            types,
            literals,
            primitives,
            params,
            effects,
            sources,
            contexts,
            eqns,
            outputs,
        }
    }
}

/// What tells programs apart: the open jaxpr and its constants. None is the outermost one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key(Option<(usize, Vec<usize>)>);

/// The programs that were found, each once, in the order of the equations that run them.
struct Found<'a, 'py> {
    jax: &'a Jax,
    graphs: Graphs<'py>,
    programs: IndexMap<Key, Arc<Program>, FxBuildHasher>,
    pending: VecDeque<(Key, Arc<Program>)>,
}

impl<'py> Found<'_, 'py> {
    /// The object of a program among params, and what tells it apart.
    fn object(
        &self,
        graph: &Bound<'py, Graph>,
        program: &Program,
        id: SubprogramId,
    ) -> PyResult<(Bound<'py, PyAny>, Key)> {
        let py = graph.py();
        let object = graph.get().table().object(py, program.subprogram(id).object);
        let (open, consts) = self
            .jax
            .open_jaxpr
            .bind(py)
            .call1((&object,))?
            .extract::<(Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)>()?;
        let key = Key(Some((address(&open), consts.iter().map(address).collect())));
        Ok((object, key))
    }

    /// How often the programs run. One that several others run may have been read for each of them.
    fn times(&self, report: &Report) -> PyResult<FxHashMap<Key, u128>> {
        let mut keys = FxHashMap::default();
        let mut times = FxHashMap::default();
        // A program comes after those that run it.
        for nested in &report.programs {
            let program = &*nested.program;
            let Some(graph) = self.graphs.get(program) else { continue };
            let key = keys.remove(&std::ptr::from_ref(program)).unwrap_or(Key(None));
            let known: &mut u128 = times.entry(key).or_default();
            *known = known.saturating_add(nested.times);
            for (id, subprogram) in program.subprograms() {
                if let Some(within) = &subprogram.program {
                    keys.insert(Arc::as_ptr(within), self.object(graph, program, id)?.1);
                }
            }
        }
        Ok(times)
    }

    /// The object of a program among params, and its place among those that were found.
    fn within(
        &mut self,
        graph: &Bound<'py, Graph>,
        program: &Program,
        id: SubprogramId,
    ) -> PyResult<Option<(Bound<'py, PyAny>, usize)>> {
        let subprogram = program.subprogram(id);
        let Some(within) = &subprogram.program else { return Ok(None) };
        let (object, key) = self.object(graph, program, id)?;
        let entry = self.programs.entry(key);
        let place = entry.index();
        entry.or_insert_with_key(|key| {
            self.pending.push_back((key.clone(), within.clone()));
            within.clone()
        });
        Ok(Some((object, place)))
    }

    fn params(
        &mut self,
        graph: &Bound<'py, Graph>,
        program: &Program,
        id: ParamsId,
    ) -> PyResult<ParamsRow<'py>> {
        let py = graph.py();
        let (mut objects, mut places) = (Vec::new(), FxHashMap::default());
        for subprogram in program.params(id).subprograms() {
            if let Some((object, place)) = self.within(graph, program, subprogram)? {
                places.insert(subprogram, place);
                objects.push((object, place));
            }
        }
        let values = PyDict::new(py);
        for (name, value) in program.params(id).iter() {
            values.set_item(name, plain(graph, value, &places)?)?;
        }
        Ok((graph.get().table().params_dict(py, id), values, objects))
    }

    fn table(
        &mut self,
        program: &Arc<Program>,
        names: Option<VariableNames>,
        times: u128,
        costs: Option<&Nested>,
        live: Option<Vec<u128>>,
    ) -> PyResult<Option<Table<'py>>> {
        let Some(graph) = self.graphs.get(program).cloned() else { return Ok(None) };
        let py = graph.py();
        let Rows {
            variables,
            types,
            literals,
            primitives,
            params,
            effects,
            sources,
            contexts,
            eqns,
            outputs,
        } = Rows::of(program, costs);
        let params = params.0.into_iter().map(|id| self.params(&graph, program, id));
        let params = params.collect::<PyResult<Vec<_>>>()?;
        let borrowed = graph.get();
        let table = borrowed.table();
        let texts = |texts: &Option<Vec<Box<str>>>| {
            texts.as_ref().map(|texts| texts.iter().map(ToString::to_string).collect())
        };
        let debug_info = program.debug_info();
        let effects_of =
            |(id, primitive): (EffectsId, _)| table.effects(py, self.jax, id, primitive);
        Ok(Some(Table {
            function: debug_info.func_src_info.to_string(),
            times,
            live,
            arg_names: texts(&debug_info.arg_names),
            result_paths: texts(&debug_info.result_paths),
            constants: program.constvars().iter().map(|&(_, id)| table.constant(py, id)).collect(),
            num_inputs: program.invars().len(),
            names: names.filter(|names| names.len() == variables.len()),
            variables,
            types: types.0.into_iter().map(|ty| table.aval(py, ty)).collect(),
            literals: literals
                .0
                .into_iter()
                .map(|id| table.object(py, program.literal(id).object))
                .collect(),
            outputs,
            primitives: primitives
                .0
                .into_iter()
                .map(|id| table.object(py, program.primitive(id).object))
                .collect(),
            params,
            effects: effects.0.into_iter().map(effects_of).collect(),
            sources: sources
                .0
                .into_iter()
                .map(|id| {
                    let source = program.source(id);
                    let object = |id: Option<_>| id.and_then(|id| table.known_source(py, id));
                    (object(source.traceback), object(source.name_stack))
                })
                .collect(),
            contexts: contexts
                .0
                .into_iter()
                .map(|id| table.object(py, program.context(id)))
                .collect(),
            eqns,
        }))
    }
}

/// The value of a param in plain terms: numbers, texts, lists, and dicts that say what else
/// there is.
fn plain<'py>(
    graph: &Bound<'py, Graph>,
    value: &ParamValue,
    places: &FxHashMap<SubprogramId, usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = graph.py();
    let tagged = |tag: &str, value: Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(py);
        dict.set_item(tag, value)?;
        Ok(dict.into_any())
    };
    let text = |text: &str| PyString::new(py, text).into_any();
    let list = |items: &[ParamValue]| -> PyResult<Bound<'py, PyAny>> {
        let items = items.iter().map(|item| plain(graph, item, places));
        Ok(PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
    };
    Ok(match value {
        ParamValue::None => py.None().into_bound(py),
        ParamValue::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        ParamValue::Int(value) => value.into_pyobject(py)?.into_any(),
        ParamValue::BigInt(digits) => py.get_type::<PyInt>().call1((&**digits,))?,
        ParamValue::Float(bits) => PyFloat::new(py, f64::from_bits(*bits)).into_any(),
        ParamValue::Complex(real, imaginary) => {
            let (real, imaginary) = (f64::from_bits(*real), f64::from_bits(*imaginary));
            let number = PyComplex::from_doubles(py, real, imaginary);
            tagged("complex", number.str()?.into_any())?
        }
        ParamValue::Str(value) => text(value),
        ParamValue::Bytes(bytes) => {
            let mut digits = String::with_capacity(2 * bytes.len());
            for byte in bytes {
                let _ = write!(digits, "{byte:02x}");
            }
            tagged("bytes", text(&digits))?
        }
        ParamValue::DType(dtype) => tagged("dtype", text(dtype.name()))?,
        ParamValue::Dim(dim) => tagged("dimension", text(dim))?,
        ParamValue::Enum { type_name, member } => {
            let name = type_name.rsplit('.').next().unwrap_or_default();
            tagged("enum", text(&format!("{name}.{member}")))?
        }
        ParamValue::Tuple(items) | ParamValue::List(items) => list(items)?,
        ParamValue::Dict(entries) => {
            let pairs = entries.iter().map(|(key, value)| {
                let pair = [plain(graph, key, places)?, plain(graph, value, places)?];
                Ok(PyList::new(py, pair)?.into_any())
            });
            let pairs = pairs.collect::<PyResult<Vec<_>>>()?;
            tagged("dict", PyList::new(py, pairs)?.into_any())?
        }
        ParamValue::Named { type_name, fields } => {
            let name = type_name.rsplit('.').next().unwrap_or_default();
            let own = PyDict::new(py);
            for (name, value) in fields {
                own.set_item(&**name, plain(graph, value, places)?)?;
            }
            let record = tagged("record", text(name))?;
            record.set_item("fields", own)?;
            record
        }
        ParamValue::Program(id) => match places.get(id) {
            Some(place) => tagged("program", place.into_pyobject(py)?.into_any())?,
            None => py.None().into_bound(py),
        },
        ParamValue::Opaque(object) => tagged("object", graph.get().table().object(py, *object))?,
    })
}

/// The most bytes that are alive while each equation of a program and of its nested programs runs.
fn live_bytes(program: &Arc<Program>) -> FxHashMap<*const Program, Vec<u128>> {
    let nest = Nest::of(program);
    let found = liveness(&nest, &Assumptions::default());
    let within = nest.programs().zip(found.within);
    let mut live: FxHashMap<_, _> =
        within.filter_map(|((_, program), live)| Some((Arc::as_ptr(program), live?))).collect();
    live.insert(Arc::as_ptr(program), found.curve.iter().map(|alive| alive.during).collect());
    live
}

/// A program and its nested programs, each once, the outermost one first; loops of which nobody knows
/// it run `trips` times.
///
/// Raises:
///     A nested program cannot be read.
#[pyfunction]
pub fn tables<'py>(root: &Bound<'py, Graph>, trips: u64) -> PyResult<Vec<Table<'py>>> {
    let jax = jax(root.py())?;
    let program = Graph::resolved_program(root, jax)?;
    let graphs = Graphs::of(jax, root)?;
    let report = cost(&program, Trips(trips), &graphs);
    let costs: FxHashMap<*const Program, &Nested> =
        report.programs.iter().map(|nested| (Arc::as_ptr(&nested.program), nested)).collect();
    let mut live = live_bytes(&program);
    let mut names = variable_names(jax, root)?;
    let programs = IndexMap::from_iter([(Key(None), program.clone())]);
    let pending = VecDeque::from([(Key(None), program)]);
    let mut found = Found { jax, graphs, programs, pending };
    let times = found.times(&report)?;
    let mut tables = Vec::new();
    while let Some((key, program)) = found.pending.pop_front() {
        let times = times.get(&key).copied().unwrap_or_default();
        let jaxpr = key.0.map(|(jaxpr, _)| jaxpr);
        let names = names.as_mut().and_then(|names| names.of(jaxpr));
        let costs = costs.get(&Arc::as_ptr(&program)).copied();
        let live = live.remove(&Arc::as_ptr(&program));
        tables.extend(found.table(&program, names, times, costs, live)?);
    }
    Ok(tables)
}
