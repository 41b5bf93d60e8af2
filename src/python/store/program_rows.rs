//! The rows of one program as those of the document that is stored.

use cranelift_entity::{EntityRef, SecondaryMap, packed_option::PackedOption};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustc_hash::FxHashMap;

use crate::ir::{
    Builder, ContextId, DType, Dim, Effect, EffectsId, Eqn, ForeignId, LiteralId, ParamValue,
    Params, ParamsId, PrimitiveId, Program, Source, SourceId, Type, TypeId,
};
use crate::store::Rows;

use crate::python::jax::avals::build_error;
use crate::python::program::graph::Graph;
use crate::python::store::save::Saver;

/// Why a program is not stored.
pub(super) struct Refusal(pub(super) PyErr);

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<crate::ir::BuildError> for Refusal {
    fn from(error: crate::ir::BuildError) -> Self {
        Self(build_error(error))
    }
}

/// A row that is being stored.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum At {
    Type(TypeId),
    Primitive(PrimitiveId),
    Param(ParamsId, Box<str>),
    Effects,
    Source(SourceId),
    Context(ContextId),
    Literal(LiteralId),
}

/// The rows of one program as those of the document.
pub(super) struct ProgramRows<'s, 'a, 'py> {
    pub(super) saver: &'s mut Saver<'a, 'py>,
    pub(super) graph: &'s Bound<'py, Graph>,
    pub(super) program: &'s Program,
    /// The first primitive that each row of params is for.
    pub(super) primitives: SecondaryMap<ParamsId, PackedOption<PrimitiveId>>,
    pub(super) param_order: Vec<Box<[u32]>>,
    pub(super) no_effects: Vec<ParamValue>,
    pub(super) at: Option<At>,
}

impl<'py> ProgramRows<'_, '_, 'py> {
    pub(super) fn handle(&self, id: ForeignId) -> Bound<'py, PyAny> {
        self.graph.get().table().object(self.saver.py(), id)
    }

    /// The equation that has what cannot be stored, and what that is.
    pub(super) fn failed(&self) -> (Option<Eqn>, String) {
        let program = self.program;
        let uses = |eqn: &Eqn| {
            let data = program.eqn(*eqn);
            let has_literal = |id: LiteralId| {
                let operands = program.eqn_invars(*eqn).iter();
                operands.filter_map(|atom| atom.as_literal()).any(|own| own == id)
            };
            let has_type = |ty: TypeId| {
                let vars = program.eqn_outvars(*eqn);
                vars.map(|var| program.var_type(var)).any(|own| own == ty)
            };
            match &self.at {
                None => false,
                Some(At::Type(ty)) => has_type(*ty),
                Some(At::Primitive(id)) => data.primitive == *id,
                Some(At::Param(id, _)) => data.params == *id,
                Some(At::Effects) => data.effects != EffectsId::NONE,
                Some(At::Source(id)) => data.source == *id,
                Some(At::Context(id)) => data.context == *id,
                Some(At::Literal(id)) => has_literal(*id),
            }
        };
        let what = match &self.at {
            None => "",
            Some(At::Type(_)) => "a type",
            Some(At::Primitive(_)) => "the primitive",
            Some(At::Param(_, name)) => {
                return (program.eqns().find(uses), format!("param {name}"));
            }
            Some(At::Effects) => "an effect",
            Some(At::Source(_)) => "the source",
            Some(At::Context(_)) => "the context",
            Some(At::Literal(_)) => "a literal",
        };
        (program.eqns().find(uses), what.to_owned())
    }
}

/// Whether a type is said by what the format has for types.
fn is_plain(ty: &Type) -> bool {
    let Type::Array(array) = ty else { return false };
    let is_static = array.shape.iter().all(|dim| matches!(dim, Dim::Static(_)));
    let fields = [&array.sharding, &array.manual_axis_type, &array.memory_space, &array.layout];
    let is_named = !matches!(array.dtype, DType::Extended(_) | DType::String);
    is_static && is_named && fields.iter().all(|field| field.is_none())
}

impl Rows for ProgramRows<'_, '_, '_> {
    type Error = Refusal;

    fn ty(&mut self, builder: &mut Builder, id: TypeId) -> Result<TypeId, Refusal> {
        self.at = Some(At::Type(id));
        let ty = self.program.ty(id);
        if is_plain(ty) {
            return Ok(builder.ty(ty.clone()));
        }
        let aval = self.graph.get().table().aval(self.saver.py(), id);
        let object = self.saver.object(&aval, "")?;
        // The same object is the same type, whatever the IR knows of it.
        let name = aval.get_type().name().map_err(Refusal)?.to_str().map_err(Refusal)?.into();
        Ok(builder.ty(Type::Opaque { name, object }))
    }

    fn primitive(
        &mut self,
        builder: &mut Builder,
        id: PrimitiveId,
    ) -> Result<PrimitiveId, Refusal> {
        self.at = Some(At::Primitive(id));
        let data = self.program.primitive(id);
        let object = self.saver.object(&self.handle(data.object), "")?;
        let copy = builder.primitive(&data.name, data.multiple_results, object);
        if copy.index() == self.no_effects.len() {
            let py = self.saver.py();
            let no_effects = {
                let graph = self.graph.get();
                graph.table().stands_for_no_effects(id).map(|object| object.bind(py).clone())
            };
            let stored = match no_effects {
                Some(object) => self.saver.value(&object, "")?,
                None => ParamValue::None,
            };
            self.no_effects.push(stored);
        }
        Ok(copy)
    }

    fn params(&mut self, builder: &mut Builder, id: ParamsId) -> Result<ParamsId, Refusal> {
        let py = self.saver.py();
        let primitive = match self.primitives[id].expand() {
            Some(primitive) => &*self.program.primitive(primitive).name,
            None => "",
        };
        let params = self.program.params(id);
        let dict = self.graph.get().table().params_dict(py, id);
        let mut entries = Vec::with_capacity(params.len());
        let mut positions: FxHashMap<&str, u32> = FxHashMap::default();
        for (place, (name, value)) in (0..).zip(params.iter()) {
            self.at = Some(At::Param(id, name.into()));
            self.saver.check_param(name, &dict)?;
            positions.insert(name, place);
            let (graph, program) = (self.graph, self.program);
            let place = format!("{primitive}.{name}");
            let value = self.saver.stored(value, &mut |saver, value| {
                let handle = |id| graph.get().table().object(py, id);
                Ok(match value {
                    ParamValue::Opaque(id) => {
                        Some(ParamValue::Opaque(saver.object(&handle(*id), &place)?))
                    }
                    ParamValue::Program(id) => {
                        let row = saver.jaxpr(&handle(program.subprogram(*id).object))?;
                        let nested = builder.subprogram(row);
                        if let Some(program) = saver.program_at(row) {
                            builder.resolve_subprogram(nested, program);
                        }
                        Some(ParamValue::Program(nested))
                    }
                    _ => None,
                })
            })?;
            entries.push((name.into(), value));
        }
        let mut order = Vec::with_capacity(entries.len());
        for name in dict.keys() {
            let name = name.cast_into::<PyString>().map_err(PyErr::from)?;
            order.extend(positions.get(name.to_str()?));
        }
        let entries = Params::new(entries)
            .map_err(|error| Refusal(PyRuntimeError::new_err(error.to_string())))?;
        let copy = builder.params(entries);
        if copy.index() == self.param_order.len() {
            self.param_order.push(order.into());
        }
        Ok(copy)
    }

    fn effects(&mut self, builder: &mut Builder, list: Vec<Effect>) -> Result<EffectsId, Refusal> {
        self.at = Some(At::Effects);
        let objects = list.into_iter().map(|effect| {
            let object = self.handle(effect.object);
            (effect.name, effect.input, object)
        });
        let list = self.saver.effects(objects.collect())?;
        Ok(builder.effects(&list))
    }

    fn source(&mut self, builder: &mut Builder, id: SourceId) -> Result<SourceId, Refusal> {
        self.at = Some(At::Source(id));
        let py = self.saver.py();
        let source = self.program.source(id);
        let object = |id| self.graph.get().table().source_object(py, id);
        let traceback = match source.traceback.map(object) {
            Some(traceback) => Some(self.saver.stack(&traceback)?),
            None => None,
        };
        let name_stack = match source.name_stack.map(object) {
            Some(name_stack) => Some(self.saver.object(&name_stack, "")?),
            None => None,
        };
        Ok(builder.source(Source { traceback, name_stack }))
    }

    fn context(&mut self, builder: &mut Builder, id: ContextId) -> Result<ContextId, Refusal> {
        self.at = Some(At::Context(id));
        let object = self.handle(self.program.context(id));
        Ok(builder.context(self.saver.object(&object, "")?))
    }

    fn literal(
        &mut self,
        builder: &mut Builder,
        id: LiteralId,
        ty: TypeId,
    ) -> Result<LiteralId, Refusal> {
        self.at = Some(At::Literal(id));
        let literal = self.handle(self.program.literal(id).object);
        let value = literal.getattr(intern!(self.saver.py(), "val"))?;
        let object = match self.saver.value(&value, "")? {
            ParamValue::Opaque(object) => object,
            plain => self.saver.intern(("value".to_owned(), plain)),
        };
        Ok(builder.literal(ty, object)?)
    }
}
