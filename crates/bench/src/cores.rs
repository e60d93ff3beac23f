//! Assigns sending threads to cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread, the `index`th of `threads` senders, to its own core if there
/// are enough cores.
///
/// On the same machine the kernel usually wakes a server's reader on the core on which
/// the data was written. If a sender migrates to another core, the reader stays behind,
/// for seconds on a busy machine, and each request then passes from cache to cache. A
/// single thread is not pinned.
pub(crate) fn pin_to_core(index: usize, threads: usize) {
    // Where pinning is not permitted, the run continues without it.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(core) = core(&allowed, index, threads) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

/// The `index`th of the `allowed` cores, if there are several threads and enough cores
/// for all of them.
fn core(allowed: &CpuSet, index: usize, threads: usize) -> Option<usize> {
    let enough = threads > 1 && threads <= allowed.count() as usize;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    cores.nth(index).filter(|_| enough)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_of_several_threads_has_a_core_if_there_are_enough() {
        let mut allowed = CpuSet::new();
        [1, 4, 6].into_iter().for_each(|core| allowed.set(core));
        let cores = |threads| -> Vec<_> {
            (0..threads).map(|index| core(&allowed, index, threads)).collect()
        };
        assert_eq!(cores(1), [None]);
        assert_eq!(cores(2), [Some(1), Some(4)]);
        assert_eq!(cores(3), [Some(1), Some(4), Some(6)]);
        assert_eq!(cores(4), [None; 4]);
    }

    #[test]
    fn only_the_calling_thread_is_pinned() {
        let before = sched_getaffinity(None).expect("linux");
        let (threads, all) = (before.count() as usize, before);
        let pinned = thread::spawn(move || {
            pin_to_core(threads - 1, threads);
            (sched_getaffinity(None).expect("linux"), core(&all, threads - 1, threads))
        });
        let (pinned, expected) = pinned.join().expect("it does not panic");
        match expected {
            Some(core) => assert!(pinned.count() == 1 && pinned.is_set(core)),
            None => assert_eq!(pinned, before, "there is only one core"),
        }
        assert_eq!(sched_getaffinity(None).expect("linux"), before);
    }
}
