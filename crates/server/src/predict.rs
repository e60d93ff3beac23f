//! The path of every prediction, independent of its front: find the version, pack the tensors, run
//! the model, check the outputs and write the answer. If a canary fails, the live version repeats
//! it.

mod lease;

use std::time::Duration;

use axum::http::HeaderMap;
use outrigger_canary::Outcome;
use outrigger_core::{Failure, Tensor};
use outrigger_features::{Arrived, Limits, Packed, Sample};
use outrigger_lifecycle::{Answered, Handle, Lease, Load};
use outrigger_run::StageTimes;
use outrigger_score::{Conditions, Scorer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    call::Call,
    config::View,
    heavy::Heavy,
    metrics::{self, Latency, Stage},
    request_limits::RequestLimits,
    statistics::Statistics,
    trial::{Attempts, Terms},
};

/// A request in the format of a front, with the encoding of its answer.
pub(crate) trait Exchange {
    /// The type of the answer.
    type Answer;

    /// Packs the tensors of the request for the version of `scorer`.
    ///
    /// # Errors
    /// The request does not fit the model.
    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure>;

    /// The request of the user who stands for the call in statistics, if it has not been freed.
    fn request(&self) -> Option<Arrived>;

    /// The memory in bytes of the request that is still held when its tensors have been sent, beside
    /// its body.
    fn kept(&self) -> u64 {
        0
    }

    /// The metric of the run's latency under a name of the protocol.
    fn latency(&self) -> Option<Latency> {
        None
    }

    /// Checks the outputs and encodes the answer.
    ///
    /// # Errors
    /// The outputs do not match the model's metadata.
    fn answer(&self, scored: &Scored<'_>) -> Result<Self::Answer, Failure>;
}

/// A request that the model has scored.
pub(crate) struct Scored<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) terms: &'a Terms,
    pub(crate) packed: &'a Packed,
    pub(crate) outputs: &'a [Tensor],
}

/// Answers predictions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Predictor {
    models: Handle,
    limits: RequestLimits,
    heavy: Heavy,
    /// Cancelled when the server stops: from then on no model is loaded.
    closing: CancellationToken,
    /// The statistics of the Open Inference Protocol.
    statistics: Statistics,
}

impl Predictor {
    pub(crate) fn new(
        models: Handle,
        limits: RequestLimits,
        heavy: Heavy,
        closing: CancellationToken,
    ) -> Self {
        Self { models, limits, heavy, closing, statistics: Statistics::default() }
    }

    /// The models.
    pub(crate) fn models(&self) -> &Handle {
        &self.models
    }

    /// The statistics of the Open Inference Protocol.
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The view of a model in the Open Inference Protocol.
    pub(crate) fn view(&self, model: &str) -> View {
        self.limits.view(model)
    }

    /// The threads for heavy requests.
    pub(crate) fn heavy(&self) -> &Heavy {
        &self.heavy
    }

    /// The limits on a request's tensors.
    pub(crate) fn limits(&self) -> Limits {
        **self.limits.tensors.load()
    }

    /// True if predictions that do not give way are in progress, or were lately.
    pub(crate) fn has_others(&self) -> bool {
        self.limits.has_others()
    }

    /// Lets a call of low priority go on with its next piece; see [`RequestLimits::give_way_again`].
    ///
    /// # Errors
    /// `OVERLOADED`: others left no room until its deadline.
    pub(crate) async fn give_way_again(
        &self,
        call: &Call,
        load: &Load,
        patience: Duration,
    ) -> Result<Duration, Failure> {
        self.limits.give_way_again(call, load, patience).await
    }

    /// A predictor for requests that do not count as the first exposure of a routing key.
    pub(crate) fn uncounted(&self) -> Self {
        Self { models: self.models.uncounted(), ..self.clone() }
    }

    /// A predictor for requests that name a version, which take no part in trials.
    pub(crate) fn live(&self) -> Self {
        Self { models: self.models.live(), ..self.clone() }
    }

    /// Packs a request, and answers it.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub(crate) async fn exchange<E: Exchange>(
        &self,
        call: &Call,
        lease: Lease,
        mut exchange: E,
    ) -> Result<E::Answer, Failure> {
        let attempts = Attempts::new(call, lease);
        let packed = self.pack(call, attempts.lease(), &mut exchange);
        self.answer(call, attempts, packed, exchange).await
    }

    /// Packs the tensors of a request for the model of `lease`, and records the duration.
    ///
    /// # Errors
    /// The request does not fit the model.
    pub(crate) fn pack<E: Exchange>(
        &self,
        call: &Call,
        lease: &Lease,
        exchange: &mut E,
    ) -> Result<Packed, Failure> {
        let packed = timed(call, Stage::Decode, || exchange.pack(&lease.scorer));
        call.held().settle();
        packed
    }

    /// Answers a request that was `packed` for the first of the `attempts`. If a canary fails, the
    /// request is packed again for the live version. If the engine is lost during the run, the same
    /// tensors run again when the version is served again.
    ///
    /// # Errors
    /// The failure of the request, the model or the engine.
    pub(crate) async fn answer<E: Exchange>(
        &self,
        call: &Call,
        mut attempts: Attempts<'_>,
        mut packed: Result<Packed, Failure>,
        mut exchange: E,
    ) -> Result<E::Answer, Failure> {
        loop {
            let result = match &mut packed {
                Ok(packed) => self.score(call, &attempts, packed, &exchange).await,
                Err(failure) => Err(failure.clone()),
            };
            if let (Err(failure), Ok(packed)) = (&result, &packed)
                && !packed.tensors.is_empty()
                && attempts.may_wait()
            {
                attempts = attempts.again(&self.models, failure.clone()).await?;
                self.enter(call, attempts.lease()).await?;
                continue;
            }
            if let Some(result) = attempts.settle(result) {
                return result;
            }
            packed = self.pack(call, attempts.lease(), &mut exchange);
        }
    }

    /// Answers packed tensors once. The model's outputs are charged before the run, and until the
    /// answer is encoded.
    async fn score<E: Exchange>(
        &self,
        call: &Call,
        attempts: &Attempts<'_>,
        packed: &mut Packed,
        exchange: &E,
    ) -> Result<E::Answer, Failure> {
        let to_come = attempts.lease().scorer.plan.outputs_to_come(packed);
        call.charge_outputs(to_come).inspect_err(|_| {
            // It is not to run again later, as if its engine had been lost.
            packed.tensors = Vec::new();
        })?;
        let answer = self.run_and_encode(call, attempts, packed, exchange).await;
        call.release_outputs();
        answer
    }

    /// Runs the model on the packed tensors, checks its outputs and encodes the answer.
    async fn run_and_encode<E: Exchange>(
        &self,
        call: &Call,
        attempts: &Attempts<'_>,
        packed: &mut Packed,
        exchange: &E,
    ) -> Result<E::Answer, Failure> {
        let (lease, terms) = (attempts.lease(), attempts.terms());
        let latency = exchange.latency();
        let stages = latency.map(|_| StageTimes::recorded()).unwrap_or_default();
        let start = Instant::now();
        let outputs = run(call, lease, terms, packed, &stages).await;
        if call.is_low() {
            lease.load.ran_beside(start.elapsed());
        }
        let outputs = outputs?;
        if let Some(latency) = latency {
            latency.record_run(&call.served_as(), start.elapsed(), &stages);
        }
        let packed = &*packed;
        sent(call, exchange);
        call.charge_outputs(lease.scorer.plan.outputs_memory(packed, &outputs))?;
        sample(call, lease, packed, &outputs);
        lease.drawn(|user| lease.scorer.plan.propensity(packed, &outputs, user));
        let scored = Scored { lease, terms, packed, outputs: &outputs };
        let answer = timed(call, Stage::Encode, || exchange.answer(&scored))?;
        if lease.takes_request()
            && let Some(request) = exchange.request()
        {
            let (outputs, user) = (&*outputs, lease.user());
            lease.answered(&Answered { request: &request, packed, outputs, user });
        }
        Ok(answer)
    }
}

/// Reduces the charge for a request whose tensors have been sent.
pub(crate) fn sent(call: &Call, exchange: &impl Exchange) {
    call.keep_work(exchange.kept());
}

/// Runs the model on the tensors, which it takes out of `packed`, and records the run. The model
/// reports the times of its stages in `stages`.
async fn run(
    call: &Call,
    lease: &Lease,
    terms: &Terms,
    packed: &mut Packed,
    stages: &StageTimes,
) -> Result<Vec<Tensor>, Failure> {
    let by = call.served_as();
    metrics::packed(&by, packed.users.iter().map(|user| user.kept()), &packed.counts);
    let begin = |packed: &Packed, headers: &mut HeaderMap| {
        let (mut span, start) = (call.request(Stage::Engine), Instant::now());
        span.inject(headers);
        if span.is_recorded() {
            span.set("outrigger.engine", lease.engine.to_string());
            span.set("outrigger.servable", lease.scorer.id.to_string());
            span.set("outrigger.treatments", packed.treatments as i64);
        }
        move |outputs: &Result<_, Failure>| {
            span.end(outputs);
            if outputs.is_ok() {
                metrics::stage(Stage::Engine, &by, start.elapsed());
            }
        }
    };
    let (deadline, propensity) = (terms.deadline, lease.is_exposure());
    let conditions = Conditions { deadline, propensity, stages: stages.clone() };
    lease.scorer.score_observed(packed, conditions, begin).await
}

/// Samples one random score per request for the metrics: scores of one request are
/// correlated, and recording a thousand would cost more than packing them. Outputs that
/// cannot be read are reported by the answer.
fn sample(call: &Call, lease: &Lease, packed: &Packed, outputs: &[Tensor]) {
    let plan = &lease.scorer.plan;
    let Ok(sample) = plan.sample(packed, outputs, lease.user(), rand::random()) else { return };
    if let Sample::Score(score) = sample {
        metrics::score(&call.served_as(), score.into());
    }
    if !lease.is_counted() {
        return;
    }
    call.sample(match sample {
        Sample::Score(score) => Outcome::of_score(score.into()),
        Sample::NotFinite => Outcome::NonFinite,
        Sample::Nothing => Outcome::Empty,
    });
}

/// Runs the work of a stage, and records its duration and its span.
pub(crate) fn timed<T>(
    call: &Call,
    stage: Stage,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (span, start) = (call.stage(stage), Instant::now());
    let result = work();
    metrics::stage(stage, &call.served_as(), start.elapsed());
    span.end(&result);
    result
}
