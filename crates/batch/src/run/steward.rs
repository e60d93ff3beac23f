//! The periodic work of a worker: it reads the control object, renews the leases, and stores the
//! progress and its history.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::UnboundedSender;

use super::others::Others;
use crate::{
    Control, Error, Progress, Watch,
    commit::{self, WORKERS},
    dead::DeadRows,
    history::History,
    lease::Leases,
    memory::Memory,
    output::Outputs,
    plan::Plan,
    readers::{Event, Readers},
};

/// The time between two readings of the control object.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time between two readings of the commits of other workers.
const COMMITS: Duration = Duration::from_secs(10);
/// The time between two storings of the history.
const HISTORY: Duration = Duration::from_secs(10);

/// Works once a second, on a thread of its own.
pub(super) struct Steward {
    worker: String,
    rows: u64,
    before: u64,
    /// Those of the plan.
    remarks: Vec<String>,
    outputs: Arc<Outputs>,
    memory: Memory,
    leases: Arc<Leases>,
    /// The time between two renewals of the leases.
    renewal: Duration,
    events: UnboundedSender<Event>,
    watch: Watch,
    /// The progress that was reported last and is not stored.
    latest: Mutex<Option<Progress>>,
    /// The history of this run, and the rows that are in it.
    history: Mutex<(History, u64)>,
    /// The dead rows that are committed, if their number may stop the job.
    dead: Mutex<Option<DeadRows>>,
    /// The rows that other workers have committed.
    others: Mutex<Others>,
}

impl Steward {
    /// The steward of the worker with this name. `before` is the number of rows that were committed.
    pub(super) fn new(
        worker: &str,
        (plan, before, dead): (&Plan, u64, Option<DeadRows>),
        (readers, renewal): (&Readers, Duration),
        watch: Watch,
    ) -> Self {
        let sizes = plan.scoring.all_chunks().map(|chunk| chunk.count());
        Self {
            worker: worker.to_owned(),
            rows: plan.scoring.rows(),
            before,
            remarks: plan.remarks.clone(),
            outputs: Arc::clone(&readers.outputs),
            memory: readers.memory.clone(),
            leases: Arc::clone(&readers.leases),
            renewal,
            events: readers.events.clone(),
            watch,
            latest: Mutex::default(),
            history: Mutex::default(),
            dead: Mutex::new(dead),
            others: Mutex::new(Others::new(sizes, before, Instant::now())),
        }
    }

    /// The job is finished: others have committed all rows that this worker has not.
    pub(super) fn finish(&self) {
        let mut last = self.watch.get();
        last.elsewhere += last.rows.saturating_sub(last.done());
        self.watch.set(last);
    }

    /// Takes the progress of the conductor.
    pub(super) fn report(&self, progress: Progress) {
        let (memory, memory_peak) = self.memory.used();
        let (rows, before) = (self.rows, self.before);
        let (worker, memory_limit) = (self.worker.clone(), self.memory.limit());
        let blocked_seconds = self.memory.blocked().as_secs_f64();
        let remarks = self.remarks.clone();
        let progress = Progress { worker, rows, before, memory, memory_peak, remarks, ..progress };
        let is_store_away = self.outputs.store.patience().waiting() > 0;
        let mut progress = Progress { memory_limit, blocked_seconds, is_store_away, ..progress };
        progress.add(&self.outputs.counts);
        self.add_others(&mut progress);
        self.remember(progress.scored + progress.dead);
        self.watch.set(progress.clone());
        *locked(&self.latest) = Some(progress);
    }

    /// Adds what other workers have done.
    fn add_others(&self, progress: &mut Progress) {
        let lost = self.outputs.counts.lost_chunks();
        let others = locked(&self.others);
        progress.lost = others.rows_of(lost.keys());
        progress.elsewhere = others.rows(lost.keys());
        progress.elsewhere_per_second = others.per_second(Instant::now());
    }

    /// Adds the rows to the history that are done since the last time.
    fn remember(&self, done: u64) {
        let mut history = locked(&self.history);
        let (history, before) = &mut *history;
        history.add(crate::time::since_epoch().as_secs(), done.saturating_sub(*before));
        *before = done;
    }

    fn store_history(&self) {
        let history = locked(&self.history).0.clone();
        if !history.rows.is_empty() {
            // The next one has its rows too.
            let _ = history.store(&self.worker, &self.outputs.store);
        }
    }

    /// Works until the job ends. Blocks. A store that fails now may work a second later: only what
    /// decides about rows must succeed.
    pub(super) fn run(&self) {
        let (mut renewed, mut stored): (_, Option<Instant>) = (Instant::now(), None);
        let mut counted = Instant::now();
        self.report_dead();
        loop {
            if let Ok(control) = Control::read_whole(&self.outputs.store) {
                // A job that has stopped does not listen.
                let _ = self.events.send(Event::Control(control));
            }
            if counted.elapsed() >= COMMITS {
                if self.read_commits().is_ok() {
                    self.report_dead();
                }
                counted = Instant::now();
            }
            if renewed.elapsed() >= self.renewal && self.leases.renew().is_ok() {
                renewed = Instant::now();
            }
            if !self.memory.pause(INTERVAL) {
                break;
            }
            self.store_progress();
            if stored.is_none_or(|stored| stored.elapsed() >= HISTORY) {
                self.store_history();
                stored = Some(Instant::now());
            }
        }
        self.store_history();
        // A worker without a report is not at work.
        let _ = self.outputs.store.remove(&self.name());
    }

    /// Reads the commits of other workers. Those that cannot be read are read the next time.
    fn read_commits(&self) -> Result<(), Error> {
        let store = &self.outputs.store;
        let committed = commit::committed(store)?;
        if let Some(dead) = &mut *locked(&self.dead) {
            dead.add(&committed, store)?;
        }
        let own = self.outputs.counts.own();
        locked(&self.others).refresh(committed, &own, Instant::now());
        Ok(())
    }

    /// Reports the dead rows in the commits of other workers and of earlier runs.
    fn report_dead(&self) {
        if let Some(dead) = &*locked(&self.dead) {
            let _ = self.events.send(Event::DeadElsewhere(self.outputs.counts.elsewhere(dead)));
        }
    }

    fn name(&self) -> String {
        format!("{WORKERS}/{}.json", self.worker)
    }

    fn store_progress(&self) {
        let latest = locked(&self.latest).take();
        let Some(json) = latest.and_then(|progress| commit::json(&progress).ok()) else { return };
        let _ = self.outputs.store.replace_loosely(&self.name(), &json);
    }
}

/// The value of a mutex, also after a panic of another thread.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
