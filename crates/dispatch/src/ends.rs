//! The ends of calls.

use std::time::Duration;

use outrigger_core::Moment;
use outrigger_resilience::{Class, Cut, Outcome};

use crate::{
    call::{CallId, Failure, HostId, Scored, Settled},
    dispatcher::{Dispatcher, Flight},
    host::Ended,
    piece::{Piece, PieceId, Strike, is_strike},
};

impl Dispatcher {
    /// Gives the rows of a call, and the part that it had in its host's test, free.
    pub(crate) fn leave(&mut self, id: CallId, flight: &Flight) {
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

    pub(crate) fn withdrawn(&mut self, flight: &Flight) {
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.forget(flight.is_probe);
        }
        if let Some(id) = flight.piece.filter(|id| self.is_resting(*id)) {
            self.pool.ready.push_back(id);
        }
    }

    pub(crate) fn oversized(&mut self, flight: &Flight, now: Moment, settled: &mut Settled) {
        let resting = flight.piece.filter(|id| flight.rows > 1 && self.is_resting(*id));
        let Some(id) = resting else { return self.withdrawn(flight) };
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.forget(flight.is_probe);
        }
        self.too_large(id, flight.host, Class::TooLarge(Cut::default()), now, settled);
    }

    /// True if the piece is not in flight.
    pub(crate) fn is_resting(&self, id: PieceId) -> bool {
        self.pool.get(id).is_some_and(|piece| piece.flights.is_empty())
    }

    pub(crate) fn scored(&mut self, flight: &Flight, now: Moment, settled: &mut Settled) {
        self.failing = None;
        self.host_ended(flight, None, now);
        self.judge(flight.host, Outcome::Success, flight.is_probe, now);
        // The rows are settled before others that die by this success: the order of the fates is
        // that in which the caller reads them.
        if let Some((piece, is_last)) = flight.piece.and_then(|id| self.settle(id)) {
            self.keep(&piece, settled);
            self.piece_scored(&piece, flight.host, now, settled);
            let Piece { batch, rows, .. } = piece;
            settled.scored = Some(Scored { batch, rows, host: flight.host, is_last });
        }
        self.acquit_others(flight, now, settled);
    }

    fn piece_scored(&mut self, piece: &Piece, host: HostId, now: Moment, settled: &mut Settled) {
        for id in &piece.flights {
            self.cancel(*id);
            settled.cancel.push(*id);
        }
        // Another host could score the rows, so the failures were those of their hosts.
        for strike in &piece.strikes {
            self.judge(strike.host, Outcome::Failure, false, now);
        }
        if let Some(host) = self.hosts.get_mut(&host) {
            host.totals.rows += u64::from(piece.len());
            host.rate.record(piece.len(), now);
        }
        self.count(piece.len(), false);
    }

    /// Keeps the first row that was scored, to test hosts with: a single one is not too large for
    /// any host.
    fn keep(&mut self, piece: &Piece, settled: &mut Settled) {
        if self.reference.is_none() {
            let kept = (piece.batch, piece.rows.start..piece.rows.start + 1);
            self.reference = Some(kept.clone());
            settled.keep = Some(kept);
        }
    }

    /// Ends a call that another one has made useless.
    fn cancel(&mut self, id: CallId) {
        let Some(flight) = self.flights.remove(&id) else { return };
        self.leave(id, &flight);
        if let Some(host) = self.hosts.get_mut(&flight.host) {
            host.forget(flight.is_probe);
        }
    }

    pub(crate) fn failed(
        &mut self,
        flight: &Flight,
        failure: Failure,
        now: Moment,
        settled: &mut Settled,
    ) {
        self.failing.get_or_insert(now);
        if let (Some(pause), Some(host)) = (failure.retry_after, self.hosts.get_mut(&flight.host)) {
            host.be_quiet(pause, now);
        }
        self.host_ended(flight, Some(failure.class), now);
        let is_for_good = failure.may_pass
            && flight.piece.and_then(|id| self.pool.get(id)).is_some_and(Piece::is_out_of_patience);
        let failure = if is_for_good { failure.for_good() } else { failure };
        let class = failure.class;
        let is_strike = is_strike(class) && !failure.may_pass;
        match Outcome::of(Some(class)) {
            // The verdict on the rows decides about the host.
            _ if is_strike && !flight.is_probe && flight.piece.is_some() => {}
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
        } else if is_strike {
            let (host, sent) = (flight.host, flight.sent);
            piece.struck(Strike { host, sent, ended: now, failure, is_proven: false });
            self.opened(id, host, now);
            self.rest(id, None, now, settled);
        } else {
            piece.unprocessed += 1;
            if failure.may_pass {
                self.doubted(id, flight.host, class, now);
            }
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
        let jitter = self.jitter();
        if let Some(host) = self.hosts.get_mut(&host) {
            host.breaker.ended(outcome, is_probe, (now, jitter));
        }
    }
}
