//! Programs of bytes, with their Python objects.

use cranelift_entity::EntityRef;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyList, PySet, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{
    BuildError, Builder, ContextId, Effect, EffectsId, ForeignId, LiteralId, ParamValue, ParamsId,
    PrimitiveId, Program, SourceId, Type, TypeId,
};
use crate::store::{
    Array, Copied, Document, NO_FRAMES, Object, ReadDocument, Rows, StoredProgram, read, take_over,
};

use crate::python::cpython::native::NoCollection;
use crate::python::jax::avals::build_error;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::source::SourceRef;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::{JaxprFields, eqns, new_jaxpr};
use crate::python::program::objects::ObjectTable;
use crate::python::program::read::{Detail, resolve_subprograms};
use crate::python::store::values::make_value;

/// The value that bytes say, with all programs that it refers to; `objects` makes objects of records. Programs are
/// added to `programs` by their places among the objects.
///
/// Raises:
///     What `objects.refused` makes of an error and its place.
#[pyfunction]
#[pyo3(name = "load", signature = (file, objects, programs=None))]
pub fn load_program<'py>(
    file: &Bound<'py, PyBytes>,
    objects: &Bound<'py, PyAny>,
    programs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    load(file, objects, programs, None)
}

/// As `load`, of derivations, which jax knows from then on: `objects.derivation` is told of each
/// derivation, and `objects.program_of` of programs of jax's jits. `origins` says which these are, by their places among
/// the objects; `programs` are those that there are.
///
/// Raises:
///     What `objects.refused` makes of an error and its place.
#[pyfunction]
#[pyo3(name = "load_shared")]
pub fn load_shared_program<'py>(
    file: &Bound<'py, PyBytes>,
    objects: &Bound<'py, PyAny>,
    origins: &Bound<'py, PyDict>,
    programs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    load(file, objects, Some(programs), Some(origins))
}

fn load<'py>(
    file: &Bound<'py, PyBytes>,
    objects: &Bound<'py, PyAny>,
    programs: Option<&Bound<'py, PyDict>>,
    origins: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = file.py();
    let _no_collection = NoCollection::start(py);
    let ReadDocument { document, offsets } = read(file.as_bytes()).map_err(|error| {
        let refused = objects.call_method1(intern!(py, "refused"), (error.to_string(), py.None()));
        refused.map_or_else(|error| error, PyErr::from_value)
    })?;
    let mut loader = Loader {
        jax: jax(py)?,
        objects,
        document: &document,
        made: Vec::with_capacity(document.objects.len()),
        graphs: FxHashMap::default(),
        closed: FxHashSet::default(),
        tracebacks: Vec::new(),
        vars: FxHashMap::default(),
        guarded: objects.getattr(intern!(py, "guarded_params"))?.extract()?,
    };
    loader.tracebacks = loader.tracebacks()?;
    let mut derivations = match origins {
        Some(_) => derivations_of(&document)?,
        None => FxHashMap::default(),
    };
    for (place, (object, offset)) in document.objects.iter().zip(offsets).enumerate() {
        let known = match (origins, programs) {
            (Some(_), Some(programs)) => programs.get_item(place)?,
            _ => None,
        };
        let mut made = match known {
            Some(known) => known,
            None => loader.object(object).map_err(|error| loader.refused(error, offset))?,
        };
        if let (None, Some(programs), Object::Program(_) | Object::Closed { .. }) =
            (origins, programs, object)
        {
            programs.set_item(place, &made)?;
        }
        if let Some(origin) = origins.map_or(Ok(None), |origins| origins.get_item(place))? {
            // It may have another one.
            made = objects.call_method1(intern!(py, "program_of"), (origin, made))?;
        }
        loader.made.push(made);
        for derivation in derivations.remove(&place).into_iter().flatten() {
            let told = loader.value(derivation, &[])?;
            objects.call_method1(intern!(py, "derivation"), told.cast::<PyTuple>()?)?;
        }
    }
    loader.value(&document.root, &[]).map_err(|error| loader.refused(error, 0))
}

/// An array, which `objects` makes.
///
/// # Errors
/// What `objects` raises.
pub(super) fn make_array<'py>(
    objects: &Bound<'py, PyAny>,
    array: &Array<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = objects.py();
    let Array { dtype, shape, data } = array;
    let args = (dtype.name(), PyTuple::new(py, shape)?, PyBytes::new(py, data));
    objects.call_method1(intern!(py, "array"), args)
}

struct Loader<'a, 'py> {
    jax: &'a Jax,
    objects: &'a Bound<'py, PyAny>,
    document: &'a Document<'a>,
    /// The objects so far.
    made: Vec<Bound<'py, PyAny>>,
    /// The graphs of programs, by their place.
    graphs: FxHashMap<ForeignId, Bound<'py, Graph>>,
    /// Programs that have been given constants.
    closed: FxHashSet<ForeignId>,
    tracebacks: Vec<Bound<'py, PyAny>>,
    /// Variables that several programs have.
    vars: FxHashMap<u32, Bound<'py, PyAny>>,
    /// The names of params whose values are checked.
    guarded: FxHashSet<String>,
}

impl<'py> Loader<'_, 'py> {
    fn py(&self) -> Python<'py> {
        self.objects.py()
    }

    /// An error with its place in the file.
    fn refused(&self, error: PyErr, offset: u64) -> PyErr {
        let py = self.py();
        if !error.is_instance_of::<PyException>(py) {
            return error;
        }
        let value = error.value(py);
        if let Some(traceback) = error.traceback(py) {
            let _ = value.setattr(intern!(py, "__traceback__"), traceback);
        }
        let refused = self.objects.call_method1(intern!(py, "refused"), (value, offset));
        refused.map_or_else(|error| error, PyErr::from_value)
    }

    fn tracebacks(&self) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let document = self.document;
        if document.stacks.is_empty() {
            return Ok(Vec::new());
        }
        let py = self.py();
        let name = |name: u32| &*document.names[name as usize];
        let frames = document
            .frames
            .iter()
            .map(|frame| (name(frame.file), name(frame.function), frame.location));
        let frames = PyList::new(py, frames.collect::<Vec<_>>())?;
        let stacks = document.stacks.iter().map(|stack| (stack.caller, stack.frame));
        let stacks = PyList::new(py, stacks.collect::<Vec<_>>())?;
        self.objects.call_method1(intern!(py, "tracebacks"), (frames, stacks))?.extract()
    }

    fn object(&mut self, object: &Object<'_>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py();
        match object {
            Object::Record { class, fields } => {
                let fields = self.value(fields, &[])?;
                self.objects.call_method1(intern!(py, "object"), (&**class, fields))
            }
            Object::Array(array) => make_array(self.objects, array),
            Object::Program(stored) => {
                let graph = self.program(stored)?;
                let jaxpr = new_jaxpr(self.jax, &graph)?.0;
                self.graphs.insert(ForeignId::new(self.made.len()), graph);
                Ok(jaxpr)
            }
            Object::Closed { program, consts } => {
                let open = self.made[program.index()].clone();
                let values: Vec<_> =
                    consts.iter().map(|value| self.made[value.index()].clone()).collect();
                if !self.closed.insert(*program) {
                    // Its graph has the constants of another.
                    eqns(&open)?;
                } else if let Some(graph) = self.graphs.get(program) {
                    graph.get().set_constants(&values);
                }
                self.objects.call_method1(intern!(py, "close"), (open, PyList::new(py, values)?))
            }
        }
    }

    /// A value; programs in it are those of some program.
    fn value(&self, value: &ParamValue, programs: &[ForeignId]) -> PyResult<Bound<'py, PyAny>> {
        let made = |id: ForeignId| self.made[id.index()].clone();
        make_value(self.objects, value, &|opaque| match opaque {
            ParamValue::Program(id) => Some(made(programs[id.index()])),
            ParamValue::Opaque(id) => Some(made(*id)),
            _ => None,
        })
    }

    /// The graph of a program.
    fn program(&mut self, stored: &StoredProgram) -> PyResult<Bound<'py, Graph>> {
        let py = self.py();
        let jax = self.jax;
        let program = &*stored.program;
        let programs: Vec<_> = program.subprograms().map(|(_, within)| within.object).collect();
        let table = ObjectTable::default();
        // Variables are numbered in the copy as they are in the file.
        for (var, number) in &stored.shared {
            if let Some(known) = self.vars.get(number) {
                table.set_var_object(*var, known);
            }
        }
        let mut rows = ProgramRows { loader: self, stored, program, programs, table };
        let copied = take_over(program, &mut rows).map_err(|Refusal(error)| error)?;
        let ProgramRows { mut table, .. } = rows;
        let Copied { mut builder, vars, outvars, effects } = copied;
        for _ in program.constvars() {
            table.new_const(&py.None().into_bound(py));
        }
        let copy_of = |var| vars.get(var);
        for var in stored.dropped.iter().filter_map(|&var| copy_of(var)) {
            let aval = table.aval(py, builder.type_of(var));
            table.set_var_object(var, &jax.drop_var_type.bind(py).call1((aval,))?);
        }
        for &(var, number) in &stored.shared {
            let Some(var) = copy_of(var) else { continue };
            let object = table.var_object(py, jax, builder.type_of(var), var)?;
            self.vars.insert(number, object);
        }
        // Those on variables have objects of these, which are known by now.
        let effects = if effects == EffectsId::NONE {
            jax.no_effects.bind(py).clone()
        } else {
            let list = program.effect_list(program.effects()).iter();
            let set = PySet::empty(py)?;
            for effect in list {
                let input = effect.input.and_then(copy_of);
                let input = match input {
                    Some(var) => Some(table.var_object(py, jax, builder.type_of(var), var)?),
                    None => None,
                };
                set.add(self.effect(effect.object, input)?)?;
            }
            set.into_any()
        };
        resolve_subprograms(jax, py, &mut builder, &mut table, Detail::Whole)?;
        let names = program.debug_info().clone();
        let debug_info = self.objects.call_method1(
            intern!(py, "debug_info"),
            (
                &*names.traced_for,
                &*names.func_src_info,
                texts(names.arg_names.as_ref()),
                texts(names.result_paths.as_ref()),
            ),
        )?;
        let fields = JaxprFields { effects, debug_info, is_high: stored.is_high };
        Graph::finish(builder, table, &outvars, &fields, Some(names))
    }

    /// An effect, on a variable where it is one that is.
    fn effect(
        &self,
        object: ForeignId,
        input: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = &self.made[object.index()];
        self.objects.call_method1(intern!(self.py(), "effect"), (object, input))
    }
}

/// The derivations of a document, by the place of the object that they need last.
fn derivations_of<'a>(
    document: &'a Document<'_>,
) -> PyResult<FxHashMap<usize, Vec<&'a ParamValue>>> {
    let wrong = || PyValueError::new_err("something other than derivations");
    let mut found: FxHashMap<usize, Vec<_>> = FxHashMap::default();
    let ParamValue::Tuple(root) = &document.root else { return Err(wrong()) };
    let [_, ParamValue::Tuple(derivations)] = &**root else { return Err(wrong()) };
    for derivation in derivations {
        let mut last = None;
        derivation.walk(&mut |value| {
            if let ParamValue::Opaque(place) = value {
                last = last.max(Some(place.index()));
            }
        });
        found.entry(last.ok_or_else(wrong)?).or_default().push(derivation);
    }
    Ok(found)
}

fn texts(texts: Option<&Vec<Box<str>>>) -> Option<Vec<&str>> {
    texts.map(|texts| texts.iter().map(|text| &**text).collect())
}

/// Why a program is not loaded.
struct Refusal(PyErr);

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        Self(build_error(error))
    }
}

/// The rows of a stored program as those of a graph.
struct ProgramRows<'l, 'a, 'py> {
    loader: &'l Loader<'a, 'py>,
    stored: &'l StoredProgram,
    program: &'l Program,
    programs: Vec<ForeignId>,
    table: ObjectTable,
}

impl<'py> ProgramRows<'_, '_, 'py> {
    fn made(&self, id: ForeignId) -> Bound<'py, PyAny> {
        self.loader.made[id.index()].clone()
    }
}

impl Rows for ProgramRows<'_, '_, '_> {
    type Error = Refusal;

    fn ty(&mut self, builder: &mut Builder, id: TypeId) -> Result<TypeId, Refusal> {
        let py = self.loader.py();
        let aval = match self.program.ty(id) {
            Type::Opaque { object, .. } => self.made(*object),
            Type::Array(array) => {
                let mut shape = Vec::with_capacity(array.shape.len());
                for dim in &array.shape {
                    if let crate::ir::Dim::Static(size) = dim {
                        shape.push(*size);
                    }
                }
                let shape = PyTuple::new(py, shape)?;
                let args = (array.dtype.name(), shape, array.weak_type);
                self.loader.objects.call_method1(intern!(py, "aval"), args)?
            }
            Type::Ref { .. } | Type::Token => {
                self.loader.objects.call_method0(intern!(py, "unknown_type"))?
            }
        };
        Ok(self.table.ty(self.loader.jax, builder, &aval)?)
    }

    fn primitive(
        &mut self,
        builder: &mut Builder,
        id: PrimitiveId,
    ) -> Result<PrimitiveId, Refusal> {
        let data = self.program.primitive(id);
        let object = self.made(data.object);
        let multiple = object.getattr(intern!(self.loader.py(), "multiple_results"))?;
        if multiple.is_truthy()? != data.multiple_results {
            let py = self.loader.py();
            self.loader.objects.call_method1(intern!(py, "changed"), (&*data.name,))?;
        }
        let copy = self.table.primitive(builder, &object)?;
        let no_effects = self.stored.no_effects.get(id.index());
        if let Some(stored) = no_effects.filter(|stored| **stored != ParamValue::None) {
            let object = self.loader.value(stored, &self.programs)?;
            self.table.note_no_effects(copy, &object);
        }
        Ok(copy)
    }

    fn params(&mut self, builder: &mut Builder, id: ParamsId) -> Result<ParamsId, Refusal> {
        let params = self.program.params(id);
        let dict = PyDict::new(self.loader.py());
        let entries: Vec<_> = params.iter().collect();
        let order = self.stored.param_order.get(id.index());
        let order = order.into_iter().flatten().filter_map(|&place| entries.get(place as usize));
        for (name, value) in order {
            let value = self.loader.value(value, &self.programs)?;
            if self.loader.guarded.contains(&**name) {
                let check = intern!(self.loader.py(), "check_param");
                self.loader.objects.call_method1(check, (&**name, &value))?;
            }
            dict.set_item(name, value)?;
        }
        Ok(self.table.params_id(self.loader.jax, builder, &dict)?)
    }

    fn effects(&mut self, builder: &mut Builder, list: Vec<Effect>) -> Result<EffectsId, Refusal> {
        let (py, jax) = (self.loader.py(), self.loader.jax);
        let mut objects = Vec::with_capacity(list.len());
        for effect in list {
            let input = match effect.input {
                Some(var) => Some(self.table.var_object(py, jax, builder.type_of(var), var)?),
                None => None,
            };
            objects.push(self.loader.effect(effect.object, input)?);
        }
        let set = PyFrozenSet::new(py, objects)?;
        Ok(self.table.effects_id(jax, builder, &set)?)
    }

    fn source(&mut self, builder: &mut Builder, id: SourceId) -> Result<SourceId, Refusal> {
        let py = self.loader.py();
        let source = self.program.source(id);
        let traceback = match source.traceback {
            Some(NO_FRAMES) => Some(self.loader.jax.no_frames.bind(py).call0()?),
            stack => stack.and_then(|stack| self.loader.tracebacks.get(stack.index()).cloned()),
        };
        let name_stack = match source.name_stack {
            Some(id) => self.made(id),
            None => self.loader.jax.empty_name_stack.bind(py).clone(),
        };
        Ok(self.table.source(self.loader.jax, builder, &SourceRef { traceback, name_stack })?)
    }

    fn context(&mut self, builder: &mut Builder, id: ContextId) -> Result<ContextId, Refusal> {
        let object = self.made(self.program.context(id));
        Ok(builder.context(self.table.handle(&object)))
    }

    fn literal(
        &mut self,
        builder: &mut Builder,
        id: LiteralId,
        ty: TypeId,
    ) -> Result<LiteralId, Refusal> {
        let py = self.loader.py();
        let value = self.made(self.program.literal(id).object);
        let aval = self.table.aval(py, ty);
        let literal = self.loader.jax.new_literal(&value, &aval)?;
        Ok(self.table.fresh_literal_of(builder, ty, &literal)?)
    }
}
