//! How the params of an equation are made for other programs than those it was recorded with.

use pyo3::prelude::*;

use crate::ir::{ParamsId, Var};

use crate::python::cache::programs::forms::Form;
use crate::python::cache::programs::registry::Label;
use crate::python::cache::programs::structural_id::StructuralId;
use crate::python::program::graph::Graph;

/// How a value is made for other programs.
pub(super) enum Node {
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
pub(super) struct Derived {
    pub(super) label: Label,
    pub(super) form: Form,
    pub(super) graph: Py<Graph>,
    /// The recorded program, open.
    pub(super) recorded: Py<PyAny>,
    /// Params of its equations that have such programs.
    pub(super) params: OwnChanges,
    /// Variables that other programs may have as well.
    pub(super) vars: Vec<(Var, Py<PyAny>, VarOrigin)>,
}

/// A program that jax makes anew at each call, with variables of its own.
pub(super) struct Anew {
    pub(super) id: StructuralId,
    pub(super) form: Form,
    pub(super) graph: Py<Graph>,
    /// The recorded program, open.
    pub(super) recorded: Py<PyAny>,
    pub(super) params: OwnChanges,
}

/// Params of a program's equations that are made anew.
#[derive(Default)]
pub struct OwnChanges(pub(super) Vec<(ParamsId, Changes)>);

/// Where a variable comes from.
#[derive(Clone, Copy)]
pub(super) enum VarOrigin {
    /// A variable of one of the programs given, by their places.
    Given(usize, usize),
    /// One of what was made of them.
    Own,
    /// One of something else.
    Same,
}

/// Values of a dict of params, or fields of an object, that are made anew.
pub(super) type Changes = Vec<(Py<PyAny>, Node)>;

/// Params that are made anew.
pub struct Plan(pub(super) Changes);
