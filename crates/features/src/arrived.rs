//! Requests as they arrived.

use bytes::Bytes;
use outrigger_core::Failure;

use crate::{
    call::{Call, Trace},
    json,
    limits::Limits,
    pack,
    packed::Packed,
    plan::Plan,
};

/// A request as it arrived: it can be packed again, also for another plan.
#[derive(Debug, Clone)]
pub enum Arrived {
    /// An encoded `outrigger.v1.PredictRequest`.
    Message(Bytes),
    /// A request in JSON.
    Json(json::Request),
}

impl Arrived {
    /// Its bytes.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Message(message) => message,
            Self::Json(request) => request.body(),
        }
    }

    /// The same request, without the memory around the bytes that it was read from.
    #[must_use]
    pub fn copied(&self) -> Self {
        let bytes = Bytes::copy_from_slice(self.bytes());
        match self {
            Self::Message(_) => Self::Message(bytes),
            Self::Json(request) => Self::Json(request.with_body(bytes)),
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
        }
    }
}
