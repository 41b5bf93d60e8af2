//! What a call appended, read back from the frame.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;

use crate::expand::{Fragment, Operand, Template};
use crate::ir::{Atom, AtomKind, Def, EffectsId, Eqn, Var};

use super::super::frame::Mark;
use super::super::jax::Jax;
use super::super::params::{typed_equal, typed_hash};
use super::super::source::SourceRef;
use super::encode::{Call, Reason};
use super::now::Now;
use super::result::{OUTER_VALUE, Origin, Recipe};
use super::store;

pub const INPUT_EFFECT: Reason = "effect on an input";
pub const HIGH_TYPE: Reason = "high-level type";
pub const OTHER_SCOPE: Reason = "name scope that is not below the caller's";
pub const NEW_OBJECTS: Reason = "new objects at each call";

pub const OVERFLOW: Reason = "literal that overflowed";

/// The Python objects of one equation.
pub struct EquationObjects {
    pub primitive: Py<PyAny>,
    pub params: Py<PyDict>,
    /// None where there are none.
    pub effects: Option<Py<PyAny>>,
    /// What stands for no effects, where that is not an empty set.
    pub no_effects: Option<Py<PyAny>>,
    pub context: Py<PyAny>,
}

/// A fragment with its Python objects.
pub struct Recorded {
    /// Unique in the process.
    pub number: u64,
    pub fragment: Fragment,
    pub equations: Vec<EquationObjects>,
    pub types: Vec<Py<PyAny>>,
    pub literals: Vec<Py<PyAny>>,
    /// Values and avals of captured constants.
    pub consts: Vec<(Py<PyAny>, Py<PyAny>)>,
    /// Name stacks below the caller's; None for the caller's own.
    pub scopes: Vec<Option<Py<PyAny>>>,
    pub recipe: Recipe,
    /// Rows of the types of all outputs.
    out_rows: Box<[u32]>,
}

/// Where a call began.
pub struct Before<'py> {
    pub mark: Mark,
    pub source: SourceRef<'py>,
}

struct Tables<'py> {
    py: Python<'py>,
    types: Vec<Py<PyAny>>,
    type_rows: FxHashMap<usize, u32>,
    literals: Vec<Py<PyAny>>,
    consts: Vec<(Py<PyAny>, Py<PyAny>)>,
    const_rows: FxHashMap<Var, u32>,
    scopes: Vec<Option<Py<PyAny>>>,
    scope_rows: FxHashMap<usize, u32>,
}

fn is_infinite(literal: &Bound<'_, PyAny>) -> bool {
    let value = literal.getattr("val").and_then(|val| val.call_method0("__float__"));
    value.and_then(|value| value.extract::<f64>()).is_ok_and(f64::is_infinite)
}

fn row(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Reads what was appended since `mark`, and the result.
///
/// # Errors
/// Why it cannot be replayed.
#[allow(clippy::too_many_lines)] // one pass over the equations
pub fn record<'py>(
    jax: &Jax,
    now: &Now<'py>,
    before: &Before<'py>,
    call: &Call,
    result: &Bound<'py, PyAny>,
) -> Result<Recorded, Reason> {
    let (trace, frame) = (&now.trace, &now.frame);
    let Before { mark, source: base } = before;
    let number = store::new_fragment();
    let py = trace.py();
    let borrowed = frame.try_borrow().map_err(|_| OUTER_VALUE)?;
    let Some((builder, side)) = borrowed.recorded() else { return Err(OUTER_VALUE) };
    if borrowed.is_high() && !mark.is_high {
        return Err(HIGH_TYPE);
    }
    let mut tables = Tables {
        py,
        types: Vec::new(),
        type_rows: FxHashMap::default(),
        literals: Vec::new(),
        consts: Vec::new(),
        const_rows: FxHashMap::default(),
        scopes: Vec::new(),
        scope_rows: FxHashMap::default(),
    };
    let args: FxHashMap<Atom, u32> =
        call.args.iter().enumerate().rev().map(|(i, &arg)| (arg, row(i))).collect();
    let mut outs: FxHashMap<Var, usize> = FxHashMap::default();
    let mut templates = Vec::new();
    let mut equations = Vec::new();
    let mut scoped = Vec::new();
    for eqn in (mark.eqns..row(builder.num_eqns())).map(Eqn::from_u32) {
        let data = builder.eqn_data(eqn);
        let mut operands = Vec::new();
        for atom in builder.eqn_invars(eqn) {
            operands.push(match atom.kind() {
                AtomKind::Literal(id) => {
                    let literal = side.object(py, builder.literal_data(id).object);
                    if call.finite_float && is_infinite(&literal) {
                        return Err(OVERFLOW);
                    }
                    tables.literals.push(literal.unbind());
                    Operand::Literal(row(tables.literals.len() - 1))
                }
                AtomKind::Var(var) => {
                    if let Some(&arg) = args.get(&Atom::var(var)) {
                        Operand::Arg(arg)
                    } else if let Some(&out) = outs.get(&var) {
                        Operand::Out(row(out))
                    } else if let Def::Constvar(id) = builder.var(var).def {
                        let value = side.constant(py, id).ok_or(OUTER_VALUE)?;
                        if value.is_instance(jax.any_tracer_type.bind(py)).unwrap_or(true) {
                            return Err(OUTER_VALUE);
                        }
                        let aval = side.aval(py, builder.type_of(var)).unbind();
                        let next = row(tables.consts.len());
                        let index = *tables.const_rows.entry(var).or_insert(next);
                        if index == next {
                            tables.consts.push((value.unbind(), aval));
                        }
                        Operand::Const(index)
                    } else {
                        return Err(OUTER_VALUE);
                    }
                }
            });
        }
        let mut out_types = Vec::new();
        for var in data.outvars() {
            let aval = side.aval(py, builder.type_of(var));
            if !aval.get_type().is(&jax.shaped_array_type) {
                return Err(super::encode::REF);
            }
            out_types.push(tables.ty(aval));
            let next = outs.len();
            outs.insert(var, next);
        }
        if builder.effect_list(data.effects).iter().any(|effect| effect.input.is_some()) {
            return Err(INPUT_EFFECT);
        }
        let primitive = side.object(py, builder.primitive_data(data.primitive).object);
        let params = side.params_dict(py, data.params);
        if super::super::trace::has_high_param(jax, &params).map_err(|_| HIGH_TYPE)? {
            return Err(HIGH_TYPE);
        }
        let none = data.effects == EffectsId::NONE;
        equations.push(EquationObjects {
            primitive: primitive.unbind(),
            params: params.unbind(),
            effects: (!none).then(|| side.effects(py, jax, data.effects, data.primitive).unbind()),
            no_effects: side.stands_for_no_effects(data.primitive).map(|o| o.clone_ref(py)),
            context: side.object(py, builder.context_object(data.context)).unbind(),
        });
        scoped.push((operands, out_types, builder.source_data(data.source).name_stack));
    }
    // Name stacks are Python objects with Python arithmetic: read once the frame is free again.
    let stacks: Vec<_> =
        scoped.iter().map(|(_, _, stack)| stack.map(|id| side.source_object(py, id))).collect();
    drop(borrowed);
    for ((operands, out_types, _), stack) in scoped.into_iter().zip(stacks) {
        let scope = tables.scope(jax, base, stack)?;
        templates.push(Template::new(operands.into(), out_types.into(), scope));
    }
    let recipe = Recipe::of(&Origin { jax, trace, call, outs: &outs }, result, 0)?;
    let Tables { types, literals, consts, scopes, .. } = tables;
    let fragment =
        Fragment::new(templates, row(call.traced.len()), row(literals.len()), row(consts.len()))
            .map_err(|_| OUTER_VALUE)?;
    let out_rows = fragment.templates().iter().flat_map(Template::out_types).copied().collect();
    Ok(Recorded { number, fragment, equations, types, literals, consts, scopes, recipe, out_rows })
}

impl<'py> Tables<'py> {
    fn ty(&mut self, aval: Bound<'py, PyAny>) -> u32 {
        let next = row(self.types.len());
        let index = *self.type_rows.entry(aval.as_ptr() as usize).or_insert(next);
        if index == next {
            self.types.push(aval.unbind());
        }
        index
    }

    /// The row of what a name stack adds to the caller's.
    fn scope(
        &mut self,
        jax: &Jax,
        base: &SourceRef<'py>,
        stack: Option<Bound<'py, PyAny>>,
    ) -> Result<u32, Reason> {
        let py = self.py;
        let stack = stack.unwrap_or_else(|| jax.empty_name_stack.bind(py).clone());
        if let Some(&known) = self.scope_rows.get(&(stack.as_ptr() as usize)) {
            return Ok(known);
        }
        let below = below(&base.name_stack, &stack).map_err(|_| OTHER_SCOPE)?.ok_or(OTHER_SCOPE)?;
        let empty = below.getattr("stack").and_then(|scopes| scopes.len()).unwrap_or(0) == 0;
        let scope = (!empty).then(|| below.unbind());
        let index = row(self.scopes.len());
        self.scopes.push(scope);
        self.scope_rows.insert(stack.as_ptr() as usize, index);
        Ok(index)
    }
}

/// What `stack` has after the scopes of `base`; None where it does not start with them.
fn below<'py>(
    base: &Bound<'py, PyAny>,
    stack: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let outer = base.getattr("stack")?.cast_into::<PyTuple>()?;
    let inner = stack.getattr("stack")?.cast_into::<PyTuple>()?;
    if inner.len() < outer.len() {
        return Ok(None);
    }
    for (a, b) in outer.iter().zip(inner.iter()) {
        if !a.is(&b) && !a.eq(&b)? {
            return Ok(None);
        }
    }
    let rest = inner.get_slice(outer.len(), inner.len());
    stack.get_type().call1((rest,)).map(Some)
}

impl Recorded {
    /// Whether a second recording has to show that its objects are the same at every call.
    pub fn needs_confirmation(&self, py: Python<'_>) -> bool {
        !self.consts.is_empty()
            || self.equations.iter().any(|equation| {
                equation.params.bind(py).values().iter().any(|v| typed_hash(&v).is_none())
            })
    }

    /// Whether another recording of the same call says the same.
    pub fn agrees(&self, py: Python<'_>, jax: &Jax, other: &Self) -> bool {
        let same = |a: &Py<PyAny>, b: &Py<PyAny>| a.is(b);
        self.fragment == other.fragment
            && self.types.iter().zip(&other.types).all(|(a, b)| same(a, b))
            && self
                .literals
                .iter()
                .zip(&other.literals)
                .all(|(a, b)| same_literal(a.bind(py), b.bind(py)).unwrap_or(false))
            && self.consts.iter().zip(&other.consts).all(|((a, _), (b, _))| same(a, b))
            && self.equations.iter().zip(&other.equations).all(|(a, b)| {
                same(&a.primitive, &b.primitive)
                    && same(&a.context, &b.context)
                    && same_params(jax, a.params.bind(py), b.params.bind(py))
            })
    }

    /// The row of the type of an output, counted over all equations.
    pub fn out_type(&self, index: usize) -> u32 {
        self.out_rows[index]
    }

    /// Roughly the bytes that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.fragment.memory_bytes()
            + self.equations.len() * size_of::<EquationObjects>()
            + (self.types.len() + self.literals.len() + 2 * self.consts.len()) * size_of::<usize>()
    }
}

fn same_literal(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (value_a, value_b) = (a.getattr("val")?, b.getattr("val")?);
    Ok(a.is(b)
        || a.getattr("aval")?.is(&b.getattr("aval")?)
            && value_a.get_type().is(value_b.get_type())
            && value_a.repr()?.to_str()? == value_b.repr()?.to_str()?)
}

fn same_params(jax: &Jax, a: &Bound<'_, PyDict>, b: &Bound<'_, PyDict>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b.iter()).all(|((name_a, value_a), (name_b, value_b))| {
            typed_equal(&name_a, &name_b) && same_value(jax, &value_a, &value_b)
        })
}

/// The same object, or one that no program can tell from it.
fn same_value(jax: &Jax, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    if a.is(b) || (typed_hash(a).is_some() && typed_equal(a, b)) {
        return true;
    }
    if !a.get_type().is(b.get_type()) {
        return false;
    }
    if let (Ok(a), Ok(b)) = (a.cast::<PyTuple>(), b.cast::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_value(jax, &a, &b));
    }
    // A jaxpr's identity counts, and a function may have anything in its closure.
    let py = a.py();
    let identity_counts = a.is_callable()
        || a.is_instance(jax.jaxpr_type.bind(py)).unwrap_or(true)
        || a.is_instance(jax.closed_jaxpr_type.bind(py)).unwrap_or(true)
        || a.hash().is_err();
    !identity_counts && a.eq(b).unwrap_or(false)
}
