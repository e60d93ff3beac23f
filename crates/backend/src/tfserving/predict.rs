//! The way of a prediction.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use outrigger_core::Tensor;
use tokio::time::timeout_at;
use tonic::client::Grpc;
use tower::{
    Service, ServiceBuilder, ServiceExt as _,
    limit::ConcurrencyLimit,
    load_shed::{LoadShed, error::Overloaded},
};

use super::{Config, codec::Codec, request, status, transport::Transport};
use crate::{
    Call, Error,
    wire::{decode_response, encoded_len},
};

pub(super) type Stack = LoadShed<ConcurrencyLimit<Deadline<Client>>>;

/// The layers a prediction passes, outermost first.
pub(super) fn stack(transport: Transport, config: &Config) -> Stack {
    ServiceBuilder::new()
        // A call that finds no room fails at once: waiting here would only make
        // it late, and the caller can still ask elsewhere.
        .load_shed()
        // What the engine is given at once; more would queue up inside it, where
        // nobody sees the queue.
        .concurrency_limit(config.max_in_flight)
        // Innermost, so that a call that is given up frees its place.
        .layer_fn(Deadline)
        .service(Client::new(transport, config))
}

/// Runs one call through the stack.
pub(super) async fn run(stack: &Stack, call: Call) -> Result<Vec<Tensor>, Error> {
    stack.clone().oneshot(call).await.map_err(|error| match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(other) => {
            debug_assert!(other.is::<Overloaded>(), "{other}");
            Error::Overloaded
        }
    })
}

/// Gives a call up at its own deadline.
#[derive(Debug, Clone)]
pub(super) struct Deadline<S>(S);

impl<S> Service<Call> for Deadline<S>
where
    S: Service<Call, Error = Error, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = BoxFuture<'static, Result<S::Response, Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let deadline = call.deadline;
        let answer = self.0.call(call);
        Box::pin(async move {
            timeout_at(deadline, answer).await.unwrap_or(Err(Error::DeadlineExceeded))
        })
    }
}

/// The RPC itself.
#[derive(Debug, Clone)]
pub(super) struct Client {
    grpc: Grpc<Transport>,
    max_message: usize,
}

impl Client {
    fn new(transport: Transport, config: &Config) -> Self {
        let origin = transport.origin();
        let grpc = Grpc::with_origin(transport, origin)
            .max_decoding_message_size(config.max_message)
            .max_encoding_message_size(config.max_message);
        Self { grpc, max_message: config.max_message }
    }

    async fn predict(mut self, call: Call) -> Result<Vec<Tensor>, Error> {
        let (size, limit) = (encoded_len(&call), self.max_message);
        if size > limit {
            return Err(Error::TooLarge { size, limit });
        }
        let call = Arc::new(call);
        let request = request(Arc::clone(&call), call.deadline)?;
        let path = PathAndQuery::from_static("/tensorflow.serving.PredictionService/Predict");
        let answer = self.grpc.unary(request, path, Codec).await;
        let answer = answer.map_err(|status| status::of_predict(&status, &call.servable))?;
        Ok(decode_response(answer.into_inner(), &call.outputs, limit)?)
    }
}

impl Service<Call> for Client {
    type Response = Vec<Tensor>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Vec<Tensor>, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        Box::pin(self.clone().predict(call))
    }
}
