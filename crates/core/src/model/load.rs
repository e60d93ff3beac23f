//! Work in the engine: load, check, route, drain, unload.

use super::{Effect, ModelMachine, State};
use crate::{Attempt, Context, Failure, Outcome, ServableId};

impl ModelMachine {
    pub(super) fn up(&mut self, id: &ServableId, effects: &mut Vec<Effect>) -> Outcome {
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

    pub(super) fn load_failed(
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

    pub(super) fn lost(
        &mut self,
        c: &Context<'_>,
        id: &ServableId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        match &self.state {
            State::Serving { id: own }
            | State::Draining { id: own }
            | State::Checking { id: own, .. }
                if own == id =>
            {
                self.withdraw(effects);
                self.enter(c.now, State::Loading { id: id.clone() }, "the engine restarted");
                effects.extend(self.may_be_up(c).then_some(Effect::Add(id.clone())));
                Outcome::Handled
            }
            State::Loading { id: own } if own == id => {
                effects.push(Effect::Add(id.clone()));
                Outcome::Handled
            }
            _ => Outcome::Stale,
        }
    }

    pub(super) fn gone(
        &mut self,
        c: &Context<'_>,
        id: &ServableId,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.state != (State::Unloading { id: id.clone() }) {
            return Outcome::Stale;
        }
        self.enter(c.now, State::Downloaded, "unloaded");
        effects.push(Effect::Unpublish(id.clone()));
        Outcome::Handled
    }

    pub(super) fn checked(
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

    /// Handles a revocation. States before the engine need no action here: preparation checks the
    /// version again before it gets there.
    pub(super) fn revoked(
        &mut self,
        c: &Context<'_>,
        failure: Failure,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let (State::Loading { id }
        | State::Checking { id, .. }
        | State::Serving { id }
        | State::Draining { id }) = &self.state
        else {
            return Outcome::Stale;
        };
        let id = id.clone();
        self.withdraw(effects);
        self.fail(c, failure);
        self.enter(c.now, State::Leaving { id }, "must not be served any more");
        Outcome::Handled
    }

    /// Takes the version out of its engine, so that it is prepared again for another one.
    pub(super) fn relocate(&mut self, c: &Context<'_>, effects: &mut Vec<Effect>) {
        const CAUSE: &str = "another engine is configured";
        match &self.state {
            // The result of the preparation under way is stale from here on.
            State::Preparing { .. } | State::Prepared => {
                self.enter(c.now, State::Downloaded, CAUSE);
            }
            State::Publishing { .. } => self.is_misplaced = true,
            State::Loading { id }
            | State::Checking { id, .. }
            | State::Serving { id }
            | State::Draining { id } => {
                let id = id.clone();
                self.withdraw(effects);
                self.enter(c.now, State::Leaving { id }, CAUSE);
            }
            _ => {}
        }
    }

    pub(super) fn drained(&mut self, route: u64) -> Outcome {
        if self.route != Some(route) {
            return if route <= self.routes { Outcome::Stale } else { Outcome::Unexpected };
        }
        if matches!(self.state, State::Serving { .. }) {
            // The routing table still holds the route, so no completed drain can exist.
            return Outcome::Unexpected;
        }
        self.route = None;
        Outcome::Handled
    }

    pub(super) fn serve(
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

    /// Withdraws the route if the version is routed.
    pub(super) fn withdraw(&self, effects: &mut Vec<Effect>) {
        if let (State::Serving { .. }, Some(route)) = (&self.state, self.route) {
            effects.push(Effect::Withdraw(route));
        }
    }
}
