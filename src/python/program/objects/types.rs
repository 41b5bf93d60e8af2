//! Types, primitives and params.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ir::{Builder, ParamsId, PrimitiveId, Type, TypeId};

use crate::python::cpython::native::{address, string_of};
use crate::python::cpython::shared::Quiet;
use crate::python::jax::avals::{self, AvalInfo};
use crate::python::jax::names::Jax;
use crate::python::program::canonical::canonical_params;
use crate::python::program::objects::{Object, ObjectTable};

impl ObjectTable {
    /// The type of `aval`; each aval object keeps a type of its own, so that the way back is exact.
    pub fn ty(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        aval: &Bound<'_, PyAny>,
    ) -> PyResult<TypeId> {
        if let Some(&ty) = self.type_by_pointer.get(&address(aval)) {
            return Ok(ty);
        }
        let info = avals::aval_info(jax, aval)?;
        let quiet = Quiet::of(aval.py());
        if let Some(described) = &info.ty
            && !jax.interns_types.is_truthy(aval.py())?
        {
            let ty = builder.ty(described.clone());
            let known = self.retained.avals.get(ty.as_u32() as usize);
            if let Some(known) = known.map(|known| known.bind(aval.py()).clone())
                && known.eq(aval)?
            {
                // The address stays the aval's own for as long as the table has it.
                let _ = self.handle_of(aval.as_unbound(), quiet);
                self.type_by_pointer.insert(address(aval), ty);
                return Ok(ty);
            }
        }
        Ok(self.type_of(builder, aval.as_unbound(), &info, quiet))
    }

    /// As `ty`, of an aval that was read.
    pub fn type_of(
        &mut self,
        builder: &mut Builder,
        aval: &Object,
        info: &AvalInfo,
        quiet: Quiet<'_>,
    ) -> TypeId {
        let address = aval.as_ptr() as usize;
        if let Some(&ty) = self.type_by_pointer.get(&address) {
            return ty;
        }
        let opaque = |table: &mut Self| Type::Opaque {
            name: info.name.clone(),
            object: table.handle_of(aval, quiet),
        };
        let described = match &info.ty {
            Some(ty) => ty.clone(),
            None => opaque(self),
        };
        let mut ty = builder.ty(described);
        if (ty.as_u32() as usize) < self.retained.avals.len() {
            // Another aval object reads the same: keep both apart.
            let opaque = opaque(self);
            ty = builder.ty(opaque);
        }
        debug_assert_eq!(ty.as_u32() as usize, self.retained.avals.len());
        Arc::make_mut(&mut self.retained).avals.push(quiet.own(aval));
        self.type_by_pointer.insert(address, ty);
        ty
    }

    pub fn primitive(
        &mut self,
        builder: &mut Builder,
        primitive: &Bound<'_, PyAny>,
    ) -> PyResult<PrimitiveId> {
        if let Some(&id) = self.primitive_by_pointer.get(&address(primitive)) {
            return Ok(id);
        }
        let said = PrimitiveFacts::of(primitive)?;
        Ok(self.primitive_of(builder, primitive.as_unbound(), &said, Quiet::of(primitive.py())))
    }

    /// The primitive at an address.
    pub fn known_primitive(&self, address: usize) -> Option<PrimitiveId> {
        self.primitive_by_pointer.get(&address).copied()
    }

    /// As `primitive`, of one that was read.
    pub fn primitive_of(
        &mut self,
        builder: &mut Builder,
        primitive: &Object,
        said: &PrimitiveFacts,
        quiet: Quiet<'_>,
    ) -> PrimitiveId {
        let address = primitive.as_ptr() as usize;
        if let Some(&id) = self.primitive_by_pointer.get(&address) {
            return id;
        }
        let object = self.handle_of(primitive, quiet);
        let id = builder.primitive(&said.name, said.multiple, object);
        self.primitive_by_pointer.insert(address, id);
        id
    }

    pub fn params_id(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        params: &Bound<'_, PyDict>,
    ) -> PyResult<ParamsId> {
        let canonical = canonical_params(jax, builder, self, params)?;
        let id = builder.params(canonical);
        self.params.entry(id).or_insert_with(|| params.clone().unbind());
        Ok(id)
    }

    /// As `params_id`, read when somebody asks for the IR: a trace has no use for the content.
    pub fn deferred_params_id(
        &mut self,
        builder: &mut Builder,
        params: &Py<PyDict>,
        quiet: Quiet<'_>,
    ) -> ParamsId {
        let object = self.handle_of(params.as_any(), quiet);
        let id = builder.deferred_params(object);
        self.params.entry(id).or_insert_with(|| quiet.own(params));
        id
    }

    /// Reads all deferred params.
    pub fn resolve_params(
        &mut self,
        py: Python<'_>,
        jax: &Jax,
        builder: &mut Builder,
    ) -> PyResult<()> {
        let mut known = Vec::new();
        for id in builder.unresolved_params() {
            let params = self.params_dict(py, id);
            known.push((id, canonical_params(jax, builder, self, &params)?));
        }
        builder.resolve_params(known);
        Ok(())
    }

    /// The dict that equations with these params share.
    pub fn params_dict<'py>(&self, py: Python<'py>, id: ParamsId) -> Bound<'py, PyDict> {
        match self.params.get(&id) {
            Some(params) => params.bind(py).clone(),
            None => PyDict::new(py),
        }
    }

    /// As `params_dict`.
    pub fn params_of(&self, quiet: Quiet<'_>, id: ParamsId) -> Option<Py<PyDict>> {
        self.params.get(&id).map(|params| quiet.own(params))
    }

    /// Gives equations other params.
    pub fn set_params(&mut self, id: ParamsId, params: &Bound<'_, PyDict>) {
        self.params.insert(id, params.clone().unbind());
    }

    /// A dict of its own for one equation.
    pub fn params_copy<'py>(&self, py: Python<'py>, id: ParamsId) -> PyResult<Bound<'py, PyDict>> {
        self.params_dict(py, id).copy()
    }
}

/// What a primitive says of itself.
pub struct PrimitiveFacts {
    name: String,
    multiple: bool,
}

impl PrimitiveFacts {
    /// # Errors
    /// An attribute cannot be read.
    pub fn of(primitive: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = primitive.py();
        Ok(Self {
            name: string_of(&primitive.getattr(intern!(py, "name"))?.str()?),
            multiple: primitive.getattr(intern!(py, "multiple_results"))?.is_truthy()?,
        })
    }
}
