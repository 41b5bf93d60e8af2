//! Reads what a call appended to one program, as a fragment.
//!
//! There are two passes. The first takes equations apart and gives rows to their types, literals and
//! constants. Then the order of the constants is known, and the second makes templates and rows of scopes.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::expand::{Fragment, Operand, Template};
use crate::ir::{Atom, LiteralId, Var};

use crate::python::cache::fragment::appended::{Equation, Operand as Appended, appended_since};
use crate::python::cache::fragment::recorded::{
    Captured, EquationObjects, OnOperand, Part, Rows, Scope,
};
use crate::python::cache::fragment::sources::{begins_apart, below, is_within};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::canonical::{canonical, canonical_traceback};
use crate::python::cache::programs::params::FragmentParams;
use crate::python::cache::reasons::{
    CONCRETE_ARRAY, HIGH_TYPE, INPUT_EFFECT, LITERAL_OF_OTHERS, OTHER_SCOPE, OTHER_SOURCE,
    OUTER_VALUE, OVERFLOW, REF, Reason,
};
use crate::python::cache::rules::has_programs;
use crate::python::cpython::native::{address, string_of};
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::{is_of_others, value_classes};
use crate::python::trace::frame::{Frame, Mark};
use crate::python::trace::jaxpr_trace::has_high_param;

/// Reads one program.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a, 'py> {
    pub(super) jax: &'a Jax,
    pub(super) call: &'a Call,
    /// Whose name scopes are not part of what is recorded.
    pub(super) base: Option<&'a SourceRef<'py>>,
    /// Whether rules may leave all scopes for a while.
    pub(super) leaves_scopes: bool,
    /// The constants in the order of their use, where that is not the order of the equations: some
    /// equations were removed.
    pub(super) uses: Option<&'a [Var]>,
    /// Those of the programs that the call has.
    pub(super) tracebacks: &'a FxHashSet<usize>,
    /// Where the call is.
    pub(super) caller: &'a SourceRef<'py>,
    /// It is compared with what is known, and forgotten.
    pub(super) audited: bool,
}

impl<'py> Reading<'_, 'py> {
    /// What was appended to `frame` since `mark`, in terms of `args`, and the numbers of its
    /// outputs. `captured` says what a constant is.
    pub(super) fn part(
        &self,
        frame: &Bound<'py, Frame>,
        mark: Mark,
        args: &[Atom],
        captured: impl Fn(Var, &Bound<'py, PyAny>) -> Result<Captured, Reason>,
        outs: &mut FxHashMap<Var, usize>,
    ) -> Result<Part, Reason> {
        let (appended, is_high) = appended_since(frame, self.jax, mark).ok_or(OUTER_VALUE)?;
        if is_high && !mark.is_high {
            return Err(HIGH_TYPE);
        }
        let mut tables = Tables::new(frame.py(), args);
        let mut equations = Vec::new();
        let mut drafts = Vec::new();
        for eqn in appended {
            let on_operands = self.on_operands(&eqn)?;
            let mut operands = Vec::new();
            for operand in eqn.operands {
                operands.push(self.operand(&mut tables, operand, &captured, outs)?);
            }
            let out_types = self.out_types(&mut tables, eqn.outs, outs)?;
            equations.push(EquationObjects {
                primitive: eqn.primitive,
                params: self.params(eqn.params.into_bound(frame.py()))?,
                effects: eqn.effects,
                on_operands,
                no_effects: eqn.no_effects,
                context: eqn.context,
            });
            // What jax has partly evaluated may have the caller's scopes in its program.
            if self.leaves_scopes
                && self.base.is_some_and(|base| !is_empty(&base.name_stack))
                && self.has_programs_with_scopes(frame.py(), &equations)
            {
                return Err(OTHER_SCOPE);
            }
            let (name_stack, traceback) = (eqn.name_stack, eqn.traceback);
            drafts.push(Draft { operands, out_types, name_stack, traceback });
        }
        let places = tables.order_consts(self.uses);
        let mut templates = Vec::new();
        for draft in drafts {
            templates.push(self.template(&mut tables, &places, draft)?);
        }
        self.fragment(tables, templates, equations)
    }

    /// Whether the last equation has programs that are not traced apart from all scopes, as those of jits
    /// and of functions with derivative rules are.
    fn has_programs_with_scopes(&self, py: Python<'py>, equations: &[EquationObjects]) -> bool {
        equations.last().is_some_and(|eqn| {
            let primitive = eqn.primitive.bind(py);
            let name = primitive.getattr(pyo3::intern!(py, "name"));
            let is_ruled = name.and_then(|name| name.extract::<String>()).is_ok_and(|name| {
                matches!(&*name, "custom_jvp_call" | "custom_vjp_call" | "custom_vjp_call_jaxpr")
            });
            !is_ruled && !self.jax.is_jit(primitive) && has_programs(self.jax, eqn.params.bind(py))
        })
    }

    /// An operand: where its value comes from.
    fn operand(
        &self,
        tables: &mut Tables<'py>,
        operand: Appended,
        captured: impl Fn(Var, &Bound<'py, PyAny>) -> Result<Captured, Reason>,
        outs: &FxHashMap<Var, usize>,
    ) -> Result<Operand, Reason> {
        let py = tables.py;
        let var = match &operand {
            Appended::Literal(id, literal) => return self.literal(tables, *id, literal.bind(py)),
            Appended::Computed(var) | Appended::Constant(var, ..) => *var,
        };
        if let Some(&arg) = tables.args.get(&Atom::var(var)) {
            return Ok(Operand::Arg(arg));
        }
        if let Some(&out) = outs.get(&var) {
            return Ok(Operand::Out(row(out)));
        }
        let Appended::Constant(_, value, aval) = operand else { return Err(OUTER_VALUE) };
        let next = row(tables.consts.len());
        let index = *tables.const_rows.entry(var).or_insert(next);
        if index == next {
            let captured = captured(var, value.bind(py))?;
            let own = matches!(captured, Captured::Value(_));
            if own && self.call.has_mutable_arrays {
                return Err(CONCRETE_ARRAY);
            }
            tables.consts.push((captured, aval));
        }
        Ok(Operand::Const(index))
    }

    fn literal(
        &self,
        tables: &mut Tables<'py>,
        id: LiteralId,
        literal: &Bound<'py, PyAny>,
    ) -> Result<Operand, Reason> {
        if self.call.finite_float && is_infinite(literal) {
            return Err(OVERFLOW);
        }
        let next = row(tables.literals.len());
        let index = *tables.literal_rows.entry(id).or_insert(next);
        if index == next {
            let given = self.given_literal(literal);
            // In an audit the value is compared; another thread may have it for that, too.
            let is_kept = given.is_none() && !self.audited;
            if is_kept && has_value_of_others(self.jax, literal) {
                return Err(LITERAL_OF_OTHERS);
            }
            tables.literals.push((literal.clone().unbind(), given));
        }
        Ok(Operand::Literal(index))
    }

    /// The types of an equation's outputs, which get the next numbers.
    fn out_types(
        &self,
        tables: &mut Tables<'py>,
        eqn_outs: Vec<(Var, Py<PyAny>)>,
        outs: &mut FxHashMap<Var, usize>,
    ) -> Result<Vec<u32>, Reason> {
        let mut out_types = Vec::new();
        for (var, aval) in eqn_outs {
            let aval = aval.into_bound(tables.py);
            if !aval.get_type().is(&self.jax.shaped_array_type) {
                return Err(REF);
            }
            out_types.push(tables.ty(aval));
            let next = outs.len();
            outs.insert(var, next);
        }
        Ok(out_types)
    }

    fn params(&self, params: Bound<'py, PyDict>) -> Result<FragmentParams, Reason> {
        if self.call.has_mutable_arrays && has_array(&params) {
            return Err(CONCRETE_ARRAY);
        }
        if has_high_param(self.jax, &params).map_err(|_| HIGH_TYPE)? {
            return Err(HIGH_TYPE);
        }
        Ok(FragmentParams::new(params))
    }

    /// An equation once the constants have their places.
    fn template(
        &self,
        tables: &mut Tables<'py>,
        places: &[u32],
        mut draft: Draft,
    ) -> Result<Template, Reason> {
        let py = tables.py;
        for operand in &mut draft.operands {
            if let Operand::Const(index) = operand {
                *index = places[*index as usize];
            }
        }
        let own = self.call.located || !self.call.programs.is_empty();
        let traceback = draft.traceback.filter(|_| own).map(|object| object.into_bound(py));
        let name_stack = draft.name_stack.map(|object| object.into_bound(py));
        let scope = tables.scope(self, name_stack, traceback.as_ref())?;
        Ok(Template::new(draft.operands.into(), draft.out_types.into(), scope))
    }

    fn fragment(
        &self,
        tables: Tables<'py>,
        templates: Vec<Template>,
        equations: Vec<EquationObjects>,
    ) -> Result<Part, Reason> {
        let Tables { py, types, literals, consts, scopes, num_args, .. } = tables;
        let (num_literals, num_consts) = (row(literals.len()), row(consts.len()));
        let fragment = Fragment::new(templates, row(num_args), num_literals, num_consts)
            .map_err(|_| OUTER_VALUE)?;
        let rows = Rows { equations, types, literals, consts, scopes };
        Part::new(self.jax, py, fragment, rows).map_err(|_| HIGH_TYPE)
    }

    /// The traceback of an equation that a rule has appended; None where it is the caller's.
    fn own_traceback(
        &self,
        traceback: &Bound<'py, PyAny>,
    ) -> Result<Option<Bound<'py, PyAny>>, Reason> {
        let source = self.caller;
        let Some(callers) = &source.traceback else { return Err(OTHER_SOURCE) };
        let is_callers = traceback.eq(callers).map_err(|_| OTHER_SOURCE)?;
        if self.call.located {
            let own = (!is_callers).then(|| canonical_traceback(self.jax, traceback));
            return own.transpose().map_err(|_| OTHER_SOURCE);
        }
        if is_callers || is_within(traceback, callers).map_err(|_| OTHER_SOURCE)? {
            return Ok(None);
        }
        let canonical = canonical_traceback(self.jax, traceback).map_err(|_| OTHER_SOURCE)?;
        if self.tracebacks.contains(&address(&canonical)) {
            return Ok(Some(canonical));
        }
        // One that begins within the rule is the same for all callers.
        let apart = begins_apart(traceback, callers).map_err(|_| OTHER_SOURCE)?;
        if apart { Ok(Some(canonical)) } else { Err(OTHER_SOURCE) }
    }

    /// Which argument is a tracer of a literal.
    fn given_literal(&self, literal: &Bound<'_, PyAny>) -> Option<usize> {
        self.call.literals.iter().position(|&tracer| {
            // SAFETY: tracers of ours, alive during the call, which have jax's slots.
            unsafe { self.jax.slots.tracer_val.peek(tracer) == literal.as_ptr() }
        })
    }

    /// The effects of an equation, each with the operand that it is on, where some are on operands.
    fn on_operands(&self, eqn: &Equation) -> Result<Vec<OnOperand>, Reason> {
        let py = self.caller.name_stack.py();
        let known = self.jax.ref_effects.bind(py);
        let of = |(has_input, operand, object): &(bool, Option<usize>, Py<PyAny>)| {
            if !known.contains(object.bind(py).get_type()).unwrap_or(false) {
                return Err(INPUT_EFFECT);
            }
            if *has_input && operand.is_none() {
                return Err(INPUT_EFFECT);
            }
            Ok((object.clone_ref(py), *operand))
        };
        eqn.on_operands.iter().map(of).collect()
    }
}

/// An equation between the two passes.
struct Draft {
    operands: Vec<Operand>,
    out_types: Vec<u32>,
    name_stack: Option<Py<PyAny>>,
    traceback: Option<Py<PyAny>>,
}

/// The rows of a fragment.
struct Tables<'py> {
    py: Python<'py>,
    args: FxHashMap<Atom, u32>,
    num_args: usize,
    types: Vec<Py<PyAny>>,
    type_rows: FxHashMap<usize, u32>,
    literals: Vec<(Py<PyAny>, Option<usize>)>,
    literal_rows: FxHashMap<LiteralId, u32>,
    consts: Vec<(Captured, Py<PyAny>)>,
    const_rows: FxHashMap<Var, u32>,
    scopes: Vec<Scope>,
    scope_rows: FxHashMap<(usize, usize), u32>,
}

impl<'py> Tables<'py> {
    /// Those of a fragment with arguments, of which the first counts where two are the same.
    fn new(py: Python<'py>, args: &[Atom]) -> Self {
        Self {
            py,
            args: args.iter().enumerate().rev().map(|(i, &arg)| (arg, row(i))).collect(),
            num_args: args.len(),
            types: Vec::new(),
            type_rows: FxHashMap::default(),
            literals: Vec::new(),
            literal_rows: FxHashMap::default(),
            consts: Vec::new(),
            const_rows: FxHashMap::default(),
            scopes: Vec::new(),
            scope_rows: FxHashMap::default(),
        }
    }

    fn ty(&mut self, aval: Bound<'py, PyAny>) -> u32 {
        let next = row(self.types.len());
        let index = *self.type_rows.entry(aval.as_ptr() as usize).or_insert(next);
        if index == next {
            self.types.push(aval.unbind());
        }
        index
    }

    /// Puts the constants in the order of their first use; the new place of each.
    fn order_consts(&mut self, uses: Option<&[Var]>) -> Vec<u32> {
        let rows = self.consts.len();
        let Some(uses) = uses else { return (0..row(rows)).collect() };
        let mut vars: Vec<(usize, u32)> = self
            .const_rows
            .iter()
            .map(|(var, &index)| {
                (uses.iter().position(|used| used == var).unwrap_or(usize::MAX), index)
            })
            .collect();
        vars.sort_unstable();
        let mut places = vec![0; rows];
        let mut old: Vec<Option<_>> =
            std::mem::take(&mut self.consts).into_iter().map(Some).collect();
        for (_, index) in vars {
            places[index as usize] = row(self.consts.len());
            self.consts.extend(old[index as usize].take());
        }
        places
    }

    /// The row of what a name stack adds to the caller's, of the whole stack where there is none; and of
    /// a traceback that is not the caller's.
    fn scope(
        &mut self,
        reading: &Reading<'_, 'py>,
        stack: Option<Bound<'py, PyAny>>,
        traceback: Option<&Bound<'py, PyAny>>,
    ) -> Result<u32, Reason> {
        let stack = stack.unwrap_or_else(|| reading.jax.empty_name_stack.bind(self.py).clone());
        let own = match traceback {
            Some(traceback) => reading.own_traceback(traceback)?,
            None => None,
        };
        let key = (address(&stack), own.as_ref().map_or(0, address));
        if let Some(&known) = self.scope_rows.get(&key) {
            return Ok(known);
        }
        let whole = || canonical(&stack).map(Bound::unbind).map_err(|_| OTHER_SCOPE);
        let (name_stack, is_whole) = match reading.base {
            None => (Some(whole()?), true),
            Some(base) => match below(&base.name_stack, &stack).map_err(|_| OTHER_SCOPE)? {
                Some(below) if reading.leaves_scopes && has_within(&below, &base.name_stack) => {
                    return Err(OTHER_SCOPE);
                }
                Some(below) => ((!is_empty(&below)).then(|| below.unbind()), false),
                // A rule has left all scopes.
                None if reading.leaves_scopes && is_empty(&stack) => (Some(whole()?), true),
                None => return Err(OTHER_SCOPE),
            },
        };
        let index = row(self.scopes.len());
        self.scopes.push(Scope { name_stack, is_whole, traceback: own.map(Bound::unbind) });
        self.scope_rows.insert(key, index);
        Ok(index)
    }
}

/// Whether all scopes of a name stack, if there are any, are somewhere within another one: what jax has
/// linearized may have been evaluated where the caller is.
fn has_within(stack: &Bound<'_, PyAny>, scopes: &Bound<'_, PyAny>) -> bool {
    let names = |stack: &Bound<'_, PyAny>| -> PyResult<Vec<String>> {
        let scopes = stack.getattr("stack")?.cast_into::<PyTuple>()?;
        scopes.iter().map(|scope| Ok(string_of(&scope.getattr("name")?.str()?))).collect()
    };
    match (names(stack), names(scopes)) {
        (Ok(all), Ok(own)) if !own.is_empty() => all.windows(own.len()).any(|some| some == own),
        (Ok(_), Ok(_)) => false,
        _ => true,
    }
}

/// Whether a name stack has no scopes.
fn is_empty(stack: &Bound<'_, PyAny>) -> bool {
    stack.getattr("stack").and_then(|scopes| scopes.len()).is_ok_and(|len| len == 0)
}

/// Whether an array of numpy's is among params, which may change.
fn has_array(params: &Bound<'_, PyDict>) -> bool {
    let known = value_classes(params.py());
    known.is_ok_and(|known| {
        let array = known.numpy_array.bind(params.py());
        params.values().iter().any(|value| value.is_instance(array).unwrap_or(true))
    })
}

fn is_infinite(literal: &Bound<'_, PyAny>) -> bool {
    let value = literal.getattr("val").and_then(|val| val.call_method0("__float__"));
    value.and_then(|value| value.extract::<f64>()).is_ok_and(f64::is_infinite)
}

/// Whether others have its value too.
fn has_value_of_others(jax: &Jax, literal: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a jax `Literal`.
    let value = unsafe { jax.slots.literal_val.get(literal) };
    value.is_none_or(|value| is_of_others(jax, &value).unwrap_or(true))
}

pub(super) fn row(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
