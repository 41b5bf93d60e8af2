//! Objects and entries as the bytes of a segment.

use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use super::{
    CHECKED, ENTRY_BYTES, Fingerprint, HEADER_BYTES, Key, MAGIC, OBJECT_BYTES, Part, Segment,
    SegmentError, VERSION,
};

/// The key of content.
pub fn key_of(content: &[u8]) -> Key {
    xxh3_128(content)
}

/// A segment to be.
#[derive(Clone, Debug, Default)]
pub struct SegmentWriter {
    objects: Vec<Part>,
    places: FxHashMap<Part, u32>,
    entries: Vec<(Key, Part)>,
    keys: FxHashSet<Key>,
}

impl SegmentWriter {
    /// The place of an object, which refers to those added before.
    pub fn object(&mut self, object: Part) -> u32 {
        let next = number(self.objects.len());
        let place = *self.places.entry(object).or_insert_with_key(|object| {
            self.objects.push(object.clone());
            next
        });
        debug_assert!(self.objects[place as usize].objects.iter().all(|&other| other < place));
        place
    }

    /// Adds an entry. Of those with one key the first one counts.
    pub fn entry(&mut self, key: Key, entry: Part) {
        if self.keys.insert(key) {
            self.entries.push((key, entry));
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of the file.
    pub fn finish(self, fingerprint: Fingerprint) -> Vec<u8> {
        let Self { objects, mut entries, .. } = self;
        entries.sort_unstable_by_key(|&(key, _)| key);
        let first = HEADER_BYTES + objects.len() * OBJECT_BYTES + entries.len() * ENTRY_BYTES;
        let mut index = Vec::with_capacity(first - HEADER_BYTES);
        let mut parts = Vec::new();
        let mut put = |index: &mut Vec<u8>, part: &Part| {
            let start = parts.len();
            parts.extend(number(part.objects.len()).to_le_bytes());
            parts.extend(part.objects.iter().flat_map(|object| object.to_le_bytes()));
            parts.extend(&part.bytes);
            let own = &parts[start..];
            index.extend(((first + start) as u64).to_le_bytes());
            index.extend(xxh3_64(own).to_le_bytes());
            index.extend(number(own.len()).to_le_bytes());
        };
        for object in &objects {
            put(&mut index, object);
        }
        for (key, entry) in &entries {
            index.extend(key.to_le_bytes());
            put(&mut index, entry);
        }
        let mut file = Vec::with_capacity(first + parts.len());
        file.extend(MAGIC);
        file.extend(VERSION.to_le_bytes());
        file.extend(number(objects.len()).to_le_bytes());
        file.extend(number(entries.len()).to_le_bytes());
        file.extend(((first + parts.len()) as u64).to_le_bytes());
        file.extend(fingerprint.0);
        debug_assert_eq!(file.len(), CHECKED);
        file.extend(checksum(&file, &index).to_le_bytes());
        file.extend(index);
        file.extend(parts);
        file
    }
}

/// One segment with the entries of several, which are for one fingerprint. Of those with one key the first
/// one counts. What is damaged is left out, with the entries that refer to it.
///
/// # Errors
/// One of them cannot be read.
pub fn merge(segments: &[&Segment]) -> Result<SegmentWriter, SegmentError> {
    let mut merged = SegmentWriter::default();
    for segment in segments {
        let mut places: Vec<Option<u32>> = Vec::with_capacity(segment.num_objects());
        let moved = |part: Part, places: &[Option<u32>]| {
            let objects = part.objects.iter().map(|&object| places[object as usize]);
            Some(Part { objects: objects.collect::<Option<_>>()?, bytes: part.bytes })
        };
        for place in 0..segment.num_objects() {
            let object = whole(segment.object(place))?.and_then(|object| moved(object, &places));
            places.push(object.map(|object| merged.object(object)));
        }
        for key in segment.keys() {
            let entry = whole(segment.entry(key))?.flatten();
            if let Some(entry) = entry.and_then(|entry| moved(entry, &places)) {
                merged.entry(key, entry);
            }
        }
    }
    Ok(merged)
}

/// None where a part is damaged.
fn whole<T>(part: Result<T, SegmentError>) -> Result<Option<T>, SegmentError> {
    match part {
        Err(error @ SegmentError::Io(_)) => Err(error),
        part => Ok(part.ok()),
    }
}

/// The checksum of a header and both indexes.
pub(super) fn checksum(header: &[u8], index: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(header);
    hasher.update(index);
    hasher.digest()
}

fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
