//! Errors as TensorFlow and gRPC represent them: a code and a message.

use std::fmt;

use tonic::Code;

/// The most bytes of a message that are sent, as in TensorFlow Serving.
const MESSAGE_LIMIT: usize = 1024;
/// The mark behind a message that was cut.
const MARK: &str = "...TRUNCATED";

/// An error. The codes are gRPC's, which are also TensorFlow's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Status {
    /// The kind of error; never `Ok`.
    pub code: Code,
    /// The message for people.
    pub message: String,
}

impl Status {
    /// An error of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// An invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Something that the request names does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// The state of the system does not permit the request.
    pub fn precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    /// TensorFlow's name of the code, for example `NOT_FOUND`.
    pub fn code_name(&self) -> &'static str {
        match self.code {
            Code::Ok => "OK",
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code_name(), self.message)
    }
}

impl From<Status> for tonic::Status {
    fn from(status: Status) -> Self {
        tonic::Status::new(status.code, shortened(status.message))
    }
}

/// Truncates a message as TensorFlow Serving does, but at a character boundary.
fn shortened(mut message: String) -> String {
    if message.len() <= MESSAGE_LIMIT {
        return message;
    }
    message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
    message.push_str(MARK);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        assert_eq!(shortened("ü".repeat(800)), "ü".repeat(512) + MARK);
        assert_eq!(
            shortened("x".to_owned() + &"ü".repeat(800)).len(),
            MESSAGE_LIMIT - 1 + MARK.len()
        );
        assert_eq!(shortened("x".repeat(1024)), "x".repeat(1024));
        assert_eq!(shortened("short".into()), "short");
    }

    #[test]
    fn displays_code_and_message() {
        assert_eq!(Status::not_found("no model").to_string(), "NOT_FOUND: no model");
    }
}
