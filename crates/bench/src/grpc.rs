//! gRPC over HTTP/2: unary calls on one connection.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use outrigger_rpc::{CallError, Calls, Http2, Settings, TransportError};
use tokio::runtime::Handle;

use crate::{
    failure::Failure,
    message::{Frames, Message},
    server::Server,
    stream,
};

/// The time for which calls wait for a lost connection: longer than any call's timeout.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A connection that is opened again whenever it is lost.
#[derive(Debug)]
pub(crate) struct Connection {
    calls: Calls<Bytes>,
    /// The largest frame of a request, bytes.
    frame: usize,
}

impl Connection {
    /// Connects, and reconnects until the value is dropped. Requests are sent in frames of
    /// `frame` bytes, or of fewer if the server accepts only smaller ones.
    ///
    /// # Errors
    /// The first attempt failed.
    pub(crate) async fn open(server: &Server, frame: usize) -> Result<Self, Failure> {
        let calls = Calls::new(server, &settings(), &[Handle::current()], Arc::new(()));
        calls.connected().await.map_err(|error| transport_failure(&error))?;
        Ok(Self { calls, frame })
    }

    /// Sends a request and returns its answer's message without the prefix. Waits while
    /// the connection is being opened again. A request that the server has not processed
    /// before it shut down is sent again on the next connection, as gRPC clients do.
    pub(crate) async fn call(&self, message: &Message) -> Result<Bytes, Failure> {
        let head = || Some(message.head.clone());
        let answer = self
            .calls
            .call_in_pieces(Frames::of(message.body.clone(), self.frame), usize::MAX, head)
            .await;
        answer.map_err(call_failure)
    }
}

fn settings() -> Settings {
    Settings {
        connections: 1,
        connect_timeout: stream::LIMIT,
        reconnect_window: FOREVER,
        first_retry: stream::RETRY,
        last_retry: stream::RETRY,
        confirm: true,
        http2: Http2 { stream_window: 4 << 20, ..Http2::default() },
    }
}

fn call_failure(error: CallError) -> Failure {
    match error {
        CallError::Transport(error) | CallError::Lost(error) => transport_failure(&error),
        CallError::Status(status) => Failure::of_status(&status),
        CallError::NoStatus(http::StatusCode::OK) => {
            Failure::invalid("an answer without grpc-status")
        }
        CallError::NoStatus(status) => Failure::of_http(status, b""),
        CallError::Framing(error) => Failure::invalid(error.to_string()),
        CallError::Deadline => Failure::timeout(),
    }
}

fn transport_failure(error: &TransportError) -> Failure {
    match error {
        TransportError::Connect(error) => Failure::lost(&**error),
        TransportError::ConnectTimeout => Failure::silence(stream::LIMIT),
        TransportError::Http2(error) if error.is_reset() => Failure::reset(&**error),
        TransportError::Http2(error) => Failure::lost(&**error),
        error => Failure::lost(error),
    }
}
