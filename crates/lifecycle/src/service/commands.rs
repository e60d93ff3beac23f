//! Commands of the handle, and results of jobs.

use std::{sync::Arc, time::Duration};

use outrigger_core::{
    Attempt, Digest, Failure, ModelKey, ModelName, Reason, Selector,
    machines::{Event, Machines, TagKey},
    model::{self, Fault, State},
    tags,
};
use tokio::sync::oneshot;

use super::{Service, Stop, report};
use crate::{
    Tunables,
    handle::Command,
    jobs::{Done, Kept, Origin, Prepared},
    names::Names,
};

/// The grace period of a stop without an explicit one.
const GRACE: Duration = Duration::from_secs(5);

impl Service {
    pub(super) fn command(&mut self, command: Option<Command>) -> Option<Stop> {
        match command {
            None => return Some(Stop { grace: GRACE, done: None }),
            Some(Command::Shutdown { grace, done }) => {
                return Some(Stop { grace, done: Some(done) });
            }
            Some(Command::Ask { model, selector, caller }) => {
                self.report_uses_of(&model, &selector);
                if let Some(caller) = caller {
                    self.askers.entry(model.clone()).or_insert(caller);
                }
                let is_listed = self.world.names.load().is_configured(&model);
                let ask = if is_listed { Event::AskListed } else { Event::Ask };
                self.apply(ask(model, selector));
            }
            Some(Command::Load { model, selector, done }) => {
                self.report_uses_of(&model, &selector);
                self.apply(Event::Load(model, selector));
                // The caller then waits for the model, and must not see an earlier route.
                self.reply(done, ());
            }
            Some(Command::Decide { model, tag, act, by, done }) => {
                let key = TagKey { name: model, tag };
                let (decided, decision) = oneshot::channel();
                self.decisions.push((decision, done));
                self.try_trials(|trials, cx| trials.decide(&key, act, by, decided, cx));
            }
            Some(Command::Reconfigure { names, tunables, done }) => {
                self.reconfigure(names, *tunables);
                self.reply(done, ());
            }
            Some(Command::Unload { model, selector, delete, done }) => {
                let result = self.unload(model, selector, delete);
                self.reply(done, result);
            }
        }
        None
    }

    /// Answers a caller once the changes are published.
    fn reply<T: Send + 'static>(&mut self, done: oneshot::Sender<T>, result: T) {
        // The caller may have gone.
        self.replies.push(Box::new(move || drop(done.send(result))));
    }

    /// Reports the uses of the other tags of `model` before `selector` becomes known, because the
    /// longest unused of them may be forgotten for it.
    fn report_uses_of(&mut self, model: &ModelName, selector: &Selector) {
        if self.machines.is_known(model, selector) {
            return;
        }
        let now = self.clock.now();
        let used = self.publishing.routing.take_used(&[model.clone()].into(), now);
        if !used.is_empty() {
            self.apply_at(now, Event::Used(used));
        }
    }

    /// Applies another configuration.
    fn reconfigure(&mut self, names: Arc<Names>, tunables: Tunables) {
        let old = self.world.names.swap(Arc::clone(&names));
        self.watch_directories();
        let known = self.machines.names();
        let in_use = |(name, before): (&ModelName, &Selector)| {
            let is_up = self.machines.is_up(name, before, self.clock.now());
            is_up.then(|| Event::Ask(name.clone(), names.default_selector(name)))
        };
        // The old selector answers until the new one does, so the new one must be requested here.
        let asked: Vec<_> = names.before().iter().filter_map(in_use).collect();
        let canaries = tunables.canary.enabled.then(|| names.canary_tags());
        let policy = super::policy(&self.world.config, &tunables);
        self.trials.reconfigure(tunables.canary);
        let tuned = [Event::Policy(policy), Event::Canaries(canaries)];
        let changes = names.changes(&old, known).into_iter().chain(asked).chain(tuned);
        changes.for_each(|event| self.apply(event));
        self.publishing.configurations += 1;
    }

    fn unload(&mut self, name: ModelName, selector: Selector, delete: bool) -> Result<(), Failure> {
        if !self.machines.is_known(&name, &selector) {
            return Err(nothing_known(&self.machines, &name, &selector));
        }
        self.apply(Event::Unload { name, selector, delete });
        Ok(())
    }

    pub(super) fn done(&mut self, done: Done) -> Option<Stop> {
        match done {
            Done::Nothing => {}
            Done::Event(event) => {
                let polled = match &event {
                    Event::Tag(key, tags::Event::Resolved(..)) => Some(key.clone()),
                    _ => None,
                };
                self.apply(event);
                if let Some(key) = polled {
                    self.try_canaries(|trials, cx| trials.looked_up(&key, cx));
                }
            }
            Done::Pulled { origin, result, evicted } => self.pulled(&origin, result, evicted),
            Done::Trial(completion) => {
                self.try_trials(|trials, cx| trials.completed(completion, cx));
            }
            Done::Verified(revoked) => {
                self.revoke(revoked, "verifying it again");
                self.verify_later();
            }
            Done::Prepared { key, attempt, result } => self.prepared(key, attempt, result),
            Done::Checked { key, attempt, prepared, result, harmed } => {
                match &result {
                    Ok(replayed) => report::replay(&key, replayed),
                    Err(failure) => report::failure(&key, "the gate", failure),
                }
                if let Some(prepared) = prepared {
                    self.versions.prepared.insert(key.clone(), prepared);
                }
                let result = result.map(|replayed| {
                    self.versions.replayed.insert(key.clone(), replayed);
                });
                self.apply(Event::Model(key, model::Event::Checked(attempt, result)));
                self.revoke(harmed, "its golden cases");
            }
        }
        None
    }

    /// Takes versions out of the engine that must not be served any more.
    fn revoke(&mut self, revoked: Vec<(ModelKey, Failure)>, step: &'static str) {
        for (key, failure) in revoked {
            report::failure(&key, step, &failure);
            self.apply(Event::Model(key, model::Event::Revoked(failure)));
        }
    }

    fn prepared(&mut self, key: ModelKey, attempt: Attempt, result: Result<Arc<Prepared>, Fault>) {
        if let Err(Fault::Failed(failure)) = &result {
            report::failure(&key, "preparing", failure);
        }
        // A stale preparation may be that for another engine.
        let model = self.machines.model(&key);
        let is_current = model.is_some_and(|it| *it.state() == State::Preparing { attempt });
        let result = result.map(|prepared| {
            let (engine, _) = prepared.engine.clone();
            if is_current {
                self.versions.prepared.insert(key.clone(), prepared);
            }
            engine
        });
        self.apply(Event::Model(key, model::Event::Prepared(attempt, result)));
    }

    fn pulled(&mut self, origin: &Origin, result: Result<Kept, Failure>, evicted: Vec<Digest>) {
        for digest in evicted {
            self.apply(Event::Evicted(digest));
        }
        for (key, attempt) in self.pulls.end(origin) {
            if let Err(failure) = &result {
                report::failure(&key, "the pull", failure);
            }
            let result = result.clone().map_err(Fault::Failed).map(|kept| {
                self.versions.kept.insert(key.clone(), kept);
            });
            self.apply(Event::Model(key, model::Event::Pulled(attempt, result)));
        }
    }
}

fn nothing_known(machines: &Machines, name: &ModelName, selector: &Selector) -> Failure {
    let known =
        machines.models_of(name).next().is_some() || machines.tags_of(name).next().is_some();
    let reason = match selector {
        _ if !known => Reason::ModelNotFound,
        Selector::Tag(_) => Reason::TagNotFound,
        Selector::Digest(_) => Reason::DigestNotFound,
    };
    Failure::new(reason, format!("{name}{selector} is not known here"))
}

#[cfg(test)]
mod tests {
    use outrigger_core::ModelKey;

    use super::*;
    use crate::rig::{churn, service};

    #[tokio::test]
    async fn the_end_of_a_cancelled_pull_does_not_end_the_next_one() {
        let (_handle, mut service, _dir) = service(crate::Config::default());
        let key = ModelKey { name: churn(), digest: Digest::of(b"churn") };
        let ask = || Event::Ask(churn(), Selector::Digest(key.digest));
        service.apply(ask());
        service.apply(Event::Unload {
            name: churn(),
            selector: Selector::Digest(key.digest),
            delete: false,
        });
        assert!(service.pulls.is_empty(), "cancelled");
        service.apply(ask());
        let late = Failure::new(Reason::RegistryUnavailable, "the first one ended so");
        let origin = service.world.origin(&key);
        service.done(Done::Pulled { origin, result: Err(late), evicted: Vec::new() });
        let model = service.machines.model(&key).expect("it was asked for");
        assert!(matches!(model.state(), State::Pulling { .. }), "{:?}", model.state());
        assert_eq!(model.trouble(), None);
    }
}
