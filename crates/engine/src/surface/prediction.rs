//! PredictionService, routed by hand: Predict leaves its messages encoded, the
//! other methods do not.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use outrigger_proto::{
    raw::unary::{self, Unreadable},
    tensorflow::serving::{GetModelMetadataRequest, GetModelMetadataResponse},
};
use tonic::{
    Code,
    body::Body,
    server::{Grpc, NamedService, UnaryService},
};
use tonic_prost::ProstCodec;
use tower::Service;

use super::{Surface, deadline, metadata, predict};
use crate::status::Status;

/// `tensorflow.serving.PredictionService`.
#[derive(Debug, Clone)]
pub struct PredictionService(Arc<Surface>);

impl PredictionService {
    /// The service over what all calls share.
    pub fn new(surface: Arc<Surface>) -> Self {
        Self(surface)
    }
}

impl NamedService for PredictionService {
    const NAME: &'static str = "tensorflow.serving.PredictionService";
}

impl Service<Request<Body>> for PredictionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let surface = Arc::clone(&self.0);
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        match method {
            "Predict" => Box::pin(async move { Ok(answer(&surface, request).await) }),
            "GetModelMetadata" => Box::pin(async move {
                let codec = ProstCodec::default();
                let mut grpc = Grpc::new(codec).max_decoding_message_size(MESSAGE_LIMIT);
                Ok(grpc.unary(GetModelMetadata(surface), request).await)
            }),
            _ => Box::pin(async { Ok(tonic::Status::unimplemented("").into_http()) }),
        }
    }
}

/// TensorFlow Serving's.
const MESSAGE_LIMIT: usize = i32::MAX as usize;

/// Answers a call of Predict. Its messages are read and written in place, which
/// tonic's codecs would copy.
async fn answer(surface: &Arc<Surface>, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let deadline = deadline::of(&head.headers);
    let outcome = match unary::read(body, MESSAGE_LIMIT).await {
        Ok(message) => predict::predict(surface, message, deadline).await,
        Err(unreadable) => Err(unread(&unreadable)),
    };
    match outcome {
        Ok(framed) => unary::Reply::new(framed).into_response(Body::new),
        Err(status) => tonic::Status::from(status).into_http(),
    }
}

fn unread(unreadable: &Unreadable) -> Status {
    let code = match unreadable {
        Unreadable::Compressed => Code::Unimplemented,
        Unreadable::TooLarge { .. } => Code::OutOfRange,
        _ => Code::Internal,
    };
    Status::new(code, unreadable.to_string())
}

struct GetModelMetadata(Arc<Surface>);

impl UnaryService<GetModelMetadataRequest> for GetModelMetadata {
    type Response = GetModelMetadataResponse;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::Response>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<GetModelMetadataRequest>) -> Self::Future {
        let surface = Arc::clone(&self.0);
        Box::pin(
            async move { Ok(tonic::Response::new(metadata::get(&surface, request.get_ref())?)) },
        )
    }
}
