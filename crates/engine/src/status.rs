//! Outcomes as TensorFlow and gRPC tell them: a code and a message.

use std::fmt;

use tonic::Code;

/// Longest message that goes over the wire; TensorFlow Serving cuts there too.
const MESSAGE_LIMIT: usize = 1024;

/// Why something failed. The codes are gRPC's, which are TensorFlow's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Status {
    /// The kind of failure; never `Ok`.
    pub code: Code,
    /// For humans.
    pub message: String,
}

impl Status {
    /// A failure of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The caller sent something wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// What was asked for is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// The state of the system does not admit it.
    pub fn precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    /// The name TensorFlow gives to the code, as in `NOT_FOUND`.
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

/// Cuts a message where TensorFlow Serving cuts it, at a character's boundary.
fn shortened(mut message: String) -> String {
    const MARK: &str = "...TRUNCATED";
    if message.len() <= MESSAGE_LIMIT {
        return message;
    }
    let end = (0..=MESSAGE_LIMIT - MARK.len()).rev().find(|&at| message.is_char_boundary(at));
    message.truncate(end.unwrap_or(0));
    message.push_str(MARK);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let cut = shortened("ü".repeat(800));
        assert!(cut.len() <= MESSAGE_LIMIT);
        assert!(cut.ends_with("ü...TRUNCATED"));
        assert_eq!(shortened("short".into()), "short");
    }

    #[test]
    fn shows_as_code_and_message() {
        assert_eq!(Status::not_found("no model").to_string(), "NOT_FOUND: no model");
    }
}
