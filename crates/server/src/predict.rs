//! The way of a prediction, whatever surface it came by: find the servable, pack
//! the tensors, ask the engine, write the answer.

use std::cell::OnceCell;

use axum::http::HeaderMap;
use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_canary::Outcome;
use outrigger_core::{Arm, Failure, ModelName, Reason, Selector, Tensor};
use outrigger_features::{Answer, Limits, Packed, Request, Routing, Sample, json};
use outrigger_lifecycle::{Answered, Handle, Lease};
use outrigger_proto::outrigger::v1::{
    self as wire, ExplainResponse, PredictResponse, ResponseOptions, ServedModel,
};
use outrigger_proto::raw::unary;
use outrigger_run as run;
use prost::Message as _;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    call::Call,
    failure,
    limits::Limit,
    metrics::{self, Stage},
    routing::{self, BatchRouting},
    trial::{Attempts, Terms},
};

/// The name of spans of the engine's work.
const ENGINE_PREDICT: &str = "tensorflow.serving.PredictionService/Predict";

/// Answers predictions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Predictor {
    models: Handle,
    limits: Limits,
    /// How many calls one model may have at once.
    per_model: Limit<ModelName>,
    /// From here on nothing new is loaded.
    closing: CancellationToken,
}

impl Predictor {
    pub(crate) fn new(
        models: Handle,
        limits: Limits,
        per_model: Limit<ModelName>,
        closing: CancellationToken,
    ) -> Self {
        Self { models, limits, per_model, closing }
    }

    /// Scores one user's treatments: an encoded `PredictRequest` gives a framed
    /// `PredictResponse`. `named` is the model's name as given beside the request.
    ///
    /// A request that nobody asks for again goes as soon as it is packed: key-value maps take
    /// ten times the memory of their tensors, and in a moment in which the engine is behind,
    /// getting that from the kernel costs more than reading them does.
    ///
    /// # Errors
    /// Whatever the request, the model or the engine is at fault for.
    pub(crate) async fn predict(
        &self,
        call: &Call,
        request: Bytes,
        named: Option<&[u8]>,
    ) -> Result<Bytes, Failure> {
        // Before the model is waited for: nobody waits for what is refused anyway.
        let parts = Request::read(&request, &self.limits)?;
        let lease = self.lease(call, parts.routing(), named).await?.sampled();
        let mut attempts = Attempts::new(call, lease);
        let mut packed = pack(call, attempts.lease(), &parts);
        if !attempts.lease().needs_request() {
            drop(parts);
            drop(request);
            return self.predict_with(call, &attempts, packed, None).await;
        }
        loop {
            let result = self.predict_with(call, &attempts, packed, Some(&request)).await;
            if let Some(result) = attempts.settle(result) {
                return result;
            }
            packed = pack(call, attempts.lease(), &parts);
        }
    }

    async fn predict_with(
        &self,
        call: &Call,
        attempts: &Attempts<'_>,
        packed: Result<Packed, Failure>,
        request: Option<&Bytes>,
    ) -> Result<Bytes, Failure> {
        let (lease, terms) = (attempts.lease(), attempts.terms());
        self.scored(call, attempts, packed?, request, |packed, outputs| {
            let (model, degraded) = (encoded(lease), terms.degraded());
            Ok(framed(&lease.plan.answer(packed, outputs, &model)?.degraded(&degraded)))
        })
        .await
    }

    /// Scores many users in one call of the engine: an encoded
    /// `BatchPredictRequest` gives a framed `BatchPredictResponse`.
    ///
    /// # Errors
    /// As [`Self::predict`], naming the request at fault.
    pub(crate) async fn batch(
        &self,
        call: &Call,
        request: &Bytes,
        named: Option<&[u8]>,
    ) -> Result<Bytes, Failure> {
        // Before the model is waited for: nobody waits for what is refused anyway.
        let requests = outrigger_features::requests(request, &self.limits)?;
        let BatchRouting { model, request_id, options } = routing::read(request)?;
        let options: ResponseOptions =
            options.as_ref().map(routing::read).transpose()?.unwrap_or_default();
        // One engine call answers all users, so one key must stand for them: the first
        // one's. What is wrong with that request is told when all are read.
        let first = requests.first().and_then(|first| outrigger_features::routing_key(first));
        let routing_key = first.unwrap_or_default();
        let routing = Routing { model: model.as_ref(), request_id: &request_id, routing_key };
        let lease = self.lease(call, routing, named).await?;
        let mut attempts = Attempts::new(call, lease);
        loop {
            let result = self.batch_with(call, &attempts, &request_id, &requests, &options).await;
            if let Some(result) = attempts.settle(result) {
                return result;
            }
        }
    }

    async fn batch_with(
        &self,
        call: &Call,
        attempts: &Attempts<'_>,
        id: &str,
        requests: &[&[u8]],
        options: &ResponseOptions,
    ) -> Result<Bytes, Failure> {
        let (lease, terms) = (attempts.lease(), attempts.terms());
        let pack = || lease.plan.pack_batch(requests, options, &self.limits);
        let packed = timed(call, Stage::Decode, pack)?;
        self.scored(call, attempts, packed, None, |packed, outputs| {
            let (model, degraded) = (encoded(lease), terms.degraded());
            let answer = lease.plan.answer_batch(packed, outputs, &model, id)?;
            Ok(framed(&answer.degraded(&degraded)))
        })
        .await
    }

    /// The tensors that an encoded `PredictRequest` becomes, as a framed
    /// `ExplainResponse`.
    ///
    /// # Errors
    /// As [`Self::predict`], without the engine's.
    pub(crate) async fn explain(
        &self,
        call: &Call,
        request: &Bytes,
        named: Option<&[u8]>,
    ) -> Result<Bytes, Failure> {
        let parts = Request::read(request, &self.limits)?;
        // The first prediction for a routing key is still to come.
        let looking = Self { models: self.models.uncounted(), ..self.clone() };
        let lease = looking.lease(call, parts.routing(), named).await?;
        let explain = || lease.plan.explain(&[request], &self.limits);
        let explained = timed(call, Stage::Decode, explain)?;
        let response = ExplainResponse { model: Some(served(&lease)), ..only(explained)? };
        Ok(unary::framed(&response.encode_to_vec()))
    }

    /// [`Self::predict`] for the HTTP form: JSON typed by the model's metadata.
    ///
    /// # Errors
    /// As [`Self::predict`].
    pub(crate) async fn predict_json(&self, call: &Call, body: &[u8]) -> Result<Value, Failure> {
        let json::Routing { model, request_id, routing_key } = &json::selector(body)?;
        let routing = Routing { model: Some(model), request_id, routing_key };
        let lease = self.lease(call, routing, None).await?.sampled();
        let mut attempts = Attempts::new(call, lease);
        loop {
            let result = self.predict_json_with(call, &attempts, body).await;
            if let Some(result) = attempts.settle(result) {
                return result;
            }
        }
    }

    async fn predict_json_with(
        &self,
        call: &Call,
        attempts: &Attempts<'_>,
        body: &[u8],
    ) -> Result<Value, Failure> {
        let lease = attempts.lease();
        let encoded = OnceCell::new();
        let packed = timed(call, Stage::Decode, || {
            let request = json::encode_request(&lease.plan, body)?;
            let encoded = encoded.get_or_init(|| Bytes::from(request));
            lease.plan.pack_request(&Request::read(encoded, &self.limits)?)
        })?;
        self.scored(call, attempts, packed, encoded.get(), |packed, outputs| {
            let (model, degraded) = (Some(served(lease)), attempts.terms().degraded.clone());
            let response = lease.plan.response(packed, outputs)?;
            let response = PredictResponse { model, degraded, ..response };
            Ok(json::predict_response(&lease.plan, &response))
        })
        .await
    }

    /// The servable that a request means, once it is there.
    async fn lease(
        &self,
        call: &Call,
        routing: Routing<'_>,
        named: Option<&[u8]>,
    ) -> Result<Lease, Failure> {
        call.asked_as(routing.request_id);
        let (model, selector) = routing::target(routing.model, &self.models)?;
        routing::agree(named, &model)?;
        call.count_for_model(self.per_model.enter(|| model.clone())?);
        self.acquire(call, &model, &selector, routing.routing_key).await
    }

    async fn acquire(
        &self,
        call: &Call,
        model: &ModelName,
        selector: &Selector,
        routing_key: &str,
    ) -> Result<Lease, Failure> {
        let (span, start) = (call.stage(Stage::Queue), Instant::now());
        let lease = match self.models.try_acquire(model, selector, routing_key) {
            Some(found) => found,
            None if self.closing.is_cancelled() => Err(failure::stopping()),
            None => {
                let wait = self.models.acquire(model, selector, routing_key, call.deadline());
                call.wait_for(wait).await
            }
        };
        span.end(&lease);
        let lease = lease?;
        call.served_by(&lease);
        metrics::stage(Stage::Queue, &call.served_as(), start.elapsed());
        Ok(lease)
    }

    /// Runs the model on what was packed and has the answer written down. `request`
    /// is what was packed, if it is a single one and still there.
    async fn scored<T>(
        &self,
        call: &Call,
        attempts: &Attempts<'_>,
        mut packed: Packed,
        request: Option<&Bytes>,
        answer: impl FnOnce(&Packed, &[Tensor]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let lease = attempts.lease();
        let outputs = run(call, lease, attempts.terms(), &mut packed).await?;
        sample(call, lease, &packed, &outputs);
        if lease.is_exposure() {
            lease.drawn(lease.plan.propensity(&packed, &outputs));
        }
        let answer = timed(call, Stage::Encode, || answer(&packed, &outputs))?;
        if let Some(request) = request {
            let (limits, packed, outputs) = (&self.limits, &packed, &outputs);
            lease.answered(&Answered { request, limits, packed, outputs });
        }
        Ok(answer)
    }
}

/// The tensors of a request, for what `lease` is on.
fn pack(call: &Call, lease: &Lease, request: &Request<'_>) -> Result<Packed, Failure> {
    timed(call, Stage::Decode, || lease.plan.pack_request(request))
}

/// Runs the model, unless there is nothing to compute. Takes the tensors.
async fn run(
    call: &Call,
    lease: &Lease,
    terms: &Terms,
    packed: &mut Packed,
) -> Result<Vec<Tensor>, Failure> {
    let by = call.served_as();
    metrics::packed(&by, packed.users.iter().map(|user| user.kept()), &packed.counts);
    if !packed.needs_engine() {
        return Ok(Vec::new());
    }
    let mut wanted = lease.plan.output_names(packed);
    if lease.is_exposure() {
        wanted.extend(lease.plan.propensity_tensor().filter(|it| !wanted.contains(it)).cloned());
    }
    let (mut span, start) = (call.request(ENGINE_PREDICT), Instant::now());
    let mut headers = HeaderMap::new();
    span.inject(&mut headers);
    if span.is_recorded() {
        span.set("rpc.system", "grpc");
        span.set("outrigger.servable", lease.id.to_string());
        span.set("outrigger.treatments", packed.treatments as i64);
    }
    let run = lease.run.run(run::Call {
        inputs: std::mem::take(&mut packed.tensors),
        outputs: wanted,
        deadline: terms.deadline,
        headers,
    });
    let outputs = run.await.map_err(|error| Failure::because(error.reason(), &error));
    span.end(&outputs);
    let outputs = outputs?;
    metrics::stage(Stage::Engine, &by, start.elapsed());
    Ok(outputs)
}

/// Notes what the scores are like: of each request one that is drawn, as they hang
/// together, and a thousand would cost more than their packing. Of what cannot be
/// read, the answer tells.
fn sample(call: &Call, lease: &Lease, packed: &Packed, outputs: &[Tensor]) {
    let Ok(sample) = lease.plan.sample(packed, outputs, rand::random()) else { return };
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

/// An answer with its prefix, written once.
fn framed(answer: &Answer<'_>) -> Bytes {
    let length = answer.encoded_len();
    let mut framed = BytesMut::with_capacity(unary::PREFIX + length);
    framed.put_slice(&unary::prefix(length));
    answer.encode(&mut framed);
    framed.freeze()
}

/// What answers, as callers are told.
pub(crate) fn served(lease: &Lease) -> ServedModel {
    let ServedModel { name, digest, platform_digest, .. } = described(lease);
    ServedModel { name, digest, platform_digest, ..chosen(lease) }
}

/// [`served`] in protobuf: what is the same in all answers is encoded once.
fn encoded(lease: &Lease) -> Vec<u8> {
    let same = lease.described.get_or_init(|| described(lease).encode_to_vec().into());
    let chosen = chosen(lease);
    let mut encoded = Vec::with_capacity(same.len() + chosen.encoded_len());
    encoded.extend_from_slice(same);
    chosen.encode(&mut encoded).expect("a vector grows");
    encoded
}

/// The servable, however it was chosen.
fn described(lease: &Lease) -> ServedModel {
    ServedModel {
        name: lease.key.name.to_string(),
        digest: lease.key.digest.to_string(),
        platform_digest: lease.platform_digest.to_string(),
        ..ServedModel::default()
    }
}

/// How it was chosen.
fn chosen(lease: &Lease) -> ServedModel {
    let arm = match lease.arm() {
        Arm::Live => wire::Arm::Live,
        Arm::Canary => wire::Arm::Canary,
        Arm::Pinned => wire::Arm::Pinned,
    };
    ServedModel {
        tag: lease.tag().map(ToString::to_string).unwrap_or_default(),
        arm: arm.into(),
        ..ServedModel::default()
    }
}

fn only<T>(mut all: Vec<T>) -> Result<T, Failure> {
    match (all.pop(), all.len()) {
        (Some(one), 0) => Ok(one),
        _ => Err(Failure::new(Reason::Internal, "one request gave other than one answer")),
    }
}

fn timed<T>(
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
