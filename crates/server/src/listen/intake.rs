//! A socket below h2 that takes the messages of requests out of what it reads.
//!
//! A client may send a message in frames of any size; most send 16 KiB. h2 would pass on each frame
//! by itself, and joining them copies the message again. So the payload of their DATA frames goes
//! from the socket into the message's own buffer: directly as far as a frame is known to reach, and
//! with one copy beyond. h2 gets every other frame, and checks it as ever.
//!
//! h2 does not know of the bytes that were taken out, so all windows of the peer are kept here: its
//! limits are checked, updates are sent between the frames of h2, and those of h2 are dropped.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use outrigger_net::{Scatter, Space};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::{
    frames::{Counts, Unpaid},
    inbox::UNCLAIMED,
    link::Link,
    parser::{Parser, Position, copied},
    streams::{Streams, Table},
    windows::{LEAST_STREAM, Windows},
    writer::{Next, Writer},
};
use crate::sending::Unsent;

/// The most bytes of one read beyond those whose place is known. They are copied, so while frames are
/// large a read takes few of them.
const FEW: usize = 16 << 10;
/// The same while messages come in small frames: a read takes many of them.
const LOTS: usize = 256 << 10;
/// The longest time between two reads of a socket while the pool of unread bytes is full.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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
    unsent: Arc<Unsent>,
    /// The end of the time in which the socket is not read.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Intake<S> {
    /// `stream` after its preface, which is the content of `streams`. `unsent` are its answers.
    pub(super) fn new(stream: S, streams: Streams, link: Arc<Link>, unsent: Arc<Unsent>) -> Self {
        let (parser, writer, counts) = (Parser::new(), Writer::default(), Counts::new());
        Self { stream, streams, parser, writer, counts, link, unsent, pause: None }
    }

    pub(super) fn unpaid(&self) -> Unpaid {
        self.counts.unpaid()
    }
}

impl<S: Scatter + AsyncWrite + Unpin> Intake<S> {
    /// Reads once, and takes in what was read. Returns false at the end of the stream.
    fn poll_take(
        &mut self,
        table: &mut Table,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let is_pressed = Windows::is_pressed(self.link.demand(), self.link.share());
        let more = if self.parser.is_split && !is_pressed { LOTS } else { FEW };
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

    /// Updates the windows.
    fn check_windows(&mut self, table: &mut Table) {
        copied(table.trim());
        let share = self.link.share();
        loop {
            let (demand, open) = (self.link.demand(), table.open_streams());
            // Before the updates, so that the peer knows the lower windows of its streams when it
            // gets more for the connection.
            if let Some((initial, shift)) = table.windows.adapt(demand, share, open) {
                table.shift(shift);
                self.parser.set_initial(initial);
            }
            for stream in self.link.take_short() {
                if let Some(due) = table.take_due(stream) {
                    self.parser.update(stream, due);
                }
            }
            let (windows, coming) = (&mut table.windows, self.parser.coming());
            if let Some(due) = windows.due(demand, share, coming) {
                self.parser.update(0, due);
            }
            let wake_below = windows.wake_below(share, coming);
            if self.link.publish(windows.allowance() + coming, wake_below, demand) {
                break;
            }
        }
        self.link.report();
    }

    /// True if the socket must not be read now: the pool of unread bytes is full, this connection has
    /// more than its share in it, and nothing in the process waits for what the peer sends. It is
    /// read once after [`LONGEST_PAUSE`] nevertheless: a ping or a reset may be next.
    fn must_wait(&mut self, table: &Table, context: &mut Context<'_>) -> bool {
        let most = match self.unsent.is_empty() {
            true => (UNCLAIMED * self.link.share()).max(table.open_streams() * LEAST_STREAM),
            // The peer may have to update its windows before it gets its answer.
            false => usize::MAX,
        };
        if !self.link.hold_up(most) {
            return false;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(LONGEST_PAUSE)));
        pause.as_mut().poll(context).is_pending()
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
            this.check_windows(&mut table);
            let _ = this.poll_send_updates(context)?;
            if this.must_wait(&table, context) {
                return Poll::Pending;
            }
            let taken = this.poll_take(&mut table, context);
            if this.pause.take().is_some() {
                this.link.report();
                this.link.wake_next();
            }
            if !ready!(taken)? {
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
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        let stream = Pin::new(&mut this.stream);
        let written = match this.writer.next(pieces) {
            Next::Drop(count) => return Poll::Ready(Ok(count)),
            Next::Send(count) if count == all => {
                ready!(stream.poll_write_vectored(context, pieces))
            }
            Next::Send(count) => {
                let first = pieces.iter().find(|piece| !piece.is_empty());
                let first = first.map_or(&[][..], |piece| piece);
                ready!(stream.poll_write(context, &first[..first.len().min(count)]))
            }
        }?;
        this.counts.wrote(written);
        let mut left = written;
        for piece in pieces {
            let sent = left.min(piece.len());
            let reset = |stream| this.streams.table().reset_by_h2(stream);
            this.writer.advance(&piece[..sent], reset);
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
