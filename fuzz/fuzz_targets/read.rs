//! Any bytes are read, or refused with a place; what was read is written and read again.

#![no_main]

use jaxide::ir::{ViolationKind, verify};
use jaxide::store::{Object, read, testing::seal, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = read(bytes) {
        assert!(error.offset <= bytes.len() as u64, "{error}");
    }
    // Checksums keep nobody out who knows them.
    let mut bytes = bytes.to_vec();
    seal(&mut bytes);
    let found = match read(&bytes) {
        Ok(found) => found,
        Err(error) => {
            assert!(error.offset <= bytes.len() as u64, "{error}");
            return;
        }
    };
    for object in &found.document.objects {
        if let Object::Program(stored) = object
            && let Err(violations) = verify(&stored.program)
        {
            // Names are not counted: jax itself allows for others.
            let is_name = |kind: &ViolationKind| matches!(kind, ViolationKind::NameCount { .. });
            assert!(violations.iter().all(|v| is_name(&v.kind)), "{violations:?}");
        }
    }
    let written = write(&found.document).expect("what was read can be written");
    let again = read(&written).expect("what was written can be read");
    assert_eq!(write(&again.document).as_ref(), Ok(&written));
});
