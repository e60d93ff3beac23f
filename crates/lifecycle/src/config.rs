//! The configuration of models.

use std::{path::PathBuf, time::Duration};

use outrigger_core::{Digest, EngineId, ModelName, Tag};
use outrigger_trace::Tracer;
use outrigger_trials::CanaryDefaults;

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
    /// How long engines are waited for.
    pub engine: Watch,
    /// How canaries are tried.
    pub canary: CanaryDefaults,
    /// Traces versions that are brought up.
    pub tracer: Tracer,
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

/// Which images have to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Where: a registry, some first segments of its repositories, or a directory.
    pub prefix: String,
    /// Files with public keys, PEM; a signature by one of them is enough. None: no
    /// signature is asked for.
    pub keys: Vec<PathBuf>,
}

/// A model with a name of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// Its name in requests.
    pub name: ModelName,
    /// Its image, without tag and digest; `None`: `images.repository/NAME`.
    pub image: Option<String>,
    /// Brought up at the start and kept up.
    pub preload: bool,
    /// The tag meant when a request names none; `None`: the default tag.
    pub tag: Option<Tag>,
    /// Exactly this version when a request names none; wins over `tag`.
    pub digest: Option<Digest>,
    /// The engine that runs it; `None`: the only one that accepts its framework.
    pub engine: Option<EngineId>,
}

/// How long to wait before trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// After the first failure; doubles with each further one.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}

/// How long engines are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Requests wait this long for an engine that does not answer, then fail;
    /// and for what failed only when it is tried again this soon.
    pub patience: Duration,
    /// Deadline of one request of the golden gate.
    pub gate_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            images: Images {
                repository: None,
                allowed: Vec::new(),
                signatures: Vec::new(),
                default_tag: "latest".parse().expect("a valid tag"),
                poll_interval: Duration::from_secs(30),
            },
            models: Vec::new(),
            idle_ttl: Duration::from_secs(30 * 60),
            retain: Duration::from_secs(7 * 24 * 3600),
            pull_concurrency: 4,
            layer_concurrency: 4,
            max_unproven: 256,
            retry: Retry::default(),
            engine: Watch::default(),
            canary: CanaryDefaults::default(),
            tracer: Tracer::off(),
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), most: Duration::from_secs(60) }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5), gate_timeout: Duration::from_secs(30) }
    }
}
