//! Unary calls on h2's streams.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::runtime::Handle;

use crate::{
    CallError, Dial, Observer, Settings, TransportError, answer,
    connection::InFlight,
    http2::Requests,
    pool::{ATTEMPTS, Pool},
};

/// Makes unary calls whose messages are `B`. Dropping it closes its connections.
#[derive(Debug)]
pub struct Calls<B: Buf>(Pool<Requests<B>>);

impl<B: Buf + Clone + Send + Sync + 'static> Calls<B> {
    /// Connections that are made with the first call, and driven by `runtimes`, of which there
    /// is at least one. A call that is made on one of them goes out on a connection of that one.
    pub fn new(
        dial: &impl Dial,
        settings: &Settings,
        runtimes: &[Handle],
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self(Pool::new(dial, settings, runtimes, observer))
    }

    /// Waits until the first attempt of each connection has ended.
    ///
    /// # Errors
    /// One of them failed.
    pub async fn connected(&self) -> Result<(), TransportError> {
        self.0.connected().await
    }

    /// Sends `message` with its prefix, and gives the answer's message, of at most `limit`
    /// bytes. Makes the call again when the server has certainly not begun with it.
    ///
    /// `head` gives the request's head at the moment it is sent; `None` when there is no time
    /// left. A call that is dropped before it has ended is cancelled.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        message: B,
        limit: usize,
        head: impl Fn() -> Option<Request<()>>,
    ) -> Result<Bytes, CallError> {
        let (response, in_flight) = self.ask(message, head).await?;
        in_flight.answered();
        answer::read(response, limit).await
    }

    /// Waits until the answer begins.
    async fn ask(
        &self,
        message: B,
        head: impl Fn() -> Option<Request<()>>,
    ) -> Result<(Response<RecvStream>, InFlight), CallError> {
        let mut failure = TransportError::Closed;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.0.retried();
            }
            let (mut sender, in_flight) = self.0.open().await?;
            let head = head().ok_or(CallError::Deadline)?;
            let Ok(response) = sender.send(head, message.clone()) else { continue };
            match response.await {
                Ok(response) => return Ok((response, in_flight)),
                Err(error) if is_untouched(&error) => failure = error.into(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(failure.into())
    }
}

/// Whether the server says that it has not begun with a request (RFC 9113, section 8.7): it has
/// refused its stream, or sent a GOAWAY with a last stream before it. A stream that ends with
/// the peer's GOAWAY is always one after the last stream.
fn is_untouched(error: &h2::Error) -> bool {
    let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}

#[cfg(test)]
mod tests;
