//! As much of a program as comparing it for its execution needs, to be kept when the program is gone.

use cranelift_entity::EntitySet;
use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashMap;

use crate::ir::{AtomKind, ForeignId, ParamValue, Program, Type};
use crate::structure::{Objects, Purpose};

use crate::python::cpython::native::address;
use crate::python::jax::names::Jax;
use crate::python::program::graph::Graph;
use crate::python::tools::structure::PyObjects;

/// Nested programs programs beyond this are not skeleton.
const MAX_DEPTH: usize = 100;

/// Programs whose skeletons are made together.
struct Skeletons<'a, 'py> {
    jax: &'py Jax,
    /// Objects that live as long as what is made.
    kept: &'a Bound<'py, PyList>,
    /// By the address of the whole program, which is kept alive meanwhile.
    known: FxHashMap<usize, Bound<'py, Graph>>,
}

/// As much of a program as comparing it for its execution needs, and the objects that live with it:
/// those among its params that count, and the constants of nested programs.
///
/// # Errors
/// A nested program cannot be read, or is too deep within.
pub fn comparison_skeleton<'py>(
    jax: &'py Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<(Bound<'py, Graph>, Bound<'py, PyList>)> {
    let kept = PyList::empty(graph.py());
    let mut skeletons = Skeletons { jax, kept: &kept, known: FxHashMap::default() };
    let skeleton = skeletons.graph(graph, 0)?;
    Ok((skeleton, kept))
}

impl<'py> Skeletons<'_, 'py> {
    fn graph(&mut self, graph: &Bound<'py, Graph>, depth: usize) -> PyResult<Bound<'py, Graph>> {
        if let Some(known) = self.known.get(&address(graph.as_any())) {
            return Ok(known.clone());
        }
        if depth == MAX_DEPTH {
            let message = format!("programs are nested more than {MAX_DEPTH} times");
            return Err(PyRecursionError::new_err(message));
        }
        let py = graph.py();
        let whole = PyObjects::of(self.jax, graph, Purpose::Execution)?;
        let program = &whole.program;
        let (needed, params) = needed(program, &whole.objects);
        let table = graph.get().table().only(py, &needed);
        for id in params {
            self.kept.append(graph.get().table().object(py, id))?;
        }
        if depth > 0 {
            for &(_, value) in program.constvars() {
                let Some(constant) = graph.get().table().constant(py, value) else { continue };
                let constant = self.jax.objects.bind(py).call_method1("captured", (constant,))?;
                self.kept.append(&constant)?;
                table.set_constant(value, &constant);
            }
        }
        for (_, subprogram) in program.subprograms() {
            let within = whole.objects.graph_of(subprogram)?;
            table.set_subgraph(subprogram.object, &self.graph(&within, depth + 1)?);
        }
        let skeleton = Graph::skeleton_of(py, program.clone(), table)?;
        self.known.insert(address(graph.as_any()), skeleton.clone());
        Ok(skeleton)
    }
}

/// The objects that a comparison asks for, and those of them that are params.
fn needed<O: Objects>(program: &Program, objects: &O) -> (EntitySet<ForeignId>, Vec<ForeignId>) {
    let mut needed = EntitySet::new();
    let mut params = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    let effects = |needed: &mut EntitySet<ForeignId>, id| {
        for effect in program.effect_list(id) {
            needed.insert(effect.object);
        }
    };
    let atom = |needed: &mut EntitySet<ForeignId>, atom: AtomKind| {
        if let AtomKind::Literal(literal) = atom {
            let literal = program.literal(literal);
            needed.insert(literal.object);
            of_type(program.ty(literal.ty), needed);
        }
    };
    effects(&mut needed, program.effects());
    let inputs = program.constvars().iter().map(|(var, _)| var).chain(program.invars());
    for &var in inputs {
        of_type(program.ty(program.var_type(var)), &mut needed);
    }
    for eqn in program.eqns() {
        let data = program.eqn(eqn);
        if seen.insert((data.primitive, data.params)) {
            let primitive = program.primitive(data.primitive);
            needed.insert(primitive.object);
            for (name, value) in program.params(data.params).iter() {
                if objects.is_executed(primitive, name) {
                    value.walk(&mut |value| {
                        if let ParamValue::Opaque(object) = value {
                            params.push(*object);
                        }
                    });
                }
            }
        }
        needed.insert(program.context(data.context));
        effects(&mut needed, data.effects);
        for operand in program.eqn_invars(eqn) {
            atom(&mut needed, operand.kind());
        }
        for var in program.eqn_outvars(eqn) {
            of_type(program.ty(program.var_type(var)), &mut needed);
        }
    }
    for out in program.outvars() {
        atom(&mut needed, out.kind());
    }
    for &id in &params {
        needed.insert(id);
    }
    (needed, params)
}

fn of_type(ty: &Type, needed: &mut EntitySet<ForeignId>) {
    match ty {
        Type::Opaque { object, .. } => {
            needed.insert(*object);
        }
        Type::Ref { inner, .. } => of_type(inner, needed),
        Type::Array(_) | Type::Token => {}
    }
}
