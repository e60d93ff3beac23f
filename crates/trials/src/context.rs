//! The state of tags and versions, as trials read it.

use std::{sync::Arc, time::Duration};

use outrigger_core::{
    Digest, ModelKey, ModelName, Moment, Reason,
    machines::{Answer, TagKey},
};

use crate::profile::Profiled;

/// The state of tags and versions at one moment.
pub trait Context {
    /// The current moment.
    fn now(&self) -> Moment;

    /// The known tags of a model.
    fn tags_of(&self, model: &ModelName) -> Vec<TagKey>;

    /// The state of a tag; `None` if the tag is unknown.
    fn tag(&self, key: &TagKey) -> Option<TagState>;

    /// The tag that names the canary of `live`, and the digest that it names.
    fn canary(&self, live: &TagKey) -> Option<(TagKey, Digest)>;

    /// The tag that names, or last named, `canary` as the canary of `live`, whether or
    /// not that tag is followed.
    fn canary_tag(&self, live: &TagKey, canary: Digest) -> Option<TagKey>;

    /// The followed tag of which `canary_tag` is a canary tag.
    fn live_tag(&self, canary_tag: &TagKey) -> Option<TagKey>;

    /// The answer to a request for a version.
    fn answer(&self, version: &ModelKey) -> Answer;

    /// True if a version was unloaded by hand.
    fn is_suspended(&self, version: &ModelKey) -> bool;

    /// The package of a version.
    fn package(&self, version: &ModelKey) -> PackageFacts;

    /// The wait after that many failures, with jitter.
    fn retry_delay(&self, failures: u32) -> Duration;
}

/// The state of a tag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TagState {
    /// The digest that answers for it.
    pub serving: Option<Digest>,
    /// The digest that the registry named last.
    pub registry: Option<Digest>,
    /// The digest that it names as the canary of another tag.
    pub canary: Option<Digest>,
    /// The digest that was rejected as a canary.
    pub rejected: Option<Digest>,
    /// The time of the last successful look-up.
    pub checked_at: Option<Moment>,
    /// The reason of a failed last look-up; `None` if it succeeded.
    pub trouble: Option<Reason>,
    /// True if the registry is polled for moves of the tag.
    pub followed: bool,
}

/// Facts about a version's package that decide how it is tried.
#[derive(Debug, Clone, Default)]
pub struct PackageFacts {
    /// The label with the settings for its trial.
    pub label: Option<Arc<str>>,
    /// The profile of its features, while it is up.
    pub profile: Option<Arc<Profiled>>,
    /// True if the version is up, and scores the same request differently each time.
    pub draws: bool,
}
