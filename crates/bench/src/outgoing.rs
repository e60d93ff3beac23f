//! Requests as they are sent, and what their answers must have.

use std::{ops::RangeInclusive, sync::Arc};

use bytes::Bytes;

/// An encoded request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outgoing {
    /// The body; over gRPC without the message's prefix.
    pub(crate) body: Bytes,
    /// The length of the JSON in front of binary tensors; `None` without such tensors.
    pub(crate) json: Option<usize>,
    pub(crate) expected: Expected,
}

/// The content that an answer must have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expected {
    /// This number of scores for each user.
    Scores(RangeInclusive<usize>),
    /// The outputs of these names, or any if there are none.
    Outputs(Vec<Arc<str>>),
}

impl Outgoing {
    /// A request without binary tensors.
    pub(crate) fn of(body: Bytes, expected: Expected) -> Self {
        Self { body, json: None, expected }
    }
}
