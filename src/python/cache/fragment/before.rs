//! Where the programs that record were before a call.

use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::ir::{AtomKind, Def, Eqn, Var};

use crate::python::cache::fragment::read_part::row;
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::trace_context::TraceContext;
use crate::python::cache::key::transformations::Stack;
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::trace::frame::{Frame, Mark, State};

/// Where a call began.
pub struct Before<'py> {
    pub source: SourceRef<'py>,
    pub(super) frame: (Bound<'py, Frame>, Mark),
    /// How many uses of constants were noted, where values of enclosing traces may be some.
    pub(super) constants_used: Option<usize>,
    pub(super) tangents: SmallVec<[BeforeTangents<'py>; 1]>,
}

/// Where the tangents' program of a differentiation was.
pub(super) struct BeforeTangents<'py> {
    pub(super) level: usize,
    pub(super) frame: Bound<'py, Frame>,
    pub(super) mark: Mark,
    pub(super) constants_used: usize,
    pub(super) structured_residuals: usize,
    residuals: Option<Bound<'py, PyList>>,
}

impl<'py> Before<'py> {
    /// Notes where the programs are that record. The frames note uses of constants until this is dropped.
    ///
    /// # Errors
    /// The stack cannot be read.
    pub fn call(jax: &Jax, context: &TraceContext<'py>, call: &Call) -> PyResult<Self> {
        let py = context.trace.py();
        let source = context.source(jax)?;
        let frame = (context.frame().clone(), context.frame().get().peek(|state| state.mark()));
        let noted = !call.enclosing.is_empty();
        let constants_used = noted.then(|| context.frame().get().peek(State::note_constants));
        let mut before = Self { source, frame, constants_used, tangents: SmallVec::new() };
        for (level, linearization) in context.stack().into_iter().flat_map(Stack::linearizations) {
            let frame = linearization.tangent_frame.bind(py);
            let residuals = linearization.structured_residuals(py);
            let (mark, constants_used) =
                frame.get().peek(|state| (state.mark(), state.note_constants()));
            before.tangents.push(BeforeTangents {
                level,
                frame: frame.clone(),
                mark,
                constants_used,
                structured_residuals: residuals.as_ref().map_or(0, PyListMethods::len),
                residuals,
            });
        }
        Ok(before)
    }

    /// The programs that record, each with its next equation.
    pub fn frames(&self) -> impl Iterator<Item = (&Bound<'py, Frame>, u32)> {
        let tangents = self.tangents.iter().map(|tangents| (&tangents.frame, tangents.mark.eqns));
        std::iter::once((&self.frame.0, self.frame.1.eqns)).chain(tangents)
    }

    /// Takes back what the call has appended since, whose result nobody holds.
    ///
    /// # Errors
    /// Out of memory.
    pub fn retract(&self) -> PyResult<()> {
        for (frame, first) in self.frames() {
            Frame::retract(frame, first);
        }
        for tangents in &self.tangents {
            if let Some(residuals) = &tangents.residuals {
                residuals.del_slice(tangents.structured_residuals, residuals.len())?;
            }
        }
        Ok(())
    }
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        if self.constants_used.is_some() {
            self.frame.0.get().peek(State::end_note);
        }
        for tangents in &self.tangents {
            tangents.frame.get().peek(State::end_note);
        }
    }
}

/// Whether constants were first used in the order in which a replay makes them: those of the equations
/// since `mark`, then `others`, which are used without an equation. jax numbers constants by first use.
/// The tracers of `given` constants are arguments, so those are there already.
pub(super) fn in_order_of_use(
    frame: &Bound<'_, Frame>,
    mark: Mark,
    from: usize,
    given: &[Var],
    others: &[Var],
) -> bool {
    frame.get().peek(|state| {
        let uses = state.constants_used(from);
        let Some((builder, _)) = state.recorded() else { return false };
        let mut order: Vec<Var> = Vec::new();
        let mut add = |var: Var| {
            let known = given.contains(&var) && !uses.contains(&var);
            if !known && !order.contains(&var) {
                order.push(var);
            }
        };
        for eqn in (mark.eqns..row(builder.num_appended())).map(Eqn::from_u32) {
            for atom in builder.eqn_invars(eqn) {
                if let AtomKind::Var(var) = atom.kind()
                    && matches!(builder.var(var).def, Def::Constvar(_))
                {
                    add(var);
                }
            }
        }
        others.iter().copied().for_each(add);
        let mut noted: Vec<Var> = Vec::new();
        for var in uses {
            if order.contains(&var) && !noted.contains(&var) {
                noted.push(var);
            }
        }
        noted == order
    })
}
