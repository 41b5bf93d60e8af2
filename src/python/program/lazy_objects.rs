//! Objects of a program that are made when somebody asks for them: `Var`s, and copies of literals.
//!
//! jax tells both apart by identity, so there is one for each, whoever asks. To make one runs Python
//! code, in which somebody else may ask for the same: the first one that is put in its place stays.

use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::PyVisit;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::ir::{LiteralId, Var};

use crate::python::cpython::shared::{Quiet, Shared};
use crate::python::jax::names::Jax;

type Object = Py<PyAny>;

/// The `Var` objects that Python has seen so far, by variable, and the way back.
#[derive(Default)]
pub struct Vars(Shared<VarTable>);

#[derive(Default)]
struct VarTable {
    objects: Vec<Option<Object>>,
    by_pointer: FxHashMap<usize, Var>,
    /// Those that are not among the latter yet.
    new: Vec<Var>,
}

impl VarTable {
    fn put(&mut self, var: Var, object: Object) -> Option<Object> {
        self.new.push(var);
        let index = var.as_u32() as usize;
        if index >= self.objects.len() {
            self.objects.resize_with(index + 1, || None);
        }
        let before = self.objects[index].replace(object);
        self.forget_address(before.as_ref());
        before
    }

    fn take(&mut self, var: Var) -> Option<Object> {
        let taken = self.objects[var.as_u32() as usize].take();
        self.forget_address(taken.as_ref());
        taken
    }

    /// Another object may be there once this one is gone.
    fn forget_address(&mut self, object: Option<&Object>) {
        if let Some(object) = object {
            self.by_pointer.remove(&(object.as_ptr() as usize));
        }
    }
}

impl Vars {
    /// The object of a variable, if there is one.
    pub fn get(&self, quiet: Quiet<'_>, var: Var) -> Option<Object> {
        self.0.peek(|vars| {
            vars.objects.get(var.as_u32() as usize)?.as_ref().map(|object| quiet.own(object))
        })
    }

    /// The object of a variable, a new one where there is none.
    ///
    /// # Errors
    /// Out of memory.
    pub fn make<'py>(
        &self,
        jax: &Jax,
        var: Var,
        aval: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = aval.py();
        let made = jax.new_var(aval)?.unbind();
        let (object, late) = self.0.with(py, |vars, quiet| {
            if let Some(Some(known)) = vars.objects.get(var.as_u32() as usize) {
                return (quiet.own(known), Some(made));
            }
            let object = quiet.own(&made);
            (object, vars.put(var, made))
        });
        drop(late);
        Ok(object.into_bound(py))
    }

    /// Makes `object` stand for a variable from now on.
    pub fn set(&self, var: Var, object: &Bound<'_, PyAny>) {
        let own = object.clone().unbind();
        drop(self.0.with(object.py(), |vars, _| vars.put(var, own)));
    }

    /// Gives up the objects of some variables that are what is asked for; the caller drops them.
    pub fn take(
        &self,
        py: Python<'_>,
        of: &[Var],
        which: impl Fn(&Bound<'_, PyAny>) -> bool,
    ) -> Vec<Object> {
        let known: Vec<_> =
            of.iter().filter_map(|&var| Some((var, self.get(Quiet::of(py), var)?))).collect();
        let taken: Vec<Var> = known
            .iter()
            .filter(|(_, object)| which(object.bind(py)))
            .map(|(var, _)| *var)
            .collect();
        self.0.with(py, |vars, _| taken.into_iter().filter_map(|var| vars.take(var)).collect())
    }

    /// The variable that the object at an address stands for.
    pub fn var_at(&self, address: usize) -> Option<Var> {
        self.0.peek(|vars| {
            for var in vars.new.drain(..) {
                if let Some(Some(known)) = vars.objects.get(var.as_u32() as usize) {
                    vars.by_pointer.insert(known.as_ptr() as usize, var);
                }
            }
            vars.by_pointer.get(&address).copied()
        })
    }

    /// All objects, with their variables.
    pub fn seen(&self, py: Python<'_>) -> Vec<(Var, Object)> {
        self.0.with(py, |vars, quiet| {
            let seen = |(index, object): (usize, &Option<Object>)| {
                let var = Var::from_u32(u32::try_from(index).ok()?);
                Some((var, quiet.own(object.as_ref()?)))
            };
            vars.objects.iter().enumerate().filter_map(seen).collect()
        })
    }

    /// The same objects in a table of its own.
    pub fn copy(&self, py: Python<'_>) -> Self {
        Self(Shared::new(self.0.with(py, |vars, quiet| VarTable {
            objects: copies(&vars.objects, quiet),
            by_pointer: vars.by_pointer.clone(),
            new: vars.new.clone(),
        })))
    }

    /// Shows the objects to the collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let each = |vars: &VarTable| vars.objects.iter().flatten().try_for_each(|o| visit.call(o));
        self.0.visit(each).unwrap_or(Ok(()))
    }
}

fn copies(objects: &[Option<Object>], quiet: Quiet<'_>) -> Vec<Option<Object>> {
    objects.iter().map(|object| object.as_ref().map(|object| quiet.own(object))).collect()
}

/// The copies of literals that Python has seen so far.
#[derive(Default)]
pub struct LiteralCopies(Shared<Vec<Option<Object>>>);

/// The object of a literal.
pub enum OwnLiteral {
    Made(Option<Object>),
    /// Still to be made.
    Copy {
        of: Option<Object>,
        copies: Arc<LiteralCopies>,
    },
}

impl LiteralCopies {
    /// The copy for a literal, if there is one.
    pub fn get(&self, quiet: Quiet<'_>, id: LiteralId) -> Option<Object> {
        self.0.peek(|copies| {
            copies.get(id.as_u32() as usize)?.as_ref().map(|object| quiet.own(object))
        })
    }

    /// The object of a literal, a new copy where there is none.
    ///
    /// # Errors
    /// The value cannot be copied.
    pub fn make<'py>(
        py: Python<'py>,
        jax: &Jax,
        id: LiteralId,
        own: OwnLiteral,
    ) -> PyResult<Bound<'py, PyAny>> {
        let none = || py.None().into_bound(py);
        let (of, copies) = match own {
            OwnLiteral::Made(object) => return Ok(object.map_or_else(none, |o| o.into_bound(py))),
            OwnLiteral::Copy { of: None, .. } => return Ok(none()),
            OwnLiteral::Copy { of: Some(of), copies } => (of, copies),
        };
        let made = jax.copy_literal(of.bind(py))?.unbind();
        let place = id.as_u32() as usize;
        let (object, late) = copies.0.with(py, |copies, quiet| {
            if place >= copies.len() {
                copies.resize_with(place + 1, || None);
            }
            match &copies[place] {
                Some(known) => (quiet.own(known), Some(made)),
                empty => {
                    let object = quiet.own(&made);
                    debug_assert!(empty.is_none());
                    copies[place] = Some(made);
                    (object, None)
                }
            }
        });
        drop(late);
        Ok(object.into_bound(py))
    }

    /// The same copies in a table of its own.
    pub fn copy(&self, py: Python<'_>) -> Self {
        Self(Shared::new(self.0.with(py, |table, quiet| copies(table, quiet))))
    }
}
