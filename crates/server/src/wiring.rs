//! Wiring: makes the parts of the server from its configuration.

mod engines;
mod images;
mod onnx;
mod remote;
mod tfserving;
mod trees;

use std::{collections::BTreeSet, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::Router;
use bytesize::ByteSize;
use outrigger_console::Site;
use outrigger_lifecycle::{self as lifecycle, Handle};
use outrigger_oci as oci;
use outrigger_store::{self as store, Store};
use outrigger_trace::{self as trace, Exporter, Tracer};
use outrigger_ui as ui;
use tokio_util::sync::CancellationToken;
use tonic_health::server::HealthReporter;

use self::{engines::engines, images::oci_config};
use crate::{
    Error, auth,
    compression::{self, Policy},
    config::{Config, Kinds},
    file_error::FileError,
    grpc::{self, Access, Canaries, Models, Serving, Validations},
    guard::Guard,
    health::{self, Readiness},
    heavy::Heavy,
    http,
    listen::Listener,
    metrics::Exposition,
    oip,
    page::{self, Shown},
    predict::Predictor,
    reload::Reloads,
    request_limits::RequestLimits,
    runtimes::Runtimes,
    security::Security,
    validation::Validation,
    xgboost_serving,
};

/// The default deadline on the admin listener: loads by hand include pulls, which take minutes.
const ADMIN_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// The addresses of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The address of gRPC: predictions and model states.
    pub grpc: SocketAddr,
    /// The address of HTTP with JSON: predictions and model states.
    pub http: SocketAddr,
    /// The address of `/healthz`, `/readyz` and `/metrics`.
    pub health: SocketAddr,
    /// The address of gRPC for changes, and of the page `/ui`.
    pub admin: SocketAddr,
    /// The address of the interface of XGBoost Serving, if there is one.
    pub xgboost_serving: Option<SocketAddr>,
    /// The address of the Open Inference Protocol, if there is one.
    pub oip: Option<SocketAddr>,
}

/// The listeners, bound before anything else is done.
pub(crate) struct Listeners {
    pub(crate) grpc: Listener,
    pub(crate) http: Listener,
    pub(crate) health: Listener,
    pub(crate) admin: Listener,
    pub(crate) xgboost_serving: Option<Listener>,
    pub(crate) oip: Option<Listener>,
}

impl Listeners {
    pub(crate) fn bind(config: &Config, security: &Security) -> Result<Self, Error> {
        let (server, tls) = (&config.server, &config.tls);
        let bind = |name, address, transport| {
            Listener::bind(name, address, security.acceptor(transport), server.send_timeout.0)
        };
        Ok(Self {
            grpc: bind("grpc", server.grpc, tls.grpc)?,
            http: bind("http", server.http, tls.http)?,
            health: bind("health", server.health, tls.health)?,
            admin: bind("admin", server.admin, tls.admin)?,
            xgboost_serving: server
                .xgboost_serving
                .map(|address| bind("xgboost_serving", address, tls.xgboost_serving))
                .transpose()?,
            oip: server.oip.map(|address| bind("oip", address, tls.oip)).transpose()?,
        })
    }

    pub(crate) fn addresses(&self) -> Result<Addresses, Error> {
        let address = |listener: &Listener| {
            listener.address().map_err(Error::system("a listener has no address"))
        };
        Ok(Addresses {
            grpc: address(&self.grpc)?,
            http: address(&self.http)?,
            health: address(&self.health)?,
            admin: address(&self.admin)?,
            xgboost_serving: self.xgboost_serving.as_ref().map(address).transpose()?,
            oip: self.oip.as_ref().map(address).transpose()?,
        })
    }
}

/// The parts of the surfaces, and the tokens that end them.
pub(crate) struct Parts {
    pub(crate) models: Handle,
    pub(crate) limits: RequestLimits,
    pub(crate) reloads: Reloads,
    pub(crate) readiness: Readiness,
    pub(crate) reporter: HealthReporter,
    pub(crate) exposition: Exposition,
    pub(crate) security: Security,
    /// The data of the page.
    pub(crate) feed: ui::Feed,
    pub(crate) tracer: Tracer,
    /// The exporter of spans to the collector, if one is configured.
    pub(crate) exporter: Option<Exporter>,
    /// Ends the listeners for predictions.
    pub(crate) drain: CancellationToken,
    /// Ends the health and admin listeners, and the tasks that report.
    pub(crate) end: CancellationToken,
}

/// Makes the parts and connects them. Nothing runs yet.
pub(crate) fn connect(
    config: &Config,
    kinds: &Kinds,
    runtimes: &Runtimes,
    exposition: Exposition,
    security: Security,
) -> Result<(Parts, lifecycle::Service), Error> {
    let (tracer, exporter) = traces(config, runtimes)?;
    let store = Store::open(store_config(config, kinds))?;
    let limits = RequestLimits::new(config);
    limits.budget.begin();
    let client = oci::Client::new(oci_config(&config.images, &limits.budget))?;
    let engines = engines(config, kinds, runtimes, &store, (&limits.budget, &tracer))?;
    let (models, service) = {
        let _on = runtimes.lifecycle.enter();
        let mut lifecycle_config = lifecycle_config(config, &limits, &tracer);
        if let Some(path) = &config.canary.secret_file {
            lifecycle_config.salt = salt(path)?;
        }
        lifecycle::start(lifecycle_config, client, store, engines)?
    };
    let (readiness, end) = (Readiness::new(models.clone()), CancellationToken::new());
    let reloads = Reloads::default();
    let shown = Shown::new(
        models.clone(),
        readiness.clone(),
        exposition.clone(),
        reloads.clone(),
        limits.budget.clone(),
    );
    let feed = ui::Feed::new(page::about(config), models.clone(), Arc::new(shown), end.clone());
    let parts = Parts {
        readiness,
        reporter: HealthReporter::new(),
        models,
        limits,
        reloads,
        exposition,
        security,
        feed,
        tracer,
        exporter,
        drain: CancellationToken::new(),
        end,
    };
    Ok((parts, service))
}

/// The applications of the listeners.
pub(crate) struct Surfaces {
    pub(crate) grpc: Serving,
    pub(crate) http: Router,
    pub(crate) health: Router,
    pub(crate) admin: Router,
    pub(crate) xgboost_serving: xgboost_serving::Serving,
    pub(crate) oip: oip::Serving,
}

impl Surfaces {
    pub(crate) fn new(config: &Config, parts: &Parts, runtimes: &Runtimes) -> Self {
        let site = Site::Own {
            tls: parts.security.acceptor(config.tls.admin).is_some(),
            names: config.server.admin_names.as_slice().into(),
            setting: Some("server.admin_names"),
        };
        let rules = |front, default_deadline, stop: &CancellationToken| Guard {
            front,
            site: Site::Any,
            default_deadline,
            auth: parts.security.auth.clone(),
            limits: parts.limits.clone(),
            tracer: parts.tracer.clone(),
            stop: stop.clone(),
        };
        let (models, closing) = (parts.models.clone(), parts.drain.clone());
        let heavy = Heavy::on(runtimes.heavy.handle());
        let threads = runtimes.serving.seats().runtimes().count();
        let validation = Validation::new(
            &config.validation,
            models.clone(),
            parts.limits.clone(),
            (heavy.clone(), threads),
        );
        let predictor = Predictor::new(models, parts.limits.clone(), heavy, closing);
        let services = |access| {
            let (models, budget) = (parts.models.clone(), parts.limits.budget.clone());
            let models = Models::new(models, budget, access, parts.drain.clone());
            let canaries = Canaries::new(parts.models.clone(), access);
            (models, canaries, Validations::new(validation.clone(), access))
        };
        let most = config.server.max_message.bytes();
        let compression = |names| Policy::new(config.server.compression, names);
        let states = oip::States::new(predictor.clone(), parts.readiness.clone());
        let admin =
            |front| Guard { site: site.clone(), ..rules(front, Some(ADMIN_DEADLINE), &parts.end) };
        Self {
            oip: oip::Serving::new(
                predictor.clone(),
                states.clone(),
                &parts.reporter,
                |front| rules(front, None, &parts.drain),
                most,
                compression,
            ),
            grpc: Serving::new(
                predictor.clone(),
                services(Access::Read),
                &parts.reporter,
                rules(&grpc::FRONT, None, &parts.drain),
                most,
                compression(&compression::GRPC),
            ),
            http: http::routes(
                predictor.clone(),
                parts.models.clone(),
                rules(&http::FRONT, None, &parts.drain),
                most,
                compression(&compression::HTTP),
            ),
            health: health::routes(
                parts.readiness.clone(),
                parts.exposition.clone(),
                parts.limits.budget.clone(),
                runtimes.control.handle().clone(),
            ),
            xgboost_serving: xgboost_serving::Serving::new(
                predictor,
                (parts.models.clone(), parts.drain.clone()),
                |front| Guard {
                    auth: parts.security.auth.with_further(config.auth.xgboost_serving),
                    ..rules(front, None, &parts.drain)
                },
                most,
                compression,
            ),
            admin: grpc::admin(
                services(Access::Change),
                &parts.reporter,
                admin(&grpc::FRONT),
                compression(&compression::GRPC),
            )
            .merge(match config.server.oip {
                Some(_) => oip::admin(states, admin(&oip::GRPC), compression(&compression::GRPC)),
                None => Router::new(),
            })
            .merge(auth::readers(
                ui::routes(parts.feed.clone()),
                &parts.security.auth,
                &site,
            )),
        }
    }
}

/// The tracer, which decides what is traced, and the exporter of spans.
fn traces(config: &Config, runtimes: &Runtimes) -> Result<(Tracer, Option<Exporter>), Error> {
    let traces = &config.traces;
    let Some(endpoint) = traces.endpoint.clone() else { return Ok((Tracer::off(), None)) };
    let given = trace::attributes(traces.attributes.as_deref().unwrap_or_default());
    let own = [
        ("service.name", traces.service.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        // In a cluster, this is the pod's name.
        ("host.name", rustix::system::uname().nodename().to_string_lossy().into_owned()),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
    let resource = own.chain(given.into_iter().flatten()).collect();
    let _on = runtimes.control.enter();
    let (tracer, exporter) =
        Exporter::new(trace::Config { endpoint, ratio: traces.ratio.get(), resource })?;
    Ok((tracer, Some(exporter)))
}

fn store_config(config: &Config, kinds: &Kinds) -> store::Config {
    store::Config {
        path: config.store.path.clone(),
        max_size: ByteSize(config.store.max_size.0),
        limits: store::UnpackLimits {
            max_bytes: ByteSize(config.store.max_unpacked.0),
            max_entries: config.store.max_entries.into(),
        },
        layouts: outrigger_run::layouts(&kinds.frameworks()),
    }
}

fn lifecycle_config(config: &Config, limits: &RequestLimits, tracer: &Tracer) -> lifecycle::Config {
    let images = &config.images;
    lifecycle::Config {
        images: lifecycle::Images {
            repository: images.repository.clone(),
            signatures: images.signatures.iter().map(signed).collect(),
            default_tag: images.default_tag.clone(),
            poll_interval: images.poll_interval.0,
            directory_poll_interval: images.directory_poll_interval.0,
        },
        tunables: tunables(config),
        pull_timeout: images.pull_timeout.0,
        max_tags: images.max_tags as usize,
        limits: Arc::clone(&limits.tensors),
        budget: limits.budget.clone(),
        tracer: tracer.clone(),
        ..lifecycle::Config::default()
    }
}

/// The salt of canaries that pods with the same file share.
fn salt(path: &Path) -> Result<lifecycle::Salt, FileError> {
    let secret = std::fs::read(path).map_err(|error| FileError::new(path, error))?;
    let secret = secret.trim_ascii();
    if secret.len() < 16 {
        return Err(FileError::new(path, "holds a secret of less than 16 bytes"));
    }
    Ok(lifecycle::Salt::of_secret(secret))
}

/// The models and their settings for the lifecycle, at the start and at each reload.
pub(crate) fn tunables(config: &Config) -> lifecycle::Tunables {
    lifecycle::Tunables {
        models: config.models.iter().map(entry).collect(),
        allowed: allowed(config),
        idle_ttl: config.store.idle_ttl.0,
        retain: config.store.retain.0,
        canary: lifecycle::CanaryDefaults {
            enabled: config.canary.enabled,
            defaults: config.canary.defaults.layer(),
            overrides: config.canary.overrides.layer(),
        },
    }
}

fn signed(rule: &crate::config::SignatureRule) -> lifecycle::Signed {
    lifecycle::Signed { prefix: rule.prefix.clone(), keys: rule.keys.clone() }
}

fn entry(model: &crate::config::Model) -> lifecycle::ModelEntry {
    lifecycle::ModelEntry {
        name: model.name.clone(),
        image: model.image.clone(),
        directory: model.directory.as_ref().map(|path| lifecycle::VersionDirectory {
            path: path.clone(),
            policy: model.versions.clone().unwrap_or_default(),
            labels: model.labels.clone(),
        }),
        preload: model.preload,
        tag: model.tag.clone(),
        digest: model.digest,
        engine: model.engine.clone(),
        rollover: model.rollover,
    }
}

/// The repositories that may be pulled from: `images.allowed`, or if it is empty, the repositories
/// of the configuration.
fn allowed(config: &Config) -> Vec<String> {
    let images = &config.images;
    if !images.allowed.is_empty() {
        return images.allowed.clone();
    }
    let named = config.models.iter().filter_map(|model| model.image.clone());
    let named: BTreeSet<_> = images.repository.iter().cloned().chain(named).collect();
    named.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use outrigger_budget::Budget;
    use outrigger_features::Limits;

    use super::*;
    use crate::request_limits::tensors;

    /// Other crates have defaults for their own tests and for commands other than `serve`, such as
    /// `validate`. These commands must refuse whatever the server refuses.
    #[test]
    fn defaults_of_parts_equal_those_of_the_configuration() {
        let config = Config::default();
        assert_eq!(tensors(&config), Limits::default());
        let (ours, theirs) = (store_config(&config, &Kinds::shipped()), store::Config::new("/tmp"));
        assert_eq!((ours.limits, ours.max_size), (theirs.limits, theirs.max_size));
        let idle = oci_config(&config.images, &Budget::default()).timeouts.idle;
        assert_eq!(idle, oci::Timeouts::default().idle);
        let theirs = lifecycle::Config::default();
        let limits = RequestLimits::new(&config);
        let ours = lifecycle_config(&config, &limits, &Tracer::off());
        assert_eq!(ours.tunables, theirs.tunables);
        assert_eq!(ours.images.poll_interval, theirs.images.poll_interval);
        assert_eq!(ours.images.directory_poll_interval, theirs.images.directory_poll_interval);
        assert_eq!((ours.pull_timeout, ours.max_tags), (theirs.pull_timeout, theirs.max_tags));
        assert_eq!(ours.images.default_tag, theirs.images.default_tag);
    }

    #[test]
    fn without_an_allowed_list_only_configured_images_may_be_pulled() {
        let file = "images: {repository: r.example/team}\n\
                    models: [{name: a, image: s.example/x/a}, {name: b}]";
        let mut config =
            crate::config::load(&Kinds::shipped(), Some(file), [], &[]).unwrap().config;
        assert_eq!(allowed(&config), ["r.example/team", "s.example/x/a"]);
        config.images.allowed = vec!["r.example".to_owned()];
        assert_eq!(allowed(&config), ["r.example"]);
    }
}
