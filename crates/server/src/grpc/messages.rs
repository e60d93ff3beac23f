//! The messages of `outrigger.v1.PredictionService`: requests are read in place, and answers are
//! framed messages.

mod batch;
mod explain;

use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_core::{Failure, Reason};
use outrigger_features::{Answer, Arrived, Packed, Request};
use outrigger_proto::raw::unary;
use outrigger_score::Scorer;

pub(super) use self::{batch::batch, explain::explain};
use crate::{
    call::Call,
    predict::{Exchange, Predictor, Scored},
    served::encoded,
    trial::Attempts,
};

/// Scores one user's treatments: an encoded `PredictRequest` gives a framed `PredictResponse`.
/// `named` is the model's name as given beside the request.
///
/// A request that is not needed again is freed as soon as it is packed: key-value maps take ten
/// times the memory of their tensors, and while the engine is behind, allocating that memory from
/// the kernel costs more than reading the maps does.
///
/// # Errors
/// The failure of the request, the model or the engine.
pub(super) async fn predict(
    predictor: &Predictor,
    call: &Call,
    message: Bytes,
    named: Option<&[u8]>,
) -> Result<Bytes, Failure> {
    // The request is read before the wait for the model, so that a malformed one is refused at
    // once.
    let parts = Request::read(&message, &predictor.limits())?;
    let lease = predictor.lease(call, parts.routing(), named).await?.sampled();
    let attempts = Attempts::new(call, lease);
    let mut single = Single { call, sent: Some((&parts, &message)) };
    let packed = predictor.pack(call, attempts.lease(), &mut single);
    if attempts.lease().needs_request() {
        return predictor.answer(call, attempts, packed, single).await;
    }
    drop(parts);
    // A table's numbers may have become a tensor without a copy.
    if message.is_unique() {
        drop(message);
        call.held().release_body();
    }
    predictor.answer(call, attempts, packed, Single { call, sent: None }).await
}

/// A `PredictRequest`.
struct Single<'r, 'a> {
    call: &'r Call,
    /// The parsed request and its bytes; `None` once it is packed and not needed again.
    sent: Option<(&'r Request<'a>, &'a Bytes)>,
}

impl Exchange for Single<'_, '_> {
    type Answer = Bytes;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let gone = || Failure::new(Reason::Internal, "the request was freed before its answer");
        let (parts, _) = self.sent.ok_or_else(gone)?;
        scorer.plan.metered(self.call).pack_request(parts)
    }

    fn request(&self) -> Option<Arrived> {
        self.sent.map(|(_, message)| message.clone().into())
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<Bytes, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let (model, degraded) = (encoded(lease), terms.degraded());
        framed(self.call, &lease.scorer.plan.answer(packed, outputs, &model)?.degraded(&degraded))
    }
}

/// Encodes an answer with its prefix, in one pass.
fn framed(call: &Call, answer: &Answer<'_>) -> Result<Bytes, Failure> {
    let length = answer.encoded_len();
    call.charge_answer((unary::PREFIX + length) as u64)?;
    let mut framed = BytesMut::with_capacity(unary::PREFIX + length);
    framed.put_slice(&unary::prefix(length));
    answer.encode(&mut framed);
    Ok(framed.freeze())
}
