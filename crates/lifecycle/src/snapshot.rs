//! The public view of all models at one moment.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use outrigger_core::{Digest, EngineId, Failure, ServableId, Stage, Step, Tag};
use outrigger_trials::TagCanaryView;
use tokio::time::Instant;

use crate::{model_map::ModelMap, replay::Replayed};

/// All models and engines at one moment, and whether the start is complete.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The models by name.
    pub models: ModelMap<Arc<ModelView>>,
    /// The number of configurations applied since the start. When it changes, any model may have
    /// another default version.
    pub configurations: u64,
    /// The engines by name.
    pub engines: BTreeMap<EngineId, EngineView>,
    /// True if the preloads of all answering engines have succeeded or failed for good, and an
    /// engine outside this process answers, if there is one.
    pub ready: bool,
    /// For each step, the time since when its slowest version has made no progress. A version that
    /// waits for others makes progress when they do.
    pub steps: BTreeMap<Step, Instant>,
}

impl Snapshot {
    /// Whether an engine outside this process answers, or none is configured.
    pub fn an_engine_answers(&self) -> bool {
        let mut elsewhere = self.engines.values().filter(|it| !it.in_process).peekable();
        elsewhere.peek().is_none() || elsewhere.any(|engine| engine.reachable)
    }
}

/// A model: its tags and its known versions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelView {
    /// The model's image, without tag; empty if the name has none.
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
    /// Whether the registry is polled for moves of the tag.
    pub followed: bool,
    /// The time of the last successful look-up.
    pub checked_at: Option<SystemTime>,
    /// The failure of the last look-up; `None` if it succeeded.
    pub failure: Option<FailureView>,
    /// The tag's canary, if it has one.
    pub canary: Option<TagCanaryView>,
}

/// One version of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionView {
    /// The digest that its reference resolved to.
    pub digest: Digest,
    /// The digest of the manifest that was pulled, once it is on disk.
    pub platform_digest: Option<Digest>,
    /// The current stage.
    pub stage: Stage,
    /// The activity inside the stage: `idle`, `pulling`, `loading`, `backoff`, or that it waits because it is
    /// suspected of ending the engine.
    pub activity: &'static str,
    /// The engine that runs the version, once known.
    pub engine: Option<EngineId>,
    /// Its name and version in the engine, while it is there.
    pub servable: Option<ServableId>,
    /// The size on disk in bytes.
    pub size_bytes: u64,
    /// The time of the last request that used it.
    pub last_used_at: Option<SystemTime>,
    /// The last failure; the next success clears it.
    pub failure: Option<FailureView>,
    /// The results of its warm-up; `None` before it has passed the gate.
    pub replayed: Option<Replayed>,
    /// The latest transitions, oldest first.
    pub history: Vec<TransitionView>,
}

/// A failure, with the time of the next attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureView {
    /// Reason and message.
    pub failure: Failure,
    /// The time of the failure.
    pub at: SystemTime,
    /// True if no attempt follows until something changes.
    pub permanent: bool,
    /// The time of the next attempt.
    pub retry_at: Option<SystemTime>,
}

/// One change of stage.
#[derive(Debug, Clone, PartialEq)]
pub struct TransitionView {
    /// The time of the change.
    pub at: SystemTime,
    /// The stage before.
    pub from: Stage,
    /// The stage after.
    pub to: Stage,
    /// The cause.
    pub cause: String,
}

/// The public view of an engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineView {
    /// The engine runs in this process.
    pub in_process: bool,
    /// The engine answered the last call.
    pub reachable: bool,
    /// The number of detected restarts.
    pub restarts: u64,
    /// A reload is still unanswered.
    pub reloading: bool,
    /// The failure of the last reload or status call.
    pub failure: Option<Failure>,
}
