//! The allocator of the process: mimalloc, with the blocks that requests come in kept by
//! the threads that read them.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::RefCell,
    ptr,
};

use libmimalloc_sys::{mi_option_set, mi_option_t};
use mimalloc::MiMalloc;

/// A request is up to a megabyte, and the system's allocator gives such buffers
/// back to the kernel each time. Without huge pages (`no_thp`): with them, each
/// thread's few kilobytes would hold megabytes.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// `mi_option_purge_delay` of mimalloc.h: for how many milliseconds memory that was freed
/// stays with the process. The binding does not name it.
const PURGE_DELAY: mi_option_t = 15;
/// mimalloc's own is a second. After a second of more requests than usual, their memory was
/// given back, and when the next ones came each page of it cost a fault, two microseconds:
/// more than the reading of a request, in just the moment in which there are too many.
const STAYS: std::ffi::c_long = 10_000;

/// Blocks of these sizes are kept by the thread that frees them. mimalloc has those of more than
/// 512 KiB in an arena that all threads share, so that they wander from thread to thread; a
/// request is then read, for a minute at a time, at a seventh of the speed.
const LEAST: usize = 256 << 10;
const MOST: usize = 2 << 20;
/// So many for a thread, as long as it lives: a few requests are read before the first of them is
/// packed.
const PLACES: usize = 4;
/// The alignment of what is kept. What has to have a larger one is not taken from there.
const ALIGN: usize = 16;

/// Keeps memory that was freed for up to ten seconds, for what comes next; or as long as
/// mimalloc's own variable in the environment says.
pub(crate) fn keep_what_is_freed() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    // SAFETY: the option exists, and may be set at any time.
    unsafe { mi_option_set(PURGE_DELAY, STAYS) };
}

struct Allocator;

/// What is allocated for `layout`, if such blocks are kept: a power of two, so that a
/// block of one request is one for another.
#[inline]
fn rounded(layout: Layout) -> Option<Layout> {
    if !(LEAST..=MOST).contains(&layout.size()) || layout.align() > ALIGN {
        return None;
    }
    Layout::from_size_align(layout.size().next_power_of_two(), ALIGN).ok()
}

// SAFETY: mimalloc does the work. A block for which `rounded` has a layout has been allocated
// by that, and is given again only for what has the same; it is then nobody else's, as
// it was taken out of `KEPT`.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(rounded) = rounded(layout) else {
            // SAFETY: the caller's promise is the one asked for.
            return unsafe { MiMalloc.alloc(layout) };
        };
        let kept = KEPT.try_with(|kept| kept.take(rounded.size())).ok().flatten();
        // SAFETY: as above; `rounded` is no smaller.
        kept.unwrap_or_else(|| unsafe { MiMalloc.alloc(rounded) })
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
        // A thread that is ending keeps nothing any more.
        KEPT.try_with(|kept| kept.put(block)).unwrap_or(block).free();
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller has seen to it that this is a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (rounded(layout), rounded(new)) {
            // SAFETY: as above.
            (None, None) => unsafe { MiMalloc.realloc(start, layout, size) },
            (was, is) if was == is => start,
            // SAFETY: both are at least as long as what is copied, and the old one is ours to free.
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
    static KEPT: Kept = const { Kept(RefCell::new([Block::NONE; PLACES])) };
}

/// What a thread has freed and has not allocated again, the latest first: that is most
/// likely still in the caches of its core.
struct Kept(RefCell<[Block; PLACES]>);

/// A block of [`ALIGN`] and a size of [`rounded`], or none.
#[derive(Clone, Copy)]
struct Block {
    start: *mut u8,
    size: usize,
}

impl Kept {
    /// The latest block of this size.
    fn take(&self, size: usize) -> Option<*mut u8> {
        let mut blocks = self.0.borrow_mut();
        let at = blocks.iter().position(|block| block.size == size)?;
        let Block { start, .. } = std::mem::replace(&mut blocks[at], Block::NONE);
        blocks[at..].rotate_left(1);
        Some(start)
    }

    /// Keeps `block`, and gives the oldest one for it.
    fn put(&self, block: Block) -> Block {
        let mut blocks = self.0.borrow_mut();
        blocks.rotate_right(1);
        std::mem::replace(&mut blocks[0], block)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.get_mut().iter().copied().for_each(Block::free);
    }
}

impl Block {
    const NONE: Self = Self { start: ptr::null_mut(), size: 0 };

    fn free(self) {
        if let Ok(layout) = Layout::from_size_align(self.size, ALIGN)
            && !self.start.is_null()
        {
            // SAFETY: it was allocated so, and is nobody's any more.
            unsafe { MiMalloc.dealloc(self.start, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: the option exists.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "mimalloc's default of this option, and of no other");
        keep_what_is_freed();
        assert_eq!(delay(), STAYS);
    }

    fn block(size: usize) -> (Vec<u8>, *const u8) {
        let block = Vec::with_capacity(size);
        let start = block.as_ptr();
        (block, start)
    }

    #[test]
    fn the_latest_block_is_given_again_for_what_fits_it() {
        let ((first, _), (second, latest)) = (block(600_000), block(700_000));
        drop(first);
        drop(second);
        let (other, start) = block(300_000);
        assert_ne!(start, latest, "it would hold a larger one up");
        let elsewhere = thread::spawn(|| block(550_000).1 as usize);
        assert_ne!(elsewhere.join().expect("it does not panic"), latest as usize);
        let (again, start) = block(550_000);
        assert_eq!(start, latest);
        drop((other, again));
    }

    #[test]
    fn a_thread_keeps_a_few_blocks() {
        let blocks: Vec<_> = (0..PLACES + 3).map(|_| block(LEAST).0).collect();
        drop(blocks);
        let held = KEPT.with(|kept| kept.0.borrow().map(|block| block.size));
        assert_eq!(held, [LEAST; PLACES]);
    }

    #[test]
    fn what_is_in_a_block_moves_with_it_as_it_grows_and_shrinks() {
        let byte = |at: usize| (at * 31 % 251) as u8;
        let mut bytes: Vec<u8> = Vec::new();
        for size in [LEAST - 1, LEAST, LEAST + 1, 3 * LEAST, MOST, MOST + 1, 3 * MOST] {
            bytes.reserve_exact(size - bytes.len());
            bytes.extend((bytes.len()..size).map(byte));
        }
        for size in [MOST, MOST - 1, LEAST + 1, LEAST - 1, 10] {
            bytes.truncate(size);
            bytes.shrink_to_fit();
            assert!(bytes.iter().enumerate().all(|(at, found)| *found == byte(at)), "{size}");
        }
    }

    #[test]
    fn a_block_that_was_kept_is_not_taken_for_zeros() {
        drop(vec![1_u8; MOST]);
        assert!(vec![0_u8; MOST].iter().all(|byte| *byte == 0));
    }

    /// Pages of the process that are in memory: the second field of proc_pid_statm(5).
    fn resident() -> usize {
        let statm = fs::read_to_string("/proc/self/statm").expect("linux");
        statm.split(' ').nth(1).expect("a second field").parse().expect("a number")
    }

    #[test]
    fn a_thread_that_ends_gives_its_blocks_back() {
        let before = resident();
        for _ in 0..200 {
            thread::spawn(|| drop(vec![1_u8; MOST])).join().expect("it does not panic");
        }
        let more = resident().saturating_sub(before) * 4096;
        assert!(more < 100 * MOST, "{more} bytes more after {} that were freed", 200 * MOST);
    }
}
