//! A socket that combines small writes.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{ReadAhead, Stream, ahead::poll_write};

/// The most bytes kept back; copying more costs as much as a system call.
const MOST: usize = 16 << 10;

/// A socket that keeps small writes back until its [`Cork`] is pulled or enough has accumulated,
/// and then sends them with one system call. It reads ahead.
#[derive(Debug)]
pub struct Corked<S> {
    reader: ReadAhead<Arc<S>>,
    cork: Arc<Cork<S>>,
}

/// Holds back the small writes of a [`Corked`] socket.
#[derive(Debug)]
pub struct Cork<S> {
    stream: Arc<S>,
    kept: Mutex<BytesMut>,
}

impl<S: Stream> Corked<S> {
    /// Wraps `stream`, which nothing else may read from or write to.
    pub fn new(stream: S) -> Self {
        let stream = Arc::new(stream);
        let cork = Cork { stream: Arc::clone(&stream), kept: Mutex::default() };
        Self { reader: ReadAhead::new(stream), cork: Arc::new(cork) }
    }

    /// The socket's cork. Without [`Cork::pulled_after`] on it, small writes are sent only when
    /// more accumulate or the socket is shut down.
    pub fn cork(&self) -> Arc<Cork<S>> {
        Arc::clone(&self.cork)
    }
}

impl<S: Stream> Cork<S> {
    /// Drives the future `connection`, and after each poll of it sends the bytes that it wrote to
    /// the socket.
    pub async fn pulled_after<F: Future + Unpin>(&self, mut connection: F) -> F::Output {
        std::future::poll_fn(|context| {
            let polled = Pin::new(&mut connection).poll(context);
            // The error is ignored: the connection gets it from its next read.
            let _ = self.pull(context);
            polled
        })
        .await
    }

    /// Sends the bytes kept back.
    fn pull(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut kept = self.kept();
        while !kept.is_empty() {
            let written = ready!(poll_write(&self.stream, context, &[IoSlice::new(&kept)]));
            match written {
                Ok(count) => kept.advance(count),
                Err(error) => {
                    kept.clear();
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Keeps `pieces` back if they are small. Otherwise sends the bytes kept back and as much of
    /// `pieces` as the socket accepts.
    fn write(&self, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut kept = self.kept();
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if kept.len() + length <= MOST {
            pieces.iter().for_each(|piece| kept.extend_from_slice(piece));
            return Poll::Ready(Ok(length));
        }
        while !kept.is_empty() {
            let written = {
                let first = std::iter::once(IoSlice::new(&kept));
                let all: SmallVec<[_; 8]> = first.chain(pieces.iter().copied()).collect();
                ready!(poll_write(&self.stream, context, &all))?
            };
            let old = written.min(kept.len());
            kept.advance(old);
            if written > old {
                return Poll::Ready(Ok(written - old));
            }
        }
        poll_write(&self.stream, context, pieces)
    }

    fn kept(&self) -> MutexGuard<'_, BytesMut> {
        // A poisoned lock is used: a panic of its holder cannot leave the buffer inconsistent.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Stream> AsyncRead for Corked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, out)
    }
}

impl<S: Stream> AsyncWrite for Corked<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.cork.write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.cork.write(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does not send: more writes may follow, and [`Cork::pulled_after`] sends them together.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.cork.pull(context))?;
        Pin::new(&mut self.reader).poll_shutdown(context)
    }
}
