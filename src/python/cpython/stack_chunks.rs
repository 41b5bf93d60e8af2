//! Chunks of the interpreter's stack, kept for the next call that needs one.
//!
//! CPython keeps the frames of Python functions in chunks of 16 KiB, which it asks its arena
//! allocator for. It gives a chunk back when the first frame in it ends. A loop that calls across the end
//! of a chunk maps and unmaps memory in each round, and pays for a page fault or two besides; a
//! trace of a deep program did that hundreds of times. From the first activation on a chunk that is given
//! back is kept, and handed out when CPython asks for one again.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

/// `DATA_STACK_CHUNK_SIZE` of `pystate.c` in CPython. Arenas of objects have another size.
const CHUNK: usize = 16 << 10;

/// What is kept: one chunk for each of a few threads whose loops cross the end of theirs.
static KEPT: [AtomicPtr<c_void>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

/// The allocator that was there before.
struct Allocator(ffi::PyObjectArenaAllocator);

// SAFETY: function pointers, and a context that CPython itself passes to them from any thread.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

static BEFORE: OnceLock<Allocator> = OnceLock::new();

/// Keeps chunks from now on, for the rest of the process.
pub fn keep(_py: Python<'_>) {
    if BEFORE.get().is_some() {
        return;
    }
    let mut before = ffi::PyObjectArenaAllocator { ctx: null_mut(), alloc: None, free: None };
    // SAFETY: with the interpreter attached, as those who ask the allocator are.
    unsafe { ffi::PyObject_GetArenaAllocator(&raw mut before) };
    if before.alloc.is_none() || before.free.is_none() || BEFORE.set(Allocator(before)).is_err() {
        return;
    }
    let mut ours =
        ffi::PyObjectArenaAllocator { ctx: null_mut(), alloc: Some(alloc), free: Some(free) };
    // SAFETY: as above; what is kept was allocated by the allocator before, which frees the rest.
    unsafe { ffi::PyObject_SetArenaAllocator(&raw mut ours) };
}

extern "C" fn alloc(_: *mut c_void, size: usize) -> *mut c_void {
    if size == CHUNK {
        for slot in &KEPT {
            let chunk = slot.swap(null_mut(), Ordering::Acquire);
            if !chunk.is_null() {
                return chunk;
            }
        }
    }
    match BEFORE.get() {
        Some(Allocator(ffi::PyObjectArenaAllocator { ctx, alloc: Some(alloc), .. })) => {
            alloc(*ctx, size)
        }
        _ => null_mut(), // out of memory, as CPython has it
    }
}

extern "C" fn free(_: *mut c_void, memory: *mut c_void, size: usize) {
    if size == CHUNK {
        for slot in &KEPT {
            let put =
                slot.compare_exchange(null_mut(), memory, Ordering::Release, Ordering::Relaxed);
            if put.is_ok() {
                return;
            }
        }
    }
    if let Some(Allocator(ffi::PyObjectArenaAllocator { ctx, free: Some(free), .. })) = BEFORE.get()
    {
        free(*ctx, memory, size);
    }
}
