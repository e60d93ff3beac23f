//! The state of a job's hosts, for people and metrics.

use std::time::Duration;

use outrigger_core::Moment;
use outrigger_resilience::Place;

use crate::{
    call::{HostId, Stop},
    dispatcher::Dispatcher,
    host::{Bound, Host, Totals},
};

/// The state of a dispatcher.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The hosts, by number.
    pub hosts: Vec<HostStatus>,
    /// Batches with rows that are not settled.
    pub batches: usize,
    /// Rows of these batches that are not settled.
    pub rows: u64,
    /// Pieces of batches that were never sent.
    pub fresh: usize,
    /// Pieces to be sent again.
    pub retries: usize,
    /// Pieces that wait until it is known whether they or the hosts are at fault.
    pub waiting: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Dead rows.
    pub dead: u64,
    /// True while no calls are made on the caller's wish.
    pub is_paused: bool,
    /// The reason why the job was stopped.
    pub stop: Option<Stop>,
}

/// The state of one host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStatus {
    /// The host.
    pub host: HostId,
    /// The most calls in flight.
    pub limit: usize,
    /// The reason of the limit.
    pub bound: Bound,
    /// Calls in flight.
    pub in_flight: usize,
    /// The circuit breaker.
    pub breaker: Breaker,
    /// The end of the pause that the host has asked for.
    pub quiet_until: Option<Moment>,
    /// The rows a second that it scored lately.
    pub rows_per_second: f64,
    /// The usual round trip of a call of the size that was sent last.
    pub round_trip: Option<Duration>,
    /// The calls so far.
    pub totals: Totals,
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// The host gets calls.
    Closed,
    /// The host gets none until this moment.
    Open(Moment),
    /// One call decides about the host's return, or will when there are rows to send.
    HalfOpen,
}

impl Dispatcher {
    /// The state of the hosts and of the rows.
    pub fn snapshot(&self, now: Moment) -> Status {
        let hosts = self.present().map(|host| self.host_status(host, now)).collect();
        Status {
            hosts,
            batches: self.pool.open(),
            rows: self.pool.rows(),
            fresh: self.pool.fresh.len(),
            retries: self.pool.ready.len() + self.pool.delayed.len(),
            waiting: self.pool.waiting.len(),
            in_flight: self.flights.len(),
            dead: self.errors.dead(),
            is_paused: self.is_paused,
            stop: self.stop,
        }
    }

    fn host_status(&self, host: &Host, now: Moment) -> HostStatus {
        let breaker = match host.breaker.place(now) {
            Place::In => Breaker::Closed,
            Place::Trial => Breaker::HalfOpen,
            Place::Out(until) if until > now => Breaker::Open(until),
            Place::Out(_) => Breaker::HalfOpen,
        };
        let limits = &self.settings.limits;
        HostStatus {
            host: host.id,
            limit: host.limit(limits),
            bound: host.bound(limits, now),
            in_flight: host.in_flight,
            breaker,
            quiet_until: (host.quiet > now).then_some(host.quiet),
            rows_per_second: host.rate.per_second(now),
            round_trip: host.pace.last(),
            totals: host.totals,
        }
    }
}
