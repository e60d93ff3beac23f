//! A global allocator for tests that measure what a program allocates.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator. It reports the size in bytes of every block that it allocates or frees
/// to functions, which must not allocate memory themselves. A block that is resized counts as freed
/// and allocated.
#[derive(Debug)]
pub struct Reporting {
    /// Called with the size of an allocated block.
    pub allocated: fn(usize),
    /// Called with the size of a freed block.
    pub freed: fn(usize),
}

/// The global allocator for [`allocations`].
pub const COUNTING: Reporting =
    Reporting { allocated: |_| COUNT.set(COUNT.get() + 1), freed: |_| {} };

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The number of blocks that this thread has allocated so far, if [`COUNTING`] is the global
/// allocator.
pub fn allocations() -> usize {
    COUNT.get()
}

/// The global allocator for [`measured`].
pub const MEASURING: Reporting = Reporting {
    allocated: |bytes| {
        HELD.set(HELD.get().wrapping_add(bytes));
        PEAK.set(PEAK.get().max(HELD.get()));
    },
    freed: |bytes| HELD.set(HELD.get().wrapping_sub(bytes)),
};

thread_local! {
    /// The memory in use that this thread allocated, in bytes.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// The peak of `HELD` since the last measurement began.
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The memory of some work in bytes, beyond the memory in use before.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// The most that was in use at any time.
    pub peak: usize,
    /// The memory that its result holds.
    pub held: usize,
}

/// The result of `work`, and the memory that it took on this thread, if [`MEASURING`] is the global
/// allocator. Measurements do not nest.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Memory) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    let memory = Memory { peak: PEAK.get() - before, held: HELD.get().wrapping_sub(before) };
    (result, memory)
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Reporting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.allocated)(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        (self.allocated)(layout.size());
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        (self.freed)(layout.size());
        (self.allocated)(size);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        (self.freed)(layout.size());
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(old, layout) }
    }
}
