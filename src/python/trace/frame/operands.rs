//! Operands and other parts of an equation to be, as far as only Python can tell.

use std::sync::Arc;

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::ir::{Builder, ParamsId, PrimitiveId, SourceId, TypeId, Var};

use crate::python::cpython::shared::Quiet;
use crate::python::jax::avals::{AvalInfo, aval_info};
use crate::python::jax::names::Jax;
use crate::python::program::objects::{ObjectTable, PrimitiveFacts, ReadEffects, literal_type};
use crate::python::trace::frame::Frame;
use crate::python::trace::frame::state::finished;

type Object = Py<PyAny>;

/// An operand of an equation to be.
#[derive(Clone)]
pub enum Operand<'py> {
    /// A variable of this frame, and its tracer where there is one at hand.
    Var { var: Var, aval: Bound<'py, PyAny>, tracer: Option<Bound<'py, PyAny>> },
    /// A jax `Literal`.
    Literal { literal: Bound<'py, PyAny>, value: Bound<'py, PyAny>, aval: Bound<'py, PyAny> },
    /// A value that is, or becomes, a constant of this frame.
    Const { value: Bound<'py, PyAny>, aval: Bound<'py, PyAny> },
}

impl<'py> Operand<'py> {
    pub fn aval(&self) -> &Bound<'py, PyAny> {
        match self {
            Self::Var { aval, .. } | Self::Literal { aval, .. } | Self::Const { aval, .. } => aval,
        }
    }
}

/// The ids of a remembered equation in this frame.
#[derive(Clone)]
pub struct LocalEntry {
    pub primitive: PrimitiveId,
    pub params: ParamsId,
    pub out_types: SmallVec<[TypeId; 1]>,
}

/// An operand, as far as only Python can tell.
pub enum Ready<'a> {
    Var(Var),
    Literal { literal: &'a Object, aval: Object, info: Arc<AvalInfo> },
    Const { value: &'a Object, aval: &'a Object, info: Arc<AvalInfo> },
}

impl<'a> Ready<'a> {
    /// # Errors
    /// A type cannot be read.
    pub fn of(jax: &Jax, operand: &'a Operand<'_>) -> PyResult<Self> {
        Ok(match operand {
            Operand::Var { var, .. } => Self::Var(*var),
            Operand::Literal { literal, .. } => {
                let (aval, info) = literal_type(jax, literal)?;
                Self::Literal { literal: literal.as_unbound(), aval: aval.unbind(), info }
            }
            Operand::Const { value, aval } => Self::Const {
                value: value.as_unbound(),
                aval: aval.as_unbound(),
                info: aval_info(jax, aval)?,
            },
        })
    }
}

/// An equation to be appended.
pub struct Appended<'a, 'py> {
    pub local: &'a LocalEntry,
    pub operands: &'a [Operand<'py>],
    /// Not empty.
    pub effects: Option<&'a Bound<'py, PyAny>>,
    /// What stands for no effects.
    pub no_effects: Option<&'a Bound<'py, PyAny>>,
    pub source: SourceId,
    /// jax's equation context.
    pub context: &'a Bound<'py, PyAny>,
}

/// A new variable and whether its tracers are counted.
pub struct NewVar {
    pub var: Var,
    pub counted: bool,
}

/// An equation to be appended, as far as only Python can tell.
pub(super) struct ReadEqn<'a> {
    pub operands: &'a [Ready<'a>],
    pub effects: Option<&'a ReadEffects>,
    pub no_effects: Option<&'a Object>,
    pub context: &'a Object,
}

/// A primitive that is looked up in a frame.
pub struct ReadPrimitive<'a> {
    object: &'a Object,
    /// Where it is not known there.
    said: Option<PrimitiveFacts>,
}

impl<'a> ReadPrimitive<'a> {
    /// # Errors
    /// An attribute cannot be read.
    pub fn of(frame: &Bound<'_, Frame>, primitive: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        let address = primitive.as_ptr() as usize;
        let is_known = frame.get().peek(|state| state.table.known_primitive(address).is_some());
        Self::read(primitive, is_known)
    }

    /// As `of`, of several, which are then made ids in this order.
    ///
    /// # Errors
    /// An attribute cannot be read.
    pub fn each<'py: 'a>(
        frame: &Bound<'py, Frame>,
        primitives: impl Iterator<Item = &'a Bound<'py, PyAny>> + Clone,
    ) -> PyResult<SmallVec<[Self; 4]>> {
        let addresses: SmallVec<[usize; 4]> =
            primitives.clone().map(|primitive| primitive.as_ptr() as usize).collect();
        let is_known = frame.get().peek(|state| {
            // By the time that it comes again it is known.
            let mut met = FxHashSet::default();
            let is_known =
                |&at: &usize| state.table.known_primitive(at).is_some() || !met.insert(at);
            addresses.iter().map(is_known).collect::<SmallVec<[bool; 8]>>()
        });
        primitives.zip(is_known).map(|(primitive, known)| Self::read(primitive, known)).collect()
    }

    fn read(primitive: &'a Bound<'_, PyAny>, is_known: bool) -> PyResult<Self> {
        let said = if is_known { None } else { Some(PrimitiveFacts::of(primitive)?) };
        Ok(Self { object: primitive.as_unbound(), said })
    }

    /// # Errors
    /// The program is finished.
    pub fn id(
        &self,
        builder: &mut Builder,
        table: &mut ObjectTable,
        quiet: Quiet<'_>,
    ) -> PyResult<PrimitiveId> {
        let address = self.object.as_ptr() as usize;
        match (&self.said, table.known_primitive(address)) {
            (_, Some(known)) => Ok(known),
            (Some(said), None) => Ok(table.primitive_of(builder, self.object, said, quiet)),
            // The program was finished meanwhile.
            (None, None) => Err(finished()),
        }
    }
}
