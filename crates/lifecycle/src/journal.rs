//! The state that the next process takes over, and its way to the disk.
//!
//! Every change of the state gets a number. One task writes the latest state whenever it differs
//! from the one on disk, so that changes during a write share the next one. Work that depends on a
//! state waits until its number is on disk: engines are told nothing, and nothing is shown to
//! callers and operators, that the next process would not know. While writes fail, or take longer
//! than [`LONGEST`], nothing waits for them: a full disk must not stop a rollback. The write is
//! tried again at intervals of [`RETRY`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use outrigger_core::{Crashes, EngineId, ModelName, machines::Legacy};
use outrigger_store::{Desired, Promoted, Record};
use outrigger_trials::CanaryRecord;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    metrics,
    world::{World, blocking},
};

/// The longest time that anything waits for a write.
const LONGEST: Duration = Duration::from_secs(5);

/// The interval between attempts after a write has failed.
const RETRY: Duration = Duration::from_secs(10);

/// The latest state by model, with its number and that of the state on disk.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    state: Mutex<State>,
    /// The number of the latest state.
    latest: watch::Sender<u64>,
    /// The number of the latest state whose write has ended.
    ended: watch::Sender<u64>,
    /// The last write failed, or takes too long.
    is_behind: AtomicBool,
    /// The service writes the last state itself.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    models: BTreeMap<ModelName, Legacy>,
    crashes: BTreeMap<EngineId, Crashes>,
    /// `None` if no canary has been on trial in this process.
    canaries: Option<Arc<CanaryRecord>>,
}

/// Changes of the state.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Models with another state, and that state.
    pub(crate) models: Vec<(ModelName, Legacy)>,
    /// The suspicion against versions, if it may have changed.
    pub(crate) crashes: Option<BTreeMap<EngineId, Crashes>>,
    /// The trials and decisions, if they are to be written.
    pub(crate) canaries: Option<CanaryRecord>,
}

/// A state to be written.
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) record: Record,
    pub(crate) crashes: BTreeMap<EngineId, Crashes>,
    pub(crate) canaries: Option<Arc<CanaryRecord>>,
}

impl Durable {
    /// Changes the state. Gives it a new number, unless it remains the same.
    pub(crate) fn update(&self, changes: Changes) {
        let mut state = self.state();
        let crashes = changes.crashes.filter(|crashes| *crashes != state.crashes);
        if changes.models.is_empty() && crashes.is_none() && changes.canaries.is_none() {
            return;
        }
        crashes.into_iter().for_each(|crashes| state.crashes = crashes);
        changes.canaries.into_iter().for_each(|it| state.canaries = Some(Arc::new(it)));
        for (name, legacy) in changes.models {
            match legacy == Legacy::default() {
                true => state.models.remove(&name),
                false => state.models.insert(name, legacy),
            };
        }
        self.latest.send_modify(|number| *number += 1);
    }

    /// Ends the task that writes the state.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
    }

    /// The number of the latest state.
    pub(crate) fn number(&self) -> u64 {
        *self.latest.borrow()
    }

    /// The latest state and its number.
    pub(crate) fn latest(&self) -> Numbered {
        let state = self.state();
        let mut record = Record::default();
        state.models.values().for_each(|legacy| add(&mut record, legacy));
        Numbered {
            number: self.number(),
            record,
            crashes: state.crashes.clone(),
            canaries: state.canaries.clone(),
        }
    }

    /// Records that the write of the state `number` has ended.
    pub(crate) fn end(&self, number: u64, is_written: bool) {
        self.is_behind.store(!is_written, SeqCst);
        metrics::journal_behind(!is_written);
        self.ended.send_modify(|ended| *ended = number.max(*ended));
    }

    /// Waits until the state `number`, or a later one, is on disk; at most [`LONGEST`], and not at
    /// all while writes fail.
    pub(crate) async fn settled(&self, number: u64) {
        let mut ended = self.ended.subscribe();
        let settled = ended.wait_for(|ended| *ended >= number || self.is_behind.load(SeqCst));
        if timeout(LONGEST, settled).await.is_err() {
            tracing::warn!(
                waited = ?LONGEST,
                "writing the journal takes long: until it ends, changes take effect that a restart \
                 may lose"
            );
            self.is_behind.store(true, SeqCst);
            metrics::journal_behind(true);
            self.ended.send_modify(|_| {});
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the state whenever it has changed, until it is closed.
pub(crate) async fn write(world: Arc<World>) {
    let mut latest = world.durable.latest.subscribe();
    let mut number = 0;
    loop {
        // The sender is part of `world`.
        latest.wait_for(|latest| *latest > number).await.ok();
        if world.durable.is_closed.load(SeqCst) {
            return;
        }
        let written = blocking(&world, World::write_journal).await;
        match written {
            Ok(written) => number = written,
            Err(()) => sleep(RETRY).await,
        }
    }
}

fn add(record: &mut Record, legacy: &Legacy) {
    for (key, digest) in &legacy.tags {
        let tags = record.tags.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), *digest);
    }
    for (key, digest) in &legacy.rejected {
        let tags = record.rejected.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), *digest);
    }
    for (key, (named, promoted)) in &legacy.promoted {
        let tags = record.promoted.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), Promoted { named: *named, promoted: *promoted });
    }
    record.desired.extend(legacy.loaded.iter().map(|(key, loaded)| Desired {
        key: key.clone(),
        servable: loaded.id.clone(),
        engine: loaded.engine.clone(),
    }));
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use futures::FutureExt as _;
    use outrigger_core::{Digest, machines::TagKey};
    use tempfile::TempDir;
    use tokio::{task::JoinSet, time::Instant};

    use super::*;
    use crate::{Config, rig};

    /// A world without a service, and the journal in its store.
    struct Bench {
        world: Arc<World>,
        dir: TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let (_, service, dir) = rig::service(Config::default());
            Self { world: service.world(), dir }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("journal/record.json")
        }

        fn recorded(&self) -> Option<Record> {
            self.world.store.journal().load().expect("read")
        }

        /// Changes the version that answers for a tag. Returns the number of the state.
        fn serve(&self, content: &str) -> u64 {
            let key = TagKey { name: rig::churn(), tag: "latest".parse().expect("valid") };
            let tags = [(key, Digest::of(content.as_bytes()))].into();
            let models = vec![(rig::churn(), Legacy { tags, ..Legacy::default() })];
            self.world.durable.update(Changes { models, ..Changes::default() });
            self.world.durable.number()
        }

        fn serves(&self, content: &str) -> bool {
            let tags = self.recorded().and_then(|record| record.tags.into_values().next());
            let digest = tags.and_then(|tags| tags.into_values().next());
            digest == Some(Digest::of(content.as_bytes()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_during_a_write_share_the_next_one() {
        let bench = Bench::new();
        let mut task = JoinSet::new();
        task.spawn(write(Arc::clone(&bench.world)));
        bench.world.durable.settled(bench.serve("one")).await;
        assert!(bench.serves("one"));
        let last = (0..100).map(|number| bench.serve(&number.to_string())).max();
        bench.world.durable.settled(last.expect("some")).await;
        assert!(bench.serves("99"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_delays_nothing_and_is_tried_again() {
        let bench = Bench::new();
        // A directory at the path cannot be replaced by a file.
        fs::create_dir(bench.path()).expect("created");
        let mut task = JoinSet::new();
        task.spawn(write(Arc::clone(&bench.world)));
        let begun = Instant::now();
        for content in ["one", "two"] {
            bench.world.durable.settled(bench.serve(content)).await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        fs::remove_dir(bench.path()).expect("it is empty");
        sleep(RETRY * 2).await;
        assert!(bench.serves("two"));
        assert!(bench.world.durable.settled(bench.serve("three")).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_takes_long_delays_the_first_change_only() {
        let bench = Bench::new();
        let begun = Instant::now();
        bench.world.durable.settled(bench.serve("one")).await;
        assert_eq!(begun.elapsed(), LONGEST);
        bench.world.durable.settled(bench.serve("two")).await;
        assert_eq!(begun.elapsed(), LONGEST);
        bench.world.write_journal().expect("written");
        assert!(bench.world.durable.settled(bench.serve("three")).now_or_never().is_none());
    }
}
