//! A few of a model's latest requests, to warm its next version up with.

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;

/// Requests that are kept of a model,
const MOST: usize = 16;
/// and what they may take together.
const BYTES: usize = 4 << 20;
/// Once there are enough, a thread offers one in so many.
const EVERY: u32 = 128;

/// A few of a model's latest requests.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Something had to make room.
    full: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<Bytes>,
    bytes: usize,
}

impl Recent {
    /// Keeps one in a number of requests. Never waits.
    pub(crate) fn offer(&self, request: &Bytes) {
        if self.full.load(Relaxed) && !is_due() {
            return;
        }
        let Ok(mut kept) = self.kept.try_lock() else { return };
        if kept.keep(request) {
            self.full.store(true, Relaxed);
        }
    }

    /// Those that are kept, the oldest first.
    pub(crate) fn requests(&self) -> Vec<Bytes> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.requests.iter().cloned().collect()
    }
}

impl Kept {
    /// Keeps a request; `true` if there is no room for another.
    fn keep(&mut self, request: &Bytes) -> bool {
        if request.len() > BYTES {
            return false;
        }
        // Not a part of what was received, which would be kept with it.
        self.requests.push_back(Bytes::copy_from_slice(request));
        self.bytes += request.len();
        while self.requests.len() > MOST || self.bytes > BYTES {
            self.bytes -= self.requests.pop_front().map_or(0, |oldest| oldest.len());
        }
        self.requests.len() == MOST || self.bytes + request.len() > BYTES
    }
}

/// Whether a request of this thread is one in [`EVERY`].
fn is_due() -> bool {
    thread_local! {
        static COUNT: Cell<u32> = const { Cell::new(0) };
    }
    let count = COUNT.get().wrapping_add(1);
    COUNT.set(count);
    count.is_multiple_of(EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_few() {
        let recent = Recent::default();
        for number in 0..100 * u64::from(EVERY) {
            recent.offer(&Bytes::copy_from_slice(&number.to_le_bytes()));
        }
        let kept = recent.requests();
        assert_eq!(kept.len(), MOST);
        let number = |bytes: &Bytes| u64::from_le_bytes(bytes[..].try_into().unwrap());
        let numbers: Vec<_> = kept.iter().map(number).collect();
        assert!(numbers.is_sorted_by(|a, b| b - a == u64::from(EVERY)), "{numbers:?}");
        assert!(numbers[0] > 80 * u64::from(EVERY), "{numbers:?}");
    }

    #[test]
    fn large_ones_take_no_more_than_there_is() {
        let recent = Recent::default();
        recent.offer(&Bytes::from(vec![0; BYTES + 1]));
        assert!(recent.requests().is_empty());
        for _ in 0..1000 {
            recent.offer(&Bytes::from(vec![0; BYTES / 3]));
        }
        assert_eq!(recent.requests().len(), 3);
    }
}
