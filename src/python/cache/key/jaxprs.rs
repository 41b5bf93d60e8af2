//! Jaxprs in a key: by their number; and what a jaxpr consists of, which the number stands for.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::expand::Tag;
use crate::ir::{AtomKind, Effect, EffectsId, Var};

use crate::python::cache::key::canonical::shared;
use crate::python::cache::key::encoder::{Encoder, Mode};
use crate::python::cache::key::values::Held;
use crate::python::cache::programs::registry::{number_of, open};
use crate::python::cache::reasons::{
    CALLABLE, CONSTANTS, FOREIGN_TRACER, LITERAL_OF_OTHERS, REF, Reason, UNKNOWN_OBJECT,
};
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::is_of_others;
use crate::python::program::graph::{Graph, unfilled};
use crate::python::program::objects::{address, is_exactly};

impl<'py> Encoder<'_, 'py> {
    /// A jaxpr, by its number.
    pub(super) fn program(&mut self, value: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live argument.
        let value = unsafe { Bound::from_borrowed_ptr(self.py, value) };
        let (open, form) = open(self.jax, &value)?;
        let number = number_of(self.jax, &open)?;
        let word = Self::word_of(Item::Programs, number.raw());
        self.call.signature.pair(Tag::Program, form as usize, word);
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
        let words = self.jax.rule_words.bind(self.py);
        if words.is_none() {
            return Ok(false);
        }
        // SAFETY: a part of the program.
        let rule = unsafe { Bound::from_borrowed_ptr(self.py, rule) };
        let words = words.call1((rule,)).map_err(|_| UNKNOWN_OBJECT)?;
        let Ok((objects, values, held)) =
            words.extract::<(Bound<'_, PyTuple>, Bound<'_, PyAny>, Bound<'_, PyAny>)>()
        else {
            return Ok(false);
        };
        if !is_omitted(Item::DerivativeRules) {
            for object in objects.iter_borrowed() {
                self.identity(object.as_ptr());
            }
        }
        self.call.own().held.push(words.unbind());
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
    pub(in crate::python::cache) fn words_of(
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
            Some(graph) if !graph.get().is_derived() => self.words_of_graph(&graph),
            _ => self.words_of_lists(program),
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

    fn words_of_graph(&mut self, graph: &Bound<'py, Graph>) -> Result<(), Reason> {
        let (py, jax) = (self.py, self.jax);
        let program = Graph::unread(graph).program;
        let graph = graph.get();
        let side = graph.side();
        // Variables that were removed have numbers too.
        let mut places: Vec<u32> = vec![u32::MAX; program.num_vars()];
        let mut next = 0;
        let mut define = |encoder: &mut Self, places: &mut Vec<u32>, var: Var| {
            places[var.as_u32() as usize] = next;
            encoder.defined(next, &side.aval(py, program.var_type(var)))?;
            next += 1;
            Ok(())
        };
        let constvars: SmallVec<[Var; 4]> =
            program.constvars().iter().map(|&(var, _)| var).collect();
        for vars in [&constvars[..], program.invars()] {
            self.call.signature.tag(Tag::Sequence, vars.len());
            for &var in vars {
                define(self, &mut places, var)?;
            }
        }
        let atom = |encoder: &mut Self, places: &[u32], atom: AtomKind| match atom {
            AtomKind::Var(var) => {
                encoder.call.signature.tag(Tag::Variable, places[var.as_u32() as usize] as usize);
                Ok(())
            }
            AtomKind::Literal(literal) => {
                encoder.program_literal(&side.object(py, program.literal(literal).object))
            }
        };
        for id in program.eqns() {
            let data = program.eqn(id);
            if data.effects != EffectsId::NONE {
                let effects = program.effect_list(data.effects).iter();
                let of = |effect: &Effect| {
                    let place = effect.input.map(|var| places[var.as_u32() as usize] as usize);
                    (side.object(py, effect.object), place)
                };
                self.effects(effects.map(of))?;
            }
            let operands = program.eqn_invars(id);
            let primitive = side.object(py, program.primitive(data.primitive).object);
            self.equation(
                operands.len(),
                &primitive,
                &side.object(py, program.context(data.context)),
            )?;
            let source = program.source(data.source);
            let stack = match source.name_stack {
                Some(id) => side.source_object(py, id),
                None => jax.empty_name_stack.bind(py).clone(),
            };
            let traceback = source.traceback.map(|id| side.source_object(py, id));
            self.source(&SourceRef { traceback, name_stack: stack })?;
            self.value(side.params_dict(py, data.params).as_ptr(), 1)?;
            for operand in operands {
                atom(self, &places, operand.kind())?;
            }
            for var in program.eqn_outvars(id) {
                define(self, &mut places, var)?;
            }
        }
        self.call.signature.tag(Tag::Sequence, program.outvars().len());
        program.outvars().iter().try_for_each(|out| atom(self, &places, out.kind()))?;
        let effects = graph.effects(py);
        if effects.is_truthy().map_err(|_| UNKNOWN_OBJECT)? {
            let place = |(var, object): (Var, Bound<'py, PyAny>)| {
                (address(&object), places[var.as_u32() as usize] as usize)
            };
            let places = side.seen_vars(py).map(place).collect();
            self.effects_of(&effects, &places)?;
        }
        Ok(())
    }

    /// What equations do to Refs, each with the place of the Ref's variable.
    fn effects(
        &mut self,
        effects: impl Iterator<Item = (Bound<'py, PyAny>, Option<usize>)>,
    ) -> Result<(), Reason> {
        let jax = self.jax;
        let (known, with_input) =
            (jax.ref_effects.bind(self.py), jax.input_effect_type.bind(self.py));
        let mut words: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (effect, place) in effects {
            let needs_place = effect.is_instance(with_input).unwrap_or(true);
            if needs_place && place.is_none() || !known.contains(effect.get_type()).unwrap_or(false)
            {
                return Err(CONSTANTS);
            }
            // Jax's classes live as long as the process.
            words.push((effect.get_type_ptr() as usize, place.unwrap_or(usize::MAX >> 8)));
        }
        words.sort_unstable();
        for (class, place) in words {
            self.call.signature.pair(Tag::Effect, place, class as u64);
        }
        Ok(())
    }

    /// As `effects`, of a set of jax's; `places` are those of variables, by address.
    fn effects_of(
        &mut self,
        effects: &Bound<'py, PyAny>,
        places: &FxHashMap<usize, usize>,
    ) -> Result<(), Reason> {
        let mut all: SmallVec<[_; 4]> = SmallVec::new();
        for effect in effects.try_iter().map_err(|_| UNKNOWN_OBJECT)? {
            let effect = effect.map_err(|_| UNKNOWN_OBJECT)?;
            let input =
                effect.getattr_opt(intern!(self.py, "input")).map_err(|_| UNKNOWN_OBJECT)?;
            let place = input.and_then(|input| places.get(&address(&input)).copied());
            all.push((effect, place));
        }
        self.effects(all.into_iter())
    }

    fn words_of_lists(&mut self, program: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let (py, jax) = (self.py, self.jax);
        let unknown = |_| UNKNOWN_OBJECT;
        let list = |object: &Bound<'py, PyAny>, name: &str| {
            object.getattr(name).map_err(unknown)?.cast_into::<PyList>().map_err(|_| UNKNOWN_OBJECT)
        };
        let mut places: FxHashMap<usize, usize> = FxHashMap::default();
        let define = |encoder: &mut Self, places: &mut FxHashMap<_, _>, var: &Bound<'py, PyAny>| {
            let place = places.len();
            places.insert(address(var), place);
            if is_exactly(var.as_ptr(), jax.drop_var_type.as_ptr().cast()) {
                encoder.call.signature.tag(Tag::Variable, usize::MAX >> 8);
            }
            let aval = var.getattr(intern!(py, "aval")).map_err(unknown)?;
            encoder.defined(u32::try_from(place).unwrap_or(u32::MAX), &aval)
        };
        let atom = |encoder: &mut Self, places: &FxHashMap<usize, usize>, atom: &Bound<'py, _>| {
            if is_exactly(atom.as_ptr(), jax.literal_type.as_ptr().cast()) {
                return encoder.program_literal(atom);
            }
            let place = places.get(&address(atom)).ok_or(UNKNOWN_OBJECT)?;
            encoder.call.signature.tag(Tag::Variable, *place);
            Ok(())
        };
        for name in ["constvars", "invars"] {
            let vars = list(program, name)?;
            self.call.signature.tag(Tag::Sequence, vars.len());
            for var in vars.iter() {
                define(self, &mut places, &var)?;
            }
        }
        for eqn in list(program, "eqns")?.iter() {
            let get = |name: &str| eqn.getattr(name).map_err(unknown);
            self.effects_of(&get("effects")?, &places)?;
            let operands = list(&eqn, "invars")?;
            self.equation(operands.len(), &get("primitive")?, &get("ctx")?)?;
            self.source(&SourceRef::of(jax, &get("source_info")?).map_err(unknown)?)?;
            self.value(get("params")?.as_ptr(), 1)?;
            for operand in operands.iter() {
                atom(self, &places, &operand)?;
            }
            for var in list(&eqn, "outvars")?.iter() {
                define(self, &mut places, &var)?;
            }
        }
        let outvars = list(program, "outvars")?;
        self.call.signature.tag(Tag::Sequence, outvars.len());
        outvars.iter().try_for_each(|out| atom(self, &places, &out))?;
        self.effects_of(&program.getattr(intern!(py, "effects")).map_err(unknown)?, &places)
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
            Some(traceback) => self.traceback(traceback)?,
            // SAFETY: a constant of the interpreter.
            None => self.identity(unsafe { ffi::Py_None() }),
        }
        let stack = shared(&source.name_stack).map_err(|_| UNKNOWN_OBJECT)?;
        self.call.signature.pair(Tag::Identity, 2, stack.as_ptr() as u64);
        self.call.own().kept.push(stack.unbind());
        Ok(())
    }

    /// A variable where it is defined.
    fn defined(&mut self, place: u32, aval: &Bound<'py, PyAny>) -> Result<(), Reason> {
        self.call.signature.tag(Tag::Variable, place as usize);
        self.aval(aval)
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
