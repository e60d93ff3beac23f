//! The interface of XGBoost Serving, on a listener of its own: a client of it changes the address.
//!
//! Package and service have the names of TensorFlow Serving's gRPC interface, with other messages.
//! Rows of ids with weights are given to the model as they are, as the tensors of its sparse inputs.

mod json;
mod message;
mod models;
mod predict;
mod rest;
mod version;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE},
    middleware,
};
use http_body_util::Either;
use outrigger_lifecycle::Handle;
use outrigger_proto::{
    raw::unary::{self, Reply},
    tensorflow::serving::model_service_server::ModelServiceServer,
};
use outrigger_xgboost_serving::Platform;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use self::models::Models;
pub(crate) use self::rest::REST;
use crate::{
    audit::Verb,
    caller::Peer,
    compression::{self, Names, Policy},
    failure,
    front::{Front, Method, Path, Route, Timeout},
    grpc::{self, Prediction, decompressed},
    guard::{Guard, guard},
    http::Documents,
    listen::{App, Arriving},
    metrics::Latency,
    predict::Predictor,
};

/// The front of its gRPC interface.
pub(crate) static GRPC: Front = Front {
    name: "xgboost_serving_grpc",
    index: 2,
    routes: ROUTES,
    timeout: Timeout { header: "grpc-timeout", read: unary::timeout },
    respond: |it| failure::to_status(it).into_http::<Body>(),
    foreign: grpc::foreign,
    streams: false,
    rpc_system: Some("grpc"),
    latency: Some(Latency::Grpc),
};

/// Declares a prediction route whose path and span share a name.
macro_rules! predict {
    ($name:literal) => {
        Route::compute(concat!("/", $name), Method::Predict, $name)
    };
}

const ROUTES: &[Route] = &[
    predict!("tensorflow.serving.PredictionService/Predict"),
    predict!("tensorflow.serving.PredictionService/PredictAlphafm"),
    predict!("tensorflow.serving.PredictionService/PredictAlphafmSoftmax"),
    models(Path::Exact("/tensorflow.serving.ModelService/HandleReloadConfigRequest"))
        .changing(Verb::Load),
    models(Path::Under("/tensorflow.serving.ModelService/")),
];

const fn models(path: Path) -> Route {
    Route::read(path, Method::Models, "tensorflow.serving.ModelService")
}

/// The platform whose method has this path.
fn platform(path: &str) -> Option<Platform> {
    match path.strip_prefix("/tensorflow.serving.PredictionService/")? {
        "Predict" => Some(Platform::Xgboost),
        "PredictAlphafm" => Some(Platform::Alphafm),
        "PredictAlphafmSoftmax" => Some(Platform::AlphafmSoftmax),
        _ => None,
    }
}

/// The application of the listener.
#[derive(Clone)]
pub(crate) struct Serving {
    prediction: Arc<Prediction>,
    /// The other methods over gRPC.
    models: Router,
    rest: Router,
}

impl Serving {
    /// The application, with its models and the token that is cancelled when the server stops.
    /// `rules` makes the guard of a front.
    pub(crate) fn new(
        predictor: Predictor,
        (models, closing): (Handle, CancellationToken),
        rules: impl Fn(&'static Front) -> Guard,
        max_message: usize,
        compression: impl Fn(&'static Names) -> Policy,
    ) -> Self {
        let rules = |front| Arc::new(rules(front));
        let (grpc, names) = (rules(&GRPC), &compression::GRPC);
        let documents =
            Documents::new(predictor.clone(), max_message, compression(&compression::HTTP));
        let service = Models::new(models.clone(), closing);
        let service = ModelServiceServer::new(service).max_decoding_message_size(grpc::QUESTION);
        let service = Routes::new(service).prepare().into_axum_router();
        let service = service
            .layer(middleware::from_fn_with_state(compression(names), decompressed))
            .layer(middleware::from_fn_with_state(Arc::clone(&grpc), guard));
        let prediction = Prediction::new(grpc, predictor, max_message, compression(names));
        let rest = rest::routes(documents, models, rules(&REST));
        Self { prediction: Arc::new(prediction), models: service, rest }
    }
}

impl App for Serving {
    type Body = Either<Reply, Body>;

    const IS_DIRECT: bool = true;

    async fn answer(self, peer: Peer, request: Request<Arriving>) -> Response<Self::Body> {
        if !is_grpc(request.headers()) {
            return self.rest.answer(peer, request).await.map(Either::Right);
        }
        let path = request.uri().path();
        match platform(path) {
            Some(platform) => {
                self.prediction.answer(platform, GRPC.route(path), peer, request).await
            }
            None => self.models.answer(peer, request).await.map(Either::Right),
        }
    }
}

/// True if a request says that it is gRPC. A page in a browser cannot say so for another site
/// without being asked first (CORS preflight), so no page can make changes.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}
