//! The state of tags and versions as read by trials.

use std::time::Duration;

use outrigger_core::{
    Digest, ModelKey, ModelName, Moment,
    machines::{Answer, Machines, TagKey},
    model::ModelMachine,
};
use outrigger_trials::{Context, PackageFacts, TagState};

use crate::versions::VersionData;

/// Tags and versions at one moment.
pub(crate) struct TrialContext<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) versions: &'a VersionData,
    pub(crate) now: Moment,
}

impl Context for TrialContext<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn tags_of(&self, model: &ModelName) -> Vec<TagKey> {
        self.machines.tags_of(model).map(|(key, _)| key.clone()).collect()
    }

    fn tag(&self, key: &TagKey) -> Option<TagState> {
        let tag = self.machines.tag(key)?;
        Some(TagState {
            serving: tag.serving(),
            registry: tag.registry(),
            canary: tag.canary(),
            rejected: tag.rejected(),
            checked_at: tag.checked_at(),
            trouble: tag.trouble().map(|trouble| trouble.failure.reason),
            followed: tag.is_followed(self.machines.policy(), self.now),
        })
    }

    fn canary(&self, live: &TagKey) -> Option<(TagKey, Digest)> {
        self.machines.canary(live).map(|(tag, digest)| (tag.clone(), digest))
    }

    fn canary_tag(&self, live: &TagKey, canary: Digest) -> Option<TagKey> {
        self.machines.canary_tag(live, canary)
    }

    fn live_tag(&self, canary_tag: &TagKey) -> Option<TagKey> {
        self.machines.accompanied(canary_tag).cloned()
    }

    fn answer(&self, version: &ModelKey) -> Answer {
        // The arms of a trial may run on two engines, so an outage must not count against the
        // version. Requests still try a version after a long outage; a trial does not.
        let engine = self.machines.engine_of(version);
        let outage = engine.and_then(|engine| self.machines.outage(engine, self.now));
        outage.unwrap_or_else(|| self.machines.answer_digest(version, self.now))
    }

    fn is_suspended(&self, version: &ModelKey) -> bool {
        self.machines.model(version).is_some_and(ModelMachine::is_suspended)
    }

    fn package(&self, version: &ModelKey) -> PackageFacts {
        let servable = self.versions.routed(version);
        PackageFacts {
            label: self.versions.kept.get(version).and_then(|kept| kept.canary.clone()),
            profile: servable.as_ref().and_then(|servable| servable.profile.clone()),
            draws: servable.is_some_and(|servable| !servable.scorer.plan.deterministic()),
        }
    }

    fn retry_delay(&self, failures: u32) -> Duration {
        self.machines.policy().backoff.delay(failures, rand::random(), None)
    }
}
