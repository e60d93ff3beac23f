//! Work on files: pull, prepare, publish, delete.

use super::{Effect, Fault, ModelMachine, State};
use crate::{Attempt, Context, EngineId, Outcome};

impl ModelMachine {
    pub(super) fn pulled(
        &mut self,
        c: &Context<'_>,
        attempt: Attempt,
        result: Result<(), Fault>,
    ) -> Outcome {
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

    pub(super) fn prepared(
        &mut self,
        c: &mut Context<'_>,
        attempt: Attempt,
        result: Result<EngineId, Fault>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.state != (State::Preparing { attempt }) {
            return Outcome::late(attempt, self.last);
        }
        match result {
            Err(fault) => self.files_failed(c, fault),
            Ok(_) if !self.wanted(c) => self.enter(c.now, State::Downloaded, "not wanted"),
            Ok(_) if self.slot.is_open() => self.publish(c, effects),
            Ok(_) => self.enter(c.now, State::Prepared, "prepared"),
        }
        Outcome::Handled
    }

    /// Publishes the version under a number of its own.
    pub(super) fn publish(&mut self, c: &Context<'_>, effects: &mut Vec<Effect>) {
        let id = c.versions.next(crate::ServableName::of(&self.key.name));
        let attempt = self.last.begin();
        self.enter(c.now, State::Publishing { attempt, id: id.clone() }, "prepared");
        effects.push(Effect::Publish(attempt, id));
    }

    pub(super) fn published(
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
        let is_misplaced = std::mem::take(&mut self.is_misplaced);
        match result {
            Err(fault) => self.files_failed(c, fault),
            Ok(()) if is_misplaced || !self.may_be_up(c) => {
                self.enter(c.now, State::Downloaded, "not wanted there");
                effects.push(Effect::Unpublish(id));
            }
            Ok(()) => {
                self.enter(c.now, State::Loading { id: id.clone() }, "published");
                effects.push(Effect::Add(id));
            }
        }
        Outcome::Handled
    }

    pub(super) fn evicted(&mut self, c: &Context<'_>) -> Outcome {
        match self.state {
            State::New | State::Pulling { .. } => {}
            State::Downloaded | State::Deleting { .. } => {
                self.enter(c.now, State::New, "deleted to make room");
            }
            // If the files are gone, the preparation or publication itself fails.
            State::Preparing { .. } | State::Prepared | State::Publishing { .. } => {}
            _ => return Outcome::Unexpected,
        }
        Outcome::Handled
    }

    pub(super) fn deleted(&mut self, c: &Context<'_>, attempt: Attempt) -> Outcome {
        if self.state != (State::Deleting { attempt }) {
            return Outcome::late(attempt, self.last);
        }
        self.demand.delete = false;
        self.enter(c.now, State::New, "deleted");
        Outcome::Handled
    }

    pub(super) fn files_failed(&mut self, c: &Context<'_>, fault: Fault) {
        match fault {
            Fault::FilesMissing => self.enter(c.now, State::New, "its files are gone"),
            Fault::Failed(failure) => {
                self.fail(c, failure);
                self.enter(c.now, State::Downloaded, "cannot be prepared");
            }
        }
    }
}
