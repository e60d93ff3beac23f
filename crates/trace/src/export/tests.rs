use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::*;

/// A collector that passes on the messages it receives. If a trouble is set, it happens to the
/// first one.
struct Collector {
    got: mpsc::UnboundedSender<ExportTraceServiceRequest>,
    trouble: Arc<Mutex<Option<Trouble>>>,
}

enum Trouble {
    Fails(Status),
    NeverAnswers,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let trouble = self.trouble.lock().unwrap().take();
        match trouble {
            Some(Trouble::Fails(status)) => return Err(status),
            Some(Trouble::NeverAnswers) => {
                let _ = self.got.send(request.into_inner());
                return std::future::pending().await;
            }
            None => drop(self.got.send(request.into_inner())),
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A running collector, with the messages it received and the means to stop it.
struct Running {
    address: SocketAddr,
    got: mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Running {
    async fn start(address: &str, trouble: Option<Trouble>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, got) = mpsc::unbounded_channel();
        let service = Collector { got: sender, trouble: Arc::new(Mutex::new(trouble)) };
        let (stop, stopped) = oneshot::channel();
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(service))
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
                let _ = stopped.await;
            });
        let server = tokio::spawn(async { server.await.unwrap() });
        Self { address, got, stop, server }
    }

    async fn end(self) -> String {
        self.stop.send(()).unwrap();
        self.server.await.unwrap();
        self.address.to_string()
    }

    /// The names of the spans of the next message.
    async fn names(&mut self) -> Vec<String> {
        let spans = self.got.recv().await.unwrap().resource_spans.remove(0).scope_spans;
        spans.into_iter().flat_map(|scope| scope.spans).map(|span| span.name).collect()
    }
}

fn exporter(address: impl std::fmt::Display) -> (Tracer, Exporter) {
    let resource = vec![("service.name".to_owned(), "outrigger".to_owned())];
    Exporter::new(Config { endpoint: format!("http://{address}"), ratio: 1.0, resource }).unwrap()
}

/// Ends an exporter.
async fn end(exporter: Exporter) {
    exporter.run(async {}).await;
}

const ANYWHERE: &str = "127.0.0.1:0";

#[tokio::test]
async fn spans_arrive_with_their_resource_also_after_a_failed_message() {
    let trouble = Trouble::Fails(Status::unavailable("in a moment"));
    let mut collector = Running::start(ANYWHERE, Some(trouble)).await;
    let (tracer, exporter) = exporter(collector.address);
    drop((tracer.begin("pull"), tracer.begin("gate")));
    let request = collector.got.recv().await.unwrap();
    let of = &request.resource_spans[0];
    let names = of.scope_spans[0].spans.iter().map(|span| span.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["pull", "gate"]);
    assert_eq!(of.resource.as_ref().unwrap().attributes[0].key, "service.name");
    end(exporter).await;
}

#[tokio::test]
async fn a_restarted_collector_gets_the_spans_recorded_meanwhile() {
    let mut collector = Running::start(ANYWHERE, None).await;
    let (tracer, exporter) = exporter(collector.address);
    drop(tracer.begin("before"));
    assert_eq!(collector.names().await, ["before"]);
    let address = collector.end().await;
    drop(tracer.begin("meanwhile"));
    let mut collector = Running::start(&address, None).await;
    assert_eq!(collector.names().await, ["meanwhile"]);
    end(exporter).await;
}

#[tokio::test]
async fn remaining_spans_are_sent_at_the_end() {
    let mut collector = Running::start(ANYWHERE, None).await;
    let (tracer, exporter) = exporter(collector.address);
    drop(tracer.begin("pull"));
    end(exporter).await;
    assert_eq!(collector.names().await, ["pull"]);
}

#[tokio::test]
async fn a_collector_that_never_answers_blocks_nothing() {
    let mut collector = Running::start(ANYWHERE, Some(Trouble::NeverAnswers)).await;
    let (tracer, exporter) = exporter(collector.address);
    drop(tracer.begin("pull"));
    assert_eq!(collector.names().await, ["pull"]);
    // More than the queue holds, while the exporter waits for an answer.
    (0..10_000).for_each(|_| drop(tracer.begin("gate")));
    end(exporter).await;
}

/// The attempts to send a message go on for seconds, and the process does not wait for them.
#[tokio::test]
async fn a_missing_collector_does_not_delay_the_end() {
    let (tracer, exporter) = exporter("127.0.0.1:1");
    drop(tracer.begin("pull"));
    let began = Instant::now();
    end(exporter).await;
    let took = began.elapsed();
    assert!(took < TIMEOUT / 2, "{took:?}");
    drop(tracer.begin("after the end"));
}

#[test]
fn an_invalid_address_is_refused() {
    for endpoint in ["", "http://", "collector:4317", "collector port 4317", "grpc://collector"] {
        let config = Config { endpoint: endpoint.to_owned(), ratio: 1.0, resource: Vec::new() };
        assert!(Exporter::new(config).is_err(), "{endpoint:?}");
        assert!(check_endpoint(endpoint).is_err(), "{endpoint:?}");
    }
    assert!(check_endpoint("http://collector:4317").is_ok());
}

#[test]
fn attributes_are_read_as_they_are_written_in_the_environment() {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let read = attributes(" a.b=c, team=x=y ,");
    assert_eq!(read, Some(vec![pair("a.b", "c"), pair("team", "x=y")]));
    assert_eq!(attributes(""), Some(Vec::new()));
    assert_eq!([attributes("a"), attributes("=b")], [None, None]);
}
