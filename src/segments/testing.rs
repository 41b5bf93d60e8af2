//! Segments that were altered by somebody who knows the format: for tests.

use xxhash_rust::xxh3::xxh3_64;

use super::writer::checksum;
use super::{CHECKED, ENTRY_BYTES, HEADER_BYTES, MAGIC, MAX_ROWS, OBJECT_BYTES, VERSION};

/// Makes the header of altered bytes right again, and the checksums of all parts that are in the file. The
/// fingerprint becomes the default one.
pub fn seal(file: &mut [u8]) {
    if file.len() < HEADER_BYTES {
        return;
    }
    let len = file.len() as u64;
    file[..8].copy_from_slice(&MAGIC);
    file[8..12].copy_from_slice(&VERSION.to_le_bytes());
    file[20..28].copy_from_slice(&len.to_le_bytes());
    file[28..CHECKED].fill(0);
    let [objects, entries] = [12, 16].map(|at| number(file, at, 4));
    let index_bytes = |objects, entries| objects * OBJECT_BYTES + entries * ENTRY_BYTES;
    let fits = objects <= MAX_ROWS && entries <= MAX_ROWS;
    if !fits || HEADER_BYTES + index_bytes(objects, entries) > file.len() {
        return;
    }
    for row in 0..objects + entries {
        let after_key = ENTRY_BYTES - OBJECT_BYTES;
        let at = HEADER_BYTES
            + if row < objects {
                index_bytes(row, 0)
            } else {
                index_bytes(objects, row - objects) + after_key
            };
        let (offset, len) = (number(file, at, 8), number(file, at + 16, 4));
        let end = offset.checked_add(len);
        if let Some(part) = end.and_then(|end| file.get(offset..end)) {
            let own = xxh3_64(part);
            file[at + 8..at + 16].copy_from_slice(&own.to_le_bytes());
        }
    }
    let index = HEADER_BYTES..HEADER_BYTES + index_bytes(objects, entries);
    let expected = checksum(&file[..CHECKED], &file[index]);
    file[CHECKED..HEADER_BYTES].copy_from_slice(&expected.to_le_bytes());
}

fn number(file: &[u8], at: usize, len: usize) -> usize {
    let mut own = [0; 8];
    own[..len].copy_from_slice(&file[at..at + len]);
    usize::try_from(u64::from_le_bytes(own)).unwrap_or(usize::MAX)
}
