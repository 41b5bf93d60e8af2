//! One way to read a jaxpr: from the graph of one that was recorded here and that nobody has read, or from
//! jax's lists. A walk over a `JaxprView` has one body for both.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet};
use rustc_hash::FxHashMap;

use crate::ir::{Atom, AtomKind, EffectsId, Eqn, ParamsId, Program, Var};

use crate::python::cpython::native::{address, is_exactly};
use crate::python::jax::names::{EqnParts, Jax};
use crate::python::jax::source::SourceRef;
use crate::python::program::graph::{Graph, TableOf, Unread};

/// An operand of an equation, or an output of a jaxpr.
pub enum Operand<'py, V> {
    Var(V),
    /// A jax `Literal`.
    Literal(Bound<'py, PyAny>),
}

/// Effects, each with the number of the variable that it is on.
pub type Effects<'py> = Vec<(Bound<'py, PyAny>, Option<u32>)>;

/// A jaxpr. What is read of jax's objects may raise.
pub trait JaxprView<'py> {
    type Var;
    type Eqn;

    /// The number of a variable: small, and its own in this view.
    fn number(&self, var: &Self::Var) -> u32;

    /// Numbers are below this so far.
    fn num_vars(&self) -> usize;

    fn aval(&self, var: &Self::Var) -> PyResult<Bound<'py, PyAny>>;

    /// Whether a variable is a `DropVar`.
    fn is_dropped(&self, var: &Self::Var) -> bool;

    fn constvars(&self) -> PyResult<Vec<Self::Var>>;

    fn invars(&self) -> PyResult<Vec<Self::Var>>;

    fn outvars(&self) -> PyResult<Vec<Operand<'py, Self::Var>>>;

    /// The effects of all of it.
    fn effects(&self) -> PyResult<Effects<'py>>;

    /// The equations; None for one that is none of jax's.
    fn eqns(
        &self,
    ) -> PyResult<impl DoubleEndedIterator<Item = Option<Self::Eqn>> + ExactSizeIterator>;

    /// jax's object for an equation.
    fn eqn_object(&self, eqn: &Self::Eqn) -> PyResult<Bound<'py, PyAny>>;

    fn primitive(&self, eqn: &Self::Eqn) -> Bound<'py, PyAny>;

    fn params(&self, eqn: &Self::Eqn) -> Bound<'py, PyDict>;

    fn context(&self, eqn: &Self::Eqn) -> Bound<'py, PyAny>;

    fn source(&self, eqn: &Self::Eqn) -> PyResult<SourceRef<'py>>;

    fn has_effects(&self, eqn: &Self::Eqn) -> PyResult<bool>;

    fn eqn_effects(&self, eqn: &Self::Eqn) -> PyResult<Effects<'py>>;

    /// Whether the effects of an equation that has none are a set, as they mostly are.
    fn has_set_of_effects(&self, eqn: &Self::Eqn) -> bool;

    fn eqn_invars(&self, eqn: &Self::Eqn)
    -> impl ExactSizeIterator<Item = Operand<'py, Self::Var>>;

    fn eqn_outvars(&self, eqn: &Self::Eqn) -> impl ExactSizeIterator<Item = Self::Var>;
}

/// A jaxpr that was recorded here and that nobody has read.
pub struct GraphView<'a, 'py> {
    py: Python<'py>,
    jax: &'a Jax,
    graph: &'a Bound<'py, Graph>,
    unread: Unread<'py>,
    table: TableOf,
}

impl<'a, 'py> GraphView<'a, 'py> {
    pub fn new(jax: &'a Jax, graph: &'a Bound<'py, Graph>) -> Self {
        let unread = Graph::unread(graph);
        let table = unread.graph.get().table();
        Self { py: graph.py(), jax, graph, unread, table }
    }

    fn program(&self) -> &Arc<Program> {
        &self.unread.program
    }

    pub fn params_by_id(&self, id: ParamsId) -> Bound<'py, PyDict> {
        match self.unread.params.get(&id) {
            Some(params) => params.dict().bind(self.py).clone(),
            None => self.table.params_dict(self.py, id),
        }
    }

    /// The literal is equal to the one that Python would see.
    fn operand(&self, atom: Atom) -> Operand<'py, Var> {
        match atom.kind() {
            AtomKind::Var(var) => Operand::Var(var),
            AtomKind::Literal(id) => {
                let object = self.program().literal(id).object;
                Operand::Literal(self.table.seen_literal(self.py, id, object))
            }
        }
    }
}

impl<'py> JaxprView<'py> for GraphView<'_, 'py> {
    type Var = Var;
    type Eqn = Eqn;

    #[inline]
    fn number(&self, var: &Var) -> u32 {
        var.as_u32()
    }

    fn num_vars(&self) -> usize {
        self.program().num_vars()
    }

    fn aval(&self, &var: &Var) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.table.aval(self.py, self.program().var_type(var)))
    }

    /// Nothing recorded is.
    fn is_dropped(&self, _var: &Var) -> bool {
        false
    }

    fn constvars(&self) -> PyResult<Vec<Var>> {
        Ok(self.program().constvars().iter().map(|&(var, _)| var).collect())
    }

    fn invars(&self) -> PyResult<Vec<Var>> {
        Ok(self.program().invars().to_vec())
    }

    fn outvars(&self) -> PyResult<Vec<Operand<'py, Var>>> {
        Ok(self.program().outvars().iter().map(|&atom| self.operand(atom)).collect())
    }

    fn effects(&self) -> PyResult<Effects<'py>> {
        let effects = self.graph.get().effects(self.py);
        if !effects.is_truthy()? {
            return Ok(Effects::new());
        }
        let vars = self.table.seen_vars(self.py);
        let numbers: FxHashMap<_, _> =
            vars.map(|(var, object)| (address(&object), var.as_u32())).collect();
        with_numbers(&effects, &numbers)
    }

    fn eqns(&self) -> PyResult<impl DoubleEndedIterator<Item = Option<Eqn>> + ExactSizeIterator> {
        Ok(self.program().eqns().map(Some))
    }

    fn eqn_object(&self, &eqn: &Eqn) -> PyResult<Bound<'py, PyAny>> {
        Graph::eqn_object(self.graph, self.jax, eqn)
    }

    fn primitive(&self, &eqn: &Eqn) -> Bound<'py, PyAny> {
        let program = self.program();
        self.table.object(self.py, program.primitive(program.eqn(eqn).primitive).object)
    }

    fn params(&self, &eqn: &Eqn) -> Bound<'py, PyDict> {
        self.params_by_id(self.program().eqn(eqn).params)
    }

    fn context(&self, &eqn: &Eqn) -> Bound<'py, PyAny> {
        let program = self.program();
        self.table.object(self.py, program.context(program.eqn(eqn).context))
    }

    fn source(&self, &eqn: &Eqn) -> PyResult<SourceRef<'py>> {
        let source = self.program().source(self.program().eqn(eqn).source);
        let object = |id| self.table.source_object(self.py, id);
        let name_stack = source.name_stack.map(object);
        let empty = || self.jax.empty_name_stack.bind(self.py).clone();
        Ok(SourceRef {
            traceback: source.traceback.map(object),
            name_stack: name_stack.unwrap_or_else(empty),
        })
    }

    fn has_effects(&self, &eqn: &Eqn) -> PyResult<bool> {
        Ok(self.program().eqn(eqn).effects != EffectsId::NONE)
    }

    fn eqn_effects(&self, &eqn: &Eqn) -> PyResult<Effects<'py>> {
        let effects = self.program().eqn(eqn).effects;
        if effects == EffectsId::NONE {
            return Ok(Effects::new());
        }
        let all = self.program().effect_list(effects).iter();
        let of = |effect: &crate::ir::Effect| {
            (self.table.object(self.py, effect.object), effect.input.map(Var::as_u32))
        };
        Ok(all.map(of).collect())
    }

    fn has_set_of_effects(&self, &eqn: &Eqn) -> bool {
        self.table.stands_for_no_effects(self.program().eqn(eqn).primitive).is_none()
    }

    fn eqn_invars(&self, &eqn: &Eqn) -> impl ExactSizeIterator<Item = Operand<'py, Var>> {
        self.program().eqn_invars(eqn).iter().map(|&atom| self.operand(atom))
    }

    fn eqn_outvars(&self, &eqn: &Eqn) -> impl ExactSizeIterator<Item = Var> {
        self.program().eqn_outvars(eqn)
    }
}

/// Any jaxpr.
pub struct ListsView<'a, 'py> {
    jax: &'a Jax,
    jaxpr: &'a Bound<'py, PyAny>,
    /// The numbers of variables, by address, in the order in which they were asked for.
    numbers: RefCell<FxHashMap<usize, u32>>,
}

/// An equation with its parts.
pub struct ListedEqn<'py> {
    object: Bound<'py, PyAny>,
    parts: EqnParts<'py>,
}

impl<'a, 'py> ListsView<'a, 'py> {
    pub fn new(jax: &'a Jax, jaxpr: &'a Bound<'py, PyAny>) -> Self {
        Self { jax, jaxpr, numbers: RefCell::default() }
    }

    fn operand(&self, atom: Bound<'py, PyAny>) -> Operand<'py, Bound<'py, PyAny>> {
        if self.jax.is_literal(atom.as_ptr()) { Operand::Literal(atom) } else { Operand::Var(atom) }
    }
}

impl<'py> JaxprView<'py> for ListsView<'_, 'py> {
    type Var = Bound<'py, PyAny>;
    type Eqn = ListedEqn<'py>;

    fn number(&self, var: &Bound<'py, PyAny>) -> u32 {
        let mut numbers = self.numbers.borrow_mut();
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(address(var)).or_insert(next)
    }

    fn num_vars(&self) -> usize {
        self.numbers.borrow().len()
    }

    fn aval(&self, var: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        var.getattr(intern!(var.py(), "aval"))
    }

    fn is_dropped(&self, var: &Bound<'py, PyAny>) -> bool {
        is_exactly(var.as_ptr(), self.jax.drop_var_type.as_ptr().cast())
    }

    fn constvars(&self) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.jaxpr.getattr(intern!(self.jaxpr.py(), "constvars"))?.try_iter()?.collect()
    }

    fn invars(&self) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.jaxpr.getattr(intern!(self.jaxpr.py(), "invars"))?.try_iter()?.collect()
    }

    fn outvars(&self) -> PyResult<Vec<Operand<'py, Bound<'py, PyAny>>>> {
        let outvars = self.jaxpr.getattr(intern!(self.jaxpr.py(), "outvars"))?;
        outvars.try_iter()?.map(|atom| Ok(self.operand(atom?))).collect()
    }

    fn effects(&self) -> PyResult<Effects<'py>> {
        let effects = self.jaxpr.getattr(intern!(self.jaxpr.py(), "effects"))?;
        with_numbers(&effects, &self.numbers.borrow())
    }

    fn eqns(
        &self,
    ) -> PyResult<impl DoubleEndedIterator<Item = Option<ListedEqn<'py>>> + ExactSizeIterator> {
        let eqns = self.jaxpr.getattr(intern!(self.jaxpr.py(), "eqns"))?.cast_into::<PyList>()?;
        Ok(eqns.into_iter().map(|object| {
            let parts = EqnParts::of(self.jax, &object)?;
            Some(ListedEqn { object, parts })
        }))
    }

    fn eqn_object(&self, eqn: &ListedEqn<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(eqn.object.clone())
    }

    fn primitive(&self, eqn: &ListedEqn<'py>) -> Bound<'py, PyAny> {
        eqn.parts.primitive.clone()
    }

    fn params(&self, eqn: &ListedEqn<'py>) -> Bound<'py, PyDict> {
        eqn.parts.params.clone()
    }

    fn context(&self, eqn: &ListedEqn<'py>) -> Bound<'py, PyAny> {
        eqn.parts.ctx.clone()
    }

    fn source(&self, eqn: &ListedEqn<'py>) -> PyResult<SourceRef<'py>> {
        SourceRef::of(self.jax, &eqn.parts.source_info)
    }

    fn has_effects(&self, eqn: &ListedEqn<'py>) -> PyResult<bool> {
        eqn.parts.effects.is_truthy()
    }

    fn eqn_effects(&self, eqn: &ListedEqn<'py>) -> PyResult<Effects<'py>> {
        with_numbers(&eqn.parts.effects, &self.numbers.borrow())
    }

    fn has_set_of_effects(&self, eqn: &ListedEqn<'py>) -> bool {
        let effects = &eqn.parts.effects;
        effects.is_instance_of::<PySet>() || effects.is_instance_of::<PyFrozenSet>()
    }

    fn eqn_invars(
        &self,
        eqn: &ListedEqn<'py>,
    ) -> impl ExactSizeIterator<Item = Operand<'py, Self::Var>> {
        eqn.parts.invars.iter().map(|atom| self.operand(atom))
    }

    fn eqn_outvars(&self, eqn: &ListedEqn<'py>) -> impl ExactSizeIterator<Item = Self::Var> {
        eqn.parts.outvars.iter()
    }
}

/// jax's effects, each with the number of its variable; `numbers` has these by address.
fn with_numbers<'py>(
    effects: &Bound<'py, PyAny>,
    numbers: &FxHashMap<usize, u32>,
) -> PyResult<Effects<'py>> {
    let mut all = Effects::new();
    for effect in effects.try_iter()? {
        let effect = effect?;
        let input = effect.getattr_opt(intern!(effect.py(), "input"))?;
        let number = input.and_then(|input| numbers.get(&address(&input)).copied());
        all.push((effect, number));
    }
    Ok(all)
}
