//! A trace collector that keeps all spans it receives.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::Span,
};
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// The time limit for spans to arrive: the exporter collects them for a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Listens until its runtime is dropped.
pub(crate) struct Collector {
    pub(crate) endpoint: String,
    got: watch::Receiver<Vec<Span>>,
    resource: Resource,
}

type Resource = Arc<Mutex<Vec<(String, String)>>>;

struct Service {
    got: watch::Sender<Vec<Span>>,
    resource: Resource,
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_resource in request.into_inner().resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            let pairs = resource.attributes.into_iter();
            *self.resource.lock().expect("nobody panics with it") =
                pairs.map(|pair| (pair.key, text(pair.value.and_then(|it| it.value)))).collect();
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.got.send_modify(|got| got.extend(spans));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, got) = watch::channel(Vec::new());
        let resource = Resource::default();
        let service = Service { got: sender, resource: Arc::clone(&resource) };
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(service))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        Self { endpoint, got, resource }
    }

    /// The spans of the trace that contains a span of that name, once that span has arrived. It
    /// must be the last one to end, as the root is.
    pub(crate) async fn trace(&self, name: &str) -> Vec<Span> {
        self.trace_with(name, |_| true).await
    }

    /// [`Collector::trace`] for one of several spans of that name.
    pub(crate) async fn trace_with(&self, name: &str, of: impl Fn(&Span) -> bool) -> Vec<Span> {
        let mut got = self.got.clone();
        let is = |span: &&Span| span.name == name && of(span);
        let find = |spans: &Vec<Span>| spans.iter().find(is).is_some();
        let found = timeout(PATIENCE, got.wait_for(find)).await;
        let spans = found.unwrap_or_else(|_| panic!("no span {name}")).expect("it listens");
        let whole = spans.iter().find(is).expect("it was found");
        spans.iter().filter(|span| span.trace_id == whole.trace_id).cloned().collect()
    }

    /// An attribute of the resource that sent the spans.
    pub(crate) fn resource(&self, key: &str) -> Option<String> {
        let resource = self.resource.lock().expect("nobody panics with it");
        resource.iter().find(|pair| pair.0 == key).map(|pair| pair.1.clone())
    }
}

/// The only span of that name.
pub(crate) fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(one), None) => one,
        _ => panic!("not one {name} in {names:?}"),
    }
}

/// An attribute as text; empty if it is absent.
pub(crate) fn attribute(span: &Span, key: &str) -> String {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key == key);
    text(found.and_then(|attribute| attribute.value.clone()?.value))
}

fn text(value: Option<Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(other) => panic!("we have no such attributes: {other:?}"),
    }
}
