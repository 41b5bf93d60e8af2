//! Appending what a call appends, and making its result.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::ir::{Atom, EffectsId, LiteralId, SourceId, TypeId};

use super::super::convert::build_error;
use super::super::frame::{Appended, Frame, Imports};
use super::super::graph::borrow_mut;
use super::super::jax::Jax;
use super::super::source::SourceRef;
use super::super::tracer::{new_literal_tracer, new_tracer};
use super::encode::Call;
use super::lifted::Lifted;
use super::now::Now;
use super::record::{Captured, Part, Recorded};
use super::result::{Made, Recipe};

/// Outputs with their tracers.
type Tracers<'py> = SmallVec<[(usize, Bound<'py, PyAny>); 4]>;

/// Does again what was recorded; the result of the call.
///
/// # Errors
/// The program cannot grow.
pub fn replay<'py>(
    jax: &Jax,
    now: &Now<'py>,
    call: &Call,
    recorded: &Recorded,
) -> PyResult<Bound<'py, PyAny>> {
    let (trace, part) = (&now.trace, &recorded.part);
    let py = trace.py();
    let plain = recorded.tangents.is_none() && recorded.structured_residuals.is_empty();
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
    let lifted = now.lifted.as_deref();
    let sources = sources(part, &base, lifted.is_some())?;
    let (Appended { outs, literals }, source) = {
        let mut frame = borrow_mut(&now.frame);
        let mut consts: SmallVec<[Atom; 4]> = SmallVec::new();
        for (captured, aval) in &part.consts {
            if let Captured::Value(value) = captured {
                consts.push(Atom::var(frame.const_var(jax, value.bind(py), aval.bind(py))?));
            }
        }
        append(jax, &mut frame, recorded.number, part, call, &call.args, &consts, &base, &sources)?
    };
    let tracer = |index: usize| {
        let aval = part.out_type(index).bind(py).clone();
        new_tracer(jax, trace, outs[index], aval, source, false)
    };
    if let (true, &Recipe::Out(index)) = (plain, &recorded.recipe) {
        return tracer(index);
    }
    let own_literal = |index: usize| {
        let mut frame = borrow_mut(&now.frame);
        frame.literal_object(py, jax, literals[index])
    };
    let outs: Tracers<'py> = recorded
        .needed
        .iter()
        .map(|&index| Ok((index, tracer(index)?)))
        .collect::<PyResult<_>>()?;
    let tangents = match (&recorded.tangents, lifted) {
        (Some(part), Some(lifted)) => {
            let borrowed = |object: Option<&*mut ffi::PyObject>| {
                // SAFETY: an argument of the call under way.
                object.map(|&object| unsafe { Bound::from_borrowed_ptr(py, object) })
            };
            let residual = |captured: &Captured, aval: &Py<PyAny>| -> PyResult<_> {
                let found = match captured {
                    Captured::Value(value) => Some(value.bind(py).clone()),
                    Captured::Arg(index) => borrowed(call.traced.get(*index)),
                    Captured::LiteralArg(index) => borrowed(call.literals.get(*index)),
                    Captured::Out(index) => {
                        outs.iter().find(|(out, _)| out == index).map(|(_, out)| out.clone())
                    }
                    Captured::OwnLiteral(_) | Captured::Literal(_) => {
                        let literal = match captured {
                            Captured::OwnLiteral(index) => own_literal(*index)?,
                            Captured::Literal(literal) => jax.copy_literal(literal.bind(py))?,
                            _ => return Err(PyRuntimeError::new_err("not a literal")),
                        };
                        let (aval, source) = (aval.bind(py).clone(), base.to_object(jax)?);
                        Some(new_literal_tracer(jax, trace, literal, aval, source)?)
                    }
                };
                found.ok_or_else(|| PyRuntimeError::new_err("a residual without a value"))
            };
            let residuals: SmallVec<[Bound<'py, PyAny>; 4]> = part
                .consts
                .iter()
                .map(|(captured, aval)| residual(captured, aval))
                .collect::<PyResult<_>>()?;
            append_tangents(py, jax, lifted, call, recorded, part, &base, &residuals)?
        }
        _ => Tracers::new(),
    };
    let made = Made {
        jax,
        trace,
        lifted,
        call,
        outs: &outs,
        tangents: &tangents,
        literals: &own_literal,
        source: &base,
    };
    if let Some(list) = lifted.and_then(|lifted| lifted.structured_residuals(py)) {
        for residual in &recorded.structured_residuals {
            list.append(residual.make(&made)?)?;
        }
    }
    recorded.recipe.make(&made)
}

/// The sources of a part's name scopes that are not the caller's own.
fn sources<'py>(
    part: &Part,
    base: &SourceRef<'py>,
    whole: bool,
) -> PyResult<SmallVec<[SourceRef<'py>; 2]>> {
    let py = base.name_stack.py();
    let scopes = part.scopes.iter().flatten().map(|scope| {
        let name_stack =
            if whole { scope.bind(py).clone() } else { base.name_stack.add(scope.bind(py))? };
        Ok(SourceRef { traceback: base.traceback.clone(), name_stack })
    });
    scopes.collect()
}

/// Appends a part to its program; also the source of what comes of the call.
#[allow(clippy::too_many_arguments)] // a call's share in one program
fn append(
    jax: &Jax,
    frame: &mut Frame,
    number: u64,
    part: &Part,
    call: &Call,
    args: &[Atom],
    consts: &[Atom],
    base: &SourceRef<'_>,
    sources: &[SourceRef<'_>],
) -> PyResult<(Appended, SourceId)> {
    let py = base.name_stack.py();
    if !frame.imports(number) {
        import(py, jax, frame, number, part)?;
    }
    let mut literals: SmallVec<[Option<LiteralId>; 4]> = SmallVec::new();
    for (_, given) in &part.literals {
        literals.push(match given {
            // SAFETY: an argument of the call under way, a tracer of ours with jax's slots.
            Some(index) => unsafe {
                let tracer = Bound::from_borrowed_ptr(py, call.literals[*index]);
                jax.slots.tracer_val.get(&tracer)
            }
            .map(|literal| frame.literal(jax, &literal))
            .transpose()?,
            None => None,
        });
    }
    let mut below = sources.iter();
    let mut sources: SmallVec<[SourceId; 4]> = SmallVec::new();
    for scope in &part.scopes {
        let source = if scope.is_some() { below.next() } else { None };
        sources.push(frame.source(source.unwrap_or(base))?);
    }
    let appended = frame.replay(number, &part.fragment, args, &literals, consts, &sources)?;
    let source = match sources.first() {
        Some(&source) => source,
        None => frame.source(base)?,
    };
    Ok((appended, source))
}

/// Appends the tangents' part; tracers of the outputs that are needed.
#[allow(clippy::too_many_arguments)] // a call's share in one program
fn append_tangents<'py>(
    py: Python<'py>,
    jax: &Jax,
    lifted: &Lifted,
    call: &Call,
    recorded: &Recorded,
    part: &Part,
    base: &SourceRef<'py>,
    residuals: &[Bound<'py, PyAny>],
) -> PyResult<Tracers<'py>> {
    let sources = sources(part, base, true)?;
    let (outs, source) = {
        let mut frame = borrow_mut(lifted.tangent_frame.bind(py));
        let mut consts: SmallVec<[Atom; 4]> = SmallVec::new();
        for ((_, aval), value) in part.consts.iter().zip(residuals) {
            consts.push(Atom::var(frame.const_var(jax, value, aval.bind(py))?));
        }
        let number = recorded.number;
        let (Appended { outs, .. }, source) =
            append(jax, &mut frame, number, part, call, &call.tangents, &consts, base, &sources)?;
        let (builder, _) = frame.recording()?;
        for &index in &recorded.needed_tangents {
            builder.retain(outs[index]);
        }
        (outs, source)
    };
    // SAFETY: jax's trace holds it.
    let trace = unsafe { Bound::from_borrowed_ptr(py, lifted.tangent_trace) };
    let tracer = |&index: &usize| {
        let aval = part.out_type(index).bind(py).clone();
        Ok((index, new_tracer(jax, &trace, outs[index], aval, source, true)?))
    };
    recorded.needed_tangents.iter().map(tracer).collect()
}

/// The rows of a part in a frame, made at its first use there.
fn import(py: Python<'_>, jax: &Jax, frame: &mut Frame, number: u64, part: &Part) -> PyResult<()> {
    let mut imports = Imports::default();
    let (builder, side) = frame.recording()?;
    let mut types = Vec::with_capacity(part.types.len());
    for aval in &part.types {
        types.push(side.ty(jax, builder, aval.bind(py))?);
    }
    for (equation, template) in part.equations.iter().zip(part.fragment.templates()) {
        let primitive = side.primitive(builder, equation.primitive.bind(py))?;
        let params = side.deferred_params_id(builder, equation.params.bind(py));
        let effects = match &equation.effects {
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
        imports.equations.push(shape.map_err(build_error)?);
    }
    for (literal, _) in &part.literals {
        imports.literals.push(side.literal(jax, builder, literal.bind(py))?);
    }
    frame.keep_imports(number, imports);
    Ok(())
}
