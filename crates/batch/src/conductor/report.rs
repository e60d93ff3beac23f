//! The conductor's report of its progress.

use std::time::Duration;

use outrigger_dispatch::{Breaker, HostStatus};

use super::Conductor;
use crate::progress::{HostProgress, Progress};

impl Conductor {
    /// The progress of this worker, without what it does not know.
    pub(crate) fn progress(&self) -> Progress {
        let status = self.dispatcher.snapshot(self.now());
        let hosts: Vec<_> = status.hosts.iter().map(|host| self.host(host)).collect();
        Progress {
            time: crate::time::now(),
            scored: self.scored,
            dead: self.dead,
            reasons: self.tally.reasons(),
            rows_per_second: hosts.iter().map(|host| host.rows_per_second).sum(),
            is_paused: status.is_paused,
            hosts,
            ..Progress::default()
        }
    }

    fn host(&self, status: &HostStatus) -> HostProgress {
        let breaker = match status.breaker {
            Breaker::Closed => "closed",
            Breaker::Open(_) => "open",
            Breaker::HalfOpen => "half_open",
        };
        let (ends, last_failure) = self.tally.of(status.host);
        HostProgress {
            host: self.hosts.name(status.host).to_owned(),
            limit: status.limit,
            bound: status.bound.name().to_owned(),
            in_flight: status.in_flight,
            breaker: breaker.to_owned(),
            rows_per_second: status.rows_per_second,
            round_trip_ms: status.round_trip.as_ref().map(Duration::as_secs_f64).map(|s| s * 1e3),
            rows: status.totals.rows,
            calls: status.totals.calls,
            failed: status.totals.failed,
            tokens: self.quotas.used(status.host),
            ends,
            last_failure,
            health: self.health.get(&status.host).copied(),
        }
    }
}
