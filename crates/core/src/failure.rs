//! A failure as everybody outside the part that failed sees it.

use std::time::Duration;

use crate::Reason;

/// A failure with its stable reason: what callers are told, what a model's
/// state remembers. Cheap enough to clone for every waiting caller.
///
/// The message is for people and may change; it never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Failure {
    /// The stable reason.
    pub reason: Reason,
    /// What happened, for people.
    pub message: String,
    /// When to try again, where that is known.
    pub retry_after: Option<Duration>,
    /// The request's fields at fault.
    pub violations: Vec<FieldViolation>,
}

/// One field of a request that is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldViolation {
    /// Its path in the request, such as `treatments[3].features["discount"]`.
    pub field: String,
    /// What is wrong with it.
    pub description: String,
}

/// An error with everything that caused it: what stands first is rarely what helps
/// ("transport error").
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
    /// A failure with a message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None, violations: Vec::new() }
    }

    /// A failure for `error`, whose message tells the error and its sources.
    pub fn because(reason: Reason, error: &dyn std::error::Error) -> Self {
        Self::new(reason, causes(error))
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Names a field at fault.
    #[must_use]
    pub fn violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (field.into(), description.into());
        self.violations.push(FieldViolation { field, description });
        self
    }
}
