//! Leaving an item out of keys, so that tests see that the item is needed.
//!
//! Each item that `docs/soundness.md` lists is asked for where its words are written. Nobody but tests
//! leaves one out; to ask is to read a number that is zero.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// An item of the key of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Item {
    /// Types of traced values and of concrete arrays.
    Types,
    /// Which traced values are one.
    Repetition,
    /// The bits of numbers.
    Numbers,
    Texts,
    /// The items of lists and dicts, and the elements of numpy's arrays.
    Mutable,
    /// What the instructions of a function do besides computing.
    Effects,
    /// What a function reads: variables, defaults, attributes.
    Reads,
    Code,
    /// Names of functions and rules.
    Names,
    /// Whether values of a class are nothing but what they consist of.
    Classes,
    /// How named tuples are registered as trees.
    Trees,
    /// Whether a primitive is jax's own, with jax's rules.
    Primitives,
    DerivativeRules,
    /// What programs say.
    Programs,
    /// The traceback of a call whose equations have lines of the user's.
    Lines,
    /// Settings and contexts of jax.
    Settings,
    /// What differs in jax.
    World,
    /// Whether a function is known to compute.
    Callables,
}

/// All of them, with their names.
const ITEMS: [(Item, &str); 18] = [
    (Item::Types, "types of values"),
    (Item::Repetition, "repetition of values"),
    (Item::Numbers, "numbers"),
    (Item::Texts, "texts"),
    (Item::Mutable, "content of mutable values"),
    (Item::Effects, "side effects of functions"),
    (Item::Reads, "what a function reads"),
    (Item::Code, "code of functions"),
    (Item::Names, "names that are printed"),
    (Item::Classes, "classes of captured values"),
    (Item::Trees, "pytree registry"),
    (Item::Primitives, "rules of primitives"),
    (Item::DerivativeRules, "derivative rules of functions"),
    (Item::Programs, "what programs say"),
    (Item::Lines, "lines of calls"),
    (Item::Settings, "configuration of jax"),
    (Item::World, "modules and classes of jax"),
    (Item::Callables, "state of the process"),
];

/// One bit for each item.
static OMITTED: AtomicU32 = AtomicU32::new(0);

/// Whether keys are written without an item.
#[inline]
pub fn is_omitted(item: Item) -> bool {
    OMITTED.load(Ordering::Relaxed) & 1 << item as u32 != 0
}

/// The names of the items of the key of a replay.
#[pyfunction]
pub fn key_items() -> Vec<&'static str> {
    ITEMS.iter().map(|(_, name)| *name).collect()
}

/// Retained an item out of the keys that this process writes from now on. For tests.
///
/// Raises:
///     `ValueError`: there is no such item.
#[pyfunction]
pub fn omit_key_item(name: &str) -> PyResult<()> {
    let found = ITEMS.iter().find(|(_, known)| *known == name);
    let (item, _) = found.ok_or_else(|| PyValueError::new_err("no item of the key"))?;
    OMITTED.fetch_or(1 << *item as u32, Ordering::Relaxed);
    Ok(())
}
