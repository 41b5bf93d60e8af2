//! What a program says, whatever its variables are called: a stable hash, and equality.
//!
//! Two programs are *equal* where they apply the same primitives with the same parameters to the same
//! operands, in the same order, and so return the same. The hash finds candidates; equality decides.
//!
//! # What counts
//!
//! Every field of every equation, but for those below: primitive, params, operands, types of the
//! outputs, effects and context; the types of inputs and constants, the outputs, the effects of the
//! program. Variables count by the order in which they are defined, nested programs by what they say,
//! constants by their type or by their value, as asked ([`Purpose`]).
//!
//! Not counted are:
//!
//! - names of inputs and outputs, and what the program was traced for: they are for messages;
//! - sources: the same computation at another line is the same;
//! - ids and the order of tables, which depend on what was recorded and removed before;
//! - in the hash alone, what has no description that outlives the process: a function counts by its name,
//!   an unknown object by its class.
//!
//! # The contract of the hash
//!
//! It is 128 bits of XXH3 over a byte stream that begins with [`VERSION`]. Integers are fed in
//! little-endian order, texts with their length, alternatives with a tag, so that no two different
//! programs feed the same bytes. The same program has the same hash in any process and on any machine.
//! Whoever changes what is fed changes the version.

mod equality;
mod fingerprint;
mod plain;

use std::sync::Arc;

use crate::ir::{ConstId, ForeignId, PrimitiveData, Program, Subprogram, Type, TypeId};

pub(crate) use equality::{Pair, inputs};
pub use equality::{Place, Within, equal};
pub use fingerprint::{Added, Fingerprint, StableHasher, Step, fingerprint, fingerprints, steps};
pub(crate) use fingerprint::{Reading, Rows, each_once};
pub use plain::{Plain, Unresolved};

/// Part of every hash; another one where what is fed to it is another.
pub const VERSION: u32 = 2;

/// What is asked of two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Are they structurally equal, constants by their types?
    Structure,
    /// Are they the same computation, constants by their values?
    Content,
    /// Can one executable stand for both? It can be given other constants, so those of the program are
    /// inputs, which come first; those of nested programs are built into it. What only derivatives
    /// depend on does not count.
    Execution,
}

/// A nested program.
#[derive(Clone)]
pub struct Nested<O> {
    /// Tells it from all others that are alive; the same for the same program.
    pub key: usize,
    /// The program.
    pub program: Arc<Program>,
    /// Its objects.
    pub objects: O,
}

/// What the embedding knows of the objects that a program refers to.
pub trait Objects: Sized {
    /// Why it cannot say.
    type Error;

    /// A nested program with its own objects.
    ///
    /// # Errors
    /// It cannot be read.
    fn nested(&self, subprogram: &Subprogram) -> Result<Nested<Self>, Self::Error>;

    /// What an object is, by a text that does not depend on the process. Objects that are the same
    /// have the same.
    ///
    /// # Errors
    /// It cannot be described.
    fn describe(&self, object: ForeignId) -> Result<Fingerprint, Self::Error>;

    /// Makes sure, for an execution, that the name of a class says which class it is.
    ///
    /// # Errors
    /// There may be another class of this name.
    fn settle_class(&self, name: &str) -> Result<(), Self::Error> {
        let _ = name;
        Ok(())
    }

    /// Makes sure, for an execution, that what is fed of a type says which type it is; what is to be fed besides.
    ///
    /// # Errors
    /// There may be another type that reads the same.
    fn settle_type(&self, id: TypeId, ty: &Type) -> Result<Option<Fingerprint>, Self::Error> {
        let _ = (id, ty);
        Ok(None)
    }

    /// Whether a param has a part in the execution of an equation.
    fn is_executed(&self, primitive: &PrimitiveData, param: &str) -> bool;

    /// The value of a constant, in the same way.
    ///
    /// # Errors
    /// It cannot be described.
    fn describe_constant(&self, value: ConstId) -> Result<Fingerprint, Self::Error>;

    /// What the object of an opaque type is, where the IR can say it.
    ///
    /// # Errors
    /// It cannot be read.
    fn type_of(&self, object: ForeignId) -> Result<Option<Type>, Self::Error>;

    /// Whether an object is the same as another program's.
    ///
    /// # Errors
    /// They cannot be compared.
    fn same(&self, own: ForeignId, others: &Self, other: ForeignId) -> Result<bool, Self::Error>;

    /// Whether a constant has the same value as another program's.
    ///
    /// # Errors
    /// They cannot be compared.
    fn same_constant(
        &self,
        own: ConstId,
        others: &Self,
        other: ConstId,
    ) -> Result<bool, Self::Error>;
}
