//! The streams of an HTTP/2 connection whose bodies are messages: their DATA frames are taken out
//! before h2 sees them.
//!
//! A stream enters with the HEADERS of its request. The bytes of its body are kept in an [`Inbox`]
//! until h2 has accepted the request. If its handler reads a message, h2 gets only the end of the
//! body, as an empty DATA frame; otherwise it gets the frames as if they had not been touched.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, BufMut as _, BytesMut};

use super::{
    FRAME, STREAM_WINDOW, STREAMS,
    frames::{DATA, HEADER, Head},
    inbox::{Inbox, Link},
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
    link: Arc<Link>,
}

struct Entry {
    stream: u32,
    inbox: Inbox,
    /// True if the handler is known to read a message.
    is_accepted: bool,
    is_ended: bool,
    /// The bytes that the peer may send.
    window: usize,
}

impl Streams {
    /// The streams of a connection that begins with `control`.
    pub(super) fn new(control: BytesMut, link: Arc<Link>) -> Self {
        let table = Table { entries: Vec::new(), last: 0, control, is_paused: false, link };
        Self(Arc::new(Mutex::new(table)))
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // A poisoned lock is used: a panic ends the connection.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called when h2 has accepted a request. Returns the inbox of its message; `None` if h2 passes
    /// on its body, because the handler does not read a message or the stream was not taken out.
    pub(super) fn accept(&self, stream: u32, is_message: bool) -> Option<Inbox> {
        let mut table = self.table();
        let at = table.find(stream)?;
        if table.entries[at].is_accepted {
            return None;
        }
        match is_message {
            true => Some(table.take_out(at)),
            false => {
                table.leave(at);
                None
            }
        }
    }

    /// Called when h2 has accepted every request it knows. Leaves it the streams that it has not
    /// accepted: it refuses them. Returns true if reading was paused meanwhile.
    pub(super) fn settle(&self) -> bool {
        let mut table = self.table();
        if !table.is_paused {
            return false;
        }
        while let Some(at) = table.entries.iter().position(|entry| !entry.is_accepted) {
            table.leave(at);
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

    /// Enters a stream whose request has a body.
    pub(super) fn open(&mut self, head: Head) {
        self.last = head.stream;
        if head.has(END_STREAM) {
            return;
        }
        // Streams that this side has reset may never end.
        if self.entries.len() >= 2 * STREAMS as usize {
            self.entries.retain(|entry| !entry.is_accepted || !entry.inbox.is_alone());
        }
        self.entries.push(Entry {
            stream: head.stream,
            inbox: Inbox::new(&self.link),
            is_accepted: false,
            is_ended: false,
            window: STREAM_WINDOW as usize,
        });
    }

    /// The inbox for a DATA frame; `None` if h2 gets the frame.
    ///
    /// # Errors
    /// The peer has exceeded the window of the stream.
    pub(super) fn inbox(&mut self, head: Head) -> Result<Option<Inbox>, Exceeded> {
        let Some(at) = self.find(head.stream) else { return Ok(None) };
        let entry = &mut self.entries[at];
        entry.window = entry.window.checked_sub(head.length).ok_or(Exceeded)?;
        Ok((!entry.is_ended).then(|| entry.inbox.clone()))
    }

    /// Ends the body of a stream after its last DATA frame.
    pub(super) fn end(&mut self, stream: u32) {
        let Some(at) = self.find(stream) else { return };
        self.entries[at].is_ended = true;
        if self.entries[at].is_accepted {
            self.finish(at);
        }
    }

    /// Called before trailers of a stream, which h2 gets: they end the body.
    pub(super) fn trailers(&mut self, stream: u32) {
        let Some(at) = self.find(stream) else { return };
        if !self.entries[at].is_accepted {
            return self.leave(at);
        }
        self.entries.remove(at).inbox.end();
    }

    /// Removes a stream that the peer has reset.
    pub(super) fn reset(&mut self, stream: u32) {
        if let Some(at) = self.find(stream) {
            let entry = self.entries.remove(at);
            match entry.is_accepted {
                true => entry.inbox.break_off(),
                // No handler will give it up.
                false => entry.inbox.give_up(),
            }
        }
    }

    /// The bytes by which the window of a stream is due to be updated: the rest of its message does
    /// not fit.
    pub(super) fn due(&mut self, stream: u32) -> Option<usize> {
        let at = self.find(stream)?;
        self.entries[at].due()
    }

    /// The windows that are due to be updated, by stream.
    pub(super) fn all_due(&mut self) -> impl Iterator<Item = (u32, usize)> {
        self.entries.iter_mut().filter_map(|entry| Some((entry.stream, entry.due()?)))
    }

    fn take_out(&mut self, at: usize) -> Inbox {
        let entry = &mut self.entries[at];
        entry.is_accepted = true;
        entry.inbox.expect();
        let inbox = entry.inbox.clone();
        if entry.is_ended {
            self.finish(at);
        }
        inbox
    }

    /// Gives h2 the end of a body that was taken out.
    fn finish(&mut self, at: usize) {
        let Entry { stream, inbox, .. } = self.entries.remove(at);
        inbox.end();
        put_data(&mut self.control, stream, &[], true);
    }

    /// Gives h2 the body of a stream as far as it was taken out.
    fn leave(&mut self, at: usize) {
        let Entry { stream, inbox, is_ended, .. } = self.entries.remove(at);
        let assembly = inbox.take();
        let mut rest = assembly.arrived();
        while rest.len() > FRAME as usize {
            let (frame, later) = rest.split_at(FRAME as usize);
            put_data(&mut self.control, stream, frame, false);
            rest = later;
        }
        if is_ended || !rest.is_empty() {
            put_data(&mut self.control, stream, rest, is_ended);
        }
    }
}

impl Entry {
    fn due(&mut self) -> Option<usize> {
        let all = STREAM_WINDOW as usize;
        if self.window >= all / 2 || self.inbox.missing()? <= self.window {
            return None;
        }
        Some(all - std::mem::replace(&mut self.window, all))
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
mod tests {
    use super::*;

    const HEADERS: u8 = 1;

    fn head(kind: u8, length: usize, stream: u32) -> Head {
        Head { length, kind, flags: 0, stream }
    }

    fn streams() -> (Streams, Arc<Link>) {
        let link = Arc::new(Link::default());
        (Streams::new(BytesMut::new(), Arc::clone(&link)), link)
    }

    /// Begins a request with a body of which `arrived` bytes are there.
    fn begin(streams: &Streams, stream: u32, arrived: usize) -> Inbox {
        let mut table = streams.table();
        table.open(head(HEADERS, 10, stream));
        let inbox = table.inbox(head(DATA, arrived, stream)).unwrap().unwrap();
        inbox.push(&vec![0; arrived]);
        inbox
    }

    #[test]
    fn what_a_stream_took_of_the_window_is_given_back_however_it_ends() {
        let (streams, link) = streams();
        let ends: [fn(&Streams, u32); 3] = [
            |streams, stream| streams.table().reset(stream),
            |streams, stream| streams.accept(stream, true).unwrap().give_up(),
            |streams, stream| {
                let inbox = streams.accept(stream, true).unwrap();
                streams.table().reset(stream);
                inbox.give_up();
            },
        ];
        let many = super::super::CONNECTION_WINDOW as usize / 4;
        for (number, end) in (0_u32..).zip(ends) {
            let stream = 200 * number + 1;
            drop(begin(&streams, stream, 1000));
            assert_eq!(link.outstanding(), 1000);
            end(&streams, stream);
            assert_eq!(link.take_due(), None, "there is not enough to update the window");
            let rest = [many / 2, many / 2 - 1000];
            for (at, length) in (1..).zip(rest) {
                begin(&streams, stream + 2 * at, length).give_up();
            }
            assert_eq!((link.take_due(), link.outstanding()), (Some(many), 0), "{number}");
        }
    }

    #[test]
    fn h2_gets_the_body_of_a_request_that_is_no_message() {
        let (streams, link) = streams();
        let inbox = begin(&streams, 1, 3);
        streams.table().end(1);
        assert!(streams.accept(1, false).is_none());
        assert!(inbox.is_elsewhere());
        let control = streams.table().control.split();
        assert_eq!(&control[..], [0, 0, 3, DATA, END_STREAM, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(link.outstanding(), 0);
    }

    #[test]
    fn h2_gets_the_end_of_a_message_only() {
        let (streams, _) = streams();
        begin(&streams, 1, 3);
        assert!(streams.accept(1, true).is_some());
        assert!(streams.accept(1, true).is_none());
        assert_eq!(streams.table().control.len(), 0);
        streams.table().end(1);
        let control = streams.table().control.split();
        assert_eq!(&control[..], [0, 0, 0, DATA, END_STREAM, 0, 0, 0, 1]);
    }

    #[test]
    fn streams_that_are_not_accepted_are_left_to_h2() {
        let (streams, _) = streams();
        begin(&streams, 1, 3);
        assert!(!streams.settle(), "h2 has not had its turn");
        streams.table().is_paused = true;
        assert!(streams.settle());
        assert!(streams.accept(1, true).is_none());
        assert_eq!(streams.table().control.len(), HEADER + 3);
    }

    #[test]
    fn streams_that_never_end_are_forgotten_with_their_handlers() {
        let (streams, _) = streams();
        for stream in (0..10 * STREAMS).map(|number| 2 * number + 1) {
            begin(&streams, stream, 3);
            streams.accept(stream, true).unwrap().give_up();
        }
        assert!(streams.table().entries.len() <= 2 * STREAMS as usize);
    }
}
