//! The gRPC surface: services and what stands before them.

mod canaries;
mod changes;
mod models;
mod prediction;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{
        HeaderValue, Request as HttpRequest, Response as HttpResponse, StatusCode,
        header::CONTENT_TYPE,
    },
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use http_body_util::Either;
use outrigger_proto::outrigger::v1::{
    FILE_DESCRIPTOR_SET, canary_service_server::CanaryServiceServer,
    model_service_server::ModelServiceServer,
};
use outrigger_proto::raw::unary::Reply;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use self::prediction::Prediction;
pub(crate) use self::{canaries::Canaries, changes::Access, models::Models};
use crate::{
    call::{Method, Surface},
    caller::Peer,
    guard::{Guard, guard},
    listen::{App, Arriving},
    predict::Predictor,
};

/// The most bytes of a question about models: it holds names only, and is read
/// without a place in the admission.
const QUESTION: usize = 64 << 10;

/// What callers may be told who only predict and look.
#[derive(Clone)]
pub(crate) struct Serving {
    prediction: Arc<Prediction>,
    others: Router,
}

impl Serving {
    pub(crate) fn new(
        predictor: Predictor,
        told: (Models, Canaries),
        health: &HealthReporter,
        rules: Guard,
        max_message: usize,
    ) -> Self {
        let rules = Arc::new(rules);
        let others = routes(told, health, Arc::clone(&rules));
        Self { prediction: Arc::new(Prediction::new(rules, predictor, max_message)), others }
    }
}

impl App for Serving {
    type Body = Either<Reply, Body>;

    async fn answer(self, peer: Peer, request: HttpRequest<Arriving>) -> HttpResponse<Self::Body> {
        let method = Method::of(Surface::Grpc, request.uri().path());
        match method.computes() {
            true => self.prediction.answer(method, peer, request).await,
            false => self.others.answer(peer, request).await.map(Either::Right),
        }
    }
}

/// The same without predictions and with changes, for the admin listener.
pub(crate) fn admin(told: (Models, Canaries), health: &HealthReporter, rules: Guard) -> Router {
    routes(told, health, Arc::new(rules)).layer(middleware::from_fn(only_grpc))
}

/// Refuses what does not say that it is gRPC. A page of somebody else in an
/// operator's browser may send any bytes to loopback, as long as they are called
/// a text or a form; for any other content type the browser asks first.
async fn only_grpc(request: Request, next: Next) -> Response {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    match kind {
        Some(kind) if kind.starts_with(b"application/grpc") => next.run(request).await,
        _ => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "this takes gRPC; there is a page, /ui\n")
            .into_response(),
    }
}

/// The services that every gRPC listener has, behind the guard.
fn routes(
    (models, canaries): (Models, Canaries),
    health: &HealthReporter,
    rules: Arc<Guard>,
) -> Router {
    let canaries = CanaryServiceServer::new(canaries).max_decoding_message_size(QUESTION);
    let models = ModelServiceServer::new(models).max_decoding_message_size(QUESTION);
    let health = HealthServer::new(HealthService::from_health_reporter(health.clone()));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let valid = "the descriptor sets are compiled in";
    let services = Routes::new(models)
        .add_service(canaries)
        .add_service(health)
        .add_service(reflection().build_v1().expect(valid))
        // Python's reflection client knows only this one.
        .add_service(reflection().build_v1alpha().expect(valid))
        .prepare();
    services.into_axum_router().layer(middleware::from_fn_with_state(rules, guard))
}
