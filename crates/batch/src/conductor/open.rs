//! Batches with rows that are not settled.

use crate::{
    batch::{Batch, Piece},
    memory::Charge,
    readers::CALL_BYTES,
};

/// A batch with rows that are not settled.
pub(super) struct Open {
    pub(super) batch: Batch,
    pub(super) pieces: Vec<Piece>,
    /// The bytes of the answers that are there.
    pub(super) answer_bytes: u64,
    /// The rows that are not settled, and those of them that are in a call which has memory of its
    /// own.
    pub(super) left: u32,
    pub(super) in_flight: u32,
}

impl Open {
    pub(super) fn new(batch: Batch) -> Self {
        let left = u32::try_from(batch.rows.len()).unwrap_or(u32::MAX);
        Self { batch, pieces: Vec::new(), answer_bytes: 0, left, in_flight: 0 }
    }

    /// The bytes that are charged for answers to come.
    fn provided(&self) -> u64 {
        self.batch.charge.bytes().saturating_sub(self.batch.bytes + self.answer_bytes)
    }

    /// Provides memory for the answers to the rows that are not in flight, `row_bytes` for each and
    /// at most `most`. Returns false if there is too little.
    pub(super) fn provide(&mut self, (row_bytes, most): (u64, u64), is_first: bool) -> bool {
        let rows = u64::from(self.left.saturating_sub(self.in_flight));
        let needed = if rows == 0 { 0 } else { needed(rows, row_bytes).min(most) };
        let more = needed.saturating_sub(self.provided());
        more == 0 || self.batch.charge.grow(more, is_first)
    }

    /// Takes memory out for a call with so many rows, at most that which is provided.
    pub(super) fn send(&mut self, rows: u32, row_bytes: u64) -> Charge {
        self.in_flight += rows;
        let bytes = needed(rows.into(), row_bytes).min(self.provided());
        self.batch.charge.split(bytes)
    }

    /// Takes the memory of a call back that has no answer.
    pub(super) fn take_back(&mut self, rows: u32, charge: Charge) {
        self.in_flight = self.in_flight.saturating_sub(rows);
        self.batch.charge.join(charge);
    }

    /// Takes an answer, with the memory that it has.
    pub(super) fn take(&mut self, piece: Piece, charge: Charge) {
        self.left = self.left.saturating_sub(piece.rows.end - piece.rows.start);
        self.answer_bytes += charge.bytes();
        self.batch.charge.join(charge);
        self.pieces.push(piece);
    }
}

/// The memory of a call with so many rows.
pub(super) fn needed(rows: u64, row_bytes: u64) -> u64 {
    rows.saturating_mul(row_bytes).saturating_add(CALL_BYTES)
}
