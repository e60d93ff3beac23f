//! Explanations of requests.

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_features::Request;
use outrigger_proto::raw::unary;
use prost::Message as _;

use crate::{
    call::Call,
    explain::contributions,
    metrics::Stage,
    predict::{Predictor, timed},
    served::served,
};

/// Explains an encoded `PredictRequest`: returns the tensors that it packs to as a framed
/// `ExplainResponse`, and the contributions of the features if the request asks for them.
///
/// # Errors
/// The failure of the request or the model, and of the contributions.
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
    let (mut response, mut packed) = timed(call, Stage::Decode, explain)?;
    response.model = Some(served(&lease));
    if parts.wants_contributions() {
        response.contributions = Some(contributions(call, &lease, &mut packed).await?);
    }
    call.charge_answer((unary::PREFIX + response.encoded_len()) as u64)?;
    Ok(unary::framed(&response.encode_to_vec()))
}
