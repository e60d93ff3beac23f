//! Which cores the threads that send run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread, the `index`th of `threads` that send, to a core of its own, if
/// there is one for each.
///
/// What a thread writes to a socket is read by a thread of the server, on the same machine
/// mostly on the core it was written on: the kernel wakes it there. A sender that wanders
/// to the other core leaves the reader behind, for seconds on a busy machine, and then
/// each request passes from cache to cache. A single thread is left where the kernel puts it.
pub(crate) fn keep_to_one(index: usize, threads: usize) {
    // It sends as well where that is forbidden.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(core) = core(&allowed, index, threads) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

/// The `index`th core of those `allowed`, if it takes several and all threads have one.
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
    fn several_threads_have_a_core_each_if_there_are_enough() {
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
    fn only_the_calling_thread_is_kept() {
        let before = sched_getaffinity(None).expect("linux");
        let (threads, all) = (before.count() as usize, before);
        let kept = thread::spawn(move || {
            keep_to_one(threads - 1, threads);
            (sched_getaffinity(None).expect("linux"), core(&all, threads - 1, threads))
        });
        let (kept, expected) = kept.join().expect("it does not panic");
        match expected {
            Some(core) => assert!(kept.count() == 1 && kept.is_set(core)),
            None => assert_eq!(kept, before, "there is only one"),
        }
        assert_eq!(sched_getaffinity(None).expect("linux"), before);
    }
}
