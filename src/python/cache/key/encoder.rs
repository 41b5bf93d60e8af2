//! Encodes values as a key.
//!
//! Nothing here runs Python code or allocates Python objects. What has no faithful key is
//! refused, with the reason why, and the call runs as it would without a cache.

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::expand::{Local, Tag};
use crate::ir::Atom;

use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::canonical::canonical_traceback;
use crate::python::cache::key::functions::{FunctionEffects, Functions};
use crate::python::cache::key::trace_context::TraceContext;
use crate::python::cache::key::transformations::Stack;
use crate::python::cache::key::whole::Whole;
use crate::python::cache::programs::forms::open;
use crate::python::cache::programs::registry::{first_transposed_at, serial_as_given};
use crate::python::cache::reasons::{
    CHANGES, FOLDS_EAGERLY, Reason, UNKNOWN_OBJECT, USERS_PRIMITIVE, WRITES,
};
use crate::python::cpython::native::address;
use crate::python::jax::names::Jax;
use crate::python::jax::omit::{Item, is_omitted};
use crate::python::jax::world::owns_primitive;
use crate::python::trace::abstract_eval::Context;

/// What is being encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The arguments of a function: programs among them have no key.
    Arguments,
    /// The operands and params of a rule, programs among them.
    Rule {
        /// Arrays of numpy's are known by their types, too: they are passed on, and nothing looks into
        /// them.
        passes_arrays: bool,
    },
    /// The params of an equation, which may have derivative rules.
    Equation,
    /// Part of a program: nothing in it is traced.
    Program {
        /// It is the params of a jit.
        of_jit: bool,
    },
}

impl Mode {
    pub(super) fn has_programs(self) -> bool {
        self != Self::Arguments
    }

    pub(super) fn is_program(self) -> bool {
        matches!(self, Self::Program { .. })
    }

    /// Whether there may be derivative rules.
    pub(super) fn has_rules(self) -> bool {
        matches!(self, Self::Equation | Self::Program { .. })
    }
}

/// Writes a key.
pub struct Encoder<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) jax: &'a Jax,
    pub(super) trace: *mut ffi::PyObject,
    pub(super) context: Option<&'a TraceContext<'py>>,
    pub(super) stack: Option<&'a Stack>,
    pub(super) call: &'a mut Call,
    /// The first position of each traced value, where there are many.
    pub(super) first: FxHashMap<Atom, usize>,
    /// The first position of each tracer of a literal, and of each literal.
    pub(super) first_literal: FxHashMap<usize, usize>,
    /// The functions whose parts are being written, innermost last.
    pub(super) within: SmallVec<[*mut ffi::PyObject; 4]>,
    /// What the functions among the arguments do.
    pub(super) effects: FunctionEffects,
    /// There are lists or dicts.
    pub(super) mutable: bool,
    pub(super) functions: Functions,
    pub(super) mode: Mode,
    /// What is known of something that is traced as a whole.
    pub(super) whole: Whole,
}

impl<'a, 'py> Encoder<'a, 'py> {
    /// Starts with the transformations of the trace context.
    pub(super) fn new(
        py: Python<'py>,
        jax: &'a Jax,
        context: &'a TraceContext<'py>,
        call: &'a mut Call,
    ) -> Self {
        let stack = context.stack();
        if let Some(stack) = stack {
            call.signature.extend(stack.key());
            if let Some(key) = context.scope_key() {
                call.signature.extend(key);
            }
        }
        Self {
            trace: context.trace.as_ptr(),
            context: Some(context),
            stack,
            functions: Functions::Rules,
            mode: Mode::Arguments,
            ..Self::of_program(py, jax, call)
        }
    }

    /// Writes what a program consists of.
    pub(in crate::python::cache) fn of_program(
        py: Python<'py>,
        jax: &'a Jax,
        call: &'a mut Call,
    ) -> Self {
        Self {
            py,
            jax,
            trace: std::ptr::null_mut(),
            context: None,
            stack: None,
            call,
            first: FxHashMap::default(),
            first_literal: FxHashMap::default(),
            within: SmallVec::new(),
            effects: FunctionEffects::default(),
            mutable: false,
            functions: Functions::Params,
            mode: Mode::Program { of_jit: false },
            whole: Whole::default(),
        }
    }

    /// The traceback that all equations are given, those of nested programs too.
    pub(super) fn given_traceback(&mut self, context: &TraceContext<'py>) -> Result<(), Reason> {
        if let Some(traceback) = context.given_traceback() {
            self.traceback(&traceback)?;
        }
        Ok(())
    }

    /// As `given_traceback`, where the programs are transposed. jax transposes a program once for operands
    /// of the same `kinds`: where it did before, the equations have the traceback of then.
    pub(super) fn transposed_at(
        &mut self,
        context: &TraceContext<'py>,
        kinds: u64,
    ) -> Result<(), Reason> {
        let Some(traceback) = context.given_traceback() else { return Ok(()) };
        let now = self.traceback(&traceback)?;
        for program in self.call.programs.clone() {
            // SAFETY: an argument of the call.
            let program = unsafe { Bound::from_borrowed_ptr(self.py, program) };
            let (open, _) = open(self.jax, &program)?;
            let given = serial_as_given(&open, &program);
            let first = first_transposed_at(&open, given, kinds, &now);
            let first = self.traceback(&first)?;
            self.call.transposed_at.push(address(&first));
        }
        Ok(())
    }

    /// Where the call happens, which is part of it from now on.
    pub(super) fn locate(&mut self) -> Result<(), Reason> {
        let source = self.context.and_then(|context| context.source(self.jax).ok());
        let traceback = source.and_then(|source| source.traceback).ok_or(UNKNOWN_OBJECT)?;
        self.call.located = true;
        if is_omitted(Item::Lines) {
            return Ok(());
        }
        self.traceback(&traceback).map(drop)
    }

    /// A traceback, by the one that stands for all that are equal, which is returned.
    pub(super) fn traceback(
        &mut self,
        traceback: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>, Reason> {
        let canonical = canonical_traceback(self.jax, traceback).map_err(|_| UNKNOWN_OBJECT)?;
        self.call.signature.tag(Tag::Identity, 1);
        self.call.signature.local(Local::Traceback, address(&canonical) as u64);
        let kept = canonical.clone().unbind();
        if self.mode.is_program() {
            self.call.own().tracebacks.push(kept);
        } else {
            self.call.own().kept.push(kept);
        }
        Ok(canonical)
    }

    /// A value that is part of an item of the key.
    pub(super) fn item(
        &mut self,
        item: Item,
        value: *mut ffi::PyObject,
        depth: u32,
    ) -> Result<(), Reason> {
        if is_omitted(item) { Ok(()) } else { self.value(value, depth) }
    }

    /// What stands for something that is part of an item of the key; zero where that is left out.
    pub(super) fn masked(item: Item, key: u64) -> u64 {
        if is_omitted(item) { 0 } else { key }
    }

    /// A primitive, whose rules have to be jax's.
    pub(super) fn primitive(&mut self, primitive: *mut ffi::PyObject) -> Result<(), Reason> {
        // SAFETY: a live object, as part of an equation.
        let object = unsafe { Bound::from_borrowed_ptr(self.py, primitive) };
        if !owns_primitive(self.jax, &object) {
            return Err(USERS_PRIMITIVE);
        }
        self.identity(primitive);
        Ok(())
    }

    #[inline]
    pub(super) fn pin(&mut self, object: *mut ffi::PyObject) {
        if let Some(pins) = &mut self.call.pins {
            pins.push(object);
        }
    }

    pub(super) fn identity(&mut self, value: *mut ffi::PyObject) {
        self.call.signature.address(Tag::Identity, 0, value as u64);
        self.pin(value);
    }

    /// Refuses functions that change lists, dicts or arrays, where there are some that are not theirs, and arrays where
    /// what is done with them is computed at once.
    pub(super) fn finish(&self) -> Result<(), Reason> {
        if self.call.has_arrays
            && Context::current(self.py, self.jax).map_or(true, |context| context.eager_folding)
        {
            return Err(FOLDS_EAGERLY);
        }
        let changes = self.effects.changes && self.mutable
            || self.effects.fills && self.call.has_mutable_arrays;
        if changes && !is_omitted(Item::Effects) {
            return Err(CHANGES);
        }
        if self.effects.writes { Err(WRITES) } else { Ok(()) }
    }
}
