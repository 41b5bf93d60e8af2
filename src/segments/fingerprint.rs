//! The fingerprint of an installation.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::Fingerprint;

/// What of a package decides what it does.
const SUFFIXES: [&str; 5] = ["py", "so", "pyd", "dylib", "json"];
/// Of a larger file its length counts, and samples.
const MAX_DEPTH: usize = 16;
const LARGE: u64 = 1 << 23;
const SAMPLES: u64 = 32;
const SAMPLE: u64 = 1 << 14;

impl Fingerprint {
    /// That of a text, and of all files of packages with code, whatever versions these say that they have.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn of(salt: &[u8], packages: &[PathBuf]) -> io::Result<Self> {
        let mut hasher = Xxh3::new();
        add(&mut hasher, salt);
        let mut bytes = Vec::new();
        for package in packages {
            let mut files = Vec::new();
            list(package, 0, &mut files)?;
            files.sort_unstable();
            hasher.update(&(files.len() as u64).to_le_bytes());
            for path in files {
                let name = path.strip_prefix(package).unwrap_or(&path);
                add(&mut hasher, name.as_os_str().as_encoded_bytes());
                read(&path, &mut bytes)?;
                add(&mut hasher, &bytes);
            }
        }
        Ok(Self(hasher.digest128().to_le_bytes()))
    }
}

/// Adds bytes, with their number.
fn add(hasher: &mut Xxh3, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// The files of a folder, and of those that links in it lead to.
fn list(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if depth == MAX_DEPTH {
                return Err(io::Error::other("folders are nested too deeply"));
            }
            list(&path, depth + 1, found)?;
        } else if path.is_file()
            && path.extension().is_some_and(|suffix| SUFFIXES.iter().any(|known| suffix == *known))
        {
            found.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    if len <= LARGE {
        file.read_to_end(bytes)?;
        return Ok(());
    }
    bytes.extend(len.to_le_bytes());
    for sample in 0..SAMPLES {
        file.seek(SeekFrom::Start((len - SAMPLE) / (SAMPLES - 1) * sample))?;
        file.by_ref().take(SAMPLE).read_to_end(bytes)?;
    }
    Ok(())
}
