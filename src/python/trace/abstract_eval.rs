//! Abstract evaluation, remembered.
//!
//! What a primitive does to given avals with given params under a given config context never
//! changes (jax caches it on the same key), so it is kept here under a key that is compared without
//! running Python: avals by identity (jax interns `ShapedArray`), params by typed value, the config
//! context (`config.trace_context()`) by number. What jax's const-folding, forwarding and staging
//! rules depend on beyond that is looked up live.

use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::python::jax::names::Jax;
use crate::python::jax::values::{equal_params, hash_params};
use crate::python::jax::world::owns_primitive;

/// Entries beyond this start the memo afresh.
const MAX_ENTRIES: usize = 1 << 15;
const MAX_CONTEXTS: usize = 64;

/// A config context seen by a trace.
#[derive(Clone)]
pub struct Context {
    pub number: u32,
    /// jax's `JaxprEqnContext` of this config.
    pub for_eqns: Arc<Py<PyAny>>,
    /// Constants are computed at once (`eager_constant_folding`).
    pub eager_folding: bool,
    values: Arc<Py<PyTuple>>,
}

/// What staging needs to know of a primitive, read once.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Copy)]
pub struct PrimitiveInfo {
    /// `bind_with_trace` is the base class's.
    pub plain_bind: bool,
    /// `bind_with_trace` equals the base class's while the param `sharding` is None.
    pub plain_without_sharding: bool,
    /// `is_high` is the base class's: some param is a high jaxpr.
    pub plain_is_high: bool,
    /// `bind` and `get_bind_params` are the base class's.
    pub plain_call: bool,
    pub multiple_results: bool,
    pub ref_allocating: bool,
    /// Its abstract evaluation must not be cached.
    pub uncached: bool,
    /// Nothing is remembered of it any more.
    pub barred: bool,
}

/// The outcome of abstract evaluation.
pub struct Entry {
    /// Unique in the process.
    pub number: u32,
    primitive: Py<PyAny>,
    multiple_results: bool,
    context: u32,
    avals: SmallVec<[Py<PyAny>; 2]>,
    pub params: Py<PyDict>,
    pub out_avals: SmallVec<[Py<PyAny>; 1]>,
    /// None where there are none.
    pub effects: Option<Py<PyAny>>,
    /// The forwarding rule that was asked, and the operand that is the output, where one is.
    pub forwarding_rule: Option<Py<PyAny>>,
    pub forwarded: Option<usize>,
    /// No operand has a mesh, so `Primitive.bind` has nothing to check.
    pub empty_meshes: bool,
}

/// What abstract evaluation and the forwarding rule answered.
pub struct Outcome<'a, 'py> {
    pub out_avals: &'a [Bound<'py, PyAny>],
    pub effects: Option<&'a Bound<'py, PyAny>>,
    pub forwarding_rule: Option<&'a Bound<'py, PyAny>>,
    pub forwarded: Option<usize>,
    pub empty_meshes: bool,
}

/// The key of an entry to be, with the hash computed.
pub struct Key<'a, 'py> {
    hash: u64,
    primitive: &'a Bound<'py, PyAny>,
    multiple_results: bool,
    context: u32,
    avals: SmallVec<[*mut ffi::PyObject; 4]>,
    params: &'a Bound<'py, PyDict>,
}

#[derive(Default)]
struct Memo {
    entries: FxHashMap<u64, SmallVec<[Arc<Entry>; 1]>>,
    len: usize,
    next_number: u32,
    contexts: Vec<Context>,
    next_context: u32,
    /// The primitive is held so that its address stays its own.
    primitives: FxHashMap<usize, (Py<PyAny>, PrimitiveInfo)>,
}

static MEMO: Mutex<Option<Memo>> = Mutex::new(None);

/// Python code never runs while this is held.
fn memo() -> MutexGuard<'static, Option<Memo>> {
    MEMO.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_memo<R>(body: impl FnOnce(&mut Memo) -> R) -> R {
    body(memo().get_or_insert_default())
}

impl<'a, 'py> Key<'a, 'py> {
    /// None where the params cannot be keyed.
    pub fn new(
        primitive: &'a Bound<'py, PyAny>,
        info: PrimitiveInfo,
        context: &Context,
        avals: impl Iterator<Item = *mut ffi::PyObject>,
        params: &'a Bound<'py, PyDict>,
    ) -> Option<Self> {
        let mut hasher = FxHasher::default();
        hasher.write_usize(primitive.as_ptr() as usize);
        hasher.write_u32(context.number);
        let avals: SmallVec<[_; 4]> = avals.collect();
        for &aval in &avals {
            hasher.write_usize(aval as usize);
        }
        if !hash_params(params, &mut hasher) {
            return None;
        }
        let (hash, context) = (hasher.finish(), context.number);
        let multiple_results = info.multiple_results;
        Some(Self { hash, primitive, multiple_results, context, avals, params })
    }

    fn matches(&self, entry: &Entry) -> bool {
        entry.primitive.as_ptr() == self.primitive.as_ptr()
            && entry.multiple_results == self.multiple_results
            && entry.context == self.context
            && entry.avals.len() == self.avals.len()
            && entry.avals.iter().zip(&self.avals).all(|(a, &b)| a.as_ptr() == b)
            && equal_params(entry.params.bind(self.params.py()), self.params)
    }

    /// The remembered outcome.
    pub fn find(&self) -> Option<Arc<Entry>> {
        with_memo(|memo| {
            memo.entries.get(&self.hash)?.iter().find(|entry| self.matches(entry)).cloned()
        })
    }

    /// Remembers an outcome.
    pub fn insert(&self, outcome: &Outcome<'_, 'py>) -> Arc<Entry> {
        let py = self.params.py();
        let own = |object: &Bound<'py, PyAny>| object.clone().unbind();
        let avals = self
            .avals
            .iter()
            // SAFETY: the operands of the call being staged hold their avals.
            .map(|&aval| unsafe { Bound::from_borrowed_ptr(py, aval) }.unbind())
            .collect();
        let mut entry = Entry {
            number: 0,
            primitive: own(self.primitive),
            multiple_results: self.multiple_results,
            context: self.context,
            avals,
            params: self.params.clone().unbind(),
            out_avals: outcome.out_avals.iter().map(own).collect(),
            effects: outcome.effects.map(own),
            forwarding_rule: outcome.forwarding_rule.map(own),
            forwarded: outcome.forwarded,
            empty_meshes: outcome.empty_meshes,
        };
        let (entry, old) = with_memo(|memo| {
            entry.number = memo.next_number;
            memo.next_number = memo.next_number.wrapping_add(1);
            let entry = Arc::new(entry);
            let old = (memo.len >= MAX_ENTRIES).then(|| {
                memo.len = 0;
                std::mem::take(&mut memo.entries)
            });
            memo.len += 1;
            memo.entries.entry(self.hash).or_default().push(entry.clone());
            (entry, old)
        });
        drop(old);
        entry
    }
}

impl Context {
    /// The current configuration context.
    pub fn current(py: Python<'_>, jax: &Jax) -> PyResult<Self> {
        let values = jax.trace_context.bind(py).call0()?.cast_into::<PyTuple>()?;
        if let Some(known) = with_memo(|memo| {
            memo.contexts.iter().find(|c| same_items(c.values.bind(py), &values)).cloned()
        }) {
            return Ok(known);
        }
        Self::learn(py, jax, values)
    }

    #[cold]
    fn learn(py: Python<'_>, jax: &Jax, values: Bound<'_, PyTuple>) -> PyResult<Self> {
        let known = with_memo(|memo| memo.contexts.clone());
        for context in known {
            if context.values.bind(py).eq(&values)? {
                return Ok(context);
            }
        }
        let for_eqns = jax.current_eqn_context.bind(py).call0()?.unbind();
        let eager_folding =
            jax.eager_constant_folding.bind(py).getattr(pyo3::intern!(py, "value"))?.is_truthy()?;
        let (context, old) = with_memo(|memo| {
            let context = Self {
                number: memo.next_context,
                for_eqns: Arc::new(for_eqns),
                eager_folding,
                values: Arc::new(values.unbind()),
            };
            memo.next_context = memo.next_context.wrapping_add(1);
            let old = if memo.contexts.len() >= MAX_CONTEXTS {
                std::mem::take(&mut memo.contexts)
            } else {
                Vec::new()
            };
            memo.contexts.push(context.clone());
            (context, old)
        });
        drop(old);
        Ok(context)
    }
}

fn same_items(a: &Bound<'_, PyTuple>, b: &Bound<'_, PyTuple>) -> bool {
    // SAFETY: both are tuples; items are only compared by address.
    unsafe {
        let len = ffi::PyTuple_GET_SIZE(a.as_ptr());
        len == ffi::PyTuple_GET_SIZE(b.as_ptr())
            && (0..len).all(|i| {
                ffi::PyTuple_GET_ITEM(a.as_ptr(), i) == ffi::PyTuple_GET_ITEM(b.as_ptr(), i)
            })
    }
}

impl PrimitiveInfo {
    /// What there is to know of `primitive`.
    pub fn of(jax: &Jax, primitive: &Bound<'_, PyAny>) -> PyResult<Self> {
        let address = primitive.as_ptr() as usize;
        let known = with_memo(|memo| memo.primitives.get(&address).map(|(_, info)| *info));
        if let Some(info) = known {
            if owns_primitive(jax, primitive) {
                return Ok(info);
            }
            // What the user has of a primitive may be another thing now.
            return Ok(Self { barred: info.barred, ..Self::read(jax, primitive)? });
        }
        let info = Self::read(jax, primitive)?;
        with_memo(|memo| {
            memo.primitives.insert(address, (primitive.clone().unbind(), info));
        });
        Ok(info)
    }

    #[cold]
    fn read(jax: &Jax, primitive: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = primitive.py();
        let class = primitive.get_type();
        let own = primitive.getattr_opt("__dict__")?;
        let instance = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            match &own {
                Some(dict) => dict.cast::<PyDict>()?.get_item(name),
                None => Ok(None),
            }
        };
        let class_has = |name: &str, stock: &Py<PyAny>| -> PyResult<bool> {
            Ok(class.getattr(name)?.is(stock))
        };
        let class_bind = class_has("bind_with_trace", &jax.primitive_bind_with_trace)?;
        let override_ = instance("bind_with_trace")?;
        let plain_without_sharding = match &override_ {
            Some(rule) => class_bind && jax.sharding_bind_rules.bind(py).contains(rule)?,
            None => false,
        };
        let name = primitive.getattr("name")?;
        Ok(Self {
            plain_bind: class_bind && override_.is_none(),
            plain_without_sharding,
            plain_is_high: class_has("is_high", &jax.primitive_is_high)?
                && instance("is_high")?.is_none(),
            plain_call: class_has("bind", &jax.primitive_bind)?
                && class_has("get_bind_params", &jax.primitive_bind_params)?
                && instance("bind")?.is_none()
                && instance("get_bind_params")?.is_none(),
            multiple_results: primitive.getattr("multiple_results")?.is_truthy()?,
            ref_allocating: primitive.getattr("ref_allocating")?.is_truthy()?,
            uncached: primitive.getattr("ref_allocating")?.is_truthy()?
                || jax.uncached_primitives.bind(py).contains(name)?,
            barred: false,
        })
    }
}

/// Lets nothing be remembered of a primitive any more.
pub fn bar(primitive: &Bound<'_, PyAny>) {
    let old = with_memo(|memo| {
        if let Some((_, info)) = memo.primitives.get_mut(&(primitive.as_ptr() as usize)) {
            info.barred = true;
        }
        memo.len = 0;
        std::mem::take(&mut memo.entries)
    });
    drop(old);
}

/// Forgets what abstract evaluation has answered.
pub fn forget_outcomes() {
    let old = {
        let mut memo = memo();
        let mut old = memo.take();
        if let Some(old) = &mut old {
            // Numbers stay unique: programs under construction refer to them.
            *memo = Some(Memo {
                next_number: old.next_number,
                next_context: old.next_context,
                primitives: old.primitives.extract_if(|_, (_, info)| info.barred).collect(),
                ..Memo::default()
            });
        }
        old
    };
    drop(old);
}

/// How many outcomes of abstract evaluation are remembered.
#[pyfunction]
pub fn memo_len() -> usize {
    with_memo(|memo| memo.len)
}
