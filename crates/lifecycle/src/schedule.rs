//! The times at which the service acts by the clock alone.

use std::time::Duration;

use outrigger_core::Moment;

/// The interval between searches for files that belong to no known model.
const SWEEP: Duration = Duration::from_secs(3600);
/// The interval at which the uses of all models are collected, also of those without a due time.
const USES: Duration = Duration::from_secs(10);

/// The times at which the service acts without an event.
pub(crate) struct Schedule {
    sweep_at: Moment,
    /// The time of the next verification of versions that are up; `None` while one is running, or
    /// if none is needed.
    verify_at: Option<Moment>,
    uses_at: Moment,
    /// Before this time a tick changes nothing.
    wake_at: Moment,
}

impl Schedule {
    pub(crate) fn new(now: Moment) -> Self {
        Self { sweep_at: now + SWEEP, verify_at: None, uses_at: now + USES, wake_at: now }
    }

    /// Sets the next wake-up to the first of the scheduled times and `others`.
    pub(crate) fn set_wake(&mut self, others: [Option<Moment>; 2]) -> Moment {
        let own = [Some(self.sweep_at), Some(self.uses_at), self.verify_at];
        let first = own.into_iter().chain(others).flatten().min();
        self.wake_at = first.unwrap_or(self.sweep_at);
        self.wake_at
    }

    /// Whether a tick may change something.
    pub(crate) fn may_have_changed(&self, now: Moment) -> bool {
        now >= self.wake_at
    }

    /// Whether the uses of all models are due to be collected; if so, the next time is set.
    pub(crate) fn take_uses(&mut self, now: Moment) -> bool {
        let is_due = self.uses_at <= now;
        if is_due {
            self.uses_at = now + USES;
        }
        is_due
    }

    pub(crate) fn is_sweep_due(&self, now: Moment) -> bool {
        self.sweep_at <= now
    }

    pub(crate) fn swept(&mut self, now: Moment) {
        self.sweep_at = now + SWEEP;
    }

    /// Whether the verification is due; if so, it is marked as started.
    pub(crate) fn take_verification(&mut self, now: Moment) -> bool {
        self.verify_at.take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn verify_at(&mut self, at: Option<Moment>) {
        self.verify_at = at;
    }
}
