//! Segments: files of entries by key, written whole and read on demand.
//!
//! A *segment* has a table of objects and entries. An entry is a [`Part`] under a key of 128 bits, an object
//! is one by itself: bytes, and the objects of the segment that they refer to, for an object earlier ones.
//! What the bytes mean is the embedding's, which names the objects by their place in the list of the part.
//! So segments can be [merged](merge) by who does not know what they mean. A segment never changes: whoever
//! has more to say writes another one.
//!
//! # Bytes
//!
//! ```text
//!   0   8  89 4A 58 53 0D 0A 1A 0A
//!   8   4  version of the format
//!  12   4  number of objects
//!  16   4  number of entries
//!  20   8  length of the file
//!  28  16  fingerprint: what the entries hold for
//!  44   8  XXH3 (64 bits) of bytes 0 to 44 and of both indexes
//!  52      index of objects: offset (8), checksum (8), length (4)
//!          index of entries, by key: key (16), offset (8), checksum (8), length (4)
//!          the parts: number of objects (4), their places (4 each), bytes
//! ```
//!
//! All numbers are little-endian; a checksum is the XXH3 (64 bits) of a part.
//!
//! # Why files are not mapped
//!
//! To touch a page of a mapped file that somebody has truncated ends the process. So the indexes are read when a
//! segment is opened, and objects and entries when somebody asks for them; a small file is read at once.
//!
//! # Bytes of somebody else
//!
//! The checksums are for accidents. Places are compared with the length of the file before they are read.

mod fingerprint;
mod folder;
mod reader;
#[doc(hidden)]
pub mod testing;
mod writer;

pub use folder::{Folder, Usage};
pub use reader::{Segment, SegmentError};
pub use writer::{SegmentWriter, key_of, merge};

const MAGIC: [u8; 8] = *b"\x89JXS\r\n\x1a\n";
const VERSION: u32 = 1;
const CHECKED: usize = 44;
const HEADER_BYTES: usize = CHECKED + 8;
const OBJECT_BYTES: usize = 20;
const ENTRY_BYTES: usize = 36;
/// More objects or entries than this are no segment.
const MAX_ROWS: usize = 1 << 22;

/// What entries hold for: whoever has another one takes none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

/// What an entry is found by.
pub type Key = u128;

/// An object or an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// The objects that it refers to.
    pub objects: Box<[u32]>,
    /// What it is.
    pub bytes: Box<[u8]>,
}
