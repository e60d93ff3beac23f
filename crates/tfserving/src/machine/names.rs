//! Names in the engine: their placeholders and versions.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_core::{Attempt, Failure, Moment, Outcome, ServableId, ServableName, Version};

use super::{Context, Effect, ServingMachine};

/// A name that is configured, or will be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) stage: Stage,
    pub(super) versions: BTreeMap<Version, Reported>,
    /// The engine knows the name, or may know it: then the name stays configured until the engine
    /// ends, even without versions. A reload treats a name that was removed and added again as new,
    /// and then waits for the remains of the old one, in the worst case for ever; a placeholder
    /// costs next to nothing.
    pub(super) kept: bool,
}

/// The progress of a name in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The name needs a placeholder, which is due to be published at this time.
    Bare(Moment),
    /// The placeholder is being published.
    Publishing(Attempt, Version),
    /// The placeholder is published; the engine may not know the name yet.
    Published(Version),
    /// The engine knows the name.
    Known(Version),
}

/// The last state of a version that was seen and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reported {
    /// The engine has not reported the version yet.
    Nothing,
    /// The engine is loading it.
    Loading,
    /// Reported as up.
    Up,
    /// Reported as failed.
    Failed,
    /// Reported as lost: the engine restarted, and loads the version when it is added again.
    Lost,
    /// Reported as lost, but the restarted engine may have received the reload with the version:
    /// it stays configured.
    Carried,
}

impl Reported {
    /// True if the version was reported as lost and has not been added again.
    pub(super) fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::Carried)
    }
}

/// A version that is being dropped from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leaving {
    /// The version is a placeholder: its end is not reported to anyone.
    pub(super) placeholder: bool,
    /// The first push of a configuration without it.
    pub(super) push: Option<Attempt>,
    /// The time since which the engine, after it took that push, has not reported the version.
    pub(super) absent_since: Option<Moment>,
}

impl Leaving {
    fn new(placeholder: bool) -> Self {
        Self { placeholder, push: None, absent_since: None }
    }
}

impl Name {
    fn bare(due: Moment) -> Self {
        Self { stage: Stage::Bare(due), versions: BTreeMap::new(), kept: false }
    }

    /// Creates a name that an earlier process had configured.
    pub(super) fn inherited(placeholder: Version) -> Self {
        Self { stage: Stage::Published(placeholder), versions: BTreeMap::new(), kept: true }
    }

    /// The placeholder, once it is published.
    pub(super) fn placeholder(&self) -> Option<Version> {
        match self.stage {
            Stage::Published(version) | Stage::Known(version) => Some(version),
            _ => None,
        }
    }

    pub(super) fn has(&self, version: Version) -> bool {
        self.placeholder() == Some(version) || self.versions.contains_key(&version)
    }

    pub(super) fn is_known(&self) -> bool {
        matches!(self.stage, Stage::Known(_))
    }

    /// Whether the engine still has work to do for the name.
    pub(super) fn is_pending(&self) -> bool {
        let pending =
            |reported: &Reported| matches!(reported, Reported::Nothing | Reported::Loading);
        !self.is_known() || self.versions.values().any(pending)
    }

    /// The versions to configure for the name now; `None` if the name is not configured yet.
    pub(super) fn configured(&self) -> Option<BTreeSet<Version>> {
        let placeholder = self.placeholder()?;
        let versions = self.versions.iter().filter(|(_, reported)| **reported != Reported::Lost);
        let versions = versions.map(|(version, _)| *version).filter(|_| self.is_known());
        Some(versions.chain([placeholder]).collect())
    }
}

impl ServingMachine {
    pub(super) fn add(&mut self, c: &Context<'_>, id: ServableId) -> Outcome {
        if self.leaving.contains_key(&id) {
            return Outcome::Unexpected;
        }
        let name = self.names.entry(id.name).or_insert_with(|| Name::bare(c.now));
        let is_lost = name.versions.get(&id.version).is_some_and(|it| it.is_lost());
        if name.has(id.version) && !is_lost {
            return Outcome::Stale;
        }
        name.versions.insert(id.version, Reported::Nothing);
        Outcome::Handled
    }

    pub(super) fn remove(&mut self, id: ServableId) -> Outcome {
        let name = self.names.get_mut(&id.name);
        let Some(reported) = name.and_then(|name| name.versions.remove(&id.version)) else {
            return Outcome::Unexpected;
        };
        let mut leaving = Leaving::new(false);
        if reported == Reported::Lost {
            // The configuration may be without it already: then no push of another one follows.
            leaving.push = self.sent.as_ref().filter(|sent| !sent.has(&id)).map(|sent| sent.push);
        }
        self.leaving.insert(id, leaving);
        Outcome::Handled
    }

    pub(super) fn placeholder_published(
        &mut self,
        c: &Context<'_>,
        attempt: Attempt,
        id: ServableId,
        result: Result<(), Failure>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let name = self.names.get_mut(&id.name);
        let Some(name) = name.filter(|name| name.stage == Stage::Publishing(attempt, id.version))
        else {
            // The name was dropped while its placeholder was being published. The placeholder was
            // never configured, so it can be removed.
            let stray = result.is_ok() && attempt <= self.last_placeholder && !self.mentions(&id);
            effects.extend(stray.then_some(Effect::Unpublish(id)));
            return Outcome::late(attempt, self.last_placeholder);
        };
        name.stage = match result {
            Ok(()) => Stage::Published(id.version),
            Err(failure) => {
                self.failure = Some(failure);
                Stage::Bare(c.now + c.policy.backoff.delay(4, c.jitter, None))
            }
        };
        Outcome::Handled
    }

    /// Whether `id` is configured, was configured, or is about to be.
    fn mentions(&self, id: &ServableId) -> bool {
        self.leaving.contains_key(id)
            || self.names.get(&id.name).is_some_and(|name| name.has(id.version))
    }

    /// Adds names that need a placeholder, and removes names that are no longer needed.
    pub(super) fn settle_names(&mut self, c: &Context<'_>, effects: &mut Vec<Effect>) {
        for name in &self.expected {
            self.names.entry(name.clone()).or_insert_with(|| Name::bare(c.now));
        }
        let (expected, leaving) = (&self.expected, &mut self.leaving);
        self.names.retain(|servable, name| {
            let keep = name.kept || !name.versions.is_empty() || expected.contains(servable);
            if let (false, Some(version)) = (keep, name.placeholder()) {
                let id = ServableId { name: servable.clone(), version };
                leaving.insert(id, Leaving::new(true));
            }
            keep
        });
        for (servable, name) in &mut self.names {
            if matches!(name.stage, Stage::Bare(due) if due <= c.now) {
                let (attempt, id) =
                    (self.last_placeholder.begin(), c.versions.next(servable.clone()));
                name.stage = Stage::Publishing(attempt, id.version);
                effects.push(Effect::PublishPlaceholder(attempt, id));
            }
        }
    }

    /// The next time at which the publication of a placeholder is tried again.
    pub(super) fn names_wake_at(&self) -> Option<Moment> {
        let due = |name: &Name| match name.stage {
            Stage::Bare(due) => Some(due),
            _ => None,
        };
        self.names.values().filter_map(due).min()
    }

    /// Publishes a new placeholder for `servable`, after the engine could not load the last one.
    pub(super) fn replace_placeholder(&mut self, c: &Context<'_>, servable: &ServableName) {
        let Some(name) = self.names.get_mut(servable) else { return };
        let Some(version) = name.placeholder() else { return };
        name.stage = Stage::Bare(c.now + c.policy.backoff.delay(4, c.jitter, None));
        let id = ServableId { name: servable.clone(), version };
        self.leaving.insert(id, Leaving::new(true));
    }
}
