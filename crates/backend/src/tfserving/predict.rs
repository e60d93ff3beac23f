//! The way of a prediction.

use h2::client::ResponseFuture;
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
        let (response, in_flight) = self.send(request, &call).await?;
        // Dropped before it is complete, the answer cancels the call.
        let response = response.await.map_err(unavailable)?;
        in_flight.answered();
        let message = answer::read(response, call.target.servable(), limit).await?;
        Ok(decode_response(message, &call.outputs, limit)?)
    }

    /// Sends `request`, on another connection when one broke before any of it
    /// left.
    async fn send(
        &self,
        request: Segments,
        call: &Call,
    ) -> Result<(ResponseFuture, InFlight), Error> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                metrics::retried();
            }
            let (mut sender, in_flight) = self.transport.open().await.map_err(unavailable)?;
            let head = self.head.within(remaining(call.deadline)?, &call.metadata);
            if let Ok((response, mut stream)) = sender.send(head) {
                stream.send_data(request, true).map_err(unavailable)?;
                return Ok((response, in_flight));
            }
        }
        Err(unavailable(TransportError::Closed))
    }
}
