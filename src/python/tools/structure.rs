//! The objects of programs, for their structural hash and equality.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::ir::{
    Atom, AtomKind, ConstId, DType, Eqn, ForeignId, ParamValue, PrimitiveData, Program, Subprogram,
    Type, TypeId,
};
use crate::structure::{
    Added, Fingerprint, Nested, Objects, Purpose, StableHasher, Step, equal, fingerprints, steps,
};

use crate::python::cpython::native::{address, is_exactly, said, string_of, with_bytes};
use crate::python::jax::avals::aval_info;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::values::{typed_equal, typed_hash};
use crate::python::program::graph::Graph;

/// The objects of one program.
#[derive(Clone)]
pub struct PyObjects<'py> {
    jax: &'py Jax,
    graph: Bound<'py, Graph>,
    purpose: Purpose,
    /// What says what objects are.
    source: Bound<'py, PyAny>,
    /// Descriptions by address, of objects that the programs keep alive; shared by those of one hash.
    described: Rc<RefCell<FxHashMap<usize, Fingerprint>>>,
}

/// A program that is kept while others run.
pub struct Kept {
    graph: Py<Graph>,
    program: Arc<Program>,
    purpose: Purpose,
}

impl Kept {
    /// The program with its objects.
    ///
    /// # Errors
    /// jax cannot be imported.
    pub fn bind<'py>(&self, py: Python<'py>) -> PyResult<Nested<PyObjects<'py>>> {
        let Self { graph, program, purpose } = self;
        let graph = graph.bind(py).clone();
        let key = address(graph.as_any());
        let (jax, described) = (jax(py)?, Rc::default());
        let source = jax.objects.bind(py).clone();
        let objects = PyObjects { jax, graph, purpose: *purpose, source, described };
        Ok(Nested { key, program: program.clone(), objects })
    }
}

/// What is asked of programs, by its name.
///
/// # Errors
/// Nothing has this name.
pub fn purpose(name: &str) -> PyResult<Purpose> {
    match name {
        "structure" => Ok(Purpose::Structure),
        "content" => Ok(Purpose::Content),
        "execution" => Ok(Purpose::Execution),
        _ => Err(PyValueError::new_err(format!("programs are not compared for {name:?}"))),
    }
}

impl<'py> PyObjects<'py> {
    /// A program with its objects.
    ///
    /// # Errors
    /// A nested program cannot be read.
    pub fn of(
        jax: &'py Jax,
        graph: &Bound<'py, Graph>,
        purpose: Purpose,
    ) -> PyResult<Nested<Self>> {
        Self::said_by(jax, graph, purpose, jax.objects.bind(graph.py()).clone())
    }

    /// A program with its objects, where `source` says what these are.
    ///
    /// # Errors
    /// A nested program cannot be read.
    pub fn said_by(
        jax: &'py Jax,
        graph: &Bound<'py, Graph>,
        purpose: Purpose,
        source: Bound<'py, PyAny>,
    ) -> PyResult<Nested<Self>> {
        let program = Graph::resolved_program(graph, jax)?;
        let objects = Self { jax, graph: graph.clone(), purpose, source, described: Rc::default() };
        Ok(Nested { key: address(graph.as_any()), program, objects })
    }

    /// The program, to be kept.
    pub fn kept(of: &Nested<Self>) -> Kept {
        let Nested { key: _, program, objects } = of;
        let graph = objects.graph.clone().unbind();
        Kept { graph, program: program.clone(), purpose: objects.purpose }
    }

    /// The graph of the program.
    pub fn graph(&self) -> &Bound<'py, Graph> {
        &self.graph
    }

    /// The value of a literal, as it is printed.
    pub fn literal_text(&self, literal: ForeignId) -> PyResult<String> {
        let literal = self.object(literal);
        let text = literal.getattr(intern!(self.py(), "val")).and_then(|value| value.str());
        let text = said(self.py(), text)?.as_ref().map(string_of);
        Ok(text.unwrap_or_else(|| "a value without a text".to_owned()))
    }

    /// A constant, as it is printed.
    pub fn constant_text(&self, value: ConstId) -> PyResult<String> {
        let text = said(self.py(), self.constant(value).str())?.as_ref().map(string_of);
        Ok(text.unwrap_or_else(|| "a value without a text".to_owned()))
    }

    fn py(&self) -> Python<'py> {
        self.graph.py()
    }

    /// The graph of a nested program.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn graph_of(&self, subprogram: &Subprogram) -> PyResult<Bound<'py, Graph>> {
        let known = self.graph.get().table().subgraph(self.py(), subprogram.object);
        match known {
            Some(graph) => Ok(graph),
            None => Graph::read_subgraph(&self.graph, self.jax, subprogram.object),
        }
    }

    /// An object of the program.
    pub fn object(&self, object: ForeignId) -> Bound<'py, PyAny> {
        self.graph.get().table().object(self.py(), object)
    }

    fn constant(&self, value: ConstId) -> Bound<'py, PyAny> {
        let value = self.graph.get().table().constant(self.py(), value);
        value.unwrap_or_else(|| self.py().None().into_bound(self.py()))
    }

    fn description(&self, value: &Bound<'py, PyAny>) -> PyResult<Fingerprint> {
        let known = self.described.borrow().get(&address(value)).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let describe = if self.purpose == Purpose::Execution {
            intern!(self.py(), "describe_settled")
        } else {
            intern!(self.py(), "describe")
        };
        let described = self.source.call_method1(describe, (value,))?;
        let own = fingerprint_of_bytes(&described)?;
        self.described.borrow_mut().insert(address(value), own);
        Ok(own)
    }

    /// The value of a literal, whose type is said beside it; None where only Python can say it.
    fn literal(&self, value: &Bound<'py, PyAny>) -> Option<Fingerprint> {
        let value = self.literal_value(value)?;
        let mut hasher = StableHasher::new();
        if let Some(number) = self.literal_number(&value) {
            // What is known of it for other purposes, and kept in files, Python has always written.
            hasher.bytes(&(self.purpose == Purpose::Execution).then_some(number)?);
        } else {
            // The bytes of a number are in the order of the machine.
            self.literal_array(&value).filter(|_| cfg!(target_endian = "little"))?;
            with_bytes(value.as_ptr(), |bytes| hasher.bytes(bytes))?;
        }
        Some(hasher.finish())
    }

    /// The value of a literal, whose type is said beside it.
    fn literal_value(&self, literal: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        if !is_exactly(literal.as_ptr(), self.jax.literal_type.as_ptr().cast()) {
            return None;
        }
        // SAFETY: the exact type was checked.
        unsafe { self.jax.slots.literal_val.get(literal) }
    }

    /// The bits of the value of a literal, where it is a float or an integer of Python's, with a dtype
    /// or without one.
    fn literal_number(&self, value: &Bound<'py, PyAny>) -> Option<[u8; 9]> {
        let class = value.get_type();
        let is_float = value.is_instance_of::<PyFloat>();
        let is_plain =
            value.is_exact_instance_of::<PyFloat>() || value.is_exact_instance_of::<PyInt>();
        if !is_plain && !self.jax.typed_scalar_types.bind(self.py()).contains(class).ok()? {
            return None;
        }
        let bits = if is_float {
            value.extract::<f64>().ok()?.to_bits()
        } else if value.is_instance_of::<PyInt>() {
            value.extract::<i64>().ok()?.cast_unsigned()
        } else {
            return None;
        };
        let mut number = [u8::from(is_float); 9];
        number[1..].copy_from_slice(&bits.to_le_bytes());
        Some(number)
    }

    /// Whether two values of literals are known to be the same number of one class and dtype.
    fn are_same_number(&self, own: &Bound<'py, PyAny>, other: &Bound<'py, PyAny>) -> bool {
        let (Some(number), Some(others)) = (self.literal_number(own), self.literal_number(other))
        else {
            return false;
        };
        if number != others || !own.get_type().is(other.get_type()) {
            return false;
        }
        let dtype = intern!(self.py(), "dtype");
        match (own.getattr_opt(dtype), other.getattr_opt(dtype)) {
            (Ok(Some(own)), Ok(Some(other))) => own.is(&other),
            (Ok(None), Ok(None)) => true,
            _ => false,
        }
    }

    /// The value of a literal, where it is an array.
    fn literal_array<'a>(&self, value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyAny>> {
        is_exactly(value.as_ptr(), self.jax.typed_array_type.as_ptr().cast()).then_some(value)
    }

    fn are_same(&self, own: &Bound<'py, PyAny>, other: &Bound<'py, PyAny>) -> PyResult<bool> {
        if own.is(other) || (typed_hash(own).is_some() && typed_equal(own, other)) {
            return Ok(true);
        }
        if let (Some(own), Some(other)) = (self.literal_value(own), self.literal_value(other)) {
            if self.are_same_number(&own, &other) {
                return Ok(true);
            }
            if let (Some(own), Some(other)) = (self.literal_array(&own), self.literal_array(&other))
            {
                let same = with_bytes(own.as_ptr(), |own| {
                    with_bytes(other.as_ptr(), |other| own == other)
                });
                if let Some(same) = same.flatten() {
                    return Ok(same);
                }
            }
        }
        let same = if self.purpose == Purpose::Execution {
            intern!(self.py(), "interchangeable")
        } else {
            intern!(self.py(), "same")
        };
        self.source.call_method1(same, (own, other))?.is_truthy()
    }

    /// The aval of an array type that text does not tell from all others: of an extended dtype, or on
    /// a mesh.
    fn unsettled_aval(&self, id: TypeId, ty: &Type) -> PyResult<Option<Bound<'py, PyAny>>> {
        let aval = match ty {
            Type::Opaque { object, name: _ } => Some(self.object(*object)),
            _ => self.graph.borrow().table().retained().known_aval(self.py(), id),
        };
        let Some(aval) = aval else { return Ok(None) };
        let described = aval_info(self.jax, &aval)?.ty.clone();
        Ok(match described {
            Some(Type::Array(array)) => {
                let is_extended = matches!(array.dtype, DType::Extended(_));
                (is_extended || array.sharding.is_some()).then_some(aval)
            }
            _ => None,
        })
    }
}

fn fingerprint_of_bytes(said: &Bound<'_, PyAny>) -> PyResult<Fingerprint> {
    let mut hasher = StableHasher::new();
    hasher.bytes(said.cast::<PyBytes>()?.as_bytes());
    Ok(hasher.finish())
}

impl Objects for PyObjects<'_> {
    type Error = PyErr;

    fn nested(&self, subprogram: &Subprogram) -> PyResult<Nested<Self>> {
        let graph = self.graph_of(subprogram)?;
        let program = Graph::resolved_program(&graph, self.jax)?;
        let key = address(graph.as_any());
        Ok(Nested { key, program, objects: Self { graph, ..self.clone() } })
    }

    fn describe(&self, object: ForeignId) -> PyResult<Fingerprint> {
        let object = self.object(object);
        match self.literal(&object) {
            Some(literal) => Ok(literal),
            None => self.description(&object),
        }
    }

    fn settle_class(&self, name: &str) -> PyResult<()> {
        self.source.call_method1(intern!(self.py(), "settle_class"), (name,)).map(drop)
    }

    fn settle_type(&self, id: TypeId, ty: &Type) -> PyResult<Option<Fingerprint>> {
        let Some(aval) = self.unsettled_aval(id, ty)? else { return Ok(None) };
        let said = self.source.call_method1(intern!(self.py(), "settle_type"), (aval,))?;
        if said.is_none() { Ok(None) } else { fingerprint_of_bytes(&said).map(Some) }
    }

    fn is_executed(&self, primitive: &PrimitiveData, param: &str) -> bool {
        let primitive = self.object(primitive.object);
        let unexecuted = self.jax.unexecuted_params.bind(self.py()).get_item(primitive);
        // A primitive that has no hash is none of jax's.
        !matches!(unexecuted, Ok(Some(names)) if names.contains(param).unwrap_or(false))
    }

    fn describe_constant(&self, value: ConstId) -> PyResult<Fingerprint> {
        let value = self.constant(value);
        if self.purpose != Purpose::Execution {
            return self.description(&value);
        }
        let describe = intern!(self.py(), "describe_captured");
        fingerprint_of_bytes(&self.source.call_method1(describe, (value,))?)
    }

    fn type_of(&self, object: ForeignId) -> PyResult<Option<Type>> {
        Ok(aval_info(self.jax, &self.object(object))?.ty.clone())
    }

    fn same(&self, own: ForeignId, others: &Self, other: ForeignId) -> PyResult<bool> {
        self.are_same(&self.object(own), &others.object(other))
    }

    fn same_constant(&self, own: ConstId, others: &Self, other: ConstId) -> PyResult<bool> {
        let (own, other) = (self.constant(own), others.constant(other));
        if self.purpose != Purpose::Execution {
            return self.are_same(&own, &other);
        }
        let same = intern!(self.py(), "same_captured");
        self.source.call_method1(same, (own, other))?.is_truthy()
    }
}

/// A jaxpr and its graph.
type Read<'py> = (Bound<'py, PyAny>, Bound<'py, Graph>);

/// The nested jaxprs of a program that are equal when they are executed, but are several objects; each
/// after the one that can stand for it. Those with constants are not among them.
///
/// # Errors
/// A nested program cannot be read, or an object may change.
pub fn repeated<'py>(
    jax: &'py Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let root = PyObjects::of(jax, graph, Purpose::Execution)?;
    // Which are looked at is known before they are hashed: mostly there is one of each.
    let mut within: IndexMap<usize, Read<'py>, FxBuildHasher> = IndexMap::default();
    let mut pending = vec![root.clone()];
    while let Some(of) = pending.pop() {
        for (_, subprogram) in of.program.subprograms() {
            let jaxpr = of.objects.object(subprogram.object);
            let nested = of.objects.nested(subprogram)?;
            let graph = nested.objects.graph.clone();
            if within.insert(address(&jaxpr), (jaxpr, graph)).is_none() {
                pending.push(nested);
            }
        }
    }
    if within.len() < 2 {
        return Ok(Vec::new());
    }
    let known = fingerprints(root, Purpose::Execution)?;
    let mut first: FxHashMap<Fingerprint, Vec<&Read<'py>>> = FxHashMap::default();
    let mut repeated = Vec::new();
    for found in within.values() {
        let (jaxpr, graph) = found;
        if !graph.get().program().constvars().is_empty() {
            continue;
        }
        let Some(own) = known.get(&address(graph.as_any())) else { continue };
        let candidates = first.entry(*own).or_default();
        let of = |graph| PyObjects::of(jax, graph, Purpose::Execution);
        let mut same = None;
        for (candidate, its) in candidates.iter() {
            if jaxpr.get_type().is(candidate.get_type())
                && equal(of(its)?, of(graph)?, Purpose::Execution)?
            {
                same = Some(candidate.clone());
                break;
            }
        }
        match same {
            Some(same) => repeated.push((same, jaxpr.clone())),
            None => candidates.push(found),
        }
    }
    Ok(repeated)
}

/// The name of an equation's primitive.
pub fn primitive_name(program: &Program, eqn: Eqn) -> String {
    program.primitive(program.eqn(eqn).primitive).name.to_string()
}

/// A literal with its value, and of a variable its type.
fn operand_text(of: &Nested<PyObjects<'_>>, atom: Atom) -> PyResult<String> {
    let ty = of.program.ty(of.program.atom_type(atom));
    Ok(match atom.kind() {
        AtomKind::Var(_) => format!("a value {ty}"),
        AtomKind::Literal(literal) => {
            format!("{}:{ty}", of.objects.literal_text(of.program.literal(literal).object)?)
        }
    })
}

/// An equation in words, which needs no names of variables.
///
/// # Errors
/// Whoever asked was interrupted.
pub fn eqn_in_words(of: &Nested<PyObjects<'_>>, eqn: Eqn) -> PyResult<String> {
    let program = &of.program;
    let data = program.eqn(eqn);
    let types = program.eqn_outvars(eqn).map(|var| program.ty(program.var_type(var)).to_string());
    let outputs: Vec<_> = types.collect();
    let operands = program.eqn_invars(eqn).iter().map(|&atom| operand_text(of, atom));
    let operands: Vec<_> = operands.collect::<PyResult<_>>()?;
    let params = program.params(data.params).iter().map(|(name, value)| match value {
        ParamValue::Program(_) => format!("{name}={{...}}"),
        _ => format!("{name}={value}"),
    });
    let params = params.collect::<Vec<_>>().join(" ");
    let (outputs, operands) = (outputs.join(", "), operands.join(", "));
    Ok(format!("({outputs}) = {}[{params}] ({operands})", primitive_name(program, eqn)))
}

/// Where an equation is from.
pub fn traceback_of<'py>(of: &Nested<PyObjects<'py>>, eqn: Eqn) -> Option<Bound<'py, PyAny>> {
    let source = of.program.source(of.program.eqn(eqn).source).traceback?;
    of.objects.graph.get().table().known_source(of.objects.py(), source)
}

/// The name stack of an equation; None where it is empty.
pub fn name_stack_of<'py>(of: &Nested<PyObjects<'py>>, eqn: Eqn) -> Option<Bound<'py, PyAny>> {
    let stack = of.program.source(of.program.eqn(eqn).source).name_stack?;
    of.objects.graph.get().table().known_source(of.objects.py(), stack)
}

/// What stands for a program up to each of its equations, and of nested ones.
///
/// # Errors
/// An object cannot be described.
pub fn step_fingerprints(program: Nested<PyObjects<'_>>, purpose: Purpose) -> PyResult<Vec<u128>> {
    Ok(steps(program, purpose)?.into_iter().map(|step| step.fingerprint.0).collect())
}

/// What is done in a step, in words, and where it is from.
///
/// # Errors
/// An object cannot be described; there is no such step.
pub fn describe_step(
    program: Nested<PyObjects<'_>>,
    purpose: Purpose,
    index: usize,
) -> PyResult<(String, Option<Bound<'_, PyAny>>)> {
    let all = steps(program, purpose)?;
    let step = all.get(index).ok_or_else(|| PyIndexError::new_err("no such step"))?;
    let Step { program: of, added, fingerprint: _ } = step;
    let program = &of.program;
    let type_of = |var| program.ty(program.var_type(var)).to_string();
    let eqn = match *added {
        Added::Eqn(eqn) => eqn,
        Added::Inputs => {
            let constants = program.constvars().iter().map(|&(var, _)| var);
            let vars = constants.chain(program.invars().iter().copied());
            let types: Vec<_> = vars.map(type_of).collect();
            return Ok((format!("inputs ({})", types.join(", ")), None));
        }
        Added::Results => {
            let results = program.outvars().iter().map(|&atom| operand_text(of, atom));
            let results: Vec<_> = results.collect::<PyResult<_>>()?;
            return Ok((format!("results ({})", results.join(", ")), None));
        }
    };
    let text = format!("equation {}: {}", eqn.as_u32(), eqn_in_words(of, eqn)?);
    Ok((text, traceback_of(of, eqn)))
}
