//! Servables and the leases that keep them in the engine.

mod batch;

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_budget::Charge;
use outrigger_canary::Outcome;
use outrigger_core::{Arm, Digest, EngineId, ModelKey, Selector, ServableId, Tag};
use outrigger_run::Clock;
use outrigger_score::Scorer;
use outrigger_trials::{self as trials, Answered, Chosen, Exposure, OnCanary, Profiled, Split};

pub use batch::Divided;

use crate::{drains::Drains, load::Load, recent::Recent, routes::LastAsked};

/// A version of a model that the engine serves, with the data that requests need.
pub struct Servable {
    /// The model's name and digest.
    pub key: ModelKey,
    /// The digest of the manifest that was pulled; equals the version's digest for a single image.
    pub platform_digest: Digest,
    /// Scores requests with it.
    pub scorer: Scorer,
    /// The distribution of its features in training, if known.
    pub profile: Option<Arc<Profiled>>,
    /// The engine that runs it.
    pub engine: EngineId,
    /// The version's part of an answer, encoded once by the front that writes answers.
    pub described: OnceLock<Box<[u8]>>,
    /// The requests that it is answering.
    pub load: Arc<Load>,
    /// The charge for the plan and the profile, which requests in progress use to their end.
    pub(crate) _memory: Arc<Charge>,
    /// The latest requests of the model, answered by any of its versions.
    pub(crate) recent: Arc<Recent>,
    /// The number of its current route, by which late drains of earlier routes are recognised.
    pub(crate) route: AtomicU64,
    pub(crate) drains: Arc<Drains>,
}

impl fmt::Debug for Servable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servable").field("key", &self.key).field("id", &self.scorer.id).finish()
    }
}

impl trials::Servable for Servable {
    fn key(&self) -> &ModelKey {
        &self.key
    }

    fn scorer(&self) -> &Scorer {
        &self.scorer
    }

    fn profile(&self) -> Option<&Arc<Profiled>> {
        self.profile.as_ref()
    }
}

/// Runs when the last holder, a lease or the routing table, has released the servable.
impl Drop for Servable {
    fn drop(&mut self) {
        self.drains.drained(self.key.clone(), self.route.load(Relaxed));
    }
}

/// The right to use a servable. While the lease lives, the servable stays in the engine, and its
/// selector counts as in use. It should be held until the response is written, and no longer.
#[derive(Debug, Clone)]
pub struct Lease {
    servable: Arc<Servable>,
    tag: Option<Tag>,
    arm: Arm,
    /// The split that it belongs to, with true if its trial counts it.
    split: Option<Arc<Split<Servable>>>,
    counted: bool,
    /// True: the canary had no room for the request, which live answers and the trial leaves out.
    left_out: bool,
    /// True if the latency of the request does not depend on the arms of other users.
    timed: bool,
    /// The user who stands for the request in statistics, by position in the engine's call.
    user: usize,
    exposed: Option<Exposed>,
    /// The call of the canary, if that answers the request.
    on_canary: Option<OnCanary>,
    /// True: if live answers the request, it is stored among the model's recent requests.
    sampled: bool,
    using: Using,
}

/// The exposures to log when a request ends, with the users' positions in the engine's call.
type Exposed = Arc<Vec<(usize, Exposure)>>;

/// The choice of an arm of a canary split.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice<'a> {
    /// The arm of a routing key, for a request that takes part in the trial.
    Counted(&'a str),
    /// The arm of a routing key, for a caller that only inspects.
    Uncounted(&'a str),
    /// The live version, for a request that takes no part in the trial any more.
    Live,
}

/// A lease that was given up, because the engine was lost during a run.
#[derive(Debug)]
pub struct Interrupted {
    pub(crate) key: ModelKey,
    pub(crate) engine: EngineId,
    pub(crate) selector: Selector,
    pub(crate) route: u64,
}

/// Marks a tag or digest as in use: a lease on it lives, or a request waits for it.
#[derive(Debug)]
pub(crate) struct Using {
    asked: Arc<LastAsked>,
    clock: Clock,
}

impl Using {
    pub(crate) fn new(asked: Arc<LastAsked>, clock: Clock) -> Self {
        asked.lease();
        Self { asked, clock }
    }
}

impl Clone for Using {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.asked), self.clock)
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.asked.release(self.clock.now());
    }
}

impl Lease {
    /// Creates a lease on `servable`, found by `selector`.
    pub(crate) fn new(
        servable: Arc<Servable>,
        selector: &Selector,
        asked: &Arc<LastAsked>,
        clock: Clock,
    ) -> Self {
        let (tag, arm) = chosen_by(selector);
        let using = Using::new(Arc::clone(asked), clock);
        Self {
            servable,
            tag,
            arm,
            split: None,
            counted: false,
            left_out: false,
            timed: true,
            user: 0,
            exposed: None,
            on_canary: None,
            sampled: false,
            using,
        }
    }

    /// Creates a lease on an arm of `split`. Only a request that is counted takes part in the trial.
    pub(crate) fn of_split(
        split: &Arc<Split<Servable>>,
        choice: Choice<'_>,
        selector: &Selector,
        asked: &Arc<LastAsked>,
        clock: Clock,
    ) -> Self {
        let lease = |arm| Self::new(Arc::clone(split.servable(arm)), selector, asked, clock);
        let key = match choice {
            Choice::Counted(key) => key,
            Choice::Uncounted(key) => {
                let arm = split.arm(key);
                return Self { arm, ..lease(arm) };
            }
            Choice::Live => return Self { arm: Arm::Live, ..lease(Arm::Live) },
        };
        let Chosen { arm, is_counted: counted, is_left_out: left_out, on_canary } =
            split.choose(key);
        let exposure = if left_out { None } else { split.expose(key, arm) };
        let exposed = exposure.map(|exposure| Arc::new(vec![(0, exposure)]));
        let split = Some(Arc::clone(split));
        Self { arm, split, counted, left_out, exposed, on_canary, ..lease(arm) }
    }

    /// Whether the requested tag has a canary on trial.
    pub fn is_tried(&self) -> bool {
        self.split.is_some()
    }

    /// Whether the outcome of the request counts in a trial.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// Attributes the request to its caller. The trial does not count it if the caller has its part
    /// of the evidence already.
    pub fn attribute(&mut self, caller: impl FnOnce() -> String) {
        let split = self.split.as_ref().filter(|_| self.counted);
        self.counted = split.is_some_and(|split| split.admits(&caller()));
    }

    /// Records the outcome of the request, `latency` after its arrival, if it is part of a trial.
    pub fn observe(&self, latency: Duration, outcome: Outcome) {
        if let Some(split) = &self.split {
            split.observe(self.arm, self.counted, self.timed.then_some(latency), outcome);
        }
    }

    /// Records that the request was refused before its run. The trial counts that for neither arm.
    pub fn refused(&self, latency: Duration) {
        if let Some(split) = &self.split {
            split.observe(self.arm, false, Some(latency), Outcome::Failed);
        }
    }

    /// True if the request is one of a canary on trial, whose calls in flight are limited: it does
    /// not wait for its turn at the version's [`Load`].
    pub fn is_capped(&self) -> bool {
        self.on_canary.is_some()
    }

    /// Ends the canary's call, which was answered or has failed, so that another one may begin.
    pub fn end_call(&self) {
        self.on_canary.iter().for_each(OnCanary::end);
    }

    /// Abandons the canary's call, which was not answered in time.
    pub fn abandon_call(&self) {
        self.on_canary.iter().for_each(OnCanary::abandon);
    }

    /// The user who stands for the request in statistics, by position in the engine's call.
    pub fn user(&self) -> usize {
        self.user
    }

    /// A lease on the live version, as a fallback when the canary does not answer; it takes no part
    /// in the trial. `None` unless this lease is on a canary.
    #[must_use]
    pub fn stand_in(&self) -> Option<Self> {
        let split = self.split.as_ref().filter(|_| self.arm == Arm::Canary)?;
        Some(self.on(Arm::Live, split))
    }

    /// True if the exposure of a key is logged with this request.
    pub fn is_exposure(&self) -> bool {
        self.exposed.is_some()
    }

    /// Records the probabilities with which the model drew its chosen treatments, for the log.
    /// `propensity` returns that of a user by position in the engine's call.
    pub fn drawn(&self, propensity: impl Fn(usize) -> Option<f32>) {
        for (user, exposure) in self.exposed.iter().flat_map(|exposed| exposed.iter()) {
            if let Some(propensity) = propensity(*user) {
                exposure.drawn(propensity);
            }
        }
    }

    /// The same lease, marked at random as one whose request [`Self::answered`] stores among the
    /// model's latest.
    #[must_use]
    pub fn sampled(self) -> Self {
        let sampled = self.arm != Arm::Pinned && self.recent.wants();
        Self { sampled, ..self }
    }

    /// Whether the request is needed again after packing: for a second attempt at an answer, or by
    /// [`Self::answered`].
    pub fn needs_request(&self) -> bool {
        self.sampled || self.is_tried()
    }

    /// True if [`Self::answered`] uses the request.
    pub fn takes_request(&self) -> bool {
        self.sampled && self.arm == Arm::Live || self.counted
    }

    /// Takes the request after its answer, if it [uses it](Self::takes_request). It may be used
    /// once more in the background, so the caller does not wait.
    pub fn answered(&self, answered: &Answered<'_>) {
        if self.sampled && self.arm == Arm::Live {
            self.recent.offer(answered.request);
        }
        let Some(split) = self.split.as_ref().filter(|_| self.counted) else { return };
        split.look_at_features(self.arm, answered);
        if self.arm == Arm::Live {
            split.shadow(|| self.on(Arm::Canary, split), answered);
        }
    }

    /// Creates a lease on an arm of a split that takes no part in its trial.
    fn on(&self, arm: Arm, split: &Split<Servable>) -> Self {
        Self {
            servable: Arc::clone(split.servable(arm)),
            tag: self.tag.clone(),
            arm,
            split: None,
            counted: false,
            left_out: false,
            timed: true,
            user: self.user,
            exposed: None,
            on_canary: None,
            sampled: self.sampled,
            using: self.using.clone(),
        }
    }

    /// Gives the lease up after the engine ended: it must not keep the version from being loaded
    /// again.
    pub fn interrupted(self) -> Interrupted {
        let selector = match &self.tag {
            Some(tag) => Selector::Tag(tag.clone()),
            None => Selector::Digest(self.key.digest),
        };
        let (engine, route) = (self.engine.clone(), self.route.load(Relaxed));
        Interrupted { key: self.key.clone(), engine, selector, route }
    }

    /// The tag of the request; `None` for a request by digest.
    pub fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
    }

    /// The arm of a canary split.
    pub fn arm(&self) -> Arm {
        self.arm
    }
}

fn chosen_by(selector: &Selector) -> (Option<Tag>, Arm) {
    match selector {
        Selector::Tag(tag) if tag.is_canary() => (Some(tag.clone()), Arm::Pinned),
        Selector::Tag(tag) => (Some(tag.clone()), Arm::Live),
        Selector::Digest(_) => (None, Arm::Pinned),
    }
}

impl Deref for Lease {
    type Target = Servable;

    fn deref(&self) -> &Servable {
        &self.servable
    }
}

/// A servable that requests use, or may still use.
#[derive(Debug)]
pub(crate) struct Live {
    /// Set while it is routed.
    strong: Option<Arc<Servable>>,
    /// Valid as long as leases live.
    weak: Weak<Servable>,
}

impl Live {
    pub(crate) fn new(servable: Arc<Servable>) -> Self {
        Self { weak: Arc::downgrade(&servable), strong: Some(servable) }
    }

    /// Routes the servable `id` again as `route`, if a lease still holds it.
    pub(crate) fn revive(&self, id: &ServableId, route: u64) -> Option<Arc<Servable>> {
        let servable = self.weak.upgrade().filter(|servable| servable.scorer.id == *id)?;
        servable.route.store(route, Relaxed);
        Some(servable)
    }

    pub(crate) fn withdraw(&mut self) {
        self.strong = None;
    }

    pub(crate) fn routed(&self) -> Option<Arc<Servable>> {
        self.strong.clone()
    }

    /// Whether no holder is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.weak.strong_count() == 0
    }
}
