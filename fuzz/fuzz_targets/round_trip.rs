//! Random documents are written, read and written again.

#![no_main]

use jaxide::store::{read, testing::any_document, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|choices: &[u8]| {
    let document = any_document(choices);
    let written = write(&document).expect("a document can be written");
    let found = read(&written).expect("what was written can be read");
    assert_eq!(format!("{:?}", found.document), format!("{document:?}"));
    assert_eq!(write(&found.document).as_ref(), Ok(&written));
});
