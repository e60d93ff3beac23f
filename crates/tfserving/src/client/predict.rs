//! The path of a prediction through the client.

use std::sync::Arc;

use http::Request;
use outrigger_core::Tensor;
use outrigger_proto::raw::unary::PREFIX;
use outrigger_rpc::{
    CallError, Calls, Endpoint, Head, NoPlace, Place, Places, Settings, metrics::Connections,
};
use outrigger_run::RunError;
use tokio::{runtime::Handle, time::timeout_at};

use super::{Config, remaining, status};
use crate::{
    Call,
    wire::{Segments, decode_response, encoded_len, frame},
};

const PATH: &str = "/tensorflow.serving.PredictionService/Predict";

/// The largest request in bytes: a stream's body is sent as one piece, and HTTP/2 counts its send
/// window in 31 bits.
const MOST: usize = i32::MAX as usize - PREFIX;

/// Makes predictions, up to the configured number at once.
#[derive(Debug)]
pub(super) struct Predictor {
    calls: Calls<Segments>,
    head: Head,
    places: Places,
    max_message: usize,
}

impl Predictor {
    pub(super) fn new(
        endpoint: &Endpoint,
        config: &Config,
        runtimes: &[Handle],
        observer: Arc<Connections>,
    ) -> Self {
        let settings = Settings { connections: config.connections, ..config.settings() };
        Self {
            calls: Calls::new(endpoint, &settings, runtimes, observer),
            head: Head::new(endpoint.origin(), PATH).with_overtime(),
            places: Places::new(config.max_in_flight),
            max_message: config.max_message.min(MOST),
        }
    }

    /// Makes one prediction. The call keeps its inputs if it may be made again.
    ///
    /// Requests come in bursts, so they wait for a place instead of failing at once; the server's
    /// limits on incoming requests bound the number that wait.
    pub(super) async fn run(&self, call: &mut Call) -> Result<Vec<Tensor>, RunError> {
        let deadline = call.deadline;
        let place = call.target.share(&self.places).enter(deadline).await;
        let place = place.map_err(|error| match error {
            NoPlace::GivenUp(calls) => RunError::GivenUp(calls),
            NoPlace::Late => RunError::Overloaded,
        })?;
        let answer = timeout_at(deadline, self.predict(call, place)).await;
        answer.unwrap_or(Err(RunError::DeadlineExceeded))
    }

    async fn predict(&self, call: &mut Call, place: Place) -> Result<Vec<Tensor>, RunError> {
        let (size, limit) = (encoded_len(call), self.max_message);
        if size > limit {
            return Err(RunError::TooLarge { size, limit });
        }
        let request = frame(call, size);
        let answer = self.calls.call_in(place, request, limit, || self.head(call)).await;
        match answer {
            Ok(message) => Ok(decode_response(message, &call.outputs, limit)?),
            Err(CallError::Lost(error)) => {
                let inputs = std::mem::take(&mut call.inputs);
                Err(RunError::Lost { inputs, source: error.into() })
            }
            Err(error) => Err(status::of_call_error(error, call.target.servable())),
        }
    }

    /// The head of a request that is sent now; `None` after the deadline.
    fn head(&self, call: &Call) -> Option<Request<()>> {
        let left = remaining(call.deadline).ok()?;
        Some(self.head.within(left, &call.metadata))
    }
}
