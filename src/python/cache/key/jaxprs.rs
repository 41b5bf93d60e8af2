//! Jaxprs in a key: by their structural id; and what a jaxpr consists of, which the id stands for.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;

use crate::expand::{Local, Tag};

use crate::python::cache::key::canonical::canonical;
use crate::python::cache::key::encoder::{Encoder, Mode};
use crate::python::cache::key::values::Held;
use crate::python::cache::programs::forms::open;
use crate::python::cache::programs::structural_id::structural_id_of;
use crate::python::cache::reasons::{
    CALLABLE, CONSTANTS, FOREIGN_TRACER, LITERAL_OF_OTHERS, REF, Reason, UNKNOWN_OBJECT,
};
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::is_of_others;
use crate::python::program::jaxpr_view::{Effects, GraphView, JaxprView, ListsView, Operand};
use crate::python::program::lazy_jaxpr::unfilled;

impl<'py> Encoder<'_, 'py> {
    /// A jaxpr, by its structural id.
    pub(super) fn program(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live argument.
        let value = unsafe { Bound::from_borrowed_ptr(self.py, value) };
        let (open, form) = open(self.jax, &value)?;
        let id = structural_id_of(self.jax, &open)?;
        let key = Self::masked(Item::Programs, id.raw());
        self.call.signature.tag(Tag::Program, form as usize);
        self.call.signature.local(Local::Program, key);
        self.call.programs.push(value.as_ptr());
        if self.mode == (Mode::Program { of_jit: true }) {
            self.call.of_jits.push(value.as_ptr());
        }
        Ok(())
    }

    /// A function of jax's that traces a derivative rule, or goes with one; whether it is such a function.
    pub(super) fn derivative_rule(
        &mut self,
        rule: *mut ffi::PyObject,
        depth: u32,
    ) -> Result<bool, Reason> {
        let key = self.jax.rule_words.bind(self.py);
        if key.is_none() {
            return Ok(false);
        }
        // SAFETY: a part of the program.
        let rule = unsafe { Bound::from_borrowed_ptr(self.py, rule) };
        let key = key.call1((rule,)).map_err(|_| UNKNOWN_OBJECT)?;
        let Ok((objects, values, held)) =
            key.extract::<(Bound<'_, PyTuple>, Bound<'_, PyAny>, Bound<'_, PyAny>)>()
        else {
            return Ok(false);
        };
        if !is_omitted(Item::DerivativeRules) {
            for object in objects.iter_borrowed() {
                self.identity(object.as_ptr());
            }
        }
        self.call.own().held.push(key.unbind());
        let programs = self.call.programs.len();
        self.item(Item::DerivativeRules, values.as_ptr(), depth + 1)?;
        // Last, since it takes longest.
        let holds = self.jax.may_hold_tracers.bind(self.py).call1((held,));
        if holds.and_then(|holds| holds.is_truthy()).map_err(|_| UNKNOWN_OBJECT)? {
            return Err(CALLABLE);
        }
        // A program that a rule refers to may have variables that others have too.
        if self.call.programs.len() > programs { Err(UNKNOWN_OBJECT) } else { Ok(true) }
    }

    /// What an open jaxpr consists of.
    pub(in crate::python::cache) fn open_jaxpr(
        &mut self,
        program: &Bound<'py, PyAny>,
    ) -> Result<(), Reason> {
        let py = self.py;
        let get = |name| program.getattr(name).map_err(|_| UNKNOWN_OBJECT);
        let is_true = |value: Bound<'py, PyAny>| value.is_truthy().map_err(|_| UNKNOWN_OBJECT);
        if is_true(get(intern!(py, "is_high"))?)? {
            return Err(REF);
        }
        let names = get(intern!(py, "debug_info"))?;
        for name in ["traced_for", "func_src_info", "arg_names", "result_paths"] {
            let text = names.getattr(name).map_err(|_| UNKNOWN_OBJECT)?;
            self.names(&text)?;
        }
        match unfilled(self.jax, program) {
            Some(graph) if !graph.get().is_derived() => {
                self.view(&GraphView::new(self.jax, &graph))
            }
            _ => self.view(&ListsView::new(self.jax, program)),
        }
    }

    /// A text, or some, or None.
    fn names(&mut self, names: &Bound<'py, PyAny>) -> Result<(), Reason> {
        if let Ok(names) = names.cast_exact::<PyTuple>() {
            self.call.signature.tag(Tag::Sequence, names.len());
            return names.iter().try_for_each(|name| self.names(&name));
        }
        if names.is_none() || names.is_exact_instance_of::<pyo3::types::PyString>() {
            return self.value(names.as_ptr(), 0);
        }
        Err(UNKNOWN_OBJECT)
    }

    /// The variables, equations and outputs of a jaxpr.
    fn view<V: JaxprView<'py>>(&mut self, view: &V) -> Result<(), Reason> {
        let unknown = |_| UNKNOWN_OBJECT;
        let mut places = Places { of: vec![u32::MAX; view.num_vars()], next: 0 };
        for vars in [view.constvars(), view.invars()] {
            let vars = vars.map_err(unknown)?;
            self.call.signature.tag(Tag::Sequence, vars.len());
            vars.iter().try_for_each(|var| self.define(view, &mut places, var))?;
        }
        for eqn in view.eqns().map_err(unknown)? {
            let eqn = eqn.ok_or(UNKNOWN_OBJECT)?;
            self.effects(view.eqn_effects(&eqn).map_err(unknown)?, &places)?;
            let operands = view.eqn_invars(&eqn);
            self.equation(operands.len(), &view.primitive(&eqn), &view.context(&eqn))?;
            self.source(&view.source(&eqn).map_err(unknown)?)?;
            self.value(view.params(&eqn).as_ptr(), 1)?;
            for operand in operands {
                self.operand(view, &places, &operand)?;
            }
            for var in view.eqn_outvars(&eqn) {
                self.define(view, &mut places, &var)?;
            }
        }
        let outvars = view.outvars().map_err(unknown)?;
        self.call.signature.tag(Tag::Sequence, outvars.len());
        outvars.iter().try_for_each(|out| self.operand(view, &places, out))?;
        self.effects(view.effects().map_err(unknown)?, &places)
    }

    /// A variable where it is defined.
    fn define<V: JaxprView<'py>>(
        &mut self,
        view: &V,
        places: &mut Places,
        var: &V::Var,
    ) -> Result<(), Reason> {
        if view.is_dropped(var) {
            self.call.signature.tag(Tag::Variable, usize::MAX >> 8);
        }
        let place = places.define(view.number(var));
        self.call.signature.tag(Tag::Variable, place as usize);
        self.aval(&view.aval(var).map_err(|_| UNKNOWN_OBJECT)?)
    }

    fn operand<V: JaxprView<'py>>(
        &mut self,
        view: &V,
        places: &Places,
        operand: &Operand<'py, V::Var>,
    ) -> Result<(), Reason> {
        match operand {
            Operand::Literal(literal) => self.program_literal(literal),
            Operand::Var(var) => {
                let place = places.get(view.number(var)).ok_or(UNKNOWN_OBJECT)?;
                self.call.signature.tag(Tag::Variable, place as usize);
                Ok(())
            }
        }
    }

    /// What is done to Refs, each with the place of the Ref's variable.
    fn effects(&mut self, effects: Effects<'py>, places: &Places) -> Result<(), Reason> {
        if effects.is_empty() {
            return Ok(());
        }
        let jax = self.jax;
        let (known, with_input) =
            (jax.ref_effects.bind(self.py), jax.input_effect_type.bind(self.py));
        let mut all: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (effect, number) in effects {
            let place = number.and_then(|number| places.get(number)).map(|place| place as usize);
            let needs_place = effect.is_instance(with_input).unwrap_or(true);
            if needs_place && place.is_none() || !known.contains(effect.get_type()).unwrap_or(false)
            {
                return Err(CONSTANTS);
            }
            // Jax's classes live as long as the process.
            all.push((effect.get_type_ptr() as usize, place.unwrap_or(usize::MAX >> 8)));
        }
        all.sort_unstable();
        for (class, place) in all {
            self.call.signature.address(Tag::Effect, place, class as u64);
        }
        Ok(())
    }

    /// An equation but for its source, params, operands and outputs.
    fn equation(
        &mut self,
        operands: usize,
        primitive: &Bound<'py, PyAny>,
        context: &Bound<'py, PyAny>,
    ) -> Result<(), Reason> {
        self.mode = Mode::Program { of_jit: self.jax.is_jit(primitive) };
        self.call.signature.tag(Tag::Equation, operands);
        self.primitive(primitive.as_ptr())?;
        self.identity(context.as_ptr());
        Ok(())
    }

    fn source(&mut self, source: &SourceRef<'py>) -> Result<(), Reason> {
        match &source.traceback {
            Some(traceback) => drop(self.traceback(traceback)?),
            // SAFETY: a constant of the interpreter.
            None => self.identity(unsafe { ffi::Py_None() }),
        }
        let stack = canonical(&source.name_stack).map_err(|_| UNKNOWN_OBJECT)?;
        self.call.signature.address(Tag::Identity, 2, stack.as_ptr() as u64);
        self.call.own().kept.push(stack.unbind());
        Ok(())
    }

    fn program_literal(&mut self, literal: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let slots = &self.jax.slots;
        // SAFETY: a live jax `Literal`.
        let (value, aval) =
            unsafe { (slots.literal_val.get(literal), slots.literal_aval.get(literal)) };
        let (value, aval) = value.zip(aval).ok_or(FOREIGN_TRACER)?;
        if is_of_others(self.jax, &value).map_err(|_| UNKNOWN_OBJECT)? {
            return Err(LITERAL_OF_OTHERS);
        }
        self.literal_value(value.as_ptr(), aval.as_ptr(), Held::Bare)
    }
}

/// The variables of a jaxpr in the order of their definition.
struct Places {
    /// By the number of the variable.
    of: Vec<u32>,
    next: u32,
}

impl Places {
    fn define(&mut self, number: u32) -> u32 {
        let (index, place) = (number as usize, self.next);
        if index >= self.of.len() {
            self.of.resize(index + 1, u32::MAX);
        }
        self.of[index] = place;
        self.next += 1;
        place
    }

    /// None where it is not defined yet.
    fn get(&self, number: u32) -> Option<u32> {
        self.of.get(number as usize).copied().filter(|&place| place != u32::MAX)
    }
}
