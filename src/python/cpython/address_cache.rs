//! What is known of objects by their address, and other state behind a lock.
//!
//! To drop a Python object may run Python code, which may ask for the same lock. So what a cache gives up
//! is handed out as `Evicted`, and is dropped by the caller, after the lock is released.

use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

/// What a cache has given up.
#[must_use = "drop it where no lock is held: that may run Python code"]
pub struct Evicted<T>(T);

impl<T> Evicted<Vec<T>> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// State of the process, made when it is first used.
pub struct Locked<T> {
    state: Mutex<Option<T>>,
    new: fn() -> T,
}

impl<T> Locked<T> {
    pub const fn new(new: fn() -> T) -> Self {
        Self { state: Mutex::new(None), new }
    }

    /// Reads or changes it. In `body` nothing of Python is dropped, and no Python code runs.
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        body(self.state.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(self.new))
    }

    /// As `with`; what `body` returns is to be dropped.
    pub fn evict<R>(&self, body: impl FnOnce(&mut T) -> R) -> Evicted<R> {
        Evicted(self.with(body))
    }

    /// Begins anew.
    pub fn clear(&self) -> Evicted<Option<T>> {
        Evicted(self.state.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

/// Values by the address of an object, or by a key that has one in it.
pub struct AddressCache<V, K = usize>(Locked<FxHashMap<K, V>>);

impl<V, K: Eq + Hash> AddressCache<V, K> {
    pub const fn new() -> Self {
        Self(Locked::new(FxHashMap::default))
    }

    /// Reads or changes the value under a key. In `body` nothing of Python is dropped, and no Python code
    /// runs.
    pub fn get<R>(&self, key: &K, body: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.0.with(|all| all.get_mut(key).map(body))
    }

    pub fn contains(&self, key: &K) -> bool {
        self.0.with(|all| all.contains_key(key))
    }

    pub fn insert(&self, key: K, value: V) -> Evicted<Option<V>> {
        self.0.evict(|all| all.insert(key, value))
    }

    /// As `insert`, where no more than `max` may be there: all others are given up.
    pub fn insert_bounded(&self, key: K, value: V, max: usize) -> Evicted<impl Sized + use<V, K>> {
        self.0.evict(|all| {
            let full = if all.len() < max { None } else { Some(std::mem::take(all)) };
            (full, all.insert(key, value))
        })
    }

    /// As `get`, of the value that is there, else of a new one, which is given up where it is not needed.
    pub fn get_or_insert<R>(
        &self,
        key: K,
        value: V,
        body: impl FnOnce(&mut V) -> R,
    ) -> (R, Evicted<Option<V>>) {
        self.0.with(|all| match all.entry(key) {
            Entry::Occupied(mut known) => (body(known.get_mut()), Evicted(Some(value))),
            Entry::Vacant(place) => (body(place.insert(value)), Evicted(None)),
        })
    }

    pub fn remove(&self, key: &K) -> Evicted<Option<V>> {
        self.0.evict(|all| all.remove(key))
    }

    /// Gives up the value under a key where `is_over` says so.
    pub fn remove_if(&self, key: &K, is_over: impl FnOnce(&mut V) -> bool) -> Evicted<Option<V>> {
        self.0.evict(|all| if is_over(all.get_mut(key)?) { all.remove(key) } else { None })
    }

    /// Gives up all for which `is_over` says so.
    pub fn retain_not(&self, is_over: impl Fn(&V) -> bool) -> Evicted<Vec<V>> {
        self.0.evict(|all| {
            all.extract_if(|_, value| is_over(value)).map(|(_, value)| value).collect()
        })
    }

    /// What `body` makes of the values that it does not leave out, with their keys.
    pub fn filtered<R>(&self, body: impl Fn(&V) -> Option<R>) -> Vec<(K, R)>
    where
        K: Clone,
    {
        let some = |(key, value): (&K, &V)| Some((key.clone(), body(value)?));
        self.0.with(|all| all.iter().filter_map(some).collect())
    }

    pub fn clear(&self) -> Evicted<Option<FxHashMap<K, V>>> {
        self.0.clear()
    }
}
