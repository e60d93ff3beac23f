//! PredictionService over encoded messages: they are read and answered in place, without the copy
//! that tonic's codecs make, and without a router.

use std::sync::Arc;

use axum::{
    body::{Body as AnyBody, Bytes},
    http::{HeaderMap, HeaderValue, Request, Response},
};
use http_body_util::Either;
use outrigger_compression::Encoding;
use outrigger_core::Failure;
use outrigger_proto::raw::unary::{PREFIX, Reply, compressed_prefix};

use super::messages;
use crate::{
    call::Call,
    caller::Peer,
    compression::{Policy, compress, decompress},
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

/// A kind of message that is read in place.
pub(crate) trait InPlace: Copy + Send + 'static {
    /// True if its answer is heavy work whatever its size.
    fn is_heavy(self) -> bool;

    /// Answers `message`; returns the answer with its prefix. `named` is the model's name as given
    /// beside the message.
    fn answer(
        self,
        predictor: &Predictor,
        call: &Call,
        message: Bytes,
        named: Option<&[u8]>,
    ) -> impl Future<Output = Result<Bytes, Failure>> + Send;
}

/// The messages of `outrigger.v1`.
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
            Method::Models | Method::Canaries | Method::Validation | Method::Other => None,
        }
    }
}

impl InPlace for Message {
    fn is_heavy(self) -> bool {
        // An explanation is text of many times the size of its tensors.
        matches!(self, Self::Explain)
    }

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
pub(crate) struct Prediction {
    guard: Arc<Guard>,
    predictor: Predictor,
    max_message: usize,
    compression: Policy,
}

/// An answer with its prefix.
struct Framed {
    bytes: Bytes,
    encoding: Option<Encoding>,
}

impl Prediction {
    /// A service behind `guard` for messages of at most `max_message` bytes.
    pub(crate) fn new(
        guard: Arc<Guard>,
        predictor: Predictor,
        max_message: usize,
        compression: Policy,
    ) -> Self {
        Self { guard, predictor, max_message, compression }
    }

    /// Answers a request for `route`, whose body is a `message`.
    pub(crate) async fn answer(
        &self,
        message: impl InPlace,
        route: &'static Route,
        peer: Peer,
        request: Request<Arriving>,
    ) -> Response<Either<Reply, AnyBody>> {
        let unsent = Arc::clone(peer.unsent());
        let work = async |call: &Call, request| {
            let framed = self.work(message, call, request).await?;
            call.held().release_request();
            let bytes = hold(framed.bytes, (Arc::clone(call.held()), unsent.ticket()));
            Ok(Framed { bytes, ..framed })
        };
        match self.guard.call(route, peer, request, work).await {
            Ok(framed) => self.reply(framed),
            Err(failure) => {
                let mut refused = failure::to_status(&failure).into_http();
                self.compression.explain(&failure, refused.headers_mut());
                refused.map(Either::Right)
            }
        }
    }

    fn reply(&self, framed: Framed) -> Response<Either<Reply, AnyBody>> {
        let mut response = Reply::new(framed.bytes).into_response(Either::Left);
        if let Some(encoding) = framed.encoding {
            self.compression.label(encoding, response.headers_mut());
        }
        response
    }

    /// Reads the message, answers it, and returns the answer.
    async fn work(
        &self,
        kind: impl InPlace,
        call: &Call,
        request: Request<Arriving>,
    ) -> Result<Framed, Failure> {
        let (head, body) = request.into_parts();
        let message = self.read(call, &head.headers, body).await?;
        let encoding = self.compression.answer(&head.headers);
        let answer = self.answered(kind, call, message, head.headers).await?;
        Ok(self.framed(call, encoding, answer).await)
    }

    /// Reads the message, and decompresses it.
    async fn read(
        &self,
        call: &Call,
        headers: &HeaderMap,
        body: Arriving,
    ) -> Result<Bytes, Failure> {
        let declared = self.compression.message(headers);
        let message = body.message(call.held(), declared.bounds(self.max_message));
        let read = call.receive(message).await;
        match declared.of(read)? {
            (None, message) => Ok(message),
            (Some(encoding), compressed) => {
                let heavy = self.predictor.heavy();
                let message =
                    decompress(call, heavy, encoding, compressed, self.max_message).await?;
                Ok(message.freeze())
            }
        }
    }

    /// Compresses an answer, which has its prefix, if its caller accepts that and it pays.
    async fn framed(&self, call: &Call, encoding: Option<Encoding>, answer: Bytes) -> Framed {
        let Some(encoding) = encoding else { return Framed { bytes: answer, encoding: None } };
        let message = answer.slice(PREFIX..);
        let compressed = compress(call, self.predictor.heavy(), encoding, message, PREFIX).await;
        match compressed {
            None => Framed { bytes: answer, encoding: None },
            Some(mut compressed) => {
                let prefix = compressed_prefix(compressed.len() - PREFIX);
                compressed[..PREFIX].copy_from_slice(&prefix);
                Framed { bytes: compressed.into(), encoding: Some(encoding) }
            }
        }
    }

    /// Answers a message; returns the answer with its prefix.
    async fn answered(
        &self,
        kind: impl InPlace,
        call: &Call,
        message: Bytes,
        headers: HeaderMap,
    ) -> Result<Bytes, Failure> {
        if !kind.is_heavy() && message.len() <= HEAVY {
            return kind.answer(&self.predictor, call, message, named(&headers)).await;
        }
        let (predictor, call) = (self.predictor.clone(), call.clone());
        let work = async move { kind.answer(&predictor, &call, message, named(&headers)).await };
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
