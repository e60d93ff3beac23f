//! Maps gRPC statuses to errors. The meaning of a code depends on its source (the transport or the
//! engine) and on the call (a prediction or a control call).

use std::error::Error as _;

use outrigger_core::{Reason, ServableId};
use outrigger_rpc::{CallError, TransportError, status_of_http};
use outrigger_run::RunError;
use tonic::{Code, Status};

use crate::ReloadError;

/// Maps the error of a prediction.
pub(super) fn of_call_error(error: CallError, servable: &ServableId) -> RunError {
    match error {
        CallError::Transport(error) | CallError::Lost(error) => RunError::Unavailable(error.into()),
        CallError::Status(status) => of_predict(&status, servable),
        CallError::NoStatus(status) => of_predict(&status_of_http(status), servable),
        CallError::Framing(error) => {
            RunError::Answer { reason: Reason::EngineFailed, source: error.into() }
        }
        CallError::Deadline => RunError::DeadlineExceeded,
    }
}

/// The start of TensorFlow Serving's message for a version that it does not serve
/// (`ServerCore::GetUntypedServableHandle`).
const NOT_SERVED: &str = "Servable not found for request";

/// TensorFlow Serving's messages for an overload of the engine: no free thread for the call, and
/// no turn in the batching queue in time.
const OVERLOADED: [&str; 2] =
    ["Server Threadpool Exhausted", "Run() timeout exceeded while waiting"];

/// Maps the status of a prediction. An operation of the model may fail with any code, so a code
/// that both use says which of them failed only together with the message.
fn of_predict(status: &Status, servable: &ServableId) -> RunError {
    if let Some(error) = transport(status) {
        return RunError::Unavailable(error.into());
    }
    let text = status.message();
    match status.code() {
        Code::NotFound if text.starts_with(NOT_SERVED) => {
            RunError::NotServed { servable: servable.clone() }
        }
        // The status is an answer, so the engine runs: its batching queue is full.
        Code::Unavailable => RunError::EngineOverloaded { message: message(status) },
        // gRPC's server sends no message when its threads are all in use.
        Code::ResourceExhausted
            if !text.is_empty() && !OVERLOADED.iter().any(|it| text.contains(it)) =>
        {
            RunError::Failed { code: code_name(status.code()), message: message(status) }
        }
        // An operation refuses the values of its inputs, such as an id that a table does not have. A
        // model that refuses all has not passed a first request.
        Code::InvalidArgument | Code::OutOfRange => {
            RunError::of_input(&format!("{}: {}", code_name(status.code()), message(status)))
        }
        _ => of_call(status),
    }
}

/// True if the failure of a prediction may be that of another request in its batch: all requests of
/// a batch get the error of the one that is at fault.
pub(crate) fn may_be_of_batch(error: &RunError) -> bool {
    let codes = [Code::FailedPrecondition, Code::Internal];
    let is_of = |code: &str| codes.iter().any(|each| code_name(*each) == code);
    match error {
        RunError::Refused { .. } => true,
        RunError::Failed { code, .. } => is_of(code),
        _ => false,
    }
}

/// Maps the status of a metadata call for one servable.
pub(super) fn of_metadata(status: &Status, servable: &ServableId) -> RunError {
    match status.code() {
        Code::NotFound if transport(status).is_none() => {
            RunError::NotServed { servable: servable.clone() }
        }
        _ => of_call(status),
    }
}

/// Maps the status of any other call.
pub(super) fn of_call(status: &Status) -> RunError {
    if let Some(error) = transport(status) {
        return RunError::Unavailable(error.into());
    }
    let message = message(status);
    match status.code() {
        Code::Unavailable => RunError::NotReady { message },
        Code::ResourceExhausted => RunError::EngineOverloaded { message },
        Code::DeadlineExceeded => RunError::DeadlineExceeded,
        Code::Cancelled => RunError::Cancelled { message },
        code => RunError::Failed { code: code_name(code), message },
    }
}

/// Maps the status of a reload.
pub(super) fn of_reload(status: &Status) -> ReloadError {
    match of_call(status) {
        RunError::DeadlineExceeded | RunError::Cancelled { .. } => ReloadError::Timeout,
        RunError::Failed { message, .. } => ReloadError::Refused { code: status.code(), message },
        error => ReloadError::Unavailable(error),
    }
}

/// The transport's error, if the transport failed and not the engine.
fn transport(status: &Status) -> Option<TransportError> {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<TransportError>() {
            return Some(error.clone());
        }
        cause = error.source();
    }
    None
}

fn code_name(code: Code) -> String {
    format!("{code:?}")
}

fn message(status: &Status) -> String {
    cut(status.message())
}

/// The engine's message, shortened: some models put pages of text there.
pub(super) fn cut(message: &str) -> String {
    const MOST: usize = 2048;
    message.chars().take(MOST).collect()
}
