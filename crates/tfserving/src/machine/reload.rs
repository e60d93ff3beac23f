//! Pushes of the configuration, and their results.

use outrigger_core::{Attempt, Failure, Moment, Outcome, ServableId};

use super::{Context, Effect, Policy, Sent, ServingMachine, names::Reported};

/// The state of the configuration push.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Push {
    /// No push is under way.
    Idle,
    /// A reload is under way. Ends with `Pushed`, or a restart.
    Running(Attempt),
    /// A reload got no answer: the engine may still be working on it. Ends when the engine shows
    /// that it has finished, with a restart, or at this time.
    Unanswered(Moment),
    /// The engine refused the configuration; the next attempt is at this time.
    Backoff(Moment),
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PushOutcome {
    /// The engine took the configuration; the failure is that of a model, if one failed.
    Taken(Option<Failure>),
    /// The engine did not take the configuration.
    Refused(Failure),
    /// The engine did not answer in time: it may still be working on the reload.
    TimedOut,
    /// The connection broke, or could not be made.
    Lost(Failure),
}

impl ServingMachine {
    pub(super) fn pushed(
        &mut self,
        c: &Context<'_>,
        attempt: Attempt,
        outcome: PushOutcome,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.push != Push::Running(attempt) {
            return Outcome::late(attempt, self.last_push);
        }
        match outcome {
            PushOutcome::Taken(failure) => {
                self.failure = failure;
                self.taken(c.now, effects);
            }
            PushOutcome::Refused(failure) => {
                self.push_failures += 1;
                let delay = c.policy.backoff.delay(self.push_failures, c.jitter, None);
                self.failure = Some(failure);
                self.not_taken();
                self.push = Push::Backoff(c.now + delay);
            }
            PushOutcome::TimedOut => {
                self.push = Push::Unanswered(c.now + c.policy.reload_limit);
            }
            PushOutcome::Lost(failure) => {
                self.push_failures += 1;
                let delay = c.policy.backoff.delay(self.push_failures, c.jitter, None);
                self.unreachable(c.now, failure);
                if self.sent.as_ref().is_some_and(|sent| sent.crossed) {
                    // The connection was that of the process that ended.
                    self.not_taken();
                }
                self.push = Push::Unanswered(c.now + delay.max(c.policy.absent_grace));
            }
        }
        self.probe_at = self.probe_at.min(c.now);
        Outcome::Handled
    }

    /// Records that the engine has finished the configuration sent last.
    pub(super) fn taken(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.push = Push::Idle;
        self.push_failures = 0;
        if let Some(sent) = &mut self.sent {
            sent.taken_at = Some(now);
            if sent.crossed {
                // A status from before the answer does not show which process gave it.
                self.probe = None;
            }
        }
        if !std::mem::replace(&mut self.settled, true) {
            effects.push(Effect::Settled);
        }
    }

    /// Records that the engine does not, or not for certain, have the configuration sent last.
    pub(super) fn not_taken(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        for leaving in self.leaving.values_mut().filter(|it| it.push == Some(sent.push)) {
            leaving.push = None;
        }
        let reported = self.names.values_mut().flat_map(|name| name.versions.values_mut());
        for carried in reported.filter(|it| **it == Reported::Carried) {
            *carried = Reported::Lost;
        }
    }

    /// Whether the engine took the configuration of `push`.
    pub(super) fn was_taken(&self, push: Option<Attempt>) -> bool {
        match (push, &self.sent) {
            (None, _) => false,
            (Some(push), Some(sent)) if sent.push == push => sent.taken_at.is_some(),
            // Only one push runs at a time, and `not_taken` resets those that failed.
            _ => true,
        }
    }

    /// Sends the configuration if a push is due.
    pub(super) fn settle_push(&mut self, c: &Context<'_>, effects: &mut Vec<Effect>) {
        match self.push {
            Push::Running(_) => return,
            Push::Unanswered(until) | Push::Backoff(until) if c.now < until => return,
            Push::Unanswered(_) => self.not_taken(),
            Push::Backoff(_) | Push::Idle => {}
        }
        self.push = Push::Idle;
        let set = self.target();
        let current = self.sent.as_ref().is_some_and(|sent| sent.set == set);
        let waits = current || self.is_crossing();
        if self.reachable != Some(true) || (waits && !self.is_stuck(c)) {
            return;
        }
        let push = self.last_push.begin();
        for leaving in self.leaving.values_mut().filter(|leaving| leaving.push.is_none()) {
            leaving.push = Some(push);
        }
        for (servable, name) in &mut self.names {
            name.kept |= set.contains_key(servable);
        }
        self.sent = Some(Sent { set: set.clone(), push, taken_at: None, crossed: false });
        self.push = Push::Running(push);
        effects.push(Effect::Push(push, set));
    }

    /// True if the engine restarted during a reload that was answered, and the status does not show
    /// yet which process has it.
    fn is_crossing(&self) -> bool {
        let unseen = |sent: &Sent| {
            self.names.iter().any(|(servable, name)| {
                !name.is_known()
                    && name.placeholder().is_some_and(|version| {
                        sent.has(&ServableId { name: servable.clone(), version })
                    })
            })
        };
        self.sent.as_ref().is_some_and(|sent| sent.crossed && unseen(sent))
    }

    /// Whether the engine took the configuration long ago and still does not report something in
    /// it.
    fn is_stuck(&self, c: &Context<'_>) -> bool {
        let taken_at = self.sent.as_ref().and_then(|sent| sent.taken_at);
        taken_at.is_some_and(|at| c.now.since(at) >= c.policy.stuck_after) && self.is_ignored()
    }

    /// Whether the engine does not report something that is configured.
    fn is_ignored(&self) -> bool {
        self.names.values().any(|name| {
            name.placeholder().is_some()
                && (!name.is_known()
                    || name.versions.values().any(|reported| *reported == Reported::Nothing))
        })
    }

    pub(super) fn push_wakes_at(&self, policy: &Policy) -> Option<Moment> {
        match (&self.push, self.sent.as_ref().and_then(|sent| sent.taken_at)) {
            (Push::Unanswered(until) | Push::Backoff(until), _) => Some(*until),
            (Push::Idle, Some(at)) if self.is_ignored() => Some(at + policy.stuck_after),
            _ => None,
        }
    }
}
