//! Answers inference requests, in the view of the model.

use std::time::Duration;

use bytes::Bytes;
use outrigger_core::{Failure, Reason};
use outrigger_features::Routing;
use outrigger_lifecycle::Lease;
use outrigger_net::timeout_at;
use outrigger_oip::{InferRequest, InferResponse, Parameters, rest::raw_request};
use tokio::time::Instant;

use super::{pieces::Pieces, rows::Rows, tensors::Tensors, version::Target};
use crate::{call::Call, config::View, predict::Predictor, statistics::Observed};

/// The parameter with the time that the caller waits, in microseconds.
const TIMEOUT: &str = "timeout";
/// The parameter with the key that decides the arm of a canary.
const ROUTING_KEY: &str = "routing_key";

/// A request with what is known beside it.
pub(super) struct Asked<'a> {
    pub(super) target: Target<'a>,
    pub(super) content: Content,
    /// The memory in bytes that the request takes beside its body.
    pub(super) memory: u64,
    /// The model's name in the metadata, for proxies that route by it.
    pub(super) named: Option<&'a [u8]>,
}

/// The content of a request.
pub(super) enum Content {
    /// Inputs and parameters.
    Request(InferRequest),
    /// The data of the model's only input.
    Raw(Bytes),
}

impl Content {
    fn id(&self) -> &str {
        match self {
            Self::Request(request) => request.id.as_deref().unwrap_or_default(),
            Self::Raw(_) => "",
        }
    }

    fn parameters(&self) -> Option<&Parameters> {
        match self {
            Self::Request(request) => Some(&request.parameters),
            Self::Raw(_) => None,
        }
    }

    /// The request for the model of `lease` in this view.
    fn into_request(self, lease: &Lease, view: View) -> Result<InferRequest, Failure> {
        let body = match self {
            Self::Request(request) => return Ok(request),
            Self::Raw(body) => body,
        };
        match (view, lease.scorer.plan.raw()) {
            (View::Tensors, Some(raw)) => Ok(raw_request(body, raw.interface())?),
            _ => {
                let message = "the body is the data of one input, but the model takes features";
                Err(Failure::new(Reason::RequestMalformed, message))
            }
        }
    }
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
    let parameters = asked.content.parameters();
    let timeout = parameters.map(|it| it.count(TIMEOUT)).transpose()?.flatten();
    let timeout = timeout.filter(|micros| *micros > 0);
    let by = timeout.and_then(|micros| call.started().checked_add(Duration::from_micros(micros)));
    let answered = answered(predictor, call, asked);
    match by.filter(|by| *by < call.deadline()) {
        None => answered.await,
        Some(by) => {
            call.ends_sooner(by);
            timeout_at(by, answered).await.unwrap_or_else(|_| {
                Err(Failure::new(Reason::Deadline, "the request's timeout passed"))
            })
        }
    }
}

async fn answered(
    predictor: &Predictor,
    call: &Call,
    asked: Asked<'_>,
) -> Result<InferResponse, Failure> {
    let Asked { target, content, memory, named } = asked;
    let selector = target.selector();
    let routing_key = content.parameters().map(|it| it.text(ROUTING_KEY)).transpose()?.flatten();
    let routing = Routing {
        model: Some(&selector),
        request_id: content.id(),
        routing_key: routing_key.unwrap_or_default(),
    };
    let started = Instant::now();
    let lease = match target.has_version() {
        false => predictor.lease(call, routing, named).await?,
        true => predictor.live().lease(call, routing, named).await?,
    };
    let lease = lease.sampled();
    let view = predictor.view(target.model);
    let request = content.into_request(&lease, view)?;
    let observed = Observed::begin(predictor.statistics(), predictor.models(), &lease, started);
    let result = match view {
        View::Tensors => {
            let tensors = Tensors::new(call, &observed, request, (memory, lease.needs_request()))?;
            predictor.exchange(call, lease, tensors).await
        }
        View::Features => {
            let pieces = Pieces::of(predictor, call, &lease, &request);
            let rows = Rows::new(call, &observed, request, memory)?;
            match (rows.empty(&lease)?, pieces) {
                (Some(empty), _) => Ok(empty),
                (None, None) => predictor.exchange(call, lease, rows).await,
                (None, Some(pieces)) => {
                    pieces.answer((predictor, call, &observed), &lease, rows, memory).await
                }
            }
        }
    };
    observed.end(&result);
    result
}
