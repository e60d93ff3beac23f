//! The periodic work of a worker: it reads the control object, renews the leases, and stores the
//! progress.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    Control, Progress, Watch,
    commit::{self, WORKERS},
    lease::{Leases, RENEWAL},
    memory::Memory,
    plan::Plan,
    readers::{Event, Readers},
    store::Store,
};

/// The time between two readings of the control object.
const INTERVAL: Duration = Duration::from_secs(1);

/// Works once a second, on a thread of its own.
pub(super) struct Steward {
    worker: String,
    rows: u64,
    before: u64,
    store: Store,
    memory: Memory,
    leases: Arc<Leases>,
    events: UnboundedSender<Event>,
    watch: Watch,
    /// The progress that was reported last and is not stored.
    latest: Mutex<Option<Progress>>,
}

impl Steward {
    /// The steward of the worker with this name. `before` is the number of rows that were committed.
    pub(super) fn new(
        worker: &str,
        (plan, before): (&Plan, u64),
        readers: &Readers,
        watch: Watch,
    ) -> Self {
        Self {
            worker: worker.to_owned(),
            rows: plan.scoring.rows(),
            before,
            store: readers.outputs.store.clone(),
            memory: readers.memory.clone(),
            leases: Arc::clone(&readers.leases),
            events: readers.events.clone(),
            watch,
            latest: Mutex::default(),
        }
    }

    /// Takes the progress of the conductor.
    pub(super) fn report(&self, progress: Progress) {
        let (memory, memory_peak) = self.memory.used();
        let (rows, before) = (self.rows, self.before);
        let worker = self.worker.clone();
        let is_store_away = self.store.patience().waiting() > 0;
        let progress =
            Progress { worker, rows, before, memory, memory_peak, is_store_away, ..progress };
        self.watch.set(progress.clone());
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Works until the job ends. Blocks. A store that fails now may work a second later: only what
    /// decides about rows must succeed.
    pub(super) fn run(&self) {
        let mut renewed = Instant::now();
        loop {
            if let Ok(control) = Control::read(&self.store) {
                // A job that has stopped does not listen.
                let _ = self.events.send(Event::Control(control));
            }
            if renewed.elapsed() >= RENEWAL && self.leases.renew().is_ok() {
                renewed = Instant::now();
            }
            if !self.memory.pause(INTERVAL) {
                break;
            }
            self.store_progress();
        }
        // A worker without a report is not at work.
        let _ = self.store.remove(&self.name());
    }

    fn name(&self) -> String {
        format!("{WORKERS}/{}.json", self.worker)
    }

    fn store_progress(&self) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(json) = latest.and_then(|progress| commit::json(&progress).ok()) else { return };
        let _ = self.store.replace(&self.name(), &json);
    }
}
