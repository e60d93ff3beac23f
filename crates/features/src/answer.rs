//! The engine's output tensors become responses: checked, trimmed, ranked, and written
//! straight to the wire.
//!
//! A response is measured first and then written once, to a buffer of just its
//! size. No message is built in between; scores that are float32 are copied as
//! they stand.

mod best;
mod given;
mod memory;
mod output;
mod propensity;
mod rank;
mod raw;
mod response;
mod sample;
mod trim;

use bytes::BufMut;
use outrigger_core::{Failure, Reason, Tensor};
use outrigger_proto::{
    outrigger::v1::{Degraded, PredictResponse, ServedModel},
    raw::write as wire,
};
use prost::Message;

use crate::{packed::Packed, plan::Plan};
pub use best::Best;
pub use given::GivenScores;
use output::Outputs;
use response::Response;
pub use sample::Sample;

/// The response to a call, ready to be written.
#[derive(Debug)]
pub struct Answer<'a> {
    /// One response per user, in the order of the requests.
    responses: Vec<Response<'a>>,
    /// The id of a batch.
    batch: Option<&'a str>,
}

impl Plan {
    /// Turns the engine's outputs for a call of one request into an
    /// `outrigger.v1.PredictResponse`. `model` is the encoded `ServedModel` that answers.
    /// Outputs that no request asked for are ignored. `outputs` may be empty if
    /// [`Packed::needs_engine`] is false.
    ///
    /// # Errors
    /// SCORES_INVALID: an output is missing, has the wrong shape or type, or a
    /// score that is not finite. INTERNAL: the call has several requests.
    pub fn answer<'a>(
        &'a self,
        packed: &'a Packed,
        outputs: &'a [Tensor],
        model: &'a [u8],
    ) -> Result<Answer<'a>, Failure> {
        let responses = self.responses(packed, outputs, model)?;
        if responses.len() != 1 {
            return Err(Failure::new(Reason::Internal, "one response for several requests"));
        }
        Ok(Answer { responses, batch: None })
    }

    /// Turns the engine's outputs into an `outrigger.v1.BatchPredictResponse`: one
    /// response per user, in the order of the requests. Everything else is as in
    /// [`Self::answer`].
    ///
    /// # Errors
    /// SCORES_INVALID, as [`Self::answer`].
    pub fn answer_batch<'a>(
        &'a self,
        packed: &'a Packed,
        outputs: &'a [Tensor],
        model: &'a [u8],
        request_id: &'a str,
    ) -> Result<Answer<'a>, Failure> {
        let responses = self.responses(packed, outputs, model)?;
        Ok(Answer { responses, batch: Some(request_id) })
    }

    fn responses<'a>(
        &'a self,
        packed: &'a Packed,
        outputs: &'a [Tensor],
        model: &'a [u8],
    ) -> Result<Vec<Response<'a>>, Failure> {
        let outputs = Outputs::check(self, packed, outputs)?;
        let users = packed.users.iter().enumerate();
        users.map(|(index, user)| Response::new(&outputs, index, user, model)).collect()
    }

    /// Builds the response as [`Self::answer`] does, for callers that inspect it rather
    /// than send it; its `model` is empty.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn response(
        &self,
        packed: &Packed,
        outputs: &[Tensor],
    ) -> Result<PredictResponse, Failure> {
        let written = self.answer(packed, outputs, &[])?.to_vec();
        Ok(PredictResponse::decode(written.as_slice()).expect("what was written is a response"))
    }
}

impl<'a> Answer<'a> {
    /// Marks the response as degraded: `degraded` is an encoded `Degraded` with the
    /// reason why the response differs from the one requested.
    #[must_use]
    pub fn degraded(mut self, degraded: &'a [u8]) -> Self {
        self.responses.iter_mut().for_each(|response| response.degraded = degraded);
        self
    }
}

impl Answer<'_> {
    /// The length of the encoded response in bytes.
    pub fn encoded_len(&self) -> usize {
        let lengths = self.responses.iter().map(Response::encoded_len);
        match self.batch {
            None => lengths.sum(),
            Some(id) => {
                let fields = lengths.map(|length| wire::bytes_len(1, length));
                fields.sum::<usize>() + wire::filled_len(2, id.len())
            }
        }
    }

    /// Writes the encoded response.
    ///
    /// # Panics
    /// `out` has no room for [`Self::encoded_len`] bytes and cannot grow.
    pub fn encode(&self, out: &mut impl BufMut) {
        for response in &self.responses {
            if self.batch.is_some() {
                wire::put_header(1, response.encoded_len(), out);
            }
            response.encode(out);
        }
        wire::put_filled(2, self.batch.unwrap_or_default(), out);
    }

    /// About the length of the response as JSON: more if its texts need escapes.
    pub fn json_room(&self) -> usize {
        self.responses.iter().map(Response::json_room).sum()
    }

    /// The response of one user as JSON, with `model` and `degraded` in place of the encoded ones.
    pub fn to_json(&self, model: &ServedModel, degraded: Option<&Degraded>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.json_room());
        self.responses.iter().take(1).for_each(|one| one.write_json(model, degraded, &mut out));
        out
    }

    /// The encoded response.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode(&mut out);
        out
    }
}

#[cfg(test)]
mod tests;
