//! The streams of an HTTP/2 connection whose bodies are messages: their DATA frames are taken out
//! before h2 sees them.
//!
//! A stream enters with the HEADERS of its request. The bytes of its body are kept in an [`Inbox`]
//! until h2 has accepted the request. If its handler reads a message, h2 gets only the end of the
//! body, as an empty DATA frame; otherwise it gets the frames as if they had not been touched.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, BufMut as _, BytesMut};

use super::{
    FRAME, STREAMS,
    frames::{DATA, HEADER, Head},
    inbox::Inbox,
    link::Link,
    windows::{Acknowledged, Windows},
};

pub(super) const END_STREAM: u8 = 1;
/// The most bytes for frames to h2 that a connection keeps while there are none.
const CONTROL: usize = 4 << 10;

/// The streams of a connection, shared by the side that reads the socket and the side that accepts
/// requests.
#[derive(Clone)]
pub(super) struct Streams(Arc<Mutex<Table>>);

pub(super) struct Table {
    /// By number, which only grows.
    entries: Vec<Entry>,
    /// The highest number of a stream.
    last: u32,
    /// The bytes for h2.
    pub(super) control: BytesMut,
    /// True while new requests wait to be accepted. Nothing is read meanwhile.
    pub(super) is_paused: bool,
    /// The windows of the peer.
    pub(super) windows: Windows,
    /// The messages that handlers got since the last read.
    fresh: Vec<Inbox>,
    /// The streams that h2 has reset, and that the peer has not ended.
    reset: usize,
    link: Arc<Link>,
}

struct Entry {
    stream: u32,
    inbox: Inbox,
    state: Accepted,
    is_ended: bool,
}

/// The handler of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepted {
    /// It is not known.
    Not,
    /// It reads a message.
    Taken,
    /// It gets the body from h2.
    Passed,
    /// h2 has reset the stream: the rest of it is discarded.
    Reset,
}

/// The body of a request that h2 has accepted.
pub(super) enum Body {
    /// It is a message, which h2 does not get.
    Taken(Inbox),
    /// h2 passes it on; its bytes are counted here.
    Passed(Inbox),
    /// h2 passes it on. It is empty, or has ended with trailers.
    Other,
}

impl Streams {
    /// The streams of a connection that begins with `control`.
    pub(super) fn new(control: BytesMut, link: Arc<Link>) -> Self {
        Self(Arc::new(Mutex::new(Table {
            entries: Vec::new(),
            last: 0,
            control,
            is_paused: false,
            windows: Windows::new(),
            fresh: Vec::new(),
            reset: 0,
            link,
        })))
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // A poisoned lock is used: a panic ends the connection.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called when h2 has accepted a request. h2 passes on its body unless the handler reads a
    /// message.
    pub(super) fn accept(&self, stream: u32, is_message: bool) -> Body {
        let mut table = self.table();
        let Some(at) = table.find(stream) else { return Body::Other };
        if table.entries[at].state != Accepted::Not {
            return Body::Other;
        }
        match is_message {
            true => Body::Taken(table.take_out(at)),
            false => Body::Passed(table.leave(at)),
        }
    }

    /// Called when h2 has accepted every request it knows. Leaves it the streams that it has not
    /// accepted: it refuses them. Returns true if reading was paused meanwhile.
    pub(super) fn settle(&self) -> bool {
        let mut table = self.table();
        if !table.is_paused {
            return false;
        }
        while let Some(at) = table.entries.iter().position(|it| it.state == Accepted::Not) {
            table.abandon(at);
        }
        table.is_paused = false;
        true
    }
}

impl Table {
    fn find(&self, stream: u32) -> Option<usize> {
        self.entries.binary_search_by_key(&stream, |entry| entry.stream).ok()
    }

    /// Called when h2 has got the first `bytes` for it.
    pub(super) fn given(&mut self, bytes: usize) {
        self.control.advance(bytes);
        // A connection that once had much for h2 does not keep the memory.
        if self.control.is_empty() && self.control.capacity() > CONTROL {
            self.control = BytesMut::new();
        }
    }

    /// True if a HEADERS frame of this stream begins a request.
    pub(super) fn is_new(&self, stream: u32) -> bool {
        stream > self.last
    }

    /// The streams with bodies that the peer may still send.
    pub(super) fn open_streams(&self) -> usize {
        self.entries.len() - self.reset
    }

    /// Enters a stream whose request has a body.
    pub(super) fn open(&mut self, head: Head) {
        self.last = head.stream;
        if head.has(END_STREAM) {
            return;
        }
        // Streams that this side has reset may never end.
        if self.entries.len() >= 2 * STREAMS as usize {
            self.entries.retain(|entry| entry.state == Accepted::Not || !entry.inbox.is_alone());
            let reset = self.entries.iter().filter(|entry| entry.state == Accepted::Reset);
            self.reset = reset.count();
        }
        self.entries.push(Entry {
            stream: head.stream,
            inbox: Inbox::new(&self.link, head.stream, self.windows.initial()),
            state: Accepted::Not,
            is_ended: false,
        });
    }

    /// Counts a DATA frame. Returns the inbox for it; `None` if h2 gets the frame.
    ///
    /// # Errors
    /// The peer has exceeded the window of the connection or of the stream.
    pub(super) fn receive(&mut self, head: Head) -> Result<Option<Inbox>, Exceeded> {
        self.windows.receive(head.length)?;
        let Some(at) = self.find(head.stream) else { return Ok(None) };
        let entry = &self.entries[at];
        entry.inbox.receive(head.length)?;
        if entry.state == Accepted::Passed {
            self.pass(head, head.length);
            return Ok(None);
        }
        Ok((!entry.is_ended).then(|| entry.inbox.clone()))
    }

    /// Counts the last `length` bytes of a DATA frame that h2 gets.
    pub(super) fn pass(&mut self, head: Head, length: usize) {
        let Some(at) = self.find(head.stream) else { return };
        self.entries[at].inbox.pass(length);
        // The handler waits for the end until it has got it from h2.
        if head.has(END_STREAM) {
            self.entries.remove(at);
        }
    }

    /// Ends the body of a stream after its last DATA frame.
    pub(super) fn end(&mut self, stream: u32) {
        let Some(at) = self.find(stream) else { return };
        self.entries[at].is_ended = true;
        if self.entries[at].state != Accepted::Not {
            self.finish(at);
        }
    }

    /// Called before trailers of a stream, which h2 gets: they end the body.
    pub(super) fn trailers(&mut self, stream: u32) {
        let Some(at) = self.find(stream) else { return };
        match self.entries[at].state {
            Accepted::Not => self.abandon(at),
            Accepted::Passed => drop(self.entries.remove(at)),
            Accepted::Taken | Accepted::Reset => self.remove(at).inbox.end(),
        }
    }

    /// Removes a stream that the peer has reset.
    pub(super) fn reset_by_peer(&mut self, stream: u32) {
        if let Some(at) = self.find(stream) {
            let entry = self.remove(at);
            match entry.state {
                // No handler will give it up.
                Accepted::Not => _ = entry.inbox.give_up(),
                Accepted::Passed => {}
                Accepted::Taken | Accepted::Reset => entry.inbox.break_off(),
            }
        }
    }

    /// Called when h2 has reset a stream. The rest of its body, which may be under way, is discarded
    /// here: h2 would count it as errors of the peer.
    pub(super) fn reset_by_h2(&mut self, stream: u32) {
        let Some(at) = self.find(stream) else { return };
        match self.entries[at].state {
            Accepted::Taken => {
                self.entries[at].state = Accepted::Reset;
                self.reset += 1;
            }
            Accepted::Passed => drop(self.entries.remove(at)),
            Accepted::Not | Accepted::Reset => {}
        }
    }

    /// Changes the windows of all streams.
    pub(super) fn shift(&mut self, by: i64) {
        if by != 0 {
            self.entries.iter().for_each(|entry| entry.inbox.shift(by));
        }
    }

    /// Called when the peer has acknowledged SETTINGS. Returns true if they were not h2's.
    pub(super) fn acknowledge(&mut self) -> bool {
        let Acknowledged::Ours(shift) = self.windows.acknowledge() else { return false };
        self.shift(shift);
        // Messages that handlers wait for may have lost the window that they had.
        let entries = self.entries.iter();
        entries.for_each(|entry| entry.inbox.claimed());
        true
    }

    /// The bytes by which the window of a stream is due to be updated.
    pub(super) fn take_due(&mut self, stream: u32) -> Option<usize> {
        let at = self.find(stream)?;
        self.entries[at].inbox.take_due()
    }

    /// Frees what is set aside for messages whose handlers have run and do not wait for them. Returns
    /// the number of bytes that were copied.
    pub(super) fn trim(&mut self) -> usize {
        self.fresh.drain(..).map(|inbox| inbox.trim()).sum()
    }

    fn take_out(&mut self, at: usize) -> Inbox {
        let entry = &mut self.entries[at];
        entry.state = Accepted::Taken;
        entry.inbox.expect();
        let inbox = entry.inbox.clone();
        if entry.is_ended {
            self.finish(at);
        }
        self.fresh.push(inbox.clone());
        inbox
    }

    fn remove(&mut self, at: usize) -> Entry {
        let entry = self.entries.remove(at);
        self.reset -= usize::from(entry.state == Accepted::Reset);
        entry
    }

    /// Gives h2 the end of a body that was taken out.
    fn finish(&mut self, at: usize) {
        let Entry { stream, inbox, state, .. } = self.remove(at);
        inbox.end();
        if state != Accepted::Reset {
            put_data(&mut self.control, stream, &[], true);
        }
    }

    /// Gives h2 the body of a stream as far as it was taken out, and the rest when it arrives.
    fn leave(&mut self, at: usize) -> Inbox {
        let inbox = self.entries[at].inbox.clone();
        self.hand_over(at, true);
        match self.entries[at].is_ended {
            true => drop(self.entries.remove(at)),
            false => self.entries[at].state = Accepted::Passed,
        }
        inbox
    }

    /// The same for a stream that has no handler.
    fn abandon(&mut self, at: usize) {
        self.hand_over(at, false);
        self.entries.remove(at);
    }

    fn hand_over(&mut self, at: usize, has_handler: bool) {
        let Entry { stream, inbox, is_ended, .. } = &self.entries[at];
        let assembly = inbox.take(has_handler);
        let mut rest = assembly.arrived();
        while rest.len() > FRAME as usize {
            let (frame, later) = rest.split_at(FRAME as usize);
            put_data(&mut self.control, *stream, frame, false);
            rest = later;
        }
        if *is_ended || !rest.is_empty() {
            put_data(&mut self.control, *stream, rest, *is_ended);
        }
    }
}

/// The error of a peer that sends more than its window allows.
#[derive(Debug, thiserror::Error)]
#[error("the peer sent more than its window allows")]
pub(super) struct Exceeded;

fn put_data(control: &mut BytesMut, stream: u32, payload: &[u8], is_end: bool) {
    let flags = if is_end { END_STREAM } else { 0 };
    control.reserve(HEADER + payload.len());
    Head { length: payload.len(), kind: DATA, flags, stream }.put(control);
    control.put_slice(payload);
}

#[cfg(test)]
mod tests;
