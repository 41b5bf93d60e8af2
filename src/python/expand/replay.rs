//! Appending what a call appends, and making its result.

use std::cell::RefCell;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};
use smallvec::SmallVec;

use crate::expand::{Operand, Operands, out};
use crate::ir::{Atom, AtomKind, Builder, EffectsId, LiteralId, SourceId, TypeId, Var};

use super::super::convert::build_error;
use super::super::frame::{Frame, Rows};
use super::super::graph::borrow_mut;
use super::super::jax::Jax;
use super::super::side::Side;
use super::super::source::SourceRef;
use super::super::tracer::{new_literal_tracer, new_tracer};
use super::encode::Call;
use super::now::Now;
use super::record::{Captured, Part, Recorded};
use super::result::{Made, Recipe};
use super::stack::{Linearization, Stack};
use super::twins::Making;

/// Outputs with their tracers.
pub type Tracers<'py> = SmallVec<[(usize, Bound<'py, PyAny>); 4]>;

/// Does again what was recorded; the result of the call. `making` is there where the programs are
/// others than those that were recorded.
///
/// # Errors
/// The program cannot grow.
pub fn replay<'py>(
    jax: &Jax,
    now: &Now<'py>,
    call: &Call,
    recorded: &Recorded,
    making: Option<&Making<'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (trace, part) = (&now.trace, &recorded.part);
    let py = trace.py();
    let plain = recorded.tangents.is_empty() && recorded.structured_residuals.is_empty();
    if plain && part.equations.is_empty() && part.consts.is_empty() {
        match &recorded.recipe {
            Recipe::Object(object) => return Ok(object.bind(py).clone()),
            // SAFETY: an argument, alive during the call.
            Recipe::Arg(index) => unsafe {
                return Ok(Bound::from_borrowed_ptr(py, call.traced[*index]));
            },
            _ => {}
        }
    }
    let base = now.source(jax)?;
    let stack = now.stack();
    let whole = stack.is_some_and(Stack::linearizes);
    let mut literals = SmallVec::new();
    let share = Share::new(jax, recorded.number, part, call, &base, whole, making)?;
    let (first, source) = {
        let mut frame = borrow_mut(now.frame());
        let mut consts: SmallVec<[Atom; 4]> = SmallVec::new();
        for (captured, aval) in &part.consts {
            // SAFETY: an argument of the call under way.
            let value = match captured {
                Captured::Value(value) => value.bind(py).clone(),
                Captured::Enclosing(index) => unsafe {
                    Bound::from_borrowed_ptr(py, call.enclosing[*index])
                },
                _ => continue,
            };
            consts.push(Atom::var(frame.const_var(jax, &value, aval.bind(py))?));
        }
        share.append(jax, &mut frame, &call.args, &consts, &mut literals)?
    };
    let tracer = |index: usize| {
        let aval = part.out_type(index).bind(py).clone();
        new_tracer(jax, trace, out_of(first, index), aval, source, false)
    };
    if let (true, &Recipe::Out(index)) = (plain, &recorded.recipe) {
        return tracer(index);
    }
    let own_literal = |index: usize| {
        let mut frame = borrow_mut(now.frame());
        frame.literal_object(py, jax, literals[index])
    };
    let outs: Tracers<'py> = recorded
        .needed
        .outs
        .iter()
        .map(|&index| Ok((index, tracer(index)?)))
        .collect::<PyResult<_>>()?;
    let lifted = RefCell::new(vec![None; recorded.lifted.len()]);
    let tangents = RefCell::default();
    let made = Made {
        jax,
        trace,
        stack,
        call,
        outs: &outs,
        tangents: &tangents,
        recipes: &recorded.lifted,
        lifted: &lifted,
        literals: &own_literal,
        source: &base,
    };
    for (level, part) in &recorded.tangents {
        let residuals: SmallVec<[Bound<'py, PyAny>; 4]> = part
            .consts
            .iter()
            .map(|(captured, aval)| residual(&made, captured, aval))
            .collect::<PyResult<_>>()?;
        let layer = stack.and_then(|stack| stack.linearization(*level));
        let layer =
            layer.ok_or_else(|| PyRuntimeError::new_err("tangents of no differentiation"))?;
        let needed = recorded.needed.of_level(*level);
        let share = Share::new(jax, recorded.number, part, call, &base, true, making)?;
        let of_level = append_tangents(py, jax, layer, *level, &share, needed, &residuals)?;
        tangents.borrow_mut().push((*level, of_level));
    }
    for (level, residual) in &recorded.structured_residuals {
        let layer = stack.and_then(|stack| stack.linearization(*level));
        if let Some(list) = layer.and_then(|layer| layer.structured_residuals(py)) {
            list.append(residual.make(&made)?)?;
        }
    }
    recorded.recipe.make(&made)
}

/// A value that a tangents' program captures.
fn residual<'py>(
    made: &Made<'_, 'py>,
    captured: &Captured,
    aval: &Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (jax, py) = (made.jax, made.trace.py());
    let borrowed = |object: Option<&*mut ffi::PyObject>| {
        // SAFETY: an argument of the call under way.
        object.map(|&object| unsafe { Bound::from_borrowed_ptr(py, object) })
    };
    let literal = |literal: Bound<'py, PyAny>| {
        let (aval, source) = (aval.bind(py).clone(), made.source.to_object(jax)?);
        new_literal_tracer(jax, made.trace, literal, aval, source).map(Some)
    };
    let found = match captured {
        Captured::Value(value) => Some(value.bind(py).clone()),
        Captured::Arg(index) => borrowed(made.call.traced.get(*index)),
        Captured::LiteralArg(index) => borrowed(made.call.literals.get(*index)),
        Captured::Enclosing(index) => borrowed(made.call.enclosing.get(*index)),
        Captured::Out(index) => Some(Recipe::Out(*index).make(made)?),
        Captured::Constant(index) => Some(Recipe::Constant(*index).make(made)?),
        Captured::Lifted(number) => Some(Recipe::Lifted(*number).make(made)?),
        Captured::OwnLiteral(index) => literal((made.literals)(*index)?)?,
        Captured::Literal(own) => literal(jax.copy_literal(own.bind(py))?)?,
    };
    found.ok_or_else(|| PyRuntimeError::new_err("a residual without a value"))
}

/// The output of a fragment.
fn out_of(first: Var, index: usize) -> Var {
    out(first, u32::try_from(index).unwrap_or(u32::MAX))
}

/// A call's share in one program.
struct Share<'a, 'py> {
    number: u64,
    part: &'a Part,
    call: &'a Call,
    base: &'a SourceRef<'py>,
    /// The sources of the part's name scopes that are not the caller's own.
    below: Vec<SourceRef<'py>>,
    /// Params of equations that are the call's own, by position.
    params: Vec<(usize, Bound<'py, PyDict>)>,
}

impl<'a, 'py> Share<'a, 'py> {
    /// Name scopes are whole or below the caller's.
    fn new(
        jax: &Jax,
        number: u64,
        part: &'a Part,
        call: &'a Call,
        base: &'a SourceRef<'py>,
        whole: bool,
        making: Option<&Making<'py>>,
    ) -> PyResult<Self> {
        let py = base.name_stack.py();
        let mut below = Vec::new();
        for scope in part.scopes.iter().filter(|scope| !scope.is_callers()) {
            let name_stack = match &scope.name_stack {
                Some(stack) if whole => stack.bind(py).clone(),
                Some(stack) => base.name_stack.add(stack)?,
                None => base.name_stack.clone(),
            };
            let own = scope.traceback.as_ref().map(|traceback| traceback.bind(py).clone());
            let traceback = own.or_else(|| base.traceback.clone());
            below.push(SourceRef { traceback, name_stack });
        }
        let mut params = Vec::new();
        for (index, renewed) in &part.renewed {
            let recorded = part.equations[*index].params.bind(py);
            params.push((*index, renewed.make(jax, recorded)?));
        }
        for (index, plan) in making.into_iter().flat_map(|_| &part.plans) {
            let recorded = part.equations[*index].params.bind(py);
            if let Some(making) = making {
                params.push((*index, making.params(jax, recorded, plan)?));
            }
        }
        Ok(Self { number, part, call, base, below, params })
    }

    /// Appends it; the first output, and the source of what comes of the call. The literals are added
    /// to `literals`.
    fn append(
        &self,
        jax: &Jax,
        frame: &mut Frame,
        args: &[Atom],
        consts: &[Atom],
        literals: &mut SmallVec<[Atom; 4]>,
    ) -> PyResult<(Var, SourceId)> {
        let (py, part) = (self.base.name_stack.py(), self.part);
        let rows = match frame.rows_of(self.number) {
            Some(rows) => rows,
            None => import(py, jax, frame, self.number, part)?,
        };
        let (builder, side, rows) = frame.appending(rows)?;
        let mut below = self.below.iter();
        let mut sources: SmallVec<[SourceId; 4]> = SmallVec::new();
        for scope in &part.scopes {
            let below = if scope.is_callers() { None } else { below.next() };
            sources.push(match below {
                Some(below) => side.source(builder, below)?,
                None => side.source_again(builder, self.base, &mut rows.source)?,
            });
        }
        let source = match sources.first() {
            Some(&source) => source,
            None => side.source(builder, self.base)?,
        };
        for ((_, given), &own) in part.literals.iter().zip(&rows.literals) {
            let literal = match *given {
                Some(index) => self.given_literal(jax, builder, side, index)?,
                None => side.copy_literal(builder, own)?,
            };
            literals.push(Atom::literal(literal));
        }
        let given = Operands { args, literals, consts };
        let on_operands = part.equations.iter().any(|equation| !equation.on_operands.is_empty());
        let first = if self.params.is_empty() && !on_operands {
            part.fragment.replay(builder, &rows.equations, given, &sources)
        } else {
            let mut equations = rows.equations.clone();
            for (index, params) in &self.params {
                let params = side.deferred_params_id(builder, params);
                equations[*index] = equations[*index].with_params(params);
            }
            for (index, equation) in part.equations.iter().enumerate() {
                if !equation.on_operands.is_empty() {
                    let effects = self.effects(py, jax, builder, side, index, args, consts)?;
                    equations[index] = equations[index].with_effects(effects);
                }
            }
            part.fragment.replay(builder, &equations, given, &sources)
        };
        Ok((first.map_err(build_error)?, source))
    }

    /// The effects of an equation on Refs, which are among what the call is given.
    #[allow(clippy::too_many_arguments)] // where it is appended, and to what
    fn effects(
        &self,
        py: Python<'_>,
        jax: &Jax,
        builder: &mut Builder,
        side: &mut Side,
        index: usize,
        args: &[Atom],
        consts: &[Atom],
    ) -> PyResult<EffectsId> {
        let unknown = || PyRuntimeError::new_err("an effect on what is no argument");
        let (own, operands) = (PySet::empty(py)?, self.part.fragment.templates()[index].operands());
        for (effect, operand) in &self.part.equations[index].on_operands {
            let effect = effect.bind(py);
            let Some(operand) = operand else {
                own.add(effect)?;
                continue;
            };
            let atom = match operands.get(*operand) {
                Some(&Operand::Arg(arg)) => args.get(arg as usize),
                Some(&Operand::Const(constant)) => consts.get(constant as usize),
                _ => None,
            };
            let AtomKind::Var(var) = atom.ok_or_else(unknown)?.kind() else {
                return Err(unknown());
            };
            let var = side.var_object(py, jax, builder.type_of(var), var)?;
            own.add(effect.call_method1(intern!(py, "replace"), (var,))?)?;
        }
        side.effects_id(jax, builder, &own)
    }

    /// The literal that an argument is a tracer of.
    fn given_literal(
        &self,
        jax: &Jax,
        builder: &mut Builder,
        side: &mut Side,
        index: usize,
    ) -> PyResult<LiteralId> {
        // SAFETY: an argument of the call under way, a tracer of ours with jax's slots.
        let literal = unsafe {
            let tracer =
                Bound::from_borrowed_ptr(self.base.name_stack.py(), self.call.literals[index]);
            jax.slots.tracer_val.get(&tracer)
        };
        let gone = || PyRuntimeError::new_err("a literal's tracer without its literal");
        side.literal(jax, builder, &literal.ok_or_else(gone)?)
    }
}

/// Appends the part of a tangents' program; tracers of the outputs that are needed.
fn append_tangents<'py>(
    py: Python<'py>,
    jax: &Jax,
    layer: &Linearization,
    level: usize,
    share: &Share<'_, 'py>,
    needed: &[usize],
    residuals: &[Bound<'py, PyAny>],
) -> PyResult<Tracers<'py>> {
    let part = share.part;
    let args = share.call.tangents_of(level);
    let (first, source) = {
        let mut frame = borrow_mut(layer.tangent_frame.bind(py));
        let mut consts: SmallVec<[Atom; 4]> = SmallVec::new();
        for ((_, aval), value) in part.consts.iter().zip(residuals) {
            consts.push(Atom::var(frame.const_var(jax, value, aval.bind(py))?));
        }
        let mut literals = SmallVec::new();
        let (first, source) = share.append(jax, &mut frame, &args, &consts, &mut literals)?;
        let (builder, _) = frame.recording()?;
        for &index in needed {
            builder.retain(out_of(first, index));
        }
        (first, source)
    };
    // SAFETY: jax's trace holds it.
    let trace = unsafe { Bound::from_borrowed_ptr(py, layer.tangent_trace) };
    let tracer = |&index: &usize| {
        let aval = part.out_type(index).bind(py).clone();
        Ok((index, new_tracer(jax, &trace, out_of(first, index), aval, source, true)?))
    };
    needed.iter().map(tracer).collect()
}

/// Makes the rows of a part in a frame, at its first use there; where they are.
fn import(
    py: Python<'_>,
    jax: &Jax,
    frame: &mut Frame,
    number: u64,
    part: &Part,
) -> PyResult<usize> {
    let mut rows = Rows::default();
    let (builder, side) = frame.recording()?;
    let mut types = Vec::with_capacity(part.types.len());
    for aval in &part.types {
        types.push(side.ty(jax, builder, aval.bind(py))?);
    }
    for (equation, template) in part.equations.iter().zip(part.fragment.templates()) {
        let primitive = side.primitive(builder, equation.primitive.bind(py))?;
        let params = side.deferred_params_id(builder, equation.params.bind(py));
        let effects = match &equation.effects {
            // Each replay has its own.
            Some(_) if !equation.on_operands.is_empty() => EffectsId::NONE,
            Some(effects) => side.effects_id(jax, builder, effects.bind(py))?,
            None => EffectsId::NONE,
        };
        if let Some(no_effects) = &equation.no_effects {
            side.note_no_effects(primitive, no_effects.bind(py));
        }
        let context = side.handle(equation.context.bind(py));
        let context = builder.context(context);
        let out_types: SmallVec<[TypeId; 4]> =
            template.out_types().iter().map(|&row| types[row as usize]).collect();
        let shape = builder.shape(primitive, params, &out_types, effects, context);
        rows.equations.push(shape.map_err(build_error)?);
    }
    for (literal, _) in &part.literals {
        rows.literals.push(side.literal(jax, builder, literal.bind(py))?);
    }
    Ok(frame.add_rows(number, rows))
}
