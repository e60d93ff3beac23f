//! The calls of a version, while an engine ends again and again.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use outrigger_core::{Failure, Reason};
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{Instant, timeout_at},
};

/// The calls of one version. Costs a call one load of a flag, unless the version is suspected of
/// ending its engine.
#[derive(Debug, Default)]
pub struct Flight {
    /// The last time at which the engine was lost during a call.
    lost: Arc<Mutex<Option<Instant>>>,
    is_suspect: AtomicBool,
    turns: Arc<Turns>,
}

/// The turns of all versions in one engine that are suspected of ending it by a call.
#[derive(Debug)]
pub struct Turns {
    phase: watch::Sender<Phase>,
    /// One call at a time.
    apart: Semaphore,
    /// True if a call in its turn was lost, and the engine has not answered one since. A call that
    /// is lost now was sent after the engine's end, on a connection that did not show it yet.
    has_ended: AtomicBool,
}

/// The turn of one call of a suspected version.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    _permit: SemaphorePermit<'a>,
}

/// The rule for calls of suspected versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Calls run as always.
    #[default]
    Free,
    /// One call runs at a time, so that a crash shows the version that caused it.
    Apart,
    /// Calls wait, because suspected versions are being loaded.
    Closed,
}

impl Default for Turns {
    fn default() -> Self {
        let (phase, apart) = (watch::Sender::default(), Semaphore::new(1));
        Self { phase, apart, has_ended: AtomicBool::new(false) }
    }
}

impl Turns {
    /// Changes the rule.
    pub fn set(&self, phase: Phase) {
        self.phase.send_if_modified(|current| std::mem::replace(current, phase) != phase);
    }

    /// Records that the engine has come back after its end.
    pub fn restarted(&self) {
        self.has_ended.store(false, Relaxed);
    }
}

impl Turn<'_> {
    /// Records that the engine has answered the call.
    pub(crate) fn answered(&self) {
        self.turns.has_ended.store(false, Relaxed);
    }

    /// Records that the engine was lost during the call. Returns true if no other call was lost in
    /// its turn before: then the engine had this one at its end.
    fn lose(&self) -> bool {
        !self.turns.has_ended.swap(true, Relaxed)
    }
}

impl Flight {
    /// The calls of a version in the engine of `turns`.
    pub fn new(turns: Arc<Turns>) -> Self {
        Self { turns, ..Self::default() }
    }

    /// The calls by which the same version is checked: they never wait.
    #[must_use]
    pub fn unhindered(&self) -> Self {
        Self { lost: Arc::clone(&self.lost), ..Self::default() }
    }

    /// Sets whether the version is suspected of ending its engine by a call.
    pub fn suspect(&self, is_suspect: bool) {
        self.is_suspect.store(is_suspect, Relaxed);
    }

    /// Takes the last time at which the engine was lost during a call.
    pub fn take_lost(&self) -> Option<Instant> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Records that the engine was lost during a call of the version, which ran in `turn` if it had
    /// to wait for one.
    pub(crate) fn lose(&self, turn: Option<&Turn<'_>>) {
        if turn.is_none_or(Turn::lose) {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    /// Waits until a call may run.
    pub(crate) async fn turn(&self, deadline: Instant) -> Result<Option<Turn<'_>>, Failure> {
        if !self.is_suspect.load(Relaxed) {
            return Ok(None);
        }
        let turn = timeout_at(deadline, self.suspects_turn()).await;
        turn.map_err(|_| {
            let message =
                "the version is suspected of ending the engine, and its turn did not come";
            Failure::new(Reason::EngineUnavailable, message)
        })
    }

    async fn suspects_turn(&self) -> Option<Turn<'_>> {
        let mut phase = self.turns.phase.subscribe();
        // The sender lives as long as this value, so the wait does not fail.
        let now = phase.wait_for(|phase| *phase != Phase::Closed).await;
        match now.map_or(Phase::Free, |phase| *phase) {
            Phase::Apart => {
                // The semaphore is never closed.
                let permit = self.turns.apart.acquire().await.ok()?;
                Some(Turn { turns: &self.turns, _permit: permit })
            }
            Phase::Free | Phase::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{FutureExt as _, poll};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn suspects() -> (Arc<Turns>, [Flight; 2]) {
        let turns = Arc::<Turns>::default();
        let flights = [0, 1].map(|_| Flight::new(Arc::clone(&turns)));
        flights.iter().for_each(|flight| flight.suspect(true));
        (turns, flights)
    }

    #[tokio::test]
    async fn suspects_run_one_at_a_time_and_others_as_always() {
        let (turns, [one, other]) = suspects();
        turns.set(Phase::Apart);
        let turn = one.turn(soon()).await.expect("free");
        assert!(turn.is_some());
        assert!(other.turn(soon()).now_or_never().is_none(), "it waits");
        assert!(Flight::new(Arc::clone(&turns)).turn(soon()).now_or_never().is_some());
        assert!(other.unhindered().turn(soon()).now_or_never().is_some());
        drop(turn);
        assert!(other.turn(soon()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn calls_wait_while_suspects_are_loaded() {
        let (turns, [one, other]) = suspects();
        turns.set(Phase::Closed);
        let mut waiting = [one.turn(soon()).boxed(), other.turn(soon()).boxed()];
        for call in &mut waiting {
            assert!(poll!(call).is_pending());
        }
        turns.set(Phase::Free);
        for call in waiting {
            assert!(call.await.expect("free").is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_turn_does_not_come_fails_at_its_deadline() {
        let (turns, [one, _]) = suspects();
        turns.set(Phase::Closed);
        let failure = one.turn(soon()).await.expect_err("closed");
        assert_eq!(failure.reason, Reason::EngineUnavailable);
    }

    #[tokio::test]
    async fn after_an_answer_or_a_restart_the_next_lost_call_counts_again() {
        let (turns, [one, _]) = suspects();
        turns.set(Phase::Apart);
        let lose = async || {
            let turn = one.turn(soon()).await.expect("free");
            one.lose(turn.as_ref());
            one.take_lost().is_some()
        };
        assert!(lose().await && !lose().await);
        one.turn(soon()).await.expect("free").iter().for_each(Turn::answered);
        assert!(lose().await && !lose().await);
        turns.restarted();
        assert!(lose().await);
    }

    #[test]
    fn a_loss_during_a_check_counts_for_the_version() {
        let flight = Flight::default();
        flight.unhindered().lose(None);
        assert!(flight.take_lost().is_some());
        assert_eq!(flight.take_lost(), None, "it was taken");
    }
}
