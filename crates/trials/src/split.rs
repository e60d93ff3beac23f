//! A tag whose traffic is split between two versions.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use outrigger_canary::{Draw, Observation, Outcome, Share};
use outrigger_core::{Arm, ModelKey, Tensor};
use outrigger_features::{Arrived, Packed};
use outrigger_score::Scorer;

use crate::{
    aside::Aside,
    exposure::Exposure,
    in_flight::{Calls, InFlight},
    outcomes::{Outcomes, Recorded},
    profile::Profiled,
    shadow::Shadow,
};

/// A served version, as far as a split needs it.
pub trait Servable: fmt::Debug + Send + Sync + 'static {
    /// The model's name and digest.
    fn key(&self) -> &ModelKey;

    /// Scores requests with it.
    fn scorer(&self) -> &Scorer;

    /// The distribution of its features in training, if known.
    fn profile(&self) -> Option<&Arc<Profiled>>;
}

/// A tag with a canary on trial, while the canary's share stays the same.
#[derive(Debug)]
pub struct Split<S> {
    pub(crate) live: Arc<S>,
    pub(crate) canary: Arc<S>,
    /// The canary's share; `None` while only live is measured.
    pub(crate) share: Option<Share>,
    /// The salt of the draws, the canary's digest: draws are independent between canaries, and
    /// equal in every process.
    pub(crate) salt: Arc<str>,
    pub(crate) outcomes: Arc<Outcomes>,
    /// The canary's calls in flight.
    pub(crate) calls: Arc<Calls>,
    /// The part of live's requests that the canary answers as well.
    pub(crate) shadow: f64,
    pub(crate) aside: Aside,
}

/// The part of a request in a trial.
#[derive(Debug)]
pub struct Chosen {
    /// The arm that answers it.
    pub arm: Arm,
    /// True if the trial counts its outcome.
    pub is_counted: bool,
    /// The exposure to log.
    pub exposure: Option<Exposure>,
    /// The call of the canary, if that answers it.
    pub on_canary: Option<OnCanary>,
}

/// A request's call of the canary. Clones share it. It should [end](Self::end) when the canary has
/// answered or failed. If the last clone is dropped before, it counts as in flight for longer.
#[derive(Debug, Clone)]
pub struct OnCanary(Arc<InFlight>);

impl Chosen {
    /// A request that takes no part in the trial.
    pub fn uncounted(arm: Arm) -> Self {
        Self { arm, is_counted: false, exposure: None, on_canary: None }
    }
}

impl OnCanary {
    /// Ends the call, so that another one may begin.
    pub fn end(&self) {
        self.0.end();
    }
}

/// A request that has been answered.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The request.
    pub request: &'a Arrived,
    /// Its tensors.
    pub packed: &'a Packed,
    /// The engine's answer.
    pub outputs: &'a [Tensor],
}

impl<S: Servable> Split<S> {
    /// The arm of a request with that key. Without a key the arm is random.
    pub fn arm(&self, key: &str) -> Arm {
        self.share.map_or(Arm::Live, |share| self.draw(key).arm(share))
    }

    fn draw(&self, key: &str) -> Draw {
        match key {
            "" => Draw::at_random(rand::random()),
            key => Draw::of_key(&self.salt, key),
        }
    }

    /// The part in the trial of a request with that key. The trial counts the first request of each
    /// key. A key's first request on an arm is its exposure to that arm: when the share grows, keys
    /// move from live to the canary.
    ///
    /// While the canary has as many calls in flight as it may have, live answers all requests, and
    /// none counts: to leave out only those assigned to the canary would bias the comparison.
    pub fn choose(&self, key: &str) -> Chosen {
        let Some(share) = self.share else {
            return Chosen { is_counted: true, ..Chosen::uncounted(Arm::Live) };
        };
        let draw = self.draw(key);
        let arm = draw.arm(share);
        let on_canary = (arm == Arm::Canary).then(|| self.calls.begin()).flatten();
        let has_room = on_canary.is_some() || arm != Arm::Canary && self.calls.has_room();
        if !has_room {
            if arm == Arm::Canary {
                self.calls.leave_to_live();
            }
            return Chosen::uncounted(Arm::Live);
        }
        let on_canary = on_canary.map(|call| OnCanary(Arc::new(call)));
        if key.is_empty() {
            return Chosen { arm, is_counted: true, exposure: None, on_canary };
        }
        let is_counted = self.outcomes.is_first(draw);
        let is_exposed = || match arm {
            Arm::Canary => self.outcomes.is_first_on_canary(draw),
            _ => is_counted,
        };
        let exposed = Exposure::is_logged() && is_exposed();
        let exposure = exposed.then(|| Exposure::new(key, self.servable(arm).key(), arm, share));
        Chosen { arm, is_counted, exposure, on_canary }
    }

    /// The version that answers for that arm.
    pub fn servable(&self, arm: Arm) -> &Arc<S> {
        if arm == Arm::Canary { &self.canary } else { &self.live }
    }

    /// Records the outcome of a request, for the trial. `is_counted`: it is part of the comparison.
    pub fn observe(&self, arm: Arm, is_counted: bool, latency: Duration, outcome: Outcome) {
        let observation = Observation { arm, latency, outcome };
        self.outcomes.record(match is_counted {
            true => Recorded::Outcome(self.share, observation),
            false => Recorded::LeftOut(observation),
        });
    }

    /// Counts the features of a request for its arm, if it is one of those to examine.
    pub fn look_at_features(&self, arm: Arm, answered: &Answered<'_>) {
        let (Some(share), servable) = (self.share, self.servable(arm)) else { return };
        let Some(profile) = servable.profile() else { return };
        if !self.outcomes.wants_features(arm) {
            return;
        }
        self.aside.offer(answered.request.bytes().len(), || {
            let scorer = servable.scorer();
            let (profile, plan, limits) =
                (Arc::clone(profile), Arc::clone(&scorer.plan), scorer.limits());
            let request = answered.request.clone();
            let outcomes = Arc::clone(&self.outcomes);
            async move {
                let found = profile.categories(&plan, &request, rand::random(), &limits);
                if let Some(categories) = found {
                    outcomes.record(Recorded::Features(share, arm, categories));
                }
            }
        });
    }

    /// Sends a random part of live's requests to the canary as well.
    pub fn shadow<L>(&self, on_canary: impl FnOnce() -> L, answered: &Answered<'_>)
    where
        L: Deref<Target = S> + Send + Sync + 'static,
    {
        if self.share.is_none() || self.shadow == 0.0 || rand::random::<f64>() >= self.shadow {
            return;
        }
        let plan = &self.live.scorer().plan;
        let Ok(Some(live)) = plan.best(answered.packed, answered.outputs) else { return };
        let Some(call) = self.calls.begin() else { return self.outcomes.count_skipped() };
        let compare = || {
            let shadow = Shadow {
                lease: on_canary(),
                request: answered.request.clone(),
                live,
                call,
                outcomes: Arc::clone(&self.outcomes),
            };
            shadow.compare()
        };
        if !self.aside.offer(answered.request.bytes().len(), compare) {
            self.outcomes.count_skipped();
        }
    }
}
