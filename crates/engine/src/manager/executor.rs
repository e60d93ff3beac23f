//! Worker threads for loads and unloads.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
};

use super::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs in order on at most `limit` threads; if the limit is zero, the caller runs
/// them. Idle threads end.
pub(super) struct Executor {
    name: &'static str,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    limit: usize,
    running: usize,
    waiting: VecDeque<Job>,
}

impl Executor {
    pub(super) fn new(name: &'static str, limit: usize) -> Self {
        Self { name, shared: Arc::new(Mutex::new(Shared { limit, ..Shared::default() })) }
    }

    /// Changes the limit for later jobs.
    pub(super) fn resize(&self, limit: usize) {
        lock(&self.shared).limit = limit;
    }

    /// Runs `job` now, or when a thread is free.
    pub(super) fn run(&self, job: Job) {
        let mut shared = lock(&self.shared);
        if shared.limit == 0 {
            drop(shared);
            return job();
        }
        shared.waiting.push_back(job);
        if shared.running < shared.limit {
            shared.running += 1;
            drop(shared);
            self.spawn();
        }
    }

    fn spawn(&self) {
        let worker = Worker { shared: Arc::clone(&self.shared), counted: true };
        let spawned = thread::Builder::new().name(self.name.into()).spawn(move || worker.work());
        // The worker is dropped with the failed spawn; the next job starts another.
        if let Err(error) = spawned {
            tracing::error!(%error, thread.name = self.name, "no thread could be started");
        }
    }
}

/// A worker thread.
struct Worker {
    shared: Arc<Mutex<Shared>>,
    /// True if `running` includes this worker.
    counted: bool,
}

impl Worker {
    fn work(mut self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a load or unload panicked");
            }
        }
    }

    /// The next job. If there is none, the worker is subtracted from `running` under the
    /// same lock, so that a job that is queued afterwards starts a new thread.
    fn next(&mut self) -> Option<Job> {
        let mut shared = lock(&self.shared);
        let job = shared.waiting.pop_front();
        if job.is_none() {
            shared.running -= 1;
            self.counted = false;
        }
        job
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.counted {
            lock(&self.shared).running -= 1;
        }
    }
}
