//! Each room of `src/python` imports only those below it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may import. `tools` knows neither `trace`, `cache` nor `interpose`, nor do they know it.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("cpython", &[]),
    ("jax", &["cpython"]),
    ("program", &["cpython", "jax"]),
    ("store", &["cpython", "jax", "program"]),
    ("tools", &["cpython", "jax", "program", "store"]),
    ("trace", &["cpython", "jax", "program"]),
    ("cache", &["cpython", "jax", "program", "store", "trace"]),
    ("interpose", &["cpython", "jax", "program", "store", "trace", "cache"]),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The rooms that a line of code mentions.
fn mentioned(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split("crate::python::").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        ALLOWED.iter().any(|(room, _)| *room == &rest[..end]).then_some(&rest[..end])
    })
}

#[test]
fn rooms_import_what_is_below_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let mut upward = BTreeSet::new();
    for file in files {
        let path = file.strip_prefix(&folder).expect("within").to_string_lossy().replace('\\', "/");
        let Some((room, _)) = path.split_once('/') else { continue };
        let (_, allowed) = ALLOWED.iter().find(|(name, _)| *name == room).expect("a known room");
        for line in fs::read_to_string(&file).expect("a text").lines() {
            for other in mentioned(line).filter(|other| *other != room) {
                if !allowed.contains(&other) {
                    upward.insert(format!("{path} -> {other}"));
                }
            }
        }
    }
    assert!(upward.is_empty(), "imports of rooms that are not below: {upward:#?}");
}
