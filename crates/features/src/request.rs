//! Decoding: an encoded request becomes rows of named values, borrowed from the
//! decoded message. Whatever reads the bytes in place later only has to produce
//! the same [`View`].

mod object;
mod table;
mod value;
mod view;

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::PredictRequest;
use prost::Message;

use crate::fields::fields;
pub(crate) use value::{Scalar, Value};
pub(crate) use view::{Names, View};

/// Where in the whole call a request stands: what its field paths begin with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    prefix: String,
}

impl Place {
    /// The request at `index` of a batch.
    pub(crate) fn in_batch(index: usize) -> Self {
        Self { prefix: format!("requests[{index}].") }
    }

    /// The path of one of the request's fields.
    pub(crate) fn field(&self, path: impl std::fmt::Display) -> String {
        format!("{}{path}", self.prefix)
    }

    /// A failure about one of the request's fields.
    pub(crate) fn failure(
        &self,
        reason: Reason,
        path: impl std::fmt::Display,
        message: impl std::fmt::Display,
    ) -> Failure {
        let field = self.field(path);
        Failure::new(reason, format!("{field}: {message}")).violation(field, message.to_string())
    }

    /// REQUEST_MALFORMED at one of the request's fields.
    pub(crate) fn malformed(
        &self,
        path: impl std::fmt::Display,
        message: impl std::fmt::Display,
    ) -> Failure {
        self.failure(Reason::RequestMalformed, path, message)
    }
}

/// `PredictRequest.treatments`.
const TREATMENTS: u32 = 6;

/// Decodes a request of at most `max_treatments`.
///
/// # Errors
/// TOO_MANY_TREATMENTS, and REQUEST_MALFORMED for bytes that are no request.
pub(crate) fn decode(
    bytes: &[u8],
    max_treatments: usize,
    place: &Place,
) -> Result<PredictRequest, Failure> {
    refuse_too_many(count_treatments(bytes), max_treatments, "treatments", place)?;
    PredictRequest::decode(bytes).map_err(|error| {
        let message = match place.prefix.trim_end_matches('.') {
            "" => format!("the request cannot be decoded: {error}"),
            request => format!("{request} cannot be decoded: {error}"),
        };
        Failure::new(Reason::RequestMalformed, message)
    })
}

/// Counted before they are decoded: two bytes can make a treatment, which then
/// takes some fifty times that. Stops where the bytes are no message; decoding
/// tells why.
fn count_treatments(bytes: &[u8]) -> usize {
    let mut count = 0;
    let _ = fields(bytes, |tag, _| {
        count += usize::from(tag == TREATMENTS);
        Ok(())
    });
    count
}

fn refuse_too_many(count: usize, max: usize, path: &str, place: &Place) -> Result<(), Failure> {
    if count <= max {
        return Ok(());
    }
    let message = format!("{count} treatments, at most {max} are allowed");
    Err(place.failure(Reason::TooManyTreatments, path, message))
}
