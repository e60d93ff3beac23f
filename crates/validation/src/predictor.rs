//! The model that scores the requests.

use std::time::Duration;

use outrigger_core::{Code, Digest, Failure, Reason};
use outrigger_features::Answer as AnswerOfBatch;
use outrigger_proto::outrigger::v1::{BatchPredictResponse, PredictResponse, ServedModel};
use outrigger_score::Scorer;
use prost::Message as _;
use tokio::time::Instant;

use crate::batch::Batching;

/// The response to a request, or the reason why this request has none.
pub type Answer = Result<PredictResponse, Failure>;

/// Scores requests. The next ones come while the answers to the ones before are awaited.
pub trait Predictor {
    /// The requests that it takes together.
    fn batching(&self) -> Batching;

    /// The number of batches that it takes at once: by default two, of which one is packed while
    /// the engine scores the other.
    fn concurrency(&self) -> usize {
        2
    }

    /// Scores encoded `outrigger.v1.PredictRequest`s without a model; an answer for each, in order,
    /// with the digest of the model.
    ///
    /// # Errors
    /// A failure that does not concern single requests and ends the run.
    fn predict(&self, requests: &[&[u8]]) -> impl Future<Output = Result<Vec<Answer>, Failure>>;
}

/// A version that an engine has loaded for the run.
#[derive(Debug)]
pub struct Loaded<'a> {
    scorer: &'a Scorer,
    timeout: Duration,
    /// The encoded `ServedModel` of the responses.
    model: Vec<u8>,
}

impl<'a> Loaded<'a> {
    /// The version of `scorer`, whose image has this digest. A call of the engine may take
    /// `timeout`.
    pub fn new(scorer: &'a Scorer, digest: &Digest, timeout: Duration) -> Self {
        let model = ServedModel { digest: digest.to_string(), ..ServedModel::default() };
        Self { scorer, timeout, model: model.encode_to_vec() }
    }

    /// Scores requests in one call of the engine.
    async fn call(&self, requests: &[&[u8]]) -> Result<Vec<PredictResponse>, Failure> {
        let plan = &self.scorer.plan;
        let mut packed = plan.pack(requests, &self.scorer.limits())?;
        let outputs = self.scorer.score(&mut packed, Instant::now() + self.timeout).await?;
        Ok(decoded(&plan.answer_batch(&packed, &outputs, &self.model, "")?))
    }
}

impl Predictor for Loaded<'_> {
    fn batching(&self) -> Batching {
        Batching::of(self.scorer)
    }

    async fn predict(&self, requests: &[&[u8]]) -> Result<Vec<Answer>, Failure> {
        in_halves(requests, async |part| self.call(part).await).await
    }
}

/// Scores requests by `call`. If it fails because of a request in it, each half is called again.
///
/// # Errors
/// A failure that does not concern single requests.
pub async fn in_halves(
    requests: &[&[u8]],
    call: impl AsyncFn(&[&[u8]]) -> Result<Vec<PredictResponse>, Failure>,
) -> Result<Vec<Answer>, Failure> {
    let mut answers = Vec::with_capacity(requests.len());
    let mut parts = vec![requests];
    while let Some(part) = parts.pop() {
        match call(part).await {
            Ok(responses) => answers.extend(responses.into_iter().map(Ok)),
            Err(failure) if !concerns_a_request(&failure) => return Err(failure),
            Err(failure) if part.len() == 1 => answers.push(Err(failure)),
            Err(_) => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
        }
    }
    Ok(answers)
}

/// The responses in the answer to a batch.
///
/// # Panics
/// The answer is not an encoded `BatchPredictResponse`, as those of [`outrigger_features`] are.
pub fn decoded(answer: &AnswerOfBatch<'_>) -> Vec<PredictResponse> {
    let response = BatchPredictResponse::decode(answer.to_vec().as_slice());
    response.expect("what was written is a response").responses
}

/// True if a failure is that of a request, and says nothing about others.
pub fn concerns_a_request(failure: &Failure) -> bool {
    failure.reason.code() == Code::InvalidArgument
        || matches!(failure.reason, Reason::EngineFailed | Reason::ScoresInvalid)
}
