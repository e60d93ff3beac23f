//! Priorities: a caller can lower that of its own requests, such as those of a batch job. They run
//! only in the room that other predictions leave, and are the first to be refused.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::http::HeaderMap;
use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::Load;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    admission::Admission,
    metrics::{self, Limit},
    spare::{Spare, YIELD},
};

/// The header, over gRPC the metadata, that lowers the priority of a request.
pub(crate) const HEADER: &str = "outrigger-priority";
/// Its only value.
pub(crate) const BATCH: &str = "batch";

/// The priority of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Somebody waits for the answer.
    Online,
    /// It gives way to all others.
    Batch,
}

impl Priority {
    /// The priority that the headers of a request ask for.
    ///
    /// # Errors
    /// `REQUEST_MALFORMED`: there is no such priority.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        match headers.get(HEADER) {
            None => Ok(Self::Online),
            Some(value) if value == BATCH => Ok(Self::Batch),
            Some(_) => {
                let problem = format!("must be {BATCH:?}, or absent");
                Err(Failure::of_field(Reason::RequestMalformed, HEADER, &problem))
            }
        }
    }
}

/// The time for which requests of low priority give way to others in pieces after one was in
/// progress.
const LATELY: Duration = Duration::from_secs(10);

/// The places of requests of low priority. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Low {
    spare: Spare,
    places: Arc<Semaphore>,
    others: Arc<Others>,
}

/// The other requests, as those of low priority have seen them.
#[derive(Debug, Default)]
struct Others {
    /// The number of requests of low priority in progress.
    low: AtomicU32,
    /// The last time at which another request was in progress.
    seen: Mutex<Option<Instant>>,
}

/// The place of a request of low priority, free again when dropped.
#[derive(Debug)]
pub(crate) struct LowPlace {
    low: Low,
    _permit: OwnedSemaphorePermit,
}

impl Low {
    /// Places beside predictions that `threads` serve.
    pub(crate) fn new(admission: Admission, threads: usize) -> Self {
        let spare = Spare::new(admission, threads);
        let places = Arc::new(Semaphore::new(spare.few() as usize));
        Self { spare, places, others: Arc::default() }
    }

    /// Waits for a place, and until other predictions leave room; `None` only if there are no places
    /// any more.
    pub(crate) async fn place(&self) -> Option<LowPlace> {
        self.look();
        let permit = Arc::clone(&self.places).acquire_owned().await.ok()?;
        self.spare.opens(None, 0, YIELD).await;
        self.others.low.fetch_add(1, Relaxed);
        Some(LowPlace { low: self.clone(), _permit: permit })
    }

    /// True if other predictions are in progress, or were lately.
    pub(crate) fn has_others(&self) -> bool {
        self.look();
        self.seen().is_some_and(|seen| seen.elapsed() < LATELY)
    }

    /// Waits until other predictions leave room for the next piece of a request in progress, which
    /// uses the version of `load`. It yields to them for at most `patience`; returns what is left of
    /// that.
    pub(crate) async fn room_for_more(&self, load: &Load, patience: Duration) -> Duration {
        self.look();
        let began = Instant::now();
        self.spare.opens(Some(load), 1, patience).await;
        patience.saturating_sub(began.elapsed())
    }

    /// Remembers that others are in progress, if they are.
    fn look(&self) {
        if self.spare.in_progress() > self.others.low.load(Relaxed) {
            *self.seen() = Some(Instant::now());
        }
    }

    fn seen(&self) -> MutexGuard<'_, Option<Instant>> {
        self.others.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LowPlace {
    fn drop(&mut self) {
        self.low.look();
        self.low.others.low.fetch_sub(1, Relaxed);
    }
}

/// The failure of a request of low priority that found no room, which is counted.
pub(crate) fn refusal() -> Failure {
    metrics::refused(Limit::Priority);
    let message = format!(
        "other predictions left no room until the deadline, and this one has {HEADER}: {BATCH}"
    );
    Failure::new(Reason::Overloaded, message)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use outrigger_budget::Budget;

    use super::*;
    use crate::{admission::Seat, caller::Peer, limits};

    /// Two places of low priority, beside `places` for predictions on four threads.
    fn low(places: u32) -> (Low, Admission) {
        let per_caller = limits::Limit::new(0, "one caller", Limit::Caller);
        let admission = Admission::new((places, 1), per_caller, Budget::default().requests);
        (Low::new(admission.clone(), 4), admission)
    }

    fn peer() -> Peer {
        Peer::new(([127, 0, 0, 1], 1).into(), None)
    }

    fn seat(admission: &Admission) -> Seat {
        admission.enter(&peer().party(), &peer()).expect("a place")
    }

    fn of(value: Option<&'static str>) -> Result<Priority, Reason> {
        let value = value.map(|value| (HEADER.parse().unwrap(), value.parse().unwrap()));
        Priority::of(&value.into_iter().collect()).map_err(|failure| failure.reason)
    }

    #[test]
    fn a_priority_is_batch_or_absent() {
        assert_eq!(of(None), Ok(Priority::Online));
        assert_eq!(of(Some("batch")), Ok(Priority::Batch));
        for other in ["", "high", "Batch", "batch, batch"] {
            assert_eq!(of(Some(other)), Err(Reason::RequestMalformed), "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_while_all_places_for_predictions_are_taken() {
        let (low, admission) = low(1);
        let seat = seat(&admission);
        let mut waiting = Box::pin(low.place());
        tokio::time::sleep(YIELD * 10).await;
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(seat);
        assert!(waiting.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_came_later_at_a_higher_priority_comes_first() {
        let (low, admission) = low(1);
        let first = seat(&admission);
        let mut waiting = Box::pin(low.place());
        assert!(waiting.as_mut().now_or_never().is_none());
        let mut later = admission.enter(&peer().party(), &peer()).expect_err("it waits");
        drop(first);
        let later = later.admitted().await.expect("a place");
        tokio::time::sleep(YIELD * 10).await;
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(later);
        assert!(waiting.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_yields_for_a_while_if_more_than_a_few_are_in_progress() {
        let (low, admission) = low(8);
        let few = seat(&admission);
        assert!(low.place().now_or_never().is_some(), "one leaves room");
        let more = seat(&admission);
        let began = Instant::now();
        low.place().await.expect("a place");
        assert!(began.elapsed() >= YIELD, "{:?}", began.elapsed());
        drop((few, more));
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_those_that_do_not_give_way_and_are_forgotten_after_a_while() {
        let (low, admission) = low(8);
        let (place, own) = (low.place().await.expect("a place"), seat(&admission));
        assert!(!low.has_others(), "the only one in progress has the place");
        let other = seat(&admission);
        assert!(low.has_others());
        drop((other, own, place));
        tokio::time::advance(LATELY - Duration::from_secs(1)).await;
        assert!(low.has_others());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!low.has_others());
    }

    #[tokio::test(start_paused = true)]
    async fn all_pieces_of_a_request_yield_to_others_for_one_while() {
        let ((low, admission), load) = (low(8), Load::default());
        let _own = (low.place().await.expect("a place"), seat(&admission));
        let first = seat(&admission);
        assert_eq!(low.room_for_more(&load, YIELD).now_or_never(), Some(YIELD), "one is few");
        let second = seat(&admission);
        let began = Instant::now();
        let left = low.room_for_more(&load, YIELD).await;
        assert!(began.elapsed() >= YIELD, "{:?}", began.elapsed());
        assert_eq!(left, Duration::ZERO);
        assert_eq!(low.room_for_more(&load, left).now_or_never(), Some(left));
        drop((first, second));
    }

    #[tokio::test]
    async fn there_are_few_requests_at_once() {
        let (low, _) = low(8);
        let places = [low.place().await, low.place().await];
        assert!(low.place().now_or_never().is_none());
        drop(places);
        assert!(low.place().now_or_never().is_some());
    }
}
