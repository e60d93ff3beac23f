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

use bytes::{Buf as _, BufMut as _, BytesMut};
use outrigger_net::{Scatter, Space};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    CONNECTION_WINDOW, FRAME,
    frames::{Counts, DATA, HEADER, Head, PADDED, Unpaid},
    inbox::{Inbox, Link},
    streams::{END_STREAM, Exceeded, Streams, Table},
};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The most bytes of one read beyond those whose place is known. They are copied, so while frames are
/// large a read takes few of them.
const FEW: usize = 16 << 10;
/// The same while a message comes in frames of less than [`LARGE`] bytes: a read takes many frames.
const LOTS: usize = 256 << 10;
const LARGE: usize = 64 << 10;

#[cfg(test)]
thread_local! {
    /// The bytes that connections of this thread have copied.
    pub(super) static COPIED: Cell<usize> = const { Cell::new(0) };
}

/// Counts bytes that were copied in memory.
fn copied(_bytes: usize) {
    #[cfg(test)]
    COPIED.set(COPIED.get() + _bytes);
}

thread_local! {
    /// The thread's buffer for bytes whose place is not known before they are read.
    static SCRATCH: Cell<BytesMut> = Cell::new(BytesMut::with_capacity(LOTS));
}

/// The socket of an HTTP/2 connection.
pub(super) struct Intake<S> {
    stream: S,
    streams: Streams,
    reader: Reader,
    writer: Writer,
    counts: Counts,
    link: Arc<Link>,
}

/// The state of what a peer sends.
struct Reader {
    position: Position,
    /// Whether a header block continues in the next frame, which no other may precede.
    in_block: bool,
    /// Whether messages come in small frames.
    is_split: bool,
    /// Whether requests began since h2 last had its turn.
    has_new: bool,
    /// The frames in vain since they were last counted.
    in_vain: u32,
    /// The updates of windows that are due.
    updates: BytesMut,
}

/// The position in what a peer sends.
enum Position {
    /// In a frame's header, after this number of its bytes.
    Head([u8; HEADER], usize),
    /// In the payload of a frame for h2, before this number of its bytes.
    Passed(usize),
    /// Before the byte that has the length of a DATA frame's padding.
    Padded(Taken),
    /// In the payload of a DATA frame that is taken out.
    Taken(Taken),
}

/// A DATA frame that is taken out.
struct Taken {
    head: Head,
    inbox: Inbox,
    /// The bytes of the message that are left.
    left: usize,
    /// The bytes of padding after them.
    padding: usize,
}

/// The error of a peer whose frame has more padding than bytes.
#[derive(Debug, thiserror::Error)]
#[error("a frame has more padding than bytes")]
struct OverPadded;

/// The state of what h2 sends.
#[derive(Default)]
struct Writer {
    head: [u8; HEADER],
    /// The bytes of a frame's header that were sent.
    seen: usize,
    /// The bytes of its payload that are left.
    left: usize,
}

impl<S> Intake<S> {
    /// `stream` after its preface, which is the content of `streams`.
    pub(super) fn new(stream: S, streams: Streams, link: Arc<Link>) -> Self {
        let reader = Reader {
            position: Position::Head([0; HEADER], 0),
            in_block: false,
            is_split: false,
            has_new: false,
            in_vain: 0,
            updates: BytesMut::new(),
        };
        let (writer, counts) = (Writer::default(), Counts::new());
        Self { stream, streams, reader, writer, counts, link }
    }

    pub(super) fn unpaid(&self) -> Unpaid {
        self.counts.unpaid()
    }
}

impl Reader {
    /// Takes in bytes of the peer.
    fn feed(&mut self, table: &mut Table, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.feed_some(table, bytes)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Takes in bytes of one part of a frame; returns their number.
    fn feed_some(&mut self, table: &mut Table, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.position {
            Position::Head(header, seen) => {
                let length = bytes.len().min(HEADER - *seen);
                header[*seen..*seen + length].copy_from_slice(&bytes[..length]);
                *seen += length;
                if *seen == HEADER {
                    let header = *header;
                    self.begin(table, header)?;
                }
                Ok(length)
            }
            Position::Passed(left) => {
                let length = bytes.len().min(*left);
                table.control.extend_from_slice(&bytes[..length]);
                copied(length);
                *left -= length;
                self.advance(table);
                Ok(length)
            }
            Position::Padded(_) => self.pad(table, bytes[0]).map(|()| 1),
            Position::Taken(taken) => {
                let length = bytes.len().min(taken.left + taken.padding);
                let (piece, padding) = bytes[..length].split_at(length.min(taken.left));
                copied(taken.inbox.push(piece));
                taken.inbox.pad(padding.len());
                taken.left -= piece.len();
                taken.padding -= padding.len();
                self.advance(table);
                Ok(length)
            }
        }
    }

    /// Begins a frame after its header.
    fn begin(&mut self, table: &mut Table, header: [u8; HEADER]) -> io::Result<()> {
        let head = Head::of(header);
        self.in_vain += u32::from(head.is_in_vain());
        match head.kind {
            DATA if !self.in_block && head.length <= FRAME as usize => {
                if let Some(inbox) = table.inbox(head).map_err(io::Error::other)? {
                    return self.take(table, head, inbox);
                }
            }
            HEADERS => self.headers(table, head),
            CONTINUATION => self.in_block = !head.has(END_HEADERS),
            RST_STREAM => table.reset(head.stream),
            _ => {}
        }
        table.control.extend_from_slice(&header);
        self.position = Position::Passed(head.length);
        self.advance(table);
        Ok(())
    }

    fn headers(&mut self, table: &mut Table, head: Head) {
        self.in_block = !head.has(END_HEADERS);
        match table.is_new(head.stream) {
            true => {
                table.open(head);
                self.has_new = true;
            }
            false => table.trailers(head.stream),
        }
    }

    fn take(&mut self, table: &mut Table, head: Head, inbox: Inbox) -> io::Result<()> {
        let taken = Taken { head, inbox, left: head.length, padding: 0 };
        self.position = match head.has(PADDED) {
            true if head.length == 0 => return Err(io::Error::other(OverPadded)),
            true => Position::Padded(taken),
            false => Position::Taken(taken),
        };
        self.advance(table);
        Ok(())
    }

    /// Takes in the length of a frame's padding.
    fn pad(&mut self, table: &mut Table, padding: u8) -> io::Result<()> {
        let ended = Position::Head([0; HEADER], 0);
        let position = std::mem::replace(&mut self.position, ended);
        let Position::Padded(mut taken) = position else { return Ok(()) };
        taken.padding = usize::from(padding);
        let left = taken.left.checked_sub(1 + taken.padding);
        taken.left = left.ok_or_else(|| io::Error::other(OverPadded))?;
        taken.inbox.pad(1);
        self.position = Position::Taken(taken);
        self.advance(table);
        Ok(())
    }

    /// Gives h2 the rest of a frame whose first bytes were taken out before it was known that h2
    /// gets the body.
    fn pass_on(&mut self, table: &mut Table) {
        let (head, padding) = match &self.position {
            Position::Padded(Taken { head, inbox, .. }) if inbox.is_elsewhere() => (*head, None),
            Position::Taken(Taken { head, inbox, left, padding }) if inbox.is_elsewhere() => {
                let all = left + padding + usize::from(head.has(PADDED));
                (Head { length: all, ..*head }, head.has(PADDED).then_some(*padding))
            }
            _ => return,
        };
        head.put(&mut table.control);
        // A frame's padding has less than 256 bytes.
        table.control.extend(padding.map(|bytes| u8::try_from(bytes).unwrap_or(u8::MAX)));
        self.position = Position::Passed(head.length - usize::from(padding.is_some()));
        self.advance(table);
    }

    /// Ends the frame if all of it was taken in.
    fn advance(&mut self, table: &mut Table) {
        let is_over = match &self.position {
            Position::Head(..) | Position::Padded(_) => false,
            Position::Passed(left) => *left == 0,
            Position::Taken(Taken { left, padding, .. }) => left + padding == 0,
        };
        if !is_over {
            return;
        }
        let ended = Position::Head([0; HEADER], 0);
        let position = std::mem::replace(&mut self.position, ended);
        let Position::Taken(Taken { head, inbox, .. }) = position else { return };
        let is_end = head.has(END_STREAM);
        self.is_split = head.length < LARGE && (!is_end || self.is_split);
        if is_end {
            table.end(head.stream);
        } else if let Some(due) = table.due(head.stream) {
            drop(inbox);
            self.update(head.stream, due);
        }
    }

    /// Adds an update of a window: of a stream, or of the connection (0).
    fn update(&mut self, stream: u32, bytes: usize) {
        // A window has less than 2^31 bytes.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX >> 1);
        Head { length: 4, kind: WINDOW_UPDATE, flags: 0, stream }.put(&mut self.updates);
        self.updates.put_u32(bytes);
    }
}

impl Writer {
    /// Whether a frame ends here.
    fn is_between_frames(&self) -> bool {
        self.seen == 0
    }

    /// Moves over bytes that were sent.
    fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.seen < HEADER {
                let length = bytes.len().min(HEADER - self.seen);
                self.head[self.seen..self.seen + length].copy_from_slice(&bytes[..length]);
                self.seen += length;
                bytes = &bytes[length..];
                if self.seen == HEADER {
                    self.left = Head::of(self.head).length;
                }
            }
            let length = bytes.len().min(self.left);
            self.left -= length;
            bytes = &bytes[length..];
            if self.seen == HEADER && self.left == 0 {
                self.seen = 0;
            }
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
        let more = if self.reader.is_split { LOTS } else { FEW };
        let mut scratch = SCRATCH.take();
        if scratch.capacity() < more {
            scratch = BytesMut::with_capacity(LOTS);
        }
        let read = self.poll_scatter(context, &mut scratch, more);
        let result = match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(count)) => {
                self.reader.advance(table);
                Poll::Ready(self.reader.feed(table, &scratch).map(|()| count > 0))
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
        let Position::Taken(taken) = &mut self.reader.position else {
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
            self.reader.update(0, due);
        }
        if self.link.take_claimed() {
            for (stream, due) in table.all_due() {
                self.reader.update(stream, due);
            }
        }
        Ok(())
    }

    /// Sends the updates that are due, unless h2 is in the midst of a frame.
    fn poll_send_updates(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let updates = &mut self.reader.updates;
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
        this.reader.pass_on(&mut table);
        loop {
            if !table.control.is_empty() {
                let count = out.remaining().min(table.control.len());
                out.put_slice(&table.control[..count]);
                table.control.advance(count);
                copied(count);
                return Poll::Ready(Ok(()));
            }
            // The handlers of new requests take charge of their messages before more is read.
            table.is_paused |= std::mem::take(&mut this.reader.has_new);
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
            this.counts.read(std::mem::take(&mut this.reader.in_vain))?;
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
