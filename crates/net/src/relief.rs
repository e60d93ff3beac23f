//! Work on the threads of connections, which other threads relieve if the work takes long.
//!
//! Waking another thread costs as much as a short piece of work, so such work is done on the thread
//! that asks for it. The thread leaves its runtime for that time. Once the work has taken [`LONG`],
//! another thread drives the runtime, and the first one ends with its work.

use std::{
    cell::RefCell,
    convert::Infallible,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc as threads,
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;

use crate::Scheduling;

/// The time after which another thread drives the runtime; it may be twice as long.
const LONG: Duration = Duration::from_millis(10);
/// The time between two looks at a thread that had no work since the last one.
const IDLE: Duration = Duration::from_millis(100);

type Work = Box<dyn FnOnce() + Send>;

/// A runtime, which one thread drives at a time.
pub(crate) struct Core {
    pub(crate) runtime: Runtime,
    pub(crate) stop: CancellationToken,
    /// Disconnects when the runtime has ended.
    pub(crate) alive: threads::Sender<Infallible>,
}

/// The parts that the threads of one runtime share.
struct Desk {
    scheduling: Scheduling,
    give: mpsc::UnboundedSender<Work>,
    given: Mutex<mpsc::UnboundedReceiver<Work>>,
    /// The pieces of work that have begun.
    begun: AtomicU64,
    /// The runtime, while nobody drives it.
    left: Mutex<Option<Core>>,
}

thread_local! {
    static DESK: RefCell<Option<Arc<Desk>>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread of [`crate::Workers`], outside of its runtime; on another kind of
/// thread, where it may block. Returns `None` if it panicked.
///
/// Work that has begun goes on if the future is dropped.
pub async fn run_beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let Some(desk) = DESK.with_borrow(Option::clone) else {
        return spawn_blocking(work).await.ok();
    };
    let (send, result) = oneshot::channel();
    let work = move || drop(send.send(work()));
    desk.give.send(Box::new(work)).ok()?;
    drop(desk);
    result.await.ok()
}

/// Drives a runtime until it is stopped.
pub(crate) fn drive(core: Core, scheduling: Scheduling) {
    let (give, given) = mpsc::unbounded_channel();
    let desk = Arc::new(Desk {
        scheduling,
        give,
        given: Mutex::new(given),
        begun: AtomicU64::new(0),
        left: Mutex::new(Some(core)),
    });
    desk.drive();
}

impl Desk {
    /// Drives the runtime, unless another thread does.
    fn drive(self: Arc<Self>) {
        // The error is ignored: the threads work with the default policy too.
        let _ = self.scheduling.apply();
        DESK.set(Some(Arc::clone(&self)));
        while let Some(Core { runtime, stop, alive }) = self.take() {
            let next = runtime.block_on(stop.run_until_cancelled(self.next()));
            let Some(work) = next.flatten() else { return runtime.shutdown_background() };
            let begun = self.begun.fetch_add(1, Relaxed);
            if begun == 0 {
                self.watch();
            }
            *locked(&self.left) = Some(Core { runtime, stop, alive });
            // Its caller sees that it has panicked.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }

    /// Waits for the next piece of work.
    async fn next(&self) -> Option<Work> {
        poll_fn(|context| locked(&self.given).poll_recv(context)).await
    }

    /// Takes the runtime, unless another thread drives it.
    fn take(&self) -> Option<Core> {
        locked(&self.left).take()
    }

    /// Starts the thread that looks for work that takes long.
    fn watch(self: &Arc<Self>) {
        let desk = Arc::downgrade(self);
        let watch = move || {
            let mut seen = 0;
            let mut pause = LONG;
            loop {
                thread::sleep(pause);
                let Some(desk) = Weak::upgrade(&desk) else { return };
                let begun = desk.begun.load(Relaxed);
                let is_same = std::mem::replace(&mut seen, begun) == begun;
                let is_long = is_same && locked(&desk.left).is_some();
                pause = if is_same && !is_long { IDLE } else { LONG };
                if is_long {
                    start(move || desk.drive());
                }
            }
        };
        start(watch);
    }
}

/// Starts a thread. Where none can be started, long work delays others until the next look.
fn start(run: impl FnOnce() + Send + 'static) {
    let _ = thread::Builder::new().name("relief".to_owned()).spawn(run);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workers;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// The result of a task on a thread of a worker.
    fn on_worker<T: Send + 'static>(
        workers: &Workers,
        task: impl Future<Output = T> + Send + 'static,
    ) -> threads::Receiver<T> {
        let (send, result) = threads::channel();
        workers.seats().take().runtime().spawn(async move { send.send(task.await) });
        result
    }

    #[test]
    fn work_is_done_on_the_thread_that_asks_and_may_panic() {
        let workers = Workers::start(1, Scheduling::Normal).unwrap();
        let task = async {
            assert_eq!(run_beside(|| panic!("of the work")).await, None::<()>);
            (thread::current().id(), run_beside(|| thread::current().id()).await)
        };
        let (here, there) = on_worker(&workers, task).recv_timeout(PATIENCE).unwrap();
        assert_eq!(Some(here), there);
    }

    /// Each of two pieces of work ends only after a task that needs the same runtime.
    #[test]
    fn others_are_served_while_work_takes_long() {
        let workers = Workers::start(1, Scheduling::Batch).unwrap();
        let pieces = [0, 1].map(|_| {
            let (end, ended) = threads::channel::<()>();
            (end, on_worker(&workers, run_beside(move || ended.recv_timeout(PATIENCE))))
        });
        let other = on_worker(&workers, async { run_beside(|| 3).await });
        assert_eq!(other.recv_timeout(PATIENCE), Ok(Some(3)));
        for (end, piece) in pieces {
            end.send(()).unwrap();
            assert_eq!(piece.recv_timeout(PATIENCE), Ok(Some(Ok(()))));
        }
        let next = on_worker(&workers, async { run_beside(|| 4).await });
        assert_eq!(next.recv_timeout(PATIENCE), Ok(Some(4)));
        workers.end(PATIENCE);
    }
}
