//! Explanations of requests.

use bytes::Bytes;
use outrigger_core::{Failure, Reason};
use outrigger_features::{Packed, Request};
use outrigger_lifecycle::Lease;
use outrigger_proto::{outrigger::v1::Contributions, raw::unary};
use prost::Message as _;

use crate::{
    call::Call,
    metrics::Stage,
    predict::{Predictor, timed},
    served::served,
};

/// The most treatments whose contributions one call may ask for: they take about a thousand times
/// as long as the scores.
const MOST: usize = 100;

/// Explains an encoded `PredictRequest`: returns the tensors that it packs to as a framed
/// `ExplainResponse`, and the contributions of the features if the request asks for them.
///
/// # Errors
/// The failure of the request or the model; with contributions also of the engine, and
/// `CONTRIBUTIONS_UNSUPPORTED` if there are none.
pub(in crate::grpc) async fn explain(
    predictor: &Predictor,
    call: &Call,
    message: &Bytes,
    named: Option<&[u8]>,
) -> Result<Bytes, Failure> {
    let parts = Request::read(message, &predictor.limits())?;
    // Explain must not count as the key's first exposure.
    let lease = predictor.uncounted().inspect(call, parts.routing(), named).await?;
    let explain = || lease.scorer.plan.metered(call).explain_request(&parts);
    let (mut response, packed) = timed(call, Stage::Decode, explain)?;
    response.model = Some(served(&lease));
    if parts.wants_contributions() {
        response.contributions = Some(contributions(call, &lease, packed).await?);
    }
    call.charge_answer((unary::PREFIX + response.encoded_len()) as u64)?;
    Ok(unary::framed(&response.encode_to_vec()))
}

/// The contributions of the features to the margins of a packed request.
async fn contributions(
    call: &Call,
    lease: &Lease,
    packed: Packed,
) -> Result<Contributions, Failure> {
    let scorer = &lease.scorer;
    let of_row = scorer.contributions()?;
    let rows = scorer.plan.rows(&packed);
    if rows > MOST {
        let message = format!(
            "contributions are computed for at most {MOST} treatments, the request has {rows}"
        );
        return Err(Failure::new(Reason::TooManyTreatments, message));
    }
    // They exist as a tensor, as a message, and encoded.
    let bytes = rows.saturating_mul(of_row).saturating_mul(3 * size_of::<f32>());
    call.charge_answer(bytes as u64)?;
    let tensor = scorer.explain(packed, call.deadline()).await?;
    scorer.plan.contributions(rows, &tensor)
}
