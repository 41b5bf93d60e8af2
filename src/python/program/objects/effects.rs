//! Effects of equations.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PySet;

use crate::ir::{Builder, Effect, EffectsId, PrimitiveId, Program, Var};

use crate::python::cpython::native::address;
use crate::python::cpython::shared::Quiet;
use crate::python::jax::names::Jax;
use crate::python::program::objects::{Object, ObjectTable};

impl ObjectTable {
    /// Interns a non-empty set of resolved effects.
    pub fn effects_id(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        effects: &Bound<'_, PyAny>,
    ) -> PyResult<EffectsId> {
        let read = ReadEffects::of(jax, effects)?;
        Ok(self.effects_of(builder, &read, Quiet::of(effects.py())))
    }

    /// As `effects_id`, of effects that were read.
    pub fn effects_of(
        &mut self,
        builder: &mut Builder,
        effects: &ReadEffects,
        quiet: Quiet<'_>,
    ) -> EffectsId {
        let ReadEffects { set, list } = effects;
        let mut canonical: Vec<Effect> = list
            .iter()
            .map(|(name, input, effect)| Effect {
                name: name.clone(),
                input: input.and_then(|address| self.vars.var_at(address)),
                object: self.handle_of(effect, quiet),
            })
            .collect();
        canonical.sort_by(|a, b| (&a.name, a.input, a.object).cmp(&(&b.name, b.input, b.object)));
        let id = builder.effects(&canonical);
        if id != EffectsId::NONE {
            self.effects.entry(id).or_insert_with(|| quiet.own(set));
        }
        id
    }

    /// Gives the equations of a fresh copy effects on its own variables.
    ///
    /// # Errors
    /// An effect cannot be replaced.
    pub fn set_own_effects(
        &mut self,
        py: Python<'_>,
        jax: &Jax,
        program: &Program,
    ) -> PyResult<()> {
        let ids: Vec<EffectsId> = self.effects.keys().copied().collect();
        for id in ids {
            let list = program.effect_list(id);
            if list.iter().all(|effect| effect.input.is_none()) {
                continue;
            }
            let own = PySet::empty(py)?;
            for effect in list {
                let object = self.object(py, effect.object);
                own.add(match effect.input {
                    Some(var) => self.own_effect(jax, program, &object, var)?,
                    None => object,
                })?;
            }
            self.effects.insert(id, own.into_any().unbind());
        }
        Ok(())
    }

    /// A set of effects, those on variables of the recorded program on those of the fresh copy.
    ///
    /// # Errors
    /// An effect cannot be replaced.
    pub fn own_effects<'py>(
        &mut self,
        jax: &Jax,
        program: &Program,
        effects: &Bound<'py, PyAny>,
        recorded: &Self,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = effects.py();
        let own = PySet::empty(py)?;
        let mut is_own = false;
        for effect in effects.try_iter()? {
            let effect = effect?;
            let input = effect.getattr_opt(intern!(py, "input"))?;
            own.add(match input.and_then(|input| recorded.var_of(&input)) {
                Some(var) => {
                    is_own = true;
                    self.own_effect(jax, program, &effect, var)?
                }
                None => effect,
            })?;
        }
        Ok(if is_own { own.into_any() } else { effects.clone() })
    }

    fn own_effect<'py>(
        &mut self,
        jax: &Jax,
        program: &Program,
        effect: &Bound<'py, PyAny>,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = effect.py();
        let own = self.var_object(py, jax, program.var_type(var), var)?;
        effect.call_method1(intern!(py, "replace"), (own,))
    }

    /// Notes what `primitive` says for no effects, where that is not an empty set; the first stays.
    pub fn note_no_effects(&mut self, primitive: PrimitiveId, effects: &Bound<'_, PyAny>) {
        self.note_no_effects_of(primitive, effects.as_unbound(), Quiet::of(effects.py()));
    }

    /// As `note_no_effects`.
    pub fn note_no_effects_of(
        &mut self,
        primitive: PrimitiveId,
        effects: &Object,
        quiet: Quiet<'_>,
    ) {
        // SAFETY: a live object; classes are compared.
        let is_set = unsafe { ffi::PyAnySet_Check(effects.as_ptr()) != 0 };
        if !is_set {
            self.no_effects.entry(primitive).or_insert_with(|| quiet.own(effects));
        }
    }

    /// What `primitive` says for no effects, where that is not an empty set.
    pub fn stands_for_no_effects(&self, primitive: PrimitiveId) -> Option<&Object> {
        self.no_effects.get(&primitive)
    }

    /// The effects of an equation of `primitive`.
    pub fn effects<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        id: EffectsId,
        primitive: PrimitiveId,
    ) -> Bound<'py, PyAny> {
        self.effects_object(Quiet::of(py), jax, id, primitive).into_bound(py)
    }

    /// As `effects`.
    pub fn effects_object(
        &self,
        quiet: Quiet<'_>,
        jax: &Jax,
        id: EffectsId,
        primitive: PrimitiveId,
    ) -> Object {
        let known = match id {
            EffectsId::NONE => self.no_effects.get(&primitive),
            _ => self.effects.get(&id),
        };
        quiet.own(known.unwrap_or(&jax.no_effects))
    }
}

/// The effects of an equation, as far as only Python can tell.
pub struct ReadEffects {
    set: Object,
    /// The name, the address of the input that it is on, and the effect, which keeps the input.
    list: Vec<(Box<str>, Option<usize>, Object)>,
}

impl ReadEffects {
    /// # Errors
    /// An effect cannot be read.
    pub fn of(jax: &Jax, effects: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = effects.py();
        let mut list = Vec::new();
        for effect in effects.try_iter()? {
            let effect = effect?;
            let input = if effect.is_instance(jax.input_effect_type.bind(py))? {
                Some(address(&effect.getattr(intern!(py, "input"))?))
            } else {
                None
            };
            let name = effect.get_type().name()?.to_str()?.into();
            list.push((name, input, effect.unbind()));
        }
        Ok(Self { set: effects.clone().unbind(), list })
    }
}
