//! Traced values and concrete arrays in a key: by their types, and by which of them are one.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::expand::Tag;
use crate::ir::{Atom, Var};

use crate::python::cache::key::canonical::canonical;
use crate::python::cache::key::encoder::{Encoder, Mode};
use crate::python::cache::key::functions::Functions;
use crate::python::cache::key::transformations::{Parts, Stack, is_transformed};
use crate::python::cache::key::values::Held;
use crate::python::cache::reasons::{
    CAPTURED_CONSTANT, CAPTURES, CONCRETE_ARRAY, FOREIGN_TRACER, REF, Reason, TANGENT, TWO_TRACERS,
    UNKNOWN_OBJECT,
};
use crate::python::cpython::native::is_exactly;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::trace::tracer::{Traced as Tracer, constant_of, traced};

impl Encoder<'_, '_> {
    pub(super) fn is_traced(&self, value: *mut ffi::PyObject) -> bool {
        // SAFETY: types only; no Python runs.
        unsafe {
            let tracer = self.jax.any_tracer_type.as_ptr().cast();
            ffi::PyType_IsSubtype(ffi::Py_TYPE(value), tracer) != 0
        }
    }

    /// A traced value that a function refers to.
    pub(super) fn captured(&mut self, object: *mut ffi::PyObject) -> Result<(), Reason> {
        if !matches!(self.functions, Functions::Typed { .. }) {
            return Err(CAPTURES);
        }
        // SAFETY: a tracer, whose trace has jax's slots.
        let is_over = unsafe {
            let trace = self.jax.slots.tracer_trace.peek(object);
            trace.is_null() || self.jax.slots.trace_invalidated.peek(trace) != ffi::Py_False()
        };
        // To use it would be an error.
        if is_over {
            return Err(CAPTURES);
        }
        let aval = self.array_type(object)?;
        self.call.signature.address(Tag::Traced, 0, aval as u64);
        self.pin(aval);
        Ok(())
    }

    /// A value of an enclosing trace. Objects count: each is a constant of its own. So do their
    /// classes, which `stop_gradient` asks for.
    pub(super) fn enclosing(&mut self, object: *mut ffi::PyObject) -> Result<(), Reason> {
        let aval = self.type_of(object)?;
        self.passed(object, aval);
        // SAFETY: a live object.
        self.identity(unsafe { ffi::Py_TYPE(object) }.cast());
        self.ref_within(aval)
    }

    fn passed(&mut self, object: *mut ffi::PyObject, aval: *mut ffi::PyObject) {
        let position = self.call.enclosing.len();
        let known = self.call.enclosing.iter().position(|&known| known == object);
        let key = self.type_key(aval);
        self.call.signature.address(Tag::Enclosing, known.unwrap_or(position), key);
        if known.is_none() {
            self.call.enclosing.push(object);
        }
    }

    /// A concrete array, which is a constant of the program that records: its type stands for it, since
    /// a call that looks into an array is not kept. One without dimensions may become a literal.
    pub(super) fn concrete(
        &mut self,
        value: *mut ffi::PyObject,
        class: *mut ffi::PyTypeObject,
    ) -> Result<bool, Reason> {
        let of_jax = class == self.jax.array_type.as_ptr().cast();
        // SAFETY: looking up a type runs no Python code.
        let plain = || unsafe {
            ffi::PySet_Contains(self.jax.plain_const_types.as_ptr(), class.cast()) == 1
        };
        // A function may look into an array of numpy's, and nobody would notice.
        let passes_arrays =
            self.mode == Mode::Rule { passes_arrays: true } && self.within.is_empty();
        if self.mode.is_program() || !(of_jax || passes_arrays && plain()) {
            return Ok(false);
        }
        let py = self.py;
        // SAFETY: a live argument, of a class of jax's.
        let array = unsafe { Bound::from_borrowed_ptr(py, value) };
        let field = |name| array.getattr(name).map_err(|_| UNKNOWN_OBJECT);
        let aval = if of_jax {
            field(intern!(py, "aval"))?
        } else {
            self.jax.typeof_fn.bind(py).call1((&array,)).map_err(|_| UNKNOWN_OBJECT)?
        };
        let shape = aval.getattr(intern!(py, "shape")).ok();
        let dims = shape.and_then(|shape| shape.cast_into::<PyTuple>().ok());
        if dims.is_none_or(|dims| dims.is_empty())
            || !is_exactly(aval.as_ptr(), self.jax.shaped_array_type.as_ptr().cast())
        {
            return Ok(false);
        }
        if self.within.is_empty() {
            self.passed(value, aval.as_ptr());
        } else if let Functions::Typed { .. } = self.functions {
            self.call.signature.address(Tag::Traced, 0, aval.as_ptr() as u64);
            self.pin(aval.as_ptr());
        } else {
            return Ok(false);
        }
        self.call.own().kept.push(aval.unbind());
        self.call.has_arrays = true;
        let bound = of_jax && field(intern!(py, "_committed"))?.is_truthy().unwrap_or(true);
        self.call.signature.tag(Tag::Concrete, usize::from(bound));
        if bound {
            let devices =
                canonical(&field(intern!(py, "sharding"))?).map_err(|_| UNKNOWN_OBJECT)?;
            self.identity(devices.as_ptr());
            self.call.own().kept.push(devices.unbind());
        }
        Ok(true)
    }

    /// A tracer of a concrete array: the array, as which it is an operand.
    pub(super) fn constant(&mut self, tracer: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live argument.
        let object = unsafe { Bound::from_borrowed_ptr(self.py, tracer) };
        let class = self.jax.array_type.as_ptr().cast();
        let value = constant_of(self.jax, &object);
        let value = value.filter(|value| is_exactly(value.as_ptr(), class));
        let value = value.ok_or(CAPTURED_CONSTANT)?;
        let known = self.call.enclosing.contains(&value.as_ptr());
        if known && !self.call.traced.contains(&tracer) {
            return Err(TWO_TRACERS);
        }
        let aval = self.array_type(tracer)?;
        self.passed(value.as_ptr(), aval);
        self.call.signature.tag(Tag::Concrete, 2);
        self.call.own().kept.push(value.unbind());
        self.call.has_arrays = true;
        self.call.traced.push(tracer);
        Ok(())
    }

    pub(super) fn array_type(
        &self,
        tracer: *mut ffi::PyObject,
    ) -> Result<*mut ffi::PyObject, Reason> {
        // SAFETY: a tracer of ours, which has jax's slots.
        let aval = unsafe { self.jax.slots.tracer_aval.peek(tracer) };
        if aval.is_null() || !is_exactly(aval, self.jax.shaped_array_type.as_ptr().cast()) {
            return Err(REF);
        }
        Ok(aval)
    }

    /// The type of a traced value: of an array, or of a Ref, which `ref_within` encodes, since
    /// equal ones are several objects.
    pub(super) fn type_of(&self, tracer: *mut ffi::PyObject) -> Result<*mut ffi::PyObject, Reason> {
        // SAFETY: a tracer of ours, which has jax's slots.
        let aval = unsafe { self.jax.slots.tracer_aval.peek(tracer) };
        if !aval.is_null() && is_exactly(aval, self.jax.ref_type.as_ptr().cast()) {
            return Ok(aval);
        }
        self.array_type(tracer)
    }

    pub(super) fn ref_within(&mut self, aval: *mut ffi::PyObject) -> Result<(), Reason> {
        if !is_exactly(aval, self.jax.ref_type.as_ptr().cast()) {
            return Ok(());
        }
        // SAFETY: the type of a live tracer.
        self.ref_type(&unsafe { Bound::from_borrowed_ptr(self.py, aval) })
    }

    /// What names a type: its identity, but for those of Refs.
    pub(super) fn type_key(&mut self, aval: *mut ffi::PyObject) -> u64 {
        if is_exactly(aval, self.jax.ref_type.as_ptr().cast()) {
            return 0;
        }
        self.pin(aval);
        Self::masked(Item::Types, aval as u64)
    }

    /// A value under transformations. Objects count here, since a tangent's program knows primal
    /// values as objects.
    pub(super) fn transformed(
        &mut self,
        stack: &Stack,
        value: *mut ffi::PyObject,
        level: usize,
        parts: Parts,
    ) -> Result<(), Reason> {
        let position = self.call.traced.len();
        let known = self.call.traced.iter().position(|&traced| traced == value);
        self.call.signature.tag(Tag::Transformed, known.unwrap_or(position));
        if known.is_some() {
            return Ok(());
        }
        let aval = self.type_of(value)?;
        let key = self.type_key(aval);
        self.call.signature.address(Tag::Transformation, level, key);
        self.ref_within(aval)?;
        self.call.traced.push(value);
        for part in parts.below() {
            self.part(stack, part, level + 1)?;
        }
        match parts {
            Parts::Jvp { .. } => {}
            Parts::Batch { dim, .. } => {
                // One that is not mapped, which `shard_map` makes, has None.
                // SAFETY: a live object; the constant is the interpreter's.
                if unsafe { ffi::PyLong_CheckExact(dim) == 0 && dim != ffi::Py_None() } {
                    return Err(UNKNOWN_OBJECT);
                }
                self.value(dim, 0)?;
            }
            Parts::Linearize { tangent, .. } => {
                let var = stack
                    .linearization(level)
                    .and_then(|linearization| {
                        linearization.tangent_variable(self.py, self.jax, tangent)
                    })
                    .ok_or(TANGENT)?;
                let atom = (level, Atom::var(var));
                let aval = self.type_of(tangent)?;
                let position = self.call.tangents.len();
                let first = self.call.tangents.iter().position(|&known| known == atom);
                let key = self.type_key(aval);
                self.call.signature.address(Tag::Traced, first.unwrap_or(position), key);
                self.ref_within(aval)?;
                self.call.traced.push(tangent);
                self.call.tangents.push(atom);
            }
        }
        Ok(())
    }

    /// A part of such a value, of the levels from `level` on.
    fn part(
        &mut self,
        stack: &Stack,
        part: *mut ffi::PyObject,
        level: usize,
    ) -> Result<(), Reason> {
        match traced(self.py, self.jax, part, self.trace) {
            Some(Tracer::Variable(var)) => self.variable(part, var),
            Some(Tracer::Constant) => self.constant(part),
            Some(Tracer::Literal) => Err(CAPTURED_CONSTANT),
            Some(Tracer::Enclosing) => self.enclosing(part),
            Some(Tracer::Foreign) => Err(FOREIGN_TRACER),
            None => match stack.parts(self.py, self.jax, part, level) {
                Some((level, parts)) => self.transformed(stack, part, level, parts),
                None if is_transformed(self.jax, part) => self.enclosing(part),
                // SAFETY: a part of a live tracer.
                None if self.concrete(part, unsafe { ffi::Py_TYPE(part) })? => Ok(()),
                None => Err(CONCRETE_ARRAY),
            },
        }
    }

    pub(super) fn variable(&mut self, object: *mut ffi::PyObject, var: Var) -> Result<(), Reason> {
        let aval = self.type_of(object)?;
        // The same value twice is another call than two values of one type.
        let position = self.call.args.len();
        let first = if position < 16 {
            self.call.args.iter().position(|&arg| arg == Atom::var(var)).unwrap_or(position)
        } else {
            if self.first.is_empty() {
                for (position, &arg) in self.call.args.iter().enumerate() {
                    self.first.entry(arg).or_insert(position);
                }
            }
            *self.first.entry(Atom::var(var)).or_insert(position)
        };
        if self.stack.is_some_and(Stack::linearizes)
            && first < position
            && !self.call.traced.contains(&object)
        {
            return Err(TWO_TRACERS);
        }
        let key = self.type_key(aval);
        let first = if is_omitted(Item::Repetition) { position } else { first };
        self.call.signature.address(Tag::Traced, first, key);
        self.call.traced.push(object);
        self.call.args.push(Atom::var(var));
        self.ref_within(aval)
    }

    /// A tracer of a literal: the literal's type and value.
    pub(super) fn literal(&mut self, tracer: *mut ffi::PyObject) -> Result<(), Reason> {
        let slots = &self.jax.slots;
        // SAFETY: `traced` found a tracer of ours whose `val` is a jax `Literal`.
        let (literal, value, aval) = unsafe {
            let literal = slots.tracer_val.peek(tracer);
            (literal, slots.literal_val.peek(literal), slots.tracer_aval.peek(tracer))
        };
        self.literal_value(value, aval, Held::ByTracer)?;
        // The same one twice is another call than two that are equal.
        let position = self.call.literals.len();
        let mut first = |object: *mut ffi::PyObject| {
            *self.first_literal.entry(object as usize).or_insert(position) as u64
        };
        let (same_tracer, same_literal) = (first(tracer), first(literal));
        if !is_omitted(Item::Repetition) {
            self.call.signature.word(same_tracer);
            self.call.signature.word(same_literal);
        }
        self.call.literals.push(tracer);
        Ok(())
    }
}
