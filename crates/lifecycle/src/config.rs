//! The configuration of models.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use outrigger_budget::Budget;
use outrigger_core::{Backoff, Digest, EngineId, ModelName, Policy, Rollover, Tag, VersionPolicy};
use outrigger_score::SharedLimits;
use outrigger_trace::Tracer;
use outrigger_trials::{CanaryDefaults, Salt};

/// Configuration of the lifecycle: the models, their images, and their times and limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The source of images.
    pub images: Images,
    /// The part that can change at run time; here as it is at the start.
    pub tunables: Tunables,
    /// The number of images of models in service, or named by the configuration, that are pulled at
    /// the same time, and also the number of all others. Of each, three quarters may come from one
    /// registry, and half from its repositories with the same first path segment.
    pub pull_concurrency: usize,
    /// The longest time for one pull's transfers; it then fails, and a later pull resumes.
    pub pull_timeout: Duration,
    /// A pull gives its place to one that waits if it receives less than
    /// [`outrigger_oci::Timeouts::least`] in this time.
    pub pull_turn: Duration,
    /// The number of layers of one image fetched at the same time.
    pub layer_concurrency: usize,
    /// The limit of requested tags and digests that are looked up or brought up for the first time
    /// at the same time. More are refused as overload, unless the configuration lists their model.
    pub max_unproven: usize,
    /// The limit of remembered answers that a tag or digest does not exist, or cannot be served.
    pub max_absent: usize,
    /// The limit of a model's tags that only requests name. The longest unused one is forgotten for
    /// a new one.
    pub max_tags: usize,
    /// Retries after temporary failures: of pulls, look-ups, loads and reloads.
    pub retry: Retry,
    /// The time limits for engines.
    pub engine: Watch,
    /// The limits of a request; they also apply to golden cases, warm-ups and shadow requests.
    pub limits: SharedLimits,
    /// The memory that packages, plans and pulls may take.
    pub budget: Budget,
    /// Traces versions on their way into service.
    pub tracer: Tracer,
    /// The salt of trials. Processes with the same one give a routing key the same arm.
    pub salt: Salt,
}

/// The part of the configuration that [`Handle::reconfigure`](crate::Handle::reconfigure) changes
/// at run time.
#[derive(Debug, Clone, PartialEq)]
pub struct Tunables {
    /// Models with names of their own, preloads and pins.
    pub models: Vec<ModelEntry>,
    /// Every reference must lie under one of these prefixes, compared by whole path segments.
    pub allowed: Vec<String>,
    /// A version without a request for this long leaves the engine.
    pub idle_ttl: Duration,
    /// A version unused for this long is deleted from the store.
    pub retain: Duration,
    /// The defaults for canary trials that begin from now on.
    pub canary: CanaryDefaults,
}

/// The source of images.
#[derive(Debug, Clone)]
pub struct Images {
    /// The prefix of references of names that `models` does not list: `repository/NAME`. `None`:
    /// only listed models exist.
    pub repository: Option<String>,
    /// The images that must be signed, and the keys. If several prefixes match a reference, the
    /// longest applies.
    pub signatures: Vec<Signed>,
    /// The default tag: the tag of a request that names neither tag nor digest.
    pub default_tag: Tag,
    /// The interval between look-ups of a followed tag.
    pub poll_interval: Duration,
    /// The interval between polls of a directory of numbered versions.
    pub directory_poll_interval: Duration,
}

/// A rule that images under a prefix must be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The prefix: a registry, some first segments of its repositories, or a directory.
    pub prefix: String,
    /// Files with public keys (PEM); a signature by one of the keys is enough. Empty: no signature
    /// is required.
    pub keys: Vec<PathBuf>,
}

/// A model with a name of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// The name in requests.
    pub name: ModelName,
    /// The image, without tag and digest; `None` for `images.repository/NAME`.
    pub image: Option<String>,
    /// The directory of numbered versions that the model comes from instead of an image.
    pub directory: Option<VersionDirectory>,
    /// Load the model at the start and keep it up.
    pub preload: bool,
    /// The tag of a request that names none; `None` for the default tag.
    pub tag: Option<Tag>,
    /// The digest of a request that names none; takes precedence over `tag`.
    pub digest: Option<Digest>,
    /// The engine that runs the model; `None` for the only engine that accepts its framework.
    pub engine: Option<EngineId>,
    /// The way from one version to the next.
    pub rollover: Rollover,
}

/// A directory of numbered versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionDirectory {
    /// Its path.
    pub path: PathBuf,
    /// The versions that are served.
    pub policy: VersionPolicy,
    /// Further tags of versions, by their numbers.
    pub labels: BTreeMap<Tag, u64>,
}

/// The waits between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The longest wait after the first failure; it doubles with each further failure.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}

/// The time limits for engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// The longest time that requests wait for an engine that does not answer. Requests wait for a
    /// failed version only if its next attempt comes this soon.
    pub patience: Duration,
    /// The deadline of one request of the golden gate.
    pub gate_timeout: Duration,
}

/// Times and limits of the machines come from [`Policy`].
impl Default for Config {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            images: Images {
                repository: None,
                signatures: Vec::new(),
                default_tag: "latest".parse().expect("a valid tag"),
                poll_interval: policy.poll_interval,
                directory_poll_interval: Duration::from_secs(5),
            },
            tunables: Tunables::default(),
            pull_concurrency: 8,
            pull_timeout: Duration::from_secs(3600),
            pull_turn: Duration::from_secs(5),
            layer_concurrency: 4,
            max_unproven: policy.max_unproven,
            max_absent: policy.max_absent,
            max_tags: policy.max_tags,
            retry: Retry::default(),
            engine: Watch::default(),
            limits: SharedLimits::default(),
            budget: Budget::default(),
            tracer: Tracer::off(),
            salt: Salt::of_secret(&rand::random::<[u8; 32]>()),
        }
    }
}

impl Default for Tunables {
    fn default() -> Self {
        let Policy { idle_ttl, retain, .. } = Policy::default();
        Self {
            models: Vec::new(),
            allowed: Vec::new(),
            idle_ttl,
            retain,
            canary: CanaryDefaults::default(),
        }
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
        let patience = Policy::default().patience;
        Self { patience, gate_timeout: Duration::from_secs(30) }
    }
}
