//! The cache of the process.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::expand::{Bounds, Cache, CallableId, Counts, Signature};

use crate::python::cache::fragment::recorded::Recorded;
use crate::python::cache::key::pins::Pins;
use crate::python::cache::reasons::{BARRED, CHANGED_MEANWHILE, Reason};
use crate::python::cache::shapes::Sizeless;
use crate::python::cache::warm::lookup::Lasting;
use crate::python::cpython::shared::Shared;
use crate::python::jax::names::Jax;
use crate::python::jax::world::{Validity, is_as_before};

/// What is known of a call.
pub enum Known {
    /// It can be replayed.
    Replay(Recorded),
    /// It can be replayed if the next recording agrees.
    Candidate(Recorded),
    /// It has to run each time.
    Bypass(Reason),
}

/// An entry of the cache. A Python object, so that holding one costs no atomic operation.
#[pyclass(frozen, module = "jaxide._core")]
pub struct Entry {
    pub known: Known,
    pub validity: Validity,
    /// What the signature refers to by identity.
    pub pins: Pins,
    /// For a function whose program can be forgotten: when that last happened.
    pub generation: Option<u64>,
    /// How it is to be stored, if it is, and whether that was done.
    pub lasting: Option<Lasting>,
    pub is_stored: AtomicBool,
    /// Whoever calls it first may hear a warning that was not heard here.
    pub is_unheard: bool,
    /// Where it is known to be the same for arrays of other shapes.
    pub of_all_sizes: Option<OfAllSizes>,
}

/// What is known of a call, whatever its sizes are.
pub struct OfAllSizes {
    /// The key without sizes.
    words: Box<[u64]>,
    /// The shapes that the arrays of this call have.
    pub shapes: Box<[Py<PyTuple>]>,
}

impl Entry {
    /// What is known of a call, which the store does not have.
    pub fn new(known: Known, validity: Validity, pins: Pins, generation: Option<u64>) -> Self {
        let is_stored = AtomicBool::new(false);
        let (lasting, is_unheard, of_all_sizes) = (None, false, None);
        Self { known, validity, pins, generation, lasting, is_stored, is_unheard, of_all_sizes }
    }

    /// Notes its key without sizes, where it is the same for arrays of other shapes.
    ///
    /// # Errors
    /// A type cannot be read.
    pub fn note_of_all_sizes(&mut self, sizeless: Option<&Sizeless<'_>>) -> PyResult<()> {
        if let (Known::Replay(recorded), Some(sizeless)) = (&self.known, sizeless)
            && recorded.is_pointwise(sizeless.shapes())?
        {
            let shapes = sizeless.shapes().iter().map(|shape| shape.clone().unbind()).collect();
            self.of_all_sizes = Some(OfAllSizes { words: sizeless.words().into(), shapes });
        }
        Ok(())
    }

    /// Notes how it may be stored, unless whoever calls it first may hear what was not heard here.
    ///
    /// # Errors
    /// jax's state cannot be read.
    pub fn note_lasting(
        &mut self,
        py: Python<'_>,
        jax: &Jax,
        lasting: Option<Lasting>,
        is_unheard: bool,
    ) -> PyResult<()> {
        self.is_unheard = is_unheard;
        if let Some(lasting) = lasting.filter(|_| !is_unheard)
            && lasting.holds(py, jax, &self.known)?
        {
            self.lasting = Some(lasting);
        }
        Ok(())
    }

    /// Nothing was forgotten since.
    pub fn is_current(&self, generation: Option<u64>) -> bool {
        self.generation == generation
    }

    fn memory_bytes(&self) -> usize {
        let of_known = match &self.known {
            Known::Replay(recorded) | Known::Candidate(recorded) => recorded.memory_bytes(),
            Known::Bypass(_) => 0,
        };
        of_known + self.pins.memory_bytes() + size_of::<Self>()
    }
}

const BOUNDS: Bounds = Bounds { per_callable: 2048, entries: 1 << 16, bytes: 1 << 28 };

struct Store {
    cache: Cache<Py<Entry>>,
    callables: FxHashMap<CallableId, Callable>,
    /// What became of the calls of callables that are gone.
    gone: Counts,
    /// The names of callables of which nothing is remembered any more.
    barred: FxHashSet<Arc<str>>,
    /// Hashes of calls that were part of others when they were first made.
    seen: FxHashSet<u64>,
    /// By the keys of calls without sizes, the key of one that is known.
    sizeless: FxHashMap<CallableId, FxHashMap<Box<[u64]>, Signature>>,
    num_sizeless: usize,
    next_callable: u64,
    next_fragment: u64,
    evictions: u64,
}

struct Callable {
    name: Arc<str>,
    hits: Arc<Hits>,
    /// All but the hits.
    counts: Counts,
}

impl Callable {
    fn counts(&self) -> Counts {
        Counts { hits: self.hits.0.load(Ordering::Relaxed), ..self.counts.clone() }
    }
}

/// How many calls of a callable were replayed. Changed with the interpreter attached only, so
/// that it needs no atomic addition.
#[derive(Default)]
pub struct Hits(AtomicU64);

impl Hits {
    #[inline]
    pub fn add_one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

static STORE: Shared<Option<Store>> = Shared::new(None);

impl Store {
    fn new() -> Self {
        Self {
            cache: Cache::new(BOUNDS),
            callables: FxHashMap::default(),
            gone: Counts::default(),
            barred: FxHashSet::default(),
            seen: FxHashSet::default(),
            sizeless: FxHashMap::default(),
            num_sizeless: 0,
            next_callable: 0,
            next_fragment: 0,
            evictions: 0,
        }
    }
}

impl Store {
    /// Forgets what is known of a callable.
    fn forget(&mut self, id: CallableId) -> Vec<Py<Entry>> {
        let of_callable = self.sizeless.remove(&id);
        self.num_sizeless -= of_callable.map_or(0, |known| known.len());
        self.cache.forget(id)
    }
}

fn with<R: Send>(body: impl FnOnce(&mut Store) -> R + Send) -> R {
    STORE.peek(|store| body(store.get_or_insert_with(Store::new)))
}

/// A number for a callable, and where its hits are counted.
pub fn new_callable(name: &str) -> (CallableId, Arc<Hits>) {
    with(|store| {
        let id = CallableId(store.next_callable);
        store.next_callable += 1;
        let hits = Arc::<Hits>::default();
        let callable =
            Callable { name: name.into(), hits: hits.clone(), counts: Counts::default() };
        store.callables.insert(id, callable);
        (id, hits)
    })
}

/// Forgets a callable that is gone.
pub fn forget_callable(id: CallableId) {
    let removed = with(|store| {
        if let Some(callable) = store.callables.remove(&id) {
            store.gone.add(&callable.counts());
        }
        store.forget(id)
    });
    drop(removed);
}

/// Forgets what is known of a callable that stays.
pub fn forget_entries(id: CallableId) {
    let removed = with(|store| store.forget(id));
    drop(removed);
}

/// Bars a callable, and whatever has its name, for the rest of the process: nothing is remembered of it.
/// The name; None where it is gone.
pub fn bar(id: CallableId) -> Option<Arc<str>> {
    let (name, removed) = with(|store| {
        let name = store.callables.get(&id)?.name.clone();
        store.barred.insert(name.clone());
        let same = store.callables.iter().filter(|(_, callable)| callable.name == name);
        let same: Vec<CallableId> = same.map(|(&id, _)| id).collect();
        let removed: Vec<_> = same.into_iter().flat_map(|id| store.forget(id)).collect();
        Some((name, removed))
    })?;
    drop(removed);
    Some(name)
}

/// Whether a callable is barred.
#[cold]
pub fn is_barred(id: CallableId) -> bool {
    with(|store| {
        let name = store.callables.get(&id).map(|callable| &callable.name);
        !store.barred.is_empty() && name.is_some_and(|name| store.barred.contains(name))
    })
}

/// Lets barred callables be remembered again, for tests.
#[pyfunction]
pub fn clear_barred() {
    with(|store| store.barred.clear());
}

/// A number for a fragment.
pub fn new_fragment() -> u64 {
    with(|store| {
        store.next_fragment += 1;
        store.next_fragment
    })
}

/// What is known of a call. What would be replayed is not known where jax is found to differ otherwise.
///
/// # Errors
/// What jax has cannot be compared.
#[inline]
pub fn find<'py>(
    py: Python<'py>,
    id: CallableId,
    signature: &Signature,
) -> PyResult<Option<Bound<'py, Entry>>> {
    let found = STORE.with(py, |store, quiet| {
        let entry = store.as_mut()?.cache.get(id, signature)?;
        Some(quiet.own(entry))
    });
    let Some(found) = found.map(|found| found.into_bound(py)) else { return Ok(None) };
    let Entry { known, validity, pins, .. } = found.get();
    if !pins.are_alive(py) || !validity.holds() {
        return Ok(None);
    }
    let is_current = !matches!(known, Known::Replay(_)) || is_as_before(py)?;
    Ok(is_current.then_some(found))
}

/// How many calls are known by nothing but that they were made.
const MAX_SEEN: usize = 1 << 16;

/// Notes that a call was made. Whether it was not noted before; where two calls have one hash, the other one may have
/// been.
pub fn is_first_sight(id: CallableId, signature: &Signature) -> bool {
    let mut hasher = FxHasher::default();
    (id, signature.words()).hash(&mut hasher);
    with(|store| {
        if store.seen.len() >= MAX_SEEN {
            store.seen.clear();
        }
        store.seen.insert(hasher.finish())
    })
}

/// Counts a call that ran because it must.
pub fn count_bypass(id: CallableId, reason: Reason) {
    with(|store| {
        if let Some(callable) = store.callables.get_mut(&id) {
            *callable.counts.bypasses.entry(reason).or_default() += 1;
        }
    });
}

/// Counts a call that ran and is remembered elsewhere.
pub fn count_miss(id: CallableId) {
    with(|store| {
        if let Some(callable) = store.callables.get_mut(&id) {
            callable.counts.misses += 1;
        }
    });
}

/// Remembers a call that ran. Whether there is an entry from now on.
///
/// # Errors
/// Out of memory.
pub fn insert(
    py: Python<'_>,
    id: CallableId,
    signature: &Signature,
    entry: Entry,
) -> PyResult<bool> {
    if let Known::Bypass(CHANGED_MEANWHILE) = entry.known {
        count_bypass(id, CHANGED_MEANWHILE);
        return Ok(false);
    }
    let bytes = entry.memory_bytes();
    let bypass = match entry.known {
        Known::Bypass(reason) => Some(reason),
        Known::Replay(_) | Known::Candidate(_) => None,
    };
    let entry = Py::new(py, entry)?;
    let (removed, is_there) = with(|store| {
        if let Some(callable) = store.callables.get_mut(&id) {
            if store.barred.contains(&callable.name) {
                *callable.counts.bypasses.entry(BARRED).or_default() += 1;
                return (vec![entry], false);
            }
            match bypass {
                Some(reason) => *callable.counts.bypasses.entry(reason).or_default() += 1,
                None => callable.counts.misses += 1,
            }
            let replaced = store.cache.contains(id, signature);
            let removed = store.cache.insert(id, signature, entry, bytes);
            store.evictions += (removed.len() - usize::from(replaced)) as u64;
            (removed, true)
        } else {
            // The callable went while it ran.
            (vec![entry], false)
        }
    });
    drop(removed);
    Ok(is_there)
}

/// Of how many calls the key without sizes is known.
const MAX_SIZELESS: usize = 1 << 14;

/// Notes that what is known of a call holds for other sizes.
pub fn note_sizeless(id: CallableId, sizeless: &Signature, signature: &Signature) {
    with(|store| {
        if store.num_sizeless >= MAX_SIZELESS {
            (store.sizeless, store.num_sizeless) = (FxHashMap::default(), 0);
        }
        let of_callable = store.sizeless.entry(id).or_default();
        let words = sizeless.words().into();
        if of_callable.insert(words, signature.clone()).is_none() {
            store.num_sizeless += 1;
        }
    });
}

/// What is known of a call of other sizes. Its entry says so itself: types have addresses in the key with
/// sizes, where those of another call may be by now.
///
/// # Errors
/// As of `find`.
pub fn find_sizeless<'py>(
    py: Python<'py>,
    id: CallableId,
    sizeless: &Signature,
) -> PyResult<Option<Bound<'py, Entry>>> {
    let known = with(|store| store.sizeless.get(&id)?.get(sizeless.words()).cloned());
    let Some(signature) = known else { return Ok(None) };
    let entry = find(py, id, &signature)?;
    Ok(entry.filter(|entry| {
        let of_all_sizes = entry.get().of_all_sizes.as_ref();
        of_all_sizes.is_some_and(|known| &*known.words == sizeless.words())
    }))
}

/// Remembers a call that the store has.
///
/// # Errors
/// Out of memory.
pub fn insert_loaded(
    py: Python<'_>,
    id: CallableId,
    signature: &Signature,
    entry: Entry,
) -> PyResult<()> {
    let bytes = entry.memory_bytes();
    let entry = Py::new(py, entry)?;
    let removed = with(|store| {
        if !store.callables.contains_key(&id) {
            return vec![entry];
        }
        let removed = store.cache.insert(id, signature, entry, bytes);
        store.evictions += removed.len() as u64;
        removed
    });
    drop(removed);
    Ok(())
}

/// The entries that are to be stored.
pub fn lasting_entries(py: Python<'_>) -> Vec<Py<Entry>> {
    STORE.with(py, |store, quiet| {
        let entries = store.iter().flat_map(|store| store.cache.values());
        let lasting = |entry: &&Py<Entry>| {
            let entry = entry.get();
            entry.lasting.is_some() && !entry.is_stored.load(Ordering::Relaxed)
        };
        entries.filter(lasting).map(|entry| quiet.own(entry)).collect()
    })
}

/// Forgets all fragments and starts counting anew.
#[pyfunction]
pub fn clear_fragments(py: Python<'_>) -> PyResult<()> {
    crate::python::cache::programs::registry::forget();
    crate::python::cache::derived_programs::forget(py);
    crate::python::cache::warm::library::forget_objects(py)?;
    let removed = with(|store| {
        for callable in store.callables.values_mut() {
            callable.counts = Counts::default();
            callable.hits.0.store(0, Ordering::Relaxed);
        }
        store.gone = Counts::default();
        store.seen = FxHashSet::default();
        (store.sizeless, store.num_sizeless) = (FxHashMap::default(), 0);
        store.evictions = 0;
        store.cache.clear()
    });
    drop(removed);
    Ok(())
}

/// The state of the cache, as plain data: totals, and counts of each callable that was called and
/// is still there.
#[pyfunction]
pub fn fragment_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let (totals, calls, callables) = with(|store| {
        let bounds = store.cache.bounds();
        let totals = [
            ("entries", store.cache.len()),
            ("bytes", store.cache.bytes()),
            ("evictions", usize::try_from(store.evictions).unwrap_or(usize::MAX)),
            ("max_entries", bounds.entries),
            ("max_entries_per_callable", bounds.per_callable),
            ("max_bytes", bounds.bytes),
        ];
        let mut calls = store.gone.clone();
        for callable in store.callables.values() {
            calls.add(&callable.counts());
        }
        let callables: Vec<_> = store
            .callables
            .iter()
            .map(|(&id, callable)| {
                (callable.name.clone(), store.cache.len_of(id), callable.counts())
            })
            .filter(|(_, _, counts)| {
                counts.hits > 0 || counts.misses > 0 || !counts.bypasses.is_empty()
            })
            .collect();
        (totals, calls, callables)
    });
    let info = PyDict::new(py);
    for (name, value) in totals {
        info.set_item(name, value)?;
    }
    let by_reason = |counts: Counts| {
        let bypasses = PyDict::new(py);
        for (reason, count) in counts.bypasses {
            bypasses.set_item(reason, count)?;
        }
        PyResult::Ok(bypasses)
    };
    info.set_item("hits", calls.hits)?;
    info.set_item("misses", calls.misses)?;
    info.set_item("bypasses", by_reason(calls)?)?;
    let list = PyList::empty(py);
    for (name, entries, counts) in callables {
        let (hits, misses) = (counts.hits, counts.misses);
        list.append((&*name, entries, hits, misses, by_reason(counts)?))?;
    }
    info.set_item("callables", list)?;
    Ok(info)
}

/// Changes the bounds: entries of one callable, entries in all, bytes in all.
#[pyfunction]
pub fn set_fragment_bounds(per_callable: usize, entries: usize, bytes: usize) {
    let removed = with(|store| {
        let removed = store.cache.set_bounds(Bounds { per_callable, entries, bytes });
        store.evictions += removed.len() as u64;
        removed
    });
    drop(removed);
}
