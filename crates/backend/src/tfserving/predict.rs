//! The way of a prediction.

use h2::{Reason, RecvStream};
use http::Response;
use outrigger_core::Tensor;
use outrigger_proto::raw::unary::PREFIX;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

use super::{
    Config, Endpoint, TransportError, answer,
    connection::InFlight,
    head::Head,
    http2::Predictions,
    remaining,
    transport::{ATTEMPTS, Transport},
    unavailable,
};
use crate::{
    Call, Error, metrics,
    wire::{Segments, decode_response, encoded_len, frame},
};

/// Bytes a request may have at most: a stream's body is sent as one piece, and
/// HTTP/2 counts what it may send in 31 bits.
const MOST: usize = i32::MAX as usize - PREFIX;

/// Makes predictions, as many at once as configured.
#[derive(Debug)]
pub(super) struct Predictor {
    transport: Transport<Predictions>,
    head: Head,
    room: Semaphore,
    max_message: usize,
}

impl Predictor {
    pub(super) fn new(endpoint: &Endpoint, config: &Config, runtimes: &[Handle]) -> Self {
        let transport = Transport::new(endpoint, config, config.connections, runtimes);
        Self {
            head: Head::new(transport.origin()),
            transport,
            room: Semaphore::new(config.max_in_flight.min(Semaphore::MAX_PERMITS)),
            max_message: config.max_message.min(MOST),
        }
    }

    /// Makes one prediction.
    pub(super) async fn run(&self, call: Call) -> Result<Vec<Tensor>, Error> {
        let deadline = call.deadline;
        let _place = self.place(deadline).await?;
        let answer = timeout_at(deadline, self.predict(call)).await;
        match answer.unwrap_or(Err(Error::DeadlineExceeded)) {
            // The engine was told the deadline, and may have given the call up by itself
            // before anybody here looked.
            Err(Error::Cancelled { .. }) if deadline <= Instant::now() => {
                Err(Error::DeadlineExceeded)
            }
            answer => answer,
        }
    }

    /// A place among the calls in flight, first come, first served. Requests come
    /// in bursts, and after a moment in which the machine did something else;
    /// how many of them wait is bounded where they come in.
    async fn place(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Error> {
        let place = timeout_at(deadline, self.room.acquire()).await;
        Ok(place.map_err(|_| Error::Overloaded)?.expect("never closed"))
    }

    async fn predict(&self, mut call: Call) -> Result<Vec<Tensor>, Error> {
        let (size, limit) = (encoded_len(&call), self.max_message);
        if size > limit {
            return Err(Error::TooLarge { size, limit });
        }
        let request = frame(&mut call, size);
        let (response, in_flight) = self.ask(request, &call).await?;
        in_flight.answered();
        let message = answer::read(response, call.target.servable(), limit).await?;
        Ok(decode_response(message, &call.outputs, limit)?)
    }

    /// Sends `request` and waits until the answer begins; again when the engine has
    /// certainly done nothing for it.
    ///
    /// Dropped before the answer is complete, it cancels the call.
    async fn ask(
        &self,
        request: Segments,
        call: &Call,
    ) -> Result<(Response<RecvStream>, InFlight), Error> {
        let mut failure = TransportError::Closed;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                metrics::retried();
            }
            let (mut sender, in_flight) = self.transport.open().await.map_err(unavailable)?;
            let head = self.head.within(remaining(call.deadline)?, &call.metadata);
            let Ok(response) = sender.send(head, request.clone()) else { continue };
            match response.await {
                Ok(response) => return Ok((response, in_flight)),
                Err(error) if is_untouched(&error) => failure = error.into(),
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(unavailable(failure))
    }
}

/// Whether the engine says that it has not begun with a request (RFC 9113, section 8.7):
/// it has refused its stream, or said farewell with a last stream before it, which alone
/// ends a stream with the peer's GOAWAY.
fn is_untouched(error: &h2::Error) -> bool {
    let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}
