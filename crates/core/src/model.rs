//! The machine of one version of a model: from a digest to a servable.

mod state;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::VecDeque};

pub use state::{State, Transition};

use crate::{Attempt, Context, Failure, ModelKey, Moment, Outcome, Reason, ServableId, Stage};

/// Transitions remembered of each machine.
const HISTORY: usize = 32;

/// The life of one version of a model.
///
/// Events change what the machine knows; then it settles: takes every step that
/// is due from what it knows. What it wants done it says as effects, and each
/// effect with an attempt is completed by one event carrying that attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelMachine {
    key: ModelKey,
    state: State,
    last: Attempt,
    demand: Demand,
    trouble: Option<Trouble>,
    /// The route that leases may still exist of, whether published or not.
    route: Option<u64>,
    routes: u64,
    /// The last time it was wanted.
    wanted_at: Moment,
    history: VecDeque<Transition>,
}

/// Why a version should be up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Demand {
    pinned: bool,
    asked_at: Option<Moment>,
    /// Somebody took it down by hand: stays down until it is asked for.
    suspended: bool,
    delete: bool,
}

/// A failure that is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// What happened.
    pub failure: Failure,
    /// When.
    pub at: Moment,
    /// Failures in a row.
    pub failures: u32,
    /// When to try again; `None`: not until something changes.
    pub retry_at: Option<Moment>,
}

/// What happens to a version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A request wants exactly this version.
    Ask,
    /// A request by tag wants it: takes back an unload by hand.
    Wake,
    /// A request used exactly this version, at that time.
    Used(Moment),
    /// A preload or a followed tag wants it, or none does any more.
    Pin(bool),
    /// Whatever failed may have changed: try again now.
    Retry,
    /// Take it down; with `delete`, delete its files as well.
    Unload {
        /// Whether to delete its files.
        delete: bool,
    },
    /// The store deleted its files to make room.
    Evicted,
    /// [`Effect::Pull`] ended.
    Pulled(Attempt, Result<(), Fault>),
    /// [`Effect::Prepare`] ended.
    Prepared(Attempt, Result<(), Fault>),
    /// [`Effect::Publish`] ended.
    Published(Attempt, Result<(), Fault>),
    /// The engine serves it.
    Up(ServableId),
    /// The engine could not load it.
    LoadFailed(ServableId, Failure),
    /// The engine restarted and has to load it again.
    Lost(ServableId),
    /// After [`Effect::Remove`]: the engine has nothing to do with it any more.
    Gone(ServableId),
    /// [`Effect::Check`] ended.
    Checked(Attempt, Result<(), Failure>),
    /// Nobody can reach the servable of that route any more.
    Drained(u64),
    /// [`Effect::Delete`] ended.
    Deleted(Attempt),
}

/// Why work on files failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The files are not in the store any more.
    FilesMissing,
    /// Anything else.
    Failed(Failure),
}

/// What a machine wants done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Get its verified files into the store, unless they are there.
    Pull(Attempt),
    /// Nobody wants the pull any more.
    CancelPull(Attempt),
    /// Read its metadata and check it against the signature on disk.
    Prepare(Attempt),
    /// Put it where the engine finds it.
    Publish(Attempt, ServableId),
    /// Take it away from there again.
    Unpublish(ServableId),
    /// Have the engine load it.
    Add(ServableId),
    /// Have the engine unload it.
    Remove(ServableId),
    /// Pass it through the gate.
    Check(Attempt, ServableId),
    /// Let requests have it, as that route.
    Route(ServableId, u64),
    /// Let no further request have it; [`Event::Drained`] follows.
    Withdraw(u64),
    /// Delete its files.
    Delete(Attempt),
}

impl ModelMachine {
    /// A version of which nothing is known; its attempts come after `last`.
    pub fn new(key: ModelKey, last: Attempt, now: Moment) -> Self {
        Self {
            key,
            state: State::New,
            last,
            demand: Demand::default(),
            trouble: None,
            route: None,
            routes: 0,
            wanted_at: now,
            history: VecDeque::new(),
        }
    }

    /// A version that a still running engine may have loaded as `id`.
    pub fn adopted(key: ModelKey, id: ServableId, now: Moment) -> Self {
        let mut machine = Self::new(key, Attempt::default(), now);
        machine.demand.asked_at = Some(now);
        machine.enter(now, State::Loading { id }, "found in the journal");
        machine
    }

    /// Handles an event. The effects are to be carried out in their order.
    pub fn handle(&mut self, context: &mut Context<'_>, event: Event) -> (Vec<Effect>, Outcome) {
        let mut effects = Vec::new();
        let outcome = self.note(context, event, &mut effects);
        if outcome == Outcome::Handled {
            while self.settle(context, &mut effects) {}
        }
        (effects, outcome)
    }

    /// What an event changes by itself.
    fn note(&mut self, c: &mut Context<'_>, event: Event, effects: &mut Vec<Effect>) -> Outcome {
        match event {
            Event::Tick => {}
            Event::Ask => {
                self.demand.asked_at = Some(c.now);
                self.wake();
            }
            Event::Wake => self.wake(),
            Event::Used(at) => self.demand.asked_at = self.demand.asked_at.max(Some(at)),
            Event::Pin(pinned) => self.demand.pinned = pinned,
            Event::Retry => {
                self.trouble = None;
                self.wake();
            }
            Event::Unload { delete } => {
                self.demand.asked_at = None;
                self.demand.suspended = true;
                self.demand.delete = delete;
            }
            Event::Evicted => return self.evicted(c),
            Event::Drained(route) => return self.drained(route),
            Event::Pulled(attempt, result) => return self.pulled(c, attempt, result),
            Event::Prepared(attempt, result) => return self.prepared(c, attempt, result, effects),
            Event::Published(attempt, result) => {
                return self.published(c, attempt, result, effects);
            }
            Event::Checked(attempt, result) => return self.checked(c, attempt, result, effects),
            Event::Deleted(attempt) => return self.deleted(c, attempt),
            Event::Up(id) => return self.up(&id, effects),
            Event::LoadFailed(id, failure) => return self.load_failed(c, &id, failure, effects),
            Event::Lost(id) => return self.lost(c, &id, effects),
            Event::Gone(id) => return self.gone(c, &id, effects),
        }
        Outcome::Handled
    }

    fn wake(&mut self) {
        self.demand.suspended = false;
        self.demand.delete = false;
    }

    fn evicted(&mut self, c: &Context<'_>) -> Outcome {
        match self.state {
            State::New | State::Pulling { .. } => {}
            State::Downloaded | State::Deleting { .. } => {
                self.enter(c.now, State::New, "deleted to make room");
            }
            // Whoever prepares or publishes finds out by itself.
            State::Preparing { .. } | State::Publishing { .. } => {}
            _ => return Outcome::Unexpected,
        }
        Outcome::Handled
    }

    fn drained(&mut self, route: u64) -> Outcome {
        if self.route != Some(route) {
            return if route <= self.routes { Outcome::Stale } else { Outcome::Unexpected };
        }
        if matches!(self.state, State::Serving { .. }) {
            // The routing table holds it, so this cannot be the last holder.
            return Outcome::Unexpected;
        }
        self.route = None;
        Outcome::Handled
    }

    fn pulled(&mut self, c: &Context<'_>, attempt: Attempt, result: Result<(), Fault>) -> Outcome {
        if self.state != (State::Pulling { attempt }) {
            return Outcome::late(attempt, self.last);
        }
        match result {
            Ok(()) => {
                self.trouble = None;
                self.enter(c.now, State::Downloaded, "pulled");
            }
            Err(fault) => {
                self.fail(c, fault.into_failure());
                self.enter(c.now, State::New, "the pull failed");
            }
        }
        Outcome::Handled
    }

    fn prepared(
        &mut self,
        c: &mut Context<'_>,
        attempt: Attempt,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.state != (State::Preparing { attempt }) {
            return Outcome::late(attempt, self.last);
        }
        match result {
            Err(fault) => self.files_failed(c, fault),
            Ok(()) if !self.wanted(c) => self.enter(c.now, State::Downloaded, "not wanted"),
            Ok(()) => {
                let id = c.versions.next(crate::ServableName::of(&self.key.name));
                let attempt = self.last.begin();
                self.enter(c.now, State::Publishing { attempt, id: id.clone() }, "prepared");
                effects.push(Effect::Publish(attempt, id));
            }
        }
        Outcome::Handled
    }

    fn published(
        &mut self,
        c: &Context<'_>,
        attempt: Attempt,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let State::Publishing { attempt: current, id } = &self.state else {
            return Outcome::late(attempt, self.last);
        };
        if *current != attempt {
            return Outcome::late(attempt, self.last);
        }
        let id = id.clone();
        match result {
            Err(fault) => self.files_failed(c, fault),
            Ok(()) if !self.wanted(c) => {
                self.enter(c.now, State::Downloaded, "not wanted");
                effects.push(Effect::Unpublish(id));
            }
            Ok(()) => {
                self.enter(c.now, State::Loading { id: id.clone() }, "published");
                effects.push(Effect::Add(id));
            }
        }
        Outcome::Handled
    }

    fn up(&mut self, id: &ServableId, effects: &mut Vec<Effect>) -> Outcome {
        match &self.state {
            State::Loading { id: own } if own == id => {
                let attempt = self.last.begin();
                self.state = State::Checking { attempt, id: id.clone() };
                effects.push(Effect::Check(attempt, id.clone()));
                Outcome::Handled
            }
            _ => Outcome::Stale,
        }
    }

    fn load_failed(
        &mut self,
        c: &Context<'_>,
        id: &ServableId,
        failure: Failure,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.state.servable() != Some(id) || !self.state.in_engine() {
            return Outcome::Stale;
        }
        if matches!(self.state, State::Unloading { .. }) {
            return Outcome::Stale;
        }
        self.withdraw(effects);
        self.fail(c, failure);
        self.enter(c.now, State::Leaving { id: id.clone() }, "the engine could not serve it");
        Outcome::Handled
    }

    fn lost(&mut self, c: &Context<'_>, id: &ServableId, effects: &mut Vec<Effect>) -> Outcome {
        match &self.state {
            State::Serving { id: own }
            | State::Draining { id: own }
            | State::Checking { id: own, .. }
                if own == id =>
            {
                self.withdraw(effects);
                self.enter(c.now, State::Loading { id: id.clone() }, "the engine restarted");
                Outcome::Handled
            }
            _ => Outcome::Stale,
        }
    }

    fn gone(&mut self, c: &Context<'_>, id: &ServableId, effects: &mut Vec<Effect>) -> Outcome {
        if self.state != (State::Unloading { id: id.clone() }) {
            return Outcome::Stale;
        }
        self.enter(c.now, State::Downloaded, "unloaded");
        effects.push(Effect::Unpublish(id.clone()));
        Outcome::Handled
    }

    fn checked(
        &mut self,
        c: &Context<'_>,
        attempt: Attempt,
        result: Result<(), Failure>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let State::Checking { attempt: current, id } = &self.state else {
            return Outcome::late(attempt, self.last);
        };
        if *current != attempt {
            return Outcome::late(attempt, self.last);
        }
        let id = id.clone();
        match result {
            Ok(()) => {
                self.trouble = None;
                self.serve(c, id, "passed the gate", effects);
            }
            Err(failure) => {
                self.fail(c, failure);
                self.enter(c.now, State::Leaving { id }, "did not pass the gate");
            }
        }
        Outcome::Handled
    }

    fn deleted(&mut self, c: &Context<'_>, attempt: Attempt) -> Outcome {
        if self.state != (State::Deleting { attempt }) {
            return Outcome::late(attempt, self.last);
        }
        self.demand.delete = false;
        self.enter(c.now, State::New, "deleted");
        Outcome::Handled
    }

    /// Takes the next step that is due; false when none is.
    fn settle(&mut self, c: &mut Context<'_>, effects: &mut Vec<Effect>) -> bool {
        let wanted = self.wanted(c);
        if wanted {
            self.wanted_at = c.now;
        }
        match self.state.clone() {
            State::New if wanted && self.may_try(c.now) => {
                let attempt = self.last.begin();
                self.state = State::Pulling { attempt };
                effects.push(Effect::Pull(attempt));
            }
            State::Pulling { attempt } if !wanted => {
                self.state = State::New;
                effects.push(Effect::CancelPull(attempt));
            }
            State::Downloaded if wanted && self.may_try(c.now) => {
                let attempt = self.last.begin();
                self.state = State::Preparing { attempt };
                effects.push(Effect::Prepare(attempt));
            }
            State::Downloaded if !wanted && self.expired(c) => {
                let attempt = self.last.begin();
                self.state = State::Deleting { attempt };
                effects.push(Effect::Delete(attempt));
            }
            State::Loading { id } | State::Checking { id, .. } if !wanted => {
                self.state = State::Leaving { id };
            }
            State::Serving { id } if !wanted => {
                self.withdraw(effects);
                self.state = State::Draining { id };
            }
            State::Draining { id } if wanted => self.serve(c, id, "wanted again", effects),
            State::Draining { id } | State::Leaving { id } if self.route.is_none() => {
                self.enter(c.now, State::Unloading { id: id.clone() }, "drained");
                effects.push(Effect::Remove(id));
            }
            _ => return false,
        }
        true
    }

    fn serve(
        &mut self,
        c: &Context<'_>,
        id: ServableId,
        cause: &'static str,
        effects: &mut Vec<Effect>,
    ) {
        self.routes += 1;
        self.route = Some(self.routes);
        self.enter(c.now, State::Serving { id: id.clone() }, cause);
        effects.push(Effect::Route(id, self.routes));
    }

    /// Stops routing if it routes.
    fn withdraw(&self, effects: &mut Vec<Effect>) {
        if let (State::Serving { .. }, Some(route)) = (&self.state, self.route) {
            effects.push(Effect::Withdraw(route));
        }
    }

    fn wanted(&self, c: &Context<'_>) -> bool {
        let fresh = |at| c.now.since(at) < c.policy.idle_ttl;
        !self.demand.suspended && (self.demand.pinned || self.demand.asked_at.is_some_and(fresh))
    }

    fn expired(&self, c: &Context<'_>) -> bool {
        self.demand.delete || c.now.since(self.wanted_at) >= c.policy.retain
    }

    fn may_try(&self, now: Moment) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.retry_at.is_some_and(|at| at <= now))
    }

    fn files_failed(&mut self, c: &Context<'_>, fault: Fault) {
        match fault {
            Fault::FilesMissing => self.enter(c.now, State::New, "its files are gone"),
            Fault::Failed(failure) => {
                self.fail(c, failure);
                self.enter(c.now, State::Downloaded, "cannot be prepared");
            }
        }
    }

    fn fail(&mut self, c: &Context<'_>, failure: Failure) {
        let failures = self.trouble.as_ref().map_or(0, |trouble| trouble.failures) + 1;
        let delay = || c.policy.backoff.delay(failures, c.jitter, failure.retry_after);
        let retry_at = (!is_permanent(failure.reason)).then(|| c.now + delay());
        self.trouble = Some(Trouble { failure, at: c.now, failures, retry_at });
    }

    fn enter(&mut self, now: Moment, state: State, cause: impl Into<Cow<'static, str>>) {
        let (from, to) = (self.state.stage(), state.stage());
        self.state = state;
        if from == to {
            return;
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Transition { at: now, from, to, cause: cause.into() });
    }
}

/// Reading.
impl ModelMachine {
    /// What it is the machine of.
    pub fn key(&self) -> &ModelKey {
        &self.key
    }

    /// Where it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its last attempt at anything.
    pub fn last(&self) -> Attempt {
        self.last
    }

    /// How far it has come.
    pub fn stage(&self) -> Stage {
        self.state.stage()
    }

    /// What goes on, for people.
    pub fn activity(&self) -> &'static str {
        match (&self.state, &self.trouble) {
            (State::New | State::Downloaded, Some(Trouble { retry_at: None, .. })) => "failed",
            (State::New | State::Downloaded, Some(_)) => "backoff",
            (state, _) => state.activity(),
        }
    }

    /// Whether it is up, or on its way up without a failure so far. A digest
    /// that a request made up is not promising before its files are there.
    pub fn is_promising(&self, context: &Context<'_>) -> bool {
        let exists = self.demand.pinned || self.stage() > Stage::New;
        let untroubled = self.trouble.is_none() && self.wanted(context);
        self.state.needs_files() || (exists && untroubled)
    }

    /// The failure that is remembered.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The route that requests may have now.
    pub fn routed(&self) -> Option<u64> {
        self.route.filter(|_| matches!(self.state, State::Serving { .. }))
    }

    /// The route that leases may still exist of.
    pub fn leased(&self) -> Option<u64> {
        self.route
    }

    /// The latest transitions, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &Transition> {
        self.history.iter()
    }

    /// When a request last asked for exactly this version.
    pub fn asked_at(&self) -> Option<Moment> {
        self.demand.asked_at
    }

    /// Whether a preload or a followed tag holds it.
    pub fn is_pinned(&self) -> bool {
        self.demand.pinned
    }

    /// Whether it was taken down by hand.
    pub fn is_suspended(&self) -> bool {
        self.demand.suspended
    }

    /// Whether it should be up now.
    pub fn is_wanted(&self, context: &Context<'_>) -> bool {
        self.wanted(context)
    }

    /// When time alone will next change something, `after` the last tick.
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
            State::Pulling { .. }
            | State::Loading { .. }
            | State::Checking { .. }
            | State::Serving { .. }
                if !held =>
            {
                [idle_at, None]
            }
            _ => [None, None],
        };
        candidates.into_iter().flatten().filter(|at| *at > after).min()
    }

    /// Whether nothing is lost when it is forgotten.
    pub fn is_forgettable(&self, context: &Context<'_>) -> bool {
        let old = |trouble: &Trouble| context.now.since(trouble.at) >= context.policy.forget_after;
        let settled = self.trouble.as_ref().filter(|trouble| trouble.retry_at.is_none());
        self.state == State::New
            && self.route.is_none()
            && !self.demand.pinned
            && (!self.wanted(context) || settled.is_some_and(old))
    }
}

/// Whether a failure lasts until something changes: another digest, or somebody
/// who asks for another try.
pub(crate) fn is_permanent(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ModelNotFound
            | Reason::TagNotFound
            | Reason::DigestNotFound
            | Reason::ImageNotAllowed
            | Reason::ImageInvalid
            | Reason::GoldenMismatch
    )
}

impl Fault {
    fn into_failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::FilesMissing => {
                Failure::new(Reason::Internal, "the files vanished while they were pulled")
            }
        }
    }
}
