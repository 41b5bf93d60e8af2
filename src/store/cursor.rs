//! Numbers and texts as bytes.

use super::{ReadError, Section};

/// Appends a number, seven bits to a byte, the lowest first.
pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(0x80 | low_bits(number));
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    (number & 0x7f) as u8
}

pub(super) fn put_len(bytes: &mut Vec<u8>, len: usize) {
    put_number(bytes, len as u64);
}

pub(super) fn put_bytes(bytes: &mut Vec<u8>, content: &[u8]) {
    put_len(bytes, content.len());
    bytes.extend_from_slice(content);
}

/// A signed number as one without a sign, small where its magnitude is.
pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// A section that is being read. Nothing is read beyond its end.
pub(super) struct Cursor<'f> {
    section: Section,
    bytes: &'f [u8],
    position: usize,
    /// Where the section begins in the file.
    base: u64,
}

impl<'f> Cursor<'f> {
    pub(super) fn new(section: Section, bytes: &'f [u8], base: u64) -> Self {
        Self { section, bytes, position: 0, base }
    }

    /// The place in the file.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    pub(super) fn error(&self, what: impl Into<Box<str>>) -> ReadError {
        self.error_at(self.offset(), what)
    }

    pub(super) fn error_at(&self, offset: u64, what: impl Into<Box<str>>) -> ReadError {
        ReadError { offset, section: self.section, what: what.into() }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(super) fn end(&self) -> Result<(), ReadError> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.error(format!("{left} bytes follow what was expected"))),
        }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'f [u8], ReadError> {
        let taken = self.bytes[self.position..].get(..len).ok_or_else(|| {
            self.error(format!("{len} bytes are announced, {} are left", self.left()))
        })?;
        self.position += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, ReadError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn flag(&mut self) -> Result<bool, ReadError> {
        let offset = self.offset();
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.error_at(offset, format!("{other} is neither 0 nor 1"))),
        }
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, ReadError> {
        // Most numbers are one byte.
        if let Some(&byte) = self.bytes.get(self.position)
            && byte < 0x80
        {
            self.position += 1;
            return Ok(byte.into());
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, ReadError> {
        // Most others are two.
        if let Some(&[low, high @ 1..0x80]) = self.bytes.get(self.position..self.position + 2) {
            self.position += 2;
            return Ok(u64::from(low & 0x7f) | (u64::from(high) << 7));
        }
        let offset = self.offset();
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return if byte == 0 && shift > 0 {
                    Err(self.error_at(offset, "a number is longer than it needs to be"))
                } else {
                    Ok(number)
                };
            }
        }
        Err(self.error_at(offset, "a number has more than 64 bits"))
    }

    pub(super) fn signed(&mut self) -> Result<i64, ReadError> {
        Ok(unzigzag(self.number()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, ReadError> {
        let offset = self.offset();
        u32::try_from(self.number()?)
            .map_err(|_| self.error_at(offset, "a number has more than 32 bits"))
    }

    /// A place in a list of `len`.
    #[inline]
    pub(super) fn index(&mut self, len: usize, what: &str) -> Result<usize, ReadError> {
        let offset = self.offset();
        let index = self.number()?;
        match usize::try_from(index) {
            Ok(index) if index < len => Ok(index),
            _ => {
                Err(self
                    .error_at(offset, format!("{what} {index} does not exist: there are {len}")))
            }
        }
    }

    /// The length of a list whose items take at least `item_bytes` each, which are there.
    #[inline]
    pub(super) fn len(&mut self, item_bytes: usize) -> Result<usize, ReadError> {
        let offset = self.offset();
        let len = self.number()?;
        let room = self.left() / item_bytes;
        match usize::try_from(len) {
            Ok(len) if len <= room => Ok(len),
            _ => Err(self.error_at(
                offset,
                format!("{len} items are announced, {} bytes are left", self.left()),
            )),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'f [u8], ReadError> {
        let len = self.len(1)?;
        self.take(len)
    }

    pub(super) fn text(&mut self) -> Result<&'f str, ReadError> {
        let offset = self.offset();
        std::str::from_utf8(self.bytes()?)
            .map_err(|error| self.error_at(offset, format!("a text is not UTF-8: {error}")))
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }
}
