//! The engine's status, and the conclusions from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use outrigger_core::{
    Attempt, Failure, Moment, Outcome, Reason, ServableId, ServableName, Version,
};

use super::{
    Context, Effect, ServingMachine,
    names::{Reported, Stage},
    reload::Push,
};

/// The number of probes in which every name has its turn, if there are many.
const ROUND: usize = 16;
/// The least number of names that have their turn in a probe.
const TURN: usize = 16;

/// A version in the engine's status.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The version.
    pub version: Version,
    /// The version's state.
    pub state: EngineState,
    /// The failure, if the version ended with one.
    pub failure: Option<Failure>,
}

/// The state of a version in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineState {
    /// A state that this code does not know.
    Unknown,
    /// Known to the engine, and waiting to be loaded.
    Start,
    /// Being loaded, or waiting for another attempt.
    Loading,
    /// Serving.
    Available,
    /// Being unloaded.
    Unloading,
    /// Unloaded, or failed.
    End,
}

type Status = BTreeMap<ServableName, Vec<Seen>>;

impl ServingMachine {
    pub(super) fn probed(
        &mut self,
        c: &Context<'_>,
        attempt: Attempt,
        result: Result<Status, Failure>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if self.probe != Some(attempt) {
            return Outcome::late(attempt, self.last_probe);
        }
        self.probe = None;
        self.probe_at = c.now + self.probe_interval(c);
        match result {
            // An engine that hangs has not answered for longer than the probe took to fail.
            Err(failure) if failure.reason != Reason::EngineUnavailable => {
                self.unreachable(self.answered_at.unwrap_or(c.now), failure);
            }
            Err(failure) => self.unreachable(c.now, failure),
            Ok(status) => {
                self.answered_at = Some(c.now);
                if self.reachable.replace(true) != Some(true) {
                    self.failure = None;
                }
                self.down_since = None;
                if self.has_restarted(&status) {
                    self.restarted(effects);
                } else {
                    self.learn(c, &status, effects);
                }
            }
        }
        Outcome::Handled
    }

    pub(super) fn unreachable(&mut self, now: Moment, failure: Failure) {
        self.reachable = Some(false);
        self.down_since.get_or_insert(now);
        self.failure = Some(failure);
    }

    /// Whether the engine has restarted: a name or a version that it once reported is now unknown,
    /// and an engine forgets only by ending.
    fn has_restarted(&self, status: &Status) -> bool {
        self.names.iter().filter(|(_, name)| name.is_known()).any(|(servable, name)| {
            let Some(seen) = status.get(servable) else { return false };
            let up = name.versions.iter().filter(|(_, reported)| **reported == Reported::Up);
            seen.is_empty()
                || up.into_iter().any(|(version, _)| seen.iter().all(|it| it.version != *version))
        })
    }

    fn restarted(&mut self, effects: &mut Vec<Effect>) {
        self.restarts += 1;
        effects.push(Effect::Restarted);
        // A push that is under way may have reached the restarted engine. It ends by itself, and
        // until then the versions in it must stay on disk.
        let running = matches!(self.push, Push::Running(_));
        self.sent = self.sent.take().filter(|_| running);
        if let Some(sent) = &mut self.sent {
            sent.crossed = true;
        }
        let carried = self.sent.as_ref();
        for (servable, name) in &mut self.names {
            name.kept = carried.is_some_and(|sent| sent.set.contains_key(servable));
            if let Stage::Known(placeholder) = name.stage {
                name.stage = Stage::Published(placeholder);
            }
            for (version, reported) in &mut name.versions {
                if *reported == Reported::Failed {
                    continue;
                }
                let id = ServableId { name: servable.clone(), version: *version };
                let is_carried = carried.is_some_and(|sent| sent.has(&id));
                let lost = if is_carried { Reported::Carried } else { Reported::Lost };
                if !std::mem::replace(reported, lost).is_lost() {
                    effects.push(Effect::Lost(id));
                }
            }
        }
        if !running {
            self.push = Push::Idle;
            for (id, leaving) in std::mem::take(&mut self.leaving) {
                effects.push(left(id, leaving.placeholder));
            }
        }
        self.push_failures = 0;
    }

    fn learn(&mut self, c: &Context<'_>, status: &Status, effects: &mut Vec<Effect>) {
        if self.sent.as_ref().is_some_and(|sent| sent.is_forgotten(status)) {
            self.not_taken();
        }
        for (servable, seen) in status {
            self.learn_name(c, servable, seen, effects);
        }
        self.learn_leaving(c, status, effects);
        if matches!(self.push, Push::Unanswered(_)) && self.is_done(status) {
            self.taken(c.now, effects);
        }
    }

    fn learn_name(
        &mut self,
        c: &Context<'_>,
        servable: &ServableName,
        seen: &[Seen],
        effects: &mut Vec<Effect>,
    ) {
        let Some(name) = self.names.get_mut(servable) else { return };
        for (version, reported) in &mut name.versions {
            let Some(seen) = seen.iter().find(|it| it.version == *version) else { continue };
            let id = ServableId { name: servable.clone(), version: *version };
            match (seen.state, *reported) {
                (_, Reported::Failed | Reported::Lost | Reported::Carried)
                | (EngineState::Available, Reported::Up) => {}
                (EngineState::Available, _) => {
                    *reported = Reported::Up;
                    effects.push(Effect::Up(id));
                }
                (EngineState::End, _) => {
                    *reported = Reported::Failed;
                    let failure = seen.failure.clone().unwrap_or_else(unloaded);
                    effects.push(Effect::Failed(id, failure));
                }
                (_, Reported::Nothing) => *reported = Reported::Loading,
                (_, Reported::Loading | Reported::Up) => {}
            }
        }
        let sent = self.sent.as_ref().is_some_and(|sent| sent.set.contains_key(servable));
        name.kept = sent || !seen.is_empty();
        let Stage::Published(placeholder) = name.stage else { return };
        let own = |it: &&Seen| name.has(it.version);
        if seen.iter().filter(own).any(|it| it.state == EngineState::Available) {
            name.stage = Stage::Known(placeholder);
        } else if seen.iter().any(|it| it.version == placeholder && it.state == EngineState::End) {
            self.replace_placeholder(c, servable);
        }
    }

    fn learn_leaving(&mut self, c: &Context<'_>, status: &Status, effects: &mut Vec<Effect>) {
        let mut gone = Vec::new();
        let taken: BTreeSet<_> = self
            .leaving
            .iter()
            .filter(|(_, leaving)| self.was_taken(leaving.push))
            .map(|(id, _)| id.clone())
            .collect();
        for (id, leaving) in &mut self.leaving {
            let Some(seen) = status.get(&id.name).filter(|_| taken.contains(id)) else { continue };
            match seen.iter().find(|it| it.version == id.version).map(|it| it.state) {
                Some(EngineState::End) => gone.push(id.clone()),
                Some(_) => leaving.absent_since = None,
                None => {
                    let since = *leaving.absent_since.get_or_insert(c.now);
                    if c.now.since(since) >= c.policy.absent_grace {
                        gone.push(id.clone());
                    }
                }
            }
        }
        for id in gone {
            if let Some(leaving) = self.leaving.remove(&id) {
                effects.push(left(id, leaving.placeholder));
            }
        }
    }

    /// Whether the status shows that the engine has finished the configuration sent last.
    fn is_done(&self, status: &Status) -> bool {
        let Some(sent) = &self.sent else { return true };
        let state = |name: &ServableName, version: Version| {
            let seen = status.get(name)?;
            seen.iter().find(|it| it.version == version).map(|it| it.state)
        };
        let ended = |state| matches!(state, EngineState::Available | EngineState::End);
        let arrived = sent.set.iter().all(|(name, versions)| {
            let states: Vec<_> = versions.iter().map(|version| state(name, *version)).collect();
            states.iter().all(Option::is_some) && states.into_iter().flatten().any(ended)
        });
        let mut gone = self.leaving.iter().filter(|(_, it)| it.push == Some(sent.push));
        arrived
            && gone.all(|(id, _)| {
                matches!(
                    state(&id.name, id.version),
                    None | Some(EngineState::Unloading | EngineState::End)
                )
            })
    }

    /// Schedules an early probe, but not one for every request that fails.
    pub(super) fn suspect(&mut self, c: &Context<'_>) {
        self.is_suspect = true;
        let earliest = self.probed_at.map_or(c.now, |at| at + c.policy.busy_probe);
        self.probe_at = self.probe_at.min(earliest.max(c.now));
    }

    fn probe_interval(&self, c: &Context<'_>) -> std::time::Duration {
        let long_down = self.down_since.is_some_and(|at| c.now.since(at) >= c.policy.patience);
        if self.is_busy() && !long_down { c.policy.busy_probe } else { c.policy.steady_probe }
    }

    /// Probes the engine if a probe is due.
    pub(super) fn settle_probe(&mut self, c: &Context<'_>, effects: &mut Vec<Effect>) {
        if self.probe.is_some() {
            return;
        }
        self.probe_at = self.probe_at.min(c.now + self.probe_interval(c));
        if self.probe_at > c.now {
            return;
        }
        let attempt = self.last_probe.begin();
        self.probe = Some(attempt);
        self.probed_at = Some(c.now);
        let names = self.names_to_probe();
        effects.push(Effect::Probe(attempt, names));
    }

    /// The names with pending work, and in turn a part of the others, because any name shows a
    /// restart of the engine. After a suspected restart, or if only the status shows the end of a
    /// reload, all names.
    fn names_to_probe(&mut self) -> BTreeSet<ServableName> {
        let known = self.names.iter().filter(|(_, name)| name.placeholder().is_some());
        let leaving = self.leaving.keys().map(|id| &id.name);
        let is_for_all = matches!(self.push, Push::Unanswered(_));
        if std::mem::take(&mut self.is_suspect) || is_for_all {
            return known.map(|(servable, _)| servable).chain(leaving).cloned().collect();
        }
        let pending = known.filter(|(_, name)| name.is_pending()).map(|(servable, _)| servable);
        let mut names: BTreeSet<_> = pending.chain(leaving).cloned().collect();
        let turn = self.turn();
        self.probed_to = turn.last().cloned();
        names.extend(turn);
        names
    }

    /// The next names whose turn it is, in their order.
    fn turn(&self) -> Vec<ServableName> {
        let after = self.probed_to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.names.range((after, Bound::Unbounded));
        let known = later.chain(&self.names).filter(|(_, name)| name.placeholder().is_some());
        let most = (self.names.len() / ROUND).max(TURN).min(self.names.len());
        known.take(most).map(|(servable, _)| servable.clone()).collect()
    }
}

fn left(id: ServableId, placeholder: bool) -> Effect {
    if placeholder { Effect::Unpublish(id) } else { Effect::Gone(id) }
}

fn unloaded() -> Failure {
    Failure::new(Reason::EngineFailed, "the engine unloaded it without a request to do so")
}
