//! Checks that types cannot express: limits, references, and settings that depend on each other.

mod directory;

use std::{collections::BTreeSet, path::Path, time::Duration};

use outrigger_canary::Settings;
use outrigger_core::EngineId;
use outrigger_oci::{Prefix, Reference, registry_host};

use super::{CallerName, Config, Kinds, Period, Problem, Rights, Size, Transport};

/// All problems of `config`.
pub(super) fn problems(config: &Config, kinds: &Kinds) -> Vec<Problem> {
    let mut check = Check::default();
    check.server(config);
    check.tls(config);
    check.auth(config);
    let engines = kinds.engines(config);
    check.limits(config);
    check.store(config);
    check.images(config);
    check.canary(config);
    check.log(config);
    check.traces(config);
    check.validation(config);
    check.models(config, &engines.keys().collect());
    check.problems.extend(engines.into_values().filter_map(Result::err).flatten());
    check.problems
}

#[derive(Default)]
struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn require(&mut self, holds: bool, key: impl Into<String>, message: impl Into<String>) {
        if !holds {
            self.problems.push(Problem::new(key, message));
        }
    }

    fn positive(&mut self, key: &str, number: u32) {
        self.require(number > 0, key, "must be at least 1");
    }

    fn lasting(&mut self, key: &str, period: Period) {
        self.require(period.0 > Duration::ZERO, key, "must be longer than 0s");
    }

    fn limits(&mut self, config: &Config) {
        let named = config.limits.callers.keys().all(|name| name.as_str() != CallerName::ANYBODY);
        self.require(named, "limits.callers", "* is not a caller; its limit is per_caller");
    }

    fn server(&mut self, config: &Config) {
        let server = &config.server;
        self.listeners(config);
        let enough = server.memory.is_none_or(|memory| memory >= Size(256 << 20));
        self.require(enough, "server.memory", "must be at least 256MiB");
        let sizes = Size(1 << 10)..=Size(2 << 30);
        let sized = sizes.contains(&server.max_message);
        self.require(sized, "server.max_message", "must be between 1KiB and 2GiB");
        let tensors = sizes.contains(&server.max_tensors);
        self.require(tensors, "server.max_tensors", "must be between 1KiB and 2GiB");
        self.positive("server.max_treatments", server.max_treatments);
        self.positive("server.max_users", server.max_users);
        self.positive("server.max_in_flight", server.max_in_flight);
        self.positive("server.max_waiting", server.max_waiting);
        self.lasting("server.default_deadline", server.default_deadline);
        self.lasting("server.send_timeout", server.send_timeout);
        self.lasting("server.shutdown_grace", server.shutdown_grace);
        self.require(
            server.shutdown_delay < server.shutdown_grace,
            "server.shutdown_delay",
            "must be shorter than server.shutdown_grace, of which it is a part",
        );
        self.require(server.threads <= 1024, "server.threads", "must be at most 1024");
    }

    /// Checks that no two listeners have one address; port 0 is any free port.
    fn listeners(&mut self, config: &Config) {
        let server = &config.server;
        let all = [
            ("server.grpc", server.grpc),
            ("server.http", server.http),
            ("server.health", server.health),
            ("server.admin", server.admin),
        ];
        let further = [
            server.xgboost_serving.map(|address| ("server.xgboost_serving", address)),
            server.oip.map(|address| ("server.oip", address)),
        ];
        let all: Vec<_> = all.into_iter().chain(further.into_iter().flatten()).collect();
        for (position, (key, address)) in all.iter().enumerate() {
            let clash = all[..position].iter().find(|(_, earlier)| {
                let wild = earlier.ip().is_unspecified() || address.ip().is_unspecified();
                let ip = earlier.ip() == address.ip() || wild;
                ip && earlier.port() == address.port() && address.port() != 0
            });
            if let Some((earlier, _)) = clash {
                self.require(false, *key, format!("{address} is taken by {earlier}"));
            }
        }
    }

    /// Checks that certificate and key come together, and that listeners request client
    /// certificates only if authorities to verify them are configured.
    fn tls(&mut self, config: &Config) {
        let tls = &config.tls;
        let (certificate, key) = (tls.certificate.is_some(), tls.key.is_some());
        self.require(key || !certificate, "tls.key", "must be given with tls.certificate");
        self.require(certificate || !key, "tls.certificate", "must be given with tls.key");
        let listeners = [
            ("tls.grpc", tls.grpc),
            ("tls.http", tls.http),
            ("tls.health", tls.health),
            ("tls.admin", tls.admin),
            ("tls.xgboost_serving", tls.xgboost_serving),
            ("tls.oip", tls.oip),
        ];
        let asks = |&(_, transport): &(&str, Transport)| {
            matches!(transport, Transport::Optional | Transport::Mutual)
        };
        for (listener, _) in listeners.iter().filter(|listener| asks(listener)) {
            self.require(certificate, *listener, "there is no tls.certificate");
            let authorities = tls.client_ca.is_some();
            self.require(authorities, *listener, "tls.client_ca must say who vouches for callers");
        }
        let asked = tls.client_ca.is_none() || listeners.iter().any(asks);
        let message = "no listener asks for certificates: make one optional or mutual";
        self.require(asked, "tls.client_ca", message);
    }

    /// Checks that every caller with rights can occur: that its kind of credential is configured.
    fn auth(&mut self, config: &Config) {
        self.operator_file(config);
        let (further, none) = (config.auth.xgboost_serving, Rights::default());
        let listens = config.server.xgboost_serving.is_some();
        let message = "there is no server.xgboost_serving";
        self.require(listens || further == none, "auth.xgboost_serving", message);
        let tokens = config.auth.tokens.is_some();
        for name in config.auth.callers.keys().map(|name| name.as_str()) {
            let key = || format!("auth.callers.{name}");
            match name.split_once(':') {
                Some(("token", _)) => self.require(tokens, key(), "there is no auth.tokens"),
                Some(_) => {
                    let shown = config.tls.client_ca.is_some();
                    self.require(shown, key(), "there is no tls.client_ca");
                }
                None => {}
            }
        }
    }

    /// Checks that the engine cannot read the operator's token: it shares the store and the
    /// directory of its socket.
    fn operator_file(&mut self, config: &Config) {
        let Some(path) = &config.auth.token_file else { return };
        let socket = config.engine.endpoint.strip_prefix("unix:").map(Path::new);
        let socket = socket.and_then(Path::parent);
        for shared in [Some(config.store.path.as_path()), socket].into_iter().flatten() {
            let message = format!("the engine can read {}", shared.display());
            self.require(!path.starts_with(shared), "auth.token_file", message);
        }
    }

    fn store(&mut self, config: &Config) {
        let store = &config.store;
        let named = !store.path.as_os_str().is_empty();
        self.require(named, "store.path", "must name a directory");
        self.require(store.max_size.0 > 0, "store.max_size", "must be more than 0");
        self.require(store.max_unpacked.0 > 0, "store.max_unpacked", "must be more than 0");
        self.positive("store.max_entries", store.max_entries);
        self.lasting("store.idle_ttl", store.idle_ttl);
        self.require(
            store.retain >= store.idle_ttl,
            "store.retain",
            "must not be shorter than store.idle_ttl",
        );
    }

    fn images(&mut self, config: &Config) {
        let images = &config.images;
        for (position, allowed) in images.allowed.iter().enumerate() {
            if let Err(error) = allowed.parse::<Prefix>() {
                self.require(false, format!("images.allowed[{position}]"), error.to_string());
            }
        }
        let mut prefixes = BTreeSet::new();
        for (position, rule) in images.signatures.iter().enumerate() {
            let key = format!("images.signatures[{position}].prefix");
            match rule.prefix.parse::<Prefix>() {
                Ok(prefix) => {
                    let new = prefixes.insert(prefix.to_string());
                    self.require(new, key, format!("{prefix} is listed twice"));
                }
                Err(error) => self.require(false, key, error.to_string()),
            }
        }
        if let Some(repository) = &images.repository {
            // The repository may be a prefix of those that `images.allowed` names, so that is not
            // checked.
            self.bare("images.repository", repository);
        }
        let often = images.poll_interval.0 >= Duration::from_secs(1);
        self.require(often, "images.poll_interval", "must be at least 1s");
        let often = images.directory_poll_interval.0 >= Duration::from_millis(100);
        self.require(often, "images.directory_poll_interval", "must be at least 100ms");
        for (position, host) in images.identity_hosts.iter().enumerate() {
            let is_host = registry_host(host.strip_prefix("*.").unwrap_or(host)).is_ok();
            let key = format!("images.identity_hosts[{position}]");
            self.require(is_host, key, "must be a host, or *. and a domain");
        }
        for (position, host) in images.plain_http.iter().enumerate() {
            if let Err(error) = registry_host(host) {
                self.require(false, format!("images.plain_http[{position}]"), error.to_string());
            }
        }
        self.lasting("images.timeout", images.timeout);
        self.lasting("images.pull_timeout", images.pull_timeout);
        self.positive("images.max_tags", images.max_tags);
        let known = images.repository.is_some() || !config.models.is_empty();
        self.require(
            known,
            "images.repository",
            "without it and without models, no model could ever be found",
        );
    }

    /// Checks that a repository has no tag or digest.
    fn bare(&mut self, key: &str, text: &str) -> Option<Reference> {
        match text.parse::<Reference>() {
            Ok(reference) => {
                self.require(reference.selector().is_none(), key, "must have no tag and no digest");
                Some(reference)
            }
            Err(error) => {
                self.require(false, key, error.to_string());
                None
            }
        }
    }

    /// Checks that a repository has no tag or digest and is under `images.allowed`.
    fn image(&mut self, config: &Config, key: &str, text: &str) {
        let Some(reference) = self.bare(key, text) else { return };
        let allowed = &config.images.allowed;
        let within = |prefix: &String| {
            // A prefix that does not parse is reported as a problem of its own.
            prefix.parse().is_ok_and(|prefix: Prefix| reference.is_within(&prefix))
        };
        let admitted = allowed.is_empty() || allowed.iter().any(within);
        self.require(admitted, key, format!("{reference} is not under images.allowed"));
    }

    /// Checks the settings of a trial whose canary image has no label.
    fn canary(&mut self, config: &Config) {
        let layer = config.canary.defaults.layer().under(&config.canary.overrides.layer());
        if let Err(error) = Settings::try_from(&layer.message()) {
            error.0.into_iter().for_each(|problem| self.require(false, "canary", problem));
        }
    }

    fn log(&mut self, config: &Config) {
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&config.log.level) {
            self.require(false, "log.level", error.to_string());
        }
    }

    fn traces(&mut self, config: &Config) {
        let traces = &config.traces;
        if let Some(Err(error)) = traces.endpoint.as_deref().map(outrigger_trace::check_endpoint) {
            self.require(false, "traces.endpoint", error.to_string());
        }
        self.require(!traces.service.is_empty(), "traces.service", "must not be empty");
        let attributes = traces.attributes.as_deref().unwrap_or_default();
        let pairs = outrigger_trace::attributes(attributes).is_some();
        self.require(pairs, "traces.attributes", "must look like key=value,key=value");
    }

    /// Checks that no file of the store can be replaced by scores.
    fn validation(&mut self, config: &Config) {
        self.positive("validation.max_in_flight", config.validation.max_in_flight);
        let Some(directory) = &config.validation.directory else { return };
        let store = &config.store.path;
        let apart = !directory.starts_with(store) && !store.starts_with(directory);
        let message = format!("must be apart from store.path, {}", store.display());
        self.require(apart, "validation.directory", message);
    }

    fn models(&mut self, config: &Config, engines: &BTreeSet<&EngineId>) {
        let mut names = BTreeSet::new();
        for (position, model) in config.models.iter().enumerate() {
            let key = |field: &str| format!("models[{position}].{field}");
            let new = names.insert(&model.name);
            self.require(new, key("name"), format!("{} is listed twice", model.name));
            let one = model.tag.is_none() || model.digest.is_none();
            self.require(one, key("digest"), "a tag or a digest, not both");
            let known = model.engine.as_ref().is_none_or(|engine| engines.contains(engine));
            self.require(known, key("engine"), "there is no engine of this name");
            self.directory(config, model, key);
            match &model.image {
                Some(image) => self.image(config, &key("image"), image),
                None if model.directory.is_some() => {}
                None => match &config.images.repository {
                    Some(repository) => {
                        self.image(config, &key("name"), &format!("{repository}/{}", model.name));
                    }
                    None => self.require(
                        false,
                        key("image"),
                        "must be given where there is no images.repository",
                    ),
                },
            }
        }
    }
}
