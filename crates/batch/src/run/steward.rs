//! The periodic work of a worker: it reads the control object, renews the leases, and stores the
//! progress and its history.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    Control, Progress, Watch,
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
/// The time between two counts of the dead rows in commits.
const DEAD_ROWS: Duration = Duration::from_secs(10);
/// The time between two storings of the history.
const HISTORY: Duration = Duration::from_secs(10);

/// Works once a second, on a thread of its own.
pub(super) struct Steward {
    worker: String,
    rows: u64,
    before: u64,
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
}

impl Steward {
    /// The steward of the worker with this name. `before` is the number of rows that were committed.
    pub(super) fn new(
        worker: &str,
        (plan, before, dead): (&Plan, u64, Option<DeadRows>),
        (readers, renewal): (&Readers, Duration),
        watch: Watch,
    ) -> Self {
        Self {
            worker: worker.to_owned(),
            rows: plan.scoring.rows(),
            before,
            outputs: Arc::clone(&readers.outputs),
            memory: readers.memory.clone(),
            leases: Arc::clone(&readers.leases),
            renewal,
            events: readers.events.clone(),
            watch,
            latest: Mutex::default(),
            history: Mutex::default(),
            dead: Mutex::new(dead),
        }
    }

    /// Takes the progress of the conductor.
    pub(super) fn report(&self, progress: Progress) {
        let (memory, memory_peak) = self.memory.used();
        let (rows, before) = (self.rows, self.before);
        let (worker, memory_limit) = (self.worker.clone(), self.memory.limit());
        let blocked_seconds = self.memory.blocked().as_secs_f64();
        let progress = Progress { worker, rows, before, memory, memory_peak, ..progress };
        let is_store_away = self.outputs.store.patience().waiting() > 0;
        let mut progress = Progress { memory_limit, blocked_seconds, is_store_away, ..progress };
        progress.add(&self.outputs.counts);
        self.remember(progress.scored + progress.dead);
        self.watch.set(progress.clone());
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Adds the rows to the history that are done since the last time.
    fn remember(&self, done: u64) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let (history, before) = &mut *history;
        history.add(crate::time::since_epoch().as_secs(), done.saturating_sub(*before));
        *before = done;
    }

    fn store_history(&self) {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
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
        self.count_dead(false);
        loop {
            if let Ok(control) = Control::read(&self.outputs.store) {
                // A job that has stopped does not listen.
                let _ = self.events.send(Event::Control(control));
            }
            if counted.elapsed() >= DEAD_ROWS {
                self.count_dead(true);
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

    /// Reports the dead rows in the commits of other workers and of earlier runs. `is_due`: there may
    /// be further commits.
    fn count_dead(&self, is_due: bool) {
        let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(dead) = &mut *dead else { return };
        if is_due && dead.refresh(&self.outputs.store).is_err() {
            // They are counted the next time.
            return;
        }
        let _ = self.events.send(Event::DeadElsewhere(self.outputs.counts.elsewhere(dead)));
    }

    fn name(&self) -> String {
        format!("{WORKERS}/{}.json", self.worker)
    }

    fn store_progress(&self) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(json) = latest.and_then(|progress| commit::json(&progress).ok()) else { return };
        let _ = self.outputs.store.replace(&self.name(), &json);
    }
}
