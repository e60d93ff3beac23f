//! The threads that run calls which may be long.
//!
//! There are as many threads as processors, however many calls there are; and as many of a lower
//! priority, for calls from threads of a lower priority, once there is such a call. Work has parts;
//! the threads take one part of each work in turn, so that a work of few parts does not wait for all
//! parts of another one.

use std::{
    collections::VecDeque,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, LazyLock, Mutex, OnceLock},
    thread::{self, available_parallelism},
};

use rustix::process::getpriority_process;

use super::lock;

/// Work of one or several parts, which may run at the same time.
pub(super) trait Work: Send + Sync + 'static {
    /// True if nobody waits for the remaining parts: they are dropped.
    fn is_over(&self) -> bool;

    /// Runs one of the parts, which are numbered from 0 on. Further work may be given to `queue`.
    fn run(&self, part: usize, queue: &Queue);
}

/// Threads that run work, and as many more that run the work of callers of a lower priority. They
/// end when all clones are dropped, each after its current part.
#[derive(Clone)]
pub(super) struct Pool(Arc<Both>);

struct Both {
    threads: Threads,
    /// The nice value of these threads.
    nice: i32,
    /// The threads of a lower priority. They are started by the first of their callers, whose
    /// priority they have. None if they cannot be created.
    lower: OnceLock<Option<Threads>>,
}

/// Threads with a queue of work.
struct Threads {
    count: usize,
    queue: Arc<Queue>,
}

/// Work with parts that have not begun, in the order of turns.
///
/// Its length is bounded by the number of calls in progress, which the callers limit.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    stopped: bool,
}

struct Entry {
    work: Arc<dyn Work>,
    /// The part that is next, and the number of all parts.
    next: usize,
    parts: usize,
}

impl Pool {
    /// The pool of this process, with a thread for each processor that the process may use, or for
    /// each whole CPU of its quota.
    pub(super) fn of_process() -> Self {
        static POOL: LazyLock<Pool> =
            LazyLock::new(|| Pool::start(available_parallelism().map_or(1, usize::from)));
        POOL.clone()
    }

    /// Starts `count` threads, at least one.
    ///
    /// # Panics
    /// Panics if a thread cannot be created, as at the start of the process.
    pub(super) fn start(count: usize) -> Self {
        let threads = Threads::start("scoring", count.max(1)).expect("threads for scoring");
        Self(Arc::new(Both { threads, nice: nice(), lower: OnceLock::new() }))
    }

    /// The number of threads of each priority.
    pub(super) fn threads(&self) -> usize {
        self.0.threads.count
    }

    /// Adds work of one part, behind all other of the caller's priority.
    pub(super) fn submit(&self, work: Arc<dyn Work>) {
        let Both { threads, nice: usual, lower } = &*self.0;
        let start = || {
            let threads = Threads::start("scoring-low", threads.count);
            let failed = |error| tracing::warn!(%error, "no threads of a lower priority for runs");
            threads.map_err(failed).ok()
        };
        let lower = if nice() > *usual { lower.get_or_init(start).as_ref() } else { None };
        lower.unwrap_or(threads).queue.add(work, 1);
    }
}

/// The nice value of the calling thread: a higher one is a lower priority.
fn nice() -> i32 {
    // Linux has one for each thread. The call does not fail for the calling thread.
    getpriority_process(None).unwrap_or(0)
}

impl Threads {
    /// Starts threads that have the priority of this one.
    ///
    /// # Errors
    /// One cannot be created.
    fn start(name: &str, count: usize) -> io::Result<Self> {
        let threads = Self { count, queue: Arc::default() };
        for number in 0..count {
            let queue = Arc::clone(&threads.queue);
            let thread = thread::Builder::new().name(format!("{name}-{number}"));
            thread.spawn(move || queue.work())?;
        }
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.queue.state).stopped = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// Adds work of `parts` parts, behind all other.
    pub(super) fn add(&self, work: Arc<dyn Work>, parts: usize) {
        if parts == 0 {
            return;
        }
        lock(&self.state).entries.push_back(Entry { work, next: 0, parts });
        if parts == 1 {
            self.changed.notify_one();
        } else {
            self.changed.notify_all();
        }
    }

    /// Runs parts until the pool stops.
    fn work(&self) {
        while let Some((work, part)) = self.take() {
            // A work that panics has no answer. The thread goes on with others.
            let run = || work.run(part, self);
            let _ = catch_unwind(AssertUnwindSafe(run));
        }
    }

    /// Waits for the part that is next. None if the pool stops.
    fn take(&self) -> Option<(Arc<dyn Work>, usize)> {
        let mut state = lock(&self.state);
        while !state.stopped {
            let Some(mut entry) = state.entries.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(|error| error.into_inner());
                continue;
            };
            if entry.work.is_over() {
                // The memory of a large call is freed without the lock.
                drop(state);
                drop(entry);
                state = lock(&self.state);
                continue;
            }
            let part = entry.next;
            entry.next += 1;
            let work = Arc::clone(&entry.work);
            if entry.next < entry.parts {
                state.entries.push_back(entry);
            }
            return Some((work, part));
        }
        None
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
