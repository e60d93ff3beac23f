//! Requests whose `:authority` is a percent-encoded path.
//!
//! gRPC's core library (Python, C++, Ruby) derives the authority of a request from the address that
//! it connects to: for `unix:/run/engine.sock` it is `run%2Fengine.sock`. h2 resets such a request,
//! because a host may not be percent-encoded, and the caller gets INTERNAL. TensorFlow Serving
//! accepts it. Nothing here reads the authority, so each `%` in it is replaced by `-` before h2
//! reads the bytes; the length of a header block (RFC 7541) does not change by that.

mod block;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use block::Block;

/// The length of the client's connection preface (RFC 9113, section 3.4).
const PREFACE: usize = 24;
/// The length of a frame's header.
const HEAD: usize = 9;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A connection whose authorities are replaced as they are read.
#[derive(Debug)]
pub(super) struct Plain<S> {
    stream: S,
    frames: Frames,
}

impl<S> Plain<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, frames: Frames::default() }
    }
}

/// The frames of a client, as far as they were read.
#[derive(Debug)]
struct Frames {
    part: Part,
    block: Block,
}

/// The part of the connection that the next byte belongs to.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Bytes that are passed on as they are: the preface, or the payload of a frame.
    Other { left: usize },
    /// The header of a frame.
    Head { read: usize, bytes: [u8; HEAD] },
    /// The payload of a HEADERS or CONTINUATION frame: before the header block there may be the
    /// length of the padding and the priority, after it the padding.
    Block { left: usize, before: usize, padding: usize, is_padded: bool },
}

impl Default for Frames {
    fn default() -> Self {
        Self { part: Part::Other { left: PREFACE }, block: Block::default() }
    }
}

impl Frames {
    /// Replaces the authorities in the next bytes of the connection.
    fn replace(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let read = self.step(bytes);
            bytes = &mut bytes[read..];
        }
    }

    /// Reads as many bytes as belong to the same part, and at least one; returns their number.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        match &mut self.part {
            Part::Other { left } => {
                let read = bytes.len().min(*left);
                *left -= read;
                if *left == 0 {
                    self.part = Part::next();
                }
                read
            }
            Part::Head { read, bytes: head } => {
                head[*read] = bytes[0];
                *read += 1;
                if *read == HEAD {
                    self.part = Part::after(*head);
                }
                1
            }
            Part::Block { left, before, padding, is_padded } => {
                if *before > 0 {
                    if std::mem::take(is_padded) {
                        *padding = usize::from(bytes[0]);
                    }
                    *before -= 1;
                } else if *left > *padding {
                    self.block.read(&mut bytes[0]);
                }
                *left -= 1;
                if *left == 0 {
                    self.part = Part::next();
                }
                1
            }
        }
    }
}

impl Part {
    fn next() -> Self {
        Self::Head { read: 0, bytes: [0; HEAD] }
    }

    /// The payload of the frame with this header.
    fn after([a, b, c, kind, flags, ..]: [u8; HEAD]) -> Self {
        let left = u32::from_be_bytes([0, a, b, c]) as usize;
        let is_head = kind == HEADERS;
        match left {
            0 => Self::next(),
            _ if is_head || kind == CONTINUATION => {
                let is_padded = is_head && flags & PADDED != 0;
                let priority = if is_head && flags & PRIORITY != 0 { 5 } else { 0 };
                let before = usize::from(is_padded) + priority;
                Self::Block { left, before, padding: 0, is_padded }
            }
            _ => Self::Other { left },
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Plain<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(read) = buffer.filled_mut().get_mut(before..) {
            self.frames.replace(read);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Plain<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
