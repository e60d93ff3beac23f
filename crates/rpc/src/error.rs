//! Errors of connections and calls.

use std::{io, sync::Arc};

use http::StatusCode;
use outrigger_proto::raw::unary::Unreadable;
use tonic::Status;

/// The server could not be reached, or the connection broke.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransportError {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(#[source] Arc<io::Error>),
    /// An attempt to connect was not answered in time.
    #[error("connecting took too long")]
    ConnectTimeout,
    /// The server closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The server, or its host, hangs: it did not answer a ping.
    #[error("the server does not answer on the connection")]
    Silent,
    /// A connection of [`crate::HttpService`] failed.
    #[error("the connection failed: {0}")]
    Http(#[source] Arc<hyper::Error>),
    /// A connection of [`crate::Calls`], or one call on it, failed.
    #[error("the connection failed: {0}")]
    Http2(#[source] Arc<h2::Error>),
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Connect(Arc::new(error))
    }
}

impl From<hyper::Error> for TransportError {
    fn from(error: hyper::Error) -> Self {
        Self::Http(Arc::new(error))
    }
}

impl From<h2::Error> for TransportError {
    fn from(error: h2::Error) -> Self {
        Self::Http2(Arc::new(error))
    }
}

/// The failure of a unary call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no time left for the call; nothing was sent.
    #[error("the deadline has passed")]
    Deadline,
    /// The server could not be reached, or the connection broke.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The connection broke while the server had the call: its process may have ended.
    #[error(transparent)]
    Lost(TransportError),
    /// The server answered with an error.
    #[error("{0}")]
    Status(Status),
    /// The answer has no gRPC status. [`crate::status_of_http`] gives the status that gRPC
    /// derives from the HTTP status.
    #[error("the answer has no gRPC status, and HTTP status {0}")]
    NoStatus(StatusCode),
    /// The answer is not one gRPC message.
    #[error(transparent)]
    Framing(#[from] Unreadable),
}

/// The error of a call that was sent.
impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        match error.is_reset() {
            // Only this call ended.
            true => Self::Transport(error.into()),
            false => Self::Lost(error.into()),
        }
    }
}
