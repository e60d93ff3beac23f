//! A stream that reads much at once.
//!
//! h2 asks for the rest of a frame at a time, and most peers send frames of 16 KiB. So all that has
//! arrived is read with one system call, and h2 gets it from memory.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::bodies::Bodies;

/// The most bytes of one read.
pub(super) const MOST: usize = 256 << 10;

/// The longest time between two reads of a peer that is held up: a ping or a reset may be next.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The time after which it is decided again whether a peer is held up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

thread_local! {
    /// The buffer of the thread's next read. A connection keeps it only while it has bytes in it.
    static SPARE: Cell<Box<[u8]>> = Cell::new(vec![0; MOST].into());
}

/// A stream whose bytes are read before they are asked for, and not while `bodies` hold the peer up.
pub(super) struct Ahead<S> {
    stream: S,
    /// The first bytes of the stream, which were read before.
    first: BytesMut,
    rest: Option<Rest>,
    bodies: Arc<Bodies>,
    pause: Option<Pause>,
}

/// The time in which the peer is held up.
struct Pause {
    began: Instant,
    look: Pin<Box<Sleep>>,
}

/// The bytes of a read that are left.
struct Rest {
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl<S> Ahead<S> {
    /// `stream` after `first`.
    pub(super) fn new(stream: S, first: BytesMut, bodies: Arc<Bodies>) -> Self {
        Self { stream, first, rest: None, bodies, pause: None }
    }

    /// Ready when the stream may be read. It is read once after [`LONGEST_PAUSE`] in any case.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.bodies.must_wait() {
            let pause = self.pause.get_or_insert_with(|| Pause {
                began: Instant::now(),
                look: Box::pin(sleep(LOOK_EVERY)),
            });
            if pause.began.elapsed() >= LONGEST_PAUSE {
                break;
            }
            self.bodies.hold_up(true);
            ready!(pause.look.as_mut().poll(context));
            pause.look.as_mut().reset(Instant::now() + LOOK_EVERY);
        }
        if self.pause.take().is_some() {
            self.bodies.hold_up(false);
        }
        Poll::Ready(())
    }
}

impl Rest {
    /// Moves bytes to `out`. Returns what is left.
    fn give(mut self, out: &mut ReadBuf<'_>) -> Option<Self> {
        let count = out.remaining().min(self.end - self.begin);
        out.put_slice(&self.buffer[self.begin..self.begin + count]);
        self.begin += count;
        if self.begin < self.end {
            return Some(self);
        }
        SPARE.set(self.buffer);
        None
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let count = out.remaining().min(this.first.len());
            out.put_slice(&this.first[..count]);
            this.first.advance(count);
            return Poll::Ready(Ok(()));
        }
        if let Some(rest) = this.rest.take() {
            this.rest = rest.give(out);
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_open(context));
        let most = this.bodies.read_ahead();
        if out.remaining() >= most {
            return Pin::new(&mut this.stream).poll_read(context, out);
        }
        let mut buffer = SPARE.take();
        if buffer.is_empty() {
            buffer = vec![0; MOST].into();
        }
        let mut read = ReadBuf::new(&mut buffer[..most]);
        let polled = Pin::new(&mut this.stream).poll_read(context, &mut read);
        let end = read.filled().len();
        this.rest = Rest { buffer, begin: 0, end }.give(out);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::{
        super::unread::{LEAST_SHARE, Unread},
        *,
    };

    /// A stream with the smallest share of a pool, and its other end.
    fn connected() -> (DuplexStream, Ahead<DuplexStream>) {
        let pool = Unread::of(LEAST_SHARE as u64);
        let bodies = Bodies::new(&pool, &Arc::default());
        let (client, server) = duplex(1 << 20);
        (client, Ahead::new(server, BytesMut::from(&b"first"[..]), Arc::new(bodies)))
    }

    #[tokio::test]
    async fn bytes_come_in_order_whatever_is_asked_for() {
        let sent: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
        for most in [1, 9, 1000, 1 << 20] {
            let (mut client, mut ahead) = connected();
            client.write_all(&sent).await.unwrap();
            drop(client);
            let mut received = Vec::new();
            let mut piece = vec![0; most];
            loop {
                match ahead.read(&mut piece).await.unwrap() {
                    0 => break,
                    read => received.extend_from_slice(&piece[..read]),
                }
            }
            assert_eq!(received[..5], *b"first");
            assert!(received[5..] == sent, "{most} at a time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_beyond_its_share_of_a_full_pool_is_read_once_a_second() {
        let (mut client, mut ahead) = connected();
        ahead.read_exact(&mut [0; 5]).await.unwrap();
        let bodies = Arc::clone(&ahead.bodies);
        let mut byte = [0];
        client.write_all(&[7; 2]).await.unwrap();
        bodies.set_unread(LEAST_SHARE + 1);
        let began = Instant::now();
        ahead.read_exact(&mut byte).await.unwrap();
        assert!(began.elapsed() >= LONGEST_PAUSE);
        ahead.read_exact(&mut byte).await.unwrap();
        assert!(began.elapsed() < 2 * LONGEST_PAUSE, "it was read before");
        client.write_all(&[7]).await.unwrap();
        let freed = async {
            sleep(LONGEST_PAUSE / 2).await;
            assert!(bodies.is_held_up());
            bodies.set_unread(LEAST_SHARE);
            Instant::now()
        };
        let (read, freed) = tokio::join!(ahead.read_exact(&mut byte), freed);
        read.unwrap();
        assert!(freed.elapsed() <= LOOK_EVERY);
        assert!(!bodies.is_held_up());
    }
}
