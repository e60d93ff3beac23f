//! The workers of a job that are at work, as others see them.

use std::collections::BTreeSet;

use crate::{
    Error,
    lease::{LEASES, Lease},
    status::Reports,
    store::Store,
    time,
};

/// True if a worker of the job in a store is at work: it holds a lease by this clock or reports, and
/// its process is not known to have ended. A worker with a lease whose clock is late reports. Blocks.
///
/// # Errors
/// The store failed.
pub(super) fn is_at_work(store: &Store) -> Result<bool, Error> {
    let failed = |error| Error::store(LEASES, &error);
    let names = store.list(LEASES).map_err(failed)?;
    let names: Vec<_> = names.iter().map(|name| format!("{LEASES}/{name}")).collect();
    let found = store.read_all(&names).map_err(failed)?;
    let leases = found.into_iter().flatten();
    let leases = leases.filter_map(|json| serde_json::from_slice::<Lease>(&json).ok());
    let (now, mut ended) = (time::since_epoch(), BTreeSet::new());
    for lease in leases {
        if lease.is_valid(now) {
            return Ok(true);
        }
        if lease.process.has_ended() {
            ended.insert(lease.worker);
        }
    }
    Ok(Reports::default().read(store)?.iter().any(|worker| !ended.contains(&worker.worker)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Progress,
        commit::{self, WORKERS},
        lease::{Leases, Process},
    };

    #[test]
    fn a_worker_is_at_work_while_it_holds_a_lease_or_reports() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        let at_work = || is_at_work(&store).expect("read");
        assert!(!at_work());
        let leases = Leases::new(store.clone(), "a");
        assert_eq!(leases.claim(3), Ok(true));
        assert!(at_work());
        leases.release(3).expect("released");
        assert!(!at_work());
        let report = |time: String| {
            let progress = Progress { worker: "a".to_owned(), time, ..Progress::default() };
            let json = commit::json(&progress).expect("JSON");
            store.replace(&format!("{WORKERS}/a.json"), &json).expect("written");
        };
        report("2020-01-01T00:00:00Z".to_owned());
        assert!(!at_work(), "the report is old");
        report(time::now());
        assert!(at_work(), "it waits for a chunk");
        // A worker that was killed here leaves both.
        let lease = Lease { process: Process::ended(), ..leases.lease() };
        store.replace("lease/3.json", &commit::json(&lease).expect("JSON")).expect("written");
        assert!(!at_work());
    }
}
