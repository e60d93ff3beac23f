//! The engine's outputs become responses: checked, trimmed, ranked, and written
//! straight to the wire.
//!
//! A response is measured first and then written once, into a buffer of just its
//! size. No message is built in between; scores that are float32 are copied as
//! they stand.

mod output;
mod rank;
mod response;
mod wire;

use outrigger_core::{Failure, Reason, Tensor};
use outrigger_proto::outrigger::v1::PredictResponse;
use prost::Message;

use crate::{Packed, Plan};
use output::Outputs;
use response::Response;

impl Plan {
    /// Turns the engine's outputs for a call of one request into an encoded
    /// `outrigger.v1.PredictResponse`. `model` is what answers, an encoded
    /// `ServedModel`. Outputs nobody asked for are ignored. Where
    /// [`Packed::needs_engine`] is false, `outputs` may be empty.
    ///
    /// # Errors
    /// SCORES_INVALID: an output is missing, has the wrong shape or type, or a
    /// score that is not finite. INTERNAL: the call has several requests.
    pub fn answer(
        &self,
        packed: &Packed,
        outputs: &[Tensor],
        model: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let outputs = Outputs::check(self, packed, outputs)?;
        let [user] = packed.users.as_slice() else {
            return Err(Failure::new(Reason::Internal, "one answer for several requests"));
        };
        let response = Response::new(self, &outputs, 0, user, model)?;
        let mut out = Vec::with_capacity(response.len());
        response.write(&mut out);
        Ok(out)
    }

    /// Turns the engine's outputs into an encoded
    /// `outrigger.v1.BatchPredictResponse`: a response a user, in the order of
    /// the requests. Else as [`Self::answer`].
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn answer_batch(
        &self,
        packed: &Packed,
        outputs: &[Tensor],
        model: &[u8],
        request_id: &str,
    ) -> Result<Vec<u8>, Failure> {
        let outputs = Outputs::check(self, packed, outputs)?;
        let users = packed.users.iter().enumerate();
        let responses =
            users.map(|(index, user)| Response::new(self, &outputs, index, user, model));
        let responses = responses.collect::<Result<Vec<_>, _>>()?;
        let each = responses.iter().map(|response| wire::bytes_len(1, response.len()));
        let length = each.sum::<usize>() + wire::filled_len(2, request_id.len());
        let mut out = Vec::with_capacity(length);
        for response in &responses {
            wire::put_header(1, response.len(), &mut out);
            response.write(&mut out);
        }
        wire::put_filled(2, request_id, &mut out);
        Ok(out)
    }

    /// As [`Self::answer`], for those who look at the response rather than send
    /// it; `model` is an empty message.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn response(
        &self,
        packed: &Packed,
        outputs: &[Tensor],
    ) -> Result<PredictResponse, Failure> {
        let encoded = self.answer(packed, outputs, &[])?;
        Ok(PredictResponse::decode(encoded.as_slice()).expect("what was written is a response"))
    }
}

#[cfg(test)]
mod tests;
