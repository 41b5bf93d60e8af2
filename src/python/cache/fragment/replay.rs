//! Appending what a call appends, and making its result.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};
use smallvec::SmallVec;

use crate::expand::{Operand, Operands, out};
use crate::ir::{Atom, AtomKind, EffectsId, SourceId, TypeId, Var};

use crate::python::cache::fragment::recorded::{Captured, Part, Recorded, Scope};
use crate::python::cache::fragment::result::{Made, Recipe};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::trace_context::TraceContext;
use crate::python::cache::key::transformations::Linearization;
use crate::python::cache::programs::instantiate::Instantiation;
use crate::python::cpython::shared::Quiet;
use crate::python::jax::avals::{AvalInfo, aval_info, build_error};
use crate::python::jax::names::Jax;
use crate::python::jax::source::{SourceRef, join_name_stacks};
use crate::python::program::objects::{ReadEffects, SourceKey, literal_type};
use crate::python::trace::frame::{Frame, ReadPrimitive, Rows, State};
use crate::python::trace::tracer::new_tracer;

/// Outputs with their tracers.
pub type Tracers<'py> = SmallVec<[(usize, Bound<'py, PyAny>); 4]>;

/// Does again what was recorded; the result of the call. `instantiation` is there where the programs are
/// others than those that were recorded.
///
/// # Errors
/// The program cannot grow.
pub fn replay<'py>(
    jax: &Jax,
    context: &TraceContext<'py>,
    call: &Call,
    recorded: &Recorded,
    instantiation: Option<&Instantiation<'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (trace, part) = (&context.trace, &recorded.part);
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
    let base = context.source(jax)?;
    let mut literals = SmallVec::new();
    let stack = context.stack();
    let share = Share { number: recorded.number, part, call, base: &base, instantiation };
    let mut append = |consts: &[ReadConst]| {
        let place = Place { frame: context.frame(), args: &call.args, consts, retained: &[] };
        share.append(jax, &place, &mut literals)
    };
    let outputs = if part.consts.is_empty() { append(&[]) } else { append(&share.captured(jax)?) }?;
    let tracer = |index: usize| {
        let (var, source) = outputs.get(index)?;
        let aval = part.out_type(index).bind(py).clone();
        new_tracer(jax, trace, var, aval, source, false)
    };
    if let (true, &Recipe::Out(index)) = (plain, &recorded.recipe) {
        return tracer(index);
    }
    let own_literal = |index: usize| Frame::literal_object(context.frame(), jax, literals[index]);
    let outs: Tracers<'py> = recorded
        .needed
        .outs
        .iter()
        .map(|&index| Ok((index, tracer(index)?)))
        .collect::<PyResult<_>>()?;
    let transformed = RefCell::new(vec![None; recorded.transformed.len()]);
    let (tangents, literal_tracers) = (RefCell::default(), RefCell::default());
    let made = Made {
        jax,
        trace,
        stack,
        call,
        outs: &outs,
        tangents: &tangents,
        recipes: &recorded.transformed,
        transformed: &transformed,
        literals: &own_literal,
        literal_tracers: &literal_tracers,
        source: &base,
    };
    replay_tangents(recorded, &share, &made)?;
    recorded.recipe.make(&made)
}

/// Appends to the programs of tangents, and passes by what rules have passed by.
fn replay_tangents<'py>(
    recorded: &Recorded,
    share: &Share<'_, 'py>,
    made: &Made<'_, 'py>,
) -> PyResult<()> {
    let (jax, py) = (made.jax, made.trace.py());
    let linearization_of = |level| made.stack.and_then(|stack| stack.linearization(level));
    for (level, part) in &recorded.tangents {
        let residuals: SmallVec<[Bound<'py, PyAny>; 4]> = part
            .consts
            .iter()
            .map(|(captured, _)| residual(made, captured))
            .collect::<PyResult<_>>()?;
        let linearization = linearization_of(*level)
            .ok_or_else(|| PyRuntimeError::new_err("tangents of no differentiation"))?;
        let needed = recorded.needed.of_level(*level);
        let share = Share { part, ..*share };
        let of_level = append_tangents(py, jax, linearization, *level, &share, needed, &residuals)?;
        made.tangents.borrow_mut().push((*level, of_level));
    }
    for (level, residual) in &recorded.structured_residuals {
        if let Some(list) = linearization_of(*level)
            .and_then(|linearization| linearization.structured_residuals(py))
        {
            list.append(residual.make(made)?)?;
        }
    }
    Ok(())
}

/// A value that a tangents' program captures.
fn residual<'py>(made: &Made<'_, 'py>, captured: &Captured) -> PyResult<Bound<'py, PyAny>> {
    let py = made.trace.py();
    let borrowed = |object: Option<&*mut ffi::PyObject>| {
        // SAFETY: an argument of the call under way.
        object.map(|&object| unsafe { Bound::from_borrowed_ptr(py, object) })
    };
    let found = match captured {
        Captured::Value(value) => Some(value.bind(py).clone()),
        Captured::Arg(index) => borrowed(made.call.traced.get(*index)),
        Captured::LiteralArg(index) => borrowed(made.call.literals.get(*index)),
        Captured::Enclosing(index) => borrowed(made.call.enclosing.get(*index)),
        Captured::Out(index) => Some(Recipe::Out(*index).make(made)?),
        Captured::Constant(index) => Some(Recipe::Constant(*index).make(made)?),
        Captured::Transformed(number) => Some(Recipe::Transformed(*number).make(made)?),
        Captured::OwnLiteral(index, number) => Some(made.own_literal(*index, *number)?),
        Captured::Literal(own, number) => Some(made.literal(own.bind(py), *number)?),
    };
    found.ok_or_else(|| PyRuntimeError::new_err("a residual without a value"))
}

/// The output of a fragment.
fn out_of(first: Var, index: usize) -> Var {
    out(first, u32::try_from(index).unwrap_or(u32::MAX))
}

/// A call's share in one program.
#[derive(Clone, Copy)]
struct Share<'a, 'py> {
    number: u64,
    part: &'a Part,
    call: &'a Call,
    base: &'a SourceRef<'py>,
    instantiation: Option<&'a Instantiation<'py>>,
}

/// Where a share is appended, and to what.
struct Place<'a, 'py> {
    frame: &'a Bound<'py, Frame>,
    args: &'a [Atom],
    consts: &'a [ReadConst],
    /// Outputs that have a tracer each.
    retained: &'a [usize],
}

/// The first output of what was appended, and the source of what comes of the call; None where nothing was.
struct Outputs(Option<(Var, SourceId)>);

impl Outputs {
    fn get(&self, index: usize) -> PyResult<(Var, SourceId)> {
        let none = || PyRuntimeError::new_err("an output of no equation");
        let (first, source) = self.0.ok_or_else(none)?;
        Ok((out_of(first, index), source))
    }
}

/// What equations have of the call itself.
struct Own {
    /// Params, by the position of the equation.
    params: Vec<(usize, Py<PyDict>)>,
    effects: Vec<(usize, ReadEffects)>,
    /// The literals that arguments are tracers of, in order.
    literals: Vec<ReadLiteral>,
}

impl<'py> Share<'_, 'py> {
    /// Appends it. The literals are added to `literals`.
    fn append(
        &self,
        jax: &Jax,
        place: &Place<'_, 'py>,
        literals: &mut SmallVec<[Atom; 4]>,
    ) -> PyResult<Outputs> {
        let (first, source) = match self.part.only_scope(self.instantiation.is_some()) {
            Some(scope) if scope.is_callers() => {
                self.append_again(jax, place, self.base, literals)?
            }
            Some(scope) => self.append_again(jax, place, &self.source_of(jax, scope)?, literals)?,
            None if self.part.is_empty() => return Ok(Outputs(None)),
            None => self.append_own(jax, place, literals)?,
        };
        Ok(Outputs(Some((first, source))))
    }

    /// As `append`, where all but the operands is the same each time, and of one source.
    fn append_again(
        &self,
        jax: &Jax,
        place: &Place<'_, 'py>,
        source: &SourceRef<'py>,
        literals: &mut SmallVec<[Atom; 4]>,
    ) -> PyResult<(Var, SourceId)> {
        let (frame, part, number) = (place.frame, self.part, self.number);
        let (args, consts, retained) = (place.args, place.consts, place.retained);
        let appending = Appending { part, own: None, args, consts, held: None, retained };
        // Mostly it is known there, and the source is the one of the last time.
        let key = SourceKey::compared(jax, source);
        let (done, rows) = frame.get().with(frame.py(), |state, quiet| {
            let Some(rows) = state.rows_of(number) else { return Ok((None, None)) };
            let (builder, side, known) = state.appending(rows)?;
            match known.source {
                Some(last) if side.is_source(builder, &key, last, quiet)? => {
                    let first = appending.run(state, rows, &[last], literals, quiet)?;
                    Ok((Some((first, last)), None))
                }
                _ => Ok::<_, PyErr>((None, Some(rows))),
            }
        })?;
        if let Some(done) = done {
            return Ok(done);
        }
        let rows = match rows {
            Some(rows) => rows,
            None => import(jax, frame, number, part)?,
        };
        let source = Frame::source(frame, jax, source)?;
        let first = frame.get().with(frame.py(), |state, quiet| {
            state.appending(rows)?.2.source = Some(source);
            appending.run(state, rows, &[source], literals, quiet)
        })?;
        Ok((first, source))
    }

    /// As `append`, where something is the call's own, or of several sources.
    fn append_own(
        &self,
        jax: &Jax,
        place: &Place<'_, 'py>,
        literals: &mut SmallVec<[Atom; 4]>,
    ) -> PyResult<(Var, SourceId)> {
        let (frame, part, number) = (place.frame, self.part, self.number);
        let mut own = Own {
            params: self.params(jax)?,
            effects: Vec::new(),
            literals: self.given_literals(jax)?,
        };
        // Which variables effects are on is Python's to say, so constants are there before.
        let held = if part.is_on_operands { Some(Held::new(frame, place.consts)?) } else { None };
        let rows = match frame.get().peek(|state| state.rows_of(number)) {
            Some(rows) => rows,
            None => import(jax, frame, number, part)?,
        };
        let sources = self.sources(jax, frame)?;
        let source = match sources.first() {
            Some(&source) => source,
            None => Frame::source(frame, jax, self.base)?,
        };
        if let Some(held) = &held {
            own.effects = self.effects(jax, frame, place.args, &held.atoms)?;
        }
        let (args, consts, retained) = (place.args, place.consts, place.retained);
        let held = held.as_ref().map(|held| &held.atoms[..]);
        let appending = Appending { part, own: Some(&own), args, consts, held, retained };
        let first = frame.get().with(frame.py(), |state, quiet| {
            appending.run(state, rows, &sources, literals, quiet)
        })?;
        Ok((first, source))
    }

    /// The values that the part captures, but for residuals.
    fn captured(&self, jax: &Jax) -> PyResult<SmallVec<[ReadConst; 4]>> {
        let py = self.base.name_stack.py();
        let mut consts = SmallVec::new();
        for (captured, aval) in &self.part.consts {
            let value = match captured {
                Captured::Value(value) => value.clone_ref(py),
                // SAFETY: an argument of the call under way.
                Captured::Enclosing(index) => unsafe {
                    Bound::from_borrowed_ptr(py, self.call.enclosing[*index]).unbind()
                },
                _ => continue,
            };
            consts.push(ReadConst::new(jax, value, aval.bind(py))?);
        }
        Ok(consts)
    }

    /// The source of a name scope that is not the caller's own.
    fn source_of(&self, jax: &Jax, scope: &Scope) -> PyResult<SourceRef<'py>> {
        let (base, py) = (self.base, self.base.name_stack.py());
        let name_stack = match &scope.name_stack {
            Some(stack) if scope.is_whole => stack.bind(py).clone(),
            Some(stack) => join_name_stacks(jax, &base.name_stack, stack.bind(py))?,
            None => base.name_stack.clone(),
        };
        let own = scope.traceback.as_ref().map(|traceback| traceback.bind(py).clone());
        Ok(SourceRef { traceback: own.or_else(|| base.traceback.clone()), name_stack })
    }

    /// The sources of the part's name scopes.
    fn sources(&self, jax: &Jax, frame: &Bound<'py, Frame>) -> PyResult<SmallVec<[SourceId; 4]>> {
        let mut sources = SmallVec::new();
        for scope in &self.part.scopes {
            sources.push(if scope.is_callers() {
                Frame::source(frame, jax, self.base)?
            } else {
                Frame::source(frame, jax, &self.source_of(jax, scope)?)?
            });
        }
        Ok(sources)
    }

    /// Params of equations that are the call's own, by the position of the equation.
    fn params(&self, jax: &Jax) -> PyResult<Vec<(usize, Py<PyDict>)>> {
        let (part, py) = (self.part, self.base.name_stack.py());
        let mut params = Vec::new();
        for (index, regenerated) in &part.regenerated {
            let recorded = part.equations[*index].params.bind(py);
            params.push((*index, regenerated.make(jax, recorded)?.unbind()));
        }
        if let Some(instantiation) = self.instantiation {
            for (index, plan) in &part.plans {
                let recorded = part.equations[*index].params.bind(py);
                params.push((*index, instantiation.params(jax, recorded, plan)?.unbind()));
            }
        }
        Ok(params)
    }

    /// The literals that arguments are tracers of, in order.
    fn given_literals(&self, jax: &Jax) -> PyResult<Vec<ReadLiteral>> {
        let py = self.base.name_stack.py();
        let gone = || PyRuntimeError::new_err("a literal's tracer without its literal");
        let mut given = Vec::new();
        for index in self.part.literals.iter().filter_map(|(_, given)| *given) {
            let tracer = *self.call.literals.get(index).ok_or_else(gone)?;
            // SAFETY: an argument of the call under way, a tracer of ours with jax's slots.
            let literal = unsafe {
                let tracer = Bound::from_borrowed_ptr(py, tracer);
                jax.slots.tracer_val.get(&tracer)
            };
            let literal = literal.ok_or_else(gone)?;
            let (aval, info) = literal_type(jax, &literal)?;
            given.push((literal.unbind(), aval.unbind(), info));
        }
        Ok(given)
    }

    /// The effects of equations on Refs, which are among what the call is given.
    fn effects(
        &self,
        jax: &Jax,
        frame: &Bound<'py, Frame>,
        args: &[Atom],
        consts: &[Atom],
    ) -> PyResult<Vec<(usize, ReadEffects)>> {
        let py = frame.py();
        let unknown = || PyRuntimeError::new_err("an effect on what is no argument");
        let mut all = Vec::new();
        for (index, equation) in self.part.equations.iter().enumerate() {
            if !equation.is_on_operands() {
                continue;
            }
            let operands = self.part.fragment.templates()[index].operands();
            let own = PySet::empty(py)?;
            for (effect, operand) in &equation.on_operands {
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
                let var = Frame::var_object(frame, jax, var)?;
                own.add(effect.call_method1(intern!(py, "replace"), (var,))?)?;
            }
            all.push((index, ReadEffects::of(jax, &own)?));
        }
        Ok(all)
    }
}

/// All that is appended, as far as only Python can tell.
struct Appending<'a> {
    part: &'a Part,
    /// None where all of it is the same each time.
    own: Option<&'a Own>,
    args: &'a [Atom],
    consts: &'a [ReadConst],
    /// The constants, where they are there already.
    held: Option<&'a [Atom]>,
    retained: &'a [usize],
}

impl Appending<'_> {
    // Within `append_again` nothing is the call's own: most of it goes.
    #[allow(clippy::inline_always)] // as said
    #[inline(always)]
    fn run(
        &self,
        state: &mut State,
        rows: usize,
        sources: &[SourceId],
        literals: &mut SmallVec<[Atom; 4]>,
        quiet: Quiet<'_>,
    ) -> PyResult<Var> {
        let (part, own, args) = (self.part, self.own, self.args);
        let mut consts: SmallVec<[Atom; 4]> = SmallVec::new();
        match self.held {
            Some(held) => consts.extend(held.iter().copied()),
            None => {
                for constant in self.consts {
                    consts.push(constant.atom(state, quiet)?);
                }
            }
        }
        let (builder, side, rows) = state.appending(rows)?;
        let mut given = own.into_iter().flat_map(|own| &own.literals);
        for ((_, index), &recorded) in part.literals.iter().zip(&rows.literals) {
            let literal = match index.and_then(|_| given.next()) {
                Some((literal, aval, info)) => {
                    side.literal_of(builder, literal, (aval, info), quiet)?
                }
                None => side.copy_literal(builder, recorded)?,
            };
            literals.push(Atom::literal(literal));
        }
        let operands = Operands { args, literals, consts: &consts };
        let changing = own.filter(|own| !own.params.is_empty() || !own.effects.is_empty());
        let first = if let Some(own) = changing {
            let mut equations = rows.equations.clone();
            for (index, params) in &own.params {
                let params = side.deferred_params_id(builder, params, quiet);
                equations[*index] = equations[*index].with_params(params);
            }
            for (index, effects) in &own.effects {
                let effects = side.effects_of(builder, effects, quiet);
                equations[*index] = equations[*index].with_effects(effects);
            }
            part.fragment.replay(builder, &equations, operands, sources)
        } else {
            part.fragment.replay(builder, &rows.equations, operands, sources)
        };
        let first = first.map_err(build_error)?;
        for &index in self.retained {
            builder.retain(out_of(first, index));
        }
        Ok(first)
    }
}

/// A literal, its type, and what was read of that.
type ReadLiteral = (Py<PyAny>, Py<PyAny>, Arc<AvalInfo>);

/// A value that a program captures, its type, and what was read of that.
struct ReadConst(Py<PyAny>, Py<PyAny>, Arc<AvalInfo>);

impl ReadConst {
    fn new(jax: &Jax, value: Py<PyAny>, aval: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(value, aval.clone().unbind(), aval_info(jax, aval)?))
    }

    fn atom(&self, state: &mut State, quiet: Quiet<'_>) -> PyResult<Atom> {
        let Self(value, aval, info) = self;
        state.const_var(value, aval, info, quiet).map(Atom::var)
    }
}

/// Constants that stay for as long as this lives.
struct Held<'a, 'py> {
    frame: &'a Bound<'py, Frame>,
    atoms: SmallVec<[Atom; 4]>,
}

impl<'a, 'py> Held<'a, 'py> {
    fn new(frame: &'a Bound<'py, Frame>, consts: &[ReadConst]) -> PyResult<Self> {
        let mut held = Self { frame, atoms: SmallVec::new() };
        let atoms = &mut held.atoms;
        frame.get().with(frame.py(), |state, quiet| {
            for constant in consts {
                let atom = constant.atom(state, quiet)?;
                if let AtomKind::Var(var) = atom.kind() {
                    state.recording()?.0.retain(var);
                }
                atoms.push(atom);
            }
            Ok::<_, PyErr>(())
        })?;
        Ok(held)
    }
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        for atom in &self.atoms {
            if let AtomKind::Var(var) = atom.kind() {
                Frame::release(self.frame, var, None);
            }
        }
    }
}

/// Appends the part of a tangents' program; tracers of the outputs that are needed.
fn append_tangents<'py>(
    py: Python<'py>,
    jax: &Jax,
    linearization: &Linearization,
    level: usize,
    share: &Share<'_, 'py>,
    needed: &[usize],
    residuals: &[Bound<'py, PyAny>],
) -> PyResult<Tracers<'py>> {
    let part = share.part;
    let args = share.call.tangents_of(level);
    let mut consts: SmallVec<[ReadConst; 4]> = SmallVec::new();
    for ((_, aval), value) in part.consts.iter().zip(residuals) {
        consts.push(ReadConst::new(jax, value.clone().unbind(), aval.bind(py))?);
    }
    let frame = linearization.tangent_frame.bind(py);
    let place = Place { frame, args: &args, consts: &consts, retained: needed };
    let outputs = share.append(jax, &place, &mut SmallVec::new())?;
    // SAFETY: jax's trace holds it.
    let trace = unsafe { Bound::from_borrowed_ptr(py, linearization.tangent_trace) };
    let tracer = |&index: &usize| {
        let (var, source) = outputs.get(index)?;
        let aval = part.out_type(index).bind(py).clone();
        Ok((index, new_tracer(jax, &trace, var, aval, source, true)?))
    };
    needed.iter().map(tracer).collect()
}

/// Makes the rows of a part in a frame, at its first use there; where they are.
fn import(jax: &Jax, frame: &Bound<'_, Frame>, number: u64, part: &Part) -> PyResult<usize> {
    let py = frame.py();
    let primitives = part.equations.iter().map(|equation| equation.primitive.bind(py));
    let primitives = ReadPrimitive::each(frame, primitives)?;
    let mut equations: SmallVec<[_; 4]> = SmallVec::with_capacity(part.equations.len());
    for (equation, primitive) in part.equations.iter().zip(primitives) {
        let effects = match &equation.effects {
            // Each replay has its own.
            Some(effects) if !equation.is_on_operands() => {
                Some(ReadEffects::of(jax, effects.bind(py))?)
            }
            _ => None,
        };
        equations.push((primitive, effects));
    }
    frame.get().with(py, |state, quiet| {
        let mut rows = Rows {
            equations: Vec::with_capacity(part.equations.len()),
            literals: Vec::with_capacity(part.literals.len()),
            source: None,
        };
        let (builder, side) = state.recording()?;
        let types = part.types.iter().zip(&part.type_infos);
        let type_rows: SmallVec<[TypeId; 8]> =
            types.map(|(aval, info)| side.type_of(builder, aval, info, quiet)).collect();
        let templates = part.fragment.templates();
        for ((equation, read), template) in part.equations.iter().zip(&equations).zip(templates) {
            let (primitive, effects) = read;
            let primitive = primitive.id(builder, side, quiet)?;
            let params = side.deferred_params_id(builder, &equation.params, quiet);
            let effects = match effects {
                Some(effects) => side.effects_of(builder, effects, quiet),
                None => EffectsId::NONE,
            };
            if let Some(no_effects) = &equation.no_effects {
                side.note_no_effects_of(primitive, no_effects, quiet);
            }
            let context = side.handle_of(&equation.context, quiet);
            let context = builder.context(context);
            let out_types: SmallVec<[TypeId; 4]> =
                template.out_types().iter().map(|&row| type_rows[row as usize]).collect();
            let shape = builder.shape(primitive, params, &out_types, effects, context);
            rows.equations.push(shape.map_err(build_error)?);
        }
        for ((literal, _), (aval, info)) in part.literals.iter().zip(&part.literal_types) {
            rows.literals.push(side.literal_of(builder, literal, (aval, info), quiet)?);
        }
        Ok(state.add_rows(number, rows))
    })
}
