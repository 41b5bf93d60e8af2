//! What a call appended, read back from the frame.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::expand::{Fragment, Operand, Template};
use crate::ir::{Atom, AtomKind, Def, Eqn, LiteralId, Var};

use crate::python::cache::fragment::appended::{Equation, Operand as Appended, appended_since};
use crate::python::cache::fragment::result::{LiftedRecipe, Needed, OUTER_VALUE, Origin, Recipe};
use crate::python::cache::key::canonical::{shared, shared_traceback};
use crate::python::cache::key::encode::{CONCRETE_ARRAY, Call, LITERAL_OF_OTHERS, REF, Reason};
use crate::python::cache::key::trace_context::Now;
use crate::python::cache::key::transformations::Stack;
use crate::python::cache::programs::custom_rules::Renewed;
use crate::python::cache::programs::instantiate::{Comparison, Given, Making, Plan, Programs};
use crate::python::cache::programs::params::OwnedParams;
use crate::python::cache::store;
use crate::python::cpython::native::{address, with_bytes};
use crate::python::jax::avals::{AvalInfo, aval_info};
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::{is_of_others, typed_equal, typed_hash, value_classes};
use crate::python::program::objects::literal_type;
use crate::python::trace::frame::{Frame, Mark, State};
use crate::python::trace::jaxpr_trace::has_high_param;
use crate::python::trace::tracer::{Traced, traced, variable};

pub const INPUT_EFFECT: Reason = "effect on an input";
pub const HIGH_TYPE: Reason = "high-level type";
pub const OTHER_SCOPE: Reason = "name scope that is not below the caller's";
pub const NEW_OBJECTS: Reason = "new objects at each call";

pub const STRUCTURED_RESIDUALS: Reason = "structured residuals";
pub const ORDER_OF_CONSTANTS: Reason = "constant that was used without an equation";
pub const CAPTURED_TWICE: Reason = "residual that was captured before and is used twice";
pub const KEPT_ELSEWHERE: Reason = "tangent that is kept elsewhere";
pub const OTHER_SOURCE: Reason = "equation with a source of its own";
pub const FORGOTTEN: Reason = "program that was forgotten";
pub const OVERFLOW: Reason = "literal that overflowed";

/// An effect, with the place of the operand that it is on.
type OnOperand = (Py<PyAny>, Option<usize>);

/// The Python objects of one equation.
pub struct EquationObjects {
    pub primitive: Py<PyAny>,
    pub params: OwnedParams,
    /// None where there are none.
    pub effects: Option<Py<PyAny>>,
    /// Where some of them are on Refs: all of them, each with the operand that it is on.
    pub on_operands: Vec<OnOperand>,
    /// What stands for no effects, where that is not an empty set.
    pub no_effects: Option<Py<PyAny>>,
    pub context: Py<PyAny>,
}

impl EquationObjects {
    /// Whether some effect is on an operand.
    pub fn is_on_operands(&self) -> bool {
        !self.on_operands.is_empty()
    }

    /// Whether this has the same effects on operands as another equation.
    pub fn has_effects_of(&self, py: Python<'_>, other: &Self) -> bool {
        let places = |equation: &Self| {
            let all = equation.on_operands.iter();
            let of =
                |(effect, operand): &OnOperand| (effect.bind(py).get_type_ptr() as usize, *operand);
            let mut places: SmallVec<[_; 4]> = all.map(of).collect();
            places.sort_unstable();
            places
        };
        places(self) == places(other)
    }
}

/// What two recordings of a call may differ in.
pub struct Renew<'a> {
    pub jax: &'a Jax,
    /// Derivative rules of jax's that are traced at each call.
    pub rules: bool,
    /// What was made of other programs.
    pub programs: Option<&'a Comparison<'a>>,
}

/// What a call appends to each program, and returns.
pub struct Recorded {
    /// Unique in the process.
    pub number: u64,
    pub part: Part,
    /// What it appends to the tangents' programs under differentiations, with their level; those
    /// first that values of others are made of.
    pub tangents: SmallVec<[(usize, Part); 1]>,
    pub recipe: Recipe,
    /// The tracers of transformations among the results and the residuals.
    pub lifted: Vec<LiftedRecipe>,
    /// Outputs that have tracers: those that the result needs, and residuals.
    pub needed: Needed,
    /// What rules pass by, one each, with the level, from jax 0.11 on.
    pub structured_residuals: Vec<(usize, Recipe)>,
    /// The programs that the call had.
    pub programs: Option<Programs>,
}

/// A fragment with its Python objects.
pub struct Part {
    pub fragment: Fragment,
    pub equations: Vec<EquationObjects>,
    pub types: Vec<Py<PyAny>>,
    /// What was read of each of the types.
    pub type_infos: Vec<Arc<AvalInfo>>,
    /// Literals, each with the position of the argument that is a tracer of it.
    pub literals: Vec<(Py<PyAny>, Option<usize>)>,
    /// The type of each of the literals, and what was read of it.
    pub literal_types: Vec<(Py<PyAny>, Arc<AvalInfo>)>,
    /// Captured values, with their avals, in the order of their first use.
    pub consts: Vec<(Captured, Py<PyAny>)>,
    pub scopes: Vec<Scope>,
    /// Params that are made anew at each call, by the position of the equation.
    pub renewed: Vec<(usize, Renewed)>,
    /// Params that are made anew for other programs, by the position of the equation.
    pub plans: Vec<(usize, Arc<Plan>)>,
    /// Some equation has effects on operands.
    pub is_on_operands: bool,
    /// Some equation has effects on operands, or a literal that is an argument's.
    is_of_call: bool,
    /// Rows of the types of all outputs.
    out_rows: Box<[u32]>,
}

/// Where equations come from.
pub struct Scope {
    /// Name stack below the caller's; None for the caller's own. Under differentiation a whole one.
    pub name_stack: Option<Py<PyAny>>,
    /// None for the caller's. A rule may evaluate a program that it is given, whose equations have
    /// their own.
    pub traceback: Option<Py<PyAny>>,
}

impl Scope {
    /// Whether it is the caller's own.
    pub fn is_callers(&self) -> bool {
        self.name_stack.is_none() && self.traceback.is_none()
    }
}

/// A value that a program captures.
pub enum Captured {
    /// A constant.
    Value(Py<PyAny>),
    /// The argument that is a value of an enclosing trace.
    Enclosing(usize),
    /// A residual: the tracer of an argument that is a concrete array.
    Constant(usize),
    /// A residual: the primal of a traced argument.
    Arg(usize),
    /// A residual: an output of the primal values' equations.
    Out(usize),
    /// A residual: a tracer of a transformation.
    Lifted(usize),
    /// A residual: the argument that is a tracer of a literal.
    LiteralArg(usize),
    /// A residual: a new tracer of a literal of the primal values' equations.
    OwnLiteral(usize),
    /// A residual: a new tracer of a literal that is equal to this.
    Literal(Py<PyAny>),
}

/// Whether constants were first used in the order in which a replay makes them: those of the equations
/// since `mark`, then `others`, which are used without an equation. jax numbers constants by first use.
/// The tracers of `given` constants are arguments, so those are there already.
fn in_order_of_use(
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

impl Captured {
    /// Whether another recording of the call captures the same.
    pub fn agrees(&self, py: Python<'_>, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(a), Self::Value(b)) => a.is(b),
            (Self::Arg(a), Self::Arg(b))
            | (Self::Out(a), Self::Out(b))
            | (Self::Lifted(a), Self::Lifted(b))
            | (Self::Enclosing(a), Self::Enclosing(b))
            | (Self::Constant(a), Self::Constant(b))
            | (Self::LiteralArg(a), Self::LiteralArg(b))
            | (Self::OwnLiteral(a), Self::OwnLiteral(b)) => a == b,
            (Self::Literal(a), Self::Literal(b)) => {
                same_literal(a.bind(py), b.bind(py)).unwrap_or(false)
            }
            _ => false,
        }
    }

    /// A value of an enclosing trace, where it is an argument.
    fn enclosing(call: &Call, value: &Bound<'_, PyAny>) -> Option<Self> {
        call.enclosing.iter().position(|&known| known == value.as_ptr()).map(Self::Enclosing)
    }

    /// A value that is no tracer.
    fn constant(jax: &Jax, value: &Bound<'_, PyAny>) -> Result<Self, Reason> {
        if value.is_instance(jax.any_tracer_type.bind(value.py())).unwrap_or(true) {
            return Err(OUTER_VALUE);
        }
        Ok(Self::Value(value.clone().unbind()))
    }
}

/// Where a call began.
pub struct Before<'py> {
    pub source: SourceRef<'py>,
    frame: (Bound<'py, Frame>, Mark),
    /// How many uses of constants were noted, where values of enclosing traces may be some.
    constants_used: Option<usize>,
    tangents: SmallVec<[BeforeTangents<'py>; 1]>,
}

/// Where the tangents' program of a differentiation was.
struct BeforeTangents<'py> {
    level: usize,
    frame: Bound<'py, Frame>,
    mark: Mark,
    constants_used: usize,
    structured_residuals: usize,
}

impl<'py> Before<'py> {
    /// Notes this moment. What is noted ends when this is dropped.
    ///
    /// # Errors
    /// The stack cannot be read.
    pub fn now(jax: &Jax, now: &Now<'py>, call: &Call) -> PyResult<Self> {
        let py = now.trace.py();
        let source = now.source(jax)?;
        let frame = (now.frame().clone(), now.frame().get().peek(|state| state.mark()));
        let noted = !call.enclosing.is_empty();
        let constants_used = noted.then(|| now.frame().get().peek(State::note_constants));
        let mut before = Self { source, frame, constants_used, tangents: SmallVec::new() };
        for (level, layer) in now.stack().into_iter().flat_map(Stack::linearizations) {
            let frame = layer.tangent_frame.bind(py);
            let residuals = layer.structured_residuals(py);
            let (mark, constants_used) =
                frame.get().peek(|state| (state.mark(), state.note_constants()));
            before.tangents.push(BeforeTangents {
                level,
                frame: frame.clone(),
                mark,
                constants_used,
                structured_residuals: residuals.map_or(0, |residuals| residuals.len()),
            });
        }
        Ok(before)
    }
}

impl<'py> Before<'py> {
    /// The programs that record, each with its next equation.
    pub fn frames(&self) -> impl Iterator<Item = (&Bound<'py, Frame>, u32)> {
        let tangents = self.tangents.iter().map(|tangents| (&tangents.frame, tangents.mark.eqns));
        std::iter::once((&self.frame.0, self.frame.1.eqns)).chain(tangents)
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

struct Tables<'py> {
    py: Python<'py>,
    types: Vec<Py<PyAny>>,
    type_rows: FxHashMap<usize, u32>,
    literals: Vec<(Py<PyAny>, Option<usize>)>,
    literal_rows: FxHashMap<LiteralId, u32>,
    consts: Vec<(Captured, Py<PyAny>)>,
    const_rows: FxHashMap<Var, u32>,
    scopes: Vec<Scope>,
    scope_rows: FxHashMap<(usize, usize), u32>,
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

fn row(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Reads what was appended since a call began, and its result. What is read to be `audited` only need not
/// hold for other calls.
///
/// # Errors
/// Why it cannot be replayed.
pub fn record<'py>(
    jax: &Jax,
    now: &Now<'py>,
    before: &Before<'py>,
    call: &Call,
    result: &Bound<'py, PyAny>,
    audited: bool,
) -> Result<Recorded, Reason> {
    let py = now.trace.py();
    let stack = now.stack();
    let tracebacks = match Given::of(py, jax, call) {
        Some(given) => given.tracebacks(py, jax).ok_or(FORGOTTEN)?,
        None => FxHashSet::default(),
    };
    let base = if stack.is_some_and(Stack::linearizes) { None } else { Some(&before.source) };
    let mut outs: FxHashMap<Var, usize> = FxHashMap::default();
    let part = {
        let captured = |_: Var, value: &Bound<'_, PyAny>| {
            Captured::enclosing(call, value).map_or_else(|| Captured::constant(jax, value), Ok)
        };
        let (frame, mark) = &before.frame;
        let reading = Reading {
            jax,
            call,
            base,
            uses: None,
            tracebacks: &tracebacks,
            caller: &before.source,
            audited,
        };
        reading.part(frame, *mark, &call.args, captured, &mut outs)?
    };
    let (made, constants) = (RefCell::default(), RefCell::default());
    let tangent_outs = RefCell::default();
    let origin = Origin {
        jax,
        trace: &now.trace,
        stack,
        call,
        part: &part,
        outs: &outs,
        tangent_outs: &tangent_outs,
        lifted: &made,
        constants: &constants,
    };
    let mut tangents: SmallVec<[(usize, Part); 1]> = SmallVec::new();
    for begun in &before.tangents {
        let mut own = FxHashMap::default();
        let part =
            tangent_part(&origin, (base, &before.source), begun, &tracebacks, audited, &mut own)?;
        tangent_outs.borrow_mut().push((begun.level, own));
        if !part.equations.is_empty() {
            tangents.push((begun.level, part));
        }
    }
    let recipe = Recipe::of(&origin, result, 0)?;
    let mut structured_residuals = Vec::new();
    for begun in &before.tangents {
        let layer = stack.and_then(|stack| stack.linearization(begun.level));
        let Some(list) = layer.and_then(|layer| layer.structured_residuals(py)) else { continue };
        for item in list.get_slice(begun.structured_residuals, list.len()) {
            let recipe = Recipe::of(&origin, &item, 0)?;
            // Most rules have none to pass: an empty tree.
            if recipe.is_traced() {
                return Err(STRUCTURED_RESIDUALS);
            }
            structured_residuals.push((begun.level, recipe));
        }
    }
    if let Some(from) = before.constants_used {
        let (frame, mark) = &before.frame;
        let given: SmallVec<[Var; 4]> =
            call.traced.iter().filter_map(|&tracer| variable(py, tracer)).collect();
        if !in_order_of_use(frame, *mark, from, &given, &constants.borrow()) {
            return Err(ORDER_OF_CONSTANTS);
        }
    }
    let residuals = tangents.iter().flat_map(|(_, part)| &part.consts);
    let literal = |(captured, _): &(Captured, _)| matches!(captured, Captured::Literal(_));
    if recipe.has_literal() && residuals.clone().any(literal) {
        // It might be one tracer that is both.
        return Err(OUTER_VALUE);
    }
    let mut needed = Needed::default();
    recipe.outs(&mut needed);
    for (captured, _) in residuals {
        if let Captured::Out(index) = captured {
            Recipe::Out(*index).outs(&mut needed);
        }
    }
    let lifted: Vec<_> = made.into_inner().into_iter().map(|(_, recipe)| recipe).collect();
    for recipe in &lifted {
        recipe.outs(&mut needed);
    }
    for (level, part) in &tangents {
        if !part.all_needed(needed.of_level(*level)) {
            return Err(KEPT_ELSEWHERE);
        }
    }
    let number = store::new_fragment();
    Ok(Recorded {
        number,
        part,
        tangents,
        recipe,
        lifted,
        needed,
        structured_residuals,
        programs: None,
    })
}

/// What was appended to the tangents' program of a differentiation, and the numbers of its outputs.
fn tangent_part<'py>(
    origin: &Origin<'_, 'py>,
    (base, caller): (Option<&SourceRef<'py>>, &SourceRef<'py>),
    begun: &BeforeTangents<'py>,
    tracebacks: &FxHashSet<usize>,
    audited: bool,
    outs: &mut FxHashMap<Var, usize>,
) -> Result<Part, Reason> {
    let (jax, call, py) = (origin.jax, origin.call, origin.trace.py());
    let from = begun.constants_used;
    let uses = begun.frame.get().peek(|state| state.constants_used(from));
    let captured = |var: Var, value: &Bound<'py, PyAny>| {
        // One that was captured before is as if it were new where it is used once only: else
        // it may have come and gone in between, which decides its place among the constants.
        let known = var.as_u32() < begun.mark.vars;
        if known && !audited && uses.iter().filter(|&&other| other == var).count() > 1 {
            return Err(CAPTURED_TWICE);
        }
        if let Some(enclosing) = Captured::enclosing(call, value) {
            return Ok(enclosing);
        }
        if let Some(index) = call.traced.iter().position(|&traced| traced == value.as_ptr()) {
            return Ok(Captured::Arg(index));
        }
        match traced(py, jax, value.as_ptr(), origin.trace.as_ptr()) {
            Some(Traced::Variable(primal)) => {
                return origin.outs.get(&primal).copied().map(Captured::Out).ok_or(OUTER_VALUE);
            }
            Some(Traced::Literal) => {
                let given = call.literals.iter().position(|&given| given == value.as_ptr());
                // SAFETY: `traced` found our type, which has jax's slots.
                let literal = unsafe { jax.slots.tracer_val.get(value) };
                let own = literal.as_ref().and_then(|literal| origin.part.own_literal(literal));
                return given
                    .map(Captured::LiteralArg)
                    .or(own.map(Captured::OwnLiteral))
                    .or_else(|| literal.map(|literal| Captured::Literal(literal.unbind())))
                    .ok_or(OUTER_VALUE);
            }
            Some(Traced::Constant) => return origin.constant(value).map(Captured::Constant),
            _ => {}
        }
        match Recipe::of_residual(origin, value, begun.level + 1)? {
            Some(Recipe::Lifted(number)) => Ok(Captured::Lifted(number)),
            Some(_) => Err(OUTER_VALUE),
            None => Captured::constant(jax, value),
        }
    };
    let reading = Reading { jax, call, base, uses: Some(&uses), tracebacks, caller, audited };
    reading.part(&begun.frame, begun.mark, &call.tangents_of(begun.level), captured, outs)
}

/// Reads one program.
struct Reading<'a, 'py> {
    jax: &'a Jax,
    call: &'a Call,
    /// Whose name scopes are not part of what is recorded.
    base: Option<&'a SourceRef<'py>>,
    /// The constants in the order of their use, where that is not the order of the equations: some
    /// equations were removed.
    uses: Option<&'a [Var]>,
    /// Those of the programs that the call has.
    tracebacks: &'a FxHashSet<usize>,
    /// Where the call is.
    caller: &'a SourceRef<'py>,
    /// It is compared with what is known, and forgotten.
    audited: bool,
}

impl<'py> Reading<'_, 'py> {
    /// The traceback of an equation that a rule has appended; None where it is the caller's.
    fn own_traceback(
        &self,
        traceback: &Bound<'py, PyAny>,
    ) -> Result<Option<Bound<'py, PyAny>>, Reason> {
        let source = self.caller;
        let Some(callers) = &source.traceback else { return Err(OTHER_SOURCE) };
        let is_callers = traceback.eq(callers).map_err(|_| OTHER_SOURCE)?;
        if self.call.located {
            let own = (!is_callers).then(|| shared_traceback(self.jax, traceback));
            return own.transpose().map_err(|_| OTHER_SOURCE);
        }
        if is_callers || is_within(traceback, callers).map_err(|_| OTHER_SOURCE)? {
            return Ok(None);
        }
        let shared = shared_traceback(self.jax, traceback).map_err(|_| OTHER_SOURCE)?;
        if self.tracebacks.contains(&address(&shared)) {
            return Ok(Some(shared));
        }
        // One that begins within the rule is the same for all callers.
        let apart = begins_apart(traceback, callers).map_err(|_| OTHER_SOURCE)?;
        if apart { Ok(Some(shared)) } else { Err(OTHER_SOURCE) }
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

    /// What was appended to `frame` since `mark`, in terms of `args`, and the numbers of its
    /// outputs. `captured` says what a constant is.
    #[allow(clippy::too_many_lines)] // one pass over the equations
    fn part(
        &self,
        frame: &Bound<'py, Frame>,
        mark: Mark,
        args: &[Atom],
        captured: impl Fn(Var, &Bound<'py, PyAny>) -> Result<Captured, Reason>,
        outs: &mut FxHashMap<Var, usize>,
    ) -> Result<Part, Reason> {
        let (jax, py) = (self.jax, frame.py());
        let (appended, is_high) = appended_since(frame, jax, mark).ok_or(OUTER_VALUE)?;
        if is_high && !mark.is_high {
            return Err(HIGH_TYPE);
        }
        let mut tables = Tables {
            py,
            types: Vec::new(),
            type_rows: FxHashMap::default(),
            literals: Vec::new(),
            literal_rows: FxHashMap::default(),
            consts: Vec::new(),
            const_rows: FxHashMap::default(),
            scopes: Vec::new(),
            scope_rows: FxHashMap::default(),
        };
        let num_args = args.len();
        let args: FxHashMap<Atom, u32> =
            args.iter().enumerate().rev().map(|(i, &arg)| (arg, row(i))).collect();
        let mut templates = Vec::new();
        let mut equations = Vec::new();
        let mut scoped = Vec::new();
        for eqn in appended {
            let on_operands = self.on_operands(&eqn)?;
            let mut operands = Vec::new();
            for operand in eqn.operands {
                let var = match &operand {
                    Appended::Literal(id, literal) => {
                        let literal = literal.bind(py);
                        if self.call.finite_float && is_infinite(literal) {
                            return Err(OVERFLOW);
                        }
                        let next = row(tables.literals.len());
                        let index = *tables.literal_rows.entry(*id).or_insert(next);
                        if index == next {
                            let given = self.given_literal(literal);
                            // In an audit the value is compared; another thread may have it for
                            // that, too.
                            let is_kept = given.is_none() && !self.audited;
                            if is_kept && has_value_of_others(jax, literal) {
                                return Err(LITERAL_OF_OTHERS);
                            }
                            tables.literals.push((literal.clone().unbind(), given));
                        }
                        operands.push(Operand::Literal(index));
                        continue;
                    }
                    Appended::Computed(var) | Appended::Constant(var, ..) => *var,
                };
                operands.push(if let Some(&arg) = args.get(&Atom::var(var)) {
                    Operand::Arg(arg)
                } else if let Some(&out) = outs.get(&var) {
                    Operand::Out(row(out))
                } else if let Appended::Constant(_, value, aval) = operand {
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
                    Operand::Const(index)
                } else {
                    return Err(OUTER_VALUE);
                });
            }
            let mut out_types = Vec::new();
            for (var, aval) in eqn.outs {
                let aval = aval.into_bound(py);
                if !aval.get_type().is(&jax.shaped_array_type) {
                    return Err(REF);
                }
                out_types.push(tables.ty(aval));
                let next = outs.len();
                outs.insert(var, next);
            }
            let params = eqn.params.into_bound(py);
            if self.call.has_mutable_arrays && has_array(&params) {
                return Err(CONCRETE_ARRAY);
            }
            if has_high_param(jax, &params).map_err(|_| HIGH_TYPE)? {
                return Err(HIGH_TYPE);
            }
            equations.push(EquationObjects {
                primitive: eqn.primitive,
                params: OwnedParams::new(params),
                effects: eqn.effects,
                on_operands,
                no_effects: eqn.no_effects,
                context: eqn.context,
            });
            let own = self.call.located || !self.call.programs.is_empty();
            let traceback = eqn.traceback.filter(|_| own).map(|object| object.into_bound(py));
            let name_stack = eqn.name_stack.map(|object| object.into_bound(py));
            scoped.push((operands, out_types, name_stack, traceback));
        }
        let places = tables.order_consts(self.uses);
        for (mut operands, out_types, stack, traceback) in scoped {
            for operand in &mut operands {
                if let Operand::Const(index) = operand {
                    *index = places[*index as usize];
                }
            }
            let scope = tables.scope(self, stack, traceback.as_ref())?;
            templates.push(Template::new(operands.into(), out_types.into(), scope));
        }
        let Tables { types, literals, consts, scopes, .. } = tables;
        let fragment =
            Fragment::new(templates, row(num_args), row(literals.len()), row(consts.len()))
                .map_err(|_| OUTER_VALUE)?;
        let out_rows = fragment.templates().iter().flat_map(Template::out_types).copied().collect();
        let is_on_operands = equations.iter().any(EquationObjects::is_on_operands);
        let info = |aval: &Py<PyAny>| aval_info(jax, aval.bind(py)).map_err(|_| HIGH_TYPE);
        let literal_type = |(literal, _): &(Py<PyAny>, _)| {
            let (aval, info) = literal_type(jax, literal.bind(py)).map_err(|_| HIGH_TYPE)?;
            Ok((aval.unbind(), info))
        };
        Ok(Part {
            is_on_operands,
            is_of_call: is_on_operands || literals.iter().any(|(_, given)| given.is_some()),
            fragment,
            equations,
            type_infos: types.iter().map(info).collect::<Result<_, Reason>>()?,
            types,
            literal_types: literals.iter().map(literal_type).collect::<Result<_, Reason>>()?,
            literals,
            consts,
            scopes,
            renewed: Vec::new(),
            plans: Vec::new(),
            out_rows,
        })
    }
}

impl<'py> Tables<'py> {
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
        let (py, jax) = (self.py, reading.jax);
        let stack = stack.unwrap_or_else(|| jax.empty_name_stack.bind(py).clone());
        let own = match traceback {
            Some(traceback) => reading.own_traceback(traceback)?,
            None => None,
        };
        let key = (address(&stack), own.as_ref().map_or(0, address));
        if let Some(&known) = self.scope_rows.get(&key) {
            return Ok(known);
        }
        let name_stack = if let Some(base) = reading.base {
            let below = below(&base.name_stack, &stack).map_err(|_| OTHER_SCOPE)?;
            let below = below.ok_or(OTHER_SCOPE)?;
            let empty = below.getattr("stack").and_then(|scopes| scopes.len()).unwrap_or(0) == 0;
            (!empty).then(|| below.unbind())
        } else {
            Some(shared(&stack).map_err(|_| OTHER_SCOPE)?.unbind())
        };
        let index = row(self.scopes.len());
        self.scopes.push(Scope { name_stack, traceback: own.map(Bound::unbind) });
        self.scope_rows.insert(key, index);
        Ok(index)
    }
}

/// The code objects of a traceback's frames, innermost first, and where each was.
fn frames<'py>(traceback: &Bound<'py, PyAny>) -> PyResult<Vec<(Bound<'py, PyAny>, i64)>> {
    let (codes, places): (Vec<Bound<'py, PyAny>>, Vec<i64>) =
        traceback.call_method0("raw_frames")?.extract()?;
    Ok(codes.into_iter().zip(places).collect())
}

fn same_frame(one: &(Bound<'_, PyAny>, i64), another: &(Bound<'_, PyAny>, i64)) -> bool {
    one.0.is(&another.0) && one.1 == another.1
}

/// Whether a traceback leads to the frame that another ends in.
fn is_within(traceback: &Bound<'_, PyAny>, outer: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (inner, outer) = (frames(traceback)?, frames(outer)?);
    // The innermost frame has gone on.
    let outer = outer.get(1..).unwrap_or_default();
    Ok(inner.len() >= outer.len()
        && inner[inner.len() - outer.len()..].iter().zip(outer).all(|(a, b)| same_frame(a, b)))
}

/// Whether the outermost frames of two tracebacks differ.
fn begins_apart(traceback: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (own, other) = (frames(traceback)?, frames(other)?);
    Ok(own.last().zip(other.last()).is_none_or(|(own, other)| !same_frame(own, other)))
}

/// What `stack` has after the scopes of `base`; None where it does not start with them.
fn below<'py>(
    base: &Bound<'py, PyAny>,
    stack: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let outer = base.getattr("stack")?.cast_into::<PyTuple>()?;
    let inner = stack.getattr("stack")?.cast_into::<PyTuple>()?;
    if inner.len() < outer.len() {
        return Ok(None);
    }
    for (a, b) in outer.iter().zip(inner.iter()) {
        // A scope is equal to a transformation of its name.
        if !typed_equal(&a, &b) {
            return Ok(None);
        }
    }
    let rest = inner.get_slice(outer.len(), inner.len());
    stack.get_type().call1((rest,)).map(Some)
}

impl Recorded {
    /// Params that were made of others, as those of an equation that is not there.
    ///
    /// # Errors
    /// None: a fragment without equations is well-formed.
    pub fn of_params<'py>(
        primitive: &Bound<'py, PyAny>,
        params: Bound<'py, PyDict>,
    ) -> Result<Self, Reason> {
        let none = primitive.py().None();
        let equation = EquationObjects {
            primitive: primitive.clone().unbind(),
            params: OwnedParams::new(params),
            effects: None,
            on_operands: Vec::new(),
            no_effects: None,
            context: none.clone_ref(primitive.py()),
        };
        let part = Part {
            is_on_operands: false,
            is_of_call: false,
            fragment: Fragment::new(Vec::new(), 0, 0, 0).map_err(|_| OUTER_VALUE)?,
            equations: vec![equation],
            types: Vec::new(),
            type_infos: Vec::new(),
            literals: Vec::new(),
            literal_types: Vec::new(),
            consts: Vec::new(),
            scopes: Vec::new(),
            renewed: Vec::new(),
            plans: Vec::new(),
            out_rows: Box::default(),
        };
        Ok(Self {
            number: store::new_fragment(),
            part,
            tangents: SmallVec::new(),
            recipe: Recipe::Object(none),
            lifted: Vec::new(),
            needed: Needed::default(),
            structured_residuals: Vec::new(),
            programs: None,
        })
    }

    /// Such params for other programs.
    ///
    /// # Errors
    /// Out of memory.
    pub fn made_params<'py>(
        &self,
        jax: &Jax,
        making: &Making<'py>,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(equation) = self.part.equations.first() else { return Ok(None) };
        let recorded = equation.params.bind(py);
        match self.part.plans.first() {
            Some((_, plan)) => making.params(jax, recorded, plan).map(Some),
            None => Ok(Some(recorded.clone())),
        }
    }

    /// Whether a second recording has to show that its objects are the same at every call.
    pub fn needs_confirmation(&self, py: Python<'_>) -> bool {
        self.parts().any(|part| part.needs_confirmation(py))
    }

    /// Whether another recording of the same call says the same. Params that are new objects in each
    /// are noted to be made anew, where `renew` says that they may.
    pub fn agrees(&mut self, py: Python<'_>, other: &Self, renew: &Renew<'_>) -> bool {
        let mut parts = self.parts_mut();
        let mut agree = true;
        for other in other.parts() {
            agree &= parts.next().is_some_and(|part| part.agrees(py, other, renew));
        }
        agree && parts.next().is_none()
    }

    /// Makes params anew as another recording does, which has the same objects.
    pub fn take_plans(&mut self, other: &Self) {
        for (part, other) in self.parts_mut().zip(other.parts()) {
            part.plans.clone_from(&other.plans);
        }
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let tangents = self.tangents.iter_mut().map(|(_, part)| part);
        std::iter::once(&mut self.part).chain(tangents)
    }

    /// Whether params are made anew at each call.
    pub fn renews(&self) -> bool {
        self.parts().any(|part| !part.renewed.is_empty())
    }

    /// What it appends to each program.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.part).chain(self.tangents.iter().map(|(_, part)| part))
    }

    /// Roughly the bytes that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.parts().map(Part::memory_bytes).sum::<usize>()
    }
}

impl Part {
    /// Whether there is nothing to be appended.
    pub fn is_empty(&self) -> bool {
        self.equations.is_empty() && self.literals.is_empty() && self.consts.is_empty()
    }

    /// The name scope of all equations, where all but the operands is the same in each replay. `makes`
    /// says whether the programs are others than those that were recorded.
    #[inline]
    pub fn only_scope(&self, makes: bool) -> Option<&Scope> {
        match &self.scopes[..] {
            [scope]
                if !self.is_of_call
                    && self.renewed.is_empty()
                    && (!makes || self.plans.is_empty()) =>
            {
                Some(scope)
            }
            _ => None,
        }
    }

    /// Which literal of the equations an object is.
    pub fn own_literal(&self, literal: &Bound<'_, PyAny>) -> Option<usize> {
        self.literals.iter().position(|(own, _)| own.is(literal))
    }

    /// Whether each equation has an effect, or is needed for one of the outputs. One that is not
    /// lives on only while somebody else keeps its result.
    fn all_needed(&self, outputs: &[usize]) -> bool {
        let templates = self.fragment.templates();
        let mut needed: FxHashSet<usize> = outputs.iter().copied().collect();
        let mut first = self.out_rows.len();
        for (template, equation) in templates.iter().zip(&self.equations).rev() {
            let outs = first - template.out_types().len()..first;
            first = outs.start;
            if equation.effects.is_none() && !outs.clone().any(|out| needed.contains(&out)) {
                return false;
            }
            for operand in template.operands() {
                if let Operand::Out(out) = operand {
                    needed.insert(*out as usize);
                }
            }
        }
        true
    }

    fn needs_confirmation(&self, py: Python<'_>) -> bool {
        self.consts.iter().any(|(captured, _)| matches!(captured, Captured::Value(_)))
            || self.equations.iter().any(|equation| {
                equation.params.bind(py).values().iter().any(|v| typed_hash(&v).is_none())
            })
    }

    fn agrees(&mut self, py: Python<'_>, other: &Self, renew: &Renew<'_>) -> bool {
        let jax = renew.jax;
        let same = |a: &Py<PyAny>, b: &Py<PyAny>| a.is(b);
        let (mut renewed, mut plans) = (Vec::new(), Vec::new());
        let agrees = self.fragment == other.fragment
            && self.types.iter().zip(&other.types).all(|(a, b)| same(a, b))
            && self.literals.iter().zip(&other.literals).all(|((a, given_a), (b, given_b))| {
                given_a == given_b && same_literal(a.bind(py), b.bind(py)).unwrap_or(false)
            })
            && self.consts.iter().zip(&other.consts).all(|((a, _), (b, _))| a.agrees(py, b))
            && self.equations.iter().zip(&other.equations).enumerate().all(|(index, (a, b))| {
                if !same(&a.primitive, &b.primitive)
                    || !same(&a.context, &b.context)
                    || !a.has_effects_of(py, b)
                {
                    return false;
                }
                let (params, others) = (a.params.bind(py), b.params.bind(py));
                if same_params(jax, params, others) && renew.programs.is_none() {
                    return true;
                }
                if let Some(plan) =
                    renew.programs.and_then(|both| both.plan(a.primitive.bind(py), others, params))
                {
                    plans.push((index, plan));
                    return true;
                }
                let primitive = a.primitive.bind(py);
                let found = if renew.rules {
                    Renewed::of(jax, primitive, others, params)
                } else {
                    Ok(None)
                };
                match found {
                    Ok(Some(new)) => {
                        renewed.push((index, new));
                        true
                    }
                    _ => false,
                }
            });
        self.renewed = renewed;
        self.plans = plans;
        agrees
    }

    /// The type of an output, counted over all equations.
    pub fn out_type(&self, index: usize) -> &Py<PyAny> {
        &self.types[self.out_rows[index] as usize]
    }

    fn memory_bytes(&self) -> usize {
        self.fragment.memory_bytes()
            + self.equations.len() * size_of::<EquationObjects>()
            + 2 * (self.types.len() + self.consts.len()) * size_of::<usize>()
            + 3 * self.literals.len() * size_of::<usize>()
    }
}

/// Whether two of jax's literals are equal.
///
/// # Errors
/// They are none.
pub fn same_literal(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<bool> {
    if a.is(b) {
        return Ok(true);
    }
    let (value_a, value_b) = (a.getattr("val")?, b.getattr("val")?);
    if !a.getattr("aval")?.is(&b.getattr("aval")?) || !value_a.get_type().is(value_b.get_type()) {
        return Ok(false);
    }
    let bits =
        |value: &Bound<'_, PyAny>| with_bytes(value.as_ptr(), SmallVec::<[u8; 16]>::from_slice);
    match (bits(&value_a), bits(&value_b)) {
        (Some(a), Some(b)) => Ok(a == b),
        _ => Ok(value_a.repr()?.to_str()? == value_b.repr()?.to_str()?),
    }
}

fn same_params(jax: &Jax, a: &Bound<'_, PyDict>, b: &Bound<'_, PyDict>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b.iter()).all(|((name_a, value_a), (name_b, value_b))| {
            typed_equal(&name_a, &name_b) && same_value(jax, &value_a, &value_b)
        })
}

/// The same object, or one that no program can tell from it.
pub fn same_value(jax: &Jax, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    if a.is(b) || (typed_hash(a).is_some() && typed_equal(a, b)) {
        return true;
    }
    if !a.get_type().is(b.get_type()) {
        return false;
    }
    if let (Ok(a), Ok(b)) = (a.cast::<PyTuple>(), b.cast::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_value(jax, &a, &b));
    }
    if jax.immutable_types.bind(a.py()).contains(a.get_type()).unwrap_or(false) {
        return a.eq(b).unwrap_or(false);
    }
    // A jaxpr's identity counts, and a function may have anything in its closure.
    let py = a.py();
    let identity_counts = a.is_callable()
        || a.is_instance(jax.jaxpr_type.bind(py)).unwrap_or(true)
        || a.is_instance(jax.closed_jaxpr_type.bind(py)).unwrap_or(true)
        || a.hash().is_err();
    !identity_counts && a.eq(b).unwrap_or(false)
}
