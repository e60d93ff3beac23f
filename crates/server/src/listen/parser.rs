//! The frames that a peer sends, and which of their bytes belong to messages.

#[cfg(test)]
use std::cell::Cell;
use std::io;

use bytes::{BufMut as _, BytesMut};

use super::{
    FRAME,
    frames::{Begun, DATA, HEADER, Head, PADDED},
    inbox::Inbox,
    streams::{END_STREAM, Table},
    writer::WINDOW_UPDATE,
};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// The setting of the window with which streams begin.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Messages whose frames have fewer bytes come in small frames.
const LARGE: usize = 64 << 10;

#[cfg(test)]
thread_local! {
    /// The bytes that connections of this thread have copied.
    pub(super) static COPIED: Cell<usize> = const { Cell::new(0) };
}

/// Counts bytes that were copied in memory.
pub(super) fn copied(_bytes: usize) {
    #[cfg(test)]
    COPIED.set(COPIED.get() + _bytes);
}

/// The state of what a peer sends.
pub(super) struct Parser {
    pub(super) position: Position,
    /// True if the next frame must continue a header block.
    in_block: bool,
    /// True if messages come in small frames.
    pub(super) is_split: bool,
    /// True if requests began since h2 last had its turn.
    pub(super) has_new: bool,
    /// The frames in vain since they were last counted.
    pub(super) in_vain: u32,
    /// The frames that change the windows of the peer, which are to be sent.
    pub(super) updates: BytesMut,
}

/// The position in what a peer sends.
pub(super) enum Position {
    /// In a frame's header.
    Head(Begun),
    /// In the payload of a frame for h2, before this number of its bytes.
    Passed(usize),
    /// Before the byte that has the length of a DATA frame's padding.
    Padded(Taken),
    /// In the payload of a DATA frame that is taken out.
    Taken(Taken),
}

/// A DATA frame that is taken out.
pub(super) struct Taken {
    head: Head,
    pub(super) inbox: Inbox,
    /// The bytes of the message that are left.
    pub(super) left: usize,
    /// The bytes of padding after them.
    padding: usize,
}

/// The error of a peer whose frame has more padding than bytes.
#[derive(Debug, thiserror::Error)]
#[error("a frame has more padding than bytes")]
struct OverPadded;

fn is_acknowledgement(settings: Head) -> bool {
    settings.has(ACK) && settings.length == 0
}

impl Parser {
    pub(super) fn new() -> Self {
        Self {
            position: Position::Head(Begun::default()),
            in_block: false,
            is_split: false,
            has_new: false,
            in_vain: 0,
            updates: BytesMut::new(),
        }
    }

    /// Takes in bytes of the peer.
    pub(super) fn feed(&mut self, table: &mut Table, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.feed_some(table, bytes)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Takes in bytes of one part of a frame; returns their number.
    fn feed_some(&mut self, table: &mut Table, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.position {
            Position::Head(begun) => {
                let (length, header) = begun.add(bytes);
                if let Some(header) = header {
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
                if let Some(inbox) = table.receive(head).map_err(io::Error::other)? {
                    return self.take(table, head, inbox);
                }
            }
            HEADERS => self.headers(table, head),
            CONTINUATION => self.in_block = !head.has(END_HEADERS),
            RST_STREAM => table.reset_by_peer(head.stream),
            SETTINGS if !self.in_block && is_acknowledgement(head) && table.acknowledge() => {
                return Ok(());
            }
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
        let ended = Position::Head(Begun::default());
        let position = std::mem::replace(&mut self.position, ended);
        let Position::Padded(mut taken) = position else { return Ok(()) };
        taken.padding = usize::from(padding);
        let left = taken.left.checked_sub(1 + taken.padding);
        taken.left = left.ok_or_else(|| io::Error::other(OverPadded))?;
        self.position = Position::Taken(taken);
        self.advance(table);
        Ok(())
    }

    /// Gives h2 the rest of a frame whose first bytes were taken out before it was known that h2
    /// gets the body.
    pub(super) fn pass_on(&mut self, table: &mut Table) {
        let (head, padding) = match &self.position {
            Position::Padded(Taken { head, inbox, .. }) if inbox.is_elsewhere() => (*head, None),
            Position::Taken(Taken { head, inbox, left, padding }) if inbox.is_elsewhere() => {
                let all = left + padding + usize::from(head.has(PADDED));
                (Head { length: all, ..*head }, head.has(PADDED).then_some(*padding))
            }
            _ => return,
        };
        table.pass(head, head.length);
        head.put(&mut table.control);
        // A frame's padding has less than 256 bytes.
        table.control.extend(padding.map(|bytes| u8::try_from(bytes).unwrap_or(u8::MAX)));
        self.position = Position::Passed(head.length - usize::from(padding.is_some()));
        self.advance(table);
    }

    /// Ends the frame if all of it was taken in.
    pub(super) fn advance(&mut self, table: &mut Table) {
        let is_over = match &self.position {
            Position::Head(..) | Position::Padded(_) => false,
            Position::Passed(left) => *left == 0,
            Position::Taken(Taken { left, padding, .. }) => left + padding == 0,
        };
        if !is_over {
            return;
        }
        let ended = Position::Head(Begun::default());
        let position = std::mem::replace(&mut self.position, ended);
        let Position::Taken(Taken { head, inbox, .. }) = position else { return };
        let is_end = head.has(END_STREAM);
        self.is_split = head.length < LARGE && (!is_end || self.is_split);
        if is_end {
            table.end(head.stream);
        } else if let Some(due) = inbox.take_due() {
            self.update(head.stream, due);
        }
    }

    /// The bytes of the current DATA frame that have not arrived.
    pub(super) fn coming(&self) -> usize {
        match &self.position {
            Position::Head(_) | Position::Passed(_) => 0,
            Position::Padded(taken) | Position::Taken(taken) => taken.left + taken.padding,
        }
    }

    /// Adds SETTINGS with the window with which streams begin.
    pub(super) fn set_initial(&mut self, window: usize) {
        Head { length: 6, kind: SETTINGS, flags: 0, stream: 0 }.put(&mut self.updates);
        self.updates.put_u16(INITIAL_WINDOW_SIZE);
        self.updates.put_u32(u32::try_from(window).unwrap_or(u32::MAX >> 1));
    }

    /// Adds an update of a window: of a stream, or of the connection (0).
    pub(super) fn update(&mut self, stream: u32, bytes: usize) {
        // A window has less than 2^31 bytes.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX >> 1);
        Head { length: 4, kind: WINDOW_UPDATE, flags: 0, stream }.put(&mut self.updates);
        self.updates.put_u32(bytes);
    }
}
