//! Why a request failed, as it is counted.

use std::{borrow::Cow, io, time::Duration};

use http::StatusCode;
use outrigger_core::causes;
use serde_json::Value;
use tonic::Status;
use tonic_types::StatusExt as _;

/// A request that got no answer, or not the one it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Failure {
    /// The server's stable reason; without one, the name of the gRPC or HTTP
    /// status; or one of ours: `CLIENT_SATURATED`, `CLIENT_TIMEOUT`,
    /// `CONNECTION_LOST`, `ANSWER_INVALID`.
    pub reason: Cow<'static, str>,
    /// What more is known.
    pub message: String,
}

impl Failure {
    fn new(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    /// More requests were under way than the client keeps.
    pub(crate) fn saturated() -> Self {
        Self::new("CLIENT_SATURATED", "not sent: too many requests wait for their answers")
    }

    /// No answer came, though the client waited longer than it told the server.
    pub(crate) fn timeout() -> Self {
        Self::new("CLIENT_TIMEOUT", "no answer came in time")
    }

    /// The connection broke, or could not be made.
    pub(crate) fn lost(error: impl std::error::Error) -> Self {
        Self::new("CONNECTION_LOST", causes(&error))
    }

    /// A connection did not come about in time.
    pub(crate) fn silence(limit: Duration) -> Self {
        Self::new("CONNECTION_LOST", format!("it says nothing for {limit:?}"))
    }

    /// An answer that is none.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("ANSWER_INVALID", message)
    }

    /// The server, or this side, ended one request's stream alone.
    pub(crate) fn reset(error: impl std::error::Error) -> Self {
        Self::new("STREAM_RESET", error.to_string())
    }

    /// The failure that a gRPC status says.
    pub(crate) fn of_status(status: &Status) -> Self {
        let info = status.get_details_error_info();
        let reason = info.map_or_else(|| grpc_name(status), |info| info.reason);
        Self::new(reason, status.message())
    }

    /// The failure that an HTTP answer other than 200 tells.
    pub(crate) fn of_http(status: StatusCode, body: &[u8]) -> Self {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |key: &str| answer["error"][key].as_str().map(str::to_owned);
        let reason = text("reason").unwrap_or_else(|| format!("HTTP_{}", status.as_u16()));
        Self::new(reason, text("message").unwrap_or_default())
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
