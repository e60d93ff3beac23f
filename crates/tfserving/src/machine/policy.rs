//! The times by which the engine's machine decides.

use std::time::Duration;

use outrigger_core::Backoff;

/// The times by which the engine's machine decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Between probes of the engine while something is pending.
    pub busy_probe: Duration,
    /// Between probes of the engine while nothing is pending.
    pub steady_probe: Duration,
    /// An engine that does not answer for longer is probed at the steady pace.
    pub patience: Duration,
    /// A reload that was not answered may be repeated after this time, when the
    /// engine shows no sign of having finished it.
    pub reload_limit: Duration,
    /// A version that was dropped from the configuration and that the engine
    /// never mentioned is taken to be gone after this time: longer than the
    /// engine's file system poll (1 s) and a turn of its manager.
    pub absent_grace: Duration,
    /// A version that the engine does not mention for this long after it took the
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
