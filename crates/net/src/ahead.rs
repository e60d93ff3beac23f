//! A socket that reads ahead of its caller.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd as _},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    task,
};

use crate::Stream;

/// The most bytes read ahead at once. Several answers of the engine fit; a larger request takes two
/// reads.
const AHEAD: usize = 16 << 10;

/// The bytes after which other tasks of the thread get their turn, if the peer sends faster than the
/// bytes are worked on. They take about a quarter of a millisecond; tokio alone would interrupt
/// after some megabytes.
const TURN: usize = 256 << 10;

thread_local! {
    /// The thread's buffer for bytes read ahead. They are copied from here, so that a connection
    /// keeps only as much memory as bytes came.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; AHEAD].into());
}

/// A socket that reads all available bytes, also beyond what its caller asked for, so that the next
/// read needs no system call. Writes are passed on unchanged.
#[derive(Debug)]
pub struct ReadAhead<S> {
    stream: S,
    /// Bytes that were read but not yet asked for.
    ahead: BytesMut,
    /// The bytes read without a wait.
    taken: usize,
}

impl<S: Stream> ReadAhead<S> {
    /// Wraps `stream`, which nothing else may read from.
    pub fn new(stream: S) -> Self {
        Self { stream, ahead: BytesMut::new(), taken: 0 }
    }

    /// Reads once; an error of kind `WouldBlock` means that nothing is available.
    fn try_read(&mut self, out: &mut ReadBuf<'_>) -> io::Result<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut read = None;
            let done = self.stream.try_io(Interest::READABLE, || {
                // SAFETY: only the kernel writes to it, and it never makes initialised bytes
                // uninitialised.
                let asked = unsafe { out.unfilled_mut() };
                let room = asked.len() + AHEAD;
                let count = read_into(&self.stream, asked, as_uninit(scratch))?;
                read = Some(count);
                mark(count, room)
            });
            let Some(count) = read else { return done };
            self.taken += count;
            let asked = count.min(out.remaining());
            // SAFETY: the kernel has initialised that many bytes.
            unsafe { out.assume_init(asked) };
            out.advance(asked);
            self.ahead.extend_from_slice(&scratch[..count - asked]);
            Ok(())
        })
    }
}

/// Has the task polled again after the thread's other tasks, those whose sockets have become ready
/// included.
fn yield_turn<T>(context: &mut Context<'_>) -> Poll<T> {
    let waits = pin!(task::yield_now()).poll(context);
    debug_assert!(waits.is_pending(), "it yields at its first poll");
    Poll::Pending
}

/// Marks the socket as not ready after a short read, which means that nothing more is available,
/// without another read.
fn mark(count: usize, room: usize) -> io::Result<()> {
    match (1..room).contains(&count) {
        true => Err(io::ErrorKind::WouldBlock.into()),
        false => Ok(()),
    }
}

fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, length) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: both types have the same layout, and only the kernel writes through the result.
    unsafe { std::slice::from_raw_parts_mut(start, length) }
}

/// Reads into the first buffer, then into `more`, with one system call.
fn read_into(
    stream: &impl AsFd,
    first: &mut [MaybeUninit<u8>],
    more: &mut [MaybeUninit<u8>],
) -> io::Result<usize> {
    let places = [
        libc::iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
        libc::iovec { iov_base: more.as_mut_ptr().cast(), iov_len: more.len() },
    ];
    // SAFETY: the descriptor is open as long as `stream` is, and both buffers are exclusively ours.
    // They need not be initialised, which a safe read into a slice would require at a higher cost
    // than the read itself.
    let read = unsafe { libc::readv(stream.as_fd().as_raw_fd(), places.as_ptr(), 2) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

impl<S: Stream> ReadAhead<S> {
    /// Waits until there are bytes to read, and until it is this socket's turn.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.taken >= TURN {
            self.taken = 0;
            return yield_turn(context);
        }
        let ready = self.stream.poll_read_ready(context);
        if ready.is_pending() {
            self.taken = 0;
        }
        ready
    }
}

impl<S: Stream + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(out.remaining());
            out.put_slice(&self.ahead[..count]);
            self.ahead.advance(count);
            return Poll::Ready(Ok(()));
        }
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.poll_ready(context))?;
            match self.try_read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl<S: Stream + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_write(&self.stream, context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shut_down())
    }
}

/// Writes as much as the socket accepts now; if nothing, waits until it accepts some.
pub(crate) fn poll_write(
    stream: &impl Stream,
    context: &mut Context<'_>,
    pieces: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_write_vectored(pieces) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return Poll::Ready(done),
        }
    }
}
