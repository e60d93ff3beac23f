//! The promotion of a canary: where its trial's mode says, unless somebody aborts it in
//! time.

use std::sync::Arc;

use outrigger_core::{Failure, Moment, Reason, fleet::TagKey};
use tokio::sync::oneshot;

use crate::{jobs::promote::Push, views::By};

/// Takes the answer to a request of a person.
pub type Reply = oneshot::Sender<Result<(), Failure>>;

/// The state of a promotion.
#[derive(Debug)]
pub(crate) enum Promotion {
    /// It is not decided.
    Undecided,
    /// It waits for a person to decide.
    Recommended,
    /// The registry's tag is being moved.
    Moving(Moving),
    /// The registry's tag is moved, or this process answers by the canary soon. `missed`:
    /// the tag was looked up since, and named something else.
    Moved { by: By, missed: bool },
    /// The registry's tag was moved elsewhere: the trial ends when that version answers.
    Overtaken(By),
    /// The registry's tag could not be moved; that is tried again at `retry_at`. `unsure`:
    /// it may have been moved.
    Failed { by: By, failure: Failure, retry_at: Moment, unsure: bool },
}

/// A move of the registry's tag that is under way.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) by: By,
    pub(crate) push: Arc<Push>,
    /// An earlier attempt may have moved the tag.
    pub(crate) unsure: bool,
    /// Aborts that wait to learn whether the canary is live.
    pub(crate) aborts: Vec<(By, Reply)>,
}

impl Promotion {
    pub(crate) fn moved(by: By) -> Self {
        Self::Moved { by, missed: false }
    }

    /// Whether it is decided, or up to a person to decide.
    pub(crate) fn is_decided(&self) -> bool {
        !matches!(self, Self::Undecided)
    }

    /// Whether the registry's tag is being moved, or is moved.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self, Self::Moving(_) | Self::Moved { .. })
    }

    /// The decision that the canary become live.
    pub(crate) fn by(&self) -> Option<&By> {
        match self {
            Self::Undecided | Self::Recommended => None,
            Self::Moving(Moving { by, .. })
            | Self::Moved { by, .. }
            | Self::Overtaken(by)
            | Self::Failed { by, .. } => Some(by),
        }
    }

    /// Takes the promotion back, if the registry's tag is neither moved nor being moved.
    /// Whether it is taken back.
    pub(crate) fn retract(&self) -> bool {
        match self {
            Self::Moving(moving) => moving.push.cancel(),
            Self::Moved { .. } => false,
            _ => true,
        }
    }

    /// Answers the aborts that wait.
    pub(crate) fn refuse_aborts(&mut self, failure: &Failure) {
        if let Self::Moving(moving) = self {
            refuse(std::mem::take(&mut moving.aborts), failure);
        }
    }
}

/// The failure of an abort that comes too late.
pub(crate) fn promoted(key: &TagKey) -> Failure {
    let TagKey { name, tag } = key;
    let message = format!("the canary of {name}:{tag} is promoted: the tag names it already");
    Failure::new(Reason::CanaryPromoted, message)
}

pub(crate) fn refuse(aborts: Vec<(By, Reply)>, failure: &Failure) {
    for (_, done) in aborts {
        // The caller may have gone.
        done.send(Err(failure.clone())).ok();
    }
}
