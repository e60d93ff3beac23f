//! Servables and the leases that keep them in the engine.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_canary::Outcome;
use outrigger_core::{Arm, Digest, EngineId, ModelKey, Selector, ServableId, Tag, Tensor};
use outrigger_features::{Packed, Plan};
use outrigger_trials::{self as trials, Answered, Exposure, Profiled, Split};
use tokio::time::Instant;

use crate::{call::call, drains::Drains, recent::Recent, routes::LastAsked};
use outrigger_run::{Clock, Run};

/// A version of a model that the engine serves: everything a request needs.
pub struct Servable {
    /// The model's name and digest.
    pub key: ModelKey,
    /// The manifest that was pulled; equals the digest for a single image.
    pub platform_digest: Digest,
    /// Its name and version in the engine.
    pub id: ServableId,
    /// How requests become tensors.
    pub plan: Arc<Plan>,
    /// Its features at its training, if that is known.
    pub profile: Option<Arc<Profiled>>,
    /// The engine that runs it.
    pub engine: EngineId,
    /// The version as loaded in its engine.
    pub run: Arc<dyn Run>,
    /// What its answers say of it, encoded once by who writes them.
    pub described: OnceLock<Box<[u8]>>,
    /// The latest requests of the model, whichever version has answered them.
    pub(crate) recent: Arc<Recent>,
    /// Number of the route it stands for, fencing late drains.
    pub(crate) route: AtomicU64,
    pub(crate) drains: Arc<Drains>,
}

impl fmt::Debug for Servable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servable").field("key", &self.key).field("id", &self.id).finish()
    }
}

impl trials::Servable for Servable {
    fn key(&self) -> &ModelKey {
        &self.key
    }

    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn profile(&self) -> Option<&Arc<Profiled>> {
        self.profile.as_ref()
    }
}

/// The last holder, a lease or the routing table, has let go: nobody can reach
/// the servable any more.
impl Drop for Servable {
    fn drop(&mut self) {
        self.drains.drained(self.key.clone(), self.route.load(Relaxed));
    }
}

/// The right to use a servable. While it lives, the servable stays in the
/// engine, and what was asked for is in use; it should live until the response
/// is written, and no longer.
#[derive(Debug, Clone)]
pub struct Lease {
    servable: Arc<Servable>,
    tag: Option<Tag>,
    arm: Arm,
    /// The trial that it is part of, and whether that counts it.
    split: Option<Arc<Split<Servable>>>,
    counted: bool,
    exposure: Option<Arc<Exposure>>,
    /// The request, if live answers it, is one of those that are kept of the model.
    sampled: bool,
    using: Using,
}

/// Holds that a tag or digest is in use: a lease on it lives, or a request waits
/// for it.
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
    /// A lease on `servable`, found by `selector`.
    pub(crate) fn new(
        servable: Arc<Servable>,
        selector: &Selector,
        asked: &Arc<LastAsked>,
        clock: Clock,
    ) -> Self {
        let (tag, arm) = chosen_by(selector);
        let using = Using::new(Arc::clone(asked), clock);
        let (split, counted, exposure, sampled) = (None, false, None, false);
        Self { servable, tag, arm, split, counted, exposure, sampled, using }
    }

    /// A lease on the side of `split` that has the routing key.
    pub(crate) fn of_split(
        split: &Arc<Split<Servable>>,
        routing_key: &str,
        selector: &Selector,
        asked: &Arc<LastAsked>,
        clock: Clock,
    ) -> Self {
        let (arm, counted, exposure) = split.choose(routing_key);
        let servable = Arc::clone(split.servable(arm));
        let lease = Self::new(servable, selector, asked, clock);
        let exposure = exposure.map(Arc::new);
        Self { arm, split: Some(Arc::clone(split)), counted, exposure, ..lease }
    }

    /// The same lease for a caller that only looks: no part of the trial.
    pub(crate) fn beside_split(
        split: &Arc<Split<Servable>>,
        routing_key: &str,
        selector: &Selector,
        asked: &Arc<LastAsked>,
        clock: Clock,
    ) -> Self {
        let arm = split.arm(routing_key);
        Self { arm, ..Self::new(Arc::clone(split.servable(arm)), selector, asked, clock) }
    }

    /// Whether the tag asked for has a canary on trial.
    pub fn is_tried(&self) -> bool {
        self.split.is_some()
    }

    /// Whether the outcome of the request counts in a trial.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// Records the outcome of the request, `latency` after it arrived, if that counts in
    /// a trial.
    pub fn observe(&self, latency: Duration, outcome: Outcome) {
        if let Some(split) = self.split.as_ref().filter(|_| self.counted) {
            split.observe(self.arm, latency, outcome);
        }
    }

    /// A lease on the live version, for a canary that does not answer; no part of
    /// a trial. `None` when this is not the canary's side of one.
    #[must_use]
    pub fn stand_in(&self) -> Option<Self> {
        let split = self.split.as_ref().filter(|_| self.arm == Arm::Canary)?;
        Some(self.on(Arm::Live, split))
    }

    /// Whether the request is the one by which a key's exposure is logged.
    pub fn is_exposure(&self) -> bool {
        self.exposure.is_some()
    }

    /// Adds the probability with which the model drew the treatment it chose, for the log.
    pub fn drawn(&self, propensity: Option<f32>) {
        if let (Some(exposure), Some(propensity)) = (&self.exposure, propensity) {
            exposure.drawn(propensity);
        }
    }

    /// The same lease, for a request that is kept among the model's latest if chance says
    /// so: [`Self::answered`] does that.
    #[must_use]
    pub fn sampled(self) -> Self {
        let sampled = self.arm != Arm::Pinned && self.recent.wants();
        Self { sampled, ..self }
    }

    /// Whether the request may be asked for once more after it has been packed: for
    /// another attempt at an answer, or by [`Self::answered`].
    pub fn needs_request(&self) -> bool {
        self.sampled || self.is_tried()
    }

    /// Takes the request once it is answered, if it is [still needed](Self::needs_request).
    /// It may be looked at once more, aside: its caller does not wait for that.
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

    /// A lease on an arm of a split, which is no part of its trial.
    fn on(&self, arm: Arm, split: &Split<Servable>) -> Self {
        Self {
            servable: Arc::clone(split.servable(arm)),
            tag: self.tag.clone(),
            arm,
            split: None,
            counted: false,
            exposure: None,
            sampled: self.sampled,
            using: self.using.clone(),
        }
    }

    /// The tag by which it was chosen; `None` when a digest was asked for.
    pub fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
    }

    /// Which side of a canary split it is.
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

impl trials::Lease for Lease {
    fn plan(&self) -> &Plan {
        &self.servable.plan
    }

    async fn run(&self, packed: &mut Packed, deadline: Instant) -> Option<Vec<Tensor>> {
        let call = call(&self.servable.plan, packed, deadline);
        self.servable.run.run(call).await.ok()
    }
}

impl Deref for Lease {
    type Target = Servable;

    fn deref(&self) -> &Servable {
        &self.servable
    }
}

/// A servable that requests have, or may still have.
#[derive(Debug)]
pub(crate) struct Live {
    /// While it is routed.
    strong: Option<Arc<Servable>>,
    /// As long as leases live.
    weak: Weak<Servable>,
}

impl Live {
    pub(crate) fn new(servable: Arc<Servable>) -> Self {
        Self { weak: Arc::downgrade(&servable), strong: Some(servable) }
    }

    /// The servable `id` if somebody still holds it, from now on as `route`.
    pub(crate) fn revive(&self, id: &ServableId, route: u64) -> Option<Arc<Servable>> {
        let servable = self.weak.upgrade().filter(|servable| servable.id == *id)?;
        servable.route.store(route, Relaxed);
        Some(servable)
    }

    pub(crate) fn withdraw(&mut self) {
        self.strong = None;
    }

    pub(crate) fn routed(&self) -> Option<Arc<Servable>> {
        self.strong.clone()
    }

    /// Whether nobody holds it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.weak.strong_count() == 0
    }
}
