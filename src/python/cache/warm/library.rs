//! The segments of the store that are open in this process, and what it adds to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use pyo3::exceptions::{PyException, PyRecursionError, PyUserWarning, PyValueError, PyWarning};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::segments::{Fingerprint, Folder, Key, Segment, SegmentError, merge};

use crate::python::cache::derived_programs;
use crate::python::cache::fragment::save::save;
use crate::python::cache::key::trace_context::configuration_now;
use crate::python::cache::programs::stored;
use crate::python::cache::store::{self, Known};
use crate::python::cache::warm::names::Names;
use crate::python::cache::warm::programs::KeptProgram;
use crate::python::cache::warm::whole;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::shared::Shared;
use crate::python::jax::names::jax;
use crate::python::store::pieces::{EntrySaver, Inapplicable, Reading, Shelf};

/// An open store.
pub struct Library {
    folder: Folder,
    fingerprint: Fingerprint,
    is_writable: bool,
    max_bytes: u64,
    shelves: Vec<(PathBuf, Shelf)>,
    /// Makes records of objects, and objects of records.
    records: Py<PyAny>,
    maker: Py<PyAny>,
    names: Arc<Names>,
    /// Values that the next process is to have, and whether they are written.
    values: AddressCache<(Py<PyAny>, bool), Key>,
    hits: AtomicU64,
    misses: AtomicU64,
    refused: AtomicU64,
}

/// What a thread reads while the process is starting.
struct Read {
    folder: Folder,
    fingerprint: Fingerprint,
    shelves: Vec<(PathBuf, Shelf)>,
    refused: Vec<String>,
}

/// A store that is being opened.
struct Opening {
    thread: JoinHandle<std::io::Result<Read>>,
    is_writable: bool,
    max_bytes: u64,
    records: Py<PyAny>,
    maker: Py<PyAny>,
    names: Arc<Names>,
}

enum State {
    Closed,
    Opening(Box<Opening>),
    Open(Arc<Library>),
}

static STATE: Shared<State> = Shared::new(State::Closed);
static IS_CLOSED: AtomicBool = AtomicBool::new(true);

/// Whether there is a store.
#[inline]
pub fn is_open() -> bool {
    !IS_CLOSED.load(Ordering::Relaxed)
}

/// Forgets the objects of entries that were made: jax has forgotten its programs.
///
/// # Errors
/// Out of memory.
pub fn forget_objects(py: Python<'_>) -> PyResult<()> {
    if let Some(library) = current(py) {
        // What was learnt goes with the cache.
        if let Err(error) = library.write(py) {
            warn(py, &format!("the store was not written: {}", error.value(py)))?;
        }
        library.shelves.iter().for_each(|(_, shelf)| shelf.forget());
        whole::forget();
        jax(py)?.requests.bind(py).call_method0(pyo3::intern!(py, "clear"))?;
    }
    Ok(())
}

/// The store that is open; None where there is none.
#[inline]
pub fn current(py: Python<'_>) -> Option<Arc<Library>> {
    if is_open() { opened(py) } else { None }
}

#[cold]
fn opened(py: Python<'_>) -> Option<Arc<Library>> {
    let (library, opening) = STATE.peek(|state| match state {
        State::Open(library) => (Some(library.clone()), None),
        State::Closed => (None, None),
        State::Opening(_) => (None, Some(std::mem::replace(state, State::Closed))),
    });
    let Some(State::Opening(opening)) = opening else { return library };
    let Opening { thread, is_writable, max_bytes, records, maker, names } = *opening;
    // It needs no Python: it is over in some milliseconds, most of which went by while jax was imported.
    let read = match thread.join() {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => {
            IS_CLOSED.store(true, Ordering::Relaxed);
            let _ = warn(py, &format!("the store is not used: {error}"));
            return None;
        }
        Err(_) => {
            IS_CLOSED.store(true, Ordering::Relaxed);
            return None;
        }
    };
    let Read { folder, fingerprint, shelves, refused } = read;
    let library = Arc::new(Library {
        folder,
        fingerprint,
        is_writable,
        max_bytes,
        shelves,
        records,
        maker,
        names,
        values: AddressCache::new(),
        hits: AtomicU64::new(0),
        misses: AtomicU64::new(0),
        refused: AtomicU64::new(refused.len() as u64),
    });
    let old = STATE.peek(|state| std::mem::replace(state, State::Open(library.clone())));
    drop(old);
    if let Some(first) = refused.first() {
        let _ = warn(py, &format!("a segment of the store is not used: {first}"));
    }
    Some(library)
}

fn warn(py: Python<'_>, message: &str) -> PyResult<()> {
    let message = std::ffi::CString::new(message.replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 2)
}

/// Whether an error is none of an entry: the call is to run, and raises it where jax does. Such is a warning that
/// is an error, and that the stack is too deep to trace what an entry refers to.
fn is_of_call(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<Inapplicable>(py)
        || error.is_instance_of::<PyWarning>(py)
        || error.is_instance_of::<PyRecursionError>(py)
}

impl Library {
    /// The portable names of objects.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Whether what this process learns is written.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Reads the entry of a key, where there is one.
    ///
    /// # Errors
    /// There is one that cannot be read.
    pub fn read<'py, R>(
        &self,
        py: Python<'py>,
        key: Key,
        read: impl Fn(&mut Reading<'_, 'py>) -> PyResult<R>,
    ) -> PyResult<Option<R>> {
        let found = self.read_uncounted(py, key, read);
        let count = if matches!(found, Ok(Some(_))) { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// As `read`, of what is none of a trace.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_uncounted<'py, R>(
        &self,
        py: Python<'py>,
        key: Key,
        read: impl Fn(&mut Reading<'_, 'py>) -> PyResult<R>,
    ) -> PyResult<Option<R>> {
        let mut damaged = None;
        let mut found = None;
        for (_, shelf) in &self.shelves {
            match shelf.entry(key, self.maker.bind(py), &read) {
                Ok(None) => {}
                Ok(some) => {
                    found = some;
                    break;
                }
                Err(error) if is_of_call(py, &error) => break,
                // Another segment may have it whole.
                Err(error) => damaged = damaged.or(Some(error)),
            }
        }
        match (found, damaged) {
            (None, Some(error)) => Err(error),
            (Some(found), Some(error)) => {
                self.refuse(py, &error)?;
                Ok(Some(found))
            }
            (found, None) => Ok(found),
        }
    }

    /// Whether there is an entry of a key, which may be damaged, or a value that is to be written.
    pub fn has(&self, key: Key) -> bool {
        let is_there = |shelf: &Shelf| !matches!(shelf.segment().entry(key), Ok(None));
        self.values.contains(&key) || self.shelves.iter().any(|(_, shelf)| is_there(shelf))
    }

    /// Notes a value that is to be written under a key.
    pub fn keep(&self, key: Key, value: &Bound<'_, PyAny>) {
        if self.is_writable {
            let value = value.clone().unbind();
            drop(self.values.get_or_insert(key, (value, false), |_| ()));
        }
    }

    /// Notes that an entry cannot be read: the first time, there is a warning.
    ///
    /// # Errors
    /// The warning is an error, or a signal handler has raised this one.
    pub fn refuse(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        if self.names.is_of_signal(py, error)? {
            return Err(error.clone_ref(py));
        }
        if self.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            warn(py, &format!("an entry of the store is not used: {}", error.value(py)))?;
        }
        Ok(())
    }

    /// Writes what this process has learnt; how many entries and bytes.
    fn write(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        for (path, shelf) in &self.shelves {
            if shelf.is_used() && self.is_writable {
                Folder::touch(path);
            }
        }
        if !self.is_writable {
            return Ok((0, 0));
        }
        let records = self.records.bind(py);
        let mut saver = EntrySaver::new(records)?;
        let jax = jax(py)?;
        let entries = store::lasting_entries(py);
        let mut written = Vec::new();
        for entry in &entries {
            let entry = entry.bind(py).get();
            let recorded = match &entry.known {
                Known::Replay(recorded) => recorded,
                // Of programs that jax comes to again the first recording says all.
                Known::Candidate(recorded) if recorded.programs.is_some() => recorded,
                Known::Candidate(_) | Known::Bypass(_) => continue,
            };
            let Some(lasting) = entry.lasting else { continue };
            if !entry.validity.holds() || !entry.pins.are_alive(py) {
                continue;
            }
            match saver.entry(lasting.key, |piece| save(piece, jax, py, recorded)) {
                Ok(()) => written.push(entry),
                // What has no form is not looked at again.
                Err(error) if error.is_instance_of::<PyException>(py) => {
                    entry.is_stored.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        let derived = derived_programs::lasting(py);
        let mut written_derived = Vec::new();
        for known in &derived {
            let Some((key, given, result)) = known.get().to_store(py) else { continue };
            match saver.entry(key, |piece| stored::save(piece, jax, given, result)) {
                Ok(()) => written_derived.push(known.get()),
                Err(error) if error.is_instance_of::<PyException>(py) => {
                    known.get().is_stored.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        let values =
            self.values.filtered(|(value, is_written)| (!*is_written).then(|| value.clone_ref(py)));
        for (key, value) in &values {
            match saver.entry(*key, |piece| match value.bind(py).cast::<KeptProgram>() {
                Ok(kept) => kept.get().save(piece, py, jax),
                Err(_) => piece.value(value.bind(py)),
            }) {
                Ok(()) => {}
                Err(error) if error.is_instance_of::<PyException>(py) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(bytes) = saver.finish(self.fingerprint)? else { return Ok((0, 0)) };
        let num_bytes = bytes.len();
        let folder = &self.folder;
        let max_bytes = self.max_bytes;
        py.detach(|| folder.add(&bytes, max_bytes))?;
        for entry in &written {
            entry.is_stored.store(true, Ordering::Relaxed);
        }
        for known in &written_derived {
            known.is_stored.store(true, Ordering::Relaxed);
        }
        for (key, _) in &values {
            self.values.get(key, |(_, is_written)| *is_written = true);
        }
        Ok((written.len() + written_derived.len() + values.len(), num_bytes))
    }
}

/// Opens a store. A thread computes the fingerprint, of `salt` and the content of `packages`, and opens the
/// segments; `names` says portable names, `records` and `maker` are for objects.
#[pyfunction]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // what a store is opened with
pub fn open_store(
    py: Python<'_>,
    folder: PathBuf,
    salt: Vec<u8>,
    packages: Vec<PathBuf>,
    is_writable: bool,
    max_bytes: u64,
    records: Py<PyAny>,
    maker: Py<PyAny>,
    names: Py<PyAny>,
) -> PyResult<()> {
    let names = Arc::new(Names::new(names.into_bound(py))?);
    let thread = std::thread::Builder::new().name("jaxide-store".into()).spawn(move || {
        let fingerprint = Fingerprint::of(&salt, &packages)?;
        let folder = Folder::new(&folder, fingerprint);
        let (segments, refused) = folder.segments()?;
        let shelf = |(path, segment): (PathBuf, Segment)| (path, Shelf::new(segment));
        let shelves = segments.into_iter().map(shelf).collect();
        if is_writable {
            // What killed processes have left goes, though this one may have nothing to write.
            let tidied = folder.clone();
            std::thread::spawn(move || tidied.trim(max_bytes));
        }
        let refused =
            refused.iter().map(|(path, error)| format!("{}: {error}", path.display())).collect();
        Ok(Read { folder, fingerprint, shelves, refused })
    })?;
    let opening = Opening { thread, is_writable, max_bytes, records, maker, names };
    let old = STATE.peek(|state| std::mem::replace(state, State::Opening(Box::new(opening))));
    drop(old);
    IS_CLOSED.store(false, Ordering::Relaxed);
    Ok(())
}

/// Names what is configured now, where there is a store. The first trace then finds the name, unless that changes.
///
/// # Errors
/// A signal handler has raised it, or it is no `Exception`.
#[pyfunction]
pub fn name_configuration(py: Python<'_>) -> PyResult<()> {
    let names = STATE.peek(|state| match state {
        State::Closed => None,
        State::Opening(opening) => Some(opening.names.clone()),
        State::Open(library) => Some(library.names.clone()),
    });
    let Some(names) = names else { return Ok(()) };
    let ask = || -> PyResult<()> {
        if let Ok(configuration) = configuration_now(py, jax(py)?)? {
            names.of_configuration(py, configuration.number)?;
        }
        Ok(())
    };
    let Err(error) = ask() else { return Ok(()) };
    // Another error is one of the trace that needs the name.
    if !error.is_instance_of::<PyException>(py) || names.is_of_signal(py, &error)? {
        return Err(error);
    }
    Ok(())
}

/// Writes what was learnt, and closes the store where `closes` says so; how many entries and bytes were written.
#[pyfunction]
pub fn write_store(py: Python<'_>, closes: bool) -> PyResult<(usize, usize)> {
    let Some(library) = current(py) else { return Ok((0, 0)) };
    let written = library.write(py);
    if closes {
        IS_CLOSED.store(true, Ordering::Relaxed);
        let old = STATE.peek(|state| std::mem::replace(state, State::Closed));
        drop(old);
    }
    written
}

/// What the open store has, and what was found in it; None where there is none.
#[pyfunction]
pub fn store_info(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(library) = current(py) else { return Ok(None) };
    let segments = library.shelves.iter().map(|(_, shelf)| shelf.segment());
    let info = contents(py, &library.folder, segments)?;
    info.set_item("max_bytes", library.max_bytes)?;
    for (name, count) in
        [("hits", &library.hits), ("misses", &library.misses), ("refused", &library.refused)]
    {
        info.set_item(name, count.load(Ordering::Relaxed))?;
    }
    Ok(Some(info))
}

/// What a folder and its segments of the installation have, as plain data.
fn contents<'py, 's>(
    py: Python<'py>,
    folder: &Folder,
    segments: impl ExactSizeIterator<Item = &'s Segment>,
) -> PyResult<Bound<'py, PyDict>> {
    let usage = folder.usage();
    let info = PyDict::new(py);
    info.set_item("folder", folder.path())?;
    info.set_item("segments", segments.len())?;
    info.set_item("entries", segments.map(Segment::num_entries).sum::<usize>())?;
    info.set_item("files", usage.files)?;
    info.set_item("bytes", usage.bytes)?;
    Ok(info)
}

/// The store of the installation in a folder, whether it is open or not.
fn folder_of(folder: &Path, salt: &[u8], packages: &[PathBuf]) -> PyResult<(Folder, Fingerprint)> {
    let fingerprint = Fingerprint::of(salt, packages)?;
    Ok((Folder::new(folder, fingerprint), fingerprint))
}

/// What a folder has, as plain data: of the installation, and in all.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // what pyo3 hands over
pub fn inspect_store(
    py: Python<'_>,
    folder: PathBuf,
    salt: Vec<u8>,
    packages: Vec<PathBuf>,
) -> PyResult<Bound<'_, PyDict>> {
    let (folder, _) = folder_of(&folder, &salt, &packages)?;
    let (segments, refused) = folder.segments()?;
    let info = contents(py, &folder, segments.iter().map(|(_, segment)| segment))?;
    info.set_item("damaged", reasons(&refused))?;
    Ok(info)
}

/// The segments of the installation that cannot be read, each with the reason: all bytes are read.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as above
pub fn verify_store(
    folder: PathBuf,
    salt: Vec<u8>,
    packages: Vec<PathBuf>,
) -> PyResult<Vec<(PathBuf, String)>> {
    let (folder, _) = folder_of(&folder, &salt, &packages)?;
    let (segments, mut refused) = folder.segments()?;
    for (path, segment) in segments {
        if let Err(error) = segment.verify() {
            refused.push((path, error));
        }
    }
    Ok(reasons(&refused))
}

fn reasons(refused: &[(PathBuf, SegmentError)]) -> Vec<(PathBuf, String)> {
    refused.iter().map(|(path, error)| (path.clone(), error.to_string())).collect()
}

/// Removes what a folder has, of all installations; how many files.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as above
pub fn clear_store(folder: PathBuf) -> usize {
    Folder::new(&folder, Fingerprint::default()).clear()
}

/// The bytes of one segment with all entries that a folder has for the installation, and how many entries.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as above
pub fn pack_store(
    py: Python<'_>,
    folder: PathBuf,
    salt: Vec<u8>,
    packages: Vec<PathBuf>,
) -> PyResult<(Bound<'_, PyBytes>, usize)> {
    let (folder, fingerprint) = folder_of(&folder, &salt, &packages)?;
    let (segments, _) = folder.segments()?;
    let segments: Vec<&Segment> = segments.iter().map(|(_, segment)| segment).collect();
    let merged = merge(&segments).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let entries = merged.len();
    Ok((PyBytes::new(py, &merged.finish(fingerprint)), entries))
}

/// Puts a packed segment into a folder; how many entries it has.
///
/// Raises:
///     `ValueError`: it is none, damaged, or of another installation.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as above
pub fn unpack_store(
    folder: PathBuf,
    salt: Vec<u8>,
    packages: Vec<PathBuf>,
    packed: Vec<u8>,
) -> PyResult<usize> {
    let (folder, fingerprint) = folder_of(&folder, &salt, &packages)?;
    let refused = |error: SegmentError| PyValueError::new_err(error.to_string());
    let segment = Segment::of_bytes(packed.clone(), fingerprint).map_err(refused)?;
    segment.verify().map_err(refused)?;
    folder.write(&packed)?;
    Ok(segment.num_entries())
}

/// Forgets a store that is being opened: in a child process nobody opens it.
#[pyfunction]
pub fn forget_opening() {
    let opening = STATE.peek(|state| match state {
        State::Opening(_) => Some(std::mem::replace(state, State::Closed)),
        State::Closed | State::Open(_) => None,
    });
    if let Some(opening) = opening {
        IS_CLOSED.store(true, Ordering::Relaxed);
        // Its thread is not in this process.
        std::mem::forget(opening);
    }
}
