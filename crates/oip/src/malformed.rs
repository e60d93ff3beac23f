//! Faults of messages.

use outrigger_core::{Failure, Reason};

/// A message that does not obey the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}{}{message}", if field.is_empty() { "" } else { ": " })]
pub struct Malformed {
    /// The path of the field at fault, such as `inputs[0].shape`; empty if it is the whole message.
    pub field: String,
    /// A description of the fault.
    pub message: String,
}

impl Malformed {
    /// Creates a fault of the whole message, or of a value whose path
    /// [`within`](Self::within) adds.
    pub fn new(message: impl Into<String>) -> Self {
        Self { field: String::new(), message: message.into() }
    }

    /// Creates a fault of a field.
    pub fn at(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// Puts `parent` in front of the path.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.field = match self.field.as_str() {
            "" => parent.to_owned(),
            field if field.starts_with('[') => format!("{parent}{field}"),
            field => format!("{parent}.{field}"),
        };
        self
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        let failure = Self::new(Reason::RequestMalformed, malformed.to_string());
        match malformed.field.as_str() {
            "" => failure,
            _ => failure.violation(malformed.field, malformed.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_together_from_the_inside() {
        let malformed = Malformed::at("[3]", "is negative").within("shape").within("inputs[0]");
        assert_eq!(malformed.to_string(), "inputs[0].shape[3]: is negative");
        assert_eq!(Malformed::new("is empty").to_string(), "is empty");
        assert_eq!(Malformed::new("is empty").within("id").to_string(), "id: is empty");
    }

    #[test]
    fn a_failure_names_the_field() {
        let failure = Failure::from(Malformed::at("id", "is no text"));
        assert_eq!(failure.reason, Reason::RequestMalformed);
        assert_eq!((failure.message.as_str(), failure.violations.len()), ("id: is no text", 1));
        assert!(Failure::from(Malformed::new("is empty")).violations.is_empty());
    }
}
