//! All models at one moment, as others see them.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use outrigger_core::{Digest, EngineId, Failure, ModelName, ServableId, Stage, Step, Tag};
use outrigger_trials::TagCanaryView;
use tokio::time::Instant;

use crate::replay::Replayed;

/// All models, the engines and whether the start is over, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The models by name.
    pub models: BTreeMap<ModelName, Arc<ModelView>>,
    /// The engines by name.
    pub engines: BTreeMap<EngineId, EngineView>,
    /// Preloads of the engines that answer have succeeded or failed for good, and an engine
    /// outside this process answers, if there is one.
    pub ready: bool,
    /// Since when the version that got no further for the longest time has been in each
    /// step; one that waits for others gets further with them.
    pub steps: BTreeMap<Step, Instant>,
}

impl Snapshot {
    /// Whether an engine outside this process answers, or there is none.
    pub fn an_engine_answers(&self) -> bool {
        let mut elsewhere = self.engines.values().filter(|it| !it.in_process).peekable();
        elsewhere.peek().is_none() || elsewhere.any(|engine| engine.reachable)
    }
}

/// A model: its tags and the versions known of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelView {
    /// The image it comes from, without tag; empty when the name has none.
    pub image: String,
    /// Tags that are or were followed.
    pub tags: BTreeMap<Tag, TagView>,
    /// Versions by digest.
    pub versions: BTreeMap<Digest, VersionView>,
}

/// A floating tag.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TagView {
    /// The version that answers requests by this tag.
    pub serving: Option<Digest>,
    /// The digest that the registry names.
    pub registry: Option<Digest>,
    /// Whether moves of the tag are looked for.
    pub followed: bool,
    /// When the registry was last asked with success.
    pub checked_at: Option<SystemTime>,
    /// Why the last look-up failed; `None` when it did not.
    pub failure: Option<FailureView>,
    /// Its canary, if it has one.
    pub canary: Option<TagCanaryView>,
}

/// One version of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionView {
    /// The digest that its reference resolved to.
    pub digest: Digest,
    /// The manifest that was pulled, once it is on disk.
    pub platform_digest: Option<Digest>,
    /// How far it has come.
    pub stage: Stage,
    /// The activity inside the stage: `idle`, `pulling`, `loading`, `backoff`…
    pub activity: &'static str,
    /// The engine that runs it, once that is known.
    pub engine: Option<EngineId>,
    /// Name and version in the engine, while it has them.
    pub servable: Option<ServableId>,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// When a request last used it.
    pub last_used_at: Option<SystemTime>,
    /// The last failure; the next success clears it.
    pub failure: Option<FailureView>,
    /// How it was warmed up; `None` before it has passed the gate.
    pub replayed: Option<Replayed>,
    /// The latest transitions, oldest first.
    pub history: Vec<TransitionView>,
}

/// Why something did not work.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureView {
    /// Reason and message.
    pub failure: Failure,
    /// When it happened.
    pub at: SystemTime,
    /// Not tried again until something changes.
    pub permanent: bool,
    /// When it is tried again.
    pub retry_at: Option<SystemTime>,
}

/// One change of stage.
#[derive(Debug, Clone, PartialEq)]
pub struct TransitionView {
    /// When.
    pub at: SystemTime,
    /// From.
    pub from: Stage,
    /// To.
    pub to: Stage,
    /// Why.
    pub cause: String,
}

/// An engine as lifecycle sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineView {
    /// It runs in this process.
    pub in_process: bool,
    /// It answered the last time it was asked.
    pub reachable: bool,
    /// Times it was found to have restarted.
    pub restarts: u64,
    /// A reload has not been answered yet.
    pub reloading: bool,
    /// Why the last reload or look at it failed.
    pub failure: Option<Failure>,
}
