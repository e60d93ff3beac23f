//! Messages in pieces: what is large stays where it is.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Payloads from this size on are not copied. Below, one more piece costs more
/// than the copy: the kernel takes a message piece by piece.
const SHARED: usize = 1024;

/// Bytes in pieces, one after the other; what has been read of them is let go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    /// The next one is the last; none is empty.
    pieces: Vec<Bytes>,
    remaining: usize,
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.last().map_or(&[], |piece| piece)
    }

    /// All pieces, as far as there is room: they are written without being put
    /// together first.
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.pieces.iter().rev();
        let filled =
            slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece));
        filled.count()
    }

    /// # Panics
    /// When there is less than `count` left, as [`Buf`] has it.
    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "{count} of {} bytes", self.remaining);
        self.remaining -= count;
        while let Some(piece) = self.pieces.last_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            self.pieces.pop();
        }
    }
}

/// Puts [`Segments`] together.
#[derive(Debug)]
pub(super) struct Writer {
    /// What has been written since the last piece.
    pub(super) head: BytesMut,
    pieces: Vec<Bytes>,
}

impl Writer {
    /// Goes on after what `head` holds.
    pub(super) fn after(head: BytesMut) -> Self {
        Self { head, pieces: Vec::new() }
    }

    /// Whether a payload of that many bytes becomes a piece of its own.
    pub(super) fn shares(length: usize) -> bool {
        length >= SHARED
    }

    /// The next bytes of the message.
    pub(super) fn put(&mut self, payload: Bytes) {
        if Self::shares(payload.len()) {
            self.cut();
            self.pieces.push(payload);
        } else {
            self.head.extend_from_slice(&payload);
        }
    }

    fn cut(&mut self) {
        if !self.head.is_empty() {
            self.pieces.push(self.head.split().freeze());
        }
    }

    pub(super) fn finish(mut self) -> Segments {
        self.cut();
        self.pieces.reverse();
        Segments { remaining: self.pieces.iter().map(Bytes::len).sum(), pieces: self.pieces }
    }
}

#[cfg(test)]
mod tests;
