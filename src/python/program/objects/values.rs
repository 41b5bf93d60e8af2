//! Constants, literals and variables.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;

use crate::ir::{Builder, ConstId, ForeignId, LiteralId, TypeId, Var};

use crate::python::cpython::native::address;
use crate::python::cpython::shared::Quiet;
use crate::python::jax::avals::{self, AvalInfo};
use crate::python::jax::names::Jax;
use crate::python::program::lazy_objects::{LiteralCopies, OwnLiteral, Vars};
use crate::python::program::objects::{Object, ObjectTable, bound};

impl ObjectTable {
    pub fn new_const(&mut self, value: &Bound<'_, PyAny>) -> ConstId {
        self.new_const_of(value.as_unbound(), Quiet::of(value.py()))
    }

    /// As `new_const`.
    pub fn new_const_of(&mut self, value: &Object, quiet: Quiet<'_>) -> ConstId {
        self.consts.peek(|consts| {
            let id = ConstId::from_u32(u32::try_from(consts.len()).unwrap_or(u32::MAX - 1));
            consts.push(Some(quiet.own(value)));
            id
        })
    }

    /// Gives a constant a value.
    pub fn set_constant(&self, id: ConstId, value: &Bound<'_, PyAny>) {
        let index = id.as_u32() as usize;
        let (py, value) = (value.py(), value.clone().unbind());
        drop(self.consts.with(py, |consts, _| {
            if index >= consts.len() {
                consts.resize_with(index + 1, || None);
            }
            consts[index].replace(value)
        }));
    }

    pub fn constant<'py>(&self, py: Python<'py>, id: ConstId) -> Option<Bound<'py, PyAny>> {
        self.constant_of(Quiet::of(py), id).map(|value| value.into_bound(py))
    }

    /// As `constant`.
    pub fn constant_of(&self, quiet: Quiet<'_>, id: ConstId) -> Option<Object> {
        self.consts
            .peek(|consts| consts.get(id.as_u32() as usize)?.as_ref().map(|value| quiet.own(value)))
    }

    /// Gives up a constant; the caller drops it once no Python code is held off.
    pub fn take_const(&self, id: ConstId) -> Option<Object> {
        self.consts.peek(|consts| consts.get_mut(id.as_u32() as usize)?.take())
    }

    /// The literal for a jax `Literal` object.
    pub fn literal(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        literal: &Bound<'_, PyAny>,
    ) -> PyResult<LiteralId> {
        if let Some(&id) = self.literal_by_pointer.get(&address(literal)) {
            return Ok(id);
        }
        let (aval, info) = literal_type(jax, literal)?;
        let quiet = Quiet::of(literal.py());
        self.literal_of(builder, literal.as_unbound(), (aval.as_unbound(), &info), quiet)
    }

    /// As `literal`, whose type was read.
    pub fn literal_of(
        &mut self,
        builder: &mut Builder,
        literal: &Object,
        (aval, info): (&Object, &AvalInfo),
        quiet: Quiet<'_>,
    ) -> PyResult<LiteralId> {
        let address = literal.as_ptr() as usize;
        if let Some(&id) = self.literal_by_pointer.get(&address) {
            return Ok(id);
        }
        let ty = self.type_of(builder, aval, info, quiet);
        let object = self.push(quiet.own(literal));
        let id = builder.literal(ty, object).map_err(avals::build_error)?;
        self.literal_by_pointer.insert(address, id);
        Ok(id)
    }

    /// Another literal equal to one, an object of its own: jax tells literals apart by identity.
    pub fn copy_literal(
        &mut self,
        builder: &mut Builder,
        literal: LiteralId,
    ) -> PyResult<LiteralId> {
        let copy = builder.copy_literal(literal).map_err(avals::build_error)?;
        self.copied_literals.insert(copy);
        Ok(copy)
    }

    /// The jax `Literal` of a literal.
    pub fn literal_object<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        id: LiteralId,
        object: ForeignId,
    ) -> PyResult<Bound<'py, PyAny>> {
        let own = self.own_literal(Quiet::of(py), id, object);
        LiteralCopies::make(py, jax, id, own)
    }

    /// What a literal's object is, or is made of.
    pub fn own_literal(&self, quiet: Quiet<'_>, id: LiteralId, object: ForeignId) -> OwnLiteral {
        if !self.copied_literals.contains(id) {
            return OwnLiteral::Made(self.object_of(quiet, object));
        }
        match self.literal_copies.get(quiet, id) {
            Some(known) => OwnLiteral::Made(Some(known)),
            None => OwnLiteral::Copy {
                of: self.object_of(quiet, object),
                copies: self.literal_copies.clone(),
            },
        }
    }

    /// The object of a literal that Python may have seen.
    pub fn seen_literal<'py>(
        &self,
        py: Python<'py>,
        id: LiteralId,
        object: ForeignId,
    ) -> Bound<'py, PyAny> {
        bound(py, self.seen_literal_of(Quiet::of(py), id, object).as_ref())
    }

    /// As `seen_literal`.
    pub fn seen_literal_of(
        &self,
        quiet: Quiet<'_>,
        id: LiteralId,
        object: ForeignId,
    ) -> Option<Object> {
        self.literal_copies.get(quiet, id).or_else(|| self.object_of(quiet, object))
    }

    /// As `literal`, for an object that nobody else holds.
    pub fn fresh_literal(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        literal: &Bound<'_, PyAny>,
    ) -> PyResult<LiteralId> {
        let (aval, info) = literal_type(jax, literal)?;
        let quiet = Quiet::of(literal.py());
        let ty = self.type_of(builder, aval.as_unbound(), &info, quiet);
        self.fresh_literal_of(builder, ty, literal)
    }

    /// As `fresh_literal`, of a type that is known.
    ///
    /// # Errors
    /// The ids are used up.
    pub fn fresh_literal_of(
        &mut self,
        builder: &mut Builder,
        ty: TypeId,
        literal: &Bound<'_, PyAny>,
    ) -> PyResult<LiteralId> {
        let object = self.push(literal.clone().unbind());
        builder.literal(ty, object).map_err(avals::build_error)
    }

    /// The `Var` object of a variable, made where it does not exist yet.
    pub fn var_object<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
        ty: TypeId,
        var: Var,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.vars.get(Quiet::of(py), var) {
            Some(object) => Ok(object.into_bound(py)),
            None => self.vars.make(jax, var, self.aval(py, ty)),
        }
    }

    /// The `Var` objects of the program.
    pub fn vars(&self) -> &Arc<Vars> {
        &self.vars
    }

    /// The `Var` objects that Python has seen.
    pub fn seen_vars<'py>(
        &self,
        py: Python<'py>,
    ) -> impl Iterator<Item = (Var, Bound<'py, PyAny>)> {
        self.vars.seen(py).into_iter().map(move |(var, object)| (var, object.into_bound(py)))
    }

    /// Makes `object` stand for `var` from now on.
    pub fn set_var_object(&self, var: Var, object: &Bound<'_, PyAny>) {
        self.vars.set(var, object);
    }

    /// The variable that a `Var` object stands for.
    pub fn var_of(&self, object: &Bound<'_, PyAny>) -> Option<Var> {
        self.vars.var_at(address(object))
    }
}

/// The type of a jax `Literal`, read.
///
/// # Errors
/// An attribute cannot be read.
pub fn literal_type<'py>(
    jax: &Jax,
    literal: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Arc<AvalInfo>)> {
    let aval = literal.getattr(intern!(literal.py(), "aval"))?;
    let info = avals::aval_info(jax, &aval)?;
    Ok((aval, info))
}
