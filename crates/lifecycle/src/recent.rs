//! A sample of a model's latest requests, for the warm-up of its next version.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use arc_swap::ArcSwapOption;
use outrigger_features::Arrived;

/// The largest number of requests stored per model.
const MOST: usize = 16;
/// The largest total size of a model's stored requests, in bytes.
const BYTES: usize = 4 << 20;
/// After the first requests, each thread samples one request in this many.
const EVERY: u32 = 128;

/// A sample of a model's latest requests. Threads share no lock for it: each new request replaces
/// the oldest.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// The number of first requests that were selected, stored or not.
    wanted: AtomicUsize,
    places: [ArcSwapOption<Arrived>; MOST],
    /// The number of requests stored so far, which gives the next one's place.
    count: AtomicUsize,
    /// The total size of the stored requests, and of those about to be stored.
    bytes: AtomicUsize,
}

impl Recent {
    /// Whether to keep the next request until it can be offered: true for the first few, and then
    /// for one in [`EVERY`].
    pub(crate) fn wants(&self) -> bool {
        let few = self.wanted.load(Relaxed) < MOST && self.wanted.fetch_add(1, Relaxed) < MOST;
        few || is_due()
    }

    /// Stores a selected request. Never waits.
    pub(crate) fn offer(&self, request: &Arrived) {
        if request.size() <= BYTES {
            // The copy avoids keeping the whole received buffer alive.
            self.keep(request.copied());
        }
    }

    /// The stored requests, oldest first.
    pub(crate) fn requests(&self) -> Vec<Arrived> {
        let oldest = self.count.load(SeqCst);
        let places = (oldest..oldest + MOST).map(|place| self.places[place % MOST].load_full());
        places.flatten().map(|request| Arrived::clone(&request)).collect()
    }

    fn keep(&self, request: Arrived) {
        let size = request.size();
        // The size is added first, so that of two concurrent calls at least one sees the total of
        // both.
        self.bytes.fetch_add(size, SeqCst);
        let place = self.count.fetch_add(1, SeqCst);
        self.put(place, Some(Arc::new(request)));
        let mut others = place + 1..place + MOST;
        while self.bytes.load(SeqCst) > BYTES
            && let Some(oldest) = others.next()
        {
            self.put(oldest, None);
        }
    }

    fn put(&self, place: usize, request: Option<Arc<Arrived>>) {
        if let Some(before) = self.places[place % MOST].swap(request) {
            self.bytes.fetch_sub(before.size(), SeqCst);
        }
    }
}

/// Whether this call is the one in [`EVERY`] that this thread samples.
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
    use std::thread;

    use bytes::Bytes;

    use super::*;

    fn arrived(bytes: Vec<u8>) -> Arrived {
        Bytes::from(bytes).into()
    }

    fn bytes(request: &Arrived) -> &Bytes {
        let Arrived::Message(bytes) = request else { panic!("{request:?} is no message") };
        bytes
    }

    #[test]
    fn the_latest_are_kept_and_few() {
        let recent = Recent::default();
        for number in 0..100 * u64::from(EVERY) {
            if recent.wants() {
                recent.offer(&arrived(number.to_le_bytes().into()));
            }
        }
        let kept = recent.requests();
        assert_eq!(kept.len(), MOST);
        let number = |kept: &Arrived| u64::from_le_bytes(bytes(kept)[..].try_into().unwrap());
        let numbers: Vec<_> = kept.iter().map(number).collect();
        assert!(numbers.is_sorted_by(|a, b| b - a == u64::from(EVERY)), "{numbers:?}");
        assert!(numbers[0] > 80 * u64::from(EVERY), "{numbers:?}");
    }

    #[test]
    fn large_ones_take_no_more_than_there_is() {
        let recent = Recent::default();
        recent.offer(&arrived(vec![0; BYTES + 1]));
        assert!(recent.requests().is_empty());
        for _ in 0..1000 {
            recent.offer(&arrived(vec![0; BYTES / 3]));
        }
        assert_eq!(recent.requests().len(), 3);
    }

    #[test]
    fn threads_that_keep_at_once_keep_whole_requests_within_the_bounds() {
        let recent = Recent::default();
        let sizes = [1, 1000, BYTES / 5, BYTES / 2, BYTES];
        thread::scope(|scope| {
            for thread in 0..4 {
                let recent = &recent;
                scope.spawn(move || {
                    for turn in 0..40 {
                        let size = sizes[(thread + turn) % sizes.len()];
                        recent.keep(arrived(vec![size.to_le_bytes()[0]; size]));
                        for request in recent.requests() {
                            let kept = bytes(&request);
                            let filled = kept.len().to_le_bytes()[0];
                            assert!(kept.iter().step_by(997).all(|byte| *byte == filled));
                        }
                    }
                });
            }
        });
        let kept = recent.requests();
        let bytes: usize = kept.iter().map(Arrived::size).sum();
        assert!((1..=MOST).contains(&kept.len()) && bytes <= BYTES, "{} of {bytes}", kept.len());
        assert_eq!(bytes, recent.bytes.load(SeqCst), "what is counted is what there is");
    }
}
