//! What jax makes of a program and keeps with it: its linearization, its `jvp`, its batched form, its
//! transpose.
//!
//! jax has caches of these, which know a program by identity; the program of a jit that is traced
//! again is a new one. Here the computation behind such a cache is remembered by the structural id of the program.
//! What jax's cache then holds for the new program is a fresh copy of what it would have computed: objects
//! of its own, which jax uses from then on as if it had made them. So it does not matter who asks, how
//! often, or what else is made of the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashSet;

use crate::expand::CallableId;
use crate::segments::Key;

use crate::python::cache::audit;
use crate::python::cache::call::watched;
use crate::python::cache::key::trace_context::{Configuration, configuration_now};
use crate::python::cache::programs::forms::{Form, close, is_jaxpr, open};
use crate::python::cache::programs::given::{Given, has_lines_among};
use crate::python::cache::programs::instantiate::Instantiation;
use crate::python::cache::programs::plan::OwnChanges;
use crate::python::cache::programs::stored::Deriving;
use crate::python::cache::programs::structural_id::{StructuralId, structural_id_of};
use crate::python::cache::reasons::{
    BARRED, CHANGED_MEANWHILE, NEW_OBJECTS, NOT_ALONE, OF_THE_CALL, Reason, UNKNOWN_OBJECT, WARNED,
};
use crate::python::cache::store::{self, Hits};
use crate::python::cache::warm::derivations::{self, Sought};
use crate::python::cache::warm::library;
use crate::python::cache::warm::lookup;
use crate::python::cache::warm::whole;
use crate::python::cpython::native::{address, attached};
use crate::python::cpython::shared::Once;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::watch_warnings;
use crate::python::jax::world::{Validity, is_as_before};
use crate::python::program::graph::Graph;
use crate::python::program::read::graph_of;
use crate::python::trace::session;

/// Calls a function of a program and a key.
fn run_stock<'py>(
    stock: &Py<PyAny>,
    jaxpr: &Bound<'py, PyAny>,
    key: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let args: Vec<_> = std::iter::once(jaxpr.clone()).chain(key.iter()).collect();
    stock.bind(jaxpr.py()).call1(PyTuple::new(jaxpr.py(), args)?)
}

/// Stands in for a function whose results jax keeps by a program and a key.
#[pyclass(module = "jaxide._core", frozen)]
pub struct DerivationCache {
    /// The name of the function, which no other has.
    path: String,
    stock: Py<PyAny>,
    id: CallableId,
    hits: Arc<Hits>,
}

#[pymethods]
impl DerivationCache {
    #[new]
    fn new(name: &str, path: String, stock: Py<PyAny>) -> Self {
        let (id, hits) = store::new_callable(name);
        Self { path, stock, id, hits }
    }

    /// Makes fresh copies of what is known for a structurally equal program, else runs the function and
    /// learns.
    #[pyo3(signature = (jaxpr, *key))]
    fn __call__<'py>(
        &self,
        jaxpr: &Bound<'py, PyAny>,
        key: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        whole::derived(&self.path, jaxpr, key, || self.call(jaxpr, key))
    }
}

impl DerivationCache {
    fn call<'py>(
        &self,
        jaxpr: &Bound<'py, PyAny>,
        key: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = jaxpr.py();
        let jax = jax(py)?;
        let run = || run_stock(&self.stock, jaxpr, key);
        if session::is_idle(py)? {
            return run();
        }
        let configuration = configuration_now(py, jax)?;
        let (given, id, configuration) = match (Given::of_program(jax, jaxpr), configuration) {
            (Ok((given, id)), Ok(configuration)) => (given, id, configuration),
            (Err(reason), _) | (_, Err(reason)) => {
                store::count_bypass(self.id, reason);
                return run();
            }
        };
        let own_key = key;
        let key = (self.id.0, id.raw(), configuration.number, key).into_pyobject(py)?;
        let known = match Memo::get(&key)? {
            Some(known) if known.get().validity.holds() && is_as_before(py)? => Some(known),
            _ => None,
        };
        let candidate = match known.as_ref().map(|known| &known.get().derivation) {
            Some(Ok(derivation)) if derivation.holds_for(&given) => {
                self.hits.add_one();
                if audit::is_due() {
                    return self.audited(jax, &key, derivation, given, run);
                }
                let copy = derivation.fresh_copy(jax, py, given)?;
                let made = derivation.made(&copy);
                derivations::note(jax, &self.path, jaxpr, own_key, made)?;
                return Ok(copy.into_any());
            }
            Some(Ok(candidate)) => Some(candidate),
            Some(Err(reason)) => {
                store::count_bypass(self.id, reason);
                return run();
            }
            None if store::is_barred(self.id) => {
                store::count_bypass(self.id, BARRED);
                return run();
            }
            None => None,
        };
        if given.has_warned(py, jax) {
            store::count_bypass(self.id, WARNED);
            return run();
        }
        let sought = Sought::new(py, jax, &self.path, &given, own_key, configuration.number)?;
        let deriving = || self.deriving(jax, jaxpr, own_key);
        let (given, found) = stored(jax, jaxpr, sought.as_ref(), given, candidate, &deriving)?;
        if let Some((derivation, result)) = found {
            self.hits.add_one();
            derivations::note(jax, &self.path, jaxpr, own_key, programs_in(jax, &result))?;
            if let Some(derivation) = derivation {
                if audit::is_due() {
                    return self.audited(jax, &key, &derivation, given, run);
                }
                let validity = Validity::of_what_lasts();
                Memo::insert(&key, KnownDerivation::new(Ok(derivation), validity, None))?;
            }
            return Ok(result.into_any());
        }
        let keys = (&key, own_key);
        self.run_and_learn(jax, jaxpr, keys, configuration, given, candidate, sought, run)
    }
}

/// What was derived as the store has it, where it was read, and the function's result.
type Stored<'py> = (Option<Derivation>, Bound<'py, PyTuple>);

/// What the store has of a function that is given a program, and what that says of others.
fn stored<'py>(
    jax: &Jax,
    jaxpr: &Bound<'py, PyAny>,
    sought: Option<&Sought>,
    given: Given,
    candidate: Option<&Derivation>,
    deriving: Deriving<'_, 'py>,
) -> PyResult<(Given, Option<Stored<'py>>)> {
    let Some(sought) = sought else { return Ok((given, None)) };
    let found = sought.found(jaxpr.py(), jax, &given, deriving)?;
    let Some((result, has_rules)) = found else { return Ok((given, None)) };
    // Who compares rules asks for them.
    if has_rules && !audit::is_due() {
        return Ok((given, Some((None, result))));
    }
    let again = Given::of_program(jax, jaxpr).map_err(PyRuntimeError::new_err)?.0;
    let learnt = attached(|| Derivation::learn(jax, given, &result, candidate));
    Ok((again, learnt.ok().map(|derivation| (Some(derivation), result))))
}

/// The programs among what a function has made, with their places.
fn programs_in<'py>(jax: &Jax, made: &Bound<'py, PyTuple>) -> Vec<(usize, Bound<'py, PyAny>)> {
    let py = made.py();
    made.iter().enumerate().filter(|(_, item)| is_jaxpr(py, jax, item.as_ptr())).collect()
}

impl DerivationCache {
    /// What has jax make what the function makes, once.
    fn deriving<'py>(
        &self,
        jax: &Jax,
        jaxpr: &Bound<'py, PyAny>,
        key: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = jaxpr.py();
        let args = (&self.stock, jaxpr, key);
        jax.requests.bind(py).call_method1(pyo3::intern!(py, "deriving"), args)
    }

    /// Runs the function, and notes what it makes.
    #[allow(clippy::too_many_arguments)] // a call, and what is known of it
    fn run_and_learn<'py>(
        &self,
        jax: &Jax,
        jaxpr: &Bound<'py, PyAny>,
        (key, own_key): (&Bound<'py, PyTuple>, &Bound<'py, PyTuple>),
        configuration: Configuration,
        given: Given,
        candidate: Option<&Derivation>,
        sought: Option<Sought>,
        run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = jaxpr.py();
        let warnings = watch_warnings::count();
        let (result, refusal, validity) =
            lookup::recording(sought.is_some(), || watched(py, jax, Ok(configuration), run))?;
        let result = result?;
        let derivation = if let Some(reason) = refusal {
            Err(reason)
        } else if watch_warnings::count() == warnings {
            attached(|| Derivation::learn(jax, given, &result, candidate))
        } else {
            given.note_warned(py, jax);
            Err(WARNED)
        };
        let mut lasting = None;
        match &derivation {
            Ok(derivation) => {
                store::count_miss(self.id);
                let result = derivation.result.bind(py);
                derivations::note(jax, &self.path, jaxpr, own_key, derivation.made(result))?;
                if let Some(sought) = sought
                    && sought.holds(py, jax, &derivation.given, result)?
                {
                    lasting = Some(sought.key);
                }
            }
            Err(reason) => store::count_bypass(self.id, reason),
        }
        if !matches!(derivation, Err(CHANGED_MEANWHILE)) {
            Memo::insert(key, KnownDerivation::new(derivation, validity, lasting))?;
        }
        Ok(result)
    }

    /// Runs the function, and compares what it makes with what is remembered.
    #[cold]
    fn audited<'py>(
        &self,
        jax: &Jax,
        key: &Bound<'py, PyTuple>,
        derivation: &Derivation,
        given: Given,
        run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        let _running = audit::Running::begin();
        let result = run()?;
        let same = attached(|| {
            Derivation::learn(jax, given, &result, Some(derivation)).is_ok()
                || audit::same_content(py, derivation.result.bind(py), &result)
        });
        if !same {
            Memo::forget_all_of(py, self.id)?;
            audit::derivation(self.id, key, derivation.result.bind(py), &result)?;
        }
        Ok(result)
    }
}

/// Stands in for a function that keeps the parts of programs that it makes, which have variables of these: notes
/// where they come from.
#[pyclass(module = "jaxide._core", frozen)]
pub struct Parts {
    /// The name of the function, which no other has.
    path: String,
    stock: Py<PyAny>,
}

#[pymethods]
impl Parts {
    #[new]
    fn new(path: String, stock: Py<PyAny>) -> Self {
        Self { path, stock }
    }

    /// Runs the function.
    #[pyo3(signature = (jaxpr, *key))]
    fn __call__<'py>(
        &self,
        jaxpr: &Bound<'py, PyAny>,
        key: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = jaxpr.py();
        let run = || run_stock(&self.stock, jaxpr, key);
        let result = whole::derived(&self.path, jaxpr, key, run)?;
        if !library::is_open() || session::is_idle(py)? {
            return Ok(result);
        }
        let jax = jax(py)?;
        let items = match result.cast_exact::<PyTuple>() {
            Ok(items) => items.iter().collect(),
            Err(_) => vec![result.clone()],
        };
        let made =
            items.into_iter().enumerate().filter(|(_, item)| is_jaxpr(py, jax, item.as_ptr()));
        derivations::note(jax, &self.path, jaxpr, key, made.collect())?;
        Ok(result)
    }
}

/// What is known, by function, structural id of the program, configuration and key, in the order of use.
/// Keys compare as those of jax's caches do, which have found them hashable.
struct Memo {
    known: Py<PyDict>,
    bytes: AtomicUsize,
}

static MEMO: Once<Memo> = Once::new();
const MAX_DERIVATIONS: usize = 1 << 12;
const MAX_BYTES: usize = 1 << 27;

impl Memo {
    fn of_process(py: Python<'_>) -> &Self {
        let new = || Self { known: PyDict::new(py).unbind(), bytes: AtomicUsize::new(0) };
        MEMO.get_or_init(py, new)
    }

    /// What is known; it is the last in the order of use from now on.
    fn get<'py>(key: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, KnownDerivation>>> {
        let memo = Self::of_process(key.py()).known.bind(key.py());
        let Some(known) = memo.get_item(key)? else { return Ok(None) };
        // Another thread may have removed it meanwhile.
        let _ = memo.del_item(key);
        memo.set_item(key, &known)?;
        Ok(Some(known.cast_into()?))
    }

    /// Forgets what is known of a function.
    fn forget_all_of(py: Python<'_>, id: CallableId) -> PyResult<()> {
        for key in Self::of_process(py).known.bind(py).keys() {
            let key = key.cast_into::<PyTuple>()?;
            if key.get_item(0)?.extract::<u64>()? == id.0 {
                Self::remove(&key)?;
            }
        }
        Ok(())
    }

    fn insert(key: &Bound<'_, PyTuple>, known: KnownDerivation) -> PyResult<()> {
        let py = key.py();
        let memo = Self::of_process(py);
        Self::remove(key)?;
        memo.bytes.fetch_add(known.memory_bytes(py), Ordering::Relaxed);
        let all = memo.known.bind(py);
        all.set_item(key, Bound::new(py, known)?)?;
        while all.len() > MAX_DERIVATIONS || memo.bytes.load(Ordering::Relaxed) > MAX_BYTES {
            let (len, oldest) = (all.len(), all.iter().next());
            let Some((oldest, _)) = oldest else { break };
            Self::remove(oldest.cast::<PyTuple>()?)?;
            if all.len() >= len {
                // A key that is no longer found, or somebody else adds others.
                break;
            }
        }
        Ok(())
    }

    fn remove(key: &Bound<'_, PyTuple>) -> PyResult<()> {
        let py = key.py();
        let memo = Self::of_process(py);
        if let Some(known) = memo.known.bind(py).get_item(key)? {
            let bytes = known.cast::<KnownDerivation>()?.get().memory_bytes(py);
            // Where it is still there: keys are compared by Python code.
            if memo.known.bind(py).del_item(key).is_ok() {
                memo.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Forgets what was derived.
pub fn forget(py: Python<'_>) {
    if let Some(memo) = MEMO.get(py) {
        memo.known.bind(py).clear();
        memo.bytes.store(0, Ordering::Relaxed);
    }
}

/// What is known of a function, a key, and the structurally equal programs.
#[pyclass(module = "jaxide._core", frozen)]
pub struct KnownDerivation {
    /// Or why what was derived from one program says nothing about that of others.
    derivation: Result<Derivation, Reason>,
    validity: Validity,
    /// Under which key it is to be stored, if it is, and whether that was done.
    lasting: Option<Key>,
    pub is_stored: AtomicBool,
}

/// What is known and to be stored, which the store does not have.
pub fn lasting(py: Python<'_>) -> Vec<Bound<'_, KnownDerivation>> {
    let Some(memo) = MEMO.get(py) else { return Vec::new() };
    let known = memo.known.bind(py).values().into_iter();
    let known = known.filter_map(|known| known.cast_into::<KnownDerivation>().ok());
    let is_new = |known: &Bound<'_, KnownDerivation>| {
        let known = known.get();
        known.lasting.is_some() && !known.is_stored.load(Ordering::Relaxed)
    };
    known.filter(is_new).collect()
}

impl KnownDerivation {
    fn new(
        derivation: Result<Derivation, Reason>,
        validity: Validity,
        lasting: Option<Key>,
    ) -> Self {
        Self { derivation, validity, lasting, is_stored: AtomicBool::new(false) }
    }

    /// Under which key it is to be stored, from which programs it was derived, and what; None where it does
    /// not hold any more.
    pub fn to_store<'py>(&self, py: Python<'py>) -> Option<(Key, &Given, &Bound<'py, PyTuple>)> {
        let (Ok(derivation), Some(key)) = (&self.derivation, self.lasting) else { return None };
        let holds = self.validity.holds();
        holds.then(|| (key, &*derivation.given, derivation.result.bind(py)))
    }

    fn memory_bytes(&self, py: Python<'_>) -> usize {
        let derived = self.derivation.iter().flat_map(|derivation| &derivation.programs).flatten();
        size_of::<Self>() + derived.map(|derived| derived.memory_bytes(py)).sum::<usize>()
    }
}

/// What was derived from a program.
struct Derivation {
    /// From which: until there was another one, it holds for this one alone.
    given: Arc<Given>,
    /// Which of the nested programs were the same for all so far. None where there was one program.
    same_nested: Option<Vec<bool>>,
    /// The function's result, a tuple.
    result: Py<PyTuple>,
    /// The programs among the items of the result.
    programs: Vec<Option<Derived>>,
}

/// A program that was derived.
struct Derived {
    form: Form,
    open: Py<PyAny>,
    id: StructuralId,
    graph: Py<Graph>,
    /// Params of its equations with programs that are regenerated.
    params: OwnChanges,
}

impl Derivation {
    /// What a function's `result` for the programs `given` says about others.
    ///
    /// # Errors
    /// Why it says nothing.
    fn learn(
        jax: &Jax,
        given: Given,
        result: &Bound<'_, PyAny>,
        candidate: Option<&Self>,
    ) -> Result<Self, Reason> {
        let py = result.py();
        let result = result.cast_exact::<PyTuple>().map_err(|_| UNKNOWN_OBJECT)?;
        let sources = given.tracebacks(py, jax).ok_or(UNKNOWN_OBJECT)?;
        let mut vars = given.seen_vars(py, jax).ok_or(UNKNOWN_OBJECT)?;
        let mut programs = Vec::new();
        for item in result {
            if !is_jaxpr(py, jax, item.as_ptr()) {
                programs.push(None);
                continue;
            }
            let derived = Derived::of(jax, &item)?;
            if !has_lines_among(&sources, derived.id).ok_or(UNKNOWN_OBJECT)? {
                return Err(OF_THE_CALL);
            }
            if !derived.has_own_vars(py, &mut vars) {
                return Err(NOT_ALONE);
            }
            programs.push(Some(derived));
        }
        let result = result.clone().unbind();
        let given = Arc::new(given);
        let new = Self { given, same_nested: None, result, programs };
        match candidate {
            Some(candidate) => new.beside(py, jax, candidate).ok_or(NEW_OBJECTS),
            None => Ok(new),
        }
    }

    /// As this, once it agrees with what was learnt before; None where it does not.
    fn beside(mut self, py: Python<'_>, jax: &Jax, before: &Self) -> Option<Self> {
        let items = self.result.bind(py).iter().zip(before.result.bind(py).iter());
        let programs = self.programs.iter_mut().zip(&before.programs);
        if programs.len() != before.programs.len() {
            return None;
        }
        let both = before.given.kept_beside(jax, &self.given);
        for ((item, other), programs) in items.zip(programs) {
            let agrees = match programs {
                (Some(own), Some(other)) => {
                    own.params =
                        both.params_of_equations(own.graph.bind(py), other.graph.bind(py))?;
                    own.form == other.form && own.id == other.id
                }
                (None, None) => item.get_type().is(other.get_type()) && item.eq(&other).ok()?,
                _ => false,
            };
            if !agrees {
                return None;
            }
        }
        drop(both);
        if self.given.is(&before.given) {
            self.same_nested.clone_from(&before.same_nested);
            return Some(self);
        }
        let mut same = self.given.same_nested(&before.given)?;
        if let Some(before) = &before.same_nested {
            same.iter_mut().zip(before).for_each(|(same, before)| *same &= before);
        }
        self.same_nested = Some(same);
        Some(self)
    }

    /// Whether it holds for other programs, which are structurally equal.
    fn holds_for(&self, given: &Given) -> bool {
        let Some(needed) = &self.same_nested else { return false };
        let same = self.given.same_nested(given);
        same.is_some_and(|same| same.iter().zip(needed).all(|(same, needed)| *same || !needed))
    }

    /// What the function would return for other programs.
    fn fresh_copy<'py>(
        &self,
        jax: &Jax,
        py: Python<'py>,
        given: Given,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let result = self.result.bind(py);
        let instantiation = Instantiation::of(given, self.given.clone());
        let items = result.iter().zip(&self.programs).map(|(item, derived)| match derived {
            Some(derived) => derived.fresh_copy(jax, py, &instantiation),
            None => Ok(item),
        });
        let items: Vec<_> = items.collect::<PyResult<_>>()?;
        PyTuple::new(py, items)
    }

    /// The programs among what the function has made, with their places.
    fn made<'py>(&self, result: &Bound<'py, PyTuple>) -> Vec<(usize, Bound<'py, PyAny>)> {
        let items = result.iter().zip(&self.programs).enumerate();
        items.filter_map(|(place, (item, made))| made.is_some().then_some((place, item))).collect()
    }
}

impl Derived {
    fn of(jax: &Jax, program: &Bound<'_, PyAny>) -> Result<Self, Reason> {
        let (open, form) = open(jax, program)?;
        let id = structural_id_of(jax, &open)?;
        let graph = graph_of(jax, &open).map_err(|_| UNKNOWN_OBJECT)?.unbind();
        Ok(Self { form, open: open.unbind(), id, graph, params: OwnChanges::default() })
    }

    fn memory_bytes(&self, py: Python<'_>) -> usize {
        self.graph.bind(py).get().program().memory_bytes()
    }

    /// Whether no variable is among those seen, to which they are added: what has the same variables
    /// as another is no program by itself.
    fn has_own_vars(&self, py: Python<'_>, seen: &mut FxHashSet<usize>) -> bool {
        let side = self.graph.bind(py).get().table();
        side.seen_vars(py).all(|(_, var)| seen.insert(address(&var)))
    }

    fn fresh_copy<'py>(
        &self,
        jax: &Jax,
        py: Python<'py>,
        instantiation: &Instantiation<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let copy = instantiation.fresh_copy(jax, self.graph.bind(py), &self.params)?;
        instantiation.note_copy(&copy, self.id, self.open.bind(py))?;
        if self.form == Form::Closed { close(jax, &copy) } else { Ok(copy) }
    }
}
