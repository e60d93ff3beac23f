//! The check before every change: the listener, the caller's right, and the record of the change.

use outrigger_core::{Failure, Reason};

use crate::{
    audit::{Record, Target, Verb},
    call::Call,
    config::Right,
};

/// The kind of calls that a listener permits; callers need the right too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Queries only.
    Read,
    /// Queries and changes.
    Change,
}

impl Access {
    /// Makes a change if the caller has the right, and records the outcome.
    ///
    /// # Errors
    /// `ADMIN_ONLY`, `UNAUTHENTICATED`, `PERMISSION_DENIED`, or as `change` fails.
    pub(crate) async fn change<T>(
        self,
        call: &Call,
        verb: Verb,
        target: Target,
        change: impl AsyncFnOnce(&mut Record) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut record = Record::new(call.caller().clone(), verb, target);
        let result = match self.admit(call, verb.right()) {
            Ok(()) => change(&mut record).await,
            Err(refused) => Err(refused),
        };
        record.end(&result);
        result
    }

    fn admit(self, call: &Call, right: Right) -> Result<(), Failure> {
        match self {
            Self::Change => call.caller().may(right),
            Self::Read => {
                let message = "changes are made on the admin listener only";
                Err(Failure::new(Reason::AdminOnly, message))
            }
        }
    }
}
