//! The bodies of requests and answers, as they are sent and as they are worked on.

use axum::{
    body::{Body, Bytes},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONTENT_TYPE, VARY},
    },
    response::{IntoResponse as _, Response},
};
use outrigger_core::{Failure, Reason};

use super::body::{self, Received};
use crate::{
    call::Call,
    compression::{Policy, compress, decompress},
    failure,
    predict::Predictor,
};

/// The content type of a document.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Reads the documents of prediction requests, and sends those that answer them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Documents {
    predictor: Predictor,
    max_message: usize,
    compression: Policy,
}

impl Documents {
    /// For documents of at most `max_message` bytes, which `predictor` answers.
    pub(crate) fn new(predictor: Predictor, max_message: usize, compression: Policy) -> Self {
        Self { predictor, max_message, compression }
    }

    pub(crate) fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// Reads the document of a request, and decompresses it.
    ///
    /// # Errors
    /// `ENCODING_UNSUPPORTED`, or as the body is read.
    pub(crate) async fn read(
        &self,
        call: &Call,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Received, Failure> {
        // A body in an unknown encoding is not read.
        let encoding = self.compression.request(headers)?;
        let body = call.receive(body::read(body, self.max_message, call.held())).await?;
        let Some(encoding) = encoding else { return Ok(body) };
        let compressed = body.join_charged(call.held())?;
        let heavy = self.predictor.heavy();
        let document = decompress(call, heavy, encoding, compressed, self.max_message).await?;
        Ok(Received::from(document))
    }

    /// The response with a document, compressed if its caller accepts that and it pays. `asked` are
    /// the headers of the request.
    pub(crate) async fn response(
        &self,
        call: &Call,
        asked: &HeaderMap,
        document: Bytes,
    ) -> Response {
        let mut compressed = None;
        let encoding = self.compression.answer(asked);
        if let Some(encoding) = encoding {
            compressed =
                compress(call, self.predictor.heavy(), encoding, document.clone(), 0).await;
        }
        let label = encoding.filter(|_| compressed.is_some());
        let document = compressed.map_or(document, Bytes::from);
        let mut response = ([(CONTENT_TYPE, JSON)], document).into_response();
        if self.compression.varies() {
            response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        if let Some(encoding) = label {
            self.compression.label(encoding, response.headers_mut());
        }
        response
    }

    /// Records the outcome of a call. The response for a failure is what `write` writes with a
    /// status.
    pub(crate) fn conclude(
        &self,
        call: &Call,
        answered: Result<Response, Failure>,
        write: fn(StatusCode, &Failure) -> Response,
    ) -> Response {
        match answered {
            Ok(response) => {
                call.answered();
                response
            }
            Err(failure) => {
                call.failed(&failure);
                self.refusal(&failure, write)
            }
        }
    }

    fn refusal(&self, failure: &Failure, write: fn(StatusCode, &Failure) -> Response) -> Response {
        let status = match failure.reason {
            Reason::EncodingUnsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            _ => failure::http_status(failure),
        };
        let mut response = write(status, failure);
        self.compression.explain(failure, response.headers_mut());
        response
    }
}
