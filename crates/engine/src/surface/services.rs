//! Dispatches calls to the gRPC services by path; Predict has its own codec.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use outrigger_proto::{
    raw::unary,
    tensorflow::serving::model_service_server::{self, ModelServiceServer},
};
use tonic::{body::Body, codegen::Service as _};

use super::{
    MESSAGE_LIMIT, ModelService, Surface,
    deadline::{self, Deadlines},
    message, metadata, predict,
};

const PREDICT: &str = "/tensorflow.serving.PredictionService/Predict";
const METADATA: &str = "/tensorflow.serving.PredictionService/GetModelMetadata";

/// The engine's gRPC services.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    surface: Arc<Surface>,
    models: ModelServiceServer<ModelService>,
}

impl Services {
    /// The services over the shared state.
    pub(crate) fn new(surface: Arc<Surface>) -> Self {
        let models = ModelServiceServer::new(ModelService::new(Arc::clone(&surface)))
            .max_decoding_message_size(MESSAGE_LIMIT);
        Self { surface, models }
    }

    /// Answers one call.
    pub(crate) async fn answer(mut self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() == PREDICT {
            return self.predict(request).await;
        }
        let request = match message::decompressed(request).await {
            Ok(request) => request,
            Err(status) => return tonic::Status::from(status).into_http(),
        };
        let path = request.uri().path();
        if path == METADATA {
            metadata::answer(&self.surface, request).await
        } else if in_service(path, model_service_server::SERVICE_NAME) {
            let Ok(response) = self.models.call(request).await;
            response
        } else {
            tonic::Status::unimplemented("").into_http()
        }
    }

    /// Answers a call of Predict. Messages are read and written in place; tonic's codecs
    /// would copy them.
    async fn predict(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let deadlines = Deadlines::of(&head.headers);
        let framed = async {
            let read = message::read(&head.headers, body);
            let message = deadline::within(deadlines.answer, read).await??;
            predict::predict(&self.surface, message, deadlines).await
        };
        match framed.await {
            Ok(framed) => unary::Reply::new(framed).into_response(Body::new),
            Err(status) => tonic::Status::from(status).into_http(),
        }
    }
}

/// True if a path, `/service/method`, belongs to this service.
fn in_service(path: &str, service: &str) -> bool {
    let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(service));
    method.is_some_and(|method| method.starts_with('/'))
}
