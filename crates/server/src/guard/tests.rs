use axum::{Router, body::Body, http::Request as HttpRequest, middleware, routing::post};
use futures::channel::oneshot;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tonic::Status;
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::{grpc, http};

const PREDICT: &str = "/outrigger.v1.PredictionService/Predict";

fn limits(places: u32) -> RequestLimits {
    let mut config = crate::Config::default();
    (config.server.max_in_flight, config.server.max_waiting) = (places, 1);
    RequestLimits::new(&config)
}

fn rules(front: &'static Front, places: u32) -> Guard {
    Guard {
        front,
        default_deadline: Some(Duration::from_secs(5)),
        auth: Auth::new(&crate::config::Auth::default(), None, None),
        site: Site::Any,
        limits: limits(places),
        tracer: Tracer::off(),
        stop: CancellationToken::new(),
    }
}

/// A guarded application with a single path, which `handler` answers.
fn app<F, R>(rules: Guard, path: &str, handler: F) -> Router
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send + 'static,
{
    Router::new()
        .route(path, post(handler))
        .layer(middleware::from_fn_with_state(Arc::new(rules), guard))
        .layer(axum::Extension(Peer::new(([127, 0, 0, 1], 1).into(), None)))
}

fn ask(path: &str, headers: &[(&str, &str)]) -> HttpRequest<Body> {
    let mut request = HttpRequest::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

/// The reason in a response.
fn reason(response: &Response) -> String {
    let status = Status::from_header_map(response.headers()).expect("a gRPC status");
    status.get_details_error_info().expect("every failure has one").reason
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_too_slow_is_cut_off_at_the_deadline_of_the_caller() {
    let app = app(rules(&grpc::FRONT, 1), PREDICT, std::future::pending);
    let start = Instant::now();
    let response = app.clone().oneshot(ask(PREDICT, &[("grpc-timeout", "300m")])).await.unwrap();
    assert_eq!((reason(&response).as_str(), start.elapsed().as_millis()), ("DEADLINE", 300));
    let start = Instant::now();
    let response = app.oneshot(ask(PREDICT, &[])).await.unwrap();
    assert_eq!((reason(&response).as_str(), start.elapsed().as_secs()), ("DEADLINE", 5));
}

#[tokio::test]
async fn a_panic_is_answered_and_the_next_call_is_served() {
    let app = app(rules(&grpc::FRONT, 1), PREDICT, || async { panic!("a defect") });
    for _ in 0..3 {
        let response = app.clone().oneshot(ask(PREDICT, &[])).await.unwrap();
        assert_eq!(reason(&response), "INTERNAL");
    }
}

#[tokio::test]
async fn a_panic_without_a_router_is_a_failure_too() {
    let guard = rules(&grpc::FRONT, 1);
    let route = guard.front.route(PREDICT);
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), None);
    let defect = async |_: &Call, _| -> Result<(), Failure> { panic!("a defect") };
    let called = guard.call(route, peer.clone(), ask(PREDICT, &[]), defect).await;
    assert_eq!(called.unwrap_err().reason, Reason::Internal);
    let next = guard.call(route, peer, ask(PREDICT, &[]), async |_, _| Ok(1)).await;
    assert_eq!(next.unwrap(), 1, "the place is free again");
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_places_wait_until_one_is_free_or_their_deadline() {
    let (release, released) = oneshot::channel::<()>();
    let released = futures::FutureExt::shared(released);
    let app = app(rules(&grpc::FRONT, 1), PREDICT, move || {
        let released = released.clone();
        async move {
            released.await.ok();
            Status::ok("").into_http::<Body>()
        }
    });
    let mut first = Box::pin(app.clone().oneshot(ask(PREDICT, &[])));
    assert!(futures::poll!(first.as_mut()).is_pending());
    let start = Instant::now();
    let refused = app.clone().oneshot(ask(PREDICT, &[("grpc-timeout", "300m")])).await.unwrap();
    assert_eq!((reason(&refused).as_str(), start.elapsed().as_millis()), ("OVERLOADED", 300));
    let mut second = Box::pin(app.oneshot(ask(PREDICT, &[])));
    assert!(futures::poll!(second.as_mut()).is_pending());
    release.send(()).unwrap();
    for served in [first, second] {
        assert_eq!(served.await.unwrap().headers()["grpc-status"], "0");
    }
}

#[tokio::test]
async fn a_deadline_that_cannot_be_read_is_refused_on_both_surfaces() {
    let never = || async { unreachable!("not asked") };
    let grpc = app(rules(&grpc::FRONT, 1), PREDICT, never);
    for bad in ["", "5", "m", "-1S", "123456789S", "1 S", "5x", "5é"] {
        let response = grpc.clone().oneshot(ask(PREDICT, &[("grpc-timeout", bad)])).await;
        assert_eq!(reason(&response.unwrap()), "REQUEST_MALFORMED", "{bad:?}");
    }
    let http = app(rules(&http::FRONT, 1), "/v1/predict", never);
    let response =
        http.oneshot(ask("/v1/predict", &[(http::TIMEOUT_HEADER, "soon")])).await.unwrap();
    assert_eq!(response.status(), 400);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["reason"], "REQUEST_MALFORMED");
}

#[tokio::test]
async fn an_endless_deadline_is_shortened_and_not_an_overflow() {
    let app = app(rules(&grpc::FRONT, 1), PREDICT, || async { Status::ok("").into_http::<Body>() });
    let response = app.oneshot(ask(PREDICT, &[("grpc-timeout", "99999999H")])).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "0");
}

#[tokio::test]
async fn statuses_of_the_transport_get_a_reason_and_those_of_handlers_stay() {
    for (code, expected) in [(Code::OutOfRange, "TOO_LARGE"), (Code::Internal, "REQUEST_MALFORMED")]
    {
        let app = app(rules(&grpc::FRONT, 1), PREDICT, move || async move {
            Status::new(code, "as tonic says it").into_http::<Body>()
        });
        let response = app.oneshot(ask(PREDICT, &[])).await.unwrap();
        assert_eq!(reason(&response), expected);
    }
    let app = app(rules(&grpc::FRONT, 1), PREDICT, || async {
        let failure = Failure::new(Reason::ScoresInvalid, "ours");
        failure::to_status(&failure).into_http::<Body>()
    });
    let response = app.oneshot(ask(PREDICT, &[])).await.unwrap();
    assert_eq!(reason(&response), "SCORES_INVALID");
}

#[tokio::test]
async fn a_watch_ends_with_the_server_and_says_why() {
    const WATCH: &str = "/outrigger.v1.ModelService/WatchModels";
    let rules = rules(&grpc::FRONT, 1);
    let stop = rules.stop.clone();
    let app = app(rules, WATCH, || async {
        let first = futures::stream::iter([Ok::<_, std::io::Error>("first")]);
        let endless = futures::StreamExt::chain(first, futures::stream::pending());
        Response::new(Body::from_stream(endless))
    });
    let mut body = app.oneshot(ask(WATCH, &[])).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "first");
    stop.cancel();
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    let status = Status::from_header_map(&trailers).unwrap();
    assert_eq!(status.get_details_error_info().unwrap().reason, "SHUTTING_DOWN");
    assert!(body.frame().await.is_none());
}
