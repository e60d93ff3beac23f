//! The time that versions have spent in their current step without progress.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_core::{Digest, ModelKey, ModelName, Moment, Step, machines::Machines};

/// Versions with a step under way.
#[derive(Default)]
pub(crate) struct Steps {
    under_way: BTreeMap<ModelKey, (Step, Moment)>,
    slowest: BTreeMap<Step, Slowest>,
}

/// The versions in one step, by the time at which they began it.
#[derive(Default)]
struct Slowest {
    begun: BTreeSet<(Moment, ModelKey)>,
    /// The time of the last progress of the first of them, either its own or that of a version that
    /// it may have waited for.
    since: Moment,
}

impl Steps {
    /// Updates the steps of models that have changed.
    pub(crate) fn follow(
        &mut self,
        changed: &BTreeSet<ModelName>,
        machines: &Machines,
        now: Moment,
    ) {
        for name in changed {
            for model in machines.models_of(name) {
                self.enter(model.key(), model.state().step(), now);
            }
            let first = ModelKey { name: name.clone(), digest: Digest::LEAST };
            let own = self.under_way.range(first..).map(|(key, _)| key);
            let own = own.take_while(|key| key.name == *name);
            let forgotten: Vec<_> =
                own.filter(|key| machines.model(key).is_none()).cloned().collect();
            forgotten.iter().for_each(|key| self.enter(key, None, now));
        }
    }

    fn enter(&mut self, key: &ModelKey, step: Option<Step>, now: Moment) {
        if self.under_way.get(key).map(|(step, _)| *step) == step {
            return;
        }
        if let Some((step, began)) = self.under_way.remove(key) {
            self.slowest.entry(step).or_default().end(began, key, now);
        }
        if let Some(step) = step {
            self.under_way.insert(key.clone(), (step, now));
            self.slowest.entry(step).or_default().begin(key, now);
        }
    }

    /// For each step, the time since when its slowest version has made no progress. Steps without
    /// versions are left out.
    pub(crate) fn oldest(&self) -> BTreeMap<Step, Moment> {
        let slowest = self.slowest.iter().filter(|(_, it)| !it.begun.is_empty());
        slowest.map(|(step, it)| (*step, it.since)).collect()
    }
}

impl Slowest {
    fn begin(&mut self, key: &ModelKey, now: Moment) {
        if self.begun.is_empty() {
            self.since = now;
        }
        self.begun.insert((now, key.clone()));
    }

    /// Restarts the time of versions that started the step after the one that ended: pulls and the
    /// engine's loads take turns, so those may have waited for it. A version that started earlier
    /// has not waited for it, and may hang. The first to start has made no progress for longest.
    fn end(&mut self, began: Moment, key: &ModelKey, now: Moment) {
        self.begun.remove(&(began, key.clone()));
        if self.begun.first().is_some_and(|(first, _)| began <= *first) {
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn version(text: &str) -> ModelKey {
        let name = "churn".parse().expect("a valid name");
        ModelKey { name, digest: Digest::of(text.as_bytes()) }
    }

    fn minute(minutes: u64) -> Moment {
        Moment::at(Duration::from_secs(60 * minutes))
    }

    fn loading(steps: &Steps) -> Option<Moment> {
        steps.oldest().get(&Step::Load).copied()
    }

    #[test]
    fn loads_that_overlap_make_none_old() {
        let mut steps = Steps::default();
        steps.enter(&version("0"), Some(Step::Load), minute(0));
        for at in 1..60 {
            // In every minute some version is loading, but none for longer than two minutes.
            steps.enter(&version(&at.to_string()), Some(Step::Load), minute(at));
            steps.enter(&version(&(at - 1).to_string()), Some(Step::Gate), minute(at + 1));
            steps.enter(&version(&(at - 1).to_string()), None, minute(at + 1));
            assert!(loading(&steps) >= Some(minute(at)), "{at}");
        }
    }

    #[test]
    fn waiting_versions_do_not_age() {
        let mut steps = Steps::default();
        for each in 0..30 {
            steps.enter(&version(&each.to_string()), Some(Step::Load), minute(0));
        }
        for each in 0..29 {
            steps.enter(&version(&each.to_string()), None, minute(each));
        }
        assert_eq!(loading(&steps), Some(minute(28)));
    }

    #[test]
    fn one_that_hangs_is_old_however_many_pass_it() {
        let mut steps = Steps::default();
        steps.enter(&version("hangs"), Some(Step::Load), minute(0));
        for at in 1..60 {
            steps.enter(&version(&at.to_string()), Some(Step::Load), minute(at));
            steps.enter(&version(&at.to_string()), None, minute(at));
        }
        assert_eq!(loading(&steps), Some(minute(0)));
        steps.enter(&version("hangs"), None, minute(60));
        assert_eq!(loading(&steps), None);
    }

    #[test]
    fn each_step_begins_anew() {
        let mut steps = Steps::default();
        for (at, step) in Step::ALL.into_iter().enumerate() {
            let at = minute(at as u64);
            steps.enter(&version("one"), Some(step), at);
            steps.enter(&version("one"), Some(step), at + Duration::from_secs(30));
            assert_eq!(steps.oldest(), BTreeMap::from([(step, at)]));
        }
    }
}
