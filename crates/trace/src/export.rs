//! The way of spans to a collector.

#[cfg(test)]
mod tests;

use std::{pin::pin, time::Duration};

use outrigger_proto::opentelemetry::{
    ExportTraceServiceRequest, InstrumentationScope, Resource, ResourceSpans, ScopeSpans, Span,
    trace_service_client::TraceServiceClient,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout, timeout_at},
};
use tonic::{
    Code, Status,
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use crate::{
    Tracer,
    metrics::{self, Outcome},
    span::attribute,
};

/// Spans of one message at most, and how long the first of them waits for others.
const BATCH: usize = 512;
const PERIOD: Duration = Duration::from_secs(1);
/// How long the collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A message that did not arrive is sent so many times, with twice the pause each.
/// What comes in meanwhile waits in the queue, as far as there is room.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// What the last spans get when the process ends.
const LAST_MOMENT: Duration = Duration::from_millis(400);

/// Where spans go, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `http://host:port` or `https://host:port` of a collector's OTLP over gRPC.
    pub endpoint: String,
    /// The part of the traces that begin here, 0 to 1.
    pub ratio: f64,
    /// What is said of this process: `service.name` and so on.
    pub resource: Vec<(String, String)>,
}

/// The collector's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is none.
    #[error("{0:?} is not an address such as http://collector:4317")]
    Address(String),
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] tonic::transport::Error),
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
pub struct Exporter {
    endpoint: Endpoint,
    resource: Resource,
    spans: mpsc::Receiver<Span>,
    /// Whether the last message arrived.
    reached: bool,
}

impl Exporter {
    /// An exporter and what it gets its spans from. Nothing is sent before
    /// [`Exporter::run`].
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn new(config: Config) -> Result<(Tracer, Self), Error> {
        let endpoint = endpoint(&config.endpoint)?;
        let (tracer, spans) = Tracer::new(config.ratio);
        let attributes = config.resource.into_iter();
        let attributes = attributes.map(|(key, value)| attribute(key, value.into())).collect();
        Ok((tracer, Self { endpoint, resource: Resource { attributes }, spans, reached: true }))
    }

    /// Exports until `stop`, and then what is left, as far as that goes quickly.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut client = TraceServiceClient::new(self.endpoint.connect_lazy());
        let (mut stop, mut batch) = (pin!(stop), Vec::new());
        loop {
            tokio::select! {
                () = fill(&mut batch, &mut self.spans) => {}
                () = &mut stop => break,
            }
            tokio::select! {
                () = self.deliver(&mut client, std::mem::take(&mut batch)) => {}
                () = &mut stop => break,
            }
        }
        self.spans.close();
        if timeout(LAST_MOMENT, self.rest(&mut client, batch)).await.is_err() {
            tracing::warn!("the last spans were not exported");
        }
    }

    /// Sends what is left.
    async fn rest(&mut self, client: &mut TraceServiceClient<Channel>, mut batch: Vec<Span>) {
        while !batch.is_empty() || self.spans.recv_many(&mut batch, BATCH).await > 0 {
            let request = self.request(std::mem::take(&mut batch));
            if let Err(status) = self.send(client, request).await {
                return self.note_lost(&status);
            }
        }
    }

    /// Has a message taken, or gives it up.
    async fn deliver(&mut self, client: &mut TraceServiceClient<Channel>, batch: Vec<Span>) {
        let spans = batch.len() as u64;
        let request = self.request(batch);
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let Err(status) = self.send(client, request.clone()).await else { return };
            self.note_lost(&status);
            if attempt == ATTEMPTS || !passes(status.code()) {
                break;
            }
            sleep(pause).await;
            pause *= 2;
        }
        metrics::count(Outcome::Failed, spans);
    }

    async fn send(
        &mut self,
        client: &mut TraceServiceClient<Channel>,
        request: ExportTraceServiceRequest,
    ) -> Result<(), Status> {
        let sent = request.resource_spans[0].scope_spans[0].spans.len() as u64;
        let answer = timeout(TIMEOUT, client.export(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))?;
        let refused = answer.into_inner().partial_success.unwrap_or_default();
        let number = u64::try_from(refused.rejected_spans).unwrap_or(0).min(sent);
        if number > 0 {
            tracing::warn!(spans = number, error = refused.error_message, "spans were refused");
        }
        metrics::count(Outcome::Refused, number);
        metrics::count(Outcome::Exported, sent - number);
        if !std::mem::replace(&mut self.reached, true) {
            tracing::info!("the collector of traces takes spans again");
        }
        Ok(())
    }

    /// Says once that the collector does not take spans.
    fn note_lost(&mut self, status: &Status) {
        if std::mem::replace(&mut self.reached, false) {
            let error = status as &dyn std::error::Error;
            tracing::warn!(endpoint = %self.endpoint.uri(), error, "spans cannot be exported");
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope {
            name: "outrigger".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let spans = ScopeSpans { scope: Some(scope), spans };
        let resource = Some(self.resource.clone());
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { resource, scope_spans: vec![spans] }],
        }
    }
}

/// Waits for spans, and a moment for more of them. Cancel safe.
async fn fill(batch: &mut Vec<Span>, spans: &mut mpsc::Receiver<Span>) {
    spans.recv_many(batch, BATCH).await;
    let end = Instant::now() + PERIOD;
    while batch.len() < BATCH {
        let room = BATCH - batch.len();
        if !matches!(timeout_at(end, spans.recv_many(batch, room)).await, Ok(1..)) {
            break;
        }
    }
}

/// What the protocol says may be sent again.
fn passes(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
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
    let endpoint = plain(address)?.connect_timeout(TIMEOUT);
    if endpoint.uri().scheme_str() == Some("https") {
        return Ok(endpoint.tls_config(ClientTlsConfig::new().with_native_roots())?);
    }
    Ok(endpoint)
}
