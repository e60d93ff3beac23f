//! Statistics of models, as the extension `statistics` of the Open Inference Protocol has them: the
//! requests of that protocol, by version.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use outrigger_core::{Code, Failure, ModelKey};
use outrigger_lifecycle::{Handle, Lease, Snapshot};
use outrigger_oip::statistics as wire;
use tokio::time::Instant;

/// The versions that are kept at least. Beyond them those that no model has any more are dropped
/// first.
const KEPT: usize = 256;
/// The failed runs in a row after which a version does not count as ready.
const FAILURES: u32 = 8;
/// The time after the last of them: then a caller may try again.
const UNREADY: Duration = Duration::from_secs(30);

/// The statistics of all versions. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statistics(Arc<ArcSwap<Versions>>);

type Versions = BTreeMap<ModelKey, Arc<Version>>;

/// The statistics of one version.
#[derive(Debug, Default)]
struct Version {
    success: Total,
    fail: Total,
    queue: Total,
    input: Total,
    run: Total,
    output: Total,
    rows: AtomicU64,
    /// The time of the last request, in milliseconds since 1970.
    last: AtomicU64,
    /// The failed runs since the last one that was answered.
    failures: AtomicU32,
}

/// A number of events, and the sum of their durations.
#[derive(Debug, Default)]
struct Total {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Total {
    fn add(&self, took: Duration) {
        self.count.fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos(took), Relaxed);
    }

    fn get(&self) -> wire::Duration {
        wire::Duration { count: self.count.load(Relaxed), ns: self.nanos.load(Relaxed) }
    }
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Statistics {
    /// The statistics of a version, which are added if there are none.
    fn of(&self, key: &ModelKey, models: &Handle) -> Arc<Version> {
        if let Some(version) = self.0.load().get(key) {
            return Arc::clone(version);
        }
        self.prune(&models.models());
        let version = Arc::<Version>::default();
        let versions = self.0.rcu(|versions| {
            let mut next = Versions::clone(versions);
            next.entry(key.clone()).or_insert_with(|| Arc::clone(&version));
            next
        });
        versions.get(key).map_or(version, Arc::clone)
    }

    /// The statistics of the versions that a model has now, and that `wanted` accepts.
    pub(crate) fn list(
        &self,
        snapshot: &Snapshot,
        wanted: impl Fn(&ModelKey) -> bool,
    ) -> Vec<wire::ModelStatistics> {
        let versions = self.0.load();
        let wanted = versions.iter().filter(|(key, _)| is_known(snapshot, key) && wanted(key));
        wanted.map(|(key, version)| version.statistics(key)).collect()
    }

    /// Drops versions that no model has any more, if there are many.
    fn prune(&self, snapshot: &Snapshot) {
        if self.0.load().len() <= KEPT {
            return;
        }
        self.0.rcu(|versions| {
            let known = versions.iter().filter(|(key, _)| is_known(snapshot, key));
            known.map(|(key, version)| (key.clone(), Arc::clone(version))).collect::<Versions>()
        });
    }

    /// True if the last runs of a version have all failed, a short time ago.
    pub(crate) fn fails(&self, key: &ModelKey) -> bool {
        self.0.load().get(key).is_some_and(|version| version.fails())
    }
}

fn is_known(snapshot: &Snapshot, key: &ModelKey) -> bool {
    let model = snapshot.models.get(&key.name);
    model.is_some_and(|model| model.versions.contains_key(&key.digest))
}

impl Version {
    fn statistics(&self, key: &ModelKey) -> wire::ModelStatistics {
        wire::ModelStatistics {
            name: key.name.to_string(),
            version: key.digest.to_string(),
            last_inference: self.last.load(Relaxed),
            inference_count: self.rows.load(Relaxed),
            execution_count: self.run.count.load(Relaxed),
            inference_stats: wire::Durations {
                success: self.success.get(),
                fail: self.fail.get(),
                queue: self.queue.get(),
                compute_input: self.input.get(),
                compute_infer: self.run.get(),
                compute_output: self.output.get(),
            },
        }
    }

    fn fails(&self) -> bool {
        let since = now().saturating_sub(self.last.load(Relaxed));
        self.failures.load(SeqCst) >= FAILURES && Duration::from_millis(since) < UNREADY
    }
}

/// The stages of one request, while it is answered. One that is dropped before its end, because its
/// time passed or its caller left, counts as failed.
pub(crate) struct Observed {
    version: Arc<Version>,
    is_ended: bool,
    /// True if the engine has answered.
    is_run: AtomicBool,
    started: Instant,
    queued: Duration,
    input: AtomicU64,
    output: AtomicU64,
    rows: AtomicU64,
}

impl Observed {
    /// Begins with a request that has waited for its version since `started`.
    pub(crate) fn begin(
        statistics: &Statistics,
        models: &Handle,
        lease: &Lease,
        started: Instant,
    ) -> Self {
        let version = statistics.of(&lease.key, models);
        version.last.store(now(), Relaxed);
        Self::of(version, started)
    }

    fn of(version: Arc<Version>, started: Instant) -> Self {
        Self {
            version,
            is_ended: false,
            is_run: AtomicBool::new(false),
            started,
            queued: started.elapsed(),
            input: AtomicU64::new(0),
            output: AtomicU64::new(0),
            rows: AtomicU64::new(0),
        }
    }

    /// Measures the work on the inputs.
    pub(crate) fn input<T>(&self, work: impl FnOnce() -> T) -> T {
        measured(&self.input, work)
    }

    /// Measures the work on the outputs for this number of rows, which the engine has answered.
    pub(crate) fn output<T>(&self, rows: usize, work: impl FnOnce() -> T) -> T {
        self.is_run.store(true, Relaxed);
        self.rows.store(rows as u64, Relaxed);
        measured(&self.output, work)
    }

    /// Records the end of the request.
    pub(crate) fn end<T>(mut self, result: &Result<T, Failure>) {
        match result {
            Ok(_) => self.answered(),
            Err(failure) => {
                self.failed();
                // Faults of requests say nothing about the version, nor do scores that are not
                // valid: an engine that answers works, and one caller's values may be the cause.
                let is_fault = matches!(failure.reason.code(), Code::Internal | Code::Unavailable);
                if is_fault && !*self.is_run.get_mut() {
                    self.version.failures.fetch_add(1, SeqCst);
                }
            }
        }
    }

    fn answered(&mut self) {
        let Self { version, started, queued, input, output, rows, .. } = self;
        let took = started.elapsed();
        let [input, output] = [input, output].map(|it| Duration::from_nanos(*it.get_mut()));
        version.queue.add(*queued);
        version.success.add(took);
        version.input.add(input);
        version.run.add(took.saturating_sub(*queued + input + output));
        version.output.add(output);
        version.rows.fetch_add(*rows.get_mut(), Relaxed);
        version.failures.store(0, SeqCst);
        self.is_ended = true;
    }

    fn failed(&mut self) {
        self.version.queue.add(self.queued);
        self.version.fail.add(self.started.elapsed());
        self.is_ended = true;
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if !self.is_ended {
            self.failed();
        }
    }
}

#[cfg(test)]
impl Observed {
    /// A request to a version that nothing lists.
    pub(crate) fn unlisted() -> Self {
        Self::of(Arc::default(), Instant::now())
    }
}

fn measured<T>(total: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    total.fetch_add(nanos(start.elapsed()), Relaxed);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_that_is_cut_off_counts_as_failed_and_says_nothing_about_its_version() {
        let version = Arc::<Version>::default();
        let observed = || Observed::of(Arc::clone(&version), Instant::now());
        for _ in 0..FAILURES {
            drop(observed());
        }
        observed().end(&Ok::<_, Failure>(()));
        let counts = [&version.success, &version.fail].map(|total| total.get().count);
        assert_eq!(counts, [1, u64::from(FAILURES)]);
        assert_eq!(version.failures.load(SeqCst), 0);
    }

    #[test]
    fn a_version_whose_last_runs_failed_counts_as_failing_for_a_while() {
        let version = Version::default();
        version.last.store(now(), Relaxed);
        version.failures.store(FAILURES - 1, SeqCst);
        assert!(!version.fails());
        version.failures.store(FAILURES, SeqCst);
        assert!(version.fails());
        version.last.store(now() - 2 * 1000 * UNREADY.as_secs(), Relaxed);
        assert!(!version.fails(), "a caller may try again");
    }
}
