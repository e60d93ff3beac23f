//! Measures the cost of tower layers before a handler: the same five steps (deadline, rights,
//! admission, a net for panics, a count) in one function, in one layer, and in a layer each. The
//! handler does nothing, so the measured cost is that of the arrangement.
//! docs/decisions/0001-one-guard.md has the figures.
//!
//! Prints `bench layers-<arrangement> <allocations> allocations <nanoseconds> ns` a call. If an
//! argument names an arrangement, only that one runs, for callgrind.

#![allow(missing_docs)]

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::StatusCode,
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use futures::FutureExt as _;
use outrigger_testkit::allocator::{self, Reporting, allocations};
use tokio::{
    sync::Semaphore,
    time::{Instant as At, timeout_at},
};
use tower::{Service, ServiceBuilder, ServiceExt as _, service_fn, util::BoxCloneSyncService};

const CALLS: u32 = 200_000;

#[global_allocator]
static COUNTING: Reporting = allocator::COUNTING;

/// The state that the steps share.
#[derive(Clone)]
struct Rules(Arc<Shared>);

struct Shared {
    places: Arc<Semaphore>,
    calls: AtomicU64,
}

/// The deadline of a call. The first step stores it in the request for the later steps.
#[derive(Clone, Copy)]
struct Deadline(At);

/// The caller as the step for rights determines it. Later steps find it in the request.
#[derive(Clone)]
struct Caller(bool);

fn deadline(request: &Request) -> Deadline {
    let waits = request.headers().get("grpc-timeout").is_none();
    Deadline(At::now() + Duration::from_secs(if waits { 10 } else { 1 }))
}

fn caller(request: &Request) -> Option<Caller> {
    let shown = request.headers().contains_key("authorization");
    (!shown).then_some(Caller(shown))
}

fn refused(status: StatusCode) -> Response {
    status.into_response()
}

/// All steps in one function, around a handler.
async fn guarded<F: Future<Output = Response>>(
    rules: &Rules,
    request: Request,
    handler: impl FnOnce(Request) -> F,
) -> Response {
    let Deadline(deadline) = deadline(&request);
    let Some(caller) = caller(&request) else { return refused(StatusCode::UNAUTHORIZED) };
    let Ok(_place) = Arc::clone(&rules.0.places).try_acquire_owned() else {
        return refused(StatusCode::TOO_MANY_REQUESTS);
    };
    let handler = pin!(AssertUnwindSafe(handler(request)).catch_unwind());
    let response = match timeout_at(deadline, handler).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => refused(StatusCode::INTERNAL_SERVER_ERROR),
        Err(_) => refused(StatusCode::GATEWAY_TIMEOUT),
    };
    rules.0.calls.fetch_add(u64::from(!caller.0), Relaxed);
    response
}

async fn guard(State(rules): State<Rules>, request: Request, next: Next) -> Response {
    guarded(&rules, request, |request| next.run(request)).await
}

async fn count(State(rules): State<Rules>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    rules.0.calls.fetch_add(1, Relaxed);
    response
}

async fn limit_time(mut request: Request, next: Next) -> Response {
    let deadline = deadline(&request);
    request.extensions_mut().insert(deadline);
    let handled = timeout_at(deadline.0, next.run(request)).await;
    handled.unwrap_or_else(|_| refused(StatusCode::GATEWAY_TIMEOUT))
}

async fn authorize(mut request: Request, next: Next) -> Response {
    let Some(caller) = caller(&request) else { return refused(StatusCode::UNAUTHORIZED) };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

async fn admit(State(rules): State<Rules>, request: Request, next: Next) -> Response {
    match Arc::clone(&rules.0.places).try_acquire_owned() {
        Ok(_place) => next.run(request).await,
        Err(_) => refused(StatusCode::TOO_MANY_REQUESTS),
    }
}

async fn catch(request: Request, next: Next) -> Response {
    let handled = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    handled.unwrap_or_else(|_| refused(StatusCode::INTERNAL_SERVER_ERROR))
}

async fn handle(_: Request) -> Result<Response, Infallible> {
    Ok(Response::new(Body::empty()))
}

type Stack = BoxCloneSyncService<Request, Response, Infallible>;

fn one_layer(rules: &Rules) -> Stack {
    let layers = ServiceBuilder::new().layer(from_fn_with_state(rules.clone(), guard));
    BoxCloneSyncService::new(layers.service(service_fn(handle)))
}

fn five_layers(rules: &Rules) -> Stack {
    let layers = ServiceBuilder::new()
        .layer(from_fn_with_state(rules.clone(), count))
        .layer(axum::middleware::from_fn(limit_time))
        .layer(axum::middleware::from_fn(authorize))
        .layer(from_fn_with_state(rules.clone(), admit))
        .layer(axum::middleware::from_fn(catch));
    BoxCloneSyncService::new(layers.service(service_fn(handle)))
}

fn request() -> Request {
    Request::new(Body::empty())
}

async fn function(rules: &Rules) {
    let handler = async |request| handle(request).await.unwrap_or_default();
    assert!(guarded(rules, request(), handler).await.status().is_success());
}

async fn layered(stack: &mut Stack) {
    let ready = stack.ready().await.expect("infallible");
    assert!(ready.call(request()).await.expect("infallible").status().is_success());
}

async fn measured(name: &str, mut call: impl AsyncFnMut()) {
    if std::env::args().skip(1).any(|wanted| !wanted.starts_with('-') && wanted != name) {
        return;
    }
    let (before, start) = (allocations(), Instant::now());
    for _ in 0..CALLS {
        call().await;
    }
    let took = start.elapsed().as_nanos() / u128::from(CALLS);
    #[allow(clippy::cast_precision_loss)]
    let allocations = (allocations() - before) as f64 / f64::from(CALLS);
    println!("bench layers-{name} {allocations:.2} allocations {took} ns");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let shared = Shared { places: Arc::new(Semaphore::new(1024)), calls: AtomicU64::new(0) };
    let rules = Rules(Arc::new(shared));
    measured("nothing", async || {
        let handled = handle(request()).await;
        assert!(handled.expect("infallible").status().is_success());
    })
    .await;
    measured("function", async || function(&rules).await).await;
    let (mut one, mut five) = (one_layer(&rules), five_layers(&rules));
    measured("one", async || layered(&mut one).await).await;
    measured("five", async || layered(&mut five).await).await;
}
