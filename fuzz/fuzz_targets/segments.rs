//! Any bytes are a segment or are refused; whatever its parts say is read or refused; what was read is merged, and
//! says the same.

#![no_main]

use jaxide::segments::testing::seal;
use jaxide::segments::{Fingerprint, Segment, merge};
use jaxide::store::PieceReader;
use libfuzzer_sys::fuzz_target;

/// Reads a part as an entry or an object is read: which calls there are is up to the bytes as well.
fn read(bytes: &[u8], num_objects: usize) {
    let mut values = PieceReader::new(bytes, vec![1; num_objects]);
    while values.end().is_err() && values.value(2).is_ok() {}
    let mut objects = PieceReader::new(bytes, vec![1; num_objects]);
    while objects.end().is_err() && objects.object().is_ok() {}
    let mut mixed = PieceReader::new(bytes, vec![1; num_objects]);
    for call in bytes {
        let is_read = match call % 4 {
            0 => mixed.number(num_objects, "number").is_ok(),
            1 => mixed.optional(num_objects, "place").is_ok(),
            2 => mixed.value(num_objects).is_ok(),
            _ => mixed.object().is_ok(),
        };
        if !is_read || mixed.end().is_ok() {
            break;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let fingerprint = Fingerprint::default();
    let _ = Segment::of_bytes(bytes.to_vec(), fingerprint).map(|segment| segment.verify());
    read(bytes, 3);
    // Checksums keep nobody out who knows them.
    let mut bytes = bytes.to_vec();
    seal(&mut bytes);
    let Ok(segment) = Segment::of_bytes(bytes, fingerprint) else { return };
    for place in 0..segment.num_objects() {
        if let Ok(part) = segment.object(place) {
            read(&part.bytes, part.objects.len());
        }
    }
    for key in segment.keys() {
        if let Ok(Some(part)) = segment.entry(key) {
            read(&part.bytes, part.objects.len());
        }
    }
    let Ok(merged) = merge(&[&segment, &segment]) else { return };
    let again = Segment::of_bytes(merged.finish(fingerprint), fingerprint).expect("merged");
    assert!(again.keys().eq(segment.keys()));
    again.verify().expect("what was merged can be read");
});
