//! The server's configuration: defaults < file < environment < flags, read once
//! into typed values and checked as a whole.

mod access;
mod changes;
mod check;
mod dump;
mod environment;
pub(crate) mod kinds;
mod layers;
mod reference;
mod section;
mod source;
mod value;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use outrigger_core::{Digest, EngineId, ModelName, Tag};
use serde::{Deserialize, Serialize};

pub use self::{
    access::{CallerName, Callers, Right, Rights, Transport},
    kinds::{Entry, Kind, Kinds},
    layers::{Origin, Problem},
    reference::reference_markdown,
    section::Key,
    source::Source,
    value::{CanarySettings, LogFormat, Period, Ratio, Scheduling, SignatureRule, Size},
};

pub(crate) use self::changes::Change;

use self::{
    environment::add_environment,
    layers::Layers,
    section::{Section, section},
};

/// The settings of `outrigger serve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Config {
    /// The surfaces and their limits.
    pub server: Server,
    /// TLS of the listeners.
    pub tls: Tls,
    /// Authentication and authorization.
    pub auth: Auth,
    /// Limits for each caller and each model.
    pub limits: Limits,
    /// The engine that runs the models, if there are no `engines`.
    pub engine: Engine,
    /// The engines by name; `None`: the one of `engine`.
    pub engines: Option<BTreeMap<EngineId, Entry>>,
    /// The model store on disk.
    pub store: Store,
    /// The sources of models.
    pub images: Images,
    /// The trials of canaries.
    pub canary: Canary,
    /// Logging.
    pub log: Log,
    /// Metrics.
    pub metrics: Metrics,
    /// Tracing.
    pub traces: Traces,
    /// Models that are configured by name, before any request for them.
    pub models: Vec<Model>,
}

section! {
    /// The listeners, the limits of a request, and the end of the process.
    Server {
        /// Listener for gRPC: predictions, model states, health, reflection.
        grpc: SocketAddr = "0.0.0.0:9000";
        /// Listener for HTTP and JSON: predictions and model states.
        http: SocketAddr = "0.0.0.0:9080";
        /// Listener for `/healthz`, `/readyz` and `/metrics`.
        health: SocketAddr = "0.0.0.0:9902";
        /// Listener for gRPC calls that change models. Without `auth` it asks for no credentials:
        /// keep it on loopback then, or behind something that does.
        admin: SocketAddr = "127.0.0.1:9901";
        /// The largest prediction request taken, over gRPC and HTTP.
        max_message: Size = "64MiB";
        /// The most treatments of one user.
        max_treatments: u32 = "5000" reloads;
        /// The most users of one BatchPredict.
        max_users: u32 = "64" reloads;
        /// The most bytes of tensors that one request may become, padding included.
        max_tensors: Size = "256MiB";
        /// Predictions worked on at once; more are answered OVERLOADED.
        max_in_flight: u32 = "1024" reloads;
        /// Predictions that wait for a model to come up, beside those worked on; more are answered
        /// OVERLOADED.
        max_waiting: u32 = "1024" reloads;
        /// The deadline of a prediction whose caller gives none. Over gRPC callers give it as usual,
        /// over HTTP in the header `x-request-timeout`, such as `250ms` or `2s`.
        default_deadline: Period = "10s" reloads;
        /// How long to stay open after readiness is withdrawn, for load balancers to notice.
        shutdown_delay: Period = "3s";
        /// How long a stop may take altogether before what is left is cut off.
        shutdown_grace: Period = "25s";
        /// Threads that serve predictions; 0: one a core.
        threads: u32 = "0";
        /// How the kernel schedules them when they are woken: `batch` lets what runs on the core go
        /// on for a moment, which costs least on cores of one's own; `normal` interrupts it, which
        /// answers sooner on cores that are shared with busy strangers.
        scheduling: Scheduling = "batch";
    }
}

section! {
    /// TLS of the listeners: once there is a certificate, each speaks as its key says. `plain` is
    /// without TLS, `server` with it; with `optional` callers may show a certificate of their own,
    /// with `mutual` they must. Files that change are in force within seconds, for new connections;
    /// open ones end when nobody vouches for their caller any more. Files that do not fit together
    /// change nothing.
    Tls {
        /// PEM file of the server's certificate and those that lead up to its authority.
        certificate: Option<PathBuf> = "";
        /// PEM file of its key.
        key: Option<PathBuf> = "";
        /// PEM file of the authorities that vouch for callers' certificates.
        client_ca: Option<PathBuf> = "";
        /// What the listener `server.grpc` speaks.
        grpc: Transport = "server";
        /// What the listener `server.http` speaks.
        http: Transport = "server";
        /// What the listener `server.health` speaks. The kubelet, which probes it, has no
        /// certificate to show.
        health: Transport = "server";
        /// What the listener `server.admin` speaks.
        admin: Transport = "server";
    }
}

section! {
    /// Who may do what: `predict`, `read` (states of models and canaries) and `change` (load, unload,
    /// promote, abort; on the admin listener only, whoever asks). Without `tokens` and `callers`
    /// everybody may do everything. Health and metrics are open always.
    Auth {
        /// Directory of bearer tokens: a file for each caller, called like the caller, with a token a
        /// line. Several lines are valid side by side, for a change of tokens. Changes are in force
        /// within seconds.
        tokens: Option<PathBuf> = "";
        /// Rights of those who show neither token nor certificate, and of everybody else.
        /// Without it: none where there are `tokens` or `callers`, else all.
        anonymous: Option<Rights> = "";
        /// Rights by caller, as in `{"token:ci": [read, change], "*": [predict]}`. A certificate is
        /// known by its first URI (`uri:spiffe://...`), else its first DNS name (`dns:...`), else
        /// its common name (`cn:...`). `*` is everybody with a token or certificate.
        callers: Callers = "{}";
    }
}

section! {
    /// What one caller or one model may take of `server.max_in_flight` and `server.max_waiting`; more
    /// is answered OVERLOADED.
    Limits {
        /// Predictions of one caller at once; 0: no limit. Callers without a name are told apart by
        /// their address, over IPv6 by the first 64 bits of it.
        per_caller: u32 = "0" reloads;
        /// Predictions of one model at once, those that wait for it included; 0: no limit.
        per_model: u32 = "0" reloads;
    }
}

section! {
    /// The engine that computes scores: TensorFlow Serving, or `outrigger engine`. The short form of
    /// `engines` for one engine: it is called `default`. Only one of the two may be set.
    Engine {
        /// Its gRPC address: `host:port`, or `unix:/path/of/socket`.
        endpoint: String = "unix:/run/outrigger/engine.sock";
        /// Where the engine sees the model store, if that is not `store.path`.
        store_path: Option<PathBuf> = "";
        /// HTTP/2 connections to it; each thread that serves has one of its own in any case.
        connections: u32 = "2";
        /// Calls to it at once; others wait, and are answered OVERLOADED if they still do at their
        /// deadline.
        max_in_flight: u32 = "128";
    }
}

section! {
    /// The model store: a directory that the engine can read.
    Store {
        /// The directory; made if it is not there.
        path: PathBuf = "/var/lib/outrigger";
        /// What the store may take on disk; models not in use go first when it is full.
        max_size: Size = "20GiB";
        /// A model nobody has used for this long leaves the engine.
        idle_ttl: Period = "30m" reloads;
        /// A model nobody has used for this long leaves the disk.
        retain: Period = "7d" reloads;
        /// The most bytes one image may unpack to.
        max_unpacked: Size = "20GiB";
        /// The most files and directories one image may hold.
        max_entries: u32 = "100000";
    }
}

section! {
    /// The registries that models are pulled from.
    Images {
        /// Where the image of a model is that `models` does not list: this, `/` and the model's
        /// name. Without it, only models listed are known.
        repository: Option<String> = "";
        /// References that may be pulled: each admits what lies under it, by whole path segments.
        /// Empty: whatever `repository` and `models` name.
        allowed: Vec<String> = "[]" reloads;
        /// Images that must be signed with cosign, and whose keys count (docs/security.md): a list
        /// of `prefix` (as in `allowed`) and `keys` (files with public keys in PEM). Of several
        /// prefixes the longest holds; one without keys asks for no signature.
        signatures: Vec<SignatureRule> = "[]";
        /// The tag of a request that names no version.
        default_tag: Tag = "latest";
        /// How often followed tags are looked up.
        poll_interval: Period = "30s";
        /// Registry hosts spoken to without TLS.
        plain_http: Vec<String> = "[]";
        /// Directory of Docker's `config.json` with the registries' credentials; otherwise
        /// `DOCKER_CONFIG`, then `~/.docker`.
        docker_config: Option<PathBuf> = "";
        /// PEM file of certificates to trust beside the system's.
        ca_file: Option<PathBuf> = "";
        /// How long a registry may stay silent before it counts as unavailable.
        timeout: Period = "30s";
    }
}

section! {
    /// How new versions earn their traffic: docs/canary.md.
    Canary {
        /// Whether canary tags are looked for at all.
        enabled: bool = "true" reloads;
        /// What holds where the label `dev.outrigger.canary` of a canary's image says nothing.
        defaults: CanarySettings = "{}" reloads;
        /// What holds whatever the label says.
        overrides: CanarySettings = "{}" reloads;
    }
}

section! {
    /// Logs go to standard error.
    Log {
        /// One readable line an event, or one JSON object.
        format: LogFormat = "text";
        /// What is logged, as in `info` or `info,outrigger_lifecycle=debug`. Releases have no more than `debug`.
        level: String = "info";
    }
}

section! {
    /// `/metrics` on the health listener: docs/metrics.md.
    Metrics {
        /// Models that have series of their own, in the order in which they come to serve; the rest
        /// share the label `other`. A model has about 150 series an arm.
        max_models: u32 = "500";
    }
}

section! {
    /// Traces of requests and of models being brought up, for OpenTelemetry: docs/traces.md.
    Traces {
        /// A collector's address for OTLP over gRPC, such as `http://collector:4317`; https as well.
        /// Without it nothing is traced. Environment too: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or
        /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
        endpoint: Option<String> = "";
        /// The part of the requests that are traced whose caller has not decided, 0 to 1.
        /// Environment too: `OTEL_TRACES_SAMPLER_ARG`.
        ratio: Ratio = "0.01";
        /// What traces call this process: `service.name`. Environment too: `OTEL_SERVICE_NAME`.
        service: String = "outrigger";
        /// What else they say of it: `deployment.environment=production,k8s.pod.name=a`. Environment
        /// too: `OTEL_RESOURCE_ATTRIBUTES`.
        attributes: Option<String> = "";
    }
}

/// A model that is configured by name, before any request for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that requests use.
    pub name: ModelName,
    /// The model's image without tag or digest; the default is `images.repository`, `/` and the
    /// name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Loads the model at the start, before the server is ready, and keeps it loaded.
    #[serde(default)]
    pub preload: bool,
    /// The tag for requests that name no version; the default is `images.default_tag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Pins requests that name no version to this digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The engine that runs the model; the default is the only engine that runs models of its
    /// framework.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineId>,
}

/// A configuration with the origin of each value that is not a default.
#[derive(Debug)]
pub struct Loaded {
    /// The valid configuration.
    pub config: Config,
    /// The origin of each value given, by key path.
    pub origins: BTreeMap<String, Origin>,
    /// Environment variables with the prefix of settings that match no setting.
    pub ignored: Vec<String>,
}

/// An invalid configuration, with all of its problems.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Invalid(pub Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Reads and checks a configuration.
///
/// `kinds` are the kinds of engines that there are, `file` is the text of the configuration file,
/// `environment` all variables of the process, `overrides` pairs of key path and value from the
/// command line.
///
/// # Errors
/// All problems of all layers, each with the path of its key.
pub fn load(
    kinds: &Kinds,
    file: Option<&str>,
    environment: impl IntoIterator<Item = (String, String)>,
    overrides: &[(String, String)],
) -> Result<Loaded, Invalid> {
    let mut layers = Layers::default();
    if let Some(text) = file {
        layers.add_file(text);
    }
    let ignored = add_environment(&mut layers, environment);
    for (key, value) in overrides {
        layers.add_text(key, Origin::Flag, value);
    }
    let origins = layers.origins();
    let config = Config::read(&mut layers);
    let mut problems = layers.problems;
    problems.extend(one_of_both(&origins));
    // A value that did not parse was replaced by its default, which is valid. So this check reports
    // only real problems.
    problems.extend(config.validate(kinds).err().map(|invalid| invalid.0).unwrap_or_default());
    if problems.is_empty() {
        Ok(Loaded { config, origins, ignored })
    } else {
        Err(Invalid(problems))
    }
}

/// The problem of a configuration that sets both `engine` and `engines`.
fn one_of_both(origins: &BTreeMap<String, Origin>) -> Option<Problem> {
    let engines = origins.get("engines")?;
    let (key, origin) = origins.iter().find(|(key, _)| key.starts_with("engine."))?;
    let message = format!("{key} ({origin}) and engines ({engines}) are both set: only one may be");
    Some(Problem::new("engines", message))
}

fn key_paths() -> impl Iterator<Item = String> {
    sections()
        .flat_map(|(section, _, keys)| {
            keys.iter().map(move |key| format!("{section}.{}", key.name))
        })
        .chain(["engines".to_owned(), "models".to_owned()])
}

/// Name, description and keys of every section.
fn sections() -> impl Iterator<Item = (&'static str, &'static str, &'static [Key])> {
    [
        ("server", Server::ABOUT, Server::KEYS),
        ("tls", Tls::ABOUT, Tls::KEYS),
        ("auth", Auth::ABOUT, Auth::KEYS),
        ("limits", Limits::ABOUT, Limits::KEYS),
        ("engine", Engine::ABOUT, Engine::KEYS),
        ("store", Store::ABOUT, Store::KEYS),
        ("images", Images::ABOUT, Images::KEYS),
        ("canary", Canary::ABOUT, Canary::KEYS),
        ("log", Log::ABOUT, Log::KEYS),
        ("metrics", Metrics::ABOUT, Metrics::KEYS),
        ("traces", Traces::ABOUT, Traces::KEYS),
    ]
    .into_iter()
}

impl Config {
    fn read(layers: &mut Layers) -> Self {
        let config = Self {
            server: Server::read(layers, "server"),
            tls: Tls::read(layers, "tls"),
            auth: Auth::read(layers, "auth"),
            limits: Limits::read(layers, "limits"),
            engine: Engine::read(layers, "engine"),
            store: Store::read(layers, "store"),
            images: Images::read(layers, "images"),
            canary: Canary::read(layers, "canary"),
            log: Log::read(layers, "log"),
            metrics: Metrics::read(layers, "metrics"),
            traces: Traces::read(layers, "traces"),
            engines: layers.take("", "engines", None),
            models: layers.take("", "models", Vec::new()),
        };
        layers.refuse_the_rest();
        config
    }

    /// Checks that types cannot express: limits, references, and settings that depend on each
    /// other.
    ///
    /// # Errors
    /// All problems, each with the path of its key.
    pub fn validate(&self, kinds: &Kinds) -> Result<(), Invalid> {
        let problems = check::problems(self, kinds);
        if problems.is_empty() { Ok(()) } else { Err(Invalid(problems)) }
    }
}
