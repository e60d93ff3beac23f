//! Read access to the machine of a version.

use super::{ModelMachine, Slot, State, Transition, Trouble};
use crate::{Attempt, Context, ModelKey, Moment, Stage};

/// The activity of a wanted version that has to stay out of the engine, for people.
pub(super) const TAKEN: &str = "another version of the model is in the engine";

/// Read access.
impl ModelMachine {
    /// The version that the machine controls.
    pub fn key(&self) -> &ModelKey {
        &self.key
    }

    /// The current state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The machine's last attempt.
    pub fn last(&self) -> Attempt {
        self.last
    }

    /// The current stage.
    pub fn stage(&self) -> Stage {
        self.state.stage()
    }

    /// The current activity, for people.
    pub fn activity(&self) -> &'static str {
        match (&self.state, &self.trouble) {
            (State::New | State::Downloaded, Some(Trouble { retry_at: None, .. })) => "failed",
            (State::New | State::Downloaded, Some(_)) => "backoff",
            (State::Downloaded, None) if self.slot == Slot::Taken && self.is_wanted => TAKEN,
            (state, _) => state.activity(),
        }
    }

    /// Whether it is up, or on its way up without a failure so far. A digest that comes from a
    /// request alone counts only once its files are there.
    pub fn is_promising(&self, context: &Context<'_>) -> bool {
        let exists = self.demand.pinned || self.stage() > Stage::New;
        let untroubled = self.trouble.is_none() && self.wanted(context);
        self.state.needs_files() || (exists && untroubled)
    }

    /// True if its last attempt failed and no other one is due.
    pub fn is_refused(&self) -> bool {
        !self.state.needs_files()
            && self.trouble.as_ref().is_some_and(|trouble| trouble.retry_at.is_none())
    }

    /// The remembered failure.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The route that new requests get.
    pub fn routed(&self) -> Option<u64> {
        self.route.filter(|_| matches!(self.state, State::Serving { .. }))
    }

    /// The route of which leases may still exist.
    pub fn leased(&self) -> Option<u64> {
        self.route
    }

    /// The latest transitions, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &Transition> {
        self.history.iter()
    }

    /// The last time at which a request asked for exactly this version.
    pub fn asked_at(&self) -> Option<Moment> {
        self.demand.asked_at
    }

    /// Whether a preload or a followed tag keeps it up.
    pub fn is_pinned(&self) -> bool {
        self.demand.pinned
    }

    /// Its right to be in the engine.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// True if it has served requests in this process.
    pub fn has_served(&self) -> bool {
        self.routes > 0
    }

    /// Whether an operator unloaded it.
    pub fn is_suspended(&self) -> bool {
        self.demand.suspended
    }

    /// Whether it should be up now.
    pub fn is_wanted(&self, context: &Context<'_>) -> bool {
        self.wanted(context)
    }

    /// The next time at which a tick changes something, given that the last tick was at `after`.
    pub fn wakes_at(&self, policy: &crate::Policy, after: Moment) -> Option<Moment> {
        let held = self.demand.pinned && !self.demand.suspended;
        let idle_at = self.demand.asked_at.map(|at| at + policy.idle_ttl);
        let retry_at = self.trouble.as_ref().and_then(|trouble| trouble.retry_at);
        let forgotten_at = self.trouble.as_ref().map(|trouble| trouble.at + policy.forget_after);
        let expires_at = Some(self.wanted_at + policy.retain);
        let candidates = match self.state {
            State::New => [retry_at.or(forgotten_at), None],
            State::Downloaded if held => [retry_at, None],
            State::Downloaded => [retry_at, expires_at],
            _ => [None, None],
        };
        let idle_at = idle_at.filter(|_| !held);
        candidates.into_iter().flatten().chain(idle_at).filter(|at| *at > after).min()
    }

    /// Whether the machine can be dropped without loss of state.
    pub fn is_forgettable(&self, context: &Context<'_>) -> bool {
        let old = |trouble: &Trouble| context.now.since(trouble.at) >= context.policy.forget_after;
        let settled = self.trouble.as_ref().filter(|trouble| trouble.retry_at.is_none());
        self.state == State::New
            && self.route.is_none()
            && !self.demand.pinned
            && (!self.wanted(context) || settled.is_some_and(old))
    }
}
