//! Predictions as JSON documents, typed by the model's metadata.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_features::{Packed, Plan, Request, Routing, json};
use outrigger_proto::outrigger::v1::PredictResponse;
use outrigger_score::Scorer;
use serde_json::Value;

use super::body::Received;
use crate::{
    call::Call,
    predict::{Exchange, Predictor, Scored},
    served::served,
};

/// Larger bodies are heavy: 64 KiB take about half a millisecond to parse.
const HEAVY: usize = 64 << 10;
/// The memory of a body while it is parsed, as a multiple of its length; a test in the crate
/// `features` holds it.
const PARSED: u64 = 16;
/// The memory of a score and its treatment's id as JSON.
const SCORE: usize = 512;
/// The memory of an answer besides its scores.
const ANSWER: usize = 8 << 10;

/// Scores one user's treatments.
///
/// # Errors
/// The failure of the request, the model or the engine.
pub(super) async fn predict(
    predictor: &Predictor,
    call: &Call,
    body: Received,
) -> Result<Value, Failure> {
    if body.len() <= HEAVY {
        return answer(predictor, call, body.join()).await;
    }
    let (with, call) = (predictor.clone(), call.clone());
    predictor.heavy().run(async move { answer(&with, &call, body.join()).await }).await
}

async fn answer(predictor: &Predictor, call: &Call, body: Bytes) -> Result<Value, Failure> {
    let json::Routing { model, request_id, routing_key } = &parse(call, &body, json::selector)?;
    let routing = Routing { model: Some(model), request_id, routing_key };
    let lease = predictor.lease(call, routing, None).await?.sampled();
    predictor.exchange(call, lease, Document { call, body, encoded: None }).await
}

/// Parses `body` with `parse`, which is charged to the call.
fn parse<T>(
    call: &Call,
    body: &[u8],
    parse: impl FnOnce(&[u8]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    call.held().work(body.len() as u64 * PARSED)?;
    parse(body)
}

/// A request in JSON.
struct Document<'a> {
    call: &'a Call,
    body: Bytes,
    /// The request as an encoded `PredictRequest`, by the metadata of the model that it was last
    /// packed for.
    encoded: Option<(Bytes, Arc<Plan>)>,
}

impl Document<'_> {
    /// The request as it is encoded for `plan`.
    fn encoded(&mut self, plan: &Arc<Plan>) -> Result<&Bytes, Failure> {
        let encoded = match self.encoded.take() {
            Some((encoded, of)) if Arc::ptr_eq(&of, plan) => encoded,
            _ => self.encode(plan)?,
        };
        Ok(&self.encoded.insert((encoded, Arc::clone(plan))).0)
    }

    fn encode(&self, plan: &Plan) -> Result<Bytes, Failure> {
        let encode = |body: &[u8]| json::encode_request(plan, body).map(Bytes::from);
        let encoded = parse(self.call, &self.body, encode)?;
        self.call.held().receive(self.body.len() + encoded.len(), None)?;
        Ok(encoded)
    }
}

impl Exchange for Document<'_> {
    type Answer = Value;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let call = self.call;
        let encoded = self.encoded(&scorer.plan)?;
        scorer.plan.metered(call).pack_request(&Request::read(encoded, &scorer.limits())?)
    }

    fn request(&self) -> Option<&Bytes> {
        self.encoded.as_ref().map(|(encoded, _)| encoded)
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<Value, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let scores: usize = packed.users.iter().map(|user| user.kept() * user.outputs.len()).sum();
        self.call.held().answer((ANSWER + scores * SCORE) as u64)?;
        let (model, degraded) = (Some(served(lease)), terms.degraded.clone());
        let response = lease.scorer.plan.response(packed, outputs)?;
        let response = PredictResponse { model, degraded, ..response };
        Ok(json::predict_response(&lease.scorer.plan, &response))
    }
}

#[cfg(test)]
mod tests {
    use outrigger_budget::Budget;
    use outrigger_core::Reason;
    use outrigger_trace::Span;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        admission::Admission, caller::Party, front::Method, held::Held, http::FRONT, limits::Limit,
        metrics,
    };

    #[test]
    fn a_body_without_room_to_be_parsed_is_refused() {
        let budget = Budget::new(256 << 20);
        let party = Party::Unknown(std::net::Ipv4Addr::LOCALHOST.into());
        let share = Limit::new(0, "one caller", metrics::Limit::Caller).enter(|| party.clone());
        let place = Admission::new(1, 1).enter().unwrap();
        let counted = metrics::in_flight(Method::Predict);
        let now = Instant::now();
        let call = Call::begin(&FRONT, Method::Predict, now, now, Span::none());
        call.seat(Held::new((place, share.unwrap()), &party, &budget, counted));
        // 76.8 MiB of requests, half of it for one caller, and sixteen times this body.
        let body = vec![b' '; 3 << 20];
        assert_eq!(parse(&call, &body, |_| Ok(())).unwrap_err().reason, Reason::TooLarge);
        parse(&call, &body[..1 << 20], |_| Ok(())).unwrap();
        assert_eq!(budget.requests.used(), PARSED << 20);
    }
}
