//! Programs as bytes, and back: a format that a file can have.
//!
//! What is stored is a [`Document`]: a table of objects, one kind of which is a program, and a root,
//! a value that refers to them. An object refers to objects before it only, and a program to nothing
//! that is not there yet. So a file is read from its first byte to its last, once, without recursion
//! and without a pointer that would have to be followed; a program that many others call is there
//! once.
//!
//! # What the format does not know
//!
//! As the IR, it knows no Python. What a dtype, a mesh or a name scope is, the embedding says in
//! *records*: the name of a class and a [`ParamValue`] of fields. The embedding that reads looks the
//! name up in a table of its own; nothing in a file is code, or names any.
//!
//! # Bytes
//!
//! A file is a header and five sections, each of which has a length and a checksum (XXH3, 64 bits) in
//! the header; `docs/storage.md` has every byte. The order of the bytes of a number is fixed, and the
//! shortest form of a number is the only one, so equal documents are equal bytes, on any machine.
//!
//! # Bytes of somebody else
//!
//! [`read`] answers any bytes with a document or with a [`ReadError`], which has the offset. The
//! checksums are for accidents: whoever alters a file can make them anew. So nothing of what is read is
//! trusted. A count is compared with the bytes that are left before room is made for it, and a value
//! takes memory in proportion to the bytes that say it. What a value would be if everything it refers to
//! were copied into it is bounded as well ([`MAX_EXPANDED`]), since that is how long it takes to print
//! or to compare it. Programs are made by the [`Builder`](crate::ir::Builder), which refuses what is
//! none.
//!
//! # Why not a library
//!
//! Formats that serde derives (postcard, bincode) read nested values by recursion, and their errors do
//! not say where they are; those that are read in place (rkyv, flatbuffers) have offsets inside,
//! each of which would have to be checked, and fixed layouts that a version change breaks. What is
//! needed of them is a number of variable length and a text. The checksum is a library's.

mod copy;
mod cursor;
mod piece;
mod read;
mod read_sections;
#[doc(hidden)]
pub mod testing;
mod write;

use std::{borrow::Cow, fmt, sync::Arc};

use thiserror::Error;

pub use copy::{Copied, CopiedVars, Rows, copy, take_over};
pub use piece::{PieceReader, PieceWriter, object_piece};
pub use read::{ReadDocument, read};
pub use write::{WriteError, write};

use crate::ir::{DType, ForeignId, ParamValue, Program, Var};

/// The first bytes of a file. The first is no text, the last ones show what changed line ends.
pub const MAGIC: [u8; 8] = *b"\x89JXD\r\n\x1a\n";
/// The version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 1;
/// How deep values may be nested in each other.
pub const MAX_DEPTH: usize = 64;
/// How many frames a stack may have.
pub const MAX_STACK: u32 = 256;
/// How many values a record may be made of, each counted as often as it is referred to.
pub const MAX_EXPANDED: u64 = 1 << 24;

const SECTIONS: [Section; 5] =
    [Section::Names, Section::Frames, Section::Stacks, Section::Objects, Section::Root];
const SECTION_BYTES: usize = 24;
const HEADER_BYTES: usize = 24 + SECTIONS.len() * SECTION_BYTES + 8;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// What is in front of the sections.
    Header,
    /// The texts of frames.
    Names,
    /// Places in source code.
    Frames,
    /// Stacks of frames.
    Stacks,
    /// Objects and programs.
    Objects,
    /// The value that is stored.
    Root,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Names => "names",
            Self::Frames => "frames",
            Self::Stacks => "stacks",
            Self::Objects => "objects",
            Self::Root => "root",
        })
    }
}

/// What is stored.
#[derive(Clone, Debug)]
pub struct Document<'f> {
    /// Names of files and functions.
    pub names: Vec<Cow<'f, str>>,
    /// Places in source code.
    pub frames: Vec<Frame>,
    /// Stacks of frames, each after the one around it.
    pub stacks: Vec<Stack>,
    /// Objects, each after those that it refers to: a `ForeignId` is a place in this list.
    pub objects: Vec<Object<'f>>,
    /// What all of it is for; its opaque values are objects.
    pub root: ParamValue,
}

/// The traceback of a source that has one without frames, which is another thing than to have none.
pub const NO_FRAMES: ForeignId = ForeignId::LAST;

/// A place in source code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The file, a place among the names.
    pub file: u32,
    /// The function, a place among the names.
    pub function: u32,
    /// First and last line and column; 0 where it is not known.
    pub location: [u32; 4],
}

/// A stack of frames: one, and the stack of those around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The stack of whoever called.
    pub caller: Option<u32>,
    /// The innermost frame.
    pub frame: u32,
}

/// An object that programs or other objects refer to.
#[derive(Clone, Debug)]
pub enum Object<'f> {
    /// Something that the embedding knows.
    Record {
        /// The name of what it is.
        class: Cow<'f, str>,
        /// What it is made of; opaque values are objects.
        fields: ParamValue,
    },
    /// An array.
    Array(Array<'f>),
    /// A program.
    Program(StoredProgram),
    /// A program with values for its constants.
    Closed {
        /// The program.
        program: ForeignId,
        /// The values, arrays mostly.
        consts: Box<[ForeignId]>,
    },
}

/// The elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array<'f> {
    /// The type of an element; where it is none that the IR names, the embedding counts the bytes.
    pub dtype: DType,
    /// The sizes.
    pub shape: Box<[u64]>,
    /// The elements, the last dimension first, least significant byte first.
    pub data: Cow<'f, [u8]>,
}

/// A program and what the IR leaves to the embedding.
///
/// Variables are numbered in their order: constants, inputs, outputs of equations; the constant with
/// number n is the nth. Objects are places in the document, the traceback of a source is a stack or
/// [`NO_FRAMES`].
#[derive(Clone, Debug)]
pub struct StoredProgram {
    /// The program.
    pub program: Arc<Program>,
    /// Whether it has types that are made of others.
    pub is_high: bool,
    /// For each row of params, where its entries are in the order that the embedding has them in.
    pub param_order: Vec<Box<[u32]>>,
    /// What stands for no effects, where a primitive says so in a way of its own: in the order of primitives.
    pub no_effects: Vec<ParamValue>,
    /// Outputs that nobody held, in ascending order.
    pub dropped: Vec<Var>,
    /// Variables that other programs have as well, and their number among those; in ascending order.
    pub shared: Vec<(Var, u32)>,
}

/// Why bytes are no document.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} (byte {offset}, in the {section})")]
pub struct ReadError {
    /// Where it was noticed, from the first byte of the file.
    pub offset: u64,
    /// The part of the file that this is in.
    pub section: Section,
    /// What is wrong.
    pub what: Box<str>,
}

/// How many bytes an element takes; None where only the embedding knows.
fn element_bytes(dtype: &DType) -> Option<u64> {
    match dtype {
        DType::Float0 => Some(0),
        DType::String | DType::Extended(_) => None,
        known => u64::try_from(known.bits().div_ceil(8)).ok(),
    }
}
