//! A tag whose traffic is split between two versions.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use outrigger_canary::{Draw, Observation, Outcome, Salt, Share};
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
    pub(crate) salt: Salt,
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
    /// True if the canary has no room for another call, so that the trial leaves the request out.
    pub is_left_out: bool,
    /// The call of the canary, if that answers it.
    pub on_canary: Option<OnCanary>,
}

/// A request's call of the canary. Clones share it. It should [end](Self::end) when the canary has
/// answered or failed, or be [abandoned](Self::abandon) when nobody waits for that any more. The
/// last clone that is dropped abandons it.
#[derive(Debug, Clone)]
pub struct OnCanary(Arc<InFlight>);

impl OnCanary {
    /// Ends the call, so that another one may begin.
    pub fn end(&self) {
        self.0.end();
    }

    /// Abandons the call: it counts as in flight for as long again as it took, because the engine
    /// may go on with it.
    pub fn abandon(&self) {
        self.0.abandon();
    }
}

/// A request of one user that has been answered, alone or in a batch.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The request.
    pub request: &'a Arrived,
    /// The tensors of the engine's call.
    pub packed: &'a Packed,
    /// The engine's answer.
    pub outputs: &'a [Tensor],
    /// The user's position in the call.
    pub user: usize,
}

impl<S: Servable> Split<S> {
    /// The arm of a request with that key. Without a key the arm is random. The trial does not count
    /// the key later: whoever knows its arm could choose the request by it.
    pub fn arm(&self, key: &str) -> Arm {
        let Some(share) = self.share else { return Arm::Live };
        let draw = self.draw(key);
        if !key.is_empty() {
            self.outcomes.is_first(draw);
        }
        draw.arm(share)
    }

    /// True if the trial counts another request of `caller`: one caller alone must not decide it.
    /// This depends on earlier requests only, so the comparison stays valid.
    pub fn admits(&self, caller: &str) -> bool {
        let caller = Draw::of_key(&self.salt, caller);
        match self.share {
            Some(_) => self.outcomes.callers.admits(caller),
            None => {
                self.outcomes.callers.measure(caller);
                true
            }
        }
    }

    fn draw(&self, key: &str) -> Draw {
        match key {
            "" => Draw::at_random(rand::random()),
            key => Draw::of_key(&self.salt, key),
        }
    }

    /// The part in the trial of a request with that key. The trial counts the first request of each
    /// key.
    ///
    /// While the canary has as many calls in flight as it may have, live answers all requests, and
    /// none counts: to leave out only those assigned to the canary would bias the comparison.
    pub fn choose(&self, key: &str) -> Chosen {
        let on_live = |is_counted, is_left_out| {
            let (arm, on_canary) = (Arm::Live, None);
            Chosen { arm, is_counted, is_left_out, on_canary }
        };
        let Some(share) = self.share else { return on_live(true, false) };
        let draw = self.draw(key);
        let arm = draw.arm(share);
        let on_canary = (arm == Arm::Canary).then(|| self.begin_on_canary()).flatten();
        if on_canary.is_none() && (arm == Arm::Canary || !self.calls.has_room()) {
            return on_live(false, true);
        }
        let is_counted = key.is_empty() || self.outcomes.is_first(draw);
        Chosen { arm, is_counted, is_left_out: false, on_canary }
    }

    /// Begins a call of the canary for a request that is assigned to it; `None` if it has as many
    /// calls in flight as it may have: live answers then.
    pub fn begin_on_canary(&self) -> Option<OnCanary> {
        let call = self.calls.begin();
        if call.is_none() {
            self.calls.leave_to_live();
        }
        call.map(|call| OnCanary(Arc::new(call)))
    }

    /// The arms of a batch's users by their keys; `None` while only live is measured. The user at
    /// position `chosen` is on `arm` already. Users without a key go together, so that a batch
    /// without keys is one call.
    pub fn arms_of_batch(&self, keys: &[&str], chosen: usize, arm: Arm) -> Option<Vec<Arm>> {
        self.share?;
        let without_key = if keys[chosen].is_empty() { arm } else { self.arm("") };
        let of = |key: &&str| if key.is_empty() { without_key } else { self.arm(key) };
        Some(keys.iter().map(of).collect())
    }

    /// The exposure of a key to its arm, if it is to be logged: a key's first request on an arm is
    /// its exposure to that arm. When the share grows, keys move from live to the canary.
    pub fn expose(&self, key: &str, arm: Arm) -> Option<Exposure> {
        let share = self.share.filter(|_| !key.is_empty() && Exposure::is_logged())?;
        let is_first = self.outcomes.is_first_on(arm, self.draw(key));
        is_first.then(|| Exposure::new(key, self.servable(arm).key(), arm, share))
    }

    /// The version that answers for that arm.
    pub fn servable(&self, arm: Arm) -> &Arc<S> {
        if arm == Arm::Canary { &self.canary } else { &self.live }
    }

    /// Records the outcome of a request, for the trial. `is_counted`: it is part of the comparison.
    /// The latency is `None` if it cannot be compared between the arms.
    pub fn observe(&self, arm: Arm, is_counted: bool, latency: Option<Duration>, outcome: Outcome) {
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
        self.aside.offer(answered.request.size(), || {
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
        let Answered { packed, outputs, user, .. } = *answered;
        let Ok(Some(live)) = plan.best(packed, outputs, user) else { return };
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
        if !self.aside.offer(answered.request.size(), compare) {
            self.outcomes.count_skipped();
        }
    }
}
