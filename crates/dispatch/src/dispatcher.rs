//! The dispatcher and its inputs.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use outrigger_core::Moment;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{
    call::{BatchId, CallId, End, HostId, Settled, Stop},
    errors::Errors,
    host::{Hold, Host},
    piece::{Piece, PieceId},
    pool::Pool,
    settings::{Limits, Settings},
};

/// Gives rows to hosts. See the documentation of the crate.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) settings: Settings,
    pub(crate) hosts: BTreeMap<HostId, Host>,
    pub(crate) pool: Pool,
    pub(crate) flights: BTreeMap<CallId, Flight>,
    pub(crate) last_call: u64,
    /// A row that was scored, to test hosts with.
    pub(crate) reference: Option<(BatchId, Range<u32>)>,
    pub(crate) errors: Errors,
    /// The time since which no call has succeeded and some have failed.
    pub(crate) failing: Option<Moment>,
    pub(crate) is_paused: bool,
    /// Rows of later batches than this one are not sent.
    pub(crate) held_after: Option<BatchId>,
    pub(crate) stop: Option<Stop>,
    rng: StdRng,
}

/// A call in flight.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) host: HostId,
    /// The piece of its rows; `None` for a check.
    pub(crate) piece: Option<PieceId>,
    pub(crate) rows: u32,
    pub(crate) is_probe: bool,
    pub(crate) is_fragile: bool,
    pub(crate) sent: Moment,
    /// The places that were taken at its host, with its own.
    pub(crate) taken: usize,
}

impl Dispatcher {
    /// A dispatcher without batches. `seed` sets the jitter of its pauses.
    pub fn new(
        settings: Settings,
        hosts: impl IntoIterator<Item = HostId>,
        (seed, now): (u64, Moment),
    ) -> Self {
        let hosts = hosts.into_iter().map(|id| (id, Host::new(id, &settings, now))).collect();
        Self {
            errors: Errors::new(settings.max_errors),
            settings,
            hosts,
            pool: Pool::default(),
            flights: BTreeMap::new(),
            last_call: 0,
            reference: None,
            failing: None,
            is_paused: false,
            held_after: None,
            stop: None,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// Adds a batch of rows. A number must not be used twice; a batch without rows is ignored.
    pub fn add(&mut self, batch: BatchId, rows: u32) {
        self.pool.add(batch, rows);
    }

    /// The rows of a batch, which was added now, may have ended these hosts before: they are sent to
    /// two hosts at most, with these.
    pub fn may_have_ended(&mut self, batch: BatchId, hosts: &[HostId]) {
        let fresh = self.pool.fresh.iter().copied();
        let of_batch = |id: &PieceId| self.pool.get(*id).is_some_and(|piece| piece.batch == batch);
        let ids: Vec<_> = fresh.filter(of_batch).collect();
        for id in ids {
            let Some(piece) = self.pool.get_mut(id) else { continue };
            piece.ended = hosts.to_vec();
            // Only pieces that wait in this queue are kept from hosts.
            self.pool.fresh.retain(|fresh| *fresh != id);
            self.pool.ready.push_back(id);
        }
    }

    /// The caller has a row that was scored before: calls for
    /// [`Purpose::Check`](crate::Purpose::Check) send it, as that of the batch [`BatchId::NONE`], and
    /// [`Settled::keep`] names no other.
    pub fn has_scored_row(&mut self) {
        self.reference.get_or_insert((BatchId::NONE, 0..1));
    }

    /// True if more batches are wanted: the hosts could soon have nothing to do. The batches that are
    /// not settled are bounded by a multiple of the hosts' limits.
    pub fn has_room(&self) -> bool {
        let limits = &self.settings.limits;
        let places: usize = self.present().map(|host| host.limit(limits)).sum();
        self.stop.is_none()
            && self.pool.fresh.len() < places.max(1)
            && self.pool.open() < 4 * places + 64
    }

    /// True if no row is left to settle.
    pub fn is_idle(&self) -> bool {
        self.pool.open() == 0
    }

    /// Replaces the hosts. Calls in flight at a host that is removed go on, and it gets no others.
    pub fn set_hosts(&mut self, hosts: &[HostId], now: Moment) -> Settled {
        for id in hosts {
            let settings = &self.settings;
            let host = self.hosts.entry(*id).or_insert_with(|| Host::new(*id, settings, now));
            host.is_present = true;
        }
        let gone: Vec<_> = self.hosts.keys().copied().filter(|id| !hosts.contains(id)).collect();
        let mut settled = Settled::default();
        for id in gone {
            if let Some(host) = self.hosts.get_mut(&id) {
                host.is_present = false;
            }
            self.host_is_gone(id, now, &mut settled);
        }
        self.forget_hosts();
        settled
    }

    /// Takes a sign of life of a host into account: if it is withdrawn, its next probe is due now. The
    /// probe decides about its return.
    pub fn may_return(&mut self, host: HostId, now: Moment) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.breaker.may_return(now);
        }
    }

    /// Sets a bound of one host beside its limits. It holds until it is set again.
    pub fn hold(&mut self, host: HostId, hold: Hold) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.hold = hold;
        }
    }

    /// Makes no calls to a host for `pause`, as it has asked for in an answer that is no failure.
    pub fn be_quiet(&mut self, host: HostId, pause: Duration, now: Moment) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.be_quiet(pause, now);
        }
    }

    /// Sets the limits of each host.
    pub fn set_limits(&mut self, limits: Limits) {
        self.settings.limits = limits;
    }

    /// Counts rows that the caller has found dead without a call.
    pub fn refused(&mut self, rows: u32) {
        self.count(rows, true);
    }

    /// Sets the number of dead rows that others have settled, or this caller before. They count for
    /// the number of [`MaxErrors`](crate::MaxErrors), and not for the share.
    pub fn set_dead_elsewhere(&mut self, rows: u64) {
        if self.errors.elsewhere(rows) {
            self.stop.get_or_insert(Stop::MaxErrors);
        }
    }

    /// Makes no more calls until [`Self::resume`]. Those in flight go on.
    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Makes calls again.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.is_paused) {
            // The pause was not the hosts' fault.
            self.failing = None;
        }
    }

    /// Sends only rows of the batches up to this one, and none to a second host because the first one
    /// is slow: the caller has no memory for more answers. `None` ends that. Calls in flight go on.
    pub fn hold_after(&mut self, batch: Option<BatchId>) {
        self.held_after = batch;
    }

    /// The reason why the job was stopped. [`Self::next`] returns no more calls then.
    pub fn stopped(&self) -> Option<Stop> {
        self.stop
    }

    /// Takes the end of a call into account. A call that is not in flight, because it was cancelled
    /// or has ended before, changes nothing.
    pub fn ended(&mut self, id: CallId, end: End, now: Moment) -> Settled {
        let mut settled = Settled::default();
        let Some(flight) = self.flights.remove(&id) else { return settled };
        self.leave(id, &flight);
        match end {
            End::Scored => self.scored(&flight, now, &mut settled),
            End::Failed(failure) => self.failed(&flight, failure, now, &mut settled),
            End::Withdrawn => self.withdrawn(&flight),
            End::Oversized => self.oversized(&flight, now, &mut settled),
        }
        self.forget_hosts();
        settled
    }

    /// Removes a settled piece.
    pub(crate) fn settle(&mut self, id: PieceId) -> Option<(Piece, bool)> {
        self.unlink(id);
        self.pool.settle(id)
    }

    pub(crate) fn count(&mut self, rows: u32, is_dead: bool) {
        if self.errors.settled(rows, is_dead) {
            self.stop.get_or_insert(Stop::MaxErrors);
        }
    }

    /// A random number of [0, 1).
    pub(crate) fn jitter(&mut self) -> f64 {
        self.rng.random()
    }

    /// The hosts that get calls.
    pub(crate) fn present(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values().filter(|host| host.is_present)
    }

    /// Forgets hosts that were removed and have no more calls in flight.
    fn forget_hosts(&mut self) {
        self.hosts.retain(|_, host| host.is_present || host.in_flight > 0);
    }
}
