//! Pieces: numbers and values by themselves, for formats that are not a document.
//!
//! A piece is written and read as a document's objects are. Its opaque values are places in a list that
//! whoever has the piece has too.

use cranelift_entity::EntityRef;

use super::{
    Object, ReadError, Section, WriteError,
    cursor::{Cursor, put_number},
    read::Objects,
    write::{put_object, put_value},
};
use crate::ir::{ParamValue, SubprogramId};

/// Writes a piece.
#[derive(Clone, Debug, Default)]
pub struct PieceWriter {
    bytes: Vec<u8>,
}

impl PieceWriter {
    /// Writes a number.
    pub fn number(&mut self, number: usize) {
        put_number(&mut self.bytes, number as u64);
    }

    /// Writes a place in a list, or none.
    pub fn optional(&mut self, place: Option<usize>) {
        self.number(place.map_or(0, |place| place + 1));
    }

    /// Writes a value.
    ///
    /// # Errors
    /// It is nested too deeply.
    pub fn value(&mut self, value: &ParamValue) -> Result<(), WriteError> {
        put_value(&mut self.bytes, value, 0)
    }

    /// The bytes.
    pub fn finish(self) -> Box<[u8]> {
        self.bytes.into()
    }
}

/// The bytes of an object.
///
/// # Errors
/// It is nested too deeply.
pub fn object_piece(object: &Object<'_>) -> Result<Box<[u8]>, WriteError> {
    let mut bytes = Vec::new();
    put_object(&mut bytes, object)?;
    Ok(bytes.into())
}

/// Reads a piece. Offsets in errors are those in the piece.
pub struct PieceReader<'f> {
    cursor: Cursor<'f>,
    objects: Objects<'f>,
}

impl<'f> PieceReader<'f> {
    /// Starts reading. `expanded` says of each object that opaque values are places of how many values it is.
    pub fn new(bytes: &'f [u8], expanded: Vec<u64>) -> Self {
        Self { cursor: Cursor::new(Section::Objects, bytes, 0), objects: Objects::before(expanded) }
    }

    /// A number below a bound.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&mut self, bound: usize, what: &str) -> Result<usize, ReadError> {
        self.cursor.index(bound, what)
    }

    /// A place in a list of `len`, or none.
    ///
    /// # Errors
    /// There is none.
    pub fn optional(&mut self, len: usize, what: &str) -> Result<Option<usize>, ReadError> {
        Ok(self.cursor.index(len + 1, what)?.checked_sub(1))
    }

    /// A value; programs in it are places in a list of `programs`.
    ///
    /// # Errors
    /// There is none.
    pub fn value(&mut self, programs: usize) -> Result<ParamValue, ReadError> {
        let places: Vec<_> = (0..programs).map(SubprogramId::new).collect();
        Ok(self.objects.value(&mut self.cursor, &places)?.0)
    }

    /// An object, and how many values it is.
    ///
    /// # Errors
    /// There is none.
    pub fn object(&mut self) -> Result<(Object<'f>, u64), ReadError> {
        self.objects.object(&mut self.cursor)
    }

    /// Why what was read is refused.
    pub fn error(&self, what: impl Into<Box<str>>) -> ReadError {
        self.cursor.error(what)
    }

    /// The end of the piece.
    ///
    /// # Errors
    /// There is more.
    pub fn end(&self) -> Result<(), ReadError> {
        self.cursor.end()
    }
}
