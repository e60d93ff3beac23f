//! Engines of the kind `oip`: servers of the Open Inference Protocol.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use outrigger_core::{Failure, Reason};
use outrigger_oip_client::{BudgetSettings, Client, Config, HostConfig};
use outrigger_oip_engine::{self as oip, OIP};
use outrigger_run as run;
use serde::Deserialize;

use crate::config::{
    Kind, Problem,
    kinds::{Context, Make, Settings},
};

/// The most bytes of an answer, also when it is decompressed: the servers are not ours.
const MAX_ANSWER: usize = 64 << 20;

/// The settings of one engine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Engine {
    endpoint: Endpoints,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    token_file: Option<PathBuf>,
    token_header: Option<String>,
    ca: Option<PathBuf>,
    #[serde(default)]
    load: bool,
    repository: Option<PathBuf>,
    #[serde(default = "max_in_flight")]
    max_in_flight: usize,
}

/// One address, or those of several servers with the same models.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Endpoints {
    One(String),
    Several(Vec<String>),
}

const fn max_in_flight() -> usize {
    128
}

/// The kind of servers of the protocol.
pub(super) fn kind() -> Kind {
    Kind::configured("oip", vec![OIP], read)
}

fn read(settings: &Settings<'_>) -> Result<Make, Vec<Problem>> {
    let engine: Engine = settings.read()?;
    if engine.repository.as_ref().is_some_and(|path| path.is_relative()) {
        return Err(vec![settings.problem("repository", "must be an absolute path")]);
    }
    let config = engine.config();
    config.check().map_err(|error| {
        let key = if error.key == "hosts" { "endpoint" } else { error.key };
        vec![settings.problem(key, error.problem)]
    })?;
    Ok(Box::new(move |context| connect(&engine, config, context)))
}

fn connect(
    engine: &Engine,
    config: Config,
    context: &Context<'_>,
) -> Result<Arc<dyn run::Engine>, Failure> {
    let config = Config { max_request: context.max_message, max_answer: MAX_ANSWER, ..config };
    let client = Client::new(config, context.serving)
        .map_err(|error| Failure::new(Reason::Internal, error.to_string()))?
        .charged_to(context.budget.answers.clone());
    let repository = engine.repository.clone();
    // Models that are published are loaded too.
    let load = engine.load || repository.is_some();
    let settings = oip::Settings { load, repository, ..oip::Settings::default() };
    let made = oip::Engine::new(client, settings);
    let failed = |error| Failure::new(Reason::Internal, format!("repository: {error}"));
    Ok(Arc::new(made.map_err(failed)?))
}

impl Engine {
    fn config(&self) -> Config {
        let endpoints = match &self.endpoint {
            Endpoints::One(endpoint) => vec![endpoint.clone()],
            Endpoints::Several(endpoints) => endpoints.clone(),
        };
        let host = |endpoint| HostConfig {
            endpoint,
            prefix: self.prefix.clone(),
            headers: self.headers.clone().into_iter().collect(),
            token_file: self.token_file.clone(),
            token_env: None,
            token_header: self.token_header.clone(),
            address: None,
        };
        let hosts = endpoints.into_iter().map(host).collect();
        let config = Config::new(hosts);
        // The calls that a server takes with it when it ends can all be made again.
        let saved = config.budget.saved.max(self.max_in_flight as f64);
        Config {
            ca: self.ca.clone(),
            max_in_flight: self.max_in_flight,
            budget: BudgetSettings { saved, ..config.budget },
            ..config
        }
    }
}
