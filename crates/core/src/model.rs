//! The machine of one version of a model: from a digest to a servable.

mod demand;
mod files;
mod load;
mod read;
mod slot;
mod state;
#[cfg(test)]
mod tests;
mod trouble;

use std::{borrow::Cow, collections::VecDeque};

use demand::Demand;
pub use slot::Slot;
pub use state::{State, Transition};
pub use trouble::Trouble;
pub(crate) use trouble::is_permanent;

use crate::{Attempt, Context, EngineId, Failure, ModelKey, Moment, Outcome, ServableId};

/// The number of transitions each machine remembers.
const HISTORY: usize = 32;

/// The life cycle of one version of a model.
///
/// An event first updates what the machine knows; then the machine takes every step that is due. It
/// requests work as effects, and each effect with an attempt is completed by one event with the
/// same attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelMachine {
    key: ModelKey,
    state: State,
    last: Attempt,
    demand: Demand,
    slot: Slot,
    trouble: Option<Trouble>,
    /// The route of which leases may still exist, whether published or not.
    route: Option<u64>,
    routes: u64,
    /// The configured engine was changed while the version was being published for the previous
    /// one.
    is_misplaced: bool,
    /// Whether the version was wanted when it was last examined.
    is_wanted: bool,
    /// The last time at which the version is known to have been wanted.
    wanted_at: Moment,
    history: VecDeque<Transition>,
}

/// An event for a version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A request asks for exactly this version.
    Ask,
    /// A request by tag needs it: reverses an unload by an operator.
    Wake,
    /// A request used exactly this version, at that time.
    Used(Moment),
    /// True: a preload or a followed tag keeps it up. False: none does any more.
    Pin(bool),
    /// From now on, the version has this right to be in the engine.
    Slot(Slot),
    /// The cause of a failure may be gone: try again now.
    Retry,
    /// Unload it; with `delete`, delete its files as well.
    Unload {
        /// Whether to delete its files.
        delete: bool,
    },
    /// The version must not be served any more, whatever asks for it, until its check passes again.
    Revoked(Failure),
    /// The version has ended the engine again and again: it is not loaded until it is retried.
    Quarantined(Failure),
    /// The configuration names another engine: the version leaves this one and is prepared again.
    Relocate,
    /// The store deleted its files to make room.
    Evicted,
    /// [`Effect::Pull`] ended.
    Pulled(Attempt, Result<(), Fault>),
    /// [`Effect::Prepare`] ended: the engine that will run the version.
    Prepared(Attempt, Result<EngineId, Fault>),
    /// [`Effect::Publish`] ended.
    Published(Attempt, Result<(), Fault>),
    /// The engine serves it.
    Up(ServableId),
    /// The engine could not load it.
    LoadFailed(ServableId, Failure),
    /// The engine restarted and has forgotten it: it is added again.
    Lost(ServableId),
    /// After [`Effect::Remove`]: the engine does not use the version any more.
    Gone(ServableId),
    /// [`Effect::Check`] ended.
    Checked(Attempt, Result<(), Failure>),
    /// No lease of that route exists any more.
    Drained(u64),
    /// [`Effect::Delete`] ended.
    Deleted(Attempt),
}

/// The cause of a failure in work on files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The files are not in the store any more.
    FilesMissing,
    /// Anything else.
    Failed(Failure),
}

/// An effect for the shell to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Get its verified files into the store, unless they are there.
    Pull(Attempt),
    /// Cancel the pull: the version is not wanted any more.
    CancelPull(Attempt),
    /// Read its metadata and check it against the signature on disk.
    Prepare(Attempt),
    /// Put it where the engine finds it, as this servable.
    Publish(Attempt, ServableId),
    /// Remove it from the place where the engine finds it.
    Unpublish(ServableId),
    /// Have the engine load it.
    Add(ServableId),
    /// Have the engine unload it.
    Remove(ServableId),
    /// Pass it through the gate.
    Check(Attempt, ServableId),
    /// Route requests to it, under the route of this number.
    Route(ServableId, u64),
    /// Give that route to no further request; [`Event::Drained`] follows.
    Withdraw(u64),
    /// Delete its files.
    Delete(Attempt),
}

impl ModelMachine {
    /// Creates the machine of an unknown version; its attempts come after `last`.
    pub fn new(key: ModelKey, last: Attempt, now: Moment) -> Self {
        Self {
            key,
            state: State::New,
            last,
            demand: Demand::default(),
            slot: Slot::default(),
            trouble: None,
            route: None,
            routes: 0,
            is_misplaced: false,
            is_wanted: false,
            wanted_at: now,
            history: VecDeque::new(),
        }
    }

    /// Creates the machine of a version that a still running engine may have loaded as `id`.
    pub fn adopted(key: ModelKey, id: ServableId, now: Moment) -> Self {
        let mut machine = Self::new(key, Attempt::default(), now);
        machine.demand.asked_at = Some(now);
        machine.enter(now, State::Loading { id }, "found in the journal");
        machine
    }

    /// Handles an event. The effects are to be carried out in their order.
    pub fn handle(&mut self, context: &mut Context<'_>, event: Event) -> (Vec<Effect>, Outcome) {
        let mut effects = Vec::new();
        // Either may come just before the other, when a tag moves to a version that is overdue.
        let is_kept = matches!(event, Event::Retry | Event::Pin(true));
        let outcome = self.apply(context, event, &mut effects);
        if outcome == Outcome::Handled {
            while self.settle(context, is_kept, &mut effects) {}
        }
        (effects, outcome)
    }

    /// Updates the machine for an event, before any step is taken.
    fn apply(&mut self, c: &mut Context<'_>, event: Event, effects: &mut Vec<Effect>) -> Outcome {
        match event {
            Event::Tick => {}
            Event::Ask => {
                self.demand.asked_at = Some(c.now);
                self.wake();
            }
            Event::Wake => self.wake(),
            Event::Used(at) => self.demand.asked_at = self.demand.asked_at.max(Some(at)),
            Event::Pin(pinned) => self.demand.pinned = pinned,
            Event::Slot(slot) => self.slot = slot,
            Event::Retry => {
                self.trouble = None;
                self.wake();
            }
            Event::Unload { delete } => {
                self.demand.asked_at = None;
                self.demand.suspended = true;
                self.demand.delete = delete;
            }
            Event::Revoked(failure) => return self.revoked(c, failure, effects),
            Event::Quarantined(failure) => self.fail(c, failure),
            Event::Relocate => self.relocate(c, effects),
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

    /// Takes the next step that is due; returns false if there is none. If it `is_kept`, deletion is
    /// left to the next tick.
    fn settle(&mut self, c: &mut Context<'_>, is_kept: bool, effects: &mut Vec<Effect>) -> bool {
        let wanted = self.wanted(c);
        if wanted || self.is_wanted {
            self.wanted_at = c.now;
        }
        self.is_wanted = wanted;
        let may_be_up = self.may_be_up(c);
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
            State::Downloaded if self.may_be_prepared(c) => {
                let attempt = self.last.begin();
                self.state = State::Preparing { attempt };
                effects.push(Effect::Prepare(attempt));
            }
            State::Downloaded if !wanted && !is_kept && self.expired(c) => {
                let attempt = self.last.begin();
                self.state = State::Deleting { attempt };
                effects.push(Effect::Delete(attempt));
            }
            State::Prepared if !wanted || self.slot == Slot::Taken => {
                self.state = State::Downloaded;
            }
            State::Prepared if may_be_up => self.publish(c, effects),
            State::Loading { id } | State::Checking { id, .. } if !may_be_up => {
                self.state = State::Leaving { id };
            }
            State::Serving { id } if !may_be_up => {
                self.withdraw(effects);
                self.state = State::Draining { id };
            }
            State::Draining { id } if may_be_up => self.serve(c, id, "wanted again", effects),
            State::Draining { id } | State::Leaving { id } if self.route.is_none() => {
                self.enter(c.now, State::Unloading { id: id.clone() }, "drained");
                effects.push(Effect::Remove(id));
            }
            _ => return false,
        }
        true
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
