//! Failures with stable reasons, as every part of the server reports them.

use std::time::Duration;

use crate::Reason;

/// A failure with its stable reason, as callers receive it and as a model's state remembers it.
/// Cheap enough to clone for every waiting caller.
///
/// The message is for people and may change; it never holds a secret. It has at most
/// [`MAX_MESSAGE`] bytes on one line: a package, a registry or an engine can choose what it quotes,
/// and a log line, the page and every caller repeat it.
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
    /// The account of the server's memory that had no room, if that is the cause.
    pub account: Option<&'static str>,
    /// The engine had the call when it ended.
    pub is_cut_off: bool,
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

/// The most bytes of a message, and of a field or description of a violation.
pub const MAX_MESSAGE: usize = 4 << 10;

/// Makes a text printable on one line: control characters, and those that reorder or break text, are
/// replaced by their escapes, and a text of more than [`MAX_MESSAGE`] bytes is cut.
pub fn printable(mut text: String) -> String {
    const CUT: &str = "... (cut)";
    if text.len() > MAX_MESSAGE {
        // A new text: the long one would keep its memory when it is cut.
        text = text[..text.floor_char_boundary(MAX_MESSAGE - CUT.len())].to_owned() + CUT;
    }
    if !text.contains(is_unprintable) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unprintable(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    if escaped.len() > MAX_MESSAGE { printable(escaped) } else { escaped }
}

/// Control characters, line and paragraph separators, and the marks that change the direction of
/// text (Unicode Standard Annex 9). On a terminal they change what is shown.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl Failure {
    /// Creates a failure with a message, which is cut and escaped if need be.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = printable(message.into());
        Self {
            reason,
            message,
            retry_after: None,
            violations: Vec::new(),
            account: None,
            is_cut_off: false,
        }
    }

    /// Creates a failure for `error`; the message holds the error and its sources.
    pub fn because(reason: Reason, error: &dyn std::error::Error) -> Self {
        Self::new(reason, causes(error))
    }

    /// Replaces the message by one made of it, which is cut and escaped if need be.
    #[must_use]
    pub fn map_message(mut self, change: impl FnOnce(&str) -> String) -> Self {
        self.message = printable(change(&self.message));
        self
    }

    /// Sets the delay before another attempt.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Sets the account of the server's memory that had no room.
    #[must_use]
    pub fn without_room_in(mut self, account: &'static str) -> Self {
        self.account = Some(account);
        self
    }

    /// A failure because of a field of the request.
    pub fn of_field(reason: Reason, field: &str, problem: &str) -> Self {
        Self::new(reason, format!("{field}: {problem}")).violation(field, problem)
    }

    /// Adds a field at fault.
    #[must_use]
    pub fn violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (printable(field.into()), printable(description.into()));
        self.violations.push(FieldViolation { field, description });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: impl Into<String>) -> String {
        Failure::new(Reason::ImageInvalid, text).message
    }

    #[test]
    fn an_ordinary_message_stays_as_it_is() {
        let text = "entry \"data/é\": 数 is not a number";
        assert_eq!(message(text), text);
    }

    #[test]
    fn a_message_is_one_line_without_control_characters() {
        let hostile = "key \n{\"target\": \"outrigger::audit\"}\r\u{1b}[31m\u{202e}\u{2028}\0";
        let escaped = message(hostile);
        assert!(!escaped.contains(is_unprintable), "{escaped:?}");
        assert!(escaped.starts_with("key \\n{") && escaped.contains("\\u{1b}[31m"), "{escaped}");
    }

    #[test]
    fn messages_fields_and_descriptions_are_cut() {
        for unit in ["x", "é", "数", "\n", "\u{202e}"] {
            let long = unit.repeat(1 << 20);
            let failure = Failure::new(Reason::ImageInvalid, long.clone())
                .map_message(|message| format!("{long}{message}"))
                .violation(long.clone(), long.clone());
            let violation = &failure.violations[0];
            for text in [&failure.message, &violation.field, &violation.description] {
                assert!(text.len() <= MAX_MESSAGE && text.len() > MAX_MESSAGE / 2);
                assert!(text.ends_with("... (cut)") && !text.contains(is_unprintable), "{unit:?}");
            }
        }
    }
}
