//! The record of changes: one log line for each change that is requested, whatever its outcome.

use outrigger_core::{Digest, Failure};
use outrigger_proto::outrigger::v1::{ModelSelector, model_selector::Version};

/// The target of the log lines, by which log collectors select them.
pub(crate) use outrigger_lifecycle::AUDIT as TARGET;

use crate::{caller::Caller, config::Right};

/// The most bytes of a caller's text in the record; longer text is cut.
const MOST: usize = 256;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Load,
    Unload,
    Promote,
    Abort,
    Validate,
}

impl Verb {
    /// The right that the change requires.
    pub(crate) const fn right(self) -> Right {
        match self {
            Self::Load | Self::Unload | Self::Promote | Self::Abort => Right::Change,
            Self::Validate => Right::Validate,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Unload => "unload",
            Self::Promote => "promote",
            Self::Abort => "abort",
            Self::Validate => "validate",
        }
    }
}

/// A change that a caller requests. It is logged when dropped, so that a change whose caller
/// disconnects is logged too.
#[derive(Debug)]
pub(crate) struct Record {
    caller: Caller,
    verb: Verb,
    target: Target,
    outcome: Result<(), Option<Failure>>,
}

/// The subject of a change, in the caller's words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    pub(crate) model: String,
    pub(crate) tag: String,
    pub(crate) digest: String,
    /// True if the version is also deleted from disk.
    pub(crate) delete: bool,
    /// The name of the operator who decides, as the request gives it. It is not authenticated.
    pub(crate) by: String,
    /// The reason for the change, as the request gives it.
    pub(crate) reason: String,
}

impl Target {
    /// A model's version.
    pub(crate) fn version(selector: Option<&ModelSelector>) -> Self {
        let Some(ModelSelector { name, version }) = selector.cloned() else {
            return Self::default();
        };
        let (tag, digest) = match version {
            None => Default::default(),
            Some(Version::Tag(tag)) => (tag, String::new()),
            Some(Version::Digest(digest)) => (String::new(), digest),
        };
        Self { model: name, tag, digest, ..Self::default() }
    }
}

impl Record {
    /// Begins the record of a change.
    pub(crate) fn new(caller: Caller, verb: Verb, target: Target) -> Self {
        Self { caller, verb, target, outcome: Err(None) }
    }

    /// Records the digest that the change applies to.
    pub(crate) fn found(&mut self, digest: &Digest) {
        self.target.digest = digest.to_string();
    }

    /// Records the outcome of the change and logs the line.
    pub(crate) fn end<T>(mut self, result: &Result<T, Failure>) {
        self.outcome = match result {
            Ok(_) => Ok(()),
            Err(failure) => Err(Some(failure.clone())),
        };
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (outcome, error) = match &self.outcome {
            Ok(()) => ("OK", None),
            Err(Some(failure)) => (failure.reason.as_str(), Some(failure.message.as_str())),
            Err(None) => ("CANCELLED", None),
        };
        let Target { model, tag, digest, delete, by, reason } = &self.target;
        // Callers chose these texts. They are separate fields, which the log quotes.
        tracing::info!(
            target: TARGET,
            caller = self.caller.identity().map_or("anonymous", |identity| identity.as_str()),
            peer = %self.caller.address(),
            verb = self.verb.as_str(),
            model.name = cut(model),
            model.tag = cut(tag),
            model.digest = cut(digest),
            delete,
            by = cut(by),
            reason = cut(reason),
            outcome,
            error = error.map(cut),
            "change"
        );
    }
}

/// Cuts a caller's text to [`MOST`] bytes, at a character boundary.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST)]
}
