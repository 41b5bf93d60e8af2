//! Appending a fragment, and making the result of its call.

use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::expand::Imports;
use crate::ir::{Atom, EffectsId, SourceId, TypeId, Var};

use super::super::convert::build_error;
use super::super::frame::Frame;
use super::super::graph::borrow_mut;
use super::super::jax::Jax;
use super::super::source::SourceRef;
use super::super::tracer::new_tracer;
use super::encode::Call;
use super::now::Now;
use super::record::Recorded;
use super::result::Recipe;

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
    let (trace, frame) = (&now.trace, &now.frame);
    let py = trace.py();
    if recorded.equations.is_empty() && recorded.consts.is_empty() {
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
    let mut below: SmallVec<[SourceRef<'py>; 2]> = SmallVec::new();
    for scope in recorded.scopes.iter().flatten() {
        below.push(SourceRef {
            traceback: base.traceback.clone(),
            name_stack: base.name_stack.add(scope.bind(py))?,
        });
    }
    let (outs, source) = {
        let mut frame = borrow_mut(frame);
        let frame = &mut *frame;
        if !frame.imports(recorded.number) {
            import(py, jax, frame, recorded)?;
        }
        let mut consts: SmallVec<[Atom; 4]> = SmallVec::new();
        for (value, aval) in &recorded.consts {
            consts.push(Atom::var(frame.const_var(jax, value.bind(py), aval.bind(py))?));
        }
        let mut below = below.iter();
        let mut sources: SmallVec<[SourceId; 4]> = SmallVec::new();
        for scope in &recorded.scopes {
            let source = if scope.is_some() { below.next() } else { None };
            sources.push(frame.source(source.unwrap_or(&base))?);
        }
        let outs =
            frame.replay(recorded.number, &recorded.fragment, &call.args, &consts, &sources)?;
        let source = match sources.first() {
            Some(&source) => source,
            None => frame.source(&base)?,
        };
        (outs, source)
    };
    result(jax, trace, call, recorded, &outs, source, &base)
}

fn result<'py>(
    jax: &Jax,
    trace: &Bound<'py, PyAny>,
    call: &Call,
    recorded: &Recorded,
    outs: &[Var],
    source: SourceId,
    base: &SourceRef<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = trace.py();
    let tracer = |index: usize| {
        let ty = recorded.out_type(index);
        let aval = recorded.types[ty as usize].bind(py).clone();
        new_tracer(jax, trace, outs[index], aval, source, false)
    };
    if let Recipe::Out(index) = recorded.recipe {
        return tracer(index);
    }
    let mut needed = SmallVec::new();
    recorded.recipe.outs(&mut needed);
    let tracers: SmallVec<[(usize, Bound<'py, PyAny>); 4]> =
        needed.into_iter().map(|index| Ok((index, tracer(index)?))).collect::<PyResult<_>>()?;
    recorded.recipe.make(jax, trace, call, &tracers, &|| base.to_object(jax))
}

/// The rows of a fragment in a frame, made at its first use there.
fn import(py: Python<'_>, jax: &Jax, frame: &mut Frame, recorded: &Recorded) -> PyResult<()> {
    let mut imports = Imports::default();
    let (builder, side) = frame.recording()?;
    let mut types = Vec::with_capacity(recorded.types.len());
    for aval in &recorded.types {
        types.push(side.ty(jax, builder, aval.bind(py))?);
    }
    for (equation, template) in recorded.equations.iter().zip(recorded.fragment.templates()) {
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
    for literal in &recorded.literals {
        imports.literals.push(side.literal(jax, builder, literal.bind(py))?);
    }
    frame.keep_imports(recorded.number, imports);
    Ok(())
}
