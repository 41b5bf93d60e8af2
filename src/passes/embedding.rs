//! What passes ask of the embedding.

use std::sync::Arc;

use crate::ir::{
    BuildError, Builder, ConstId, EffectsId, Eqn, EqnShape, ForeignId, LiteralId, ParamsId,
    PrimitiveId, Program, SourceId, TypeId,
};

use super::Invalid;

/// The value of a literal that is one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// The bits of a float, as one of 64 bits; not a NaN.
    Float(u64),
    /// The bits of the parts of a complex number; none of them a NaN.
    Complex(u64, u64),
}

impl Scalar {
    /// Whether it is this integer.
    pub(super) fn is_int(self, value: i128) -> bool {
        self == Self::Int(value)
    }

    /// Whether it is this float, zeros by their sign.
    pub(super) fn is_float(self, value: f64) -> bool {
        self == Self::Float(value.to_bits())
    }
}

/// An equation whose program was made not to compute what nobody uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trimmed {
    /// There is nothing to leave out.
    Same,
    /// All of it can be left out.
    Gone,
    /// Some of it can.
    To {
        /// Which operands are left.
        operands: Vec<bool>,
        /// Which outputs are left.
        outputs: Vec<bool>,
        /// The params.
        params: ParamsId,
        /// The effects, those that it had.
        effects: EffectsId,
    },
}

/// The objects that programs refer to by numbers, and what only these can tell.
///
/// A builder that is passed holds the program that is being written, and `objects` are those that
/// its numbers stand for; both grow together.
pub trait Embedding {
    /// Why it failed.
    type Error: From<BuildError> + From<Invalid>;
    /// The objects of one program.
    type Objects;
    /// What an equation evaluates to.
    type Value: Clone;

    /// The objects of a program, to which others are added as it is rewritten.
    ///
    /// # Errors
    /// A nested program cannot be read.
    fn open(&mut self, program: &Arc<Program>) -> Result<Self::Objects, Self::Error>;

    /// A program has become another one with these objects.
    ///
    /// # Errors
    /// It cannot be kept.
    fn close(
        &mut self,
        was: &Arc<Program>,
        now: &Arc<Program>,
        objects: Self::Objects,
    ) -> Result<(), Self::Error>;

    /// Whether a primitive is the one that is known by its name.
    fn is_known(&self, objects: &Self::Objects, primitive: ForeignId) -> bool;

    /// The number that a literal is.
    fn scalar(&self, objects: &Self::Objects, literal: ForeignId) -> Option<Scalar>;

    /// The value of a literal.
    fn value(&self, objects: &Self::Objects, literal: ForeignId) -> Self::Value;

    /// What an equation of a single result computes of these operands, a value of this type; none
    /// where that may be something else on another device, or cannot be said.
    ///
    /// # Errors
    /// It cannot be evaluated.
    fn evaluate(
        &mut self,
        objects: &Self::Objects,
        program: &Program,
        eqn: Eqn,
        operands: &[Self::Value],
        ty: TypeId,
    ) -> Result<Option<Self::Value>, Self::Error>;

    /// A literal of a value, which is of this type; none where it is not.
    ///
    /// # Errors
    /// There is no room for it.
    fn literal(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
        value: &Self::Value,
        ty: TypeId,
    ) -> Result<Option<LiteralId>, Self::Error>;

    /// A number for a value that becomes an array, a constant of the program of this type; none where
    /// it is of another.
    ///
    /// # Errors
    /// The array cannot be made.
    fn constant(
        &mut self,
        objects: &mut Self::Objects,
        value: &Self::Value,
        ty: TypeId,
    ) -> Result<Option<ConstId>, Self::Error>;

    /// A number as a value of a type; none where it has none.
    fn number(&self, objects: &Self::Objects, number: Scalar, ty: TypeId) -> Option<Self::Value>;

    /// The primitive that multiplies two operands, and its params.
    ///
    /// # Errors
    /// They cannot be made.
    fn multiplication(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
    ) -> Result<Option<(PrimitiveId, ParamsId)>, Self::Error>;

    /// The same params with other programs, given by the objects of those that they replace.
    ///
    /// # Errors
    /// They cannot be made.
    fn with_programs(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
        params: ParamsId,
        programs: &[(ForeignId, Arc<Program>)],
    ) -> Result<ParamsId, Self::Error>;

    /// Whether the call of a program comes to no more than the equations of it: nothing is donated,
    /// placed or compiled in a way of its own.
    fn is_plain_call(&self, objects: &Self::Objects, program: &Program, params: ParamsId) -> bool;

    /// What an equation that runs programs comes to where only some of its outputs are used. The
    /// equation is one of `program`, whose numbers the builder's begin with.
    ///
    /// # Errors
    /// The rule for it fails.
    fn trim(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
        program: &Program,
        eqn: Eqn,
        used: &[bool],
    ) -> Result<Trimmed, Self::Error>;

    /// What an equation of a nested program consists of, without effects, in a program that runs it.
    ///
    /// # Errors
    /// There is no room for it.
    fn import_shape(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
        from: &Program,
        eqn: Eqn,
    ) -> Result<EqnShape, Self::Error>;

    /// The source of an equation of a nested program, in a program that runs it from this source.
    ///
    /// # Errors
    /// It cannot be made.
    fn import_source(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
        from: &Program,
        source: SourceId,
        caller: SourceId,
    ) -> Result<SourceId, Self::Error>;

    /// A literal of a nested program, in a program that runs it.
    ///
    /// # Errors
    /// There is no room for it.
    fn import_literal(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
        from: &Program,
        literal: LiteralId,
    ) -> Result<LiteralId, Self::Error>;

    /// A constant of a nested program and its type, in a program that runs it.
    ///
    /// # Errors
    /// There is no room for it.
    fn import_constant(
        &mut self,
        objects: &mut Self::Objects,
        builder: &mut Builder,
        from: &Program,
        constant: (TypeId, ConstId),
    ) -> Result<(TypeId, ConstId), Self::Error>;
}
