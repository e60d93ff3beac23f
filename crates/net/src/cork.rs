//! Small writes, kept together.

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

/// More than this is not kept: what it would take to copy it is what a system call
/// costs.
const MOST: usize = 16 << 10;

/// A socket that keeps small writes until its [`Cork`] is pulled, or until there is
/// enough to write. It reads ahead.
#[derive(Debug)]
pub struct Corked<S> {
    reader: ReadAhead<Arc<S>>,
    cork: Arc<Cork<S>>,
}

/// What holds the small writes of a [`Corked`] socket back.
#[derive(Debug)]
pub struct Cork<S> {
    stream: Arc<S>,
    kept: Mutex<BytesMut>,
}

impl<S: Stream> Corked<S> {
    /// Corks `stream`, which nobody else reads from or writes to.
    pub fn new(stream: S) -> Self {
        let stream = Arc::new(stream);
        let cork = Cork { stream: Arc::clone(&stream), kept: Mutex::default() };
        Self { reader: ReadAhead::new(stream), cork: Arc::new(cork) }
    }

    /// What is to be pulled, or nothing small is ever written.
    pub fn cork(&self) -> Arc<Cork<S>> {
        Arc::clone(&self.cork)
    }
}

impl<S: Stream> Cork<S> {
    /// Does what `connection` does; whenever it waits, what it wrote on its socket is
    /// sent.
    pub async fn pulled_after<F: Future + Unpin>(&self, mut connection: F) -> F::Output {
        std::future::poll_fn(|context| {
            let polled = Pin::new(&mut connection).poll(context);
            // A socket that is broken tells the connection when it reads.
            let _ = self.pull(context);
            polled
        })
        .await
    }

    /// Sends what is kept.
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

    /// Keeps `pieces` if they are small, else sends what is kept and as much of them
    /// as there is room for.
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
        // Bytes are whole whatever happened to who held them.
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

    /// Nothing is sent: there may be more to come.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.cork.pull(context))?;
        Pin::new(&mut self.reader).poll_shutdown(context)
    }
}
