//! The pieces that are not settled, by the place where they wait.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use outrigger_core::Moment;

use crate::{
    call::BatchId,
    piece::{Piece, PieceId},
};

/// The pieces of all batches. A piece is in one place: fresh, ready, delayed or waiting, or in
/// flight.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pieces: HashMap<PieceId, Piece>,
    last: u64,
    /// Pieces that were never sent.
    pub(crate) fresh: VecDeque<PieceId>,
    /// Pieces to be sent again, before the fresh ones, in the order in which they became ready.
    pub(crate) ready: VecDeque<PieceId>,
    /// Pieces to be sent again from a moment on.
    pub(crate) delayed: BTreeSet<(Moment, PieceId)>,
    /// Pieces whose failures are not judged yet.
    pub(crate) waiting: BTreeSet<PieceId>,
    /// The rows of each batch that are not settled.
    batches: BTreeMap<BatchId, u32>,
}

impl Pool {
    /// Adds a batch. Its number must not have been used before.
    pub(crate) fn add(&mut self, batch: BatchId, rows: u32) {
        debug_assert!(!self.batches.contains_key(&batch), "{batch:?} was added twice");
        if rows > 0 && self.batches.insert(batch, rows).is_none() {
            let id = self.insert(Piece::new(batch, 0..rows));
            self.fresh.push_back(id);
        }
    }

    pub(crate) fn insert(&mut self, piece: Piece) -> PieceId {
        self.last += 1;
        let id = PieceId(self.last);
        self.pieces.insert(id, piece);
        id
    }

    pub(crate) fn get(&self, id: PieceId) -> Option<&Piece> {
        self.pieces.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: PieceId) -> Option<&mut Piece> {
        self.pieces.get_mut(&id)
    }

    /// Takes a piece out of the place where it waits.
    pub(crate) fn lift(&mut self, id: PieceId) {
        self.ready.retain(|ready| *ready != id);
        self.waiting.remove(&id);
        if self.fresh.front() == Some(&id) {
            self.fresh.pop_front();
        }
    }

    /// Makes the pieces ready whose pause has ended.
    pub(crate) fn wake(&mut self, now: Moment) {
        while let Some(&(at, id)) = self.delayed.first().filter(|(at, _)| *at <= now) {
            self.delayed.remove(&(at, id));
            self.ready.push_back(id);
        }
    }

    /// Removes a piece that is settled. Returns its batch and rows, and true if no row of the batch
    /// remains.
    pub(crate) fn settle(&mut self, id: PieceId) -> Option<(Piece, bool)> {
        self.lift(id);
        let piece = self.pieces.remove(&id)?;
        let left = self.batches.get_mut(&piece.batch)?;
        *left -= piece.len();
        let is_last = *left == 0;
        if is_last {
            self.batches.remove(&piece.batch);
        }
        Some((piece, is_last))
    }

    /// The batches with rows that are not settled.
    pub(crate) fn open(&self) -> usize {
        self.batches.len()
    }

    /// The rows of all batches that are not settled.
    pub(crate) fn rows(&self) -> u64 {
        self.batches.values().map(|rows| u64::from(*rows)).sum()
    }

    /// True if no piece waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.fresh.is_empty() && self.ready.is_empty()
    }
}
