//! Limits on concurrent calls by key.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher as _, Hash},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use outrigger_core::{Failure, Reason};

use crate::metrics;

/// The number of locks that the counts are spread over.
const SHARDS: usize = 16;

/// A limit on concurrent calls for each key. Clones share the counts.
///
/// Only keys with calls in progress are stored, so there are at most as many keys as calls. Without
/// a limit nothing is counted, and no lock is taken.
#[derive(Debug, Clone)]
pub(crate) struct Limit<K>(Arc<Counts<K>>);

#[derive(Debug)]
struct Counts<K> {
    most: AtomicU32,
    /// The limits of single keys, in place of `most`.
    others: ArcSwap<HashMap<K, u32>>,
    what: &'static str,
    limit: metrics::Limit,
    hasher: RandomState,
    shards: [Mutex<HashMap<K, u32>>; SHARDS],
}

/// A call's place under a limit, released when dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash>(Option<(Arc<Counts<K>>, K)>);

impl<K: Eq + Hash + Clone> Limit<K> {
    /// A limit of `most` concurrent calls per key; 0 means no limit. Error messages call the key
    /// `what`.
    pub(crate) fn new(most: u32, what: &'static str, limit: metrics::Limit) -> Self {
        Self(Arc::new(Counts {
            most: most.into(),
            others: ArcSwap::default(),
            what,
            limit,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }))
    }

    /// Changes the limit, and the limits of single keys, for calls from now on. Calls that began
    /// without a limit are not counted.
    pub(crate) fn set(&self, most: u32, others: HashMap<K, u32>) {
        self.0.most.store(most, Relaxed);
        self.0.others.store(Arc::new(others));
    }

    /// Takes a place for one more call; `None` if the key is at its limit.
    pub(crate) fn take(&self, key: impl FnOnce() -> K) -> Option<Share<K>> {
        let counts = &self.0;
        let (most, others) = (counts.most.load(Relaxed), counts.others.load());
        if most == 0 && others.is_empty() {
            return Some(Share(None));
        }
        let key = key();
        let most = others.get(&key).copied().unwrap_or(most);
        if most == 0 {
            return Some(Share(None));
        }
        let mut shard = counts.shard(&key);
        let count = shard.entry(key.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(shard);
        Some(Share(Some((Arc::clone(counts), key))))
    }

    /// The limit of `key`; 0 means no limit.
    pub(crate) fn most(&self, key: &K) -> u32 {
        let most = self.0.others.load().get(key).copied();
        most.unwrap_or_else(|| self.0.most.load(Relaxed))
    }

    /// True if `key` is at its limit.
    pub(crate) fn is_full(&self, key: &K) -> bool {
        let most = self.most(key);
        most > 0 && self.0.shard(key).get(key).is_some_and(|count| *count >= most)
    }

    /// The failure of a call that the limit refuses, which is counted.
    pub(crate) fn refusal(&self) -> Failure {
        metrics::refused(self.0.limit);
        let message = format!("as many calls as {} may have are in flight", self.0.what);
        Failure::new(Reason::Overloaded, message)
    }
}

impl<K: Eq + Hash> Counts<K> {
    fn shard(&self, key: &K) -> MutexGuard<'_, HashMap<K, u32>> {
        let hash = self.hasher.hash_one(key);
        #[allow(clippy::cast_possible_truncation)]
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let Some((counts, key)) = &self.0 else { return };
        let mut shard = counts.shard(key);
        if let Some(count) = shard.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                shard.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_places_and_is_forgotten_with_its_last_call() {
        let limit = Limit::new(2, "a caller", metrics::Limit::Caller);
        let held: Vec<_> = (0..2).map(|_| limit.take(|| "a").unwrap()).collect();
        assert!(limit.take(|| "a").is_none());
        let other = limit.take(|| "b").expect("another key");
        drop(held);
        let again = limit.take(|| "a").expect("there is room again");
        drop((other, again));
        let counts = limit.0;
        let remembered = counts.shards.iter().map(|shard| shard.lock().unwrap().len());
        assert_eq!(remembered.sum::<usize>(), 0);
    }

    #[test]
    fn a_limit_that_changes_holds_for_later_calls() {
        let limit = Limit::new(0, "a caller", metrics::Limit::Caller);
        let uncounted = limit.take(|| "a").unwrap();
        limit.set(2, HashMap::new());
        let held: Vec<_> = (0..2).map(|_| limit.take(|| "a").unwrap()).collect();
        limit.set(1, HashMap::new());
        assert!(limit.take(|| "a").is_none(), "both may finish, and no other may begin");
        drop((uncounted, held));
        let last = limit.take(|| "a").expect("both have finished");
        assert!(limit.take(|| "a").is_none());
        limit.set(0, HashMap::new());
        limit.take(|| "a").expect("there is no limit");
        drop(last);
    }

    #[test]
    fn a_key_can_have_a_limit_of_its_own_or_none() {
        let limit = Limit::new(1, "a caller", metrics::Limit::Caller);
        limit.set(1, HashMap::from([("a", 2), ("b", 0)]));
        let held: Vec<_> = ["a", "a", "c"].map(|key| limit.take(|| key).unwrap()).into();
        assert!(["a", "c"].iter().all(|key| limit.take(|| *key).is_none()));
        let uncounted: Vec<_> = (0..9).map(|_| limit.take(|| "b").unwrap()).collect();
        limit.set(0, HashMap::from([("a", 2)]));
        assert!(limit.take(|| "a").is_none(), "both are still there");
        limit.take(|| "c").expect("there is no limit");
        drop((held, uncounted));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let limit: Limit<&str> = Limit::new(0, "a caller", metrics::Limit::Caller);
        let held: Vec<_> = (0..1000).map(|_| limit.take(|| unreachable!()).unwrap()).collect();
        assert!(held.iter().all(|share| share.0.is_none()));
    }
}
