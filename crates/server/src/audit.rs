//! The record of changes: one line for each that is asked for, whatever comes of it.

use outrigger_core::{Digest, Failure};
use outrigger_proto::outrigger::v1::{ModelSelector, model_selector::Version};

/// The target of the lines, for whoever collects them.
pub(crate) use outrigger_lifecycle::AUDIT as TARGET;

use crate::caller::Caller;

/// What callers say is told up to here.
const MOST: usize = 256;

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Load,
    Unload,
    Promote,
    Abort,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Unload => "unload",
            Self::Promote => "promote",
            Self::Abort => "abort",
        }
    }
}

/// A change that somebody asks for. It is written down when dropped, so that one
/// whose caller went away is too.
#[derive(Debug)]
pub(crate) struct Record {
    caller: Caller,
    verb: Verb,
    target: Target,
    outcome: Result<(), Option<Failure>>,
}

/// What a change is about, as the caller says it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    pub(crate) model: String,
    pub(crate) tag: String,
    pub(crate) digest: String,
    /// Off the disk as well.
    pub(crate) delete: bool,
    /// Who decides, as the request says: not proven.
    pub(crate) by: String,
    /// Why, as the request says.
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
    /// Begins a line.
    pub(crate) fn new(caller: Caller, verb: Verb, target: Target) -> Self {
        Self { caller, verb, target, outcome: Err(None) }
    }

    /// Notes which digest it turned out to be.
    pub(crate) fn found(&mut self, digest: &Digest) {
        self.target.digest = digest.to_string();
    }

    /// Ends the line with what became of the change.
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
        // As values of their own, which are quoted: they are callers' words.
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

/// The beginning of what a caller says.
fn cut(text: &str) -> &str {
    let end = (0..=MOST.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
