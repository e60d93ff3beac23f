//! The allocator of the process.

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// A request is up to a megabyte, and the system's allocator gives such buffers
/// back to the kernel each time. Without huge pages (`no_thp`): with them, each
/// thread's few kilobytes would hold megabytes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc.h: for how many milliseconds memory that was freed
/// stays with the process. The binding does not name it.
const PURGE_DELAY: mi_option_t = 15;
/// mimalloc's own is a second. After a second of more requests than usual, their memory was
/// given back, and when the next ones came each page of it cost a fault, two microseconds:
/// more than the reading of a request, in just the moment in which there are too many.
const KEPT: std::ffi::c_long = 10_000;

/// Keeps memory that was freed for up to ten seconds, for what comes next; or as long as
/// mimalloc's own variable in the environment says.
pub(crate) fn keep_what_is_freed() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    // SAFETY: the option exists, and may be set at any time.
    unsafe { mi_option_set(PURGE_DELAY, KEPT) };
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: the option exists.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "mimalloc's default of this option, and of no other");
        keep_what_is_freed();
        assert_eq!(delay(), KEPT);
    }
}
