//! A bound on the HTTP/2 frames of a peer that ask for nothing.
//!
//! A frame that only has to be acknowledged or ignored costs the server more than the peer. The
//! crate h2 ends connections with too many resets, continuations and empty DATA frames, but takes
//! PING, SETTINGS, WINDOW_UPDATE, PRIORITY and unknown kinds for ever. So every frame that carries no
//! data counts here, whatever its kind; answers and time pay for them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// The first bytes of an HTTP/2 connection.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bytes of a frame's header.
pub(super) const HEADER: usize = 9;
const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const PADDED: u8 = 8;
const ACK: u8 = 1;
/// DATA frames with fewer bytes count too.
const SMALL: usize = 32;
/// The most frames that may be unpaid.
pub(super) const MOST: u32 = 4096;
/// The frames that a second pays for.
const PER_SECOND: u32 = 100;
/// The frames that an answer pays for. A request has one or two, and its answer causes updates of
/// windows.
const PER_ANSWER: u32 = 64;
/// The sent bytes that pay for one frame: a peer updates its windows while it reads a long answer.
const BYTES_PER_FRAME: usize = 2048;

/// A stream whose HTTP/2 frames are counted. It fails when too many were in vain. It passes on every
/// byte as it is.
pub(super) struct Frames<S> {
    stream: S,
    position: Position,
    counts: Counts,
    seen: Arc<Seen>,
}

/// Counts of a peer's reads and acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Seen {
    reads: AtomicUsize,
    acknowledged: AtomicUsize,
}

/// The frames of a connection that were in vain, and the bytes sent that pay for some of them.
struct Counts {
    unpaid: Unpaid,
    paid_at: Instant,
    sent: usize,
}

/// The frames that nothing has paid for. Clones share the count.
#[derive(Clone, Default)]
pub(super) struct Unpaid(Arc<AtomicU32>);

/// The header of a frame ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113), section 4.1).
#[derive(Debug, Clone, Copy)]
struct Head {
    /// The bytes after the header.
    length: usize,
    kind: u8,
    flags: u8,
}

/// The first bytes of a frame's header.
#[derive(Debug, Default)]
struct Begun {
    bytes: [u8; HEADER],
    seen: usize,
}

/// Counts of the frames in some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    in_vain: u32,
    /// The SETTINGS of the server that they acknowledge.
    acknowledged: usize,
}

/// The position in what a peer sends.
enum Position {
    /// In the preface, after this number of its bytes.
    Preface(usize),
    /// In a frame's header.
    Header(Begun),
    /// In the content of a frame, before this number of its bytes.
    Payload(usize),
    /// The peer does not speak HTTP/2.
    Other,
}

/// The error of a connection with too many frames in vain.
#[derive(Debug, thiserror::Error)]
#[error("the peer sent too many frames that ask for nothing")]
pub(super) struct Flood;

impl Unpaid {
    /// Pays for the frames of a request that was answered.
    pub(super) fn answered(&self) {
        self.pay(PER_ANSWER);
    }

    fn pay(&self, frames: u32) {
        let paid = |unpaid: u32| Some(unpaid.saturating_sub(frames));
        let _ = self.0.fetch_update(Relaxed, Relaxed, paid);
    }
}

impl Seen {
    /// The number of reads so far. It wraps, so only a change of it is meaningful.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Relaxed)
    }

    /// The number of SETTINGS frames that the peer has acknowledged.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.load(SeqCst)
    }
}

impl Counts {
    fn new() -> Self {
        Self { unpaid: Unpaid::default(), paid_at: Instant::now(), sent: 0 }
    }

    /// Counts frames that were in vain.
    ///
    /// # Errors
    /// They are too many.
    fn read(&mut self, counted: u32) -> io::Result<()> {
        if counted == 0 {
            return Ok(());
        }
        let unpaid = self.unpaid.0.fetch_add(counted, Relaxed).saturating_add(counted);
        if unpaid <= MOST {
            return Ok(());
        }
        // The clock is read only here: most connections never come near the bound.
        let now = Instant::now();
        let seconds = now.duration_since(self.paid_at).as_secs_f32();
        self.paid_at = now;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        self.unpaid.pay((seconds * PER_SECOND as f32) as u32);
        if self.unpaid.0.load(Relaxed) <= MOST { Ok(()) } else { Err(io::Error::other(Flood)) }
    }

    /// Lets sent bytes pay.
    fn wrote(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent >= BYTES_PER_FRAME {
            let frames = self.sent / BYTES_PER_FRAME;
            self.unpaid.pay(u32::try_from(frames).unwrap_or(u32::MAX));
            self.sent %= BYTES_PER_FRAME;
        }
    }
}

impl<S> Frames<S> {
    pub(super) fn new(stream: S) -> Self {
        let position = Position::Preface(0);
        Self { stream, position, counts: Counts::new(), seen: Arc::default() }
    }

    pub(super) fn unpaid(&self) -> Unpaid {
        self.counts.unpaid.clone()
    }

    pub(super) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }
}

impl Head {
    /// The header of a frame.
    fn of([a, b, c, kind, flags, ..]: [u8; HEADER]) -> Self {
        Self { length: u32::from_be_bytes([0, a, b, c]) as usize, kind, flags }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// True if the frame asks for nothing, and so counts.
    fn is_in_vain(&self) -> bool {
        let carries = self.kind == DATA && self.length >= SMALL && !self.has(PADDED);
        !carries
    }

    fn acknowledges(&self) -> bool {
        self.kind == SETTINGS && self.has(ACK)
    }
}

impl Begun {
    /// Adds `bytes` up to the end of the header. Returns how many, and the header when it is whole;
    /// the next one begins then.
    fn add(&mut self, bytes: &[u8]) -> (usize, Option<[u8; HEADER]>) {
        let count = bytes.len().min(HEADER - self.seen);
        self.bytes[self.seen..self.seen + count].copy_from_slice(&bytes[..count]);
        self.seen += count;
        let whole = (self.seen == HEADER).then(|| std::mem::take(self).bytes);
        (count, whole)
    }
}

impl Position {
    /// Moves over bytes of the peer; returns counts of the frames in them.
    fn advance(&mut self, mut bytes: &[u8]) -> Counted {
        let mut counted = Counted::default();
        while !bytes.is_empty() {
            let taken = match self {
                Self::Other => return counted,
                Self::Preface(seen) => {
                    let length = bytes.len().min(PREFACE.len() - *seen);
                    if bytes[..length] != PREFACE[*seen..*seen + length] {
                        *self = Self::Other;
                        return counted;
                    }
                    match *seen + length {
                        all if all == PREFACE.len() => *self = Self::Header(Begun::default()),
                        part => *self = Self::Preface(part),
                    }
                    length
                }
                Self::Header(begun) => {
                    let (length, header) = begun.add(bytes);
                    if let Some(head) = header.map(Head::of) {
                        counted.in_vain += u32::from(head.is_in_vain());
                        counted.acknowledged += usize::from(head.acknowledges());
                        *self = Self::Payload(head.length);
                    }
                    length
                }
                Self::Payload(left) => {
                    let length = bytes.len().min(*left);
                    *left -= length;
                    length
                }
            };
            bytes = &bytes[taken..];
            if matches!(self, Self::Payload(0)) {
                *self = Self::Header(Begun::default());
            }
        }
        counted
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let counted = this.position.advance(&buffer.filled()[before..]);
        this.seen.reads.fetch_add(1, Relaxed);
        this.seen.acknowledged.fetch_add(counted.acknowledged, SeqCst);
        Poll::Ready(this.counts.read(counted.in_vain))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.counts.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, pieces))?;
        this.counts.wrote(written);
        Poll::Ready(Ok(written))
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
    use super::*;

    /// The bytes of a connection with a SETTINGS frame, a request with 40 bytes and an empty DATA.
    fn sent() -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        for (length, kind) in [(0, 4), (5, 1), (40, DATA), (0, DATA)] {
            bytes.extend([0, 0, length, kind, 0, 0, 0, 0, 1]);
            bytes.extend(vec![0; usize::from(length)]);
        }
        bytes
    }

    #[test]
    fn frames_without_data_count_wherever_the_pieces_end() {
        for size in 1..sent().len() {
            let mut position = Position::Preface(0);
            let pieces = sent();
            let counted = pieces.chunks(size).map(|piece| position.advance(piece).in_vain);
            let counted: u32 = counted.sum();
            assert_eq!(counted, 3, "in pieces of {size}");
        }
    }

    #[test]
    fn nothing_counts_over_http1() {
        let mut position = Position::Preface(0);
        assert_eq!(position.advance(b"PRI "), Counted::default());
        assert_eq!(position.advance(&[0; 900]), Counted::default());
        assert!(matches!(position, Position::Other));
    }
}
