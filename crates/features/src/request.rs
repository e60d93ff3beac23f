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

/// Decodes a request.
pub(crate) fn decode(bytes: &[u8], place: &Place) -> Result<PredictRequest, Failure> {
    PredictRequest::decode(bytes).map_err(|error| {
        let message = match place.prefix.trim_end_matches('.') {
            "" => format!("the request cannot be decoded: {error}"),
            request => format!("{request} cannot be decoded: {error}"),
        };
        Failure::new(Reason::RequestMalformed, message)
    })
}
