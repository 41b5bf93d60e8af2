//! Programs with their Python objects as bytes.

use std::borrow::Cow;

use cranelift_entity::{EntityRef, SecondaryMap, packed_option::PackedOption};
use pyo3::exceptions::{PyRecursionError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{
    Builder, DType, DeadCode, Effect, Eqn, ForeignId, ParamValue, ParamsId, PrimitiveId, Program,
    SubprogramId, Var,
};
use crate::store::{
    Array, Copied, Document, Frame, MAX_STACK, NO_FRAMES, Object, Stack, StoredProgram, copy, write,
};

use crate::python::cpython::native::{NoCollection, address};
use crate::python::jax::avals::build_error;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::values::value_classes;
use crate::python::program::canonical::canonical_value;
use crate::python::program::graph::Graph;
use crate::python::program::objects::ObjectTable;
use crate::python::program::read;
use crate::python::store::program_rows::{ProgramRows, Refusal};

/// How deep objects may be made of objects.
const MAX_OBJECT_DEPTH: usize = 48;

/// The bytes of a value, and of all programs that it refers to; `records` says what objects are. Each program is
/// added to `programs`, with its place among the objects.
///
/// Raises:
///     What `records` raises.
#[pyfunction]
#[pyo3(name = "save", signature = (root, records, programs=None))]
pub fn save_program<'py>(
    root: &Bound<'py, PyAny>,
    records: &Bound<'py, PyAny>,
    programs: Option<&Bound<'py, PyList>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = root.py();
    let _no_collection = NoCollection::start(py);
    let mut saver = Saver::new(records, true)?;
    saver.document.root = saver.value(root, "")?;
    saver.share_vars();
    if let Some(programs) = programs {
        saver.programs.iter().try_for_each(|of| programs.append(of))?;
    }
    let bytes =
        write(&saver.document).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &bytes))
}

pub struct Saver<'a, 'py> {
    jax: &'a Jax,
    records: &'a Bound<'py, PyAny>,
    document: Document<'static>,
    /// Objects by address.
    rows: FxHashMap<usize, ForeignId>,
    /// Programs, with their places among the objects.
    programs: Vec<(usize, Bound<'py, PyAny>)>,
    /// Objects and graphs whose addresses are known.
    kept: Vec<Bound<'py, PyAny>>,
    by_content: FxHashMap<(String, ParamValue), ForeignId>,
    names: FxHashMap<String, u32>,
    frames: FxHashMap<Frame, u32>,
    /// By code object and instruction.
    places: FxHashMap<(usize, i32), u32>,
    stacks: FxHashMap<Stack, u32>,
    /// Variables of programs that are objects: which program, which variable, where the object is.
    vars: Vec<(ForeignId, Var, usize)>,
    /// The jaxprs with an equation that refers to a jaxpr, and that equation.
    callers: FxHashMap<usize, (usize, Eqn)>,
    /// Whether programs may be among the objects.
    has_programs: bool,
    depth: usize,
    /// The names of params whose values are checked.
    guarded: FxHashSet<String>,
}

/// Work on nested programs: nested ones come first.
enum Visit<'py> {
    Enter(Bound<'py, PyAny>),
    Leave(Bound<'py, PyAny>, Bound<'py, Graph>),
}

/// The place of a program in a list that whoever writes has.
pub type PlaceOf<'l, 'py> = dyn FnMut(&Bound<'py, PyAny>) -> PyResult<usize> + 'l;

/// What stands for a value that refers to an object; None for others.
pub(super) type Leaf<'l, S> = dyn FnMut(&mut S, &ParamValue) -> PyResult<Option<ParamValue>> + 'l;

impl<'a, 'py> Saver<'a, 'py> {
    /// Nothing is stored so far; `records` says what objects are, and `has_programs` whether programs may be
    /// among them.
    ///
    /// # Errors
    /// jax is not what it was.
    pub(super) fn new(records: &'a Bound<'py, PyAny>, has_programs: bool) -> PyResult<Self> {
        Ok(Self {
            jax: jax(records.py())?,
            records,
            document: Document {
                names: Vec::new(),
                frames: Vec::new(),
                stacks: Vec::new(),
                objects: Vec::new(),
                root: ParamValue::None,
            },
            rows: FxHashMap::default(),
            programs: Vec::new(),
            kept: Vec::new(),
            by_content: FxHashMap::default(),
            names: FxHashMap::default(),
            frames: FxHashMap::default(),
            places: FxHashMap::default(),
            stacks: FxHashMap::default(),
            vars: Vec::new(),
            callers: FxHashMap::default(),
            has_programs,
            depth: 0,
            guarded: records.getattr(intern!(records.py(), "guarded_params"))?.extract()?,
        })
    }

    /// What a method of the records says of params, or of a program.
    pub(super) fn asked(
        &self,
        method: &Bound<'py, PyString>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.records.call_method1(method, (value,))
    }

    /// Asks the records whether a param may have its value, where they want to be asked.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn check_param(&self, name: &str, params: &Bound<'py, PyDict>) -> PyResult<()> {
        if self.guarded.contains(name) {
            let check = intern!(self.py(), "check_param");
            self.records.call_method1(check, (name, params.get_item(name)?))?;
        }
        Ok(())
    }

    /// Whether an object is the NaN that stands for all.
    pub(super) fn is_nan(&self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        Ok(self.records.getattr(intern!(self.py(), "nan"))?.is(value))
    }

    /// The objects.
    pub(super) fn into_objects(self) -> Vec<Object<'static>> {
        self.document.objects
    }

    pub(super) fn py(&self) -> Python<'py> {
        self.records.py()
    }

    /// A value; `place` is the param that has it.
    pub(super) fn value(&mut self, value: &Bound<'py, PyAny>, place: &str) -> PyResult<ParamValue> {
        self.value_among(value, place, None)
    }

    /// As `value`, where programs are places in a list, if there is one.
    pub(super) fn value_among(
        &mut self,
        value: &Bound<'py, PyAny>,
        place: &str,
        mut place_of: Option<&mut PlaceOf<'_, 'py>>,
    ) -> PyResult<ParamValue> {
        let (mut builder, mut table) = (Builder::new(DeadCode::Keep), ObjectTable::default());
        let canonical = canonical_value(self.jax, &mut builder, &mut table, value)?;
        let py = self.py();
        self.stored(&canonical, &mut |saver, value| {
            let object = match value {
                ParamValue::Opaque(object) => table.object(py, *object),
                ParamValue::Program(id) => {
                    let program = table.object(py, builder.subprogram_data(*id).object);
                    if let Some(place_of) = &mut place_of {
                        let place = place_of(&program)?;
                        return Ok(Some(ParamValue::Program(SubprogramId::new(place))));
                    }
                    program
                }
                _ => return Ok(None),
            };
            Ok(Some(ParamValue::Opaque(saver.object(&object, place)?)))
        })
    }

    /// A value, what refers to objects in it as `leaf` says. It is as deep as params may be.
    pub(super) fn stored(
        &mut self,
        value: &ParamValue,
        leaf: &mut Leaf<'_, Self>,
    ) -> PyResult<ParamValue> {
        if let Some(stored) = leaf(self, value)? {
            return Ok(stored);
        }
        let mut all = |items: &[ParamValue]| -> PyResult<Box<[ParamValue]>> {
            items.iter().map(|item| self.stored(item, leaf)).collect()
        };
        Ok(match value {
            ParamValue::Tuple(items) => ParamValue::Tuple(all(items)?),
            ParamValue::List(items) => ParamValue::List(all(items)?),
            ParamValue::Dict(entries) => {
                let mut stored = Vec::with_capacity(entries.len());
                for (key, item) in entries {
                    let key = self.stored(key, leaf)?;
                    stored.push((key, self.stored(item, leaf)?));
                }
                ParamValue::Dict(stored.into())
            }
            ParamValue::Named { type_name, fields } => {
                self.records.call_method1(intern!(self.py(), "check_class"), (&**type_name,))?;
                let mut stored = Vec::with_capacity(fields.len());
                for (name, item) in fields {
                    stored.push((name.clone(), self.stored(item, leaf)?));
                }
                ParamValue::Named { type_name: type_name.clone(), fields: stored.into() }
            }
            ParamValue::Enum { type_name, .. } => {
                self.records.call_method1(intern!(self.py(), "check_class"), (&**type_name,))?;
                value.clone()
            }
            plain => plain.clone(),
        })
    }

    /// The row of an object.
    pub(super) fn object(
        &mut self,
        object: &Bound<'py, PyAny>,
        place: &str,
    ) -> PyResult<ForeignId> {
        if let Some(&row) = self.rows.get(&address(object)) {
            return Ok(row);
        }
        if self.depth == MAX_OBJECT_DEPTH {
            return Err(PyRecursionError::new_err("objects are nested too deeply"));
        }
        self.depth += 1;
        let row = self.new_object(object, place);
        self.depth -= 1;
        let row = row?;
        self.rows.insert(address(object), row);
        self.kept.push(object.clone());
        Ok(row)
    }

    fn new_object(&mut self, object: &Bound<'py, PyAny>, place: &str) -> PyResult<ForeignId> {
        let py = self.py();
        if object.is_instance(self.jax.jaxpr_type.bind(py))?
            || object.get_type().is(&self.jax.closed_jaxpr_type)
        {
            if !self.has_programs {
                return Err(PyRuntimeError::new_err("a program within an object"));
            }
            return self.jaxpr(object);
        }
        if object.get_type().is(&value_classes(py)?.numpy_array) {
            let (dtype, shape, data) = self
                .records
                .call_method1(intern!(py, "array"), (object,))?
                .extract::<(String, Vec<u64>, Bound<'py, PyBytes>)>()?;
            let data = Cow::Owned(data.as_bytes().to_vec());
            let dtype = DType::from_name(&dtype);
            return Ok(self.push(Object::Array(Array { dtype, shape: shape.into(), data })));
        }
        let record = self.record(object, place)?;
        Ok(self.intern(record))
    }

    fn push(&mut self, object: Object<'static>) -> ForeignId {
        self.document.objects.push(object);
        ForeignId::new(self.document.objects.len() - 1)
    }

    /// What an object is.
    fn record(
        &mut self,
        object: &Bound<'py, PyAny>,
        place: &str,
    ) -> PyResult<(String, ParamValue)> {
        let py = self.py();
        let (class, fields) = self
            .records
            .call_method1(intern!(py, "record"), (object, place))?
            .extract::<(String, Bound<'py, PyAny>)>()?;
        // What it is made of may be new, and go with it.
        self.kept.push(fields.clone());
        Ok((class, self.value(&fields, place)?))
    }

    pub(super) fn intern(&mut self, record: (String, ParamValue)) -> ForeignId {
        if let Some(&row) = self.by_content.get(&record) {
            return row;
        }
        let (class, fields) = record.clone();
        let row = self.push(Object::Record { class: class.into(), fields });
        self.by_content.insert(record, row);
        row
    }

    /// The row of a jaxpr; nested ones are before it.
    pub(super) fn jaxpr(&mut self, jaxpr: &Bound<'py, PyAny>) -> PyResult<ForeignId> {
        let mut pending = vec![Visit::Enter(jaxpr.clone())];
        while let Some(visit) = pending.pop() {
            match visit {
                Visit::Enter(jaxpr) if self.rows.contains_key(&address(&jaxpr)) => {}
                Visit::Enter(jaxpr) => {
                    let graph = read::graph_of(self.jax, &jaxpr)?;
                    let program = Graph::resolved_program(&graph, self.jax)?;
                    let own = address(&jaxpr);
                    self.kept.push(jaxpr.clone());
                    pending.push(Visit::Leave(jaxpr, graph.clone()));
                    let places = first_uses(&program);
                    for (id, subprogram) in program.subprograms().collect::<Vec<_>>().iter().rev() {
                        let within = graph.get().table().object(self.py(), subprogram.object);
                        if let Some(&eqn) = places.get(id) {
                            self.callers.entry(address(&within)).or_insert((own, eqn));
                        }
                        pending.push(Visit::Enter(within));
                    }
                }
                Visit::Leave(jaxpr, graph) => {
                    let row = self.leave(&jaxpr, &graph)?;
                    self.programs.push((row.index(), jaxpr.clone()));
                    self.rows.insert(address(&jaxpr), row);
                    self.kept.push(graph.into_any());
                }
            }
        }
        Ok(self.rows[&address(jaxpr)])
    }

    /// A jaxpr, all of whose programs have rows.
    fn leave(
        &mut self,
        jaxpr: &Bound<'py, PyAny>,
        graph: &Bound<'py, Graph>,
    ) -> PyResult<ForeignId> {
        let py = self.py();
        let (open, consts) = self
            .jax
            .open_jaxpr
            .bind(py)
            .call1((jaxpr,))?
            .extract::<(Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)>()?;
        // Where open and closed jaxprs are one class, this may be the jaxpr itself, not known yet.
        let program = match self.rows.get(&address(&open)) {
            Some(&row) => row,
            None => self.program(jaxpr, graph)?,
        };
        let of_one_class = self.jax.has_one_jaxpr_type();
        let is_closed = if of_one_class {
            consts.len() == graph.get().program().constvars().len()
        } else {
            jaxpr.get_type().is(&self.jax.closed_jaxpr_type)
        };
        if !is_closed {
            return Ok(program);
        }
        if !of_one_class {
            self.rows.insert(address(&open), program);
            self.kept.push(open);
        }
        let mut rows = Vec::with_capacity(consts.len());
        for (place, value) in consts.iter().enumerate() {
            let row = self.object(value, "");
            rows.push(row.map_err(|error| {
                self.placed(&error, address(jaxpr), None, &format!("constant {place}"))
            })?);
        }
        Ok(self.push(Object::Closed { program, consts: rows.into() }))
    }

    fn program(
        &mut self,
        jaxpr: &Bound<'py, PyAny>,
        graph: &Bound<'py, Graph>,
    ) -> PyResult<ForeignId> {
        let py = self.py();
        let program = Graph::resolved_program(graph, self.jax)?;
        let mut primitives: SecondaryMap<ParamsId, PackedOption<PrimitiveId>> = SecondaryMap::new();
        for eqn in program.eqns().rev() {
            let data = program.eqn(eqn);
            primitives[data.params] = data.primitive.into();
        }
        let mut rows = ProgramRows {
            saver: self,
            graph,
            primitives,
            program: &program,
            param_order: Vec::new(),
            no_effects: Vec::new(),
            at: None,
        };
        let copied = match copy(&program, &mut rows) {
            Ok(copied) => copied,
            Err(Refusal(error)) => {
                let (eqn, param) = rows.failed();
                return Err(self.placed(&error, address(jaxpr), eqn, &param));
            }
        };
        let ProgramRows { param_order, no_effects, .. } = rows;
        let Copied { mut builder, vars, outvars, .. } = copied;
        let list = effects_of(graph, |var| vars.get(var))?;
        let effects = self
            .effects(list)
            .map_err(|error| self.placed(&error, address(jaxpr), None, "effects"))?;
        let effects = builder.effects(&effects);
        let names = program.debug_info().clone();
        let stored = builder.finish(&outvars, names, effects).map_err(build_error)?;

        let row = ForeignId::new(self.document.objects.len());
        let mut dropped = Vec::new();
        {
            let graph = graph.get();
            let drop_var = self.jax.drop_var_type.bind(py);
            for (var, object) in graph.table().seen_vars(py) {
                let Some(copy) = vars.get(var) else { continue };
                if object.get_type().is(drop_var) {
                    dropped.push(copy);
                } else {
                    self.vars.push((row, copy, address(&object)));
                }
            }
        }
        dropped.sort_unstable();
        let is_high = graph.get().is_high();
        Ok(self.push(Object::Program(StoredProgram {
            program: stored.into(),
            is_high,
            param_order,
            no_effects,
            dropped,
            shared: Vec::new(),
        })))
    }

    /// Effects in an order that does not depend on the process.
    pub(super) fn effects(&mut self, mut list: Vec<EffectOf<'py>>) -> PyResult<Vec<Effect>> {
        // A set of Python's has another order in each process, and records have rows in their order.
        list.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        let mut found = Vec::with_capacity(list.len());
        for (name, input, effect) in list {
            let record = self.record(&effect, "")?;
            found.push((name, input, record.1.to_string(), record));
        }
        found.sort_by(|a, b| (&a.0, a.1, &a.2).cmp(&(&b.0, b.1, &b.2)));
        let rows = found.into_iter();
        Ok(rows
            .map(|(name, input, _, record)| Effect { name, input, object: self.intern(record) })
            .collect())
    }

    /// Numbers the variables that several programs have.
    fn share_vars(&mut self) {
        let mut uses: FxHashMap<usize, u32> = FxHashMap::default();
        for &(_, _, object) in &self.vars {
            *uses.entry(object).or_default() += 1;
        }
        let mut numbers: FxHashMap<usize, u32> = FxHashMap::default();
        for &(row, var, object) in &self.vars {
            if uses[&object] > 1
                && let Object::Program(stored) = &mut self.document.objects[row.index()]
            {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                stored.shared.push((var, *numbers.entry(object).or_insert(next)));
            }
        }
        for object in &mut self.document.objects {
            if let Object::Program(stored) = object {
                stored.shared.sort_unstable();
            }
        }
    }

    /// The stack of a traceback.
    pub(super) fn stack(&mut self, traceback: &Bound<'py, PyAny>) -> PyResult<ForeignId> {
        let (codes, places) = traceback
            .call_method0(intern!(self.py(), "raw_frames"))?
            .extract::<(Bound<'py, PyList>, Vec<i32>)>()?;
        let mut caller = None;
        let innermost: Vec<_> = codes.iter().zip(places).take(MAX_STACK as usize).collect();
        for (code, place) in innermost.into_iter().rev() {
            let frame = self.frame(&code, place)?;
            let stack = Stack { caller, frame };
            let next = u32::try_from(self.document.stacks.len())?;
            let row = *self.stacks.entry(stack).or_insert(next);
            if row == next {
                self.document.stacks.push(stack);
            }
            caller = Some(row);
        }
        Ok(caller.map_or(NO_FRAMES, ForeignId::from_u32))
    }

    fn frame(&mut self, code: &Bound<'py, PyAny>, place: i32) -> PyResult<u32> {
        if let Some(&known) = self.places.get(&(address(code), place)) {
            return Ok(known);
        }
        let (file, function, location) = self
            .records
            .call_method1(intern!(self.py(), "frame"), (code, place))?
            .extract::<(String, String, [u32; 4])>()?;
        let frame = Frame { file: self.name(file)?, function: self.name(function)?, location };
        let next = u32::try_from(self.document.frames.len())?;
        let row = *self.frames.entry(frame).or_insert(next);
        if row == next {
            self.document.frames.push(frame);
        }
        self.places.insert((address(code), place), row);
        self.kept.push(code.clone());
        Ok(row)
    }

    fn name(&mut self, name: String) -> PyResult<u32> {
        let next = u32::try_from(self.document.names.len())?;
        let row = *self.names.entry(name.clone()).or_insert(next);
        if row == next {
            self.document.names.push(name.into());
        }
        Ok(row)
    }

    /// An error that says which equation it is about.
    fn placed(&self, error: &PyErr, jaxpr: usize, eqn: Option<Eqn>, what: &str) -> PyErr {
        let mut path: Vec<u32> = eqn.iter().map(|eqn| eqn.as_u32()).collect();
        let mut at = (jaxpr, eqn);
        let mut inner = eqn.map(|eqn| (jaxpr, eqn));
        while let Some(&(caller, eqn)) = self.callers.get(&at.0) {
            inner.get_or_insert((caller, eqn));
            path.push(eqn.as_u32());
            at = (caller, Some(eqn));
        }
        path.reverse();
        let described = inner.and_then(|(jaxpr, eqn)| self.describe(jaxpr, eqn).ok());
        let placed = self.records.call_method1(
            intern!(self.py(), "placed"),
            (error.value(self.py()), path, described, what),
        );
        match placed {
            Ok(placed) => PyErr::from_value(placed),
            Err(other) => other,
        }
    }

    /// The primitive and the traceback of an equation.
    fn describe(&self, jaxpr: usize, eqn: Eqn) -> PyResult<(String, Option<Bound<'py, PyAny>>)> {
        let jaxpr = self.kept.iter().find(|kept| address(kept) == jaxpr);
        let jaxpr = jaxpr.ok_or_else(|| PyRuntimeError::new_err("the jaxpr is gone"))?;
        let graph = read::graph_of(self.jax, jaxpr)?;
        let program = Graph::resolved_program(&graph, self.jax)?;
        let data = program.eqn(eqn);
        let traceback = program.source(data.source).traceback;
        let traceback =
            traceback.and_then(|traceback| graph.get().table().known_source(self.py(), traceback));
        Ok((program.primitive(data.primitive).name.to_string(), traceback))
    }
}

/// The name of an effect, the input that it is on, and the effect.
type EffectOf<'py> = (Box<str>, Option<Var>, Bound<'py, PyAny>);

/// The effects of a program as a whole; `copy_of` says what a variable is in the copy.
fn effects_of<'py>(
    graph: &Bound<'py, Graph>,
    copy_of: impl Fn(Var) -> Option<Var>,
) -> PyResult<Vec<EffectOf<'py>>> {
    let py = graph.py();
    let mut list = Vec::new();
    for effect in graph.get().effects(py).try_iter()? {
        let effect = effect?;
        let name: Box<str> = effect.get_type().name()?.to_str()?.into();
        let input = effect.getattr_opt(intern!(py, "input"))?;
        let input = input.and_then(|input| graph.get().var_of(&input)).and_then(&copy_of);
        list.push((name, input, effect));
    }
    Ok(list)
}

/// The first equation that refers to each nested program.
fn first_uses(program: &Program) -> FxHashMap<SubprogramId, Eqn> {
    let mut found = FxHashMap::default();
    if program.subprograms().len() == 0 {
        return found;
    }
    let mut seen: FxHashSet<ParamsId> = FxHashSet::default();
    for eqn in program.eqns() {
        let params = program.eqn(eqn).params;
        if seen.insert(params) {
            for id in program.params(params).subprograms() {
                found.entry(id).or_insert(eqn);
            }
        }
    }
    found
}

impl Saver<'_, '_> {
    /// The program of a row.
    pub(super) fn program_at(&self, row: ForeignId) -> Option<std::sync::Arc<Program>> {
        match self.document.objects.get(row.index())? {
            Object::Program(stored) => Some(stored.program.clone()),
            Object::Closed { program, .. } => self.program_at(*program),
            Object::Record { .. } | Object::Array(_) => None,
        }
    }
}
