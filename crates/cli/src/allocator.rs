//! The process's allocator: mimalloc, with a cache of request-sized blocks per thread.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::RefCell,
    ffi::c_long,
    io, ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
use mimalloc::MiMalloc;
use outrigger_server::lower_priority;

/// Requests have up to a megabyte, and the system's allocator returns such buffers to the
/// kernel each time. mimalloc is built without huge pages (`no_thp`): with them, each
/// thread's few kilobytes would occupy megabytes.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// `mi_option_purge_delay` of mimalloc.h: how many milliseconds freed memory stays with
/// the process. The binding has no name for it.
const PURGE_DELAY_OPTION: mi_option_t = 15;
/// The purge delay that is set. mimalloc's default is a second: after a second of more
/// requests than usual, their memory was returned to the kernel, and at the next such
/// second each page of it cost a fault of two microseconds. That is more than reading a
/// request costs, at the time of the highest load.
const PURGE_DELAY_MS: c_long = 10_000;

/// Sizes of the blocks that a thread caches when it frees them. mimalloc allocates blocks
/// of more than 512 KiB in an arena that all threads share, so they move from thread to
/// thread, and requests were then read at a seventh of the speed, for a minute at a time.
const MIN_SIZE: usize = 256 << 10;
const MAX_SIZE: usize = 128 << 20;
/// Blocks that a thread caches as long as it lives. A thread reads a few requests before
/// it packs the first of them.
const BLOCKS_PER_THREAD: usize = 4;
/// Blocks of more than this size are cached within [`LARGE`]. Smaller ones are cached by
/// every thread.
const SMALL: usize = 2 << 20;
/// The bytes of larger blocks that all threads may still cache. There are none before
/// [`cache_large_blocks`].
static LARGE: AtomicUsize = AtomicUsize::new(0);

/// Lets the threads cache blocks of more than 2 MiB, `bytes` of them together.
pub(crate) fn cache_large_blocks(bytes: usize) {
    LARGE.store(bytes, Relaxed);
}
/// The alignment of cached blocks. Layouts with a larger alignment do not use the cache.
const ALIGN: usize = 16;

/// Makes mimalloc keep freed memory for ten seconds before it returns it to the kernel,
/// unless its own environment variable sets another delay.
pub(crate) fn set_purge_delay() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    set_purge_delay_to(PURGE_DELAY_MS);
}

fn set_purge_delay_to(milliseconds: c_long) {
    // SAFETY: the option exists, and may be set at any time.
    unsafe { mi_option_set(PURGE_DELAY_OPTION, milliseconds) };
}

/// Returns freed memory to the kernel on a thread of its own, as often as [`set_purge_delay`]
/// makes any thread do it. It takes milliseconds after large requests, and otherwise the thread
/// that happens to allocate next does it, amid a request.
///
/// # Errors
/// The thread cannot be created.
pub(crate) fn purge_aside() -> io::Result<()> {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return Ok(());
    }
    // No other thread does it: all memory is returned before its delay is over.
    set_purge_delay_to(3 * PURGE_DELAY_MS);
    thread::Builder::new().name("allocator".to_owned()).spawn(purge)?;
    Ok(())
}

fn purge() {
    // With its old priority it does the same.
    let _ = lower_priority();
    loop {
        thread::sleep(Duration::from_millis(PURGE_DELAY_MS.unsigned_abs()));
        // SAFETY: it may be called at any time, on any thread.
        unsafe { mi_collect(true) };
    }
}

struct Allocator;

/// The layout of a cached block for `layout`; `None` if such blocks are not cached. The
/// size is rounded up to a power of two, so that requests of similar sizes can use each
/// other's blocks.
#[inline]
fn rounded(layout: Layout) -> Option<Layout> {
    if !(MIN_SIZE..=MAX_SIZE).contains(&layout.size()) || layout.align() > ALIGN {
        return None;
    }
    Layout::from_size_align(layout.size().next_power_of_two(), ALIGN).ok()
}

// SAFETY: mimalloc does the allocation. A block for which `rounded` returns a layout has
// been allocated with that layout, and is reused only for requests with the same rounded
// layout. It then has no other owner, because it was taken out of `FREE_BLOCKS`.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(rounded) = rounded(layout) else {
            // SAFETY: the caller guarantees what `alloc` requires.
            return unsafe { MiMalloc.alloc(layout) };
        };
        let cached = FREE_BLOCKS.try_with(|blocks| blocks.take(rounded.size())).ok().flatten();
        // SAFETY: as above; `rounded` is at least as large as `layout`.
        cached.unwrap_or_else(|| unsafe { MiMalloc.alloc(rounded) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(rounded(layout).unwrap_or(layout)) }
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        let Some(rounded) = rounded(layout) else {
            // SAFETY: as above.
            return unsafe { MiMalloc.dealloc(start, layout) };
        };
        let block = Block { start, size: rounded.size() };
        // A thread that is ending has no cache any more.
        FREE_BLOCKS.try_with(|blocks| blocks.put(block)).unwrap_or(block).free();
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that size and alignment form a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (rounded(layout), rounded(new)) {
            // SAFETY: as above.
            (None, None) => unsafe { MiMalloc.realloc(start, layout, size) },
            (old, new) if old == new => start,
            // SAFETY: both blocks are at least as long as the copied part, and the old
            // one may be freed.
            _ => unsafe {
                let moved = self.alloc(new);
                if !moved.is_null() {
                    ptr::copy_nonoverlapping(start, moved, layout.size().min(size));
                    self.dealloc(start, layout);
                }
                moved
            },
        }
    }
}

thread_local! {
    static FREE_BLOCKS: FreeBlocks = const {
        FreeBlocks { small: RefCell::new(Block::NO_BLOCKS), large: RefCell::new(Block::NO_BLOCKS) }
    };
}

/// The blocks that a thread has freed and can reuse. The latest comes first, because it
/// is most likely still in the caches of the thread's core.
struct FreeBlocks {
    small: RefCell<[Block; BLOCKS_PER_THREAD]>,
    large: RefCell<[Block; BLOCKS_PER_THREAD]>,
}

/// A block with alignment [`ALIGN`] and a size from [`rounded`], or an empty entry.
#[derive(Clone, Copy)]
struct Block {
    start: *mut u8,
    size: usize,
}

impl FreeBlocks {
    fn of(&self, size: usize) -> &RefCell<[Block; BLOCKS_PER_THREAD]> {
        if size > SMALL { &self.large } else { &self.small }
    }

    /// Removes the latest block of this size.
    fn take(&self, size: usize) -> Option<*mut u8> {
        let mut blocks = self.of(size).borrow_mut();
        let at = blocks.iter().position(|block| block.size == size)?;
        let block = std::mem::replace(&mut blocks[at], Block::NONE);
        blocks[at..].rotate_left(1);
        block.uncount();
        Some(block.start)
    }

    /// Adds `block`, and returns the block that has no place: the oldest one, or `block`.
    fn put(&self, block: Block) -> Block {
        if !block.count() {
            return block;
        }
        let mut blocks = self.of(block.size).borrow_mut();
        blocks.rotate_right(1);
        let oldest = std::mem::replace(&mut blocks[0], block);
        oldest.uncount();
        oldest
    }
}

impl Drop for FreeBlocks {
    fn drop(&mut self) {
        for blocks in [&mut self.small, &mut self.large] {
            blocks.get_mut().iter().copied().for_each(|block| {
                block.uncount();
                block.free();
            });
        }
    }
}

impl Block {
    const NONE: Self = Self { start: ptr::null_mut(), size: 0 };
    const NO_BLOCKS: [Self; BLOCKS_PER_THREAD] = [Self::NONE; BLOCKS_PER_THREAD];

    /// Counts a large block as cached; returns false if there is no room for it.
    fn count(self) -> bool {
        let room = |left: usize| left.checked_sub(self.size);
        self.size <= SMALL || LARGE.fetch_update(Relaxed, Relaxed, room).is_ok()
    }

    /// Counts a block as no longer cached.
    fn uncount(self) {
        if self.size > SMALL {
            LARGE.fetch_add(self.size, Relaxed);
        }
    }

    fn free(self) {
        if let Ok(layout) = Layout::from_size_align(self.size, ALIGN)
            && !self.start.is_null()
        {
            // SAFETY: the block was allocated with this layout, and has no other owner.
            unsafe { MiMalloc.dealloc(self.start, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Mutex, thread};

    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn the_option_number_is_that_of_the_purge_delay() {
        // SAFETY: the option exists.
        let delay = || unsafe { mi_option_get(PURGE_DELAY_OPTION) };
        assert_eq!(delay(), 1000, "mimalloc's default, which only this option has");
        set_purge_delay();
        assert_eq!(delay(), PURGE_DELAY_MS);
    }

    /// Held by the tests that free large blocks, whose bound they share.
    static LARGE_TESTS: Mutex<()> = Mutex::new(());

    fn block(size: usize) -> (Vec<u8>, *const u8) {
        let block = Vec::with_capacity(size);
        let start = block.as_ptr();
        (block, start)
    }

    #[test]
    fn the_latest_block_of_the_same_size_is_reused() {
        let ((first, _), (second, latest)) = (block(600_000), block(700_000));
        drop(first);
        drop(second);
        let (other, start) = block(300_000);
        assert_ne!(start, latest, "a block of another size is not reused");
        let elsewhere = thread::spawn(|| block(550_000).1 as usize);
        assert_ne!(elsewhere.join().expect("it does not panic"), latest as usize);
        let (again, start) = block(550_000);
        assert_eq!(start, latest);
        drop((other, again));
    }

    #[test]
    fn a_thread_caches_a_few_blocks() {
        let blocks: Vec<_> = (0..BLOCKS_PER_THREAD + 3).map(|_| block(MIN_SIZE).0).collect();
        drop(blocks);
        let held = FREE_BLOCKS.with(|blocks| blocks.small.borrow().map(|block| block.size));
        assert_eq!(held, [MIN_SIZE; BLOCKS_PER_THREAD]);
    }

    #[test]
    fn large_blocks_are_cached_within_their_bound() {
        let _alone = LARGE_TESTS.lock();
        let held = || {
            let sizes = |blocks: &FreeBlocks| blocks.large.borrow().map(|block| block.size);
            FREE_BLOCKS.with(sizes).iter().sum::<usize>()
        };
        let free =
            |sizes: &[usize]| drop(sizes.iter().map(|size| block(*size)).collect::<Vec<_>>());
        free(&[3 << 20]);
        assert_eq!(held(), 0, "there is no bound yet");
        cache_large_blocks(20 << 20);
        free(&[3 << 20, 5 << 20, 7 << 20, 3 << 20, 40 << 20]);
        assert_eq!(held(), (4 + 8 + 8) << 20, "in the order of freeing");
        let (again, _) = block(5 << 20);
        assert_eq!((held(), LARGE.load(Relaxed)), (12 << 20, 8 << 20));
        drop(again);
        for _ in 0..2 * BLOCKS_PER_THREAD {
            free(&[3 << 20, 3 << 20, 3 << 20]);
        }
        assert!(held() <= 20 << 20);
        assert_eq!(held() + LARGE.load(Relaxed), 20 << 20);
    }

    #[test]
    fn contents_survive_growing_and_shrinking() {
        let _alone = LARGE_TESTS.lock();
        let byte = |at: usize| (at * 31 % 251) as u8;
        let mut bytes: Vec<u8> = Vec::new();
        for size in
            [MIN_SIZE - 1, MIN_SIZE, MIN_SIZE + 1, 3 * MIN_SIZE, SMALL, SMALL + 1, 3 * SMALL]
        {
            bytes.reserve_exact(size - bytes.len());
            bytes.extend((bytes.len()..size).map(byte));
        }
        for size in [SMALL, SMALL - 1, MIN_SIZE + 1, MIN_SIZE - 1, 10] {
            bytes.truncate(size);
            bytes.shrink_to_fit();
            assert!(bytes.iter().enumerate().all(|(at, found)| *found == byte(at)), "{size}");
        }
    }

    #[test]
    fn zeroed_memory_is_zero_after_a_block_was_cached() {
        drop(vec![1_u8; SMALL]);
        assert!(vec![0_u8; SMALL].iter().all(|byte| *byte == 0));
    }

    /// Resident pages of the process: the second field of proc_pid_statm(5).
    fn resident() -> usize {
        let statm = fs::read_to_string("/proc/self/statm").expect("linux");
        statm.split(' ').nth(1).expect("a second field").parse().expect("a number")
    }

    #[test]
    fn a_thread_that_ends_frees_its_blocks() {
        let before = resident();
        for _ in 0..200 {
            thread::spawn(|| drop(vec![1_u8; SMALL])).join().expect("it does not panic");
        }
        let more = resident().saturating_sub(before) * 4096;
        assert!(more < 100 * SMALL, "{more} bytes more after {} that were freed", 200 * SMALL);
    }
}
