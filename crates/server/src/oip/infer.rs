//! Answers inference requests, in the view of the model.

use std::time::Duration;

use outrigger_core::{Failure, Reason};
use outrigger_features::Routing;
use outrigger_net::timeout_at;
use outrigger_oip::{InferRequest, InferResponse};
use tokio::time::Instant;

use super::{rows::Rows, tensors::Tensors, version::Target};
use crate::{call::Call, config::View, predict::Predictor, statistics::Observed};

/// The parameter with the time that the caller waits, in microseconds.
const TIMEOUT: &str = "timeout";
/// The parameter with the key that decides the arm of a canary.
const ROUTING_KEY: &str = "routing_key";

/// A request with what is known beside it.
pub(super) struct Asked<'a> {
    pub(super) target: Target<'a>,
    pub(super) request: InferRequest,
    /// The memory in bytes that the request takes beside its body.
    pub(super) memory: u64,
    /// The model's name in the metadata, for proxies that route by it.
    pub(super) named: Option<&'a [u8]>,
}

/// Answers a request.
///
/// # Errors
/// The failure of the request, the model or the engine; `DEADLINE` after the time of the parameter
/// `timeout`.
pub(super) async fn infer(
    predictor: &Predictor,
    call: &Call,
    asked: Asked<'_>,
) -> Result<InferResponse, Failure> {
    let timeout = asked.request.parameters.count(TIMEOUT)?.filter(|micros| *micros > 0);
    let by = timeout.and_then(|micros| call.started().checked_add(Duration::from_micros(micros)));
    let answered = answered(predictor, call, asked);
    match by.filter(|by| *by < call.deadline()) {
        None => answered.await,
        Some(by) => timeout_at(by, answered).await.unwrap_or_else(|_| {
            Err(Failure::new(Reason::Deadline, "the request's timeout passed"))
        }),
    }
}

async fn answered(
    predictor: &Predictor,
    call: &Call,
    asked: Asked<'_>,
) -> Result<InferResponse, Failure> {
    let Asked { target, request, memory, named } = asked;
    let selector = target.selector();
    let routing = Routing {
        model: Some(&selector),
        request_id: request.id.as_deref().unwrap_or_default(),
        routing_key: request.parameters.text(ROUTING_KEY)?.unwrap_or_default(),
    };
    let started = Instant::now();
    let lease = match target.has_version() {
        false => predictor.lease(call, routing, named).await?,
        true => predictor.live().lease(call, routing, named).await?,
    };
    let lease = lease.sampled();
    let observed = Observed::begin(predictor.statistics(), predictor.models(), &lease, started);
    let result = match predictor.view(target.model) {
        View::Tensors => {
            let tensors = Tensors::new(call, &observed, request, (memory, lease.needs_request()))?;
            predictor.exchange(call, lease, tensors).await
        }
        View::Features => {
            let rows = Rows::new(call, &observed, request, memory)?;
            match rows.empty(&lease)? {
                Some(empty) => Ok(empty),
                None => predictor.exchange(call, lease, rows).await,
            }
        }
    };
    observed.end(&result);
    result
}
