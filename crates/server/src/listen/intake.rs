//! A socket below h2 that takes the messages of requests out of what it reads.
//!
//! A client may send a message in frames of any size; most send 16 KiB. h2 would pass on each frame
//! by itself, and joining them copies the message again. So the payload of their DATA frames goes
//! from the socket into the message's own buffer: directly as far as a frame is known to reach, and
//! with one copy beyond. h2 gets every other frame, and checks it as ever.
//!
//! h2 does not know of the bytes that were taken out, so the windows for them are kept here: the
//! peer's limits are checked, and updates are sent between the frames of h2.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use outrigger_net::{Scatter, Space};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    CONNECTION_WINDOW,
    frames::{Begun, Counts, Head, Unpaid},
    inbox::Link,
    parser::{Parser, Position, copied},
    streams::{Exceeded, Streams, Table},
};

/// The most bytes of one read beyond those whose place is known. They are copied, so while frames are
/// large a read takes few of them.
const FEW: usize = 16 << 10;
/// The same while messages come in small frames: a read takes many of them.
const LOTS: usize = 256 << 10;

thread_local! {
    /// The thread's buffer for bytes whose place is not known before they are read.
    static SCRATCH: Cell<BytesMut> = Cell::new(BytesMut::with_capacity(LOTS));
}

/// The socket of an HTTP/2 connection.
pub(super) struct Intake<S> {
    stream: S,
    streams: Streams,
    parser: Parser,
    writer: Writer,
    counts: Counts,
    link: Arc<Link>,
}

/// The state of what h2 sends.
#[derive(Default)]
struct Writer {
    head: Begun,
    /// The bytes of the frame's payload that are left.
    left: usize,
}

impl<S> Intake<S> {
    /// `stream` after its preface, which is the content of `streams`.
    pub(super) fn new(stream: S, streams: Streams, link: Arc<Link>) -> Self {
        let (parser, writer, counts) = (Parser::new(), Writer::default(), Counts::new());
        Self { stream, streams, parser, writer, counts, link }
    }

    pub(super) fn unpaid(&self) -> Unpaid {
        self.counts.unpaid()
    }
}

impl Writer {
    /// True if a frame ends here.
    fn is_between_frames(&self) -> bool {
        self.left == 0 && self.head.is_empty()
    }

    /// Moves over bytes that were sent.
    fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let (count, header) = self.head.add(bytes);
                self.left = header.map_or(0, |header| Head::of(header).length);
                bytes = &bytes[count..];
            }
            let count = bytes.len().min(self.left);
            self.left -= count;
            bytes = &bytes[count..];
        }
    }
}

impl<S: Scatter + AsyncWrite + Unpin> Intake<S> {
    /// Reads once, and takes in what was read. Returns false at the end of the stream.
    fn poll_take(
        &mut self,
        table: &mut Table,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let more = if self.parser.is_split { LOTS } else { FEW };
        let mut scratch = SCRATCH.take();
        if scratch.capacity() < more {
            scratch = BytesMut::with_capacity(LOTS);
        }
        let read = self.poll_scatter(context, &mut scratch, more);
        let result = match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(count)) => {
                self.parser.advance(table);
                Poll::Ready(self.parser.feed(table, &scratch).map(|()| count > 0))
            }
        };
        scratch.clear();
        SCRATCH.set(scratch);
        result
    }

    /// Reads into the message of the frame that is being received, and then into `scratch`.
    fn poll_scatter(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut BytesMut,
        more: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        let Position::Taken(taken) = &mut self.parser.position else {
            let mut none = BytesMut::new();
            return stream.poll_scatter(
                context,
                Space::new(&mut none, 0),
                Space::new(scratch, more),
            );
        };
        taken.inbox.read(taken.left, |buffer, room| {
            let before = buffer.len();
            let (first, rest) = (Space::new(buffer, room), Space::new(scratch, more));
            let read = stream.poll_scatter(context, first, rest);
            let direct = buffer.len() - before;
            taken.left -= direct;
            (direct, read)
        })
    }

    /// Checks and updates the windows.
    fn check_windows(&mut self, table: &mut Table) -> io::Result<()> {
        if self.link.outstanding() > CONNECTION_WINDOW as usize {
            return Err(io::Error::other(Exceeded));
        }
        if let Some(due) = self.link.take_due() {
            self.parser.update(0, due);
        }
        if self.link.take_claimed() {
            for (stream, due) in table.all_due() {
                self.parser.update(stream, due);
            }
        }
        Ok(())
    }

    /// Sends the updates that are due, unless h2 is in the midst of a frame.
    fn poll_send_updates(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let updates = &mut self.parser.updates;
        while !updates.is_empty() && self.writer.is_between_frames() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, updates))?;
            updates.advance(sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Scatter + AsyncWrite + Unpin> AsyncRead for Intake<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let streams = this.streams.clone();
        let mut table = streams.table();
        this.parser.pass_on(&mut table);
        loop {
            if !table.control.is_empty() {
                let count = out.remaining().min(table.control.len());
                out.put_slice(&table.control[..count]);
                table.given(count);
                copied(count);
                return Poll::Ready(Ok(()));
            }
            // The handlers of new requests take charge of their messages before more is read.
            table.is_paused |= std::mem::take(&mut this.parser.has_new);
            if table.is_paused {
                return Poll::Pending;
            }
            this.link.register(context.waker());
            this.check_windows(&mut table)?;
            let _ = this.poll_send_updates(context)?;
            if !ready!(this.poll_take(&mut table, context))? {
                return Poll::Ready(Ok(()));
            }
            this.link.read();
            this.counts.read(std::mem::take(&mut this.parser.in_vain))?;
        }
    }
}

impl<S: Scatter + AsyncWrite + Unpin> AsyncWrite for Intake<S> {
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
        let this = self.get_mut();
        ready!(this.poll_send_updates(context))?;
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, pieces))?;
        this.counts.wrote(written);
        let mut left = written;
        for piece in pieces {
            let sent = left.min(piece.len());
            this.writer.advance(&piece[..sent]);
            left -= sent;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send_updates(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
