//! Leases: small objects by which workers on one job divide its chunks. A lost lease costs repeated
//! work and nothing else: only the first commit of a chunk counts.
//!
//! The clocks of machines differ, so a worker does not compare the time of a lease with its own: a lease
//! has expired when the worker has seen it unchanged for the term of a lease. Only a lease whose end is
//! longer ago than clocks may differ has expired at once.

mod process;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

pub(crate) use self::process::Process;
use crate::{Error, commit, plan::chunk_name, store::Store, time};

/// The directory of leases in the output.
pub(crate) const LEASES: &str = "lease";
/// The time after which a lease that is not renewed has expired.
const TERM: Duration = Duration::from_secs(30);
/// The most by which the clocks of two machines differ.
pub(crate) const SKEW: Duration = Duration::from_secs(300);
/// The time between renewals.
pub(crate) const RENEWAL: Duration = Duration::from_secs(10);

/// A lease, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) worker: String,
    pub(crate) process: Process,
    /// The time of its end, in seconds since 1970.
    pub(crate) until: u64,
}

/// The leases of one worker.
#[derive(Debug)]
pub(crate) struct Leases {
    store: Store,
    worker: String,
    process: Process,
    held: Mutex<BTreeSet<u64>>,
    /// The leases of others, each with the time since which it has not changed.
    seen: Mutex<BTreeMap<u64, (Lease, Instant)>>,
}

fn lease_name(chunk: u64) -> String {
    format!("{LEASES}/{}.json", chunk_name(chunk))
}

impl Leases {
    /// The leases of a worker with this name.
    pub(crate) fn new(store: Store, worker: &str) -> Self {
        let (worker, process) = (worker.to_owned(), Process::current());
        Self { store, worker, process, held: Mutex::default(), seen: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lease of a chunk. Returns false if another worker holds it.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn claim(&self, chunk: u64) -> Result<bool, Error> {
        self.claim_at(chunk, Instant::now())
    }

    fn claim_at(&self, chunk: u64, now: Instant) -> Result<bool, Error> {
        let name = lease_name(chunk);
        let json = commit::json(&self.lease())?;
        let failed = |error| Error::store(&name, &error);
        if !self.store.create(&name, &json).map_err(failed)? {
            let holder: Option<Lease> = commit::read_if_whole(&self.store, &name, true)?;
            if holder.is_some_and(|lease| self.is_held(chunk, lease, now)) {
                return Ok(false);
            }
            self.store.replace(&name, &json).map_err(failed)?;
        }
        self.held().insert(chunk);
        self.seen().remove(&chunk);
        Ok(true)
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<u64, (Lease, Instant)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the lease of another worker, which is read now, has not expired.
    fn is_held(&self, chunk: u64, lease: Lease, now: Instant) -> bool {
        if !lease.is_valid(time::since_epoch().saturating_sub(SKEW)) {
            return false;
        }
        let mut seen = self.seen();
        let (known, since) = seen.entry(chunk).or_insert_with(|| (lease.clone(), now));
        if *known != lease {
            (*known, *since) = (lease, now);
        }
        now.duration_since(*since) < TERM
    }

    /// Gives the lease of a chunk back.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn release(&self, chunk: u64) -> Result<(), Error> {
        self.held().remove(&chunk);
        let name = lease_name(chunk);
        self.store.remove(&name).map_err(|error| Error::store(&name, &error))
    }

    /// Renews all leases.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn renew(&self) -> Result<(), Error> {
        let held = self.held().clone();
        let json = commit::json(&self.lease())?;
        for chunk in held {
            let name = lease_name(chunk);
            self.store.replace(&name, &json).map_err(|error| Error::store(&name, &error))?;
            // The chunk was committed meanwhile.
            if !self.held().contains(&chunk) {
                self.store.remove(&name).map_err(|error| Error::store(&name, &error))?;
            }
        }
        Ok(())
    }

    /// Gives all leases back.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn release_all(&self) -> Result<(), Error> {
        let held = self.held().clone();
        held.into_iter().try_for_each(|chunk| self.release(chunk))
    }

    pub(crate) fn lease(&self) -> Lease {
        let until = time::since_epoch().saturating_add(TERM).as_secs();
        Lease { worker: self.worker.clone(), process: self.process.clone(), until }
    }
}

impl Lease {
    /// True if the lease has not expired by this clock, and its worker is not known to have ended.
    pub(crate) fn is_valid(&self, now: Duration) -> bool {
        self.until >= now.as_secs() && !self.process.has_ended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        (directory, store)
    }

    #[test]
    fn a_chunk_has_one_worker_at_a_time() {
        let (_directory, store) = store();
        let [first, second] = ["a", "b"].map(|worker| Leases::new(store.clone(), worker));
        assert_eq!(first.claim(7), Ok(true));
        assert_eq!(second.claim(7), Ok(false));
        first.renew().expect("renewed");
        assert_eq!(second.claim(8), Ok(true));
        first.release(7).expect("released");
        first.renew().expect("nothing is left to renew");
        assert_eq!(second.claim(7), Ok(true));
    }

    #[test]
    fn a_lease_that_is_damaged_is_taken() {
        let (_directory, store) = store();
        let [first, second] = ["a", "b"].map(|worker| Leases::new(store.clone(), worker));
        for damaged in ["", "\0\0\0\0", "{\"worker\": \"a\", \"pro"] {
            store.replace(&lease_name(3), damaged.as_bytes()).expect("written");
            assert_eq!(first.claim(3), Ok(true), "{damaged:?}");
            assert_eq!(second.claim(3), Ok(false), "it is whole again");
        }
    }

    #[test]
    fn clocks_may_differ() {
        let (_directory, store) = store();
        let leases = Leases::new(store.clone(), "a");
        let name = lease_name(3);
        let elsewhere = Process::elsewhere();
        let now = time::since_epoch().as_secs();
        let write = |until| {
            let lease = Lease { process: elsewhere.clone(), until, worker: "b".to_owned() };
            store.replace(&name, &commit::json(&lease).expect("JSON")).expect("written");
        };
        let start = Instant::now();
        for (until, minutes) in [(now - 270, 0), (now + 330, 10)] {
            let at = |seconds| start + Duration::from_secs(60 * minutes + seconds);
            // Its worker renews it, by a clock that is late or early.
            for renewal in 0..10 {
                write(until + 10 * renewal);
                assert_eq!(leases.claim_at(3, at(10 * renewal)), Ok(false), "{until}");
            }
            assert_eq!(leases.claim_at(3, at(119)), Ok(false));
            // It has ended.
            assert_eq!(leases.claim_at(3, at(121)), Ok(true));
            leases.release(3).expect("released");
        }
    }

    #[test]
    fn a_lease_that_expired_or_whose_worker_ended_is_taken() {
        let (_directory, store) = store();
        let leases = Leases::new(store.clone(), "a");
        let name = lease_name(3);
        let ended = Lease { process: Process::ended(), ..leases.lease() };
        let expired = Lease { until: 1, ..leases.lease() };
        for lease in [ended, expired] {
            store.replace(&name, &commit::json(&lease).expect("JSON")).expect("written");
            assert_eq!(leases.claim(3), Ok(true), "{lease:?}");
        }
    }
}
