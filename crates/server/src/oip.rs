//! The Open Inference Protocol: gRPC and REST on one listener.
//!
//! Both forms of a request become an [`InferRequest`](outrigger_oip::InferRequest), which [`infer`]
//! answers by the way of every prediction; [`States`] answers the questions about the server and its
//! models. What differs is how requests are read and how answers and failures are written.

mod infer;
mod message;
mod pieces;
mod rest;
mod rows;
mod service;
mod states;
mod tensors;
mod version;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{Request, Response},
    middleware,
    response::Response as AnyResponse,
};
use bytes::Bytes;
use http_body_util::Either;
use outrigger_core::{Failure, Reason};
use outrigger_oip::{DataType, Tensor};
use outrigger_proto::{
    inference::{
        FILE_DESCRIPTOR_SET, grpc_inference_service_server::GrpcInferenceServiceServer as Server,
    },
    raw::unary::{self, Reply},
};
use tonic::{Code, Status, service::Routes};
use tonic_health::server::HealthReporter;

use self::{message::ModelInfer, service::Service};
pub(crate) use self::{rest::REST, states::States};
use crate::{
    audit::Verb,
    caller::Peer,
    compression::{self, Names, Policy},
    failure,
    front::{Front, Method, Path, Route, Timeout},
    grpc::{self, Access, Prediction, QUESTION},
    guard::Guard,
    http::Documents,
    listen::{App, Arriving},
    predict::Predictor,
};

/// The path of predictions over gRPC.
const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// The name of the spans of other calls over gRPC.
const SERVICE: &str = "inference.GRPCInferenceService";

/// The front of gRPC.
pub(crate) static GRPC: Front = Front {
    name: "oip_grpc",
    index: 4,
    routes: &[
        Route::compute(INFER, Method::Predict, "inference.GRPCInferenceService/ModelInfer"),
        // Metadata are those of a version, which may have to be loaded.
        Route::compute("/inference.GRPCInferenceService/ModelMetadata", Method::Metadata, SERVICE),
        Route::open("/inference.GRPCInferenceService/ServerLive"),
        Route::open("/inference.GRPCInferenceService/ServerReady"),
        Route::open("/inference.GRPCInferenceService/ServerMetadata"),
        repository(Path::Exact("/inference.GRPCInferenceService/RepositoryModelLoad"))
            .changing(Verb::Load),
        repository(Path::Exact("/inference.GRPCInferenceService/RepositoryModelUnload"))
            .changing(Verb::Unload),
        repository(Path::Under("/inference.GRPCInferenceService/")),
        Route::open("/grpc.health.v1.Health/"),
        Route::open("/grpc.reflection."),
    ],
    timeout: Timeout { header: "grpc-timeout", read: unary::timeout },
    respond,
    foreign: grpc::foreign,
    streams: true,
    rpc_system: Some("grpc"),
    latency: None,
};

const fn repository(path: Path) -> Route {
    Route::read(path, Method::Models, SERVICE)
}

/// The failure as a gRPC status. A message over the limit and an overload have the codes that
/// clients of the protocol expect.
fn respond(failure: &Failure) -> AnyResponse {
    let status = failure::to_status(failure);
    let status = match failure.reason {
        Reason::TooLarge => with_code(&status, Code::ResourceExhausted),
        Reason::Overloaded => with_code(&status, Code::Unavailable),
        _ => status,
    };
    status.into_http::<Body>()
}

fn with_code(status: &Status, code: Code) -> Status {
    Status::with_details(code, status.message(), status.details().to_vec().into())
}

/// The application of the listener.
#[derive(Clone)]
pub(crate) struct Serving {
    infer: Arc<Prediction>,
    grpc: Router,
    rest: Router,
}

impl Serving {
    /// Answers within the rules of each front. Messages have at most `max_message` bytes.
    pub(crate) fn new(
        predictor: Predictor,
        states: States,
        health: &HealthReporter,
        rules: impl Fn(&'static Front) -> Guard,
        max_message: usize,
        compression: impl Fn(&'static Names) -> Policy,
    ) -> Self {
        let (guard, policy) = (Arc::new(rules(&GRPC)), compression(&compression::GRPC));
        let documents =
            Documents::new(predictor.clone(), max_message, compression(&compression::HTTP));
        let rest = rest::routes(documents, states.clone(), Arc::new(rules(&REST)));
        let services = Routes::new(server(states, Access::Read));
        let services = grpc::with_standard(services, FILE_DESCRIPTOR_SET, health).prepare();
        let grpc = grpc::guarded(services.into_axum_router(), Arc::clone(&guard), policy);
        let infer = Arc::new(Prediction::new(guard, predictor, max_message, policy));
        Self { infer, grpc, rest }
    }
}

impl App for Serving {
    type Body = Either<Reply, Body>;

    const IS_DIRECT: bool = true;

    async fn answer(self, peer: Peer, request: Request<Arriving>) -> Response<Self::Body> {
        let path = request.uri().path();
        if path == INFER {
            return self.infer.answer(ModelInfer, GRPC.route(path), peer, request).await;
        }
        let is_grpc = path.starts_with("/inference.") || path.starts_with("/grpc.");
        let router = if is_grpc { self.grpc } else { self.rest };
        router.answer(peer, request).await.map(Either::Right)
    }
}

/// The services of the admin listener: questions, and the repository's load and unload.
pub(crate) fn admin(states: States, rules: Guard, compression: Policy) -> Router {
    let service = server(states, Access::Change);
    let services = Router::new().route_service(&format!("/{SERVICE}/{{*call}}"), service);
    let services = grpc::guarded(services, Arc::new(rules), compression);
    services.layer(middleware::from_fn(grpc::only_grpc))
}

/// The memory in bytes that texts take as elements of their own, beside the data that they share.
fn texts_of(tensors: &[Tensor]) -> u64 {
    let texts = tensors.iter().filter(|tensor| tensor.datatype == DataType::Bytes);
    texts.map(|tensor| (tensor.texts().count() * size_of::<Bytes>()) as u64).sum()
}

fn server(states: States, access: Access) -> Server<Service> {
    Server::new(Service::new(states, access)).max_decoding_message_size(QUESTION)
}
