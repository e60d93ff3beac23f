//! The policy of the engine's machine: its times.

use std::time::Duration;

use outrigger_core::Backoff;

/// The policy of the engine's machine: its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Waits between attempts.
    pub backoff: Backoff,
    /// The interval between probes while something is pending.
    pub busy_probe: Duration,
    /// The interval between probes while nothing is pending.
    pub steady_probe: Duration,
    /// An engine that has not answered for longer than this is probed at the steady interval.
    pub patience: Duration,
    /// An unanswered reload may be repeated after this time, if the engine shows no sign of having
    /// finished it.
    pub reload_limit: Duration,
    /// A version that was dropped from the configuration and is missing from the engine's status
    /// counts as gone after this time. The time is longer than the engine's file system poll (1 s)
    /// plus one pass of its manager.
    pub absent_grace: Duration,
    /// A version that is missing from the engine's status for this long after the engine took the
    /// configuration causes one more push.
    pub stuck_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            busy_probe: Duration::from_millis(100),
            steady_probe: Duration::from_secs(1),
            patience: outrigger_core::Policy::default().patience,
            reload_limit: Duration::from_secs(600),
            absent_grace: Duration::from_secs(5),
            stuck_after: Duration::from_secs(30),
        }
    }
}
