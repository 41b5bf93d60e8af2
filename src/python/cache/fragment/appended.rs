//! What was appended to a program under construction, read in one go.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ir::{Atom, AtomKind, Builder, Def, EffectsId, Eqn, LiteralId, Var};

use crate::python::cpython::shared::Quiet;
use crate::python::jax::names::Jax;
use crate::python::program::objects::ObjectTable;
use crate::python::trace::frame::{Frame, Mark};

type Object = Py<PyAny>;

/// An operand, and what is behind it.
pub enum Operand {
    Literal(LiteralId, Object),
    /// A variable of an input or of an equation.
    Computed(Var),
    /// A constant, its value and its type.
    Constant(Var, Object, Object),
}

/// An equation and its objects.
pub struct Equation {
    pub operands: Vec<Operand>,
    pub outs: Vec<(Var, Object)>,
    pub primitive: Object,
    pub params: Py<PyDict>,
    /// None where it has none.
    pub effects: Option<Object>,
    /// All of its effects, where some are on operands: the operand's position.
    pub on_operands: Vec<(bool, Option<usize>, Object)>,
    pub no_effects: Option<Object>,
    pub context: Object,
    pub traceback: Option<Object>,
    /// None for the empty one.
    pub name_stack: Option<Object>,
}

/// The live equations since a mark, and whether the program has types that are made of others; None
/// where it is finished.
pub fn appended_since(
    frame: &Bound<'_, Frame>,
    jax: &Jax,
    mark: Mark,
) -> Option<(Vec<Equation>, bool)> {
    frame.get().with(frame.py(), |state, quiet| {
        let (builder, side) = state.recorded()?;
        let end = u32::try_from(builder.num_appended()).unwrap_or(u32::MAX);
        let live = (mark.eqns..end).map(Eqn::from_u32).filter(|&eqn| builder.is_live(eqn));
        let read = Read { jax, builder, side, quiet };
        let equations = live.map(|eqn| read.equation(eqn)).collect::<Option<_>>()?;
        Some((equations, state.is_high()))
    })
}

struct Read<'a, 'py> {
    jax: &'a Jax,
    builder: &'a Builder,
    side: &'a ObjectTable,
    quiet: Quiet<'py>,
}

impl Read<'_, '_> {
    fn equation(&self, eqn: Eqn) -> Option<Equation> {
        let Self { jax, builder, side, quiet } = *self;
        let data = builder.eqn_data(eqn);
        let invars = builder.eqn_invars(eqn);
        let operands = invars.iter().map(|&atom| self.operand(atom)).collect::<Option<_>>()?;
        let out = |var| Some((var, side.aval_of(quiet, builder.type_of(var))?));
        let effects = builder.effect_list(data.effects);
        let mut on_operands = Vec::new();
        if effects.iter().any(|effect| effect.input.is_some()) {
            for effect in effects {
                let is_on = |atom: &Atom| effect.input.is_some_and(|var| *atom == Atom::var(var));
                let operand = invars.iter().position(is_on);
                let object = side.object_of(quiet, effect.object)?;
                on_operands.push((effect.input.is_some(), operand, object));
            }
        }
        let has_effects = data.effects != EffectsId::NONE;
        let source = builder.source_data(data.source);
        let of_source = |id| side.source_object_of(quiet, id);
        Some(Equation {
            operands,
            outs: data.outvars().map(out).collect::<Option<_>>()?,
            primitive: side.object_of(quiet, builder.primitive_data(data.primitive).object)?,
            params: side.params_of(quiet, data.params)?,
            effects: has_effects
                .then(|| side.effects_object(quiet, jax, data.effects, data.primitive)),
            on_operands,
            no_effects: side.stands_for_no_effects(data.primitive).map(|own| quiet.own(own)),
            context: side.object_of(quiet, builder.context_object(data.context))?,
            traceback: source.traceback.and_then(of_source),
            name_stack: source.name_stack.and_then(of_source),
        })
    }

    fn operand(&self, atom: Atom) -> Option<Operand> {
        let Self { builder, side, quiet, .. } = *self;
        match atom.kind() {
            AtomKind::Literal(id) => {
                let object = builder.literal_data(id).object;
                Some(Operand::Literal(id, side.seen_literal_of(quiet, id, object)?))
            }
            AtomKind::Var(var) => Some(match builder.var(var).def {
                Def::Constvar(id) => Operand::Constant(
                    var,
                    side.constant_of(quiet, id)?,
                    side.aval_of(quiet, builder.type_of(var))?,
                ),
                _ => Operand::Computed(var),
            }),
        }
    }
}
