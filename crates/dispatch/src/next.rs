//! The next call.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use outrigger_core::Moment;
use outrigger_resilience::Place;

use crate::{
    call::{Call, CallId, HostId, Purpose, Settled, Stop},
    dispatcher::{Dispatcher, Flight},
    evidence::DOUBT,
    host::Host,
    piece::{Piece, PieceId},
};

/// A call that takes this many times as long as usual is late.
const LATE: u32 = 10;

/// The work that a host gets.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// The first rows of a piece, at most this many.
    Rows(PieceId, u32),
    Hedge(PieceId),
    Check,
}

impl Dispatcher {
    /// The next call that the caller must send now; `None` if there is none until a call ends, a
    /// batch is added, or [`Self::wake_at`].
    pub fn next(&mut self, now: Moment) -> Option<Call> {
        self.lose_patience(now);
        if self.is_paused || self.stop.is_some() {
            return None;
        }
        self.pool.wake(now);
        self.hosts.values_mut().for_each(|host| host.release(now));
        let found = self.find(now);
        let (host, work) = match found {
            None if self.begin_without_evidence(now) => self.find(now)?,
            found => found?,
        };
        Some(self.send(host, work, now))
    }

    /// Stops a job whose hosts answer, but with failures only. The calls that were sent within the
    /// patience decide, and each of them may take as long as the caller's time limit says.
    fn lose_patience(&mut self, now: Moment) {
        let has_failed = |end| end <= now && self.flights.values().all(|call| call.sent >= end);
        if self.patience_ends().is_some_and(has_failed) {
            self.stop.get_or_insert(Stop::NoSuccess);
        }
    }

    fn patience_ends(&self) -> Option<Moment> {
        let is_answered = self.present().any(|host| host.is_failing);
        self.failing.filter(|_| is_answered).map(|since| since + self.settings.patience)
    }

    /// The host that gets a call, and the work. Hosts with the shortest time to an answer come
    /// first.
    fn find(&self, now: Moment) -> Option<(HostId, Work)> {
        let free = self.free(now);
        let mut free: Vec<_> = free.map(|host| (self.cost(host), host.used, host.id)).collect();
        free.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        free.into_iter().find_map(|(_, _, id)| Some((id, self.work(self.hosts.get(&id)?, now)?)))
    }

    /// The hosts that take a call.
    fn free(&self, now: Moment) -> impl Iterator<Item = &Host> {
        let mut late = BTreeMap::<_, usize>::new();
        for (host, _) in self.late_from().filter(|(_, from)| *from <= now) {
            *late.entry(host).or_default() += 1;
        }
        self.present().filter(move |host| {
            let late = late.get(&host.id).copied().unwrap_or(0);
            host.is_free(&self.settings.limits, late, now)
        })
    }

    /// For each call in flight its host, and the time from which on it is late.
    fn late_from(&self) -> impl Iterator<Item = (HostId, Moment)> {
        self.flights.values().filter_map(|flight| {
            let usual = self.hosts.get(&flight.host)?.pace.expected(flight.rows)?;
            Some((flight.host, flight.sent + usual.saturating_mul(LATE)))
        })
    }

    /// The time of a call at a host, in proportion to the places that are taken. A host that has had
    /// no success yet comes first, so that it is known.
    fn cost(&self, host: &Host) -> f64 {
        let expected = host.pace.last().unwrap_or(Duration::ZERO).as_secs_f64();
        let limit = host.limit(&self.settings.limits) as f64;
        expected * (host.taken() as f64 + 1.0) / limit
    }

    fn work(&self, host: &Host, now: Moment) -> Option<Work> {
        let is_trial = host.breaker.place(now) == Place::Trial;
        let can_check = self.reference.is_some() && host.check.is_none();
        if self.reference.is_some() && (is_trial || host.in_a_row >= DOUBT) {
            return can_check.then_some(Work::Check);
        }
        let most = host.most_rows.unwrap_or(u32::MAX);
        // A single row is the one that is least likely to be at fault.
        let most = if is_trial { 1 } else { most.max(1) };
        self.piece_for(host, now)
            .map(|id| Work::Rows(id, most))
            .or_else(|| (can_check && host.is_in_doubt()).then_some(Work::Check))
            .or_else(|| self.hedge(host, now).filter(|_| !is_trial).map(Work::Hedge))
    }

    /// The next piece that the host may get.
    fn piece_for(&self, host: &Host, now: Moment) -> Option<PieceId> {
        let admitted =
            |id: &&PieceId| self.pool.get(**id).is_some_and(|piece| self.admits(piece, host, now));
        let ready = self.pool.ready.iter().find(admitted);
        let is_sent = |id: &&PieceId| self.pool.get(**id).is_some_and(|piece| !self.is_held(piece));
        ready.or_else(|| self.pool.fresh.front().filter(is_sent)).copied()
    }

    /// True if a piece waits to be sent that is not held.
    fn has_sendable(&self) -> bool {
        let next = self.pool.ready.iter().chain(self.pool.fresh.front());
        next.filter_map(|id| self.pool.get(*id)).any(|piece| !self.is_held(piece))
    }

    /// True if the caller has no memory for the answer to a piece.
    fn is_held(&self, piece: &Piece) -> bool {
        self.held_after.is_some_and(|last| piece.batch > last)
    }

    /// True if the host may get the piece: it has not failed on it, unless there is no other host;
    /// and a piece that may end its host is sent to two hosts at most, to each without another such
    /// piece beside it.
    fn admits(&self, piece: &Piece, host: &Host, now: Moment) -> bool {
        if self.is_held(piece) || (piece.is_fragile() && host.fragile > 0) {
            return false;
        }
        let mut others = self.allowed(piece).filter(|other| !piece.has_strike_at(other.id));
        match piece.has_strike_at(host.id) {
            false => others.any(|other| other.id == host.id),
            true => {
                let is_allowed = self.allowed(piece).any(|other| other.id == host.id);
                let has_waited = piece.last + self.settings.second_host <= now;
                is_allowed && others.all(|other| has_waited && !other.is_in(now))
            }
        }
    }

    /// The present hosts to which a piece is confined; all if it is not, or if those were removed.
    fn allowed<'a>(&'a self, piece: &Piece) -> impl Iterator<Item = &'a Host> + use<'a> {
        let hosts = piece.confined().unwrap_or_default();
        let is_confined = self.present().any(|host| hosts.contains(&host.id));
        self.present().filter(move |host| !is_confined || hosts.contains(&host.id))
    }

    /// The piece whose call at another host has taken longest, if that is much longer than usual at
    /// this host.
    fn hedge(&self, host: &Host, now: Moment) -> Option<PieceId> {
        self.hedges(host).filter(|(at, _)| *at <= now).map(|(_, id)| id).next()
    }

    /// The pieces that may be sent to a host, too, with the times from which on; the earliest sent
    /// first.
    fn hedges<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = (Moment, PieceId)> + 'a {
        let may_hedge = self.held_after.is_none();
        self.flights.values().filter_map(move |flight| {
            let id = flight.piece.filter(|_| may_hedge && flight.host != host.id)?;
            let piece = self.pool.get(id)?;
            let is_clean = piece.strikes.is_empty() && !piece.is_fragile();
            let fits = piece.flights.len() == 1 && host.most_rows.is_none_or(|m| m >= piece.len());
            let usual = host.pace.expected(piece.len()).filter(|_| is_clean && fits)?;
            Some((flight.sent + usual.mul_f64(self.settings.hedge.clamp(1.0, 1e3)), id))
        })
    }

    /// Cuts a piece without evidence. Before the first success there are no rows to test hosts with,
    /// and if nothing else can be sent, smaller pieces are the only way to a first success. Returns
    /// false if there is no such piece.
    fn begin_without_evidence(&mut self, now: Moment) -> bool {
        if self.reference.is_some() || !self.flights.is_empty() || self.has_sendable() {
            return false;
        }
        let is_long = |id: &&PieceId| self.pool.get(**id).is_some_and(|piece| piece.len() > 1);
        let Some(id) = self.pool.waiting.iter().find(is_long).copied() else { return false };
        // A part without failures is not settled by this.
        self.bisect(id, now, &mut Settled::default());
        true
    }

    fn send(&mut self, host: HostId, work: Work, now: Moment) -> Call {
        self.last_call += 1;
        let id = CallId(self.last_call);
        let (piece, purpose) = match work {
            Work::Rows(piece, most) => {
                self.take(piece, most);
                (Some(piece), Purpose::Score)
            }
            Work::Hedge(piece) => (Some(piece), Purpose::Hedge),
            Work::Check => (None, Purpose::Check),
        };
        let mut call = self.call(id, host, (piece, purpose), now);
        let is_fragile =
            piece.and_then(|piece| self.pool.get(piece)).is_some_and(Piece::is_fragile);
        let rows = call.rows.end - call.rows.start;
        let limits = self.settings.limits;
        let mut taken = 1;
        if let Some(state) = self.hosts.get_mut(&host) {
            call.is_probe = state.breaker.place(now) == Place::Trial;
            if call.is_probe {
                state.breaker.try_again();
            }
            taken = state.sent(rows, (id.0, now), &limits);
            state.fragile += usize::from(is_fragile);
            if purpose == Purpose::Check {
                state.check = Some(id);
            }
        }
        let is_probe = call.is_probe;
        let flight = Flight { host, piece, rows, is_probe, is_fragile, sent: now, taken };
        self.flights.insert(id, flight);
        call
    }

    /// Takes a piece out of its queue. Its rows beyond `most` stay there.
    fn take(&mut self, id: PieceId, most: u32) {
        let is_fresh = self.pool.fresh.front() == Some(&id);
        self.pool.lift(id);
        if self.pool.get(id).is_some_and(|piece| piece.len() > most)
            && let Some(tail) = self.cut(id, most)
        {
            if is_fresh {
                self.pool.fresh.push_front(tail);
            } else {
                self.pool.ready.push_back(tail);
            }
        }
    }

    fn call(
        &mut self,
        id: CallId,
        host: HostId,
        (piece, purpose): (Option<PieceId>, Purpose),
        now: Moment,
    ) -> Call {
        let (batch, rows, attempt) = match piece.and_then(|piece| self.pool.get_mut(piece)) {
            Some(piece) => {
                piece.attempts += 1;
                piece.first.get_or_insert(now);
                piece.flights.push(id);
                (piece.batch, piece.rows.clone(), piece.attempts)
            }
            None => {
                let (batch, rows) = self.reference.clone().unwrap_or_default();
                (batch, rows, 1)
            }
        };
        Call { id, host, batch, rows, attempt, purpose, is_probe: false }
    }

    /// The next moment at which [`Self::next`] may return a call, or stop the job, although no call
    /// has ended and no batch was added. The caller asks after [`Self::next`] has returned `None`.
    pub fn wake_at(&self, now: Moment) -> Option<Moment> {
        if self.is_paused || self.stop.is_some() {
            return None;
        }
        let limits = &self.settings.limits;
        let mut times: BTreeSet<Moment> = self.patience_ends().into_iter().collect();
        times.extend(self.pool.delayed.first().map(|(at, _)| *at));
        times.extend(self.present().filter_map(|host| host.wakes_at(limits, now)));
        times.extend(self.late_from().map(|(_, from)| from).filter(|from| *from > now).min());
        let blocked = self.pool.ready.iter().filter_map(|id| self.pool.get(*id));
        times.extend(blocked.map(|piece| piece.last + self.settings.second_host));
        if self.pool.is_idle() {
            let free = self.free(now);
            times.extend(free.filter_map(|host| self.hedges(host).map(|(at, _)| at).min()));
        }
        times.into_iter().find(|at| *at > now)
    }
}
