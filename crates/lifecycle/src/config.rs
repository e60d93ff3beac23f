//! What is configured about models.

use std::time::Duration;

use outrigger_canary::Layer;
use outrigger_core::{Backoff, Digest, ModelName, Policy, Tag};
use outrigger_trace::Tracer;

use crate::Signed;

/// Configuration of the lifecycle: which models, from where, for how long.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where images come from.
    pub images: Images,
    /// Models with names of their own, preloads and pins.
    pub models: Vec<ModelEntry>,
    /// A version nobody asked for in this time leaves the engine.
    pub idle_ttl: Duration,
    /// A version unused for this long is deleted from the store.
    pub retain: Duration,
    /// Images pulled at the same time.
    pub pull_concurrency: usize,
    /// Layers of one image fetched at the same time.
    pub layer_concurrency: usize,
    /// Tags and digests nobody has seen working that may be asked for at the same
    /// time; more are refused as overload until failures are forgotten.
    pub max_unproven: usize,
    /// Retries of what failed for now: pulls, look-ups, loads, reloads.
    pub retry: Retry,
    /// How the engine is watched.
    pub engine: Watch,
    /// How canaries are tried.
    pub canary: CanaryDefaults,
    /// What tells of versions being brought up.
    pub tracer: Tracer,
}

/// How canaries are tried.
#[derive(Debug, Clone, PartialEq)]
pub struct CanaryDefaults {
    /// Whether they are looked for.
    pub enabled: bool,
    /// What holds where an image's label says nothing.
    pub defaults: Layer,
    /// What holds whatever the label says.
    pub overrides: Layer,
}

/// Where images come from.
#[derive(Debug, Clone)]
pub struct Images {
    /// Prefix of the reference of a name that `models` does not list:
    /// `repository/NAME`. `None`: only listed models exist.
    pub repository: Option<String>,
    /// Every reference must lie under one of these, by whole path segments.
    pub allowed: Vec<String>,
    /// Which of them have to be signed, and by whom; of several prefixes of one
    /// reference the longest counts.
    pub signatures: Vec<Signed>,
    /// The tag meant by a request that names neither tag nor digest.
    pub default_tag: Tag,
    /// How often a followed tag is looked up.
    pub poll_interval: Duration,
}

/// A model with a name of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// What requests call it.
    pub name: ModelName,
    /// Its image, without tag and digest; `None`: `images.repository/NAME`.
    pub image: Option<String>,
    /// Brought up at the start and kept up.
    pub preload: bool,
    /// The tag meant when a request names none; `None`: the default tag.
    pub tag: Option<Tag>,
    /// Exactly this version when a request names none; wins over `tag`.
    pub digest: Option<Digest>,
}

/// How long to wait before trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// After the first failure; doubles with each further one.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}

/// How the engine is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Between looks at its state while something is pending.
    pub busy: Duration,
    /// Between looks while nothing is.
    pub steady: Duration,
    /// Requests wait this long for an engine that does not answer, then fail;
    /// and for what failed only when it is tried again this soon.
    pub patience: Duration,
    /// After this time without an answer a reload counts as lost.
    pub reload_limit: Duration,
    /// Deadline of one request of the golden gate.
    pub gate_timeout: Duration,
}

/// Times and limits that the machines know are those of [`Policy`].
impl Default for Config {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            images: Images {
                repository: None,
                allowed: Vec::new(),
                signatures: Vec::new(),
                default_tag: "latest".parse().expect("a valid tag"),
                poll_interval: policy.poll_interval,
            },
            models: Vec::new(),
            idle_ttl: policy.idle_ttl,
            retain: policy.retain,
            pull_concurrency: 4,
            layer_concurrency: 4,
            max_unproven: policy.max_unproven,
            retry: Retry::default(),
            engine: Watch::default(),
            canary: CanaryDefaults::default(),
            tracer: Tracer::off(),
        }
    }
}

impl Default for CanaryDefaults {
    fn default() -> Self {
        Self { enabled: true, defaults: Layer::default(), overrides: Layer::default() }
    }
}

impl Default for Retry {
    fn default() -> Self {
        let Backoff { first, most } = Backoff::default();
        Self { first, most }
    }
}

impl Default for Watch {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            busy: policy.busy_probe,
            steady: policy.steady_probe,
            patience: policy.patience,
            reload_limit: policy.reload_limit,
            gate_timeout: Duration::from_secs(30),
        }
    }
}
