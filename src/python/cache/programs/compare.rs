//! Compares two recordings of a call, for structurally equal programs.
//!
//! jax makes each program once for those it is given, which it knows by identity, and prints one that
//! occurs twice as such. So what was made of one program is no answer for a structurally equal one.
//! Two recordings, for structurally equal programs, show what depends on the program: all but the objects
//! that are the same in both.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{ParamsId, Var};

use crate::python::cache::fragment::agree::same_value;
use crate::python::cache::key::objects::fields_of;
use crate::python::cache::programs::forms::{Form, all_vars, is_jaxpr, open};
use crate::python::cache::programs::fresh_copy::is_plain;
use crate::python::cache::programs::given::{Given, has_lines_among};
use crate::python::cache::programs::plan::{
    Changes, Derived, Node, OwnChanges, Plan, Regenerated, VarOrigin,
};
use crate::python::cache::programs::registry::{Label, nested_of};
use crate::python::cache::programs::structural_id::{StructuralId, same_rule, structural_id_of};
use crate::python::cpython::native::{address, is_exactly};
use crate::python::jax::names::Jax;
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::is_lazy;
use crate::python::program::read::graph_of;

/// Two recordings of a call, for structurally equal programs.
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

impl Given {
    /// These beside others that are structurally equal.
    pub fn beside<'a>(&'a self, jax: &'a Jax, now: &'a Self) -> Comparison<'a> {
        Comparison { jax, before: self, now, derived: RefCell::default(), is_kept: false }
    }

    /// As `beside`, for what a cache of jax's has for one program.
    pub fn kept_beside<'a>(&'a self, jax: &'a Jax, now: &'a Self) -> Comparison<'a> {
        Comparison { is_kept: true, ..self.beside(jax, now) }
    }
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
        let regenerated =
            RegeneratedParams::by(self.jax, primitive).filter(|made| made.always || self.is_kept);
        let mut changes = Vec::new();
        for ((name, value), (other_name, other)) in before.iter().zip(now.iter()) {
            if !name.eq(&other_name).unwrap_or(false) {
                return None;
            }
            let is_regenerated = regenerated.as_ref().is_some_and(|made| made.has(&name));
            match self.node(&value, &other, is_regenerated)? {
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

    /// How a value is made; `is_regenerated` where jax regenerates programs in it at each call.
    fn node(
        &self,
        before: &Bound<'_, PyAny>,
        now: &Bound<'_, PyAny>,
        is_regenerated: bool,
    ) -> Option<Node> {
        let (py, jax) = (now.py(), self.jax);
        if is_jaxpr(py, jax, before.as_ptr()) && is_jaxpr(py, jax, now.as_ptr()) {
            return self.program(before, now, is_regenerated);
        }
        if let (Ok(before), Ok(now)) = (before.cast::<PyTuple>(), now.cast::<PyTuple>())
            && before.len() == now.len()
            && before.get_type().is(now.get_type())
            && is_plain(now)
        {
            let pairs = before.iter().zip(now.iter());
            let nodes: Vec<_> =
                pairs.map(|(a, b)| self.node(&a, &b, is_regenerated)).collect::<Option<_>>()?;
            let same = nodes.iter().all(|node| matches!(node, Node::Same));
            return Some(if same { Node::Same } else { Node::Tuple(nodes) });
        }
        if let (Ok(before), Ok(now)) = (before.cast_exact::<PyList>(), now.cast_exact::<PyList>()) {
            let same = |(a, b)| matches!(self.node(&a, &b, is_regenerated), Some(Node::Same));
            let all = before.len() == now.len() && before.iter().zip(now.iter()).all(same);
            return all.then_some(Node::Same);
        }
        if same_value(jax, before, now) {
            return Some(Node::Same);
        }
        if before.get_type().is(now.get_type())
            && let Some(fields) = fields_of(jax, now)
        {
            return self.fields(&fields, before, now, is_regenerated);
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
        is_regenerated: bool,
    ) -> Option<Node> {
        let mut changes = Vec::new();
        for name in fields {
            let name = name.cast_into::<PyString>().ok()?;
            match self.node(
                &before.getattr(&name).ok()?,
                &now.getattr(&name).ok()?,
                is_regenerated,
            )? {
                Node::Same => {}
                node => changes.push((name.into_any().unbind(), node)),
            }
        }
        if changes.is_empty() {
            return Some(Node::Same);
        }
        // Else it could not be regenerated.
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
        let rule = renewal.call1((now,)).ok()?;
        (!rule.is_none()).then(|| Node::NewRule(rule.unbind()))
    }

    fn program(
        &self,
        before: &Bound<'_, PyAny>,
        now: &Bound<'_, PyAny>,
        is_regenerated: bool,
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
        let id = structural_id_of(jax, &own).ok()?;
        if form != other_form || structural_id_of(jax, &other).ok()? != id {
            return None;
        }
        if own.is(&other) {
            return (!self.is_kept).then_some(Node::Closed);
        }
        if is_regenerated {
            return self.regenerated(own, &other, (id, form));
        }
        if self.is_kept || self.keeps_given(&own, &other) || self.now.repeats(self.before).is_some()
        {
            return None;
        }
        if !self.now.located && !self.has_given_lines(now.py(), id)? {
            return None;
        }
        let graph = graph_of(jax, now).ok()?;
        let of_before = graph_of(jax, before).ok()?;
        let params = self.params_of_equations(&graph, &of_before)?;
        let place = self.now.place_of(jax, now.py(), id, 0);
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
        let mut nested = nested_of(own).into_iter().chain(nested_of(other));
        self.is_given(own) || nested.any(|(_, inner)| is_given(&inner))
    }

    /// Whether programs with a structural id have no lines of the call; None where the
    /// lines are forgotten.
    fn has_given_lines(&self, py: Python<'_>, id: StructuralId) -> Option<bool> {
        has_lines_among(&self.now.tracebacks(py, self.jax)?, id)
    }

    /// A program that jax regenerates at each call.
    fn regenerated(
        &self,
        own: Bound<'_, PyAny>,
        other: &Bound<'_, PyAny>,
        (id, form): (StructuralId, Form),
    ) -> Option<Node> {
        let (py, jax) = (own.py(), self.jax);
        if self.keeps_given(&own, other) {
            return None;
        }
        if !self.has_given_lines(py, id)? {
            return None;
        }
        let (graph, before) = (graph_of(jax, &own).ok()?, graph_of(jax, other).ok()?);
        let params = self.params_of_equations(&graph, &before)?;
        let (graph, recorded) = (graph.unbind(), own.unbind());
        Some(Node::Regenerated(Box::new(Regenerated { id, form, graph, recorded, params })))
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

    /// The params of a program's equations that have programs regenerated; None where the two differ in
    /// more.
    pub fn params_of_equations(
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

/// Params with programs that the rules of a primitive regenerate at each call.
pub(super) struct RegeneratedParams<'py> {
    pub(super) names: Bound<'py, PyAny>,
    /// Nothing else makes such programs: none is what jax remembers of another.
    pub(super) always: bool,
}

impl<'py> RegeneratedParams<'py> {
    /// Those of a primitive; None where there are none.
    pub(super) fn by(jax: &Jax, primitive: &Bound<'py, PyAny>) -> Option<Self> {
        let found = jax.made_anew.bind(primitive.py()).call1((primitive,)).ok()?;
        let (names, always) = found.extract().ok()?;
        Some(Self { names, always })
    }

    pub(super) fn has(&self, name: &Bound<'_, PyAny>) -> bool {
        self.names.contains(name).unwrap_or(false)
    }
}
