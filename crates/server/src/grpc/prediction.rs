//! PredictionService over encoded messages: they are read and answered in place,
//! which tonic's codecs would copy.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue},
    response::Response,
    routing::any,
};
use outrigger_core::{Failure, Reason};
use outrigger_proto::raw::unary::{self, Unreadable};

use crate::{call::Call, predict::Predictor};

/// Metadata that may repeat the model's name.
const NAMED: &str = "outrigger-model";

/// Hands messages to the predictor as they are.
#[derive(Clone)]
struct Prediction {
    predictor: Predictor,
    max_message: usize,
}

/// The routes of the service; messages have at most `max_message` bytes.
pub(super) fn routes(predictor: Predictor, max_message: usize) -> Router {
    Router::new()
        .route("/outrigger.v1.PredictionService/Predict", any(predict))
        .route("/outrigger.v1.PredictionService/BatchPredict", any(batch_predict))
        .route("/outrigger.v1.PredictionService/Explain", any(explain))
        .with_state(Prediction { predictor, max_message })
}

async fn predict(State(service): State<Prediction>, request: Request) -> Response {
    answer(request, service.max_message, async |call, message, named| {
        service.predictor.predict(call, message, named).await
    })
    .await
}

async fn batch_predict(State(service): State<Prediction>, request: Request) -> Response {
    answer(request, service.max_message, async |call, message, named| {
        service.predictor.batch(call, message, named).await
    })
    .await
}

async fn explain(State(service): State<Prediction>, request: Request) -> Response {
    answer(request, service.max_message, async |call, message, named| {
        service.predictor.explain(call, message, named).await
    })
    .await
}

/// Reads the message, has it worked on, and frames what comes of it. `work` gets
/// the model's name as given beside the request, and gives a message with its
/// prefix.
async fn answer(
    request: Request,
    max_message: usize,
    work: impl AsyncFnOnce(&Call, &Bytes, Option<&[u8]>) -> Result<Bytes, Failure>,
) -> Response {
    let (head, body) = request.into_parts();
    let call = Call::of(&head.extensions);
    let result = match unary::read(body, max_message).await {
        Ok(message) => work(&call, &message, named(&head.headers)).await,
        Err(unreadable) => Err(unread(&unreadable)),
    };
    match call.conclude(result) {
        Ok(framed) => unary::Reply::new(framed).into_response(Body::new),
        Err(status) => status.into_http(),
    }
}

fn unread(unreadable: &Unreadable) -> Failure {
    let reason = match unreadable {
        Unreadable::TooLarge { .. } => Reason::TooLarge,
        _ => Reason::RequestMalformed,
    };
    Failure::new(reason, unreadable.to_string())
}

/// The name given in metadata; empty when several are given that differ.
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
