//! The error of messages that cannot be read.

use outrigger_proto::raw::read;

/// Bytes that are not the protobuf message they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an encoded protobuf message")]
pub(crate) struct Malformed;

impl From<read::Malformed> for Malformed {
    fn from(_: read::Malformed) -> Self {
        Self
    }
}

impl From<prost::DecodeError> for Malformed {
    fn from(_: prost::DecodeError) -> Self {
        Self
    }
}
