//! Predictions as JSON documents, typed by the model's metadata.

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_features::{Packed, Request, Routing, json};
use outrigger_proto::outrigger::v1::PredictResponse;
use outrigger_score::Scorer;
use serde_json::Value;

use crate::{
    call::Call,
    predict::{Exchange, Predictor, Scored},
    served::served,
};

/// Scores one user's treatments.
///
/// # Errors
/// The failure of the request, the model or the engine.
pub(super) async fn predict(
    predictor: &Predictor,
    call: &Call,
    body: &[u8],
) -> Result<Value, Failure> {
    let json::Routing { model, request_id, routing_key } = &json::selector(body)?;
    let routing = Routing { model: Some(model), request_id, routing_key };
    let lease = predictor.lease(call, routing, None).await?.sampled();
    predictor.exchange(call, lease, Document { body, encoded: None }).await
}

/// A request in JSON.
struct Document<'a> {
    body: &'a [u8],
    /// The request as an encoded `PredictRequest`, by the metadata of the model that it was last
    /// packed for.
    encoded: Option<Bytes>,
}

impl Exchange for Document<'_> {
    type Answer = Value;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        self.encoded = None;
        let encoded = Bytes::from(json::encode_request(&scorer.plan, self.body)?);
        let encoded = self.encoded.insert(encoded);
        scorer.plan.pack_request(&Request::read(encoded, &scorer.limits())?)
    }

    fn request(&self) -> Option<&Bytes> {
        self.encoded.as_ref()
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<Value, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let (model, degraded) = (Some(served(lease)), terms.degraded.clone());
        let response = lease.scorer.plan.response(packed, outputs)?;
        let response = PredictResponse { model, degraded, ..response };
        Ok(json::predict_response(&lease.scorer.plan, &response))
    }
}
