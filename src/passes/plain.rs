//! Programs of which there is nothing but the numbers.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::ir::{
    BuildError, Builder, ConstId, Eqn, EqnShape, ForeignId, LiteralId, ParamValue, Params,
    ParamsId, PrimitiveId, Program, Source, SourceId, SubprogramId, TypeId,
};

use super::{Embedding, Invalid, Scalar, Trimmed};

/// Why such a program could not be rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It would not be a program, or too large.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// What came out is no program.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// An embedding without objects: a number stands for the same in each program, a primitive is what
/// its name says, and a call of a program comes to its equations.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    /// What literals are.
    pub scalars: FxHashMap<ForeignId, Scalar>,
    /// What sums and products of integers come to are new literals, if anything.
    pub evaluates: bool,
}

impl Plain {
    fn object(&mut self, scalar: Scalar) -> ForeignId {
        let known = self.scalars.iter().find(|&(_, known)| *known == scalar);
        if let Some((&object, _)) = known {
            return object;
        }
        let last = self.scalars.keys().map(|object| object.as_u32()).max().unwrap_or(1 << 30);
        let object = ForeignId::from_u32(last + 1);
        self.scalars.insert(object, scalar);
        object
    }
}

impl Embedding for Plain {
    type Error = Refused;
    type Objects = ();
    type Value = Scalar;

    fn open(&mut self, _: &Arc<Program>) -> Result<(), Refused> {
        Ok(())
    }

    fn close(&mut self, _: &Arc<Program>, _: &Arc<Program>, (): ()) -> Result<(), Refused> {
        Ok(())
    }

    fn is_known(&self, (): &(), _: ForeignId) -> bool {
        true
    }

    fn scalar(&self, (): &(), literal: ForeignId) -> Option<Scalar> {
        self.scalars.get(&literal).copied()
    }

    fn value(&self, (): &(), literal: ForeignId) -> Scalar {
        self.scalars.get(&literal).copied().unwrap_or(Scalar::Bool(false))
    }

    fn evaluate(
        &mut self,
        (): &(),
        program: &Program,
        eqn: Eqn,
        operands: &[Scalar],
        _: TypeId,
    ) -> Result<Option<Scalar>, Refused> {
        let name = &*program.primitive(program.eqn(eqn).primitive).name;
        Ok(match (name, operands) {
            ("add", &[Scalar::Int(a), Scalar::Int(b)]) if self.evaluates => {
                Some(Scalar::Int(a.wrapping_add(b)))
            }
            ("mul", &[Scalar::Int(a), Scalar::Int(b)]) if self.evaluates => {
                Some(Scalar::Int(a.wrapping_mul(b)))
            }
            _ => None,
        })
    }

    fn literal(
        &mut self,
        (): &mut (),
        builder: &mut Builder,
        value: &Scalar,
        ty: TypeId,
    ) -> Result<Option<LiteralId>, Refused> {
        let object = self.object(*value);
        Ok(Some(builder.literal(ty, object)?))
    }

    fn constant(&mut self, (): &mut (), _: &Scalar, _: TypeId) -> Result<Option<ConstId>, Refused> {
        Ok(None)
    }

    fn number(&self, (): &(), number: Scalar, _: TypeId) -> Option<Scalar> {
        Some(number)
    }

    fn multiplication(
        &mut self,
        (): &mut (),
        _: &mut Builder,
    ) -> Result<Option<(PrimitiveId, ParamsId)>, Refused> {
        Ok(None)
    }

    fn with_programs(
        &mut self,
        (): &mut (),
        builder: &mut Builder,
        params: ParamsId,
        programs: &[(ForeignId, Arc<Program>)],
    ) -> Result<ParamsId, Refused> {
        let entries: Vec<_> = builder
            .params_data(params)
            .iter()
            .map(|(name, value)| (Box::from(name), value.clone()))
            .collect();
        let mut changed: FxHashMap<SubprogramId, SubprogramId> = FxHashMap::default();
        for id in builder.params_data(params).subprograms() {
            let object = builder.subprogram_data(id).object;
            if let Some((_, now)) = programs.iter().find(|(was, _)| *was == object) {
                // A number that depends on which program it is, so that equal ones share it.
                let number = ForeignId::from_u32(1 << 29 | (object.as_u32() & 0xfff_ffff));
                let new = builder.subprogram(number);
                builder.resolve_subprogram(new, now.clone());
                changed.insert(id, new);
            }
        }
        let new = entries.into_iter().map(|(name, value)| (name, with(value, &changed))).collect();
        // The names are those that the params had.
        Ok(Params::new(new).map_or(params, |new| builder.params(new)))
    }

    fn is_plain_call(&self, (): &(), _: &Program, _: ParamsId) -> bool {
        true
    }

    fn trim(
        &mut self,
        (): &mut (),
        _: &mut Builder,
        _: &Program,
        _: Eqn,
        _: &[bool],
    ) -> Result<Trimmed, Refused> {
        Ok(Trimmed::Same)
    }

    fn import_shape(
        &mut self,
        (): &mut (),
        builder: &mut Builder,
        from: &Program,
        eqn: Eqn,
    ) -> Result<EqnShape, Refused> {
        let data = from.eqn(eqn);
        let primitive = from.primitive(data.primitive);
        let primitive =
            builder.primitive(&primitive.name, primitive.multiple_results, primitive.object);
        let mut changed = FxHashMap::default();
        for id in from.params(data.params).subprograms() {
            let within = from.subprogram(id);
            let here = builder.subprogram(within.object);
            if let Some(program) = &within.program {
                builder.resolve_subprogram(here, program.clone());
            }
            changed.insert(id, here);
        }
        let entries = from
            .params(data.params)
            .iter()
            .map(|(name, value)| (Box::from(name), with(value.clone(), &changed)))
            .collect();
        let params = builder.params(Params::new(entries).unwrap_or_default());
        let types: Vec<_> =
            data.outvars().map(|var| builder.ty(from.ty(from.var_type(var)).clone())).collect();
        let context = builder.context(from.context(data.context));
        Ok(builder.shape(primitive, params, &types, crate::ir::EffectsId::NONE, context)?)
    }

    fn import_source(
        &mut self,
        (): &mut (),
        builder: &mut Builder,
        from: &Program,
        source: SourceId,
        caller: SourceId,
    ) -> Result<SourceId, Refused> {
        let Source { traceback, name_stack } = from.source(source);
        let caller = builder.source_data(caller);
        let name_stack = name_stack.or(caller.name_stack);
        Ok(builder.source(Source { traceback, name_stack }))
    }

    fn import_literal(
        &mut self,
        (): &mut (),
        builder: &mut Builder,
        from: &Program,
        literal: LiteralId,
    ) -> Result<LiteralId, Refused> {
        let data = from.literal(literal);
        let ty = builder.ty(from.ty(data.ty).clone());
        Ok(builder.literal(ty, data.object)?)
    }

    fn import_constant(
        &mut self,
        (): &mut (),
        builder: &mut Builder,
        from: &Program,
        (ty, value): (TypeId, ConstId),
    ) -> Result<(TypeId, ConstId), Refused> {
        Ok((builder.ty(from.ty(ty).clone()), value))
    }
}

/// A value with other programs in it.
fn with(value: ParamValue, changed: &FxHashMap<SubprogramId, SubprogramId>) -> ParamValue {
    match value {
        ParamValue::Program(id) => ParamValue::Program(changed.get(&id).copied().unwrap_or(id)),
        ParamValue::Tuple(items) => {
            ParamValue::Tuple(items.into_iter().map(|item| with(item, changed)).collect())
        }
        other => other,
    }
}
