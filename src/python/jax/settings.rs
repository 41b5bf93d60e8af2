//! A number for the values of all of jax's settings.
//!
//! To read them all costs as much as hundreds of replays. So each thread keeps what it has read, and
//! reads again what was assigned since then, which `watch_config.rs` notices, and what is assigned in a way that
//! nobody notices, whenever an outermost program begins.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::python::cpython::shared::{Numbers, Shared};
use crate::python::jax::names::Jax;
use crate::python::jax::watch_config;

/// The settings that there are.
#[derive(Default)]
struct Named {
    /// Their places, by address.
    places: FxHashMap<usize, u32>,
    /// They stay alive, so that an address is of one setting.
    holders: Vec<Py<PyAny>>,
}

static NAMED: Shared<Option<Named>> = Shared::new(None);

const NUM_RECENT: usize = 32;
/// How many assignments of settings there were in all threads.
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// The places of the last ones, in turns.
static RECENT: [AtomicU32; NUM_RECENT] = [const { AtomicU32::new(0) }; NUM_RECENT];

/// How many programs were begun that are not part of another.
static PROGRAMS: AtomicU64 = AtomicU64::new(0);

/// A program is begun that is not part of another.
pub fn begin_program() {
    PROGRAMS.fetch_add(1, Ordering::Relaxed);
}

/// Grows with each program that is not part of another.
pub fn programs_begun() -> u64 {
    PROGRAMS.load(Ordering::Relaxed)
}

/// What a thread has read.
struct Read {
    changes: u64,
    programs: u64,
    number: u32,
    values: Vec<Py<PyAny>>,
    /// The places of those whose assignment nobody notices.
    unnoticed: Vec<u32>,
}

thread_local! {
    static READ: RefCell<Option<Read>> = const { RefCell::new(None) };
}

/// Values of all settings that were seen, with a number for each combination.
static NUMBERS: Numbers = Numbers::new();

/// An assignment: the number of all settings before it, the place, and the address of the value.
type Assigned = (u32, u32, usize);
/// The number after an assignment, with the value, which stays alive.
type Known = FxHashMap<Assigned, (u32, Py<PyAny>)>;
static KNOWN: Shared<Option<Known>> = Shared::new(None);
const MAX_KNOWN: usize = 4096;

/// A setting, by its address, is about to be assigned.
pub fn note(setting: usize) {
    let place = NAMED.peek(|named| named.as_ref()?.places.get(&setting).copied());
    if let Some(place) = place {
        let turn = CHANGES.load(Ordering::Relaxed);
        RECENT[recent(turn)].store(place, Ordering::Relaxed);
        CHANGES.store(turn + 1, Ordering::Relaxed);
    }
}

fn recent(turn: u64) -> usize {
    usize::try_from(turn % NUM_RECENT as u64).unwrap_or_default()
}

/// A number for all settings as they are now in this thread.
///
/// # Errors
/// A setting cannot be read.
pub fn number(py: Python<'_>, jax: &Jax) -> PyResult<u32> {
    // Before anything is read: what is assigned meanwhile is read again the next time.
    let (changes, programs) = (CHANGES.load(Ordering::Relaxed), programs_begun());
    let last = READ.take().filter(|_| watch_config::is_noticing());
    let known = last.filter(|last| {
        last.values.len() == jax.all_settings.bind(py).len()
            && changes - last.changes <= NUM_RECENT as u64
    });
    let read = match known {
        Some(mut read) => {
            let mut places: SmallVec<[u32; 8]> = (read.changes..changes)
                .map(|turn| RECENT[recent(turn)].load(Ordering::Relaxed))
                .collect();
            if programs != read.programs {
                places.extend_from_slice(&read.unnoticed);
            }
            for place in places {
                read.again(py, jax, place)?;
            }
            Read { changes, programs, ..read }
        }
        None => Read::all(py, jax, changes, programs)?,
    };
    let number = read.number;
    if watch_config::is_noticing() {
        drop(READ.replace(Some(read)));
    }
    Ok(number)
}

/// The values of all settings as they are now in this thread, in the order in which jax has them.
///
/// # Errors
/// A setting cannot be read.
pub fn values(py: Python<'_>, jax: &Jax) -> PyResult<Vec<Py<PyAny>>> {
    if watch_config::is_noticing() {
        number(py, jax)?;
        let copied = |read: &Read| read.values.iter().map(|value| value.clone_ref(py)).collect();
        if let Some(values) = READ.with_borrow(|read| read.as_ref().map(copied)) {
            return Ok(values);
        }
    }
    jax.all_settings.bind(py).values().iter().map(|holder| value_of(&holder)).collect()
}

/// A number for all settings, for something else that has a number, which is mostly 0, and for the mesh that is set.
///
/// # Errors
/// A setting cannot be read.
pub fn number_beside(py: Python<'_>, jax: &Jax, other: u32) -> PyResult<u32> {
    let settings = number(py, jax)?;
    let mesh = jax.concrete_mesh.bind(py).call0()?;
    if other == 0 && mesh.is(&jax.empty_mesh) {
        return Ok(settings);
    }
    NUMBERS.of(&(settings, other, mesh).into_pyobject(py)?.into_any())
}

impl Read {
    fn all(py: Python<'_>, jax: &Jax, changes: u64, programs: u64) -> PyResult<Self> {
        let settings = jax.all_settings.bind(py);
        let holders: Vec<_> = settings.values().iter().collect();
        let mut named = Named::default();
        let (mut values, mut unnoticed) = (Vec::new(), Vec::new());
        for (place, holder) in (0..).zip(&holders) {
            values.push(value_of(holder)?);
            if !holder.is_instance(jax.setting_type.bind(py))? {
                unnoticed.push(place);
            }
            named.places.insert(holder.as_ptr() as usize, place);
            named.holders.push(holder.clone().unbind());
        }
        let old = NAMED.peek(|known| match known {
            // Another list of settings: a library has one of its own.
            Some(known) if known.holders.len() == named.holders.len() => Some(named),
            known => known.replace(named),
        });
        drop(old);
        let number = number_of(settings, &values)?;
        Ok(Self { changes, programs, number, values, unnoticed })
    }

    /// Reads a setting again.
    fn again(&mut self, py: Python<'_>, jax: &Jax, place: u32) -> PyResult<()> {
        let holder = NAMED
            .with(py, |named, quiet| Some(quiet.own(named.as_ref()?.holders.get(place as usize)?)));
        let (Some(holder), Some(last)) = (holder, self.values.get_mut(place as usize)) else {
            return Ok(());
        };
        let value = value_of(holder.bind(py))?;
        if last.is(&value) {
            return Ok(());
        }
        let assigned = (self.number, place, value.as_ptr() as usize);
        *last = value.clone_ref(py);
        let known = KNOWN.peek(|known| known.as_ref()?.get(&assigned).map(|(number, _)| *number));
        if let Some(number) = known {
            self.number = number;
            return Ok(());
        }
        self.number = number_of(jax.all_settings.bind(py), &self.values)?;
        if is_plain(value.bind(py)) {
            let number = self.number;
            drop(KNOWN.peek(|known| {
                let known = known.get_or_insert_default();
                let old = (known.len() >= MAX_KNOWN).then(|| std::mem::take(known));
                (known.insert(assigned, (number, value)), old)
            }));
        }
        Ok(())
    }
}

fn value_of(holder: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    Ok(holder.getattr(intern!(holder.py(), "value"))?.unbind())
}

/// Whether a value is what it is for as long as it lives.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    let class = value.get_type_ptr();
    let plain =
        [&raw mut ffi::PyBool_Type, &raw mut ffi::PyLong_Type, &raw mut ffi::PyUnicode_Type];
    value.is_none() || plain.contains(&class)
}

fn number_of(settings: &Bound<'_, PyDict>, values: &[Py<PyAny>]) -> PyResult<u32> {
    let py = settings.py();
    let mut named = Vec::with_capacity(2 * values.len());
    for (name, value) in settings.keys().iter().zip(values) {
        named.push(name);
        named.push(value.bind(py).clone());
    }
    let values = PyTuple::new(py, named)?;
    // An option of a library may have a value without a hash: then its text stands for it.
    let key = if values.hash().is_ok() { values.into_any() } else { values.repr()?.into_any() };
    NUMBERS.of(&key)
}
