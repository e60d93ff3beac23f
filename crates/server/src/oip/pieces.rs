//! Tables of low priority run in pieces while others call, because a model is not interrupted: a
//! request that arrives meanwhile waits for the rest of a piece, and not for the rest of the table.
//!
//! The rows of a piece are chosen so that it takes a part of what other requests usually take. Only
//! tables whose rows are users of their own are split, and none that takes part in a trial, which
//! counts calls.

use std::time::Duration;

use outrigger_core::{Code, Failure, Reason};
use outrigger_lifecycle::{Lease, Load};
use outrigger_oip::{InferRequest, InferResponse, Tensor};
use tokio::time::Instant;

use super::rows::{GROUP_BY, Rows};
use crate::{call::Call, predict::Predictor, spare::YIELD, statistics::Observed};

/// The rows of the first piece.
const FIRST: usize = 16;
/// A piece takes this part of the usual duration of other requests for the version.
const PART: u32 = 8;
/// The duration of a piece if nothing is known about other requests for the version, which are then
/// for other versions.
const UNKNOWN: Duration = Duration::from_millis(1);
/// The least and the greatest duration of a piece. Less would be the cost of a call to an engine.
const DURATION: (Duration, Duration) = (Duration::from_micros(250), Duration::from_millis(10));

/// A request whose rows may be taken off it.
pub(super) struct Pieces {
    rest: InferRequest,
    answered: Vec<InferResponse>,
}

impl Pieces {
    /// The pieces of a table that has to be split: others call, and `call` gives way to them. `None`
    /// for any other request.
    pub(super) fn of(
        predictor: &Predictor,
        call: &Call,
        lease: &Lease,
        request: &InferRequest,
    ) -> Option<Self> {
        if !call.is_low() || lease.is_tried() || request.parameters.get(GROUP_BY).is_some() {
            return None;
        }
        let rows = request.inputs.first().and_then(Tensor::rows)?;
        let is_table = request.inputs.iter().all(|input| input.rows() == Some(rows));
        let is_split = is_table && rows > FIRST && predictor.has_others();
        is_split.then(|| Self { rest: request.clone(), answered: Vec::new() })
    }

    /// Answers the request piece by piece. `whole` is all of it, which takes `memory` bytes beside its
    /// body.
    ///
    /// # Errors
    /// The failure of the request, the model or the engine; `OVERLOADED` if others left no room until
    /// the deadline.
    pub(super) async fn answer(
        mut self,
        (predictor, call, observed): (&Predictor, &Call, &Observed),
        lease: &Lease,
        mut whole: Rows<'_>,
        memory: u64,
    ) -> Result<InferResponse, Failure> {
        let rows = whole.check(&lease.scorer)?;
        let (mut size, mut patience) = (FIRST, YIELD);
        while self.rest.inputs.first().and_then(Tensor::rows) > Some(0) {
            if !self.answered.is_empty() {
                patience = predictor.give_way_again(call, &lease.load, patience).await?;
            }
            let piece = self.take(size);
            let held = memory + self.answered.iter().map(size_of_answer).sum::<u64>();
            let piece = Rows::new(call, observed, piece, held)?;
            let began = Instant::now();
            let answer = predictor.exchange(call, lease.clone(), piece).await;
            match answer {
                Ok(answer) => self.answered.push(answer),
                // Its place is that in the table, not that in the piece.
                Err(failure) if failure.reason.code() == Code::InvalidArgument => {
                    let packed = predictor.pack(call, lease, &mut whole);
                    return Err(packed.err().unwrap_or(failure));
                }
                Err(failure) => return Err(failure),
            }
            size = next(size, began.elapsed(), &lease.load);
        }
        observed.output(rows, || {
            call.charge_answer(2 * self.answered.iter().map(size_of_answer).sum::<u64>())?;
            self.join()
        })
    }

    /// The next piece, of at most `count` rows.
    fn take(&mut self, count: usize) -> InferRequest {
        let inputs = self.rest.inputs.iter_mut().map(|input| input.split_rows(count)).collect();
        let InferRequest { id, parameters, outputs, .. } = &self.rest;
        InferRequest {
            id: id.clone(),
            parameters: parameters.clone(),
            inputs,
            outputs: outputs.clone(),
        }
    }

    /// The answer to the whole request.
    fn join(self) -> Result<InferResponse, Failure> {
        let outputs = self.answered.first().map_or(0, |first| first.outputs.len());
        let joined = (0..outputs).map(|index| {
            let parts = self.answered.iter().map(|answer| answer.outputs.get(index));
            let parts: Option<Vec<_>> = parts.collect();
            parts.and_then(|parts| Tensor::joined(&parts))
        });
        let outputs = joined.collect::<Option<Vec<_>>>();
        let (outputs, first) = outputs.zip(self.answered.into_iter().next()).ok_or_else(|| {
            let message = "the outputs of a table's rows have different shapes";
            Failure::new(Reason::ScoresInvalid, message)
        })?;
        Ok(InferResponse { outputs, ..first })
    }
}

fn size_of_answer(answer: &InferResponse) -> u64 {
    answer.outputs.iter().map(|output| output.data.len() as u64).sum()
}

/// The rows of the next piece, after one of `size` rows took this long.
fn next(size: usize, took: Duration, load: &Load) -> usize {
    let (least, most) = DURATION;
    let wanted = load.usual().map_or(UNKNOWN, |usual| (usual / PART).clamp(least, most));
    let rows = size as u128 * wanted.as_nanos() / took.as_nanos().max(1);
    usize::try_from(rows).unwrap_or(usize::MAX).clamp((size / 4).max(1), size * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_takes_about_as_long_as_wanted() {
        let load = Load::default();
        assert_eq!(next(16, UNKNOWN, &load), 16);
        assert_eq!(next(16, UNKNOWN * 2, &load), 8);
        assert_eq!(next(16, UNKNOWN / 100, &load), 32, "it grows step by step");
        assert_eq!(next(16, UNKNOWN * 100, &load), 4);
        assert_eq!(next(1, UNKNOWN * 100, &load), 1);
        assert_eq!(next(16, Duration::ZERO, &load), 32);
    }
}
