//! Whether jax is as it was: its modules, classes, registries and functions.
//!
//! ```text
//! watch.rs     noticing that something may have changed
//! assigned.rs  the functions by which names and attributes of classes are assigned
//! reach.rs     whether a call reaches what has changed
//! survey/      what jax's modules have, and what they had
//! trust.rs     which functions and values are jax's own
//! validity.rs  whether jax was as it was while something was learnt
//! ```
//!
//! What is remembered of jax's functions rests on what they do. Where somebody changes what they look
//! into, `jaxide._native.world` names what differs. Under each such name another part of the cache is used; and
//! what is recorded there is kept only if it has reached nothing that differs.

mod assigned;
mod reach;
mod survey;
mod trust;
mod validity;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

pub use survey::{Place, Survey};
pub use trust::Trust;
use validity::look_if_wary;
pub use validity::{Validity, begin_trace, poll, prove_what_was_learnt};
pub use watch::{
    is_noted_code, keyword_defaults, note_code, note_interposed, poll_soon, was_given_code,
    watch_function,
};

use crate::python::cpython::immortals::Immortals;
use crate::python::cpython::shared::{Once, Shared};
use crate::python::jax::names::Jax;
use crate::python::jax::omit::{Item, is_omitted};
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

/// What was found last.
struct Found {
    difference: Difference,
    /// Texts of programs may be affected.
    is_printed: bool,
    /// What programs are lowered to, and executed by, may be affected.
    is_lowered: bool,
}

static LAST: Shared<Found> =
    Shared::new(Found { difference: Difference::None, is_printed: false, is_lowered: false });

/// How often something was found to differ, or to have been changed and put back.
static DISTURBED: AtomicU64 = AtomicU64::new(0);

/// What jax's modules have, and what says how that differs.
struct World {
    survey: Py<Survey>,
    /// An object with the method `look`.
    judge: Py<PyAny>,
}

static WORLD: Once<World> = Once::new();

/// Takes what jax's modules have, and what says how that differs: an object with the method `look`.
#[pyfunction]
pub fn set_world(py: Python<'_>, survey: Py<Survey>, judge: Py<PyAny>) -> PyResult<()> {
    let _ = WORLD.set(py, World { survey, judge });
    let Some(_looking) = Looking::start() else { return Ok(()) };
    let Some(world) = WORLD.get(py) else { return Ok(()) };
    world.survey.get().extend(py, true)?;
    world.survey.get().forget_new();
    Ok(())
}

/// The dicts of jax's modules.
static MODULES: Immortals = Immortals::new();

/// Whether the dict at an address is that of a module of jax.
pub fn is_own_module(globals: usize) -> bool {
    MODULES.has(globals)
}

/// Looks at modules that were imported since the last time.
///
/// Returns:
///     The modules that are new to who asks, by name, and whether none is still being imported; None
///     where somebody else is looking.
#[pyfunction]
pub fn extend_world(py: Python<'_>) -> PyResult<Option<(Bound<'_, PyDict>, bool)>> {
    let Some(world) = WORLD.get(py) else { return Ok(None) };
    let survey = world.survey.get();
    if survey.is_unfinished() {
        let Some(_looking) = Looking::start() else { return Ok(None) };
        survey.extend(py, false)?;
    }
    // What was imported since has changed `sys.modules`.
    poll();
    difference(py)?;
    if LOOKING.load(Ordering::Relaxed) {
        return Ok(None);
    }
    if !watch::has_changed() {
        survey.forget_new();
    }
    Ok(Some((survey.take_new().into_py_dict(py)?, !survey.is_unfinished())))
}

/// Names how jax differs from what it was: 0 where it does not, None where anything may be affected.
#[pyfunction]
pub fn world_number(py: Python<'_>) -> PyResult<Option<u32>> {
    poll();
    let now = difference(py)?;
    Ok((!now.is_total()).then(|| now.number()))
}

/// Whether programs are lowered and executed as ever: nothing of jax or of what it lowers with differs
/// that could matter.
/// Then, how often something was found to differ, or to have been changed and put back; else None.
#[pyfunction]
pub fn lowers_as_ever(py: Python<'_>) -> PyResult<Option<u64>> {
    poll();
    let mut is_total = difference(py)?.is_total();
    if let Some(world) = WORLD.get(py)
        && world.survey.get().is_deferred()
    {
        let Some(looking) = Looking::start() else { return Ok(None) };
        world.survey.get().extend(py, true)?;
        drop(looking);
        is_total |= difference(py)?.is_total();
        if !watch::has_changed() {
            world.survey.get().forget_new();
        }
    }
    let is_as_ever = !is_total && LAST.peek(|last| !last.is_lowered);
    Ok(is_as_ever.then(|| DISTURBED.load(Ordering::Relaxed)))
}

/// How often something was found to differ otherwise than before, where no module was imported meanwhile.
static CHANGED: AtomicU64 = AtomicU64::new(0);

/// How often somebody was found to have changed jax by hand.
pub fn times_changed() -> u64 {
    CHANGED.load(Ordering::Relaxed)
}

/// Whether nobody has changed what texts of programs depend on.
#[pyfunction]
pub fn prints_as_ever(py: Python<'_>) -> PyResult<bool> {
    poll();
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

/// How often one looks at what changes all the time before he leaves it: a look may take longer than a
/// signal handler, or another thread, takes to change the next thing.
const MAX_LOOKS: usize = 4;

/// How jax differs now. Whoever comes in between, while another one looks at what has changed, does not
/// wait: to him anything may be affected. So it is where the changes do not end.
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
        for _ in 0..MAX_LOOKS {
            let Some((dicts, functions)) = watch::take() else { break };
            look(py, dicts, functions)?;
        }
        if watch::has_changed() {
            return Ok(Difference::Total);
        }
    }
    Ok(LAST.peek(|last| last.difference.clone()))
}

/// Whether jax still is as the key of what is to be replayed says. Such changes as may come between two
/// calls of a trace are looked at.
///
/// # Errors
/// As of `difference`.
#[inline]
pub fn is_as_before(py: Python<'_>) -> PyResult<bool> {
    let times = watch::times();
    watch::poll_soon();
    if watch::times() == times { Ok(true) } else { has_still_number(py) }
}

#[cold]
fn has_still_number(py: Python<'_>) -> PyResult<bool> {
    poll();
    let before = LAST.peek(|last| last.difference.clone());
    let now = difference(py)?;
    Ok(!now.is_total() && now.number() == before.number())
}

/// What a call has reached of jax.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing that differs from what it was.
    Nothing,
    /// Something that differs.
    Difference,
    /// Nobody knows: jax was changed meanwhile, or nobody could look.
    Unknown,
}

/// Runs `body`, and says what of jax that reached, and whether what is learnt of it holds.
///
/// # Errors
/// Calls cannot be looked at.
pub fn reaching<R>(py: Python<'_>, body: impl FnOnce() -> R) -> PyResult<(R, Reach, Validity)> {
    look_if_wary();
    let before = difference(py)?;
    let times = watch::times();
    let looking = match &before {
        Difference::None => None,
        Difference::Some(_, differing) if differing.is_empty(py) => None,
        Difference::Some(_, differing) => match Reached::start(py, differing.clone())? {
            Some(looking) => Some(looking),
            None => return Ok((body(), Reach::Unknown, Validity::of_next())),
        },
        Difference::Total => return Ok((body(), Reach::Unknown, Validity::of_next())),
    };
    let result = body();
    let reaches = looking.map(|looking| looking.finish(py)).transpose()?.unwrap_or(false);
    // It may have changed jax itself, or somebody else has meanwhile, even if he took that back.
    let reach = if watch::times() != times || difference(py)?.number() != before.number() {
        Reach::Unknown
    } else if reaches {
        Reach::Difference
    } else {
        Reach::Nothing
    };
    Ok((result, reach, Validity::of_next()))
}

/// jax's own primitives.
static PRIMITIVES: Immortals = Immortals::new();

/// Whether a primitive is jax's own. Where somebody has changed its rules, jax differs.
pub fn owns_primitive(jax: &Jax, primitive: &Bound<'_, PyAny>) -> bool {
    let is_known = |primitive: &Bound<'_, PyAny>| PRIMITIVES.has(primitive.as_ptr() as usize);
    if is_known(primitive) || is_omitted(Item::Primitives) {
        return true;
    }
    jax.stands_for(primitive).is_some_and(|of| is_known(&of))
}

/// Looks at dicts, and at functions as they were. Where that cannot be done, they are still to be looked
/// at.
fn look(py: Python<'_>, mut dicts: Vec<u32>, mut functions: Vec<watch::Function>) -> PyResult<()> {
    let Some(world) = WORLD.get(py) else { return Ok(()) };
    let survey = world.survey.get();
    let is_imported = survey.is_unfinished() || dicts.contains(&survey.number_of_modules());
    if is_imported {
        if let Err(error) = survey.extend(py, false) {
            watch::put_back(dicts, functions);
            return Err(error);
        }
        // What imports have changed is looked at with them.
        poll();
        if let Some((more_dicts, more_functions)) = watch::take() {
            dicts.extend(more_dicts);
            functions.extend(more_functions);
        }
    }
    let handed_out: Vec<_> =
        dicts.iter().filter_map(|dict| watch::whose_defaults(py, *dict)).collect();
    let num_functions = functions.len() + handed_out.len();
    let is_changed = |function: &watch::Function| !function.is_as_it_was(py);
    let is_some_changed = functions.iter().chain(&handed_out).any(is_changed);
    let parts = functions.iter().chain(&handed_out).map(|function| function.parts(py));
    // None where nothing has come to differ.
    let look = || -> PyResult<Option<Found>> {
        let is_as_ever =
            LAST.peek(|last| matches!(last.difference, Difference::None) && !last.is_lowered);
        let mut may_differ = is_some_changed;
        let mut num_undone = u64::from(num_functions > 0);
        for dict in &dicts {
            let (differs, is_undone) = survey.look(py, *dict)?;
            may_differ |= differs;
            num_undone += u64::from(is_undone);
        }
        if is_as_ever && !may_differ {
            DISTURBED.fetch_add(num_undone, Ordering::Relaxed);
            return Ok(None);
        }
        let parts: Vec<_> = parts.collect();
        let found =
            world.judge.bind(py).call_method1(pyo3::intern!(py, "look"), (&dicts, parts))?;
        let number: u32 = found.getattr(pyo3::intern!(py, "number"))?.extract()?;
        let difference = if number == 0 {
            Difference::None
        } else if found.getattr(pyo3::intern!(py, "is_total"))?.is_truthy()? {
            Difference::Total
        } else {
            Difference::Some(number, Arc::new(Differing::read(&found)?))
        };
        let is_printed = found.getattr(pyo3::intern!(py, "is_printed"))?.is_truthy()?;
        let is_lowered = found.getattr(pyo3::intern!(py, "is_lowered"))?.is_truthy()?;
        DISTURBED.fetch_add(num_undone + u64::from(is_lowered), Ordering::Relaxed);
        let is_other = LAST.peek(|last| last.difference.number() != number);
        CHANGED.fetch_add(u64::from(is_other && !is_imported), Ordering::Relaxed);
        Ok(Some(Found { difference, is_printed, is_lowered }))
    };
    match look() {
        Ok(found) => {
            survey.forget_new();
            let old = found.map(|found| LAST.peek(|last| std::mem::replace(last, found)));
            drop(old);
            crate::python::jax::watch_config::note_change();
            Ok(())
        }
        Err(error) => {
            // As they were first, where some have changed twice.
            functions.reverse();
            watch::put_back(dicts, functions);
            Err(error)
        }
    }
}
