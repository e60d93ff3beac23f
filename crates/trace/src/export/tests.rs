use outrigger_proto::opentelemetry::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use tokio::{net::TcpListener, sync::oneshot};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response};

use super::*;

/// Hands on what it gets; has trouble with the first message.
struct Collector {
    got: mpsc::UnboundedSender<ExportTraceServiceRequest>,
    trouble: std::sync::Mutex<Option<Status>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if let Some(trouble) = self.trouble.lock().unwrap().take() {
            return Err(trouble);
        }
        let _ = self.got.send(request.into_inner());
        let refused = ExportTracePartialSuccess { rejected_spans: 1, error_message: "why".into() };
        Ok(Response::new(ExportTraceServiceResponse { partial_success: Some(refused) }))
    }
}

async fn collector(
    trouble: Option<Status>,
) -> (String, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (got, requests) = mpsc::unbounded_channel();
    let service = TraceServiceServer::new(Collector { got, trouble: trouble.into() });
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (address, requests)
}

fn exporter(endpoint: String) -> (Tracer, Exporter) {
    let resource = vec![("service.name".to_owned(), "outrigger".to_owned())];
    Exporter::new(Config { endpoint, ratio: 1.0, resource }).unwrap()
}

fn names(request: &ExportTraceServiceRequest) -> Vec<&str> {
    let spans = request.resource_spans[0].scope_spans.iter().flat_map(|scope| &scope.spans);
    spans.map(|span| span.name.as_str()).collect()
}

#[tokio::test]
async fn spans_arrive_with_what_they_are_of_also_after_trouble() {
    let (address, mut got) = collector(Some(Status::unavailable("in a moment"))).await;
    let (tracer, exporter) = exporter(address);
    drop((tracer.begin("pull"), tracer.begin("gate")));
    tokio::spawn(exporter.run(std::future::pending()));
    let request = got.recv().await.unwrap();
    assert_eq!(names(&request), ["pull", "gate"]);
    let resource = request.resource_spans[0].resource.clone().unwrap();
    assert_eq!(resource.attributes[0].key, "service.name");
}

#[tokio::test]
async fn what_was_recorded_before_the_end_is_sent() {
    let (address, mut got) = collector(None).await;
    let (tracer, exporter) = exporter(address);
    let (stop, stopped) = oneshot::channel();
    drop(tracer.begin("pull"));
    stop.send(()).unwrap();
    exporter.run(async { stopped.await.unwrap() }).await;
    assert_eq!(names(&got.recv().await.unwrap()), ["pull"]);
}

#[tokio::test]
async fn a_collector_that_is_not_there_does_not_keep_the_process() {
    let (tracer, exporter) = exporter("http://127.0.0.1:1".to_owned());
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(exporter.run(async { stopped.await.unwrap() }));
    drop(tracer.begin("pull"));
    stop.send(()).unwrap();
    running.await.unwrap();
    drop(tracer.begin("pull"));
}

#[test]
fn what_is_no_address_is_refused() {
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
