//! Function pointers of CPython's that are ours at times.

use std::marker::PhantomData;
use std::mem::transmute_copy;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a function pointer was before it was ours. `F` is the type of the function.
pub struct Patch<F> {
    /// As an address; 0 where nothing was patched yet.
    saved: AtomicUsize,
    function: PhantomData<F>,
}

impl<F: Copy> Patch<F> {
    const IS_POINTER: () = assert!(size_of::<F>() == size_of::<usize>());

    pub const fn new() -> Self {
        let () = Self::IS_POINTER;
        Self { saved: AtomicUsize::new(0), function: PhantomData }
    }

    /// Puts a function of ours in the place of the one that is there, which is saved.
    ///
    /// # Safety
    /// `F` is the type of a function, always the same one is put there, and nobody reads the slot
    /// meanwhile.
    pub unsafe fn apply(&self, slot: *mut Option<F>, ours: F) {
        // SAFETY: as promised; a function has the size of an address.
        unsafe {
            let Some(stock) = *slot else { return };
            let (stock, address) =
                (transmute_copy::<F, usize>(&stock), transmute_copy::<F, usize>(&ours));
            if stock != address {
                self.saved.store(stock, Ordering::Relaxed);
                *slot = Some(ours);
            }
        }
    }

    /// Puts back what was saved, if anything was.
    ///
    /// # Safety
    /// As of `apply`.
    pub unsafe fn restore(&self, slot: *mut Option<F>) {
        if let Some(stock) = self.saved() {
            // SAFETY: as promised.
            unsafe { *slot = Some(stock) };
        }
    }

    /// The function that was there.
    #[inline]
    pub fn saved(&self) -> Option<F> {
        let saved = self.saved.load(Ordering::Relaxed);
        // SAFETY: an address that is not 0 is of a function of this type.
        (saved != 0).then(|| unsafe { transmute_copy::<usize, F>(&saved) })
    }
}
