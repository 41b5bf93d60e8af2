//! Keys of the store: what signatures say, in words that mean the same in every process.

use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::expand::{Local, Signature};
use crate::segments::{Key, key_of};

use crate::python::cache::warm::library::Library;

/// The words of a signature with the names of objects in the place of their addresses, but for the configuration;
/// None where one has no name. `other` names programs and tracebacks by their words. Which of several with one name
/// are the same object does not count: they are types, whose content counts, or are where their name says, once.
///
/// # Errors
/// An object cannot be read.
pub fn portable_words(
    py: Python<'_>,
    library: &Library,
    signature: &Signature,
    other: &mut dyn FnMut(Local, u64) -> Option<Key>,
) -> PyResult<Option<Vec<u8>>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(24 * signature.words().len());
    let mut locals = signature.locals().unwrap_or_default().iter().peekable();
    for (position, &word) in signature.words().iter().enumerate().skip(1) {
        match locals.next_if(|(place, _)| *place == position) {
            None => {
                bytes.push(0);
                bytes.extend(word.to_le_bytes());
            }
            Some((_, Local::Object)) => {
                bytes.push(1);
                let address = usize::try_from(word).unwrap_or_default();
                if address == 0 {
                    bytes.extend([0; 16]);
                    continue;
                }
                // SAFETY: the signature was just made of objects that are alive.
                let Some(name) = (unsafe { library.names().of(py, address) })? else {
                    return Ok(None);
                };
                bytes.extend(name.to_le_bytes());
            }
            // The class that comes next says all of it: one of the user's has no name.
            Some((_, Local::Version)) => bytes.push(2),
            Some((_, Local::Registration)) => bytes.extend([3, u8::from(word != 0)]),
            Some((_, local @ (Local::Program | Local::Traceback))) => {
                let Some(name) = other(*local, word) else { return Ok(None) };
                bytes.push(4);
                bytes.extend(name.to_le_bytes());
            }
        }
    }
    Ok(Some(bytes))
}

/// The key of numbers and bytes.
pub fn key_of_parts(parts: &[Key], bytes: &[u8]) -> Key {
    let mut all: Vec<u8> = Vec::with_capacity(16 * parts.len() + bytes.len());
    for part in parts {
        all.extend(part.to_le_bytes());
    }
    all.extend(bytes);
    key_of(&all)
}

/// The place of a word among those that came first, as a name: which ones are the same.
pub fn place_of(places: &mut FxHashMap<u64, Key>, word: u64) -> Key {
    let next = places.len() as Key;
    *places.entry(word).or_insert(next)
}
