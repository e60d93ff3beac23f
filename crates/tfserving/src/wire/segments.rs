//! Messages in pieces: large payloads are not copied.

use std::{io::IoSlice, iter, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};

/// Payloads of at least this size, in bytes, are not copied. Below it, one more piece costs more
/// than the copy: the kernel takes a message piece by piece.
const SHARED: usize = 1024;

/// Bytes in pieces, one after the other. Clones share the pieces, which live until the last clone
/// is dropped; each clone has its own read position.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    /// The pieces; empty ones may follow the last.
    pieces: Arc<[Bytes]>,
    /// The index of the piece to read next.
    next: usize,
    /// The number of bytes of that piece already read.
    read: usize,
    remaining: usize,
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.get(self.next).map_or(&[], |piece| &piece[self.read..])
    }

    /// Fills the slices with the pieces, so that they are written without being joined first.
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let others = self.pieces.iter().skip(self.next + 1).map(|piece| &piece[..]);
        let pieces = iter::once(self.chunk()).chain(others).take_while(|piece| !piece.is_empty());
        let filled =
            slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece));
        filled.count()
    }

    /// # Panics
    /// If fewer than `count` bytes are left, as [`Buf`] specifies.
    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining, "{count} of {} bytes", self.remaining);
        self.remaining -= count;
        self.read += count;
        while let Some(piece) = self.pieces.get(self.next)
            && self.read >= piece.len()
        {
            self.read -= piece.len();
            self.next += 1;
        }
    }
}

/// Builds [`Segments`].
#[derive(Debug)]
pub(super) struct Writer {
    /// The bytes written since the last piece.
    pub(super) head: BytesMut,
    /// The pieces, as many as the message can have; those not yet filled are empty.
    pieces: Arc<[Bytes]>,
    count: usize,
}

impl Writer {
    /// Creates a writer with room for `written` bytes and `shared` payloads that become pieces.
    pub(super) fn with_room(written: usize, shared: usize) -> Self {
        // Written bytes may precede each shared payload, and also follow the last one.
        let pieces = iter::repeat_n(Bytes::new(), 2 * shared + 1).collect();
        Self { head: BytesMut::with_capacity(written), pieces, count: 0 }
    }

    /// Whether a payload of that length becomes a piece of its own.
    pub(super) fn shares(length: usize) -> bool {
        length >= SHARED
    }

    /// Appends the next bytes of the message.
    pub(super) fn put(&mut self, payload: &Bytes) {
        if Self::shares(payload.len()) {
            self.cut();
            self.push(payload.clone());
        } else {
            self.head.extend_from_slice(payload);
        }
    }

    fn cut(&mut self) {
        if !self.head.is_empty() {
            let head = self.head.split().freeze();
            self.push(head);
        }
    }

    fn push(&mut self, piece: Bytes) {
        Arc::get_mut(&mut self.pieces).expect("nobody else has them")[self.count] = piece;
        self.count += 1;
    }

    pub(super) fn finish(mut self) -> Segments {
        self.cut();
        let remaining = self.pieces.iter().map(Bytes::len).sum();
        Segments { pieces: self.pieces, next: 0, read: 0, remaining }
    }
}

#[cfg(test)]
mod tests;
