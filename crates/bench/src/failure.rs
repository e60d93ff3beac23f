//! Failures of requests, with the reason under which they are counted.

use std::{borrow::Cow, io, time::Duration};

use http::StatusCode;
use outrigger_core::causes;
use outrigger_oip::message;
use serde_json::Value;
use tonic::Status;
use tonic_types::StatusExt as _;

/// A request without an answer, or with an invalid one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Failure {
    /// The server's stable reason; without one, the name of the gRPC or HTTP status; or
    /// one of the client's own: `CLIENT_SATURATED`, `CLIENT_TIMEOUT`, `CONNECTION_LOST`,
    /// `ANSWER_INVALID`.
    pub reason: Cow<'static, str>,
    /// Details.
    pub message: String,
}

impl Failure {
    fn new(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    /// The limit of requests in flight was reached.
    pub(crate) fn saturated() -> Self {
        Self::new("CLIENT_SATURATED", "not sent: too many requests wait for their answers")
    }

    /// No answer arrived, although the client waited longer than the server's timeout.
    pub(crate) fn timeout() -> Self {
        Self::new("CLIENT_TIMEOUT", "no answer came in time")
    }

    /// The connection broke or could not be opened.
    pub(crate) fn lost(error: impl std::error::Error) -> Self {
        Self::new("CONNECTION_LOST", causes(&error))
    }

    /// Opening a connection took too long.
    pub(crate) fn silence(limit: Duration) -> Self {
        Self::new("CONNECTION_LOST", format!("no reply within {limit:?}"))
    }

    /// The answer is not valid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("ANSWER_INVALID", message)
    }

    /// The server or the client has reset the request's stream, not the connection.
    pub(crate) fn reset(error: impl std::error::Error) -> Self {
        Self::new("STREAM_RESET", error.to_string())
    }

    /// The failure of a gRPC status other than OK.
    pub(crate) fn of_status(status: &Status) -> Self {
        let info = status.get_details_error_info();
        let reason = info.map_or_else(|| grpc_name(status), |info| info.reason);
        Self::new(reason, status.message())
    }

    /// The failure of an HTTP answer with a status other than 200.
    pub(crate) fn of_http(status: StatusCode, body: &[u8]) -> Self {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        // The Open Inference Protocol has the message in `error`.
        let reason = answer["error"]["reason"].as_str().or_else(|| answer["reason"].as_str());
        let reason = reason.map_or_else(|| format!("HTTP_{}", status.as_u16()), str::to_owned);
        let message = if body.is_empty() { String::new() } else { message::of_body(body) };
        Self::new(reason, message)
    }
}

/// The name of a status, as gRPC's documentation spells it.
fn grpc_name(status: &Status) -> String {
    let mut name = String::new();
    for letter in format!("{:?}", status.code()).chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::lost(error)
    }
}
