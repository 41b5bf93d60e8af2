//! An interning table: equal values share one id, and ids are handed out in order.

use std::{hash::Hash, marker::PhantomData, mem::size_of, ops::Index};

use cranelift_entity::EntityRef;
use indexmap::{Equivalent, IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;

pub(super) type FxIndexMap<K, V> = IndexMap<K, V, FxBuildHasher>;

/// A set of values numbered by `K` in the order of their first appearance.
#[derive(Clone, Debug)]
pub(super) struct Interner<K, T> {
    values: IndexSet<T, FxBuildHasher>,
    ids: PhantomData<K>,
}

impl<K: EntityRef, T: Hash + Eq> Interner<K, T> {
    pub(super) fn new() -> Self {
        Self { values: IndexSet::default(), ids: PhantomData }
    }

    #[inline]
    pub(super) fn intern(&mut self, value: T) -> K {
        K::new(self.values.insert_full(value).0)
    }

    /// Interns a borrowed value, copied only where it is new.
    pub(super) fn intern_ref<Q>(&mut self, value: &Q) -> K
    where
        Q: Hash + Equivalent<T> + ?Sized,
        for<'q> &'q Q: Into<T>,
    {
        match self.values.get_index_of(value) {
            Some(index) => K::new(index),
            None => self.intern(value.into()),
        }
    }

    /// Has another value at an id, unless that has an id of its own, which is the error.
    pub(super) fn replace(&mut self, id: K, value: T) -> Result<(), K> {
        self.values.replace_index(id.index(), value).map(drop).map_err(|(at, _)| K::new(at))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (K, &T)> {
        self.values.iter().enumerate().map(|(index, value)| (K::new(index), value))
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.values.shrink_to_fit();
    }

    /// Bytes of the table itself, without what its values own.
    pub(super) fn table_bytes(&self) -> usize {
        index_bytes::<T>(self.values.capacity())
    }
}

impl<K: EntityRef, T: Hash + Eq> Index<K> for Interner<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: K) -> &T {
        &self.values[id.index()]
    }
}

/// Bytes of an indexmap of `capacity` entries: each holds its hash and is pointed at by a bucket.
pub(super) fn index_bytes<T>(capacity: usize) -> usize {
    const BUCKET: usize = size_of::<usize>() + 1;
    capacity * (size_of::<usize>() + size_of::<T>() + BUCKET)
}
