//! Engines of the kind `tfserving`: TensorFlow Serving, or `outrigger engine`.

use std::{path::Path, sync::Arc};

use outrigger_core::{EngineId, Failure};
use outrigger_run as run;
use outrigger_tfserving::{self as tfserving, Client, Endpoint};

use crate::config::{
    Engine, Kind, Problem,
    kinds::{Context, Make, SHORT_FORM, Settings},
};

/// The kind of TensorFlow Serving.
pub(super) fn kind() -> Kind {
    Kind::configured(SHORT_FORM, vec![tfserving::TENSORFLOW], read)
}

/// The problem of an engine whose calls would be joined twice.
const BOTH: &str = "must be false with a batcher: only one of the two joins calls";

fn read(settings: &Settings<'_>) -> Result<Make, Vec<Problem>> {
    let engine: Engine = settings.read()?;
    let endpoint = engine.endpoint.parse::<Endpoint>().map(drop);
    let require = |holds: bool, message: &str| holds.then_some(()).ok_or(message.to_owned());
    let absolute = engine.store_path.as_deref().is_none_or(Path::is_absolute);
    let positive = |number: u32| require(number > 0, "must be at least 1");
    let batch = !engine.batching || engine.max_batch_size >= settings.max_users;
    let batch_message = format!(
        "must be at least server.max_users, {}: a larger BatchPredict would fail",
        settings.max_users
    );
    let checks = [
        ("endpoint", endpoint.map_err(|error| error.to_string())),
        ("store_path", require(absolute, "must be an absolute path")),
        ("connections", positive(engine.connections)),
        ("max_in_flight", positive(engine.max_in_flight)),
        ("max_batch_size", require(batch, &batch_message)),
        ("batching", require(!(engine.batching && settings.has_batcher), BOTH)),
    ];
    let problem =
        |(key, check): (&str, Result<(), String>)| Some(settings.problem(key, check.err()?));
    let problems: Vec<_> = checks.into_iter().filter_map(problem).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Box::new(move |context| connect(&engine, context)))
}

fn connect(engine: &Engine, context: &Context<'_>) -> Result<Arc<dyn run::Engine>, Failure> {
    // A prediction uses an engine connection of the thread that its request arrived on.
    let config = client_config(engine, context.engine.clone(), context.max_message);
    let client = Client::connect_on(config, context.serving)
        .map_err(|error| Failure::because(error.reason(), &error))?;
    let serving = context.store.serving(context.engine, engine.store_path.as_deref());
    let serving = serving.map_err(|error| Failure::because(error.reason(), &error))?;
    let settings = tfserving::Settings {
        batching: engine.batching,
        tracer: context.tracer.clone(),
        ..tfserving::Settings::default()
    };
    Ok(Arc::new(tfserving::Engine::new(client, serving, settings)))
}

fn client_config(engine: &Engine, name: EngineId, max_message: usize) -> tfserving::Config {
    tfserving::Config {
        engine: name,
        connections: engine.connections as usize,
        max_in_flight: engine.max_in_flight as usize,
        max_message,
        ..tfserving::Config::new(&engine.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_configuration_have_the_same_defaults() {
        let ours = client_config(&Engine::default(), EngineId::default(), 1);
        let theirs = tfserving::Config::new("");
        assert_eq!(ours.connections, theirs.connections);
        assert_eq!(ours.max_in_flight, theirs.max_in_flight);
    }
}
