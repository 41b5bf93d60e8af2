//! The fingerprint of an installation.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::Xxh3;

use super::Fingerprint;

/// What of a package decides what it does.
const SUFFIXES: [&str; 5] = ["py", "so", "pyd", "dylib", "json"];
/// Of a larger file the ends count, and when it was changed last.
const LARGE: u64 = 1 << 23;
const END: u64 = 1 << 16;

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
            list(package, &mut files)?;
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

fn list(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            list(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|suffix| SUFFIXES.iter().any(|known| suffix == *known))
        {
            found.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    let mut file = File::open(path)?;
    let data = file.metadata()?;
    if data.len() <= LARGE {
        file.read_to_end(bytes)?;
        return Ok(());
    }
    let changed = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    bytes.extend(data.len().to_le_bytes());
    bytes.extend(changed.as_nanos().to_le_bytes());
    file.by_ref().take(END).read_to_end(bytes)?;
    file.seek(SeekFrom::End(-END.cast_signed()))?;
    file.take(END).read_to_end(bytes)?;
    Ok(())
}
