//! The calls of a version, while an engine ends again and again or does not answer.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_core::{Failure, Reason};
use outrigger_run::RunError;
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{Instant, sleep_until, timeout_at},
};

/// The time that a call to an engine which has been given up gets all the same: it may be back.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of one version. Costs a call one load of a flag, unless the version is suspected of
/// ending its engine.
#[derive(Debug, Default)]
pub struct Flight {
    cuts: Arc<Mutex<Cuts>>,
    is_suspect: AtomicBool,
    turns: Arc<Turns>,
}

/// The last times at which calls of a version ended without an answer of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cuts {
    /// The engine was lost during a call.
    pub lost: Option<Instant>,
    /// The caller ceased to wait: the engine may have gone on.
    pub abandoned: Option<Instant>,
}

/// An engine does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The failure of its calls.
    pub failure: Failure,
    /// True if calls do not wait for it any more.
    pub is_over_patience: bool,
}

/// The rules for the calls of all versions in one engine: the turns of those that are suspected of
/// ending it by a call, and the end of all calls while it does not answer.
#[derive(Debug)]
pub struct Turns {
    outage: watch::Sender<Option<Outage>>,
    phase: watch::Sender<Phase>,
    /// One call at a time.
    apart: Semaphore,
    /// True if a call in its turn was lost, and the engine has not answered one since. A call that
    /// is lost now was sent after the engine's end, on a connection that did not show it yet.
    has_ended: AtomicBool,
}

/// A call that may be in the engine. A call that is dropped before its end counts as abandoned.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    flight: &'a Flight,
    /// The turn of the call, if suspected versions make one call at a time.
    turn: Option<SemaphorePermit<'a>>,
    is_over: bool,
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
        Self {
            outage: watch::Sender::default(),
            phase: watch::Sender::default(),
            apart: Semaphore::new(1),
            has_ended: AtomicBool::new(false),
        }
    }
}

impl Turns {
    /// Changes the rule.
    pub fn set(&self, phase: Phase) {
        self.phase.send_if_modified(|current| std::mem::replace(current, phase) != phase);
    }

    /// Records whether the engine answers.
    pub fn set_outage(&self, outage: Option<Outage>) {
        self.outage.send_if_modified(|current| {
            let is_new = *current != outage;
            *current = outage;
            is_new
        });
    }

    /// Waits until calls do not wait for the engine any more, and returns its failure.
    async fn given_up(&self) -> Failure {
        let mut outage = self.outage.subscribe();
        // The sender lives as long as this value, so the wait does not fail.
        let is_over =
            |outage: &Option<Outage>| outage.as_ref().is_some_and(|it| it.is_over_patience);
        let over = outage.wait_for(is_over).await.ok().and_then(|over| over.clone());
        over.expect("the engine is away").failure
    }

    /// Records that the engine has come back after its end.
    pub fn restarted(&self) {
        self.has_ended.store(false, Relaxed);
    }
}

impl InFlight<'_> {
    /// The result of a run, or the failure of its engine, if that is given up meanwhile.
    pub(crate) async fn result_of<T>(
        &self,
        run: impl Future<Output = Result<T, RunError>>,
    ) -> Result<T, RunError> {
        let turns = &self.flight.turns;
        let given_up = async {
            let latest = Instant::now() + GRACE;
            loop {
                let failure = turns.given_up().await;
                if Instant::now() >= latest {
                    return failure;
                }
                sleep_until(latest).await;
            }
        };
        tokio::select! {
            biased;
            result = run => result,
            failure = given_up => Err(RunError::NotReady { message: failure.message }),
        }
    }

    /// Records the end of the call.
    pub(crate) fn end<T>(mut self, result: &Result<T, RunError>) {
        let (has_turn, has_ended) = (self.turn.is_some(), &self.flight.turns.has_ended);
        if result.is_ok() && self.flight.turns.outage.borrow().is_some() {
            // It answers calls, though not the questions about its state.
            self.flight.turns.set_outage(None);
        }
        match result {
            Ok(_) if has_turn => has_ended.store(false, Relaxed),
            // The engine had this call at its end, unless another one was lost in its turn before.
            Err(RunError::Lost { .. }) if !has_turn || !has_ended.swap(true, Relaxed) => {
                self.flight.cuts().lost = Some(Instant::now());
            }
            _ => {}
        }
        self.is_over = !matches!(result, Err(RunError::DeadlineExceeded));
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.flight.cuts().abandoned = Some(Instant::now());
        }
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
        Self { cuts: Arc::clone(&self.cuts), ..Self::default() }
    }

    /// The failure of the engine, while it does not answer.
    pub fn outage(&self) -> Option<Failure> {
        self.turns.outage.borrow().as_ref().map(|outage| outage.failure.clone())
    }

    /// Waits until calls do not wait for the engine any more, and returns its failure.
    pub async fn given_up(&self) -> Failure {
        self.turns.given_up().await
    }

    /// Sets whether the version is suspected of ending its engine by a call.
    pub fn suspect(&self, is_suspect: bool) {
        self.is_suspect.store(is_suspect, Relaxed);
    }

    /// Takes the last times at which calls ended without an answer.
    pub fn take_cuts(&self) -> Cuts {
        std::mem::take(&mut *self.cuts())
    }

    fn cuts(&self) -> MutexGuard<'_, Cuts> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a call may run.
    pub(crate) async fn enter(&self, deadline: Instant) -> Result<InFlight<'_>, Failure> {
        let turn = match self.is_suspect.load(Relaxed) {
            true => self.turn(deadline).await?,
            false => None,
        };
        Ok(InFlight { flight: self, turn, is_over: false })
    }

    async fn turn(&self, deadline: Instant) -> Result<Option<SemaphorePermit<'_>>, Failure> {
        let turn = timeout_at(deadline, self.suspects_turn()).await;
        turn.map_err(|_| {
            let message =
                "the version is suspected of ending the engine, and its turn did not come";
            Failure::new(Reason::EngineUnavailable, message)
        })
    }

    async fn suspects_turn(&self) -> Option<SemaphorePermit<'_>> {
        let mut phase = self.turns.phase.subscribe();
        // The sender lives as long as this value, so the wait does not fail.
        let now = phase.wait_for(|phase| *phase != Phase::Closed).await;
        match now.map_or(Phase::Free, |phase| *phase) {
            // The semaphore is never closed.
            Phase::Apart => self.turns.apart.acquire().await.ok(),
            Phase::Free | Phase::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::{FutureExt as _, poll};
    use outrigger_core::causes;
    use tokio::time::sleep;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn lost() -> Result<(), RunError> {
        Err(RunError::Lost { inputs: Vec::new(), source: "the connection was closed".into() })
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
        let call = one.enter(soon()).await.expect("free");
        assert!(call.turn.is_some());
        assert!(other.enter(soon()).now_or_never().is_none(), "it waits");
        assert!(Flight::new(Arc::clone(&turns)).enter(soon()).now_or_never().is_some());
        assert!(other.unhindered().enter(soon()).now_or_never().is_some());
        drop(call);
        assert!(other.enter(soon()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn calls_wait_while_suspects_are_loaded() {
        let (turns, [one, other]) = suspects();
        turns.set(Phase::Closed);
        let mut waiting = [one.enter(soon()).boxed(), other.enter(soon()).boxed()];
        for call in &mut waiting {
            assert!(poll!(call).is_pending());
        }
        turns.set(Phase::Free);
        for call in waiting {
            assert!(call.await.expect("free").turn.is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_turn_does_not_come_fails_at_its_deadline() {
        let (turns, [one, _]) = suspects();
        turns.set(Phase::Closed);
        let failure = one.enter(soon()).await.expect_err("closed");
        assert_eq!(failure.reason, Reason::EngineUnavailable);
    }

    #[tokio::test]
    async fn after_an_answer_or_a_restart_the_next_lost_call_counts_again() {
        let (turns, [one, _]) = suspects();
        turns.set(Phase::Apart);
        let lose = async || {
            one.enter(soon()).await.expect("free").end(&lost());
            one.take_cuts().lost.is_some()
        };
        assert!(lose().await && !lose().await);
        one.enter(soon()).await.expect("free").end(&Ok(()));
        assert!(lose().await && !lose().await);
        turns.restarted();
        assert!(lose().await);
    }

    #[tokio::test]
    async fn a_loss_during_a_check_counts_for_the_version() {
        let flight = Flight::default();
        flight.unhindered().enter(soon()).await.expect("free").end(&lost());
        assert!(flight.take_cuts().lost.is_some());
        assert_eq!(flight.take_cuts(), Cuts::default(), "they were taken");
    }

    #[tokio::test]
    async fn a_call_is_abandoned_if_its_caller_ceases_to_wait_before_an_answer() {
        let flight = Flight::default();
        let enter = async || flight.enter(soon()).await.expect("free");
        let is_abandoned = || flight.take_cuts().abandoned.is_some();
        drop(enter().await);
        assert!(is_abandoned());
        enter().await.end::<()>(&Err(RunError::DeadlineExceeded));
        assert!(is_abandoned());
        enter().await.end(&Ok(()));
        enter().await.end::<()>(&Err(RunError::Overloaded));
        assert!(!is_abandoned());
    }

    fn outage(is_over_patience: bool) -> Option<Outage> {
        let failure = Failure::new(Reason::EngineUnavailable, "nothing listens");
        Some(Outage { failure, is_over_patience })
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_when_its_engine_is_given_up() {
        let (turns, [one, _]) = suspects();
        let call = one.enter(soon()).await.expect("free");
        let mut run = Box::pin(call.result_of(pending::<Result<(), RunError>>()));
        turns.set_outage(outage(false));
        assert!(poll!(&mut run).is_pending());
        sleep(GRACE).await;
        turns.set_outage(outage(true));
        let began = Instant::now();
        let error = run.await.expect_err("given up");
        assert_eq!((error.reason(), began.elapsed()), (Reason::EngineUnavailable, Duration::ZERO));
        assert!(causes(&error).contains("nothing listens"), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_to_an_engine_that_was_given_up_has_a_moment_in_which_it_may_be_back() {
        let (turns, [one, _]) = suspects();
        turns.set_outage(outage(true));
        let began = Instant::now();
        let call = one.enter(soon()).await.expect("free");
        call.result_of(pending::<Result<(), RunError>>()).await.expect_err("given up");
        assert_eq!(began.elapsed(), GRACE);
        let slow = async {
            sleep(GRACE / 2).await;
            turns.set_outage(None);
            sleep(GRACE * 9).await;
            Ok(())
        };
        call.result_of(slow).await.expect("it is back");
    }

    #[tokio::test]
    async fn an_engine_that_answers_a_call_is_not_away() {
        let (turns, [one, other]) = suspects();
        turns.set_outage(outage(true));
        one.enter(soon()).await.expect("free").end(&lost());
        assert!(other.outage().is_some());
        one.enter(soon()).await.expect("free").end(&Ok(()));
        assert!(other.outage().is_none());
        assert!(other.given_up().now_or_never().is_none());
    }
}
