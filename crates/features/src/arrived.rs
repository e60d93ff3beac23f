//! Requests as they arrived.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_proto::{outrigger::v1::ResponseOptions, raw::write as wire};
use prost::Message as _;

use crate::{
    call::{Call, Trace},
    given::GivenRows,
    json,
    limits::Limits,
    pack,
    packed::Packed,
    plan::Plan,
    raw::RawCall,
};

/// A request as it arrived: it can be packed again, also for another plan.
#[derive(Debug, Clone)]
pub enum Arrived {
    /// An encoded `outrigger.v1.PredictRequest`.
    Message(Bytes),
    /// A request in JSON.
    Json(json::Request),
    /// Tensors, as the model takes them.
    Tensors(Arc<RawCall>),
    /// Sparse rows that were given as they are.
    Rows(GivenRows),
}

impl Arrived {
    /// A copy of one of a batch's requests, with the options of the batch.
    pub fn of_batch(request: &[u8], options: &ResponseOptions) -> Self {
        /// `PredictRequest.options`.
        const OPTIONS: u32 = 9;
        let length = options.encoded_len();
        let mut message = Vec::with_capacity(request.len() + wire::filled_len(OPTIONS, length));
        message.extend_from_slice(request);
        wire::put_filled_header(OPTIONS, length, &mut message);
        options.encode_raw(&mut message);
        Self::Message(message.into())
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::Json(request) => request.body().len(),
            Self::Tensors(call) => call.size(),
            Self::Rows(rows) => rows.size(),
        }
    }

    /// The same request, without the memory around the bytes that it was read from.
    #[must_use]
    pub fn copied(&self) -> Self {
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        match self {
            Self::Message(message) => Self::Message(copy(message)),
            Self::Json(request) => Self::Json(request.with_body(copy(request.body()))),
            Self::Tensors(call) => Self::Tensors(Arc::new(call.copied())),
            // They have memory of their own.
            Self::Rows(rows) => Self::Rows(rows.clone()),
        }
    }
}

impl From<Bytes> for Arrived {
    fn from(message: Bytes) -> Self {
        Self::Message(message)
    }
}

impl Plan {
    /// As [`Self::pack`], for one request in the form in which it arrived.
    ///
    /// # Errors
    /// As there.
    pub fn pack_arrived(&self, request: &Arrived, limits: &Limits) -> Result<Packed, Failure> {
        self.pack_arrived_traced(request, &Call::new(limits)).map(|(packed, _)| packed)
    }

    pub(crate) fn pack_arrived_traced(
        &self,
        request: &Arrived,
        call: &Call<'_>,
    ) -> Result<(Packed, Trace), Failure> {
        match request {
            Arrived::Message(message) => pack::pack_traced(self, &[message], call),
            Arrived::Json(request) => self.pack_json_traced(request, call),
            Arrived::Tensors(tensors) => {
                self.pack_raw(tensors, call.limits).map(|packed| (packed, Trace::default()))
            }
            Arrived::Rows(rows) => Ok((self.pack_given(rows, call.limits)?, Trace::default())),
        }
    }
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::PredictRequest;

    use super::*;

    #[test]
    fn a_request_of_a_batch_becomes_one_of_its_own() {
        let asked = PredictRequest { routing_key: "u1".into(), ..PredictRequest::default() };
        let options = ResponseOptions { top_k: 3, ..ResponseOptions::default() };
        for options in [options, ResponseOptions::default()] {
            let own = Arrived::of_batch(&asked.encode_to_vec(), &options);
            let Arrived::Message(own) = own else { panic!("{own:?} is no message") };
            let read = PredictRequest::decode(own).expect("a request");
            assert_eq!(read.routing_key, "u1");
            assert_eq!(read.options.unwrap_or_default(), options);
        }
    }
}
