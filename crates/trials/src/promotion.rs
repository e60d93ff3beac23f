//! The promotion of a canary in the place that its trial's mode names, unless a person aborts it in
//! time.

use std::sync::Arc;

use outrigger_core::{Failure, Moment, Reason, machines::TagKey};
use tokio::sync::oneshot;

use crate::{jobs::promote::Push, record::Decided, views::By};

/// The channel for the answer to a person's request.
pub type Reply = oneshot::Sender<Result<(), Failure>>;

/// The state of a promotion.
#[derive(Debug)]
pub(crate) enum Promotion {
    /// No decision yet.
    Undecided,
    /// The promotion waits for a person's decision.
    Recommended,
    /// The registry's tag is being moved.
    Moving(Moving),
    /// The registry's tag is moved, or this process will answer with the canary soon. `missed`: a
    /// later look-up found another digest.
    Moved { by: By, missed: bool },
    /// The registry's tag was moved elsewhere; the trial ends when that version answers.
    Overtaken(By),
    /// The registry's tag could not be moved; the next attempt is at `retry_at`. `unsure`: the tag
    /// may have been moved.
    Failed { by: By, failure: Failure, retry_at: Moment, unsure: bool },
}

/// A move of the registry's tag under way.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) by: By,
    pub(crate) push: Arc<Push>,
    /// True if an earlier attempt may have moved the tag.
    pub(crate) unsure: bool,
    /// Aborts that wait to learn whether the canary is live.
    pub(crate) aborts: Vec<(By, Reply)>,
}

impl Promotion {
    pub(crate) fn moved(by: By) -> Self {
        Self::Moved { by, missed: false }
    }

    /// The decision that a later process continues from.
    pub(crate) fn decided(&self) -> Option<Decided> {
        match self {
            Self::Recommended => Some(Decided::Recommended),
            promotion => promotion.by().cloned().map(Decided::Promoted),
        }
    }

    /// True if the registry's tag is being moved, or is moved.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self, Self::Moving(_) | Self::Moved { .. })
    }

    /// The author of the decision to promote.
    pub(crate) fn by(&self) -> Option<&By> {
        match self {
            Self::Undecided | Self::Recommended => None,
            Self::Moving(Moving { by, .. })
            | Self::Moved { by, .. }
            | Self::Overtaken(by)
            | Self::Failed { by, .. } => Some(by),
        }
    }

    /// Retracts the promotion, if the registry's tag is neither moved nor being moved. Returns true
    /// if it is retracted.
    pub(crate) fn retract(&self) -> bool {
        match self {
            Self::Moving(moving) => moving.push.cancel(),
            Self::Moved { .. } => false,
            _ => true,
        }
    }

    /// Answers the waiting aborts with a failure.
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
