//! Background work on answered requests. Callers do not wait for it, it is bounded, and it is
//! skipped under overload.

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

/// The limit of bytes of requests held at any time.
const ROOM: usize = 16 << 20;
/// The bytes counted for each request at least, which bounds the number of requests.
const LEAST: usize = 1 << 20;

type Work = BoxFuture<'static, ()>;

/// Accepts background work. Clones share the limit.
#[derive(Debug, Clone)]
pub(crate) struct Aside {
    room: Arc<Semaphore>,
    queue: mpsc::Sender<Work>,
}

/// Runs the background work on answered requests.
#[derive(Debug)]
pub struct Worker(mpsc::Receiver<Work>);

pub(crate) fn aside() -> (Aside, Worker) {
    // The channel has a slot for every work item that gets a permit of the semaphore.
    let (queue, work) = mpsc::channel(ROOM / LEAST);
    (Aside { room: Arc::new(Semaphore::new(ROOM)), queue }, Worker(work))
}

impl Aside {
    /// Queues work on a request of `bytes` bytes. Never waits; returns false if the limit is
    /// reached.
    pub(crate) fn offer<W>(&self, bytes: usize, work: impl FnOnce() -> W) -> bool
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let Ok(room) = u32::try_from(bytes.max(LEAST)) else { return false };
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(room) else { return false };
        let work = work();
        let work = async move {
            work.await;
            drop(room);
        };
        self.queue.try_send(work.boxed()).is_ok()
    }
}

impl Worker {
    /// Runs until the last [`Trials`](crate::Trials) and split are dropped.
    pub async fn run(mut self) {
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                work = self.0.recv() => match work {
                    Some(work) => drop(running.spawn(work)),
                    None => return,
                },
                Some(ended) = running.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "work on an answered request panicked");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_without_room_is_left_out_and_room_comes_back() {
        let (aside, worker) = aside();
        let _working = tokio::spawn(worker.run());
        let (go, wait) = oneshot::channel::<()>();
        assert!(aside.offer(ROOM, || async { drop(wait.await) }));
        assert!(!aside.offer(0, || async {}), "the first has all the room");
        drop(go);
        while !aside.offer(ROOM, || async {}) {
            tokio::task::yield_now().await;
        }
        assert!(!aside.offer(ROOM + 1, || async {}), "more than there ever is");
    }

    #[tokio::test]
    async fn small_ones_are_bounded_by_their_number() {
        let (aside, _worker) = aside();
        let taken = (0..100).filter(|_| aside.offer(1, || async {})).count();
        assert_eq!(taken, ROOM / LEAST);
    }
}
