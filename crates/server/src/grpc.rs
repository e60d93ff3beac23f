//! The gRPC surface: services and what stands before them.

mod canaries;
mod changes;
mod models;
mod prediction;

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use outrigger_proto::outrigger::v1::{
    FILE_DESCRIPTOR_SET, canary_service_server::CanaryServiceServer,
    model_service_server::ModelServiceServer,
};
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

pub(crate) use self::{canaries::Canaries, changes::Access, models::Models};
use crate::{
    guard::{Guard, guard},
    predict::Predictor,
};

/// The most bytes of a question about models: it holds names only, and is read
/// without a place in the admission.
const QUESTION: usize = 64 << 10;

/// What callers may be told who only predict and look.
pub(crate) fn serving(
    predictor: Predictor,
    told: (Models, Canaries),
    health: &HealthReporter,
    rules: Guard,
    max_message: usize,
) -> Router {
    let prediction = prediction::routes(predictor, max_message);
    surround(prediction, told, health, rules)
}

/// The same without predictions and with changes, for the admin listener.
pub(crate) fn admin(told: (Models, Canaries), health: &HealthReporter, rules: Guard) -> Router {
    surround(Router::new(), told, health, rules).layer(middleware::from_fn(only_grpc))
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

/// `routes` and the services that every gRPC listener has, behind the guard.
fn surround(
    routes: Router,
    (models, canaries): (Models, Canaries),
    health: &HealthReporter,
    rules: Guard,
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
    routes
        .merge(services.into_axum_router())
        .layer(middleware::from_fn_with_state(Arc::new(rules), guard))
}
