//! The evidence against rows and hosts.

use outrigger_core::Moment;
use outrigger_resilience::{Class, Outcome};

use crate::{
    call::{HostId, Settled},
    dispatcher::{Dispatcher, Flight},
    host::is_answer,
    piece::{Piece, PieceId, Strike},
};

/// Failures in a row after which a host is tested with a row that was scored before.
pub(crate) const DOUBT: u32 = 3;

/// The verdict on a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The rows are at fault.
    Rows,
    /// The host is at fault.
    Host,
    /// It is not known yet.
    None,
}

impl Dispatcher {
    /// A failure of a piece at this host is to be judged.
    pub(crate) fn opened(&mut self, id: PieceId, host: HostId, now: Moment) {
        let Some(state) = self.hosts.get_mut(&host) else { return };
        if !state.open.contains(&id) {
            state.open.push(id);
        }
        state.in_a_row += 1;
        let (is_present, succeeded) = (state.is_present, state.succeeded);
        self.judge_open(host, now, |of, piece, strike| {
            let is_proven =
                succeeded.is_some_and(|ended| piece.is_proof(strike, (Moment::default(), ended)));
            match is_present {
                _ if of != id => Verdict::None,
                false => verdict_of_gone(strike),
                true if is_proven => Verdict::Rows,
                true => Verdict::None,
            }
        });
    }

    /// A failure of a piece at this host may pass. It counts if the host is found to be there.
    pub(crate) fn doubted(&mut self, id: PieceId, host: HostId, class: Class, now: Moment) {
        if let Some(piece) = self.pool.get_mut(id) {
            piece.doubted(host, class, now);
        }
        if let Some(state) = self.hosts.get_mut(&host).filter(|state| !state.doubts.contains(&id)) {
            state.doubts.push(id);
        }
    }

    /// Counts the failures that may pass of a host that has succeeded on other rows.
    fn count_doubts(&mut self, flight: &Flight) {
        let Some(state) = self.hosts.get_mut(&flight.host) else { return };
        let pool = &mut self.pool;
        state.doubts.retain(|id| {
            let piece = pool.get_mut(*id).filter(|_| Some(*id) != flight.piece);
            piece.is_some_and(|piece| !piece.host_succeeded(flight.host, flight.sent))
        });
    }

    /// A host has succeeded: rows that it failed on are at fault.
    pub(crate) fn acquit_others(&mut self, flight: &Flight, now: Moment, settled: &mut Settled) {
        self.count_doubts(flight);
        let call = (flight.sent, now);
        let Some(host) = self.hosts.get_mut(&flight.host) else { return };
        host.in_a_row = 0;
        let was_faulty = std::mem::take(&mut host.is_faulty);
        let changed = self.judge_open(flight.host, now, |id, piece, strike| {
            match Some(id) != flight.piece && piece.is_proof(strike, call) {
                // The host was at fault until now. One that rows have ended has started again.
                true if was_faulty && strike.failure.class != Class::Lost => Verdict::Host,
                true => Verdict::Rows,
                false => Verdict::None,
            }
        });
        self.place_again(changed, now, settled);
    }

    /// A host has failed: if it is the host's fault, earlier failures are, too.
    pub(crate) fn accuse(
        &mut self,
        flight: &Flight,
        class: Class,
        now: Moment,
        settled: &mut Settled,
    ) {
        if class == Class::Overloaded {
            return;
        }
        let is_check = flight.piece.is_none();
        let has_reference = self.reference.is_some();
        let batch = flight.piece.and_then(|id| self.pool.get(id)).map(|piece| piece.batch);
        let changed = self.judge_open(flight.host, now, |_, piece, strike| {
            let is_later = flight.sent >= strike.ended;
            let is_other = is_check || Some(piece.batch) != batch;
            let is_hosts = match strike.failure.class {
                // A host that the rows have ended is away until it has started again.
                Class::Lost => is_check && class != Class::Unavailable,
                _ if is_check || !is_answer(class) => true,
                // Nothing was scored yet, so there is no better test than other rows.
                _ => !has_reference,
            };
            if is_later && is_other && is_hosts { Verdict::Host } else { Verdict::None }
        });
        if let Some(host) = self.hosts.get_mut(&flight.host).filter(|_| is_check) {
            host.in_a_row = 0;
            host.is_faulty = true;
            // The host is not there.
            host.doubts.clear();
        }
        self.place_again(changed, now, settled);
    }

    /// A host was removed: it gives no more evidence.
    pub(crate) fn host_is_gone(&mut self, host: HostId, now: Moment, settled: &mut Settled) {
        let changed = self.judge_open(host, now, |_, _, strike| verdict_of_gone(strike));
        self.place_again(changed, now, settled);
    }

    /// Judges the failures at a host that are not judged yet. Returns the pieces with a verdict.
    fn judge_open(
        &mut self,
        host: HostId,
        now: Moment,
        verdict: impl Fn(PieceId, &Piece, &Strike) -> Verdict,
    ) -> Vec<PieceId> {
        let Some(state) = self.hosts.get_mut(&host) else { return Vec::new() };
        let open = std::mem::take(&mut state.open);
        let (mut still_open, mut changed, mut faults) = (Vec::new(), Vec::new(), 0);
        for id in open {
            let Some(piece) = self.pool.get_mut(id) else { continue };
            let mut strikes = std::mem::take(&mut piece.strikes);
            let (mut is_open, mut is_changed) = (false, false);
            strikes.retain_mut(|strike| {
                if strike.host != host || strike.is_proven {
                    return true;
                }
                let verdict = verdict(id, piece, strike);
                is_open |= verdict == Verdict::None;
                is_changed |= verdict != Verdict::None;
                faults += u32::from(verdict == Verdict::Host);
                strike.is_proven = verdict == Verdict::Rows;
                verdict != Verdict::Host
            });
            piece.strikes = strikes;
            if is_open {
                still_open.push(id);
            }
            if is_changed {
                changed.push(id);
            }
        }
        if let Some(state) = self.hosts.get_mut(&host) {
            still_open.append(&mut state.open);
            state.open = still_open;
        }
        for _ in 0..faults {
            self.judge(host, Outcome::Failure, false, now);
        }
        changed
    }

    /// Puts pieces that waited for a verdict where it leads.
    fn place_again(&mut self, changed: Vec<PieceId>, now: Moment, settled: &mut Settled) {
        for id in changed {
            if self.pool.waiting.contains(&id) {
                self.place(id, None, now, settled);
            }
        }
    }

    /// Forgets the failures of a piece that wait for a verdict.
    pub(crate) fn unlink(&mut self, id: PieceId) {
        let Some(piece) = self.pool.get(id) else { return };
        for strike in piece.strikes.iter().filter(|strike| !strike.is_proven) {
            if let Some(host) = self.hosts.get_mut(&strike.host) {
                host.open.retain(|open| *open != id);
            }
        }
    }
}

/// The verdict on a failure at a host that was removed: one that vanished with the call's
/// connection was ended, as far as is known, by the rows.
fn verdict_of_gone(strike: &Strike) -> Verdict {
    if strike.failure.class == Class::Lost { Verdict::Rows } else { Verdict::Host }
}
