//! The dispatcher: its inputs, and the ends of calls.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use outrigger_core::Moment;
use outrigger_resilience::{Class, Outcome, Place};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{
    call::{BatchId, CallId, Dead, End, Failure, HostId, Reason, Scored, Settled, Stop},
    errors::Errors,
    host::{Ended, Host},
    piece::{Fate, Piece, PieceId, Strike, is_strike},
    pool::{Pool, head},
    settings::{Limits, Settings},
    status::{Breaker, HostStatus, Status},
};

/// Gives rows to hosts. See the documentation of the crate.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) settings: Settings,
    pub(crate) hosts: BTreeMap<HostId, Host>,
    pub(crate) pool: Pool,
    pub(crate) flights: BTreeMap<CallId, Flight>,
    pub(crate) last_call: u64,
    /// Rows that were scored, to test hosts with.
    pub(crate) reference: Option<(BatchId, Range<u32>)>,
    pub(crate) errors: Errors,
    /// The time since which no call has succeeded and some have failed.
    pub(crate) failing: Option<Moment>,
    pub(crate) is_paused: bool,
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
            stop: None,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// Adds a batch of rows. A number must not be used twice; a batch without rows is ignored.
    pub fn add(&mut self, batch: BatchId, rows: u32) {
        self.pool.add(batch, rows);
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

    /// Sets the limits of each host.
    pub fn set_limits(&mut self, limits: Limits) {
        self.settings.limits = limits;
    }

    /// Makes no more calls until [`Self::resume`]. Those in flight go on.
    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Makes calls again.
    pub fn resume(&mut self) {
        self.is_paused = false;
        // The pause was not the hosts' fault.
        self.failing = None;
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
        }
        self.forget_hosts();
        settled
    }

    /// Gives the rows of a call, and the part that it had in its host's test, free.
    fn leave(&mut self, id: CallId, flight: &Flight) {
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.fragile -= usize::from(flight.is_fragile);
            if host.check == Some(id) {
                host.check = None;
            }
        }
        if let Some(piece) = flight.piece.and_then(|piece| self.pool.get_mut(piece)) {
            piece.flights.retain(|other| *other != id);
        }
    }

    fn withdrawn(&mut self, flight: &Flight) {
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.forget(flight.is_probe);
        }
        if let Some(id) = flight.piece.filter(|id| self.is_resting(*id)) {
            self.pool.ready.insert(id);
        }
    }

    /// True if the piece is not in flight.
    fn is_resting(&self, id: PieceId) -> bool {
        self.pool.get(id).is_some_and(|piece| piece.flights.is_empty())
    }

    fn scored(&mut self, flight: &Flight, now: Moment, settled: &mut Settled) {
        self.failing = None;
        self.host_ended(flight, None, now);
        self.judge(flight.host, Outcome::Success, flight.is_probe, now);
        self.acquit_others(flight, now, settled);
        let Some((piece, is_last)) = flight.piece.and_then(|id| self.settle(id)) else { return };
        for id in &piece.flights {
            self.cancel(*id);
            settled.cancel.push(*id);
        }
        // Another host could score the rows, so the failures were those of their hosts.
        for strike in &piece.strikes {
            self.judge(strike.host, Outcome::Failure, false, now);
        }
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.totals.rows += u64::from(piece.len());
            host.rate.record(piece.len(), now);
        }
        if self.reference.is_none() {
            let kept = (piece.batch, head(&piece.rows, self.settings.probe_rows.max(1)));
            self.reference = Some(kept.clone());
            settled.keep = Some(kept);
        }
        self.count(piece.len(), false);
        let Piece { batch, rows, .. } = piece;
        settled.scored = Some(Scored { batch, rows, host: flight.host, is_last });
    }

    /// Ends a call that another one has made useless.
    fn cancel(&mut self, id: CallId) {
        let Some(flight) = self.flights.remove(&id) else { return };
        self.leave(id, &flight);
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.forget(flight.is_probe);
        }
    }

    fn failed(&mut self, flight: &Flight, failure: Failure, now: Moment, settled: &mut Settled) {
        let class = failure.class;
        self.failing.get_or_insert(now);
        if let (Some(pause), Some(host)) = (failure.retry_after, self.hosts.get_mut(&flight.host)) {
            host.be_quiet(pause, now);
        }
        self.host_ended(flight, Some(class), now);
        match Outcome::of(Some(class)) {
            // The verdict on the rows decides about the host.
            _ if is_strike(class) && !flight.is_probe && flight.piece.is_some() => {}
            Some(outcome) => self.judge(flight.host, outcome, flight.is_probe, now),
            // The host refuses rows that it has scored before.
            None => self.judge(flight.host, Outcome::Failure, flight.is_probe, now),
        }
        let is_large = matches!(class, Class::TooLarge(_)) && flight.rows > 1;
        if !is_large {
            self.accuse(flight, class, now, settled);
        }
        let Some(id) = flight.piece else { return };
        let Some(piece) = self.pool.get_mut(id) else { return };
        piece.last = now;
        if is_large {
            self.too_large(id, flight.host, class, now, settled);
        } else if is_strike(class) {
            let (host, sent) = (flight.host, flight.sent);
            piece.struck(Strike { host, sent, ended: now, failure, is_proven: false });
            self.opened(id, host, now);
            self.rest(id, None, now, settled);
        } else {
            piece.unprocessed += 1;
            self.rest(id, Some(now), now, settled);
        }
    }

    /// Places a piece, unless another call with it is in flight.
    fn rest(
        &mut self,
        id: PieceId,
        unprocessed: Option<Moment>,
        now: Moment,
        settled: &mut Settled,
    ) {
        if self.is_resting(id) {
            self.place(id, unprocessed, now, settled);
        }
    }

    /// Records the end of a call at its host.
    fn host_ended(&mut self, flight: &Flight, failure: Option<Class>, now: Moment) {
        let Flight { sent, rows, taken, .. } = *flight;
        let ended = Ended { sent, now, rows, taken, failure };
        let hold = self.expected(flight.host, rows);
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.ended(&ended, hold);
        }
    }

    /// The usual time of a call at a host, or at the other ones if it has had no success.
    fn expected(&self, host: HostId, rows: u32) -> Duration {
        let own = self.hosts.get(&host).and_then(|host| host.pace.expected(rows));
        let least = || self.hosts.values().filter_map(|host| host.pace.expected(rows)).min();
        own.or_else(least).unwrap_or(self.settings.backoff.first)
    }

    /// Records a result for the circuit breaker of a host.
    pub(crate) fn judge(&mut self, host: HostId, outcome: Outcome, is_probe: bool, now: Moment) {
        let jitter = self.rng.random();
        if let Some(host) = self.hosts.get_mut(&host) {
            host.breaker.ended(outcome, is_probe, (now, jitter));
        }
    }

    /// Cuts a piece that is larger than a host takes, at the size that the host has named.
    fn too_large(
        &mut self,
        id: PieceId,
        host: HostId,
        class: Class,
        now: Moment,
        settled: &mut Settled,
    ) {
        let Some(piece) = self.pool.get(id).filter(|piece| piece.flights.is_empty()) else {
            return;
        };
        let Class::TooLarge(cut) = class else { return };
        let named = cut.rows.and_then(|rows| u32::try_from(rows).ok());
        let named = named.filter(|rows| (1..piece.len()).contains(rows));
        if let (Some(rows), Some(host)) = (named, self.hosts.get_mut(&host)) {
            host.most_rows = Some(host.most_rows.map_or(rows, |most| most.min(rows)));
        }
        let size = named.unwrap_or(piece.len() / 2);
        let tail = self.cut(id, size);
        for part in [Some(id), tail].into_iter().flatten() {
            self.place(part, None, now, settled);
        }
    }

    /// Cuts a piece so that this many rows remain in it. Returns the other part.
    pub(crate) fn cut(&mut self, id: PieceId, rows: u32) -> Option<PieceId> {
        let piece = self.pool.get_mut(id)?;
        let tail = piece.split_off(piece.rows.start + rows);
        let open: Vec<_> = tail.strikes.iter().filter(|s| !s.is_proven).map(|s| s.host).collect();
        let tail = self.pool.insert(tail);
        for host in open {
            if let Some(host) = self.hosts.get_mut(&host) {
                host.open.push(tail);
            }
        }
        Some(tail)
    }

    /// Puts a piece that is not in flight where its failures lead. `unprocessed` is the time at
    /// which a host did not process it.
    pub(crate) fn place(
        &mut self,
        id: PieceId,
        unprocessed: Option<Moment>,
        now: Moment,
        settled: &mut Settled,
    ) {
        self.pool.lift(id);
        let Some(piece) = self.pool.get(id) else { return };
        match (piece.fate(), unprocessed) {
            (Fate::Send, None) => _ = self.pool.ready.insert(id),
            (Fate::Send, Some(since)) => {
                let made = piece.unprocessed;
                let until = since + self.settings.backoff.pause(made, self.rng.random());
                self.pool.delayed.insert((until, id));
            }
            (Fate::Wait, _) => _ = self.pool.waiting.insert(id),
            (Fate::Cut, _) => self.bisect(id, now, settled),
            (Fate::Dead, _) => self.dead(id, settled),
        }
    }

    /// Cuts a guilty piece in two.
    pub(crate) fn bisect(&mut self, id: PieceId, now: Moment, settled: &mut Settled) {
        self.unlink(id);
        self.pool.lift(id);
        let Some(piece) = self.pool.get_mut(id) else { return };
        piece.convict();
        let half = piece.len() / 2;
        let tail = self.cut(id, half);
        for part in [Some(id), tail].into_iter().flatten() {
            self.place(part, None, now, settled);
        }
    }

    fn dead(&mut self, id: PieceId, settled: &mut Settled) {
        let Some((piece, is_last)) = self.settle(id) else { return };
        let Some(strike) = piece.strikes.last() else { return };
        self.count(piece.len(), true);
        settled.dead.push(Dead {
            batch: piece.batch,
            row: piece.rows.start,
            reason: Reason::of(&strike.failure),
            message: strike.failure.message.clone(),
            hosts: piece.hosts,
            attempts: piece.attempts,
            first: piece.first.unwrap_or(piece.last),
            last: piece.last,
            is_last,
        });
    }

    /// Removes a settled piece.
    fn settle(&mut self, id: PieceId) -> Option<(Piece, bool)> {
        self.unlink(id);
        self.pool.settle(id)
    }

    fn count(&mut self, rows: u32, is_dead: bool) {
        if self.errors.settled(rows, is_dead) {
            self.stop.get_or_insert(Stop::MaxErrors);
        }
    }

    /// The hosts that get calls.
    pub(crate) fn present(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values().filter(|host| host.is_present)
    }

    /// Forgets hosts that were removed and have no more calls in flight.
    fn forget_hosts(&mut self) {
        self.hosts.retain(|_, host| host.is_present || host.in_flight > 0);
    }

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
            bound: host.bound(limits),
            in_flight: host.in_flight,
            breaker,
            quiet_until: (host.quiet > now).then_some(host.quiet),
            rows_per_second: host.rate.per_second(now),
            round_trip: host.pace.last(),
            totals: host.totals,
        }
    }
}
