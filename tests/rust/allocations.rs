//! Appending does not allocate, apart from the growth of the tables.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use jaxide::ir::{Atom, DeadCode, EffectsId, Params, Source};

use crate::common::{Fixture, object};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting the requests of each thread.
struct Counting;

fn count() {
    // The counter is gone while the thread ends.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every request goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(run: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

#[test]
fn appending_and_releasing_do_not_allocate_per_equation() {
    for dce in [DeadCode::Keep, DeadCode::RemoveUnreferenced] {
        let mut f = Fixture::new(dce);
        let params = f.builder.params(Params::default());
        let mut x = f.invar();
        let mut dropped = Vec::new();
        let allocations = allocations_of(|| {
            for number in 0..20_000 {
                let source = Source { traceback: Some(object(number)), name_stack: None };
                let source = f.builder.source(source);
                let operands = [Atom::var(x), Atom::var(x)];
                let eqn = f
                    .builder
                    .eqn(f.single, params, &operands, &[f.ty], EffectsId::NONE, source, f.context)
                    .unwrap();
                let (out, _) = f.builder.outvars_of(eqn);
                f.builder.retain(out);
                f.builder.release(x, &mut dropped);
                x = out;
            }
        });
        // Six tables, each doubled at most 16 times.
        assert!(allocations < 6 * 16, "{allocations} allocations for 20,000 equations");
        assert_eq!(f.builder.num_eqns(), 20_000);
    }
}
