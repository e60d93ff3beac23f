//! The server's configuration: defaults < file < environment < flags, read once
//! into typed values and checked as a whole.

mod access;
mod batcher;
mod changes;
mod check;
mod dump;
mod environment;
pub(crate) mod kinds;
mod layers;
mod model;
mod onnx;
mod reference;
mod section;
mod source;
mod value;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use outrigger_core::{EngineId, Tag};
use serde::Serialize;

pub use self::{
    access::{CallerName, Callers, OperatorFile, Right, Rights, Transport},
    batcher::Batcher,
    kinds::{Entry, Kind, Kinds},
    layers::{Invalid, Origin, Problem},
    model::{Model, View},
    onnx::Onnx,
    reference::reference_markdown,
    section::Key,
    source::Source,
    value::{
        CallerLimits, CanarySettings, CloudIdentity, Compression, LogFormat, ModelLimits, Period,
        Ratio, Scheduling, SignatureRule, Size,
    },
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
    /// The engines by name; `None` if the section `engine` is used.
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
    /// Validation of files.
    pub validation: Validation,
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
        /// Listener for gRPC calls that change models, and for the page `/ui`.
        admin: SocketAddr = "127.0.0.1:9901";
        /// Listener for the interface of XGBoost Serving, gRPC and HTTP on one port (docs/trees.md).
        /// Default: none.
        xgboost_serving: Option<SocketAddr> = "";
        /// Listener for the Open Inference Protocol, gRPC and REST on one port (docs/oip.md).
        /// Default: none.
        oip: Option<SocketAddr> = "";
        /// The memory that the process may take for what it holds on behalf of callers, registries
        /// and models. It is divided into accounts (docs/capacity.md); what does not fit is
        /// refused. Default: the limit of the container (cgroup) less an eighth, or without a limit
        /// a quarter of the machine's memory.
        memory: Option<Size> = "";
        /// Names by which browsers may open the page without TLS, in addition to `localhost` and IP
        /// addresses. Any other name may be that of a foreign site which its owner resolves to this
        /// listener.
        admin_names: Vec<String> = "[]";
        /// The maximum size of a prediction request, over gRPC and HTTP; of a compressed one also
        /// its size when decompressed.
        max_message: Size = "64MiB";
        /// The messages of predictions that may be compressed with gzip, zstd or deflate: `none`,
        /// `requests`, or `both` requests and answers. An answer is compressed only if its caller accepts that
        /// and it does not fit in one packet. Most gRPC clients accept gzip without being asked to,
        /// and compression takes CPU time of the server (docs/performance.md).
        compression: Compression = "requests";
        /// The maximum number of treatments per user.
        max_treatments: u32 = "5000" reloads;
        /// The maximum number of users per BatchPredict.
        max_users: u32 = "64" reloads;
        /// The maximum total size of a request's tensors, padding included.
        max_tensors: Size = "256MiB";
        /// The maximum number of concurrent predictions; more wait for a place, callers in turn,
        /// and are answered OVERLOADED if they still wait at their deadline.
        max_in_flight: u32 = "1024" reloads;
        /// The maximum number of predictions that wait for a model to load, in addition to
        /// `max_in_flight`; more are answered OVERLOADED.
        max_waiting: u32 = "1024" reloads;
        /// The deadline of predictions whose caller sets none. Callers set it with gRPC's deadline,
        /// or over HTTP in the header `x-request-timeout`, such as `250ms` or `2s`.
        default_deadline: Period = "10s" reloads;
        /// The time within which a caller must take an answer. A connection that has not sent an
        /// answer by then, because its peer does not read, is dropped with all that it holds.
        send_timeout: Period = "30s";
        /// The time from becoming unready to closing the listeners, for load balancers to notice.
        shutdown_delay: Period = "3s";
        /// The time limit of a stop; remaining requests are then cut off.
        shutdown_grace: Period = "25s";
        /// Threads that serve predictions; 0: one per core, or per CPU of the container's limit
        /// (cgroup) if that is lower.
        threads: u32 = "0";
        /// Scheduling of these threads when they are woken: with `batch` they wait until the
        /// running thread yields the core, which costs least on dedicated cores; with `normal` they
        /// interrupt it, which answers sooner on cores that are shared with other busy programs.
        scheduling: Scheduling = "batch";
    }
}

section! {
    /// TLS of the listeners, once there is a certificate. `plain`: without TLS; `server`: with TLS;
    /// `optional`: callers may present a certificate; `mutual`: callers must. Changed files are
    /// used within seconds for new connections; an open connection ends when its caller's
    /// certificate is no longer trusted. Inconsistent files change nothing.
    Tls {
        /// PEM file of the server's certificate and its chain.
        certificate: Option<PathBuf> = "";
        /// PEM file of its key.
        key: Option<PathBuf> = "";
        /// PEM file of the authorities of callers' certificates.
        client_ca: Option<PathBuf> = "";
        /// TLS of the listener `server.grpc`.
        grpc: Transport = "server";
        /// TLS of the listener `server.http`.
        http: Transport = "server";
        /// TLS of the listener `server.health`. The kubelet, which probes it, has no certificate.
        health: Transport = "server";
        /// TLS of the listener `server.admin`.
        admin: Transport = "server";
        /// TLS of the listener `server.xgboost_serving`.
        xgboost_serving: Transport = "server";
        /// TLS of the listener `server.oip`.
        oip: Transport = "server";
    }
}

section! {
    /// Rights of callers: `predict`, `read` (states of models and canaries), `change` (load, unload,
    /// promote, abort) and `validate` (ValidateFile); the last two on the admin listener only, for
    /// every caller. Without `tokens` and `callers`, both take the token of `token_file`, and
    /// `change` includes `validate`. Health and metrics are always open.
    Auth {
        /// Directory of bearer tokens: one file per caller, named like the caller, with one token
        /// per line. Several tokens are valid at the same time, so that they can be rotated.
        /// Changes take effect within seconds.
        tokens: Option<PathBuf> = "";
        /// File of the operator's token, whose holder has every right. The server writes it with
        /// mode 0600 if it does not exist; the commands find it. The engine must not be able to
        /// read its directory. Default: none if there are `tokens` or `callers` or if `anonymous`
        /// has `change`, else `outrigger/token` in `XDG_RUNTIME_DIR`, or without that variable
        /// `/tmp/outrigger-UID/token`.
        token_file: Option<PathBuf> = "";
        /// Rights of callers without token or certificate, which all other callers have too.
        /// Default: none if there are `tokens` or `callers`, else `[predict, read]`.
        anonymous: Option<Rights> = "";
        /// Rights that every caller has on the listener `server.xgboost_serving`, in addition to
        /// its other rights: with `[change]`, anybody who reaches the listener may load models.
        xgboost_serving: Rights = "[]";
        /// Rights by caller, as in `{"token:ci": [read, change], "*": [predict]}`. A certificate's
        /// name is its first URI (`uri:spiffe://...`), else its first DNS name (`dns:...`), else
        /// its common name (`cn:...`). `*` stands for every caller with a token or certificate.
        callers: Callers = "{}";
    }
}

section! {
    /// Limits of one caller's and one model's share of `server.max_in_flight`. docs/security.md
    /// describes all limits.
    Limits {
        /// The maximum number of concurrent predictions of one caller; 0: no limit. More wait, as
        /// beyond `server.max_in_flight`. Callers without a name are distinguished by address, over
        /// IPv6 by its first 64 bits. Default: a quarter of `server.max_in_flight`, at least 16.
        per_caller: Option<u32> = "" reloads;
        /// The maximum number of concurrent predictions of one model, all its versions together; 0:
        /// no limit. More wait, callers in turn, and are answered OVERLOADED if they still wait at
        /// their deadline. Default: half of `server.max_in_flight`, at least 16.
        per_model: Option<u32> = "" reloads;
        /// Other numbers than `per_caller` for callers with a token or certificate, as in
        /// `{"token:gateway": 0}`.
        callers: CallerLimits = "{}" reloads;
        /// Other numbers than `per_model` for models, as in `{churn: 900}`.
        models: ModelLimits = "{}" reloads;
        /// The maximum number of names, tags and digests that one caller asks for within
        /// `images.poll_interval` and that do not exist; at most 128 are looked up or brought up at a
        /// time. Models that `models` lists do not count. 0: no limit.
        unknown_names: u32 = "1024" reloads;
    }
}

section! {
    /// The engine that computes scores: TensorFlow Serving, or `outrigger engine`. Short form of
    /// `engines` for one engine, whose name is `default`. Only one of the two sections may be set.
    Engine {
        /// Its gRPC address: `host:port`, or `unix:/path/of/socket`.
        endpoint: String = "unix:/run/outrigger/engine.sock";
        /// The model store's path in the engine's file system, if it differs from `store.path`.
        store_path: Option<PathBuf> = "";
        /// HTTP/2 connections to it; there is at least one for each serving thread.
        connections: u32 = "2";
        /// The maximum number of concurrent calls to it, of which one version has at most half; further
        /// calls wait, and are answered OVERLOADED if they still wait at their deadline. Calls whose
        /// callers have given up count until the engine has ended them.
        max_in_flight: u32 = "128";
        /// True if it batches requests (`--enable_batching`): docs/engine.md. Outputs that are wider
        /// than asked are then trimmed; otherwise they are refused with SCORES_INVALID.
        batching: bool = "false";
        /// Where it batches requests: the largest batch that it takes (`max_batch_size`), in users.
        /// `server.max_users` must not be larger, or BatchPredict calls of more users would fail.
        max_batch_size: u32 = "1000";
    }
}

section! {
    /// The model store: a directory that the engine can read.
    Store {
        /// The directory; created if it does not exist.
        path: PathBuf = "/var/lib/outrigger";
        /// The maximum size of the store on disk; when it is full, unused models are deleted.
        max_size: Size = "20GiB";
        /// A model without requests for this long is unloaded from the engine.
        idle_ttl: Period = "30m" reloads;
        /// A model without requests for this long is deleted from the disk.
        retain: Period = "7d" reloads;
        /// The maximum size of an unpacked image.
        max_unpacked: Size = "20GiB";
        /// The maximum number of files and directories that an image has in `/data`.
        max_entries: u32 = "100000";
    }
}

section! {
    /// The registries that models are pulled from.
    Images {
        /// The prefix of the repositories of models that `models` does not list, followed by `/`
        /// and the model's name. Without it, only listed models exist.
        repository: Option<String> = "";
        /// References that may be pulled: each admits all references under it, compared by whole
        /// path segments. Empty: those that `repository` and `models` name.
        allowed: Vec<String> = "[]" reloads;
        /// Images that must be signed with cosign, and the accepted keys (docs/security.md): a list
        /// of `prefix` (as in `allowed`) and `keys` (files with public keys in PEM). The longest
        /// matching prefix applies; a prefix without keys requires no signature.
        signatures: Vec<SignatureRule> = "[]";
        /// The tag of a request that names no version.
        default_tag: Tag = "latest";
        /// The interval at which followed tags are looked up.
        poll_interval: Period = "30s";
        /// The interval between polls of the directories that `models[].directory` names. A version is
        /// taken once two polls in a row have found the same files.
        directory_poll_interval: Period = "5s";
        /// The maximum number of tags of a model that are followed because requests named them. For
        /// one more, the longest unused one is forgotten.
        max_tags: u32 = "64";
        /// Registry hosts that are called without TLS, `host` or `host:port`.
        plain_http: Vec<String> = "[]";
        /// Directory of Docker's `config.json` with the registries' credentials; otherwise
        /// `DOCKER_CONFIG`, then `~/.docker`.
        docker_config: Option<PathBuf> = "";
        /// The identity that a cloud attests to this machine or pod, for registries without
        /// credentials in `docker_config`. `gcp`: the service account, whose access tokens the
        /// metadata server of Google Cloud gives (`GCE_METADATA_HOST`, else
        /// `metadata.google.internal`).
        identity: CloudIdentity = "none";
        /// Registry hosts that are given the identity's tokens, `*.domain` for all below a domain;
        /// no other host is, also no token service that they name. Empty: `gcr.io`, `*.gcr.io` and
        /// `*.pkg.dev`.
        identity_hosts: Vec<String> = "[]";
        /// PEM file of certificates to trust in addition to the system's.
        ca_file: Option<PathBuf> = "";
        /// The time without a byte after which a registry counts as unavailable.
        timeout: Period = "30s";
        /// The least amount of a layer that a registry must send within `timeout`; a slower pull
        /// fails with REGISTRY_UNAVAILABLE and resumes later. 0: any amount.
        min_throughput: Size = "64KiB";
        /// The time limit of one pull; it then fails with REGISTRY_UNAVAILABLE and resumes later.
        pull_timeout: Period = "1h";
    }
}

section! {
    /// Canaries, new versions that are compared with the live one: docs/canary.md.
    Canary {
        /// Whether canary tags are followed.
        enabled: bool = "true" reloads;
        /// Settings that the label `dev.outrigger.canary` of a canary's image can override.
        defaults: CanarySettings = "{}" reloads;
        /// Settings that override the label.
        overrides: CanarySettings = "{}" reloads;
        /// File of a secret from which the arm of each routing key follows, for pods that share it:
        /// a key then has the same arm in all of them. At least 16 bytes; read at the start.
        /// Default: each process draws at random.
        secret_file: Option<PathBuf> = "";
    }
}

section! {
    /// Logs go to standard error.
    Log {
        /// The form of an event: a readable line (`text`) or a JSON object (`json`).
        format: LogFormat = "text";
        /// The levels that are logged, as in `info` or `info,outrigger_lifecycle=debug`. Releases
        /// contain levels up to `debug`.
        level: String = "info";
    }
}

section! {
    /// `/metrics` on the health listener: docs/metrics.md.
    Metrics {
        /// The number of models with series of their own, in the order of their first load; all
        /// others share the label `other`. A model has about 150 series per arm.
        max_models: u32 = "500";
    }
}

section! {
    /// OpenTelemetry traces of requests and of loads of models: docs/traces.md.
    Traces {
        /// A collector's address for OTLP over gRPC, such as `http://collector:4317`, or with
        /// https. Without it there are no traces. Also set by the environment:
        /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`.
        endpoint: Option<String> = "";
        /// The share of requests that are traced if the caller has not decided, 0 to 1. Also set by
        /// the environment: `OTEL_TRACES_SAMPLER_ARG`.
        ratio: Ratio = "0.01";
        /// The name of this process in traces: `service.name`. Also set by the environment:
        /// `OTEL_SERVICE_NAME`.
        service: String = "outrigger";
        /// Further attributes of this process in traces:
        /// `deployment.environment=production,k8s.pod.name=a`. Also set by the environment:
        /// `OTEL_RESOURCE_ATTRIBUTES`.
        attributes: Option<String> = "";
    }
}

section! {
    /// Scores of files of rows beside the server (`ValidateFile`): docs/model-package.md#in-the-pod.
    Validation {
        /// The directory with the files. Paths in requests are confined to it, and symbolic links are
        /// not followed. Without it there is no validation of files.
        directory: Option<PathBuf> = "";
        /// The maximum number of concurrent calls to the engine. They are made while no prediction
        /// has to wait.
        max_in_flight: u32 = "1";
    }
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
        ("validation", Validation::ABOUT, Validation::KEYS),
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
            validation: Validation::read(layers, "validation"),
            engines: layers.take("", "engines", None),
            models: layers.take("", "models", Vec::new()),
        };
        layers.refuse_the_rest();
        config
    }

    /// Checks limits, references and settings that depend on each other.
    ///
    /// # Errors
    /// All problems, each with the path of its key.
    pub fn validate(&self, kinds: &Kinds) -> Result<(), Invalid> {
        let problems = check::problems(self, kinds);
        if problems.is_empty() { Ok(()) } else { Err(Invalid(problems)) }
    }
}
