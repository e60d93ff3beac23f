//! The gRPC surface: its services and the guard before them.

mod canaries;
mod changes;
mod decompressed;
mod messages;
mod models;
mod prediction;
mod validations;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{
        HeaderMap, HeaderValue, Request as HttpRequest, Response as HttpResponse, StatusCode,
        header::CONTENT_TYPE,
    },
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use http_body_util::Either;
use outrigger_proto::outrigger::v1::{
    FILE_DESCRIPTOR_SET, canary_service_server::CanaryServiceServer,
    model_service_server::ModelServiceServer, validation_service_server::ValidationServiceServer,
};
use outrigger_proto::raw::unary::{self, Reply};
use tonic::{Code, Status, service::Routes};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use self::prediction::Message;
pub(crate) use self::{
    canaries::Canaries, changes::Access, models::Models, validations::Validations,
};
pub(crate) use self::{
    decompressed::decompressed,
    prediction::{InPlace, Prediction},
};
use crate::{
    audit::Verb,
    caller::Peer,
    compression::Policy,
    failure,
    front::{Front, Method, Path, Route, Timeout},
    guard::{Guard, guard},
    listen::{App, Arriving},
    predict::Predictor,
};

/// The front of gRPC, with the services of `outrigger.v1`.
pub(crate) static FRONT: Front = Front {
    name: "grpc",
    index: 0,
    routes: ROUTES,
    timeout: Timeout { header: "grpc-timeout", read: unary::timeout },
    respond: |it| failure::to_status(it).into_http::<Body>(),
    foreign,
    streams: true,
    rpc_system: Some("grpc"),
    latency: None,
};

/// Declares a prediction route whose path and span share a name.
macro_rules! compute {
    ($name:literal, $method:ident) => {
        Route::compute(concat!("/", $name), Method::$method, $name)
    };
}

const ROUTES: &[Route] = &[
    compute!("outrigger.v1.PredictionService/Predict", Predict),
    compute!("outrigger.v1.PredictionService/BatchPredict", BatchPredict),
    compute!("outrigger.v1.PredictionService/Explain", Explain),
    models(Path::Exact("/outrigger.v1.ModelService/LoadModel")).changing(Verb::Load),
    models(Path::Exact("/outrigger.v1.ModelService/UnloadModel")).changing(Verb::Unload),
    models(Path::Under("/outrigger.v1.ModelService/")),
    canaries(Path::Exact("/outrigger.v1.CanaryService/PromoteCanary")).changing(Verb::Promote),
    canaries(Path::Exact("/outrigger.v1.CanaryService/AbortCanary")).changing(Verb::Abort),
    canaries(Path::Under("/outrigger.v1.CanaryService/")),
    Route::read(
        Path::Under("/outrigger.v1.ValidationService/"),
        Method::Validation,
        "outrigger.v1.ValidationService",
    )
    .changing(Verb::Validate),
    Route::open("/grpc.health.v1.Health/"),
    Route::open("/grpc.reflection."),
];

const fn models(path: Path) -> Route {
    Route::read(path, Method::Models, "outrigger.v1.ModelService")
}

const fn canaries(path: Path) -> Route {
    Route::read(path, Method::Canaries, "outrigger.v1.CanaryService")
}

/// The most bytes of a query about models: it holds only names, and is read without a place in the
/// admission.
pub(crate) const QUESTION: usize = 64 << 10;

/// The services of a listener other than predictions.
pub(crate) type Services = (Models, Canaries, Validations);

/// The services of the gRPC listener: predictions and queries, no changes.
#[derive(Clone)]
pub(crate) struct Serving {
    prediction: Arc<Prediction>,
    others: Router,
}

impl Serving {
    pub(crate) fn new(
        predictor: Predictor,
        services: Services,
        health: &HealthReporter,
        rules: Guard,
        max_message: usize,
        compression: Policy,
    ) -> Self {
        let rules = Arc::new(rules);
        let others = routes(services, health, Arc::clone(&rules), compression);
        let prediction = Prediction::new(rules, predictor, max_message, compression);
        Self { prediction: Arc::new(prediction), others }
    }
}

impl App for Serving {
    type Body = Either<Reply, Body>;

    const IS_DIRECT: bool = true;

    async fn answer(self, peer: Peer, request: HttpRequest<Arriving>) -> HttpResponse<Self::Body> {
        let route = FRONT.route(request.uri().path());
        match Message::of(route.method) {
            Some(message) => self.prediction.answer(message, route, peer, request).await,
            None => self.others.answer(peer, request).await.map(Either::Right),
        }
    }
}

/// The services of the admin listener: queries and changes, no predictions.
pub(crate) fn admin(
    services: Services,
    health: &HealthReporter,
    rules: Guard,
    compression: Policy,
) -> Router {
    routes(services, health, Arc::new(rules), compression).layer(middleware::from_fn(only_grpc))
}

/// Refuses requests whose content type is not gRPC. Another site's page in an operator's browser
/// may send any bytes to loopback as text or as a form; for any other content type the browser asks
/// the server first (CORS preflight).
pub(crate) async fn only_grpc(request: Request, next: Next) -> Response {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    match kind {
        Some(kind) if kind.starts_with(b"application/grpc") => next.run(request).await,
        _ => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "this takes gRPC; there is a page, /ui\n")
            .into_response(),
    }
}

/// The services of every gRPC listener, behind the guard.
fn routes(
    (models, canaries, validations): Services,
    health: &HealthReporter,
    rules: Arc<Guard>,
    compression: Policy,
) -> Router {
    let canaries = CanaryServiceServer::new(canaries).max_decoding_message_size(QUESTION);
    let models = ModelServiceServer::new(models).max_decoding_message_size(QUESTION);
    let validations = ValidationServiceServer::new(validations).max_decoding_message_size(QUESTION);
    let services = Routes::new(models).add_service(canaries).add_service(validations);
    let services = with_standard(services, FILE_DESCRIPTOR_SET, health).prepare();
    guarded(services.into_axum_router(), rules, compression)
}

/// Adds the standard services to those that `descriptors` describe: health and reflection.
pub(crate) fn with_standard(
    services: Routes,
    descriptors: &'static [u8],
    health: &HealthReporter,
) -> Routes {
    let health = HealthServer::new(HealthService::from_health_reporter(health.clone()));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(descriptors)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let valid = "the descriptor sets are compiled in";
    services
        .add_service(health)
        .add_service(reflection().build_v1().expect(valid))
        // Python's reflection client supports only this version.
        .add_service(reflection().build_v1alpha().expect(valid))
}

/// The services behind the guard.
pub(crate) fn guarded(services: Router, rules: Arc<Guard>, compression: Policy) -> Router {
    services
        .layer(middleware::from_fn_with_state(compression, decompressed))
        .layer(middleware::from_fn_with_state(rules, guard))
}

/// The status of a failed response without details: tonic made it, not this server.
pub(crate) fn foreign(headers: &HeaderMap) -> Option<Status> {
    if headers.contains_key("grpc-status-details-bin") {
        return None;
    }
    Status::from_header_map(headers).filter(|status| status.code() != Code::Ok)
}
