//! The outcome of a trial.

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// The canary may become live.
    Promote(Cause),
    /// The canary must be removed.
    Rollback(Cause),
}

/// The reason of a conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The sequential tests have decided.
    Proved,
    /// The trial cannot be decided in time.
    Starved,
    /// The trial cannot be decided in time, and the arms' sizes do not fit the share.
    ShareMismatch,
    /// Live is proved to be far worse with the canary than without it.
    Overload,
}

impl Conclusion {
    /// The reason.
    pub fn cause(self) -> Cause {
        let (Self::Promote(cause) | Self::Rollback(cause)) = self;
        cause
    }
}
