//! What a client is built from.

use std::{path::PathBuf, time::Duration};

/// Settings of a [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct Config {
    /// Hosts, as written in references (`localhost:5000`), that are spoken to
    /// over plain HTTP. Everybody else gets HTTPS.
    pub plain_http: Vec<String>,
    /// A file with further certificate authorities to trust, PEM.
    pub ca: Option<PathBuf>,
    /// Where credentials come from.
    pub credentials: Credentials,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// How often and when to try again.
    pub retries: Retries,
    /// What is read into memory at most.
    pub limits: Limits,
    /// Which image of a multi-platform index to take.
    pub platform: Platform,
}

/// Where credentials come from.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The Docker configuration file. None: no credentials at all.
    pub docker_config: Option<PathBuf>,
    /// How long a credential helper may take.
    pub helper_timeout: Duration,
}

/// How long to wait for what.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// Without a byte from the registry, in the middle of an answer too.
    pub idle: Duration,
    /// For all of a manifest, a configuration or a token: a registry that sends
    /// now and then a byte is down as well. Layers may take as long as they need.
    pub document: Duration,
}

/// How often and when to try again.
#[derive(Debug, Clone)]
pub struct Retries {
    /// Tries of one operation, the first included; at least one is made.
    pub attempts: u32,
    /// The delay before the second try; doubles from there, with jitter.
    pub first_delay: Duration,
    /// No delay of ours is longer.
    pub max_delay: Duration,
    /// A `Retry-After` longer than this is left to the caller.
    pub max_retry_after: Duration,
}

/// What is read into memory at most.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A manifest or index, bytes.
    pub manifest: u64,
    /// An image configuration, bytes.
    pub config: u64,
}

/// A platform as in an image index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// The operating system, `linux`.
    pub os: String,
    /// The architecture in Go's words: `amd64`, `arm64`.
    pub architecture: String,
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
    /// `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`.
    fn default() -> Self {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker"));
        let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from).or_else(home);
        Self {
            docker_config: directory.map(|directory| directory.join("config.json")),
            helper_timeout: Duration::from_secs(20),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            document: Duration::from_secs(120),
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

impl Default for Platform {
    /// Linux on this machine's architecture.
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned() }
    }
}
