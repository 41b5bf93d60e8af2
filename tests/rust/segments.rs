//! Segments: what was added is found, and what was altered is as if it were not there.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jaxide::segments::testing::seal;
use jaxide::segments::{
    Fingerprint, Folder, Key, Part, Segment, SegmentError, SegmentWriter, key_of, merge,
};
use proptest::prelude::*;

const FINGERPRINT: Fingerprint = Fingerprint(*b"of a certain jax");

/// A folder that goes when the test ends.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jaxide-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn folder(&self) -> Folder {
        Folder::new(&self.0, FINGERPRINT)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn part(objects: &[u32], bytes: &[u8]) -> Part {
    Part { objects: objects.into(), bytes: bytes.into() }
}

/// A segment with an object for each text, each after the one before, and an entry of each.
fn segment_of(texts: &[&str]) -> Vec<u8> {
    let mut writer = SegmentWriter::default();
    let mut last = None;
    for text in texts {
        let object = writer.object(part(last.as_slice(), text.as_bytes()));
        writer.entry(key_of(text.as_bytes()), part(&[object], b"entry"));
        last = Some(object);
    }
    writer.finish(FINGERPRINT)
}

/// The texts of the objects that an entry leads to, the outermost first.
fn texts(segment: &Segment, key: Key) -> Option<Vec<String>> {
    let mut part = segment.entry(key).expect("not damaged")?;
    let mut found = Vec::new();
    while let Some(&object) = part.objects.first() {
        part = segment.object(object as usize).expect("an object");
        found.push(String::from_utf8_lossy(&part.bytes).into_owned());
    }
    Some(found)
}

#[test]
fn what_was_added_is_found() {
    let temporary = Temporary::new("found");
    let folder = temporary.folder();
    for number in 0..40 {
        let own = format!("own {number}");
        folder.write(&segment_of(&["shared", &own])).expect("a file");
        folder.compact().expect("one of many");
    }
    let (segments, refused) = folder.segments().expect("a folder");
    assert!(refused.is_empty());
    assert!(segments.len() <= 17, "{}", segments.len());
    for number in 0..40 {
        let own = format!("own {number}");
        let found = segments.iter().find_map(|(_, segment)| texts(segment, key_of(own.as_bytes())));
        assert_eq!(found, Some(vec![own, "shared".to_owned()]));
    }
    let all: Vec<&Segment> = segments.iter().map(|(_, segment)| segment).collect();
    let one = Segment::of_bytes(merge(&all).expect("whole").finish(FINGERPRINT), FINGERPRINT);
    let one = one.expect("a segment");
    assert_eq!((one.num_entries(), one.num_objects()), (41, 41));
    one.verify().expect("whole");
}

#[test]
fn large_segments_are_read_on_demand() {
    let temporary = Temporary::new("large");
    let mut writer = SegmentWriter::default();
    for number in 0_u32..64 {
        let bytes = vec![u8::try_from(number).expect("a byte"); 1 << 17];
        let object = writer.object(part(&[], &bytes));
        writer.entry(number.into(), part(&[object], b""));
    }
    let folder = temporary.folder();
    let path = folder.write(&writer.finish(FINGERPRINT)).expect("a file");
    let segment = Segment::open(&path, FINGERPRINT).expect("a segment");
    segment.verify().expect("whole");
    assert_eq!(segment.object(9).expect("an object").bytes[..3], [9, 9, 9]);
    // Somebody cuts the file off while it is open.
    fs::OpenOptions::new().write(true).open(&path).expect("a file").set_len(1 << 16).expect("cut");
    assert!(matches!(segment.object(63), Err(SegmentError::Truncated)));
    assert!(matches!(segment.entry(3), Err(SegmentError::Truncated)));
}

#[test]
fn every_altered_byte_is_noticed() {
    let bytes = segment_of(&["one", "two"]);
    let is_whole = |bytes: Vec<u8>| {
        Segment::of_bytes(bytes, FINGERPRINT).and_then(|segment| segment.verify()).is_ok()
    };
    assert!(is_whole(bytes.clone()));
    for place in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[place] ^= 1 << (place % 8);
        assert!(!is_whole(altered), "byte {place}");
        assert!(!is_whole(bytes[..place].to_vec()), "cut at {place}");
    }
    let other = Fingerprint(*b"of another jax..");
    assert!(matches!(Segment::of_bytes(bytes, other), Err(SegmentError::OtherFingerprint)));
}

#[test]
fn parts_that_overlap_are_refused() {
    let mut bytes = segment_of(&["one", "two", "three"]);
    seal(&mut bytes);
    assert!(Segment::of_bytes(bytes.clone(), Fingerprint::default()).is_ok());
    // Each of two objects is all of the file.
    let len = u32::try_from(bytes.len()).expect("a number");
    for row in [52, 72] {
        bytes[row..row + 8].fill(0);
        bytes[row + 16..row + 20].copy_from_slice(&len.to_le_bytes());
    }
    seal(&mut bytes);
    assert!(matches!(
        Segment::of_bytes(bytes, Fingerprint::default()),
        Err(SegmentError::Damaged(_))
    ));
}

#[test]
fn what_is_damaged_is_left_out_of_merged_segments() {
    let mut damaged = segment_of(&["one", "two"]);
    let end = damaged.len();
    damaged[end - 1] ^= 1;
    let other = segment_of(&["three"]);
    let open = |bytes: &Vec<u8>| Segment::of_bytes(bytes.clone(), FINGERPRINT).expect("a segment");
    let (damaged, other) = (open(&damaged), open(&other));
    assert!(damaged.verify().is_err());
    let merged = merge(&[&damaged, &other]).expect("a segment").finish(FINGERPRINT);
    let merged = open(&merged);
    assert!(merged.verify().is_ok());
    assert_eq!(merged.num_entries() + 1, damaged.num_entries() + other.num_entries());
}

#[test]
fn leftovers_go() {
    let temporary = Temporary::new("leftovers");
    let folder = temporary.folder();
    folder.write(&segment_of(&["one"])).expect("a file");
    let left = |name: &str, time: SystemTime| {
        let path = folder.path().join(name);
        fs::write(&path, b"half").expect("a file");
        fs::File::open(&path).expect("a file").set_modified(time).expect("a time");
        path
    };
    let day = Duration::from_hours(24);
    let now = SystemTime::now();
    let (old, ahead) = (left("1-1-0.new", now - day), left("1-1-1.new", now + day));
    let young = left("1-1-2.new", now);
    folder.trim(1 << 20);
    assert_eq!([old.exists(), ahead.exists(), young.exists()], [false, false, true]);
    assert_eq!(folder.clear(), 1);
    assert!(!folder.path().exists());
}

#[test]
fn what_was_not_used_goes_first() {
    let temporary = Temporary::new("bounds");
    let folder = temporary.folder();
    let paths: Vec<PathBuf> = ["a", "b", "c"]
        .iter()
        .map(|text| folder.write(&segment_of(&[text])).expect("a file"))
        .collect();
    for (path, hours) in paths.iter().zip([3, 2, 1]) {
        let time = SystemTime::now() - Duration::from_secs(3600 * hours);
        fs::File::open(path).expect("a file").set_modified(time).expect("a time");
    }
    Folder::touch(&paths[0]);
    let each = folder.usage().bytes / 3;
    folder.trim(2 * each);
    let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(left, [true, false, true]);
    folder.trim(0);
    assert_eq!(folder.usage().files, 0);
}

#[test]
fn what_is_no_segment_is_refused() {
    let temporary = Temporary::new("refused");
    let folder = temporary.folder();
    folder.write(&segment_of(&["one"])).expect("a file");
    fs::write(folder.path().join("garbage.jxs"), b"garbage").expect("a file");
    fs::write(folder.path().join("empty.jxs"), b"").expect("a file");
    fs::write(folder.path().join("notes.txt"), b"notes").expect("a file");
    fs::create_dir(folder.path().join("folder.jxs")).expect("a folder");
    let (segments, refused) = folder.segments().expect("a folder");
    assert_eq!((segments.len(), refused.len()), (1, 2));
}

#[test]
fn the_content_of_packages_is_the_fingerprint() {
    let temporary = Temporary::new("packages");
    let package = &temporary.0;
    fs::create_dir_all(package.join("within")).expect("a folder");
    fs::write(package.join("one.py"), "x = 1").expect("a file");
    fs::write(package.join("within/two.py"), "y = 1").expect("a file");
    let of = |salt: &[u8]| Fingerprint::of(salt, std::slice::from_ref(package)).expect("readable");
    let before = of(b"");
    assert_eq!(before, of(b""));
    assert_ne!(before, of(b"another Python"));
    fs::write(package.join("notes.txt"), "no code").expect("a file");
    assert_eq!(before, of(b""));
    fs::write(package.join("within/two.py"), "y = 2").expect("a file");
    assert_ne!(before, of(b""));
    fs::write(package.join("within/two.py"), "y = 1").expect("a file");
    fs::rename(package.join("one.py"), package.join("three.py")).expect("another name");
    assert_ne!(before, of(b""));
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        prop_assert!(Segment::of_bytes(bytes, FINGERPRINT).is_err());
    }

    #[test]
    fn altered_segments_are_answered(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = segment_of(&["one", "two", "three"]);
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        // Once as it is, and once with checksums that are right.
        for is_sealed in [false, true] {
            let mut bytes = bytes.clone();
            if is_sealed {
                seal(&mut bytes);
            }
            let fingerprint = if is_sealed { Fingerprint::default() } else { FINGERPRINT };
            if let Ok(segment) = Segment::of_bytes(bytes, fingerprint) {
                let _ = segment.verify();
                for key in segment.keys() {
                    let _ = segment.entry(key);
                }
                let _ = merge(&[&segment]).map(|merged| merged.finish(fingerprint));
            }
        }
    }

    #[test]
    fn what_is_sealed_is_read(texts in prop::collection::vec("[a-z]{1,5}", 1..5)) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut bytes = segment_of(&texts);
        seal(&mut bytes);
        let segment = Segment::of_bytes(bytes, Fingerprint::default()).expect("a segment");
        prop_assert!(segment.verify().is_ok());
    }
}
