//! A segment that is read on demand.

use std::fs::File;
use std::io;
use std::path::Path;

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::writer::checksum;
use super::{
    CHECKED, ENTRY_BYTES, Fingerprint, HEADER_BYTES, Key, MAGIC, MAX_ROWS, OBJECT_BYTES, Part,
    VERSION,
};

/// A file up to this length is read at once.
const SMALL: u64 = 1 << 22;

/// Why a file, or a part of it, is as if it were not there.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else, or another version.
    #[error("it is no segment of version {VERSION}")]
    Foreign,
    /// Its entries hold for another jax, Python or jaxide.
    #[error("its entries hold for another installation")]
    OtherFingerprint,
    /// It is shorter than it says.
    #[error("it is shorter than it says")]
    Truncated,
    /// Bytes are not what was written.
    #[error("the bytes from {0} on are not those that were written")]
    Damaged(u64),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    checksum: u64,
    len: u32,
}

#[derive(Debug)]
enum Content {
    Whole(Vec<u8>),
    File(File),
}

/// An open segment.
#[derive(Debug)]
pub struct Segment {
    content: Content,
    objects: Vec<Place>,
    entries: Vec<(Key, Place)>,
}

/// Takes little-endian numbers from the front of bytes that are there.
struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        taken[..front.len()].copy_from_slice(front);
        self.0 = rest;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset += read as u64;
        bytes = &mut bytes[read..];
    }
    Ok(())
}

impl Content {
    fn read(&self, offset: u64, len: usize) -> Result<std::borrow::Cow<'_, [u8]>, SegmentError> {
        match self {
            Self::Whole(bytes) => {
                let start = usize::try_from(offset).map_err(|_| SegmentError::Truncated)?;
                let end = start.checked_add(len).ok_or(SegmentError::Truncated)?;
                Ok(bytes.get(start..end).ok_or(SegmentError::Truncated)?.into())
            }
            Self::File(file) => {
                let mut bytes = vec![0; len];
                read_at(file, &mut bytes, offset).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => SegmentError::Truncated,
                    _ => error.into(),
                })?;
                Ok(bytes.into())
            }
        }
    }
}

impl Segment {
    /// Opens a file, whose entries hold for an installation.
    ///
    /// # Errors
    /// It is no such segment.
    pub fn open(path: &Path, fingerprint: Fingerprint) -> Result<Self, SegmentError> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        if len > SMALL {
            return Self::of(Content::File(file), len, fingerprint);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        io::Read::read_to_end(&mut io::Read::take(file, SMALL), &mut bytes)?;
        Self::of_bytes(bytes, fingerprint)
    }

    /// A segment of bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn of_bytes(bytes: Vec<u8>, fingerprint: Fingerprint) -> Result<Self, SegmentError> {
        let len = bytes.len() as u64;
        Self::of(Content::Whole(bytes), len, fingerprint)
    }

    fn of(content: Content, len: u64, fingerprint: Fingerprint) -> Result<Self, SegmentError> {
        let header = content.read(0, HEADER_BYTES)?.into_owned();
        let mut numbers = Numbers(&header);
        if numbers.take() != MAGIC || numbers.u32() != VERSION {
            return Err(SegmentError::Foreign);
        }
        let [objects, entries] = [numbers.u32(), numbers.u32()].map(|len| len as usize);
        if objects > MAX_ROWS || entries > MAX_ROWS {
            return Err(SegmentError::Damaged(12));
        }
        if numbers.u64() != len {
            return Err(SegmentError::Truncated);
        }
        if Fingerprint(numbers.take()) != fingerprint {
            return Err(SegmentError::OtherFingerprint);
        }
        let expected = numbers.u64();
        let index = {
            let index_bytes = objects * OBJECT_BYTES + entries * ENTRY_BYTES;
            if (HEADER_BYTES + index_bytes) as u64 > len {
                return Err(SegmentError::Truncated);
            }
            content.read(HEADER_BYTES as u64, index_bytes)?.into_owned()
        };
        if checksum(&header[..CHECKED], &index) != expected {
            return Err(SegmentError::Damaged(0));
        }
        let mut numbers = Numbers(&index);
        let within = |place: Place, at: usize| {
            let end = place.offset.checked_add(place.len.into());
            if end.is_some_and(|end| end <= len) {
                Ok(place)
            } else {
                Err(SegmentError::Damaged((HEADER_BYTES + at) as u64))
            }
        };
        let object = |at: usize| {
            let (offset, checksum) = (numbers.u64(), numbers.u64());
            let place = Place { offset, checksum, len: numbers.u32() };
            within(place, at)
        };
        let object_rows = (0..objects).map(object).collect::<Result<Vec<_>, SegmentError>>()?;
        let mut numbers = Numbers(&index[objects * OBJECT_BYTES..]);
        let entry = |at: usize| {
            let key = Key::from_le_bytes(numbers.take());
            let (offset, checksum) = (numbers.u64(), numbers.u64());
            Ok((key, within(Place { offset, checksum, len: numbers.u32() }, at)?))
        };
        let entry_rows = (0..entries).map(entry).collect::<Result<Vec<_>, SegmentError>>()?;
        if !entry_rows.is_sorted_by(|(one, _), (another, _)| one < another) {
            return Err(SegmentError::Damaged(HEADER_BYTES as u64));
        }
        // Parts do not overlap: all of them together are no longer than the file.
        let places = object_rows.iter().chain(entry_rows.iter().map(|(_, place)| place));
        if places.map(|place| u64::from(place.len)).sum::<u64>() > len {
            return Err(SegmentError::Damaged(HEADER_BYTES as u64));
        }
        Ok(Self { content, objects: object_rows, entries: entry_rows })
    }

    fn part(&self, place: Place, num_objects: usize) -> Result<Part, SegmentError> {
        let bytes = self.content.read(place.offset, place.len as usize)?;
        let damaged = || SegmentError::Damaged(place.offset);
        if xxh3_64(&bytes) != place.checksum || bytes.len() < 4 {
            return Err(damaged());
        }
        let mut numbers = Numbers(&bytes);
        let len = numbers.u32() as usize;
        if numbers.0.len() / 4 < len {
            return Err(damaged());
        }
        let objects: Box<[u32]> = (0..len).map(|_| numbers.u32()).collect();
        if objects.iter().any(|&object| object as usize >= num_objects) {
            return Err(damaged());
        }
        Ok(Part { objects, bytes: numbers.0.into() })
    }

    /// An entry; None where there is none. Its objects are there.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn entry(&self, key: Key) -> Result<Option<Part>, SegmentError> {
        let found = self.entries.binary_search_by_key(&key, |&(key, _)| key);
        found.ok().map(|row| self.part(self.entries[row].1, self.objects.len())).transpose()
    }

    /// An object. Those that it refers to come before it.
    ///
    /// # Errors
    /// There is none, or as `entry`.
    pub fn object(&self, place: usize) -> Result<Part, SegmentError> {
        self.part(*self.objects.get(place).ok_or(SegmentError::Truncated)?, place)
    }

    /// How many objects there are.
    pub fn num_objects(&self) -> usize {
        self.objects.len()
    }

    /// How many entries there are.
    pub fn num_entries(&self) -> usize {
        self.entries.len()
    }

    /// The keys of all entries, in ascending order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = Key> {
        self.entries.iter().map(|&(key, _)| key)
    }

    /// Reads everything.
    ///
    /// # Errors
    /// Something is damaged.
    pub fn verify(&self) -> Result<(), SegmentError> {
        (0..self.objects.len()).try_for_each(|place| self.object(place).map(drop))?;
        self.entries
            .iter()
            .try_for_each(|&(_, place)| self.part(place, self.objects.len()).map(drop))
    }
}
