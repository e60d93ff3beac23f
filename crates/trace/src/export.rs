//! Export of spans to a collector.

#[cfg(test)]
mod tests;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    ExporterBuildError, RetryPolicy, SpanExporter, WithExportConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tokio::task::spawn_blocking;
use tonic::transport::{ClientTlsConfig, Endpoint};

use crate::{Tracer, metrics, processor::Bounded};

/// The time limit for one message to the collector, all attempts included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of times that a failed message is sent again, with a delay that doubles each time.
/// New spans wait in the queue meanwhile, as far as there is room.
const RETRIES: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The time limit for exporting the last spans when the process ends.
const LAST_MOMENT: Duration = Duration::from_millis(400);

/// The configuration of tracing.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The collector's address for OTLP over gRPC: `http://host:port` or `https://host:port`.
    pub endpoint: String,
    /// The sampling ratio of traces that begin here, 0 to 1.
    pub ratio: f64,
    /// Attributes of this process, such as `service.name`. If a key occurs twice, the later value
    /// counts.
    pub resource: Vec<(String, String)>,
}

/// The collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is invalid.
    #[error("{0:?} is not an address such as http://collector:4317")]
    Address(String),
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] tonic::transport::Error),
    /// The exporter's environment variables are invalid.
    #[error("the exporter could not be set up")]
    Exporter(#[from] ExporterBuildError),
}

/// Checks that an address has the form of a collector's.
///
/// # Errors
/// [`Error::Address`].
pub fn check_endpoint(address: &str) -> Result<(), Error> {
    plain(address).map(drop)
}

/// Parses `key=value,key=value`, the format of `OTEL_RESOURCE_ATTRIBUTES`; `None` if it is
/// malformed.
pub fn attributes(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        (!key.is_empty()).then(|| (key.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(pair).collect()
}

/// Exports spans to the collector in the background. A collector that is down or slow costs only
/// spans, which are counted.
#[derive(Debug)]
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// Creates an exporter, and the tracer that feeds it. The exporter has a thread of its own; its
    /// connection lives on the runtime that calls this.
    ///
    /// # Errors
    /// The collector cannot be used.
    ///
    /// # Panics
    /// If it is called outside of a runtime.
    pub fn new(config: Config) -> Result<(Tracer, Self), Error> {
        let retries = RetryPolicy::recommended()
            .with_max_retries(RETRIES)
            .with_initial_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE);
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_channel(endpoint(&config.endpoint)?.connect_lazy())
            .with_timeout(TIMEOUT)
            .with_retry_policy(retries)
            .build()?;
        let resource = config.resource.into_iter().map(|(key, value)| KeyValue::new(key, value));
        let provider = SdkTracerProvider::builder()
            // The tracer has sampled already. A fixed sampler also keeps the SDK from using the one
            // in the environment.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(Resource::builder_empty().with_attributes(resource).build())
            .with_span_processor(Bounded::new(exporter))
            .build();
        metrics::register();
        Ok((Tracer::new(&provider, config.ratio), Self(provider)))
    }

    /// Waits for `stop`, then exports the remaining spans within a short time limit.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        stop.await;
        let shutdown = spawn_blocking(move || self.0.shutdown_with_timeout(LAST_MOMENT));
        if !matches!(shutdown.await, Ok(Ok(()))) {
            tracing::warn!("the last spans were not exported");
        }
    }
}

/// Parses an address into an endpoint, TLS not yet configured.
fn plain(address: &str) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(address.to_owned()).ok().filter(|endpoint| {
        let uri = endpoint.uri();
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
    });
    endpoint.ok_or_else(|| Error::Address(address.to_owned()))
}

fn endpoint(address: &str) -> Result<Endpoint, Error> {
    let endpoint = plain(address)?.connect_timeout(TIMEOUT).timeout(TIMEOUT);
    if endpoint.uri().scheme_str() == Some("https") {
        return Ok(endpoint.tls_config(ClientTlsConfig::new().with_native_roots())?);
    }
    Ok(endpoint)
}
