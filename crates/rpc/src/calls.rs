//! Unary calls on h2 streams.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::runtime::Handle;

use crate::{
    CallError, Dial, Held, Observer, Place, Room, Settings, TransportError, answer,
    connection::InFlight,
    http2::Requests,
    places::Kept,
    pool::{ATTEMPTS, Pool},
};

/// Makes unary calls whose messages are `B`. Dropping it closes its connections.
#[derive(Debug)]
pub struct Calls<B: Buf>(Pool<Requests<B>>);

impl<B: Buf + Clone + Send + Sync + 'static> Calls<B> {
    /// Creates connections driven by `runtimes`, which must not be empty; they are opened with the
    /// first call. A call made on one of the runtimes uses a connection of that runtime.
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
    /// If one of them failed.
    pub async fn connected(&self) -> Result<(), TransportError> {
        self.0.connected().await
    }

    /// Sends `message` with its prefix, and returns the answer's message, which fits into `room`.
    /// Repeats the call if the server has certainly not begun to process it.
    ///
    /// `head` returns the request's head at the moment of sending, or `None` if no time is
    /// left. A call that is dropped before its end is cancelled.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        message: B,
        room: impl Room,
        head: impl Fn() -> Option<Request<()>>,
    ) -> Result<Bytes, CallError> {
        self.call_in_pieces(std::iter::once(message), room, head).await
    }

    /// As [`Self::call`], in a place: a call that is dropped before its end is not cancelled, and keeps
    /// the place until the server has ended it, or its connection.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_in(
        &self,
        place: impl Held,
        message: B,
        room: impl Room,
        head: impl Fn() -> Option<Request<()>>,
    ) -> Result<Bytes, CallError> {
        self.make(std::iter::once(message), room, head, Some(place)).await
    }

    /// As [`Self::call`], with a message in pieces. Each piece is a frame of its own, or several if
    /// the server accepts only smaller ones.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_in_pieces(
        &self,
        message: impl Iterator<Item = B> + Clone,
        room: impl Room,
        head: impl Fn() -> Option<Request<()>>,
    ) -> Result<Bytes, CallError> {
        self.make(message, room, head, None::<Place>).await
    }

    async fn make(
        &self,
        message: impl Iterator<Item = B> + Clone,
        room: impl Room,
        head: impl Fn() -> Option<Request<()>>,
        mut place: Option<impl Held>,
    ) -> Result<Bytes, CallError> {
        let (response, in_flight) = self.ask(message, head, &mut place).await?;
        in_flight.answered();
        answer::read(response, room).await
    }

    /// Sends the request, and waits until the answer begins.
    async fn ask(
        &self,
        message: impl Iterator<Item = B> + Clone,
        head: impl Fn() -> Option<Request<()>>,
        place: &mut Option<impl Held>,
    ) -> Result<(Response<RecvStream>, InFlight), CallError> {
        let mut failure = TransportError::Closed;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.0.retried();
            }
            let (mut sender, in_flight) = self.0.open().await?;
            let head = head().ok_or(CallError::Deadline)?;
            let Ok(response) = sender.send(head, message.clone()) else { continue };
            let (response, in_flight) = match place.take() {
                None => (response.await, in_flight),
                Some(held) => {
                    let (response, (held, in_flight)) =
                        Kept::new(response, (held, in_flight)).await;
                    *place = Some(held);
                    (response, in_flight)
                }
            };
            match response {
                Ok(response) => return Ok((response, in_flight)),
                Err(error) if is_untouched(&error) => failure = error.into(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(failure.into())
    }
}

impl<H: Held> Held for (H, InFlight) {
    fn give_up(&mut self) {
        self.0.give_up();
    }
}

/// Whether the server has declared that it did not process a request (RFC 9113, section 8.7): it
/// refused the stream, or sent a GOAWAY with an earlier last stream. A stream that ends with the
/// peer's GOAWAY is always later than that last stream.
fn is_untouched(error: &h2::Error) -> bool {
    let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}

#[cfg(test)]
mod tests;
