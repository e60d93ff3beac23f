//! Failures with stable reasons, as every part of the server reports them.

use std::time::Duration;

use crate::Reason;

/// A failure with its stable reason, as callers receive it and as a model's state remembers it.
/// Cheap enough to clone for every waiting caller.
///
/// The message is for people and may change; it never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Failure {
    /// The stable reason.
    pub reason: Reason,
    /// A message for people.
    pub message: String,
    /// The delay before another attempt, where it is known.
    pub retry_after: Option<Duration>,
    /// The request's fields at fault.
    pub violations: Vec<FieldViolation>,
}

/// One field of a request that is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldViolation {
    /// Its path in the request, such as `treatments[3].features["discount"]`.
    pub field: String,
    /// A description of the fault.
    pub description: String,
}

/// Formats an error with all its sources: the outermost message alone is rarely helpful ("transport
/// error").
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl Failure {
    /// Creates a failure with a message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None, violations: Vec::new() }
    }

    /// Creates a failure for `error`; the message holds the error and its sources.
    pub fn because(reason: Reason, error: &dyn std::error::Error) -> Self {
        Self::new(reason, causes(error))
    }

    /// Sets the delay before another attempt.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds a field at fault.
    #[must_use]
    pub fn violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (field.into(), description.into());
        self.violations.push(FieldViolation { field, description });
        self
    }
}
