// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays that begin as zeroes and are touched only where they are used.
use plimsoll_policy_sys::Zeroed;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::ptr::NonNull;

/// Zeroed memory for `n` values, without touching it.
pub(super) struct ZeroedArray<T: Zeroed> {
    memory: NonNull<u8>,
    first: NonNull<T>,
    n: usize,
}

/// Memory that is aligned to more the system's allocator zeroes by writing it.
const UNTOUCHED_ALIGN: usize = 16;

// SAFETY: owns plain values; raw pointers in them point into arrays owned by the same engine.
unsafe impl<T: Zeroed> Send for ZeroedArray<T> {}

impl<T: Zeroed> ZeroedArray<T> {
    pub fn new(n: usize) -> Self {
        let layout = Self::layout(n);
        // SAFETY: layout() never has size 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: layout() has room for what this skips.
        let first = unsafe { memory.add(memory.align_offset(align_of::<T>())) }.cast();
        Self { memory, first, n }
    }

    fn layout(n: usize) -> Layout {
        let array = Layout::array::<T>(n.max(1)).ok();
        let layout = array.and_then(|array| {
            Layout::from_size_align(array.size() + array.align(), array.align().min(UNTOUCHED_ALIGN)).ok()
        });
        layout.expect("groups x CPUs fits the address space")
    }

    /// Panics past the end.
    #[inline]
    pub fn at(&self, i: usize) -> *mut T {
        assert!(i < self.n, "element {i} of {}", self.n);
        // SAFETY: i < n, within one allocation.
        unsafe { self.first.as_ptr().add(i) }
    }
}

impl<T: Zeroed> Drop for ZeroedArray<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in new() with the same layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.n)) }
    }
}
