//! Reads into two buffers with one system call.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, BufReader};
use tokio_util::io::poll_read_buf;

/// A part of a buffer that a read may fill: the next `most` bytes after its content, within its
/// capacity.
#[derive(Debug)]
pub struct Space<'a> {
    pub(crate) buffer: &'a mut BytesMut,
    pub(crate) most: usize,
}

impl<'a> Space<'a> {
    /// At most `most` bytes after the content of `buffer`. The buffer does not grow.
    pub fn new(buffer: &'a mut BytesMut, most: usize) -> Self {
        let most = most.min(buffer.capacity() - buffer.len());
        Self { buffer, most }
    }

    /// The number of bytes that fit.
    pub fn len(&self) -> usize {
        self.most
    }

    /// True if nothing fits.
    pub fn is_empty(&self) -> bool {
        self.most == 0
    }

    /// The bytes to fill.
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let most = self.most;
        &mut self.buffer.spare_capacity_mut()[..most]
    }

    /// Counts bytes as content.
    ///
    /// # Safety
    /// That many bytes of [`Self::spare`] are initialised.
    pub(crate) unsafe fn filled(&mut self, bytes: usize) {
        self.most -= bytes;
        // SAFETY: as the caller guarantees; they are within the capacity.
        unsafe { self.buffer.advance_mut(bytes) }
    }

    /// Moves bytes here from `others` that were read before.
    pub(crate) fn take_from(&mut self, others: &mut BytesMut) {
        let count = others.len().min(self.most);
        self.buffer.extend_from_slice(&others[..count]);
        others.advance(count);
        self.most -= count;
    }
}

/// A stream that reads into two buffers at once, so that bytes whose place is known go there
/// directly and the bytes after them need no further read.
pub trait Scatter: AsyncRead {
    /// Appends what has arrived to `first`, and what does not fit there to `rest`. Returns the
    /// number of bytes; 0 is the end of the stream.
    fn poll_scatter(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        first: Space<'_>,
        rest: Space<'_>,
    ) -> Poll<io::Result<usize>>;
}

/// Fills one of the two buffers in each read.
impl<S: AsyncRead> Scatter for BufReader<S> {
    fn poll_scatter(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        first: Space<'_>,
        rest: Space<'_>,
    ) -> Poll<io::Result<usize>> {
        let Space { buffer, most } = if first.is_empty() { rest } else { first };
        poll_read_buf(self, context, &mut buffer.limit(most))
    }
}
