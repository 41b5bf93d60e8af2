//! Programs that a rule of jax makes of the programs it is given.
//!
//! jax makes each once for a program, which it knows by identity, and prints one that occurs twice as
//! such. So what was made of one program is no answer for another that says the same: a replay for
//! that one has a twin in its place, the same one each time. Two recordings, for programs that say the
//! same, show which those are: what is the same object in both does not depend on the program.

use std::cell::{Cell, OnceCell, RefCell};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;

use crate::ir::{Eqn, ParamsId, Var};

use crate::python::cache::fragment::record::same_value;
use crate::python::cache::fragment::result::new_named;
use crate::python::cache::key::encode::{Call, Reason, fields_of, is_plain_namedtuple};
use crate::python::cache::programs::registry::{
    Form, Kind, Label, Maker, Number, Others, all_vars, are_mingled, are_several, has_new_jit,
    is_jaxpr, label_of, made, nested_of, note, note_made, note_replayed, note_several, number_of,
    open, own_var, rules_of, same_rule, tracebacks_of, was_replayed,
};
use crate::python::cpython::native::{address, entries, is_exactly};
use crate::python::jax::names::Jax;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::is_lazy;
use crate::python::program::read::graph_of;
use crate::python::trace::frame::Frame;

/// The programs that a call has, as they are: closed or not.
#[derive(Default)]
pub struct Given {
    programs: Vec<Py<PyAny>>,
    /// Those that are not closed.
    open: Vec<Py<PyAny>>,
    /// Those within them.
    nested: Vec<Py<PyAny>>,
    /// Where the call happens is part of it.
    located: bool,
}

/// Where a program is known that was made of others.
struct Place<'py> {
    first: Bound<'py, PyAny>,
    others: Others,
    label: Label,
}

impl<'py> Place<'py> {
    fn made(&self, form: Form) -> Option<(Bound<'py, PyAny>, Maker)> {
        made(&self.first, &self.others, self.label, form)
    }

    fn note(&self, form: Form, program: &Bound<'py, PyAny>, maker: Maker) {
        note_made(&self.first, &self.others, self.label, form, program, maker);
    }

    /// The same place, for the label that a program has there.
    fn labelled(mut self, open: &Bound<'py, PyAny>) -> Option<Self> {
        self.label = label_of(&self.first, &self.others, self.label.kind, open)?;
        Some(self)
    }

    /// The closed one of an open one that a replay has made.
    fn close(&self, jax: &Jax, open: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if are_several(self.label.kind, Form::Closed) {
            return close(jax, open);
        }
        if let Some((known, _)) = self.made(Form::Closed) {
            return Ok(known);
        }
        let closed = close(jax, open)?;
        self.note(Form::Closed, &closed, Maker::Replay);
        Ok(closed)
    }
}

/// The closed one of an open program without constants.
pub fn close<'py>(jax: &Jax, open: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = open.py();
    jax.closed_jaxpr_type.bind(py).call1((open, PyList::empty(py)))
}

thread_local! {
    /// How many rules with programs run in this thread.
    static RULES: Cell<usize> = const { Cell::new(0) };
}

/// Whether a rule with programs runs in this thread.
pub fn is_running() -> bool {
    RULES.get() > 0
}

/// A rule runs: jax goes by its own objects.
struct Running(());

impl Running {
    /// From now on.
    fn begin() -> Self {
        RULES.set(RULES.get() + 1);
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RULES.set(RULES.get() - 1);
    }
}

/// Runs a rule that is given programs.
pub fn run_rule<R>(rule: impl FnOnce() -> R) -> R {
    let _running = Running::begin();
    rule()
}

/// How a call has the programs of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Same,
    /// They are the same, but were closed anew.
    Closed,
}

/// What is known of the programs of a fragment.
pub struct Programs {
    given: Arc<Given>,
    /// Other programs were seen to give the same but for twins. Which of the programs, and of those
    /// within, were the same objects then.
    anew: Option<Fixed>,
    /// How the same programs were seen to give the same.
    repeated: SmallVec<[Repeat; 2]>,
    /// Programs made.
    made: Vec<Label>,
}

struct Fixed {
    programs: Vec<bool>,
    nested: Vec<bool>,
}

/// How a call is replayed.
pub enum Way {
    /// With programs of its own.
    Replay,
    /// That has to be seen first.
    Learn,
    /// It has to run.
    Run,
}

impl Given {
    /// Those of a call; None where it has none.
    pub fn of(py: Python<'_>, jax: &Jax, call: &Call) -> Option<Self> {
        if call.programs.is_empty() {
            return None;
        }
        let mut given = Self { located: call.located, ..Self::default() };
        for &program in &call.programs {
            // SAFETY: an argument of the call.
            let program = unsafe { Bound::from_borrowed_ptr(py, program) };
            given.add(jax, &program).ok()?;
        }
        Some(given)
    }

    /// Adds a program with those within it.
    ///
    /// # Errors
    /// It has constants.
    fn add(&mut self, jax: &Jax, program: &Bound<'_, PyAny>) -> Result<(), Reason> {
        let (open, _) = open(jax, program)?;
        self.nested.extend(nested_of(&open).into_iter().map(|(_, inner)| inner));
        self.open.push(open.unbind());
        self.programs.push(program.clone().unbind());
        Ok(())
    }

    /// These beside others that say the same.
    pub fn beside<'a>(&'a self, jax: &'a Jax, now: &'a Self) -> Comparison<'a> {
        Comparison { jax, before: self, now, derived: RefCell::default(), is_kept: false }
    }

    /// As `beside`, for what a cache of jax's has for one program.
    pub fn kept_beside<'a>(&'a self, jax: &'a Jax, now: &'a Self) -> Comparison<'a> {
        Comparison { is_kept: true, ..self.beside(jax, now) }
    }

    /// One program, and the number of what it says.
    ///
    /// # Errors
    /// Why it has none.
    pub fn of_program(jax: &Jax, program: &Bound<'_, PyAny>) -> Result<(Self, Number), Reason> {
        // What is within is known once there is a number.
        let number = number_of(jax, &open(jax, program)?.0)?;
        let mut given = Self::default();
        given.add(jax, program)?;
        Ok((given, number))
    }

    /// Whether they are the same, closed anew or not.
    pub fn is(&self, other: &Self) -> bool {
        self.repeats(other).is_some()
    }

    /// Which of the programs within them are the same as those of others that say the same; None where
    /// there are others.
    pub fn same_within(&self, other: &Self) -> Option<Vec<bool>> {
        (self.nested.len() == other.nested.len())
            .then(|| same_objects(&self.nested, &other.nested).collect())
    }

    /// The addresses of their variables, as far as there are objects; None where one cannot be read.
    pub fn seen_vars(&self, py: Python<'_>, jax: &Jax) -> Option<FxHashSet<usize>> {
        let mut seen = FxHashSet::default();
        for open in &self.open {
            let graph = graph_of(jax, open.bind(py)).ok()?;
            let graph = graph.get();
            seen.extend(graph.table().seen_vars(py).map(|(_, var)| address(&var)));
        }
        Some(seen)
    }

    fn first<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.open[0].bind(py)
    }

    /// Whether other calls had some of them, but not all.
    pub fn are_mingled(&self, py: Python<'_>, jax: &Jax) -> bool {
        let within = self.nested.iter().filter_map(|inner| open(jax, inner.bind(py)).ok());
        let within: Vec<_> = within.map(|(open, _)| open).collect();
        are_mingled(&self.open, &within, RULES.get() == 0, py)
    }

    /// Where what was made of them and says what a number stands for is known; `maker` tells it from
    /// others that do.
    fn place_of<'py>(&self, jax: &Jax, py: Python<'py>, number: Number, maker: u64) -> Place<'py> {
        let mut hasher = FxHasher::default();
        for open in &self.open {
            number_of(jax, open.bind(py)).ok().hash(&mut hasher);
        }
        let first = self.first(py).clone();
        let others = self.open[1..].iter().map(|program| program.as_ptr() as usize).collect();
        let label = Label { kind: Kind { number, of: hasher.finish() }, maker };
        Place { first, others, label }
    }

    /// The derivative rules that they have, and those within them.
    fn rules<'py>(&self, py: Python<'py>, jax: &Jax) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut rules = Vec::new();
        for program in self.open.iter().chain(&self.nested) {
            let (open, _) = open(jax, program.bind(py)).map_err(PyRuntimeError::new_err)?;
            rules.extend(rules_of(jax, &open)?);
        }
        Ok(rules)
    }

    /// The tracebacks of their equations, by the address of what stands for equal ones. None where
    /// they are forgotten.
    pub fn tracebacks(&self, py: Python<'_>, jax: &Jax) -> Option<FxHashSet<usize>> {
        let mut tracebacks = FxHashSet::default();
        for program in self.open.iter().chain(&self.nested) {
            let (open, _) = open(jax, program.bind(py)).ok()?;
            let all = tracebacks_of(number_of(jax, &open).ok()?)?;
            tracebacks.extend(all.iter().map(|traceback| traceback.as_ptr() as usize));
        }
        Some(tracebacks)
    }

    /// Whether a program is one of them.
    fn is_one(&self, program: &Bound<'_, PyAny>) -> bool {
        self.open.iter().chain(&self.programs).any(|own| own.is(program))
    }

    /// Whether a program is one of them, or within one.
    fn has(&self, program: &Bound<'_, PyAny>) -> bool {
        self.is_one(program) || self.nested.iter().any(|own| own.is(program))
    }

    /// Whether they are the same programs, and if so whether closed anew.
    fn repeats(&self, other: &Self) -> Option<Repeat> {
        let same = |own: &[Py<PyAny>], others: &[Py<PyAny>]| {
            own.len() == others.len() && same_objects(own, others).all(|same| same)
        };
        same(&self.open, &other.open).then(|| {
            if same(&self.programs, &other.programs) { Repeat::Same } else { Repeat::Closed }
        })
    }
}

/// Whether the equations of programs that say what a number stands for have lines among `tracebacks`
/// only; None where the lines are forgotten.
pub fn has_lines_among(tracebacks: &FxHashSet<usize>, number: Number) -> Option<bool> {
    let is_among = |line: &Py<PyAny>| tracebacks.contains(&(line.as_ptr() as usize));
    Some(tracebacks_of(number)?.iter().all(is_among))
}

fn same_objects<'a>(
    one: &'a [Py<PyAny>],
    another: &'a [Py<PyAny>],
) -> impl Iterator<Item = bool> + 'a {
    one.iter().zip(another).map(|(one, another)| one.is(another))
}

impl Programs {
    /// What is known once a call has run.
    pub fn new(given: Given) -> Self {
        let given = Arc::new(given);
        Self { given, anew: None, repeated: SmallVec::new(), made: Vec::new() }
    }

    /// How a call with other programs, or the same, is replayed. `fragment` is the number of the
    /// fragment.
    pub fn way(&self, py: Python<'_>, given: &Given, fragment: u64, kept: bool) -> Way {
        let is_plain = |label: &Label| label.maker == 0;
        if self.made.iter().any(|label| is_plain(label) && are_several(label.kind, Form::Open)) {
            return Way::Learn;
        }
        if let Some(repeat) = self.given.repeats(given) {
            return if self.repeated.contains(&repeat) { Way::Replay } else { Way::Learn };
        }
        // Which of several that say the same another call would have is not known.
        let are_several = !self.made.iter().all(is_plain);
        if kept || are_several || given.open.iter().any(|open| has_new_jit(open.bind(py))) {
            return Way::Run;
        }
        let Some(fixed) = &self.anew else { return Way::Learn };
        let same = |own: &[Py<PyAny>], others: &[Py<PyAny>], fixed: &[bool]| {
            own.len() == others.len()
                && same_objects(own, others).zip(fixed).all(|(same, &fixed)| same || !fixed)
        };
        if !same(&self.given.programs, &given.programs, &fixed.programs)
            || !same(&self.given.nested, &given.nested, &fixed.nested)
        {
            return Way::Learn;
        }
        if let Some(before) = was_replayed(given.first(py), fragment) {
            let same = before == given.programs[0].as_ptr() as usize;
            let repeat = if same { Repeat::Same } else { Repeat::Closed };
            if !self.repeated.contains(&repeat) {
                return Way::Learn;
            }
        }
        Way::Replay
    }

    /// Whether the programs of a recording are those of this one.
    pub fn repeats(&self, given: &Given) -> Option<Repeat> {
        self.given.repeats(given)
    }

    /// Whether other programs were seen to give the same but for twins.
    pub fn is_confirmed(&self) -> bool {
        self.anew.is_some()
    }

    /// The programs of this recording beside those of another, whose objects may differ.
    pub fn beside<'a>(&'a self, jax: &'a Jax, now: &'a Given) -> Comparison<'a> {
        self.given.beside(jax, now)
    }

    /// What is known once a recording for other programs has agreed with this one.
    pub fn confirmed(&self, given: Given, made: Vec<Label>) -> Self {
        let fixed = Fixed {
            programs: same_objects(&self.given.programs, &given.programs).collect(),
            nested: same_objects(&self.given.nested, &given.nested).collect(),
        };
        let given = Arc::new(given);
        Self { given, anew: Some(fixed), repeated: self.repeated.clone(), made }
    }

    /// As this, for the same programs, which gave the same again.
    pub fn again(&self, given: Given, repeat: Repeat) -> Self {
        let fixed = self
            .anew
            .as_ref()
            .map(|fixed| Fixed { programs: fixed.programs.clone(), nested: fixed.nested.clone() });
        let mut repeated = self.repeated.clone();
        if !repeated.contains(&repeat) {
            repeated.push(repeat);
        }
        Self { given: Arc::new(given), anew: fixed, repeated, made: self.made.clone() }
    }
}

/// How a value is made for other programs.
enum Node {
    /// It is what it was.
    Same,
    /// One of the programs given.
    Given(usize),
    /// One within them.
    Nested(usize),
    Derived(Derived),
    /// What it was, closed anew each time.
    Closed,
    /// A program that jax makes anew at each call.
    Anew(Box<Anew>),
    /// What it was but for some of its fields.
    Fields(Changes),
    /// A derivative rule of the programs given, or of one within them.
    Rule(usize),
    /// A derivative rule that is made anew by a function.
    NewRule(Py<PyAny>),
    Tuple(Vec<Node>),
}

/// A program that was made of those given.
struct Derived {
    label: Label,
    form: Form,
    graph: Py<Graph>,
    /// The recorded program, open.
    recorded: Py<PyAny>,
    /// Params of its equations that have such programs.
    params: OwnChanges,
    /// Variables that other programs may have as well.
    vars: Vec<(Var, Py<PyAny>, VarOrigin)>,
}

/// A program that jax makes anew at each call, with variables of its own.
struct Anew {
    number: Number,
    form: Form,
    graph: Py<Graph>,
    /// The recorded program, open.
    recorded: Py<PyAny>,
    params: OwnChanges,
}

/// Params of a program's equations that are made anew.
#[derive(Default)]
pub struct OwnChanges(Vec<(ParamsId, Changes)>);

/// Where a variable comes from.
#[derive(Clone, Copy)]
enum VarOrigin {
    /// A variable of one of the programs given, by their places.
    Given(usize, usize),
    /// One of what was made of them.
    Own,
    /// One of something else.
    Same,
}

/// Values of a dict of params, or fields of an object, that are made anew.
type Changes = Vec<(Py<PyAny>, Node)>;

/// Params that are made anew.
pub struct Plan(Changes);

/// Two recordings of a call, for programs that say the same.
pub struct Comparison<'a> {
    jax: &'a Jax,
    before: &'a Given,
    now: &'a Given,
    /// Programs that were made of those, in both recordings.
    derived: RefCell<Vec<Label>>,
    /// They are compared as what a cache of jax's has for one program: what else is made of it is not
    /// known.
    is_kept: bool,
}

impl Comparison<'_> {
    /// How the params of an equation are made for other programs; None where the two differ in more.
    pub fn plan(
        &self,
        primitive: &Bound<'_, PyAny>,
        before: &Bound<'_, PyDict>,
        now: &Bound<'_, PyDict>,
    ) -> Option<Arc<Plan>> {
        self.changes(primitive, before, now).map(|changes| Arc::new(Plan(changes)))
    }

    fn changes(
        &self,
        primitive: &Bound<'_, PyAny>,
        before: &Bound<'_, PyDict>,
        now: &Bound<'_, PyDict>,
    ) -> Option<Changes> {
        if before.len() != now.len() {
            return None;
        }
        let made_anew =
            MadeAnew::by(self.jax, primitive).filter(|made| made.always || self.is_kept);
        let mut changes = Vec::new();
        for ((name, value), (other_name, other)) in before.iter().zip(now.iter()) {
            if !name.eq(&other_name).unwrap_or(false) {
                return None;
            }
            let anew = made_anew.as_ref().is_some_and(|made| made.has(&name));
            match self.node(&value, &other, anew)? {
                Node::Same => {}
                node => changes.push((other_name.unbind(), node)),
            }
        }
        let is_rule = |(_, node): &(_, Node)| matches!(node, Node::Rule(_) | Node::NewRule(_));
        if changes.iter().any(is_rule) {
            // jax traces the program beside a derivative rule at each call: no other call has it.
            for (_, node) in &changes {
                let Node::Derived(derived) = node else { continue };
                let is_it = |label: &Label| label.maker != 0 && *label == derived.label;
                self.derived.borrow_mut().retain(|label| !is_it(label));
            }
        }
        Some(changes)
    }

    /// How a value is made; `anew` where jax makes programs in it anew at each call.
    fn node(&self, before: &Bound<'_, PyAny>, now: &Bound<'_, PyAny>, anew: bool) -> Option<Node> {
        let (py, jax) = (now.py(), self.jax);
        if is_jaxpr(py, jax, before.as_ptr()) && is_jaxpr(py, jax, now.as_ptr()) {
            return self.program(before, now, anew);
        }
        if let (Ok(before), Ok(now)) = (before.cast::<PyTuple>(), now.cast::<PyTuple>())
            && before.len() == now.len()
            && before.get_type().is(now.get_type())
            && is_plain(now)
        {
            let pairs = before.iter().zip(now.iter());
            let nodes: Vec<_> =
                pairs.map(|(a, b)| self.node(&a, &b, anew)).collect::<Option<_>>()?;
            let same = nodes.iter().all(|node| matches!(node, Node::Same));
            return Some(if same { Node::Same } else { Node::Tuple(nodes) });
        }
        if let (Ok(before), Ok(now)) = (before.cast_exact::<PyList>(), now.cast_exact::<PyList>()) {
            let same = |(a, b)| matches!(self.node(&a, &b, anew), Some(Node::Same));
            let all = before.len() == now.len() && before.iter().zip(now.iter()).all(same);
            return all.then_some(Node::Same);
        }
        if same_value(jax, before, now) {
            return Some(Node::Same);
        }
        if before.get_type().is(now.get_type())
            && let Some(fields) = fields_of(jax, now)
        {
            return self.fields(&fields, before, now, anew);
        }
        let wrapped = is_exactly(now.as_ptr(), jax.wrapped_function_type.as_ptr().cast());
        let rule = wrapped || now.is_exact_instance_of::<PyFunction>();
        rule.then(|| self.rule(before, now)).flatten()
    }

    /// An object that is what its fields are.
    fn fields(
        &self,
        fields: &Bound<'_, PyTuple>,
        before: &Bound<'_, PyAny>,
        now: &Bound<'_, PyAny>,
        anew: bool,
    ) -> Option<Node> {
        let mut changes = Vec::new();
        for name in fields {
            let name = name.cast_into::<PyString>().ok()?;
            match self.node(&before.getattr(&name).ok()?, &now.getattr(&name).ok()?, anew)? {
                Node::Same => {}
                node => changes.push((name.into_any().unbind(), node)),
            }
        }
        if changes.is_empty() {
            return Some(Node::Same);
        }
        // Else it could not be made anew.
        now.hasattr(intern!(now.py(), "__dict__")).ok()?.then_some(Node::Fields(changes))
    }

    fn rule(&self, before: &Bound<'_, PyAny>, now: &Bound<'_, PyAny>) -> Option<Node> {
        let (py, jax) = (now.py(), self.jax);
        if self.is_kept {
            return None;
        }
        let given = self.now.rules(py, jax).ok()?.into_iter();
        let mut both = given.zip(self.before.rules(py, jax).ok()?);
        if let Some(index) = both.position(|(own, other)| own.is(now) && other.is(before)) {
            return Some(Node::Rule(index));
        }
        let renewal = jax.renewal.bind(py);
        if renewal.is_none() || !same_rule(jax, before, now) {
            return None;
        }
        let renew = renewal.call1((now,)).ok()?;
        (!renew.is_none()).then(|| Node::NewRule(renew.unbind()))
    }

    fn program(
        &self,
        before: &Bound<'_, PyAny>,
        now: &Bound<'_, PyAny>,
        anew: bool,
    ) -> Option<Node> {
        let jax = self.jax;
        let place = |own: &[Py<PyAny>], others: &[Py<PyAny>]| {
            own.iter().zip(others).position(|(a, b)| a.is(now) && b.is(before))
        };
        if let Some(index) = place(&self.now.programs, &self.before.programs) {
            return (!self.is_kept).then_some(Node::Given(index));
        }
        if let Some(index) = place(&self.now.nested, &self.before.nested) {
            return Some(Node::Nested(index));
        }
        if now.is(before) {
            return Some(Node::Same);
        }
        let (own, form) = open(jax, now).ok()?;
        let (other, other_form) = open(jax, before).ok()?;
        let number = number_of(jax, &own).ok()?;
        if form != other_form || number_of(jax, &other).ok()? != number {
            return None;
        }
        if own.is(&other) {
            return (!self.is_kept).then_some(Node::Closed);
        }
        if anew {
            return self.anew(own, &other, (number, form));
        }
        if self.is_kept || self.keeps_given(&own, &other) || self.now.repeats(self.before).is_some()
        {
            return None;
        }
        if !self.now.located && !self.has_given_lines(now.py(), number)? {
            return None;
        }
        let graph = graph_of(jax, now).ok()?;
        let of_before = graph_of(jax, before).ok()?;
        let params = self.params_within(&graph, &of_before)?;
        let place = self.now.place_of(jax, now.py(), number, 0);
        let plain = place.label;
        let label = place.labelled(&own).map_or(plain, |place| place.label);
        self.derived.borrow_mut().push(label);
        let vars = self.vars_of(&graph, &of_before)?;
        let graph = graph.unbind();
        Some(Node::Derived(Derived { label, form, graph, recorded: own.unbind(), params, vars }))
    }

    /// What is remembered of a program must not keep it alive.
    fn keeps_given(&self, own: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> bool {
        let (py, jax) = (own.py(), self.jax);
        let is_given = |inner: &Py<PyAny>| {
            open(jax, inner.bind(py)).map_or(true, |(open, _)| self.is_given(&open))
        };
        let mut within = nested_of(own).into_iter().chain(nested_of(other));
        self.is_given(own) || within.any(|(_, inner)| is_given(&inner))
    }

    /// Whether programs that say what a number stands for have no lines of the call; None where the
    /// lines are forgotten.
    fn has_given_lines(&self, py: Python<'_>, number: Number) -> Option<bool> {
        has_lines_among(&self.now.tracebacks(py, self.jax)?, number)
    }

    /// A program that jax makes anew at each call.
    fn anew(
        &self,
        own: Bound<'_, PyAny>,
        other: &Bound<'_, PyAny>,
        (number, form): (Number, Form),
    ) -> Option<Node> {
        let (py, jax) = (own.py(), self.jax);
        if self.keeps_given(&own, other) {
            return None;
        }
        if !self.has_given_lines(py, number)? {
            return None;
        }
        let (graph, before) = (graph_of(jax, &own).ok()?, graph_of(jax, other).ok()?);
        let params = self.params_within(&graph, &before)?;
        let (graph, recorded) = (graph.unbind(), own.unbind());
        Some(Node::Anew(Box::new(Anew { number, form, graph, recorded, params })))
    }

    /// The variables of a program that Python has seen.
    fn vars_of(
        &self,
        graph: &Bound<'_, Graph>,
        before: &Bound<'_, Graph>,
    ) -> Option<Vec<(Var, Py<PyAny>, VarOrigin)>> {
        let py = graph.py();
        let mut given: FxHashMap<usize, VarOrigin> = FxHashMap::default();
        for (index, program) in self.now.open.iter().enumerate() {
            if is_lazy(py, program.as_ptr()) {
                continue;
            }
            for (place, var) in all_vars(program.bind(py)).ok()?.iter().enumerate() {
                given.insert(address(var), VarOrigin::Given(index, place));
            }
        }
        let seen: Vec<_> = graph.get().table().seen_vars(py).collect();
        // What is in both recordings is in all, whatever the programs.
        let before: FxHashSet<usize> =
            before.get().table().seen_vars(py).map(|(_, var)| address(&var)).collect();
        let of = |(id, var): (Var, Bound<'_, PyAny>)| {
            let origin = match given.get(&address(&var)) {
                Some(&origin) => origin,
                None if before.contains(&address(&var)) => VarOrigin::Same,
                None => VarOrigin::Own,
            };
            (id, var.unbind(), origin)
        };
        Some(seen.into_iter().map(of).collect())
    }

    /// Whether an open program is one of those given.
    fn is_given(&self, program: &Bound<'_, PyAny>) -> bool {
        self.now.open.iter().chain(&self.before.open).any(|given| given.is(program))
    }

    /// The params of a program's equations that have programs made anew; None where the two differ in
    /// more.
    pub fn params_within(
        &self,
        now: &Bound<'_, Graph>,
        before: &Bound<'_, Graph>,
    ) -> Option<OwnChanges> {
        let py = now.py();
        let pairs: Vec<_> = {
            let (own, other) = (now.get().program(), before.get().program());
            let (now, before) = (now.get().table(), before.get().table());
            if own.num_eqns() != other.num_eqns() {
                return None;
            }
            let of = |(own_eqn, other_eqn)| {
                let (data, other) = (own.eqn(own_eqn), other.eqn(other_eqn));
                let primitive = now.object(py, own.primitive(data.primitive).object);
                let dicts =
                    (now.params_dict(py, data.params), before.params_dict(py, other.params));
                (primitive, data.params, dicts)
            };
            own.eqns().zip(other.eqns()).map(of).collect()
        };
        let mut changed: Vec<(ParamsId, Changes)> = Vec::new();
        for (primitive, id, (now, before)) in pairs {
            let own = self.changes(&primitive, &before, &now)?;
            if !own.is_empty() && !changed.iter().any(|(known, _)| *known == id) {
                changed.push((id, own));
            }
        }
        Some(OwnChanges(changed))
    }

    /// The programs that were made.
    pub fn made(self) -> Vec<Label> {
        self.derived.into_inner()
    }
}

/// Params with programs that the rules of a primitive make anew at each call.
struct MadeAnew<'py> {
    names: Bound<'py, PyAny>,
    /// Nothing else makes such programs: none is what jax remembers of another.
    always: bool,
}

impl<'py> MadeAnew<'py> {
    /// Those of a primitive; None where there are none.
    fn by(jax: &Jax, primitive: &Bound<'py, PyAny>) -> Option<Self> {
        let found = jax.made_anew.bind(primitive.py()).call1((primitive,)).ok()?;
        let (names, always) = found.extract().ok()?;
        Some(Self { names, always })
    }

    fn has(&self, name: &Bound<'_, PyAny>) -> bool {
        self.names.contains(name).unwrap_or(false)
    }
}

type OwnRules<'py> = (Vec<Bound<'py, PyAny>>, Bound<'py, PyDict>);

/// Makes params for the programs of a call.
pub struct Making<'py> {
    given: Given,
    /// What stands for programs within those recorded, by their address.
    within: RefCell<FxHashMap<usize, Bound<'py, PyAny>>>,
    /// The recorded programs.
    recorded: Arc<Given>,
    /// The derivative rules of the programs, and what stands for the recorded ones, by address.
    rules: OnceCell<OwnRules<'py>>,
}

impl<'py> Making<'py> {
    /// A replay of a fragment for the programs; `recorded` is what is known of its own.
    pub fn new(py: Python<'py>, given: Given, fragment: u64, recorded: &Programs) -> Self {
        note_replayed(given.first(py), fragment, given.programs[0].as_ptr() as usize);
        Self::of(given, recorded.given.clone())
    }

    /// As `new`, of what a cache of jax's has for a program.
    pub fn of(given: Given, recorded: Arc<Given>) -> Self {
        Self { given, within: RefCell::default(), recorded, rules: OnceCell::new() }
    }

    /// The derivative rules of the programs, and what stands for those of the recorded ones and for
    /// what is in these.
    fn rules(&self, py: Python<'py>, jax: &Jax) -> PyResult<&OwnRules<'py>> {
        if let Some(rules) = self.rules.get() {
            return Ok(rules);
        }
        let (rules, made) = (self.given.rules(py, jax)?, PyDict::new(py));
        for (recorded, own) in self.recorded.rules(py, jax)?.iter().zip(&rules) {
            if !recorded.is(own) {
                jax.pair_rules.bind(py).call1((recorded, own, &made))?;
            }
        }
        Ok(self.rules.get_or_init(|| (rules, made)))
    }

    /// The params of an equation.
    ///
    /// # Errors
    /// Out of memory.
    pub fn params(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyDict>,
        plan: &Plan,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.changed(jax, recorded, &plan.0)
    }

    fn changed(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyDict>,
        changes: &Changes,
    ) -> PyResult<Bound<'py, PyDict>> {
        let made = recorded.copy()?;
        for (name, node) in changes {
            if let Some(value) = recorded.get_item(name)? {
                made.set_item(name, self.value(jax, &value, node)?)?;
            }
        }
        Ok(made)
    }

    fn value(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyAny>,
        node: &Node,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = recorded.py();
        let made = match node {
            Node::Same => return Ok(recorded.clone()),
            Node::Tuple(nodes) => {
                let items = recorded.cast::<PyTuple>()?;
                let made: Vec<_> = items
                    .iter()
                    .zip(nodes)
                    .map(|(item, node)| self.value(jax, &item, node))
                    .collect::<PyResult<_>>()?;
                return like(items, made);
            }
            Node::Closed => {
                let (open, _) = open(jax, recorded).map_err(PyRuntimeError::new_err)?;
                close(jax, &open)?
            }
            Node::Rule(index) => {
                let (rules, _) = self.rules(py, jax)?;
                let missing = || PyRuntimeError::new_err("a program without its derivative rule");
                rules.get(*index).cloned().ok_or_else(missing)?
            }
            Node::NewRule(renew) => renew.bind(py).call1((&self.rules(py, jax)?.1,))?,
            Node::Anew(anew) => {
                let twin = self.twin(jax, anew.graph.bind(py), &anew.params)?;
                self.note_twin(&twin, anew.number, anew.recorded.bind(py))?;
                if anew.form == Form::Closed { close(jax, &twin)? } else { twin }
            }
            Node::Fields(changes) => return self.with_fields(jax, recorded, changes),
            Node::Given(index) => self.given.programs[*index].bind(py).clone(),
            Node::Nested(index) => self.given.nested[*index].bind(py).clone(),
            Node::Derived(derived) => {
                let place =
                    self.given.place_of(jax, py, derived.label.kind.number, derived.label.maker);
                let open = self.derived(py, jax, derived, &place)?;
                if derived.form == Form::Closed { place.close(jax, &open)? } else { open }
            }
        };
        self.within.borrow_mut().insert(address(recorded), made.clone());
        Ok(made)
    }

    /// An object that is what its fields are, some of them made anew.
    fn with_fields(
        &self,
        jax: &Jax,
        recorded: &Bound<'py, PyAny>,
        changes: &Changes,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut own = Vec::new();
        for (name, node) in changes {
            let name = name.bind(recorded.py()).cast::<PyString>()?;
            own.push((name.clone(), self.value(jax, &recorded.getattr(name)?, node)?));
        }
        with_fields(jax, recorded, own)
    }

    /// A twin of a program that has variables of its own.
    ///
    /// # Errors
    /// Out of memory.
    pub fn twin(
        &self,
        jax: &Jax,
        graph: &Bound<'py, Graph>,
        changes: &OwnChanges,
    ) -> PyResult<Bound<'py, PyAny>> {
        Graph::fresh_copy(graph, jax, &self.own_params(jax, graph, changes)?, &[])
    }

    /// Params of a program's equations, made anew.
    fn own_params(
        &self,
        jax: &Jax,
        graph: &Bound<'py, Graph>,
        changes: &OwnChanges,
    ) -> PyResult<Vec<(ParamsId, Bound<'py, PyDict>)>> {
        let own = |(id, changes): &(ParamsId, Changes)| {
            let recorded = graph.get().table().params_dict(graph.py(), *id);
            Ok((*id, self.changed(jax, &recorded, changes)?))
        };
        changes.0.iter().map(own).collect()
    }

    /// Notes what such a twin says, and which programs are within.
    ///
    /// # Errors
    /// There is no weak reference to it.
    pub fn note_twin(
        &self,
        twin: &Bound<'py, PyAny>,
        number: Number,
        recorded: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let within = nested_of(recorded);
        note(twin, number, own_within(within, &self.within.borrow()))
    }

    /// What stands for a variable.
    fn var(
        &self,
        py: Python<'py>,
        jax: &Jax,
        (id, recorded, origin): &(Var, Py<PyAny>, VarOrigin),
    ) -> PyResult<(Var, Bound<'py, PyAny>)> {
        let own = match *origin {
            VarOrigin::Given(index, place) => {
                let vars = all_vars(self.given.open[index].bind(py))?;
                vars.get(place).cloned()
            }
            VarOrigin::Own => None,
            VarOrigin::Same => Some(recorded.bind(py).clone()),
        };
        let own = match own {
            Some(own) => own,
            None => own_var(jax, self.given.first(py), recorded.bind(py))?,
        };
        Ok((*id, own))
    }

    fn derived(
        &self,
        py: Python<'py>,
        jax: &Jax,
        derived: &Derived,
        place: &Place<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let within = nested_of(derived.recorded.bind(py));
        if let Some((known, _)) = place.made(Form::Open) {
            let of_known = nested_of(&known);
            let mut stand_ins = self.within.borrow_mut();
            for ((_, recorded), (_, known)) in within.iter().zip(&of_known) {
                stand_ins.insert(recorded.as_ptr() as usize, known.bind(py).clone());
            }
            return Ok(known);
        }
        let params = self.own_params(jax, derived.graph.bind(py), &derived.params)?;
        let vars: Vec<_> =
            derived.vars.iter().map(|var| self.var(py, jax, var)).collect::<PyResult<_>>()?;
        let changes = (&params[..], &vars[..]);
        twin(jax, derived.graph.bind(py), changes, place, within, &self.within.borrow())
    }
}

/// Whether a tuple has nothing but items, and names for them.
fn is_plain(tuple: &Bound<'_, PyTuple>) -> bool {
    // SAFETY: a type.
    tuple.is_exact_instance_of::<PyTuple>()
        || unsafe { is_plain_namedtuple(tuple.py(), tuple.get_type_ptr()) }
}

/// A tuple of the class of another.
fn like<'py>(
    tuple: &Bound<'py, PyTuple>,
    items: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let items = PyTuple::new(tuple.py(), items)?;
    if tuple.is_exact_instance_of::<PyTuple>() {
        return Ok(items.into_any());
    }
    new_named(&tuple.get_type(), &items)
}

type OwnParams<'py> = (ParamsId, Bound<'py, PyDict>);
type OwnVar<'py> = (Var, Bound<'py, PyAny>);

/// A twin of a program with other params and some variables, where `stand_ins` are in the place of programs within.
fn twin<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
    (params, vars): (&[OwnParams<'py>], &[OwnVar<'py>]),
    place: &Place<'py>,
    within: Vec<(Number, Py<PyAny>)>,
    stand_ins: &FxHashMap<usize, Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let twin = Graph::fresh_copy(graph, jax, params, vars)?;
    note(&twin, place.label.kind.number, own_within(within, stand_ins))?;
    place.note(Form::Open, &twin, Maker::Replay);
    Ok(twin)
}

/// The programs within a recorded one, with what stands for them by their address.
fn own_within(
    within: Vec<(Number, Py<PyAny>)>,
    stand_ins: &FxHashMap<usize, Bound<'_, PyAny>>,
) -> Vec<(Number, Py<PyAny>)> {
    let own = |(number, recorded): (Number, Py<PyAny>)| {
        let stand_in = stand_ins.get(&(recorded.as_ptr() as usize));
        (number, stand_in.map_or(recorded, |own| own.clone().unbind()))
    };
    within.into_iter().map(own).collect()
}

/// An object that is what its fields are, with some others.
fn with_fields<'py>(
    jax: &Jax,
    object: &Bound<'py, PyAny>,
    own: Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, class) = (object.py(), object.get_type());
    let made = py.get_type::<PyAny>().call_method1(intern!(py, "__new__"), (class,))?;
    // Set in the dict, since the class does not let fields be set.
    let attributes = made.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
    for name in fields_of(jax, object).iter().flatten() {
        attributes.set_item(&name, object.getattr(name.cast::<PyString>()?)?)?;
    }
    for (name, value) in own {
        attributes.set_item(name, value)?;
    }
    Ok(made)
}

/// Puts the programs that a rule of jax has made in relation to those that replays have made: of the
/// same programs there is one of each.
pub struct Settling<'a, 'py> {
    jax: &'a Jax,
    given: &'a Given,
    /// Names the call, and how many programs were looked at.
    maker: u64,
    seen: Cell<u64>,
    /// What stands for programs within others, by their address.
    stand_ins: RefCell<FxHashMap<usize, Bound<'py, PyAny>>>,
}

impl<'a, 'py> Settling<'a, 'py> {
    /// For the programs that a call has; `name` is the same for calls that are.
    pub fn new(jax: &'a Jax, given: &'a Given, name: impl Hash) -> Self {
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
        let maker = hasher.finish();
        Self { jax, given, maker, seen: Cell::new(0), stand_ins: RefCell::default() }
    }

    /// Looks at the equations that a call has appended to a program since `first`.
    ///
    /// # Errors
    /// Out of memory.
    pub fn settle(&self, frame: &Bound<'py, Frame>, first: u32) -> PyResult<()> {
        let py = frame.py();
        let appended: Vec<_> = frame.get().with(py, |state, quiet| {
            let Some((builder, side)) = state.recorded() else { return Vec::new() };
            let end = u32::try_from(builder.num_appended()).unwrap_or(u32::MAX);
            let live = (first..end).map(Eqn::from_u32).filter(|&eqn| builder.is_live(eqn));
            let of = |eqn| {
                let data = builder.eqn_data(eqn);
                let primitive = builder.primitive_data(data.primitive).object;
                let primitive = side.object_of(quiet, primitive)?;
                Some((eqn, primitive, side.params_of(quiet, data.params)?))
            };
            live.filter_map(of).collect()
        });
        for (eqn, primitive, params) in appended {
            if let Some(settled) = self.params(primitive.bind(py), params.bind(py))? {
                let settled = settled.as_unbound();
                frame.get().with(py, |state, quiet| {
                    let (builder, side) = state.recording()?;
                    let settled = side.deferred_params_id(builder, settled, quiet);
                    builder.set_params(eqn, settled);
                    Ok::<_, PyErr>(())
                })?;
            }
        }
        Ok(())
    }

    /// Params with programs that others stand for; None where there are none.
    ///
    /// # Errors
    /// Out of memory.
    pub fn params(
        &self,
        primitive: &Bound<'py, PyAny>,
        params: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let made_anew = MadeAnew::by(self.jax, primitive).filter(|made| made.always);
        let mut settled: Option<Bound<'py, PyDict>> = None;
        for (name, value) in entries(params) {
            // There is another one at each call.
            if made_anew.as_ref().is_some_and(|made| made.has(&name)) {
                continue;
            }
            if let Some(own) = self.value(&value)? {
                let settled = match &settled {
                    Some(settled) => settled,
                    None => settled.insert(params.copy()?),
                };
                settled.set_item(name, own)?;
            }
        }
        Ok(settled)
    }

    fn value(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        if is_jaxpr(py, self.jax, value.as_ptr()) {
            let own = self.program(value)?;
            if let Some(own) = &own {
                self.stand_ins.borrow_mut().insert(address(value), own.clone());
            }
            return Ok(own);
        }
        let Ok(items) = value.cast::<PyTuple>() else { return Ok(None) };
        if !is_plain(items) {
            return Ok(None);
        }
        let settled: Vec<_> =
            items.iter().map(|item| self.value(&item)).collect::<PyResult<_>>()?;
        if settled.iter().all(Option::is_none) {
            return Ok(None);
        }
        let both = settled.into_iter().zip(items.iter());
        let all = both.map(|(own, item)| own.unwrap_or(item)).collect();
        like(items, all).map(Some)
    }

    /// Where a program is known that a rule has made.
    fn place_of(&self, open: &Bound<'py, PyAny>, number: Number) -> Place<'py> {
        let (py, jax) = (open.py(), self.jax);
        let plain = self.given.place_of(jax, py, number, 0);
        if !are_several(plain.label.kind, Form::Open) {
            return plain;
        }
        let other = |maker| self.given.place_of(jax, py, number, maker);
        plain.labelled(open).unwrap_or_else(|| {
            let mut hasher = FxHasher::default();
            (self.maker, self.seen.get()).hash(&mut hasher);
            other(hasher.finish().max(1))
        })
    }

    fn program(&self, program: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, jax) = (program.py(), self.jax);
        let Ok((open, form)) = open(jax, program) else { return Ok(None) };
        if self.given.has(program) || self.given.has(&open) {
            return Ok(None);
        }
        let Ok(number) = number_of(jax, &open) else { return Ok(None) };
        self.seen.set(self.seen.get() + 1);
        let place = self.place_of(&open, number);
        match place.made(Form::Open) {
            Some((known, Maker::Replay)) if !known.is(&open) => {
                let own = if form == Form::Closed { place.close(jax, &known)? } else { known };
                return Ok(Some(own));
            }
            Some((known, Maker::Rule)) if !known.is(&open) => {
                note_several(place.label.kind, Form::Open);
                let place = self.place_of(&open, number);
                place.note(Form::Open, &open, Maker::Rule);
                place.note(form, program, Maker::Rule);
                return Ok(None);
            }
            Some(_) => {
                match place.made(form) {
                    Some((known, _)) if known.is(program) => {}
                    Some(_) => note_several(place.label.kind, form),
                    None => place.note(form, program, Maker::Rule),
                }
                return Ok(None);
            }
            None => {}
        }
        let within = nested_of(&open);
        if within.is_empty() {
            place.note(Form::Open, &open, Maker::Rule);
            place.note(form, program, Maker::Rule);
            return Ok(None);
        }
        let graph = graph_of(jax, program)?;
        let dicts: Vec<_> = {
            let (program, side) = (graph.get().program(), graph.get().table());
            let of = |eqn| {
                let data = program.eqn(eqn);
                let primitive = side.object(py, program.primitive(data.primitive).object);
                (primitive, data.params, side.params_dict(py, data.params))
            };
            program.eqns().map(of).collect()
        };
        let mut params = Vec::new();
        for (primitive, id, dict) in dicts {
            if let Some(settled) = self.params(&primitive, &dict)? {
                params.push((id, settled));
            }
        }
        if params.is_empty() {
            // What is remembered of a program must not keep it alive; it does keep those within it.
            if !within.iter().any(|(_, inner)| self.given.is_one(inner.bind(py))) {
                place.note(Form::Open, &open, Maker::Rule);
                place.note(form, program, Maker::Rule);
            }
            return Ok(None);
        }
        // Others may have its variables.
        let vars: Vec<_> = graph.get().table().seen_vars(py).collect();
        let own = twin(jax, &graph, (&params, &vars), &place, within, &self.stand_ins.borrow())?;
        if form == Form::Closed { place.close(jax, &own).map(Some) } else { Ok(Some(own)) }
    }
}
