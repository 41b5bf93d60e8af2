//! Whether a rule that is given programs runs in this thread: then jax goes by its own objects.

use std::cell::Cell;

thread_local! {
    /// How many rules with programs run in this thread.
    static RULES: Cell<usize> = const { Cell::new(0) };
}

/// Whether a rule with programs runs in this thread.
pub fn is_running() -> bool {
    RULES.get() > 0
}

/// A rule runs: jax goes by its own objects.
struct Running(());

impl Running {
    /// From now on.
    fn begin() -> Self {
        RULES.set(RULES.get() + 1);
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RULES.set(RULES.get() - 1);
    }
}

/// Runs a rule that is given programs.
pub fn run_rule<R>(rule: impl FnOnce() -> R) -> R {
    let _running = Running::begin();
    rule()
}
