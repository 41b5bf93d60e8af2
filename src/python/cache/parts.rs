//! Calls that are part of a call that is being recorded: who replays that one does not ask for them.

use std::cell::Cell;

use crate::expand::Signature;

use crate::python::cache::call::{Site, Use};
use crate::python::cache::key::arguments::Call;
use crate::python::cache::store;
use crate::python::cache::warm::library;
use crate::python::cache::warm::lookup::{self, Lasting};

thread_local! {
    /// A call is being recorded of which this thread's next calls are parts.
    static IS_RECORDED: Cell<bool> = const { Cell::new(false) };
}

/// What was so before, which it is again when this goes.
struct Before(bool);

impl Drop for Before {
    fn drop(&mut self) {
        IS_RECORDED.set(self.0);
    }
}

/// Records a call. Those that a function of jax makes by itself are parts of it: not those of a user's function that
/// it is given, nor those with which a rule goes through a program, of which each may be made by itself.
pub fn recording<R>(
    site: &Site,
    call: &Call,
    lasting: Option<Lasting>,
    body: impl FnOnce() -> R,
) -> R {
    let own = !site.forgets && !site.types_only && site.programs == Use::Rule;
    let _before = Before(IS_RECORDED.replace(own && call.programs.is_empty()));
    lookup::recording(lasting.is_some(), body)
}

/// Whether what a call comes to need not be learnt: it is part of one that is being recorded, and was not made
/// before. It is counted as recorded. The next process may ask for the parts, where there is a store.
pub fn is_part(site: &Site, signature: &Signature) -> bool {
    let may_be_part = IS_RECORDED.get() && !site.forgets && !library::is_open();
    let is_part = may_be_part && store::is_first_sight(site.id, signature);
    if is_part {
        store::count_miss(site.id);
    }
    is_part
}
