//! The settings of a dispatcher.

use std::time::Duration;

use outrigger_resilience::{Backoff, EjectionSettings};

/// The settings of a dispatcher.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The limits of each host.
    pub limits: Limits,
    /// The calls in flight that each host begins with.
    pub first_in_flight: usize,
    /// The withdrawal of hosts that fail.
    pub breaker: EjectionSettings,
    /// The pauses before rows are sent again that a host did not process.
    pub backoff: Backoff,
    /// A call is sent to a second host too when it takes this many times as long as usual there.
    pub hedge: f64,
    /// The time after which rows are sent again to the host that failed on them, if no other host
    /// is there.
    pub second_host: Duration,
    /// The time after which a job stops whose hosts answer, but with failures only. Calls that were
    /// sent within it have to end first.
    pub patience: Duration,
    /// The dead rows that stop a job.
    pub max_errors: MaxErrors,
}

/// The limits of each host. They hold whatever the host's limiter says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The most calls in flight; at least one.
    pub max_in_flight: usize,
    /// The most rows a second.
    pub rows_per_second: Option<f64>,
}

/// The dead rows that stop a job.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MaxErrors {
    /// More dead rows than these stop it.
    pub rows: Option<u64>,
    /// A larger share of dead rows among the last rows stops it.
    pub share: Option<Share>,
}

/// A share of the last rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The share, from 0 to 1.
    pub most: f64,
    /// The number of last rows that it is of; fewer rows are no sample.
    pub of_rows: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            first_in_flight: 2,
            breaker: EjectionSettings::default(),
            backoff: Backoff::default(),
            hedge: 3.0,
            second_host: Duration::from_secs(60),
            patience: Duration::from_secs(600),
            max_errors: MaxErrors::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_in_flight: 256, rows_per_second: None }
    }
}
