//! The position of a request within a call, for the field paths of its failures.

use outrigger_core::{Failure, Reason};

/// The position of a request within a call: the prefix of its field paths.
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

    /// A failure at one of the request's fields.
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

    /// REQUEST_MALFORMED: the request's bytes are not a valid message.
    pub(crate) fn undecodable(&self, error: impl std::fmt::Display) -> Failure {
        let message = match self.prefix.trim_end_matches('.') {
            "" => format!("the request cannot be decoded: {error}"),
            request => format!("{request} cannot be decoded: {error}"),
        };
        Failure::new(Reason::RequestMalformed, message)
    }
}

/// The failure for an object in place of the value of a user's feature: in a `user_object` the keys of
/// an object are parts of names.
pub(crate) fn object_value(feature: &str, place: &Place) -> Failure {
    let message =
        "an object, where a value is expected; ids with weights are only taken in user_features";
    place.failure(Reason::FeatureType, format!("user[{feature:?}]"), message)
}

/// The failure for a user's feature that is given twice, as `{"a.b": 1}` and as `{"a":
/// {"b": 2}}`: a map has no order that could decide between them.
pub(crate) fn given_twice(feature: &str, place: &Place) -> Failure {
    place.malformed(format!("user[{feature:?}]"), "given twice")
}
