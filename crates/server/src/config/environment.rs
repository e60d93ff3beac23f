//! Settings from environment variables.

use std::collections::BTreeMap;

use super::{
    key_paths,
    layers::{Layers, Origin},
    sections,
};

/// OpenTelemetry's own variables, which are often set already. Later ones take precedence, and this
/// server's settings take precedence over all of them.
const OPENTELEMETRY: &[(&str, &str)] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.endpoint"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "traces.endpoint"),
    ("OTEL_TRACES_SAMPLER_ARG", "traces.ratio"),
    ("OTEL_SERVICE_NAME", "traces.service"),
    ("OTEL_RESOURCE_ATTRIBUTES", "traces.attributes"),
];

/// Adds `OUTRIGGER_SERVER_GRPC` as `server.grpc` and so on.
///
/// A variable that names no setting is not an error: Kubernetes sets some
/// (`OUTRIGGER_SERVER_SERVICE_HOST`) for a Service called `outrigger-server`.
pub(super) fn add_environment(
    layers: &mut Layers,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Vec<String> {
    let keys: BTreeMap<String, String> = key_paths().map(|path| (variable(&path), path)).collect();
    let environment: BTreeMap<_, _> = environment.into_iter().collect();
    for (name, path) in OPENTELEMETRY {
        if let Some(value) = environment.get(*name) {
            layers.add_text(path, Origin::Environment((*name).to_owned()), value);
        }
    }
    let mut ignored = Vec::new();
    for (name, value) in environment {
        if let Some(path) = keys.get(&name) {
            layers.add_text(path, Origin::Environment(name), &value);
        } else if sections().any(|(section, ..)| name.starts_with(&(variable(section) + "_"))) {
            ignored.push(name);
        }
    }
    ignored.sort();
    ignored
}

/// The environment variable of a key path.
pub(super) fn variable(path: &str) -> String {
    format!("OUTRIGGER_{}", path.replace('.', "_").to_uppercase())
}
