//! Documents as bytes: there and back, and bytes that are none.

use std::{fs, path::Path};

use jaxide::ir::ParamValue;
use jaxide::store::{
    Document, MAGIC, Object, ReadError, Section, WriteError, read,
    testing::{any_document, seal},
    write,
};
use proptest::{collection, prelude::*};

fn empty() -> Document<'static> {
    any_document(&[])
}

fn error_of(file: &[u8]) -> ReadError {
    read(file).expect_err("it is refused")
}

proptest! {
    #[test]
    fn documents_survive(choices in collection::vec(any::<u8>(), 0..600)) {
        let document = any_document(&choices);
        let written = write(&document).unwrap();
        let found = read(&written).unwrap();
        prop_assert_eq!(format!("{:?}", found.document), format!("{:?}", &document));
        prop_assert_eq!(write(&found.document).unwrap(), written);
    }

    #[test]
    fn any_bytes_are_answered(
        choices in collection::vec(any::<u8>(), 0..300),
        edits in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut file = write(&any_document(&choices)).unwrap();
        for (place, byte) in edits {
            let place = place.index(file.len());
            file[place] = byte;
        }
        seal(&mut file);
        if let Err(error) = read(&file) {
            prop_assert!(error.offset <= file.len() as u64);
        }
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_noticed() {
    let choices: Vec<u8> = (0..200_u32).map(|n| (n * n % 251) as u8).collect();
    let file = write(&any_document(&choices)).unwrap();
    assert!(read(&file).is_ok());
    for len in 0..file.len() {
        error_of(&file[..len]);
    }
    for bit in 0..file.len() * 8 {
        let mut altered = file.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        error_of(&altered);
    }
    let mut longer = file.clone();
    longer.push(0);
    error_of(&longer);
}

#[test]
fn errors_say_what_and_where() {
    let file = write(&empty()).unwrap();
    let mut newer = file.clone();
    newer[8] = 2;
    let error = error_of(&newer);
    assert_eq!((error.offset, error.section), (8, Section::Header));
    assert!(error.what.contains("version of the format is 2"), "{error}");

    let error = error_of(b"PK\x03\x04");
    assert!(error.to_string().contains("no program stored by jaxide (byte 0, in the header)"));
    assert!(error_of(&file[..100]).to_string().contains("bytes are announced"));

    // The root is the last byte.
    let mut altered = file.clone();
    *altered.last_mut().unwrap() = 99;
    let error = error_of(&altered);
    assert_eq!(error.section, Section::Root);
    assert!(error.what.contains("checksum"), "{error}");
    seal(&mut altered);
    let error = error_of(&altered);
    assert_eq!(error.offset, file.len() as u64 - 1);
    assert_eq!(&*error.what, "no value is of kind 99");
}

#[test]
fn announced_lengths_are_compared_with_what_is_left() {
    let mut document = empty();
    document.root = ParamValue::Str("text".into());
    let mut file = write(&document).unwrap();
    let len = file.len() - 5;
    file[len] = 0x7f;
    seal(&mut file);
    let error = error_of(&file);
    assert_eq!(error.offset, len as u64);
    assert!(error.what.contains("127 items are announced, 4 bytes are left"), "{error}");
}

#[test]
fn values_are_nested_within_bounds() {
    let nested =
        |depth| (0..depth).fold(ParamValue::None, |inner, _| ParamValue::Tuple(Box::new([inner])));
    let mut document = empty();
    document.root = nested(63);
    let file = write(&document).unwrap();
    assert_eq!(read(&file).unwrap().document.root, document.root);
    document.root = nested(64);
    assert_eq!(write(&document).err(), Some(WriteError::TooDeep));

    // As many as a stack overflows at, by hand.
    let mut deep = file[..file.len() - 2 * 63 - 1].to_vec();
    deep.extend([12, 1].repeat(1 << 20));
    seal(&mut deep);
    assert!(error_of(&deep).what.contains("nested more than 64 deep"));
}

#[test]
fn objects_that_double_at_each_step_are_refused() {
    let twice = |n: u32| {
        let object = ParamValue::Opaque(jaxide::ir::ForeignId::from_u32(n));
        let fields = ParamValue::Tuple(Box::new([object.clone(), object]));
        Object::Record { class: "pair".into(), fields }
    };
    let mut document = empty();
    let first = u32::try_from(document.objects.len()).unwrap() - 1;
    document.objects.extend((first..first + 40).map(twice));
    let error = error_of(&write(&document).unwrap());
    assert_eq!(error.section, Section::Objects);
    assert!(error.what.contains("made of more than"), "{error}");
}

#[test]
fn deep_programs_take_no_stack() {
    use jaxide::ir::{Builder, DeadCode, DebugInfo, EffectsId, ForeignId};
    use jaxide::store::StoredProgram;

    let mut document = empty();
    for _ in 0..100_000 {
        let mut builder = Builder::new(DeadCode::Keep);
        let last = u32::try_from(document.objects.len()).unwrap() - 1;
        if let Some(Object::Program(stored)) = document.objects.last() {
            let id = builder.subprogram(ForeignId::from_u32(last));
            builder.resolve_subprogram(id, stored.program.clone());
        }
        let program = builder.finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap();
        document.objects.push(Object::Program(StoredProgram {
            program: program.into(),
            is_high: false,
            param_order: Vec::new(),
            no_effects: Vec::new(),
            dropped: Vec::new(),
            shared: Vec::new(),
        }));
    }
    let file = write(&document).unwrap();
    assert_eq!(read(&file).unwrap().document.objects.len(), document.objects.len());
}

/// What the fuzzer has found so far: files that take every way through the reader.
#[test]
fn the_corpus_of_the_fuzzer_is_answered() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut count = 0;
    for target in ["read", "round_trip"] {
        for entry in fs::read_dir(corpus.join(target)).unwrap() {
            let mut bytes = fs::read(entry.unwrap().path()).unwrap();
            count += 1;
            if target == "round_trip" {
                let written = write(&any_document(&bytes)).unwrap();
                assert!(read(&written).is_ok());
                continue;
            }
            _ = read(&bytes);
            seal(&mut bytes);
            if let Ok(found) = read(&bytes) {
                let written = write(&found.document).unwrap();
                assert_eq!(write(&read(&written).unwrap().document).unwrap(), written);
            }
        }
    }
    assert!(count > 0, "the corpus is not there");
}

#[test]
fn a_file_begins_with_the_magic() {
    assert_eq!(write(&empty()).unwrap()[..8], MAGIC);
}
