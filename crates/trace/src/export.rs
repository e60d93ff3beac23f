//! The way of spans to a collector.

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

/// How long the collector may take to answer, with all attempts for a message.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A message that did not arrive is sent again so many times, with twice the pause
/// each. What comes in meanwhile waits in the queue, as far as there is room.
const RETRIES: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// What the last spans get when the process ends.
const LAST_MOMENT: Duration = Duration::from_millis(400);

/// Where spans go, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `http://host:port` or `https://host:port` of a collector's OTLP over gRPC.
    pub endpoint: String,
    /// The part of the traces that begin here, 0 to 1.
    pub ratio: f64,
    /// What is said of this process: `service.name` and so on. Of two with the same
    /// key the later one counts.
    pub resource: Vec<(String, String)>,
}

/// The collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no address.
    #[error("{0:?} is not an address such as http://collector:4317")]
    Address(String),
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] tonic::transport::Error),
    /// What the environment says of exporters makes no sense.
    #[error("the exporter could not be set up")]
    Exporter(#[from] ExporterBuildError),
}

/// Whether an address could be a collector's.
///
/// # Errors
/// [`Error::Address`].
pub fn check_endpoint(address: &str) -> Result<(), Error> {
    plain(address).map(drop)
}

/// Reads `key=value,key=value`, as in `OTEL_RESOURCE_ATTRIBUTES`; `None`: it is
/// something else.
pub fn attributes(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        (!key.is_empty()).then(|| (key.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(pair).collect()
}

/// Takes spans to the collector, apart from what makes them: a collector that is
/// down or slow costs spans, which are counted, and nothing else.
#[derive(Debug)]
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// An exporter and what it gets its spans from. It has a thread of its own; its
    /// connection lives on the runtime that this is called on.
    ///
    /// # Errors
    /// The collector cannot be used.
    ///
    /// # Panics
    /// Outside of a runtime.
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
            // The tracer has decided; and the environment's sampler is not asked.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(Resource::builder_empty().with_attributes(resource).build())
            .with_span_processor(Bounded::new(exporter))
            .build();
        metrics::begin();
        Ok((Tracer::new(&provider, config.ratio), Self(provider)))
    }

    /// Waits for `stop`, and exports what is left then, as far as that goes quickly.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        stop.await;
        let shutdown = spawn_blocking(move || self.0.shutdown_with_timeout(LAST_MOMENT));
        if !matches!(shutdown.await, Ok(Ok(()))) {
            tracing::warn!("the last spans were not exported");
        }
    }
}

/// An endpoint without TLS.
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
