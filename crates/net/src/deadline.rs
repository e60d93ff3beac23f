//! Deadlines that need no system call.
//!
//! A runtime of tokio sleeps until its next timer. Setting an earlier one wakes it through its
//! eventfd, even from its own thread: a write, and one more `epoll_wait` that returns at once. A
//! request's timers are earlier than all others (pings fire after half a minute) and are dropped
//! when it is answered, so at a moderate rate every request pays for the wake-up. Here the timer
//! stays armed after its request is answered and covers all later deadlines: the runtime is woken
//! once per distinct timeout, not once per request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{
    sync::Notify,
    time::{Instant, Timeout, sleep_until},
};

thread_local! {
    static ALARM: Arc<Alarm> = Arc::default();
}

/// Requires `future` to end before `deadline`, as [`tokio::time::timeout_at`] does, and leaves
/// a timer armed for the deadlines that follow.
///
/// # Panics
/// Outside a tokio runtime.
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    ALARM.with(|alarm| alarm.cover(deadline));
    tokio::time::timeout_at(deadline, future)
}

/// The armed timer of a thread.
#[derive(Debug, Default)]
struct Alarm {
    /// The time at which it fires; `None` if it is not armed.
    at: Mutex<Option<Instant>>,
    /// Notifies the timer's task that it must fire earlier.
    earlier: Notify,
}

impl Alarm {
    /// Makes the timer fire at `deadline` or earlier.
    fn cover(self: &Arc<Self>, deadline: Instant) {
        let mut at = self.at();
        match *at {
            Some(armed) if armed <= deadline => return,
            Some(_) => self.earlier.notify_one(),
            None => drop(tokio::spawn(keep(Armed(Arc::clone(self))))),
        }
        *at = Some(deadline);
    }

    fn at(&self) -> MutexGuard<'_, Option<Instant>> {
        // A poisoned lock is used: a panic of its holder cannot leave the time inconsistent.
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Disarms the timer when dropped, also by the end of the runtime.
struct Armed(Arc<Alarm>);

impl Drop for Armed {
    fn drop(&mut self) {
        *self.0.at() = None;
    }
}

/// Keeps the timer armed until it fires.
async fn keep(armed: Armed) {
    loop {
        let at = *armed.0.at();
        let Some(at) = at else { return };
        tokio::select! {
            () = sleep_until(at) => return,
            () = armed.0.earlier.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, future::pending, sync::mpsc, thread, time::Duration};

    use tokio::{runtime::Handle, sync::mpsc as channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn armed() -> Option<Instant> {
        ALARM.with(|alarm| *alarm.at())
    }

    /// System calls of the calling thread that write.
    fn writes() -> u64 {
        let io = fs::read_to_string("/proc/thread-self/io").expect("Linux counts them");
        let count = io.lines().find_map(|line| line.strip_prefix("syscw: "));
        count.expect("among others").parse().expect("a number")
    }

    /// The writes of 100 waits for an answer of another thread; before each, the runtime
    /// sleeps without a deadline.
    async fn writes_of(wait: impl AsyncFn(Instant, &mut channel::Receiver<()>)) -> u64 {
        let (ask, asked) = mpsc::channel();
        let (answer, mut answered) = channel::channel(1);
        let peer = thread::spawn(move || {
            asked.iter().for_each(|()| answer.blocking_send(()).expect("it is waited for"));
        });
        let before = writes();
        for _ in 0..100 {
            ask.send(()).expect("the peer runs");
            answered.recv().await.expect("an answer");
            ask.send(()).expect("the peer runs");
            wait(Instant::now() + LONG, &mut answered).await;
        }
        let written = writes() - before;
        drop(ask);
        peer.join().expect("no panic");
        written
    }

    #[tokio::test]
    async fn deadlines_are_set_without_system_calls() {
        let ours = writes_of(async |deadline, answered| {
            timeout_at(deadline, answered.recv()).await.expect("in time");
        });
        let theirs = writes_of(async |deadline, answered| {
            tokio::time::timeout_at(deadline, answered.recv()).await.expect("in time");
        });
        let disarm = || ALARM.with(|alarm| alarm.at().take());
        let ours = ours.await;
        assert!(disarm().is_some());
        // A task without deadlines ends and drops its timer.
        ALARM.with(|alarm| alarm.earlier.notify_one());
        let theirs = theirs.await;
        assert!(ours < 10 && theirs > ours + 10, "{ours} writes, {theirs} without the timer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_ends_at_its_deadline() {
        let begun = Instant::now();
        timeout_at(begun + LONG, pending::<()>()).await.expect_err("never ends");
        assert_eq!(begun.elapsed(), LONG);
        timeout_at(begun + LONG, async {}).await.expect("ends at once");
    }

    #[tokio::test(start_paused = true)]
    async fn one_timer_covers_all_later_deadlines() {
        let (begun, metrics) = (Instant::now(), Handle::current().metrics());
        for more in [0, 1, 2] {
            timeout_at(begun + LONG + more * LONG, async {}).await.expect("ends at once");
        }
        assert_eq!((armed(), metrics.num_alive_tasks()), (Some(begun + LONG), 1));
        timeout_at(begun + LONG / 2, async {}).await.expect("ends at once");
        tokio::task::yield_now().await;
        assert_eq!((armed(), metrics.num_alive_tasks()), (Some(begun + LONG / 2), 1));
        tokio::time::sleep(LONG / 2).await;
        tokio::task::yield_now().await;
        assert_eq!((armed(), metrics.num_alive_tasks()), (None, 0));
    }

    #[test]
    fn a_timer_ends_with_its_runtime() {
        for _ in 0..2 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("starts");
            runtime.block_on(async {
                timeout_at(Instant::now() + LONG, async {}).await.expect("ends at once");
            });
            assert!(armed().is_some());
            drop(runtime);
            assert_eq!(armed(), None);
        }
    }
}
