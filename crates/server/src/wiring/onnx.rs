//! Engines of the kind `onnx`: `outrigger onnx`.

use std::{path::Path, sync::Arc, time::Duration};

use outrigger_core::EngineId;
use outrigger_onnx::{Config, Endpoint, Engine, ONNX};
use outrigger_run as run;

use crate::config::{
    Kind, Onnx, Problem,
    kinds::{Context, Make, Settings},
};

/// The kind of ONNX Runtime.
pub(super) fn kind() -> Kind {
    Kind::configured("onnx", vec![ONNX], read)
}

fn read(settings: &Settings<'_>) -> Result<Make, Vec<Problem>> {
    let onnx: Onnx = settings.read()?;
    let require = |holds: bool, message: &str| holds.then_some(()).ok_or(message.to_owned());
    let absolute = onnx.store_path.as_deref().is_none_or(Path::is_absolute);
    let positive = |number: u32| require(number > 0, "must be at least 1");
    let endpoint = onnx.endpoint.parse::<Endpoint>();
    let lasting = onnx.load_timeout.0 > Duration::ZERO;
    let checks = [
        ("endpoint", endpoint.as_ref().map(|_| ()).map_err(ToString::to_string)),
        ("store_path", require(absolute, "must be an absolute path")),
        ("connections", positive(onnx.connections)),
        ("max_in_flight", positive(onnx.max_in_flight)),
        ("load_timeout", require(lasting, "must be longer than 0s")),
    ];
    let problem =
        |(key, check): (&str, Result<(), String>)| Some(settings.problem(key, check.err()?));
    let problems: Vec<_> = checks.into_iter().filter_map(problem).collect();
    match endpoint {
        Ok(endpoint) if problems.is_empty() => {
            Ok(Box::new(move |context| Ok(connect(&onnx, endpoint, context))))
        }
        _ => Err(problems),
    }
}

fn connect(onnx: &Onnx, endpoint: Endpoint, context: &Context<'_>) -> Arc<dyn run::Engine> {
    let config = Config {
        max_message: context.max_message,
        ..client_config(onnx, context.engine.clone(), endpoint)
    };
    let here = context.store.path().to_owned();
    let roots = onnx.store_path.clone().map(|there| (here, there));
    Arc::new(Engine::new(config, context.serving, roots))
}

fn client_config(onnx: &Onnx, name: EngineId, endpoint: Endpoint) -> Config {
    Config {
        connections: onnx.connections as usize,
        max_in_flight: onnx.max_in_flight as usize,
        load_timeout: onnx.load_timeout.0,
        ..Config::new(name, endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_configuration_have_the_same_defaults() {
        let ours = Onnx::default();
        let endpoint: Endpoint = ours.endpoint.parse().expect("an endpoint");
        let theirs = Config::new(EngineId::default(), endpoint.clone());
        assert_eq!(client_config(&ours, EngineId::default(), endpoint), theirs);
    }
}
