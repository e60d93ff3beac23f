//! Messages and errors of single calls.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use outrigger_core::{Failure, Reason, Tensor};
use outrigger_oip::{Malformed, Tensor as WireTensor, grpc};
use outrigger_proto::{
    inference::{
        ModelInferResponse, ModelRepositoryParameter, model_repository_parameter::ParameterChoice,
    },
    raw::unary::PREFIX,
};
use outrigger_rpc::{CallError, Calls, Head, status_of_http};
use outrigger_run::RunError;
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use super::LoadError;

/// Parameters that are texts.
pub(super) fn parameters<const N: usize>(
    texts: [(&str, &str); N],
) -> BTreeMap<String, ModelRepositoryParameter> {
    let parameter = |text: &str| ModelRepositoryParameter {
        parameter_choice: Some(ParameterChoice::StringParam(text.to_owned())),
    };
    texts.into_iter().map(|(name, text)| (name.to_owned(), parameter(text))).collect()
}

/// Makes one call. The answer has at most `limit` bytes.
pub(super) async fn unary<A: Message + Default>(
    calls: &Calls<Bytes>,
    head: &Head,
    request: &impl Message,
    (deadline, headers): (Instant, &HeaderMap),
    limit: usize,
) -> Result<A, CallError> {
    let head = || Some(head.within(left(deadline)?, headers));
    let answer = timeout_at(deadline, calls.call(framed(request), limit, head)).await;
    decoded(answer.map_err(|_| CallError::Deadline)??)
}

/// A message with its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let size = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX + size);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
    message.encode(&mut framed).expect("the buffer grows");
    framed.freeze()
}

/// The time left until a deadline; `None` after it.
pub(super) fn left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// Decodes an answer.
pub(super) fn decoded<A: Message + Default>(answer: Bytes) -> Result<A, CallError> {
    A::decode(answer).map_err(|error| CallError::Status(Status::data_loss(error.to_string())))
}

/// The outputs called `wanted`, in that order; all if there are none.
pub(super) fn outputs(
    answer: ModelInferResponse,
    wanted: &[Arc<str>],
) -> Result<Vec<Tensor>, RunError> {
    let malformed = |error: Malformed| invalid(&error.to_string());
    let answer = grpc::read_response(answer).map_err(malformed)?;
    let mut outputs: Vec<_> = answer.outputs.into_iter().map(WireTensor::into_core).collect();
    if wanted.is_empty() {
        return Ok(outputs);
    }
    let take = |name: &Arc<str>| match outputs.iter().position(|output| output.name == *name) {
        Some(found) => Ok(outputs.swap_remove(found)),
        None => Err(invalid(&format!("the answer has no output {name}"))),
    };
    wanted.iter().map(take).collect()
}

/// The error of an answer that makes no sense.
pub(super) fn invalid(message: &str) -> RunError {
    RunError::Answer { reason: Reason::EngineFailed, source: message.into() }
}

/// The error of a failed call.
pub(super) fn of_call(error: CallError) -> RunError {
    match error {
        CallError::Transport(error) | CallError::Lost(error) => RunError::Unavailable(error.into()),
        CallError::Status(status) => of_status(&status),
        CallError::NoStatus(status) => of_status(&status_of_http(status)),
        CallError::Framing(error) => {
            RunError::Answer { reason: Reason::EngineFailed, source: error.into() }
        }
        CallError::Deadline => RunError::DeadlineExceeded,
    }
}

fn of_status(status: &Status) -> RunError {
    let message = shortened(status);
    match status.code() {
        Code::Unavailable => RunError::NotReady { message },
        Code::ResourceExhausted => RunError::EngineOverloaded { message },
        Code::DeadlineExceeded => RunError::DeadlineExceeded,
        Code::Cancelled => RunError::Cancelled { message },
        Code::InvalidArgument => RunError::of_input(&message),
        code => RunError::Failed { code: format!("{code:?}"), message },
    }
}

/// The error of a failed load.
pub(super) fn of_load(error: CallError) -> LoadError {
    let status = match error {
        CallError::Status(status) => status,
        error => return LoadError::CutOff(of_call(error)),
    };
    let reason = match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            return LoadError::CutOff(of_status(&status));
        }
        // Another attempt would end the same way.
        Code::InvalidArgument => Reason::ImageInvalid,
        _ => Reason::EngineFailed,
    };
    let message = format!("the engine could not load it: {}", shortened(&status));
    LoadError::Refused(Failure::new(reason, message))
}

/// The message of a status, of at most 1,000 characters.
fn shortened(status: &Status) -> String {
    status.message().chars().take(1000).collect()
}
