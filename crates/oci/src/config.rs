//! Configuration of a client.

use std::{path::PathBuf, time::Duration};

use crate::Platform;

/// Settings of a [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct Config {
    /// Hosts that are called over plain HTTP, as [`registry_host`](crate::registry_host) takes them.
    /// All others are called over HTTPS.
    pub plain_http: Vec<String>,
    /// A PEM file of certificate authorities that are trusted in addition to the system's.
    pub ca: Option<PathBuf>,
    /// Sources of credentials.
    pub credentials: Credentials,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries of failed calls.
    pub retries: Retries,
    /// Limits of documents that are read into memory.
    pub limits: Limits,
    /// The platform whose image is taken from a multi-platform index.
    pub platform: Platform,
}

/// Sources of credentials.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The Docker configuration file; `None` means no credentials.
    pub docker_config: Option<PathBuf>,
    /// The time limit for a credential helper.
    pub helper_timeout: Duration,
    /// The identity of the machine or pod, for registries without credentials of their own in the
    /// configuration file; `None`: none is used.
    pub identity: Option<Identity>,
}

/// An identity that Google Cloud attests to the machine or pod. Registries are given its access
/// tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The metadata server, which is called over plain HTTP and never through a proxy: `host` or
    /// `host:port`.
    pub metadata_server: String,
    /// The registries that are given tokens: `host` or `host:port`, or `*.domain` for all hosts
    /// below a domain. No other host is sent one, also no token service of theirs.
    pub registries: Vec<String>,
}

/// Time limits.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// The limit for establishing a connection, TLS included.
    pub connect: Duration,
    /// The limit for silence: the time without a byte from the registry, also in the middle of an
    /// answer.
    pub idle: Duration,
    /// The limit for reading a whole manifest, configuration or token: a registry that sends a byte
    /// now and then counts as down. Layers have [`Timeouts::least`] instead.
    pub document: Duration,
    /// The least number of bytes of a layer that a registry sends while it is waited for during
    /// [`Timeouts::idle`]; 0: any number.
    pub least: u64,
}

/// Retries of failed calls.
#[derive(Debug, Clone)]
pub struct Retries {
    /// Attempts of one operation, the first included; zero counts as one.
    pub attempts: u32,
    /// The delay before the second attempt; it doubles with every further attempt, with jitter.
    pub first_delay: Duration,
    /// The upper limit of the delay.
    pub max_delay: Duration,
    /// The longest `Retry-After` that is waited for here; a longer one is returned to the caller as
    /// an error.
    pub max_retry_after: Duration,
}

/// Limits of documents that are read into memory.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The size limit of a manifest or index, bytes.
    pub manifest: u64,
    /// The size limit of an image configuration, bytes.
    pub config: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            plain_http: Vec::new(),
            ca: None,
            credentials: Credentials::default(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            limits: Limits { manifest: 4 << 20, config: 4 << 20 },
            platform: Platform::default(),
        }
    }
}

impl Default for Credentials {
    /// Docker's default path: `$DOCKER_CONFIG/config.json`, or `~/.docker/config.json` without that
    /// variable.
    fn default() -> Self {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker"));
        let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from).or_else(home);
        Self {
            docker_config: directory.map(|directory| directory.join("config.json")),
            helper_timeout: Duration::from_secs(20),
            identity: None,
        }
    }
}

impl Identity {
    /// The registries of Google Cloud, which are given tokens unless others are named.
    pub const GOOGLE: [&str; 3] = ["gcr.io", "*.gcr.io", "*.pkg.dev"];

    /// The identity of a machine or pod in Google Cloud, for its registries. The variable
    /// `GCE_METADATA_HOST` may name another metadata server.
    pub fn gcp() -> Self {
        let named = std::env::var("GCE_METADATA_HOST").ok().filter(|host| !host.is_empty());
        Self {
            metadata_server: named.unwrap_or_else(|| "metadata.google.internal".to_owned()),
            registries: Self::GOOGLE.map(str::to_owned).into(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            document: Duration::from_secs(120),
            least: 0,
        }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(10),
            max_retry_after: Duration::from_secs(30),
        }
    }
}
