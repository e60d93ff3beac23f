//! Predictions and their explanations as JSON documents, typed by the model's metadata.

use outrigger_core::{Failure, Reason};
use outrigger_features::{Arrived, Packed, json::Request};
use outrigger_score::Scorer;

use super::body::Received;
use crate::{
    call::Call,
    explain::contributions,
    metrics::Stage,
    predict::{Exchange, Predictor, Scored, timed},
    served::served,
    trial::Attempts,
};

/// Larger bodies are heavy: 64 KiB take half a millisecond to read if they are malformed.
const HEAVY: usize = 64 << 10;
/// The memory of a body while it is read, as a multiple of its length; a test in the crate
/// `features` holds it.
const READ: u64 = 1;

/// Scores one user's treatments.
///
/// # Errors
/// The failure of the request, the model or the engine.
pub(super) async fn predict(
    predictor: &Predictor,
    call: &Call,
    body: Received,
) -> Result<Vec<u8>, Failure> {
    if body.len() <= HEAVY {
        return answer(predictor, call, body).await;
    }
    let (with, call) = (predictor.clone(), call.clone());
    predictor.heavy().run(async move { answer(&with, &call, body).await }).await
}

/// Explains one user's scores by the contributions of the features. This is heavy work.
///
/// # Errors
/// The failure of the request, the model or the engine, and of the contributions.
pub(super) async fn explain(
    predictor: &Predictor,
    call: &Call,
    body: Received,
) -> Result<Vec<u8>, Failure> {
    let (with, call) = (predictor.clone(), call.clone());
    predictor.heavy().run(async move { explanation(&with, &call, body).await }).await
}

async fn explanation(
    predictor: &Predictor,
    call: &Call,
    body: Received,
) -> Result<Vec<u8>, Failure> {
    let request = read(call, body)?;
    // Explain must not count as the key's first exposure.
    let lease = predictor.uncounted().inspect(call, request.routing(), None).await;
    let lease = lease.map_err(|failure| refused(&request, failure))?;
    let Scorer { plan, .. } = &lease.scorer;
    let pack = || plan.metered(call).pack_json(&request, &predictor.limits());
    let mut packed = timed(call, Stage::Decode, pack)?;
    let contributions = contributions(call, &lease, &mut packed).await?;
    let written = plan.contributions_json(&packed, &contributions, &served(&lease));
    call.charge_answer(written.capacity() as u64)?;
    Ok(written)
}

/// As in the gRPC form, a request that is not needed again is freed as soon as it is packed.
async fn answer(predictor: &Predictor, call: &Call, body: Received) -> Result<Vec<u8>, Failure> {
    let request = read(call, body)?;
    let lease = match predictor.lease(call, request.routing(), None).await {
        Ok(lease) => lease.sampled(),
        Err(failure) => return Err(refused(&request, failure)),
    };
    let attempts = Attempts::new(call, lease);
    let mut document = Document { call, request: Some(request) };
    let packed = predictor.pack(call, attempts.lease(), &mut document);
    if !attempts.lease().needs_request() {
        document.request = None;
        call.held().release_body();
    }
    predictor.answer(call, attempts, packed, document).await
}

/// Reads the route of a request. What reading takes is charged to the call until it is packed.
fn read(call: &Call, body: Received) -> Result<Request, Failure> {
    call.charge_work(body.len() as u64 * READ)?;
    Request::read(body.join())
}

/// The failure of a request that got no version. That its body is no JSON is otherwise found when
/// it is packed, and precedes every failure but that of a crowded version, which must cost little.
fn refused(request: &Request, failure: Failure) -> Failure {
    if failure.reason == Reason::Overloaded {
        return failure;
    }
    request.check().err().unwrap_or(failure)
}

/// A request in JSON.
struct Document<'a> {
    call: &'a Call,
    /// `None` once it is packed and not needed again.
    request: Option<Request>,
}

impl Exchange for Document<'_> {
    type Answer = Vec<u8>;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let gone = || Failure::new(Reason::Internal, "the request was freed before its answer");
        let request = self.request.as_ref().ok_or_else(gone)?;
        scorer.plan.metered(self.call).pack_json(request, &scorer.limits())
    }

    fn request(&self) -> Option<Arrived> {
        self.request.clone().map(Arrived::Json)
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<Vec<u8>, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let answer = lease.scorer.plan.answer(packed, outputs, &[])?;
        self.call.charge_answer(answer.json_room() as u64)?;
        let written = answer.to_json(&served(lease), terms.degraded.as_ref());
        self.call.charge_answer(written.capacity() as u64)?;
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use outrigger_budget::Budget;
    use outrigger_trace::Span;
    use tokio::time::Instant;

    use super::*;
    use crate::{front::Method, held::Held, http::FRONT};

    #[test]
    fn a_body_without_room_to_be_read_is_refused() {
        let budget = Budget::new(256 << 20);
        let now = Instant::now();
        let call = Call::begin(&FRONT, Method::Predict, now, now, Span::none());
        call.seat(Held::on(&budget));
        // 76.8 MiB of requests, half of it for one caller.
        let body = |length: usize| {
            let mut body = br#"{"model":{"name":"m"}}"#.to_vec();
            body.resize(length, b' ');
            let mut received = Received::default();
            received.push(&body);
            received
        };
        assert_eq!(read(&call, body(40 << 20)).unwrap_err().reason, Reason::TooLarge);
        read(&call, body(1 << 20)).unwrap();
        assert_eq!(budget.requests.used(), READ << 20);
    }
}
