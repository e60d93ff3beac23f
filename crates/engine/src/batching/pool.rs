//! The threads that run batches, and the queues that they take them from.

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::Bound::{Excluded, Unbounded},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use super::{
    Rules,
    queue::{Batch, Queue},
    task::{self, Task},
};
use crate::status::Status;

/// Names a queue of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId(u64);

/// Threads that run the batches of all models. They end when the pool is dropped.
pub struct Pool(Arc<Shared>);

struct Shared {
    queues: Mutex<Queues<Task>>,
    /// Notified when a thread may find something to do.
    changed: Condvar,
}

/// Queues that have their turns one after the other.
struct Queues<T> {
    queues: BTreeMap<QueueId, Queue<T>>,
    /// The queue that had the last turn.
    last: QueueId,
    /// The newest queue.
    newest: QueueId,
    is_stopped: bool,
}

/// The next work of a thread.
enum Work<T> {
    Run(Batch<T>),
    /// A batch is run at this time, if nothing changes before.
    WaitUntil(Instant),
    Wait,
}

impl Pool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(threads: usize) -> io::Result<Self> {
        let queues = Mutex::new(Queues::new());
        let pool = Self(Arc::new(Shared { queues, changed: Condvar::new() }));
        for _ in 0..threads {
            let shared = Arc::clone(&pool.0);
            thread::Builder::new().name("batch".to_owned()).spawn(move || shared.work())?;
        }
        Ok(pool)
    }

    /// Creates a queue.
    pub(super) fn open(&self, rules: Arc<Rules>) -> QueueId {
        self.0.lock().open(rules)
    }

    /// Removes a queue, which must be empty.
    pub(super) fn close(&self, queue: QueueId) {
        self.0.lock().queues.remove(&queue);
    }

    /// Puts a request of `rows` rows into an open queue.
    pub(super) fn push(&self, queue: QueueId, task: Arc<Task>, rows: usize) -> Result<(), Status> {
        let now = Instant::now();
        let mut queues = self.0.lock();
        queues.queues.get_mut(&queue).expect("the queue is open").push(task, rows, now)?;
        self.0.changed.notify_one();
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues<Task>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of one thread.
    fn work(&self) {
        let mut queues = self.lock();
        while !queues.is_stopped {
            let now = Instant::now();
            queues = match queues.next(now) {
                Work::Run(batch) => {
                    drop(queues);
                    // Another thread may have waited for this batch only.
                    self.changed.notify_one();
                    // The requests are dropped without the lock, which the last use of a version
                    // takes. After a panic their callers see that the senders are gone.
                    let run = AssertUnwindSafe(move || task::run(batch.pieces));
                    if catch_unwind(run).is_err() {
                        tracing::error!("the run of a batch panicked");
                    }
                    self.lock()
                }
                Work::WaitUntil(time) => {
                    let wait = time.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(queues, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Work::Wait => self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.0.changed.notify_all();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("queues", &self.0.lock().queues.len()).finish()
    }
}

impl<T> Queues<T> {
    fn new() -> Self {
        let (last, newest) = (QueueId::default(), QueueId::default());
        Self { queues: BTreeMap::new(), last, newest, is_stopped: false }
    }

    fn open(&mut self, rules: Arc<Rules>) -> QueueId {
        self.newest.0 += 1;
        self.queues.insert(self.newest, Queue::new(rules));
        self.newest
    }

    /// The batch of the next queue in turn that has one to run.
    fn next(&mut self, now: Instant) -> Work<T> {
        let after = self.queues.range((Excluded(self.last), Unbounded));
        let before = self.queues.range(..=self.last);
        let is_ready = |queue: &Queue<T>| queue.ready_at().is_some_and(|time| time <= now);
        let next = after.chain(before).find(|(_, queue)| is_ready(queue)).map(|(id, _)| *id);
        if let Some(batch) = next.and_then(|id| self.queues.get_mut(&id)?.pop(now)) {
            self.last = next.unwrap_or_default();
            return Work::Run(batch);
        }
        let soonest = self.queues.values().filter_map(Queue::ready_at).min();
        soonest.map_or(Work::Wait, Work::WaitUntil)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::Parameters, *};

    #[test]
    fn queues_have_their_turns_one_after_the_other() {
        let parameters = Parameters {
            max_batch_size: 1,
            batch_timeout_micros: 1_000_000,
            ..Parameters::default()
        };
        let rules = Arc::new(parameters.rules().expect("valid"));
        let (mut queues, now) = (Queues::new(), Instant::now());
        let ids = [(); 3].map(|()| queues.open(Arc::clone(&rules)));
        for (index, name) in [(0, "a1"), (0, "a2"), (0, "a3"), (1, "b1"), (2, "c1"), (2, "c2")] {
            let queue = queues.queues.get_mut(&ids[index]).expect("open");
            queue.push(Arc::new(name), 1, now).expect("there is room");
        }
        let next = |queues: &mut Queues<_>| match queues.next(now) {
            Work::Run(batch) => Some(*batch.pieces[0].task),
            Work::Wait => None,
            Work::WaitUntil(_) => panic!("every batch is full"),
        };
        let order: Vec<_> = std::iter::from_fn(|| next(&mut queues)).collect();
        assert_eq!(order, ["a1", "b1", "c1", "a2", "c2", "a3"]);
    }

    #[test]
    fn a_thread_waits_for_the_first_batch_that_is_due() {
        let (mut queues, now) = (Queues::new(), Instant::now());
        for seconds in [3_i64, 1, 2] {
            let batch_timeout_micros = seconds * 1_000_000;
            let parameters = Parameters { batch_timeout_micros, ..Parameters::default() };
            let id = queues.open(Arc::new(parameters.rules().expect("valid")));
            let queue = queues.queues.get_mut(&id).expect("open");
            queue.push(Arc::new(()), 1, now).expect("there is room");
        }
        let Work::WaitUntil(time) = queues.next(now) else { panic!("none is due") };
        assert_eq!(time, now + Duration::from_secs(1));
        assert!(matches!(queues.next(time), Work::Run(_)));
    }
}
