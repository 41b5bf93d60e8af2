//! Texts of types and params, remembered from one printed program to the next.
//!
//! Remembered is what cannot change: texts of `ShapedArray`s, which jax interns, and of params that
//! are known by their typed value and hold no program. The objects are kept, so that an address
//! stays its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

use crate::python::cpython::native::address;
use crate::python::jax::values::equal_params;

/// Entries beyond this start the memory afresh.
const MAX_ENTRIES: usize = 1 << 14;

/// The params of an equation as they are printed.
#[derive(Debug)]
pub struct PlainParams {
    /// Names and texts of those that are shown.
    pub shown: Vec<(Box<str>, Box<str>)>,
    pub is_call: bool,
}

/// What params are remembered by.
pub struct ParamsKey<'a, 'py> {
    pub primitive: &'a Bound<'py, PyAny>,
    /// Whether primitives have their own way of being printed.
    pub custom_rules: bool,
    /// That of this one.
    pub rule: Option<&'a Bound<'py, PyAny>>,
    pub params: &'a Bound<'py, PyDict>,
    /// Their typed hash.
    pub hash: u64,
}

/// The addresses of the primitive and its rule, and the hash of the params.
type Bucket = (usize, Option<usize>, u64);

impl ParamsKey<'_, '_> {
    fn bucket(&self) -> Bucket {
        let rule = self.custom_rules.then(|| self.rule.map_or(0, |rule| address(rule)));
        (address(self.primitive), rule, self.hash)
    }
}

struct Entry {
    params: Py<PyDict>,
    text: Arc<PlainParams>,
    _primitive: Py<PyAny>,
    _rule: Option<Py<PyAny>>,
}

#[derive(Default)]
struct Memory {
    types: FxHashMap<usize, (Py<PyAny>, Arc<str>)>,
    params: FxHashMap<Bucket, Vec<Arc<Entry>>>,
    num_params: usize,
}

static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

/// Python code never runs while this is held.
fn memory() -> MutexGuard<'static, Option<Memory>> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of a type.
pub fn type_text(aval: &Bound<'_, PyAny>) -> Option<Arc<str>> {
    memory().as_ref()?.types.get(&address(aval)).map(|(_, text)| text.clone())
}

/// Remembers the text of a type.
pub fn remember_type(aval: &Bound<'_, PyAny>, text: &str) {
    let entry = (aval.clone().unbind(), Arc::from(text));
    let old = {
        let mut memory = memory();
        let own = memory.get_or_insert_default();
        let old = (own.types.len() >= MAX_ENTRIES).then(|| std::mem::take(&mut own.types));
        own.types.insert(address(aval), entry);
        old
    };
    // Objects die outside of the lock.
    drop(old);
}

/// The text of params.
pub fn params_text(key: &ParamsKey<'_, '_>) -> Option<Arc<PlainParams>> {
    let py = key.params.py();
    let same_hash = memory().as_ref()?.params.get(&key.bucket())?.clone();
    let known = same_hash.iter().find(|entry| equal_params(entry.params.bind(py), key.params))?;
    Some(known.text.clone())
}

/// Remembers the text of params.
pub fn remember_params(key: &ParamsKey<'_, '_>, text: PlainParams) {
    let entry = Arc::new(Entry {
        params: key.params.clone().unbind(),
        text: Arc::new(text),
        _primitive: key.primitive.clone().unbind(),
        _rule: key.rule.map(|rule| rule.clone().unbind()),
    });
    let old = {
        let mut memory = memory();
        let own = memory.get_or_insert_default();
        let is_full = own.num_params >= MAX_ENTRIES;
        let old = is_full.then(|| std::mem::take(&mut own.params));
        own.num_params = if is_full { 1 } else { own.num_params + 1 };
        own.params.entry(key.bucket()).or_default().push(entry);
        old
    };
    drop(old);
}

/// Forgets all.
pub fn forget_texts() {
    let old = memory().take();
    drop(old);
}
