//! Whether jax is as it was: its modules, classes, registries and functions.
//!
//! ```text
//! watch.rs     noticing that something may have changed
//! assigned.rs  the functions by which names and attributes of classes are assigned
//! reach.rs     whether a call reaches what has changed
//! sift.rs      the entries of a dict of which something has to be asked
//! ```
//!
//! What is remembered of jax's functions rests on what they do. Where somebody changes what they look
//! into, `jaxide._world` names what differs. Under each such name another part of the cache is used; and
//! what is recorded there is kept only if it has reached nothing that differs.

mod assigned;
mod reach;
mod sift;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyModule;

pub use sift::{Census, sort_entries};
pub use watch::{is_noted_code, note_caught, note_code, poll_soon, was_given_code};

use super::immortals::Immortals;
use super::jax::Jax;
use super::omit::{Item, is_omitted};
use super::shared::{Once, Shared};
use reach::{Differing, Reached};

/// How jax differs from what it was.
#[derive(Clone)]
pub enum Difference {
    /// It does not.
    None,
    /// What has to be kept apart, by its number; a call that is recorded must not reach it.
    Some(u32, Arc<Differing>),
    /// Anything may be affected.
    Total,
}

impl Difference {
    /// Whether anything may be affected.
    pub fn is_total(&self) -> bool {
        matches!(self, Self::Total)
    }

    /// Names what differs.
    pub fn number(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Some(number, _) => *number,
            Self::Total => u32::MAX,
        }
    }
}

static WORLD: Once<Py<PyAny>> = Once::new();

/// What was found last.
struct Found {
    difference: Difference,
    /// Texts of programs may be affected.
    is_printed: bool,
}

static LAST: Shared<Found> = Shared::new(Found { difference: Difference::None, is_printed: false });

/// Takes what says how jax differs: an object with the methods `look` and `extend`.
#[pyfunction]
pub fn set_world(py: Python<'_>, world: Py<PyAny>) -> PyResult<()> {
    let _ = WORLD.set(py, world);
    extend_world(py).map(|_| ())
}

/// The dicts of jax's modules.
static MODULES: Immortals = Immortals::new();

/// Whether the dict at an address is that of a module of jax.
pub fn is_own_module(globals: usize) -> bool {
    MODULES.has(globals)
}

/// Notes modules that are jax's own.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // of Python
pub fn note_modules(modules: Vec<Bound<'_, PyModule>>) {
    for module in modules {
        MODULES.add(module.dict().as_any());
    }
}

/// Notices what has changed since the last trace, or since the surroundings of this one changed.
pub fn poll() {
    watch::poll(None);
}

/// Notes functions of jax.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // of Python
pub fn note_functions(functions: Vec<Bound<'_, PyAny>>) {
    watch::note_functions(&functions);
}

/// Watches the dicts of modules, classes and registries.
///
/// Returns:
///     The number of each. What is watched already keeps its own.
///
/// Raises:
///     `TypeError`: one has no dict.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // of Python
pub fn watch_dicts(owners: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<u32>> {
    watch::watch(&owners)
}

/// Looks at modules that were imported since the last time; false where somebody else is looking.
#[pyfunction]
pub fn extend_world(py: Python<'_>) -> PyResult<bool> {
    let Some(world) = WORLD.get(py) else { return Ok(false) };
    let Some(looking) = Looking::start() else { return Ok(false) };
    let changed = world.bind(py).call_method0(pyo3::intern!(py, "extend"))?;
    drop(looking);
    if changed.is_truthy()? {
        watch::note_changed(changed.extract()?);
        difference(py)?;
    }
    Ok(true)
}

/// Names how jax differs from what it was: 0 where it does not.
#[pyfunction]
pub fn world_number(py: Python<'_>) -> PyResult<u32> {
    watch::poll(None);
    Ok(difference(py)?.number())
}

/// Whether nobody has changed what texts of programs depend on.
#[pyfunction]
pub fn prints_as_ever(py: Python<'_>) -> PyResult<bool> {
    watch::poll(None);
    let total = difference(py)?.is_total();
    Ok(!total && LAST.peek(|last| !last.is_printed))
}

/// Somebody is looking at what has changed.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// While it lives, nobody else looks.
struct Looking;

impl Looking {
    fn start() -> Option<Self> {
        (!LOOKING.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        LOOKING.store(false, Ordering::Relaxed);
    }
}

/// How jax differs now. Whoever comes in between, while another one looks at what has changed, does not
/// wait: to him anything may be affected.
///
/// # Errors
/// What jax has cannot be compared. It is looked at again by the next one who asks.
pub fn difference(py: Python<'_>) -> PyResult<Difference> {
    if is_omitted(Item::World) {
        return Ok(Difference::None);
    }
    if LOOKING.load(Ordering::Relaxed) {
        return Ok(Difference::Total);
    }
    if watch::has_changed() {
        let Some(_looking) = Looking::start() else { return Ok(Difference::Total) };
        while let Some((dicts, functions)) = watch::take() {
            look(py, dicts, functions)?;
        }
    }
    Ok(LAST.peek(|last| last.difference.clone()))
}

/// Runs `body`, and says whether that reached something of jax that differs from what it was.
///
/// # Errors
/// Calls cannot be looked at.
pub fn reaching<R>(py: Python<'_>, body: impl FnOnce() -> R) -> PyResult<(R, bool)> {
    let before = difference(py)?;
    let looking = match &before {
        Difference::None => None,
        Difference::Some(_, differing) => match Reached::start(py, differing.clone())? {
            Some(looking) => Some(looking),
            None => return Ok((body(), true)),
        },
        Difference::Total => return Ok((body(), true)),
    };
    let result = body();
    let reaches = looking.map(|looking| looking.finish(py)).transpose()?.unwrap_or(false);
    // It may have changed jax itself.
    poll();
    Ok((result, reaches || difference(py)?.number() != before.number()))
}

/// jax's primitives.
static PRIMITIVES: Immortals = Immortals::new();

/// Notes primitives that are jax's own.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // of Python
pub fn note_primitives(primitives: Vec<Bound<'_, PyAny>>) {
    for primitive in primitives {
        PRIMITIVES.add(&primitive);
    }
}

/// Whether a primitive is jax's own. Where somebody has changed its rules, jax differs.
pub fn owns_primitive(jax: &Jax, primitive: &Bound<'_, PyAny>) -> bool {
    let is_known = |primitive: &Bound<'_, PyAny>| PRIMITIVES.has(primitive.as_ptr() as usize);
    if is_known(primitive) || is_omitted(Item::Primitives) {
        return true;
    }
    // In the linear program of a pullback jax has primitives that stand for others.
    let node = jax.vjp_node_type.bind(primitive.py());
    primitive.get_type().is(node)
        && primitive.getattr(pyo3::intern!(primitive.py(), "prim")).is_ok_and(|of| is_known(&of))
}

/// Looks at dicts, and at functions as they were. Where that cannot be done, they are still to be looked
/// at.
fn look(py: Python<'_>, dicts: Vec<u32>, functions: Vec<watch::Function>) -> PyResult<()> {
    let Some(world) = WORLD.get(py) else { return Ok(()) };
    let parts: Vec<_> = functions.iter().map(|function| function.parts(py)).collect();
    let look = || -> PyResult<_> {
        let found = world.bind(py).call_method1(pyo3::intern!(py, "look"), (&dicts, parts))?;
        let number: u32 = found.getattr(pyo3::intern!(py, "number"))?.extract()?;
        let difference = if number == 0 {
            Difference::None
        } else if found.getattr(pyo3::intern!(py, "is_total"))?.is_truthy()? {
            Difference::Total
        } else {
            Difference::Some(number, Arc::new(Differing::read(&found)?))
        };
        let is_printed = found.getattr(pyo3::intern!(py, "is_printed"))?.is_truthy()?;
        Ok(Found { difference, is_printed })
    };
    match look() {
        Ok(found) => {
            let old = LAST.peek(|last| std::mem::replace(last, found));
            drop(old);
            super::epoch::note_change();
            Ok(())
        }
        Err(error) => {
            watch::put_back(dicts, functions);
            Err(error)
        }
    }
}
