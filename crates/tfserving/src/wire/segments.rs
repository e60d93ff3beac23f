//! Messages in pieces: what is large stays where it is.

use std::{io::IoSlice, iter, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};

/// Payloads from this size on are not copied. Below, one more piece costs more
/// than the copy: the kernel takes a message piece by piece.
const SHARED: usize = 1024;

/// Bytes in pieces, one after the other. A clone has the same pieces, which stay until
/// the last clone is gone, and is read by itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    /// Behind the last one there may be empty ones.
    pieces: Arc<[Bytes]>,
    /// The one that is read next.
    next: usize,
    /// What has been read of it.
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

    /// All pieces, as far as there is room: they are written without being put
    /// together first.
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let others = self.pieces.iter().skip(self.next + 1).map(|piece| &piece[..]);
        let pieces = iter::once(self.chunk()).chain(others).take_while(|piece| !piece.is_empty());
        let filled =
            slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece));
        filled.count()
    }

    /// # Panics
    /// When there is less than `count` left, as [`Buf`] has it.
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

/// Puts [`Segments`] together.
#[derive(Debug)]
pub(super) struct Writer {
    /// What has been written since the last piece.
    pub(super) head: BytesMut,
    /// As many as there can be; those that are not there yet are empty.
    pieces: Arc<[Bytes]>,
    count: usize,
}

impl Writer {
    /// Has room for `written` bytes and for `shared` payloads that become pieces.
    pub(super) fn with_room(written: usize, shared: usize) -> Self {
        // Each may have something written before it, and the last one also after it.
        let pieces = iter::repeat_n(Bytes::new(), 2 * shared + 1).collect();
        Self { head: BytesMut::with_capacity(written), pieces, count: 0 }
    }

    /// Whether a payload of that many bytes becomes a piece of its own.
    pub(super) fn shares(length: usize) -> bool {
        length >= SHARED
    }

    /// The next bytes of the message.
    pub(super) fn put(&mut self, payload: Bytes) {
        if Self::shares(payload.len()) {
            self.cut();
            self.push(payload);
        } else {
            self.head.extend_from_slice(&payload);
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
