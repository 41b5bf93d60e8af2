//! Sources: tracebacks and name stacks, one object for those that are equal.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::ir::{Builder, ForeignId, Source, SourceId};

use crate::python::cpython::native::{address, is_exactly};
use crate::python::cpython::shared::Quiet;
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::values::{typed_equal, typed_hash};
use crate::python::program::objects::{Object, ObjectTable, index};

impl ObjectTable {
    pub fn source(
        &mut self,
        jax: &Jax,
        builder: &mut Builder,
        source: &SourceRef<'_>,
    ) -> PyResult<SourceId> {
        let quiet = Quiet::of(source.name_stack.py());
        let key = SourceKey::of(jax, source)?;
        if let Some(known) = self.known_source_id(builder, &key, quiet)? {
            return Ok(known);
        }
        let place = StackPlace::of(&source.name_stack, |hash| self.name_stacks_of(hash, quiet))?;
        let (id, old) = self.new_source(builder, &key, place, quiet)?;
        drop(old);
        Ok(id)
    }

    /// The source, where its name stack was seen before.
    pub fn known_source_id(
        &mut self,
        builder: &mut Builder,
        key: &SourceKey<'_>,
        quiet: Quiet<'_>,
    ) -> PyResult<Option<SourceId>> {
        let Some(name_stack) = self.known_name_stack(key.name_stack) else { return Ok(None) };
        let traceback = self.traceback(key, quiet)?;
        Ok(Some(builder.source(Source { traceback, name_stack })))
    }

    /// Whether a source is the one that is `known`.
    ///
    /// # Errors
    /// Out of memory.
    pub fn is_source(
        &self,
        builder: &Builder,
        key: &SourceKey<'_>,
        known: SourceId,
        quiet: Quiet<'_>,
    ) -> PyResult<bool> {
        let known = builder.source_data(known);
        if let Some(traceback) = &key.traceback
            && let Some(same) = known.traceback
            && self.known_name_stack(key.name_stack) == Some(known.name_stack)
            && let Some(recorded) = self.retained.sources.get(index(same))
            && traceback.is_native
            && key.is_native(recorded)
        {
            return quiet.same_traceback(recorded, traceback.object);
        }
        Ok(false)
    }

    /// The place of a name stack that was seen before, none being that of the empty one.
    #[allow(clippy::option_option)] // whether it is known, and which it is
    fn known_name_stack(&self, name_stack: &Object) -> Option<Option<ForeignId>> {
        if self.empty_name_stack.as_ref().is_some_and(|empty| empty.is(name_stack)) {
            return Some(None);
        }
        self.name_stack_by_pointer.get(&(name_stack.as_ptr() as usize)).map(|&id| Some(id))
    }

    /// Name stacks with a typed hash.
    pub fn name_stacks_of(
        &self,
        hash: u64,
        quiet: Quiet<'_>,
    ) -> SmallVec<[(ForeignId, Object); 1]> {
        let same = self.name_stacks.get(&hash).into_iter().flatten();
        let object = |&id| Some((id, quiet.own(self.retained.sources.get(index(id))?)));
        same.filter_map(object).collect()
    }

    /// The source, whose name stack was looked at; what the caller drops comes back.
    pub fn new_source(
        &mut self,
        builder: &mut Builder,
        key: &SourceKey<'_>,
        place: StackPlace,
        quiet: Quiet<'_>,
    ) -> PyResult<(SourceId, Option<Object>)> {
        let traceback = self.traceback(key, quiet)?;
        let (name_stack, old) = match place {
            StackPlace::Empty => (None, self.empty_name_stack.replace(quiet.own(key.name_stack))),
            StackPlace::Known(id) => (Some(id), None),
            StackPlace::New(hash) => {
                let id = self.push_source(quiet.own(key.name_stack));
                self.name_stack_by_pointer.insert(key.name_stack.as_ptr() as usize, id);
                if let Some(hash) = hash {
                    self.name_stacks.entry(hash).or_default().push(id);
                }
                (Some(id), None)
            }
        };
        Ok((builder.source(Source { traceback, name_stack }), old))
    }

    fn traceback(&mut self, key: &SourceKey<'_>, quiet: Quiet<'_>) -> PyResult<Option<ForeignId>> {
        let Some(traceback) = &key.traceback else { return Ok(None) };
        let bucket = traceback.hash.map(|hash| (hash, traceback.is_native));
        if let Some(same) = bucket.and_then(|bucket| self.tracebacks.get(&bucket)) {
            for &id in same {
                let Some(known) = self.retained.sources.get(index(id)) else { continue };
                if known.is(traceback.object)
                    || traceback.is_native && quiet.same_traceback(known, traceback.object)?
                {
                    return Ok(Some(id));
                }
            }
        }
        let id = self.push_source(quiet.own(traceback.object));
        if let Some(bucket) = bucket {
            self.tracebacks.entry(bucket).or_default().push(id);
        }
        Ok(Some(id))
    }
}

/// The traceback of a source that is looked up.
struct TracebackKey<'a> {
    object: &'a Object,
    /// None where it is only compared.
    hash: Option<isize>,
    /// Its class is jaxlib's own, whose hash and equality are native.
    is_native: bool,
}

/// A source that is looked up.
pub struct SourceKey<'a> {
    traceback: Option<TracebackKey<'a>>,
    name_stack: &'a Object,
    native: usize,
}

impl<'a> SourceKey<'a> {
    /// A source that is compared with one that is known.
    #[inline]
    pub fn compared(jax: &Jax, source: &'a SourceRef<'_>) -> Self {
        let native = jax.traceback_type.as_ptr() as usize;
        let traceback = source.traceback.as_ref().map(|traceback| TracebackKey {
            object: traceback.as_unbound(),
            hash: None,
            is_native: traceback.get_type_ptr() as usize == native,
        });
        Self { traceback, name_stack: source.name_stack.as_unbound(), native }
    }

    /// # Errors
    /// Out of memory.
    pub fn of(jax: &Jax, source: &'a SourceRef<'_>) -> PyResult<Self> {
        let native = jax.traceback_type.as_ptr() as usize;
        let traceback = match &source.traceback {
            Some(traceback) => {
                let is_native = traceback.get_type_ptr() as usize == native;
                // What another class has for a hash may be anything.
                let hash =
                    if is_native { traceback.hash()? } else { address(traceback).cast_signed() };
                Some(TracebackKey { object: traceback.as_unbound(), hash: Some(hash), is_native })
            }
            None => None,
        };
        Ok(Self { traceback, name_stack: source.name_stack.as_unbound(), native })
    }

    fn is_native(&self, traceback: &Object) -> bool {
        is_exactly(traceback.as_ptr(), self.native as *mut ffi::PyTypeObject)
    }
}

/// Where a name stack is, that was not seen before.
#[derive(Clone, Copy)]
pub enum StackPlace {
    Empty,
    /// An equal one.
    Known(ForeignId),
    /// Its typed hash.
    New(Option<u64>),
}

impl StackPlace {
    /// `known` are the name stacks with a hash.
    ///
    /// # Errors
    /// A name stack cannot be read.
    pub fn of(
        name_stack: &Bound<'_, PyAny>,
        known: impl FnOnce(u64) -> SmallVec<[(ForeignId, Object); 1]>,
    ) -> PyResult<Self> {
        let py = name_stack.py();
        let scopes = name_stack.getattr(intern!(py, "stack"))?;
        if scopes.len()? == 0 {
            return Ok(Self::Empty);
        }
        let hash = typed_hash(&scopes);
        for (id, other) in hash.map(known).into_iter().flatten() {
            if typed_equal(&other.bind(py).getattr(intern!(py, "stack"))?, &scopes) {
                return Ok(Self::Known(id));
            }
        }
        Ok(Self::New(hash))
    }
}
