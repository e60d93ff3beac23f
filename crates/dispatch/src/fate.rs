//! The next place of pieces whose calls have ended.

use outrigger_core::Moment;
use outrigger_resilience::Class;

use crate::{
    call::{Dead, HostId, Reason, Settled},
    dispatcher::Dispatcher,
    piece::{Fate, PieceId},
};

impl Dispatcher {
    /// Cuts a piece that is larger than a host takes, at the size that the host has named.
    pub(crate) fn too_large(
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
            (Fate::Send, None) => self.pool.ready.push_back(id),
            (Fate::Send, Some(since)) => {
                let made = piece.unprocessed;
                let jitter = self.jitter();
                let until = since + self.settings.backoff.pause(made, jitter);
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
}
