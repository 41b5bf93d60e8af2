//! Structural ids: two programs have the same one where they are structurally equal.
//!
//! What is counted is everything that a rule of jax may read, sources and names included: all but which
//! variables and lists a program is made of. Programs with constants, with effects on anything but Refs,
//! or with types that are neither of arrays nor of Refs have no structural id.

use std::sync::Arc;

use hashlink::LruCache;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::expand::{Local, Signature};
use crate::segments::{Key, key_of};

use crate::python::cache::key::arguments::Call;
use crate::python::cache::key::encode::{encode_derivative_rule, encode_fully, encode_jaxpr};
use crate::python::cache::key::pins::Pins;
use crate::python::cache::programs::forms::open;
use crate::python::cache::programs::registry::{jits_of, known_id, nested_of, note, note_jits};
use crate::python::cache::reasons::{Reason, UNKNOWN_OBJECT};
use crate::python::cache::warm::keys::{place_of, portable_words};
use crate::python::cache::warm::library::{self, Library};
use crate::python::cpython::address_cache::Locked;
use crate::python::jax::names::Jax;

/// The structural id of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StructuralId(u64);

impl StructuralId {
    /// As a key.
    pub fn raw(self) -> u64 {
        self.0
    }
}

/// The structural ids of the process.
struct StructuralIds {
    /// With the objects that the key names.
    by_key: LruCache<Box<[u64]>, (StructuralId, Pins)>,
    /// The tracebacks of their equations, each one that stands for all that are equal.
    tracebacks: FxHashMap<StructuralId, Arc<Vec<Py<PyAny>>>>,
    /// What names them in every process, but for the tracebacks: these by which of them are equal.
    portable: FxHashMap<StructuralId, Key>,
    last: u64,
}

impl StructuralIds {
    /// The number of a key. What is replaced by it is to be dropped by the caller.
    fn of_key(
        &mut self,
        py: Python<'_>,
        key: Box<[u64]>,
        pins: Pins,
        tracebacks: Vec<Py<PyAny>>,
    ) -> (StructuralId, impl Sized + use<>) {
        if let Some((id, known)) = self.by_key.get(&key)
            && known.are_alive(py)
        {
            return (*id, (Some((pins, tracebacks)), None, None, (None, None)));
        }
        self.last += 1;
        let id = StructuralId(self.last);
        let same = self.by_key.insert(key, (id, pins));
        let of_same = same.as_ref().and_then(|(id, _)| self.forget(*id));
        self.tracebacks.insert(id, Arc::new(tracebacks));
        let many = self.by_key.len() > MAX_IDS;
        let last = if many { self.by_key.remove_lru() } else { None };
        let of_last = last.as_ref().and_then(|(_, (id, _))| self.forget(*id));
        (id, (None, last, of_last, (same, of_same)))
    }

    fn forget(&mut self, id: StructuralId) -> Option<Arc<Vec<Py<PyAny>>>> {
        self.portable.remove(&id);
        self.tracebacks.remove(&id)
    }
}

static IDS: Locked<StructuralIds> = Locked::new(|| StructuralIds {
    by_key: LruCache::new(usize::MAX),
    tracebacks: FxHashMap::default(),
    portable: FxHashMap::default(),
    last: 0,
});

const MAX_IDS: usize = 1 << 13;

/// The structural id of an open jaxpr.
///
/// # Errors
/// Why it has none.
pub fn structural_id_of(jax: &Jax, program: &Bound<'_, PyAny>) -> Result<StructuralId, Reason> {
    let py = program.py();
    if let Some(id) = known_id(program) {
        return Ok(id);
    }
    let mut call = Call::new(0);
    let library = library::current(py);
    let describe = |call: &mut Call| {
        call.pins = Some(Vec::new());
        if library.is_some() {
            call.signature = Signature::new(0).noting_locals();
        }
        encode_jaxpr(jax, program, call)
    };
    encode_fully(py, &mut call, describe).map_err(|_| UNKNOWN_OBJECT)??;
    let mut nested: Vec<(StructuralId, Py<PyAny>)> = Vec::new();
    let mut of_jits: Vec<Py<PyAny>> = Vec::new();
    let mut inner_ids = Vec::with_capacity(call.programs.len());
    for &inner in &call.programs {
        // SAFETY: a part of the program.
        let inner = unsafe { Bound::from_borrowed_ptr(py, inner) };
        let (open, _) = open(jax, &inner)?;
        let id = structural_id_of(jax, &open)?;
        let of_inner = nested_of(&open);
        of_jits.extend(jits_of(&open));
        if call.of_jits.contains(&inner.as_ptr()) {
            of_jits.push(open.unbind());
        }
        inner_ids.push(id);
        nested.push((id, inner.unbind()));
        nested.extend(of_inner);
    }
    // SAFETY: alive, as parts of the program.
    let pin = |pin| unsafe { Bound::from_borrowed_ptr(py, pin) };
    let mut pins = Pins::new(call.pins.take().into_iter().flatten().map(pin));
    pins.keep(std::mem::take(&mut call.own().kept));
    let tracebacks = std::mem::take(&mut call.own().tracebacks);
    let key = call.signature.words().into();
    let (id, old) = IDS.with(|ids| ids.of_key(py, key, pins, tracebacks));
    drop(old);
    if let Some(library) = library {
        let portable = portable_of(py, &library, &call.signature, &inner_ids);
        if let Some(portable) = portable.map_err(|_| UNKNOWN_OBJECT)? {
            IDS.with(|ids| ids.portable.insert(id, portable));
        }
    }
    note(program, id, nested).map_err(|_| UNKNOWN_OBJECT)?;
    note_jits(program, of_jits);
    Ok(id)
}

/// The tracebacks of the equations of programs with a structural id; None where that is
/// forgotten.
pub fn tracebacks_of(id: StructuralId) -> Option<Arc<Vec<Py<PyAny>>>> {
    IDS.with(|ids| ids.tracebacks.get(&id).cloned())
}

/// What names programs with a structural id in every process; None where that is not known.
pub fn portable_id(id: StructuralId) -> Option<Key> {
    IDS.with(|ids| ids.portable.get(&id).copied())
}

/// What names a program in every process, by its signature and the ids of the programs in it, in order.
fn portable_of(
    py: Python<'_>,
    library: &Library,
    signature: &Signature,
    inner: &[StructuralId],
) -> PyResult<Option<Key>> {
    let mut inner = inner.iter();
    let mut places: FxHashMap<u64, Key> = FxHashMap::default();
    let words = portable_words(py, library, signature, &mut |local, word| match local {
        Local::Program => inner.next().and_then(|&id| portable_id(id)),
        _ => Some(place_of(&mut places, word)),
    })?;
    Ok(words.map(|words| key_of(&words)))
}

/// Whether two derivative rules are structurally equal.
pub fn same_rule(jax: &Jax, one: &Bound<'_, PyAny>, another: &Bound<'_, PyAny>) -> bool {
    let py = one.py();
    let key_of = |rule: &Bound<'_, PyAny>| {
        let mut call = Call::new(0);
        let describe = |call: &mut Call| encode_derivative_rule(jax, rule, call);
        let described = encode_fully(py, &mut call, describe);
        matches!(described, Ok(Ok(()))).then_some(call)
    };
    // Both are kept until they were compared, since keys name objects by address.
    match (key_of(one), key_of(another)) {
        (Some(one), Some(another)) => one.signature.words() == another.signature.words(),
        _ => false,
    }
}
