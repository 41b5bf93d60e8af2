//! Bounded storage of what calls have in common: least recently used goes first, of each callable
//! and of all.

use hashlink::LruCache;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::signature::Signature;

/// A callable, by the number the embedding gave it. Numbers are never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallableId(pub u64);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Entries of one callable.
    pub per_callable: usize,
    /// Entries in all.
    pub entries: usize,
    /// Bytes in all, as the entries were said to have.
    pub bytes: usize,
}

/// What became of the calls of one callable.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Calls that were replayed.
    pub hits: u64,
    /// Calls that ran, and were recorded.
    pub misses: u64,
    /// Calls that ran because they must, by reason.
    pub bypasses: FxHashMap<&'static str, u64>,
}

impl Counts {
    /// Adds what became of the calls of another callable.
    pub fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        for (&reason, count) in &other.bypasses {
            *self.bypasses.entry(reason).or_default() += count;
        }
    }
}

type Words = Box<[u64]>;

#[derive(Debug)]
struct Slot<T> {
    value: T,
    bytes: usize,
}

#[derive(Debug)]
struct Group<T> {
    slots: LruCache<Words, Slot<T>, FxBuildHasher>,
    last_used: u64,
}

/// Entries by callable and signature.
///
/// Whatever takes entries out returns them: dropping one may run the embedding's code, which must
/// not find the cache half changed.
#[derive(Debug)]
pub struct Cache<T> {
    bounds: Bounds,
    groups: FxHashMap<CallableId, Group<T>>,
    entries: usize,
    bytes: usize,
    clock: u64,
}

impl<T> Cache<T> {
    /// An empty cache.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, groups: FxHashMap::default(), entries: 0, bytes: 0, clock: 0 }
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Changes the bounds; what no longer fits comes back.
    pub fn set_bounds(&mut self, bounds: Bounds) -> Vec<T> {
        self.bounds = bounds;
        let mut removed = Vec::new();
        for group in self.groups.values_mut() {
            while group.slots.len() > bounds.per_callable {
                let Some((_, slot)) = group.slots.remove_lru() else { break };
                self.entries -= 1;
                self.bytes -= slot.bytes;
                removed.push(slot.value);
            }
        }
        self.trim(&mut removed);
        removed
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// How many entries a callable has.
    pub fn len_of(&self, callable: CallableId) -> usize {
        self.groups.get(&callable).map_or(0, |group| group.slots.len())
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All entries.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.groups.values().flat_map(|group| group.slots.iter().map(|(_, slot)| &slot.value))
    }

    /// The entry of a call, which becomes the most recently used one.
    #[inline]
    pub fn get(&mut self, callable: CallableId, signature: &Signature) -> Option<&T> {
        let group = self.groups.get_mut(&callable)?;
        self.clock += 1;
        group.last_used = self.clock;
        group.slots.get(signature.words()).map(|slot| &slot.value)
    }

    /// Whether a call has an entry.
    pub fn contains(&self, callable: CallableId, signature: &Signature) -> bool {
        self.groups.get(&callable).is_some_and(|group| group.slots.contains_key(signature.words()))
    }

    /// Remembers a call; the entry it had, and what had to go for it comes back.
    pub fn insert(
        &mut self,
        callable: CallableId,
        signature: &Signature,
        value: T,
        bytes: usize,
    ) -> Vec<T> {
        let bytes = bytes + size_of_val::<[u64]>(signature.words()) + size_of::<Slot<T>>();
        self.clock += 1;
        let group = self.groups.entry(callable).or_insert_with(|| Group {
            slots: LruCache::with_hasher(usize::MAX, FxBuildHasher),
            last_used: 0,
        });
        group.last_used = self.clock;
        let mut removed = Vec::new();
        let slot = Slot { value, bytes };
        match group.slots.insert(signature.words().into(), slot) {
            Some(old) => {
                self.bytes -= old.bytes;
                removed.push(old.value);
            }
            None => self.entries += 1,
        }
        self.bytes += bytes;
        while group.slots.len() > self.bounds.per_callable {
            let Some((_, slot)) = group.slots.remove_lru() else { break };
            self.entries -= 1;
            self.bytes -= slot.bytes;
            removed.push(slot.value);
        }
        self.trim(&mut removed);
        removed
    }

    /// Takes from the callables that were not used for longest, a tenth more than needed, so that
    /// the search for them is rare.
    fn trim(&mut self, removed: &mut Vec<T>) {
        if self.entries <= self.bounds.entries && self.bytes <= self.bounds.bytes {
            return;
        }
        let entries = self.bounds.entries - self.bounds.entries / 10;
        let bytes = self.bounds.bytes - self.bounds.bytes / 10;
        let mut oldest: Vec<(u64, CallableId)> =
            self.groups.iter().map(|(&id, group)| (group.last_used, id)).collect();
        oldest.sort_unstable();
        for (_, id) in oldest {
            while self.entries > entries || self.bytes > bytes {
                let Some(group) = self.groups.get_mut(&id) else { break };
                let Some((_, slot)) = group.slots.remove_lru() else { break };
                self.entries -= 1;
                self.bytes -= slot.bytes;
                removed.push(slot.value);
            }
            if self.len_of(id) == 0 {
                self.groups.remove(&id);
            }
            if self.entries <= entries && self.bytes <= bytes {
                return;
            }
        }
    }

    /// Forgets a callable; its entries come back.
    pub fn forget(&mut self, callable: CallableId) -> Vec<T> {
        let Some(group) = self.groups.remove(&callable) else { return Vec::new() };
        let mut removed = Vec::new();
        for (_, slot) in group.slots {
            self.entries -= 1;
            self.bytes -= slot.bytes;
            removed.push(slot.value);
        }
        removed
    }

    /// Forgets everything; all entries come back.
    pub fn clear(&mut self) -> Vec<T> {
        let callables: Vec<_> = self.groups.keys().copied().collect();
        callables.into_iter().flat_map(|callable| self.forget(callable)).collect()
    }
}
