//! The turns of calls to the engine: predictions come first.

use std::{sync::Arc, time::Duration};

use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::Load;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{
    admission::Admission,
    spare::{Spare, YIELD},
};

/// A run whose turn does not come for this long is refused.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The turns of calls. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    spare: Spare,
    calls: Arc<Semaphore>,
    most: usize,
}

impl Turns {
    /// Turns for `most` calls at once, beside predictions that `threads` serve.
    pub(super) fn new(admission: Admission, most: u32, threads: usize) -> Self {
        let (spare, most) = (Spare::new(admission, threads), most as usize);
        Self { spare, calls: Arc::new(Semaphore::new(most)), most }
    }

    /// The most calls at once.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Waits until a call to the version of `load` may be made: no prediction waits, and there are
    /// few in progress or it has yielded to them for a while.
    ///
    /// # Errors
    /// `OVERLOADED`: predictions had to wait all the time.
    pub(super) async fn next(&self, load: &Load) -> Result<SemaphorePermit<'_>, Failure> {
        // The semaphore is never closed.
        let turn = self.calls.acquire().await.map_err(|_| refused())?;
        timeout(PATIENCE, self.spare.opens(Some(load), 0, YIELD)).await.map_err(|_| refused())?;
        Ok(turn)
    }
}

fn refused() -> Failure {
    let message = format!("predictions had to wait for {PATIENCE:.0?}, and they come first");
    Failure::new(Reason::Overloaded, message)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use outrigger_budget::Budget;
    use tokio::time::Instant;

    use super::*;
    use crate::{caller::Peer, limits::Limit, metrics};

    /// Turns for one call, beside `places` for predictions on two threads.
    fn turns(places: u32) -> (Turns, Admission) {
        let per_caller = Limit::new(0, "one caller", metrics::Limit::Caller);
        let admission = Admission::new((places, 1), per_caller, Budget::default().requests);
        (Turns::new(admission.clone(), 1, 2), admission)
    }

    fn peer() -> Peer {
        Peer::new(([127, 0, 0, 1], 1).into(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_gives_way_to_predictions_that_wait_and_is_refused_at_last() {
        let ((turns, admission), load) = (turns(1), Load::default());
        let seat = admission.enter(&peer().party(), &peer()).expect("a place");
        let began = Instant::now();
        let failure = turns.next(&load).await.expect_err("all places are taken");
        assert_eq!(failure.reason, Reason::Overloaded);
        assert!(began.elapsed() >= PATIENCE);
        drop(seat);
        assert!(turns.next(&load).now_or_never().is_some_and(|turn| turn.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_yields_to_predictions_in_progress_for_a_while() {
        let ((turns, admission), load) = (turns(2), Load::default());
        let _seat = admission.enter(&peer().party(), &peer()).expect("a place");
        let began = Instant::now();
        drop(turns.next(&load).await.expect("a turn"));
        assert!((YIELD..PATIENCE).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn there_are_as_many_calls_at_once_as_allowed() {
        let ((turns, _), load) = (turns(2), Load::default());
        let first = turns.next(&load).await.expect("a turn");
        assert!(turns.next(&load).now_or_never().is_none());
        drop(first);
        assert!(turns.next(&load).now_or_never().is_some());
    }
}
