//! PredictionService over encoded messages: they are read and answered in place, without the copy
//! that tonic's codecs make, and without a router.

use std::sync::Arc;

use axum::{
    body::{Body as AnyBody, Bytes},
    http::{HeaderMap, HeaderValue, Request, Response},
};
use http_body_util::Either;
use outrigger_core::Failure;
use outrigger_proto::raw::unary::Reply;

use super::messages;
use crate::{
    call::Call,
    caller::Peer,
    failure,
    front::{Method, Route},
    guard::Guard,
    listen::Arriving,
    predict::Predictor,
    sending::hold,
};

/// Metadata that may repeat the model's name.
const NAMED: &str = "outrigger-model";

/// Larger messages are heavy: most take more than 3 ms to pack.
const HEAVY: usize = 4 << 20;

/// The messages that are read in place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Message {
    Predict,
    Batch,
    Explain,
}

impl Message {
    /// The message of a method; `None` if the method has none of them.
    pub(super) fn of(method: Method) -> Option<Self> {
        match method {
            Method::Predict => Some(Self::Predict),
            Method::BatchPredict => Some(Self::Batch),
            Method::Explain => Some(Self::Explain),
            Method::Models | Method::Canaries | Method::Other => None,
        }
    }

    /// Answers `message`.
    async fn answer(
        self,
        predictor: &Predictor,
        call: &Call,
        message: Bytes,
        named: Option<&[u8]>,
    ) -> Result<Bytes, Failure> {
        match self {
            Self::Predict => messages::predict(predictor, call, message, named).await,
            Self::Batch => messages::batch(predictor, call, &message, named).await,
            Self::Explain => messages::explain(predictor, call, &message, named).await,
        }
    }
}

/// Passes encoded messages to the predictor.
pub(super) struct Prediction {
    guard: Arc<Guard>,
    predictor: Predictor,
    max_message: usize,
}

impl Prediction {
    /// A service behind `guard` for messages of at most `max_message` bytes.
    pub(super) fn new(guard: Arc<Guard>, predictor: Predictor, max_message: usize) -> Self {
        Self { guard, predictor, max_message }
    }

    /// Answers a request for `route`, whose body is a `message`.
    pub(super) async fn answer(
        &self,
        message: Message,
        route: &'static Route,
        peer: Peer,
        request: Request<Arriving>,
    ) -> Response<Either<Reply, AnyBody>> {
        let unsent = Arc::clone(peer.unsent());
        let work = async |call: &Call, request| {
            let framed = self.work(message, call, request).await?;
            call.held().release_request();
            Ok(hold(framed, (Arc::clone(call.held()), unsent.ticket())))
        };
        match self.guard.call(route, peer, request, work).await {
            Ok(framed) => Reply::new(framed).into_response(Either::Left),
            Err(failure) => failure::to_status(&failure).into_http().map(Either::Right),
        }
    }

    /// Reads the message, answers it, and returns the answer with its prefix.
    async fn work(
        &self,
        kind: Message,
        call: &Call,
        request: Request<Arriving>,
    ) -> Result<Bytes, Failure> {
        let (head, body) = request.into_parts();
        let message = call.receive(body.message(call.held(), self.max_message)).await?;
        // An explanation is text of many times the size of its tensors.
        let is_heavy = matches!(kind, Message::Explain) || message.len() > HEAVY;
        if !is_heavy {
            return kind.answer(&self.predictor, call, message, named(&head.headers)).await;
        }
        let (predictor, call) = (self.predictor.clone(), call.clone());
        let work =
            async move { kind.answer(&predictor, &call, message, named(&head.headers)).await };
        self.predictor.heavy().run(work).await
    }
}

/// The model's name in the metadata; empty if several differ.
fn named(headers: &HeaderMap) -> Option<&[u8]> {
    let mut names = headers.get_all(NAMED).iter().map(HeaderValue::as_bytes);
    let first = names.next()?;
    Some(if names.all(|name| name == first) { first } else { b"" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_are_no_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(named(&headers), None);
        for (name, expected) in [("churn", "churn"), ("churn", "churn"), ("other", "")] {
            headers.append(NAMED, name.parse().unwrap());
            assert_eq!(named(&headers), Some(expected.as_bytes()));
        }
    }
}
