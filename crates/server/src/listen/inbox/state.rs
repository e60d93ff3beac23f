//! The state of a message that arrives.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::BytesMut;
use outrigger_core::Failure;
use outrigger_proto::raw::unary::{Assembly, Bounds, Payload};

use super::{
    super::{STREAM_WINDOW, link::Link, streams::Exceeded, windows::LEAST_STREAM},
    unread,
};
use crate::held::Held;

/// While a handler waits before it takes charge of a message, at most this many times the bytes that
/// have arrived are set aside.
pub(in crate::listen) const UNCLAIMED: usize = 2;
/// The window of a stream whose body h2 gets, once its handler reads it. h2 keeps a window of its
/// own, of [`STREAM_WINDOW`] bytes, which it updates after half of the rest of it was read; so this
/// one must stay below a third of that.
const PASSED: i64 = STREAM_WINDOW as i64 / 4;
/// The largest window of a stream.
const MOST: i64 = (1 << 31) - 1;

/// A message, and the window of its stream.
#[derive(Debug)]
pub(super) struct State {
    assembly: Assembly,
    pub(super) handler: Handler,
    result: Option<Result<(), Failure>>,
    waiting: Option<Waker>,
    /// The bytes that the peer may send on the stream. Lower SETTINGS can make it negative.
    window: i64,
    /// The parts of the message in the counts of the connection.
    counted: (usize, Option<usize>),
}

/// The handler of a message.
#[derive(Debug)]
pub(super) enum Handler {
    /// The request has not been accepted.
    Unknown,
    /// It has not asked for the message yet.
    Absent,
    /// It waits for a message within these bounds, which is charged to its call.
    Waiting(Arc<Held>, Bounds),
    /// It has given the body up.
    Gone,
    /// It gets the body from h2, which has this many bytes for it. It has begun to read if
    /// `is_reading`.
    Elsewhere { bytes: usize, is_reading: bool },
    /// There is none: h2 gets the body, and discards it.
    Nobody,
}

impl State {
    pub(super) fn new(window: i64) -> Self {
        let (handler, counted) = (Handler::Unknown, (0, None));
        let (assembly, result, waiting) = (Assembly::default(), None, None);
        Self { assembly, handler, result, waiting, window, counted }
    }

    /// Updates the counts of the connection.
    pub(super) fn count(&mut self, link: &Link) {
        let before = self.counted;
        self.counted = (self.unread(), self.wanted());
        if self.counted.1 != before.1 {
            link.count_wanted(before.1, self.counted.1);
        }
        link.count_unread(before.0, self.counted.0);
    }

    /// The bytes that are set aside, and that nobody has taken charge of.
    fn unread(&self) -> usize {
        match self.handler {
            Handler::Unknown | Handler::Absent => self.assembly.capacity(),
            Handler::Elsewhere { bytes, .. } => bytes,
            Handler::Waiting(..) | Handler::Gone | Handler::Nobody => 0,
        }
    }

    /// The bytes that a handler waits for; `None` if none does.
    pub(super) fn wanted(&self) -> Option<usize> {
        match (&self.handler, &self.result) {
            (Handler::Waiting(..), None) => Some(self.missing().unwrap_or(LEAST_STREAM)),
            (Handler::Elsewhere { is_reading: true, .. }, _) => Some(LEAST_STREAM),
            _ => None,
        }
    }

    /// The bytes by which the window of the stream is due to be updated: the rest of the message
    /// does not fit.
    pub(super) fn due(&self) -> Option<usize> {
        let target = match (&self.handler, &self.result) {
            (Handler::Waiting(..), None) => match self.missing() {
                Some(missing) => i64::try_from(missing).unwrap_or(MOST),
                // Its length is not known. The window suffices unless it has gone in padding.
                None if self.window > 0 => return None,
                None => LEAST_STREAM as i64,
            },
            (Handler::Elsewhere { is_reading: true, .. }, _) if self.window < PASSED / 2 => PASSED,
            _ => return None,
        };
        let due = target.min(MOST) - self.window;
        usize::try_from(due).ok().filter(|due| *due > 0)
    }

    pub(super) fn receive(&mut self, length: usize) -> Result<(), Exceeded> {
        let left = self.window - i64::try_from(length).map_err(|_| Exceeded)?;
        // An empty frame is allowed at any time.
        if left < 0 && length > 0 {
            return Err(Exceeded);
        }
        self.shift(left - self.window);
        Ok(())
    }

    pub(super) fn shift(&mut self, by: i64) {
        self.window = self.window.saturating_add(by).min(MOST);
        if self.window <= 0 && matches!(self.handler, Handler::Gone) {
            self.wake();
        }
    }

    pub(super) fn claim(&mut self, held: &Arc<Held>, bounds: Bounds) -> Result<(), Failure> {
        self.assembly.check(bounds).map_err(|error| unread(&error))?;
        held.receive(self.assembly.capacity(), None)?;
        self.handler = Handler::Waiting(Arc::clone(held), bounds);
        Ok(())
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Payload, Failure>> {
        let Some(result) = self.result.take() else {
            self.wait(context);
            return Poll::Pending;
        };
        self.handler = Handler::Gone;
        let arrived = std::mem::take(&mut self.assembly);
        Poll::Ready(result.and_then(|()| arrived.finish().map_err(|error| unread(&error))))
    }

    pub(super) fn give_up(&mut self) -> bool {
        let missing = self.missing();
        self.assembly = Assembly::default();
        let is_passed = matches!(self.handler, Handler::Elsewhere { .. } | Handler::Nobody);
        self.handler = if is_passed { Handler::Nobody } else { Handler::Gone };
        let missing = missing.and_then(|missing| i64::try_from(missing).ok());
        self.window > 0 && missing.is_none_or(|missing| missing <= self.window)
    }

    pub(super) fn poll_stuck(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.window <= 0 {
            return Poll::Ready(());
        }
        self.wait(context);
        Poll::Pending
    }

    /// Records the end, and wakes the handler. Only the first end counts.
    pub(super) fn settle(&mut self, result: Result<(), Failure>) {
        self.result.get_or_insert(result);
        self.wake();
    }

    fn wait(&mut self, context: &mut Context<'_>) {
        self.waiting.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
    }

    fn wake(&mut self) {
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn leave(&mut self, has_handler: bool) -> Assembly {
        let taken = std::mem::take(&mut self.assembly);
        self.handler = match has_handler {
            true => Handler::Elsewhere { bytes: taken.arrived().len(), is_reading: false },
            false => Handler::Nobody,
        };
        taken
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.handler, Handler::Elsewhere { .. } | Handler::Nobody)
    }

    pub(super) fn pass(&mut self, passed: usize) {
        if let Handler::Elsewhere { bytes, .. } = &mut self.handler {
            *bytes += passed;
        }
    }

    pub(super) fn drain(&mut self) {
        if let Handler::Elsewhere { bytes, is_reading } = &mut self.handler {
            (*bytes, *is_reading) = (0, true);
        }
    }

    pub(super) fn push(&mut self, piece: &[u8]) -> usize {
        match self.handler {
            Handler::Unknown | Handler::Absent => self.keep_unclaimed(piece),
            Handler::Waiting(..) => self.keep(piece),
            Handler::Gone | Handler::Elsewhere { .. } | Handler::Nobody => 0,
        }
    }

    /// Keeps bytes that nothing is charged for yet. The first ones of a request arrive together with
    /// its headers; it is charged for them when its handler first runs.
    fn keep_unclaimed(&mut self, piece: &[u8]) -> usize {
        let arrived = self.assembly.arrived().len() + piece.len();
        let most = match self.handler {
            Handler::Unknown => usize::MAX,
            // Not more than arrives while windows are small.
            _ if arrived <= LEAST_STREAM => (UNCLAIMED * arrived).min(LEAST_STREAM),
            _ => UNCLAIMED * arrived,
        };
        let mut moved = 0;
        if self.assembly.room() < piece.len() {
            let capacity = self.assembly.needs(piece).min(most);
            moved = self.assembly.set_aside(capacity.max(arrived));
        }
        self.assembly.push(piece);
        moved + piece.len()
    }

    pub(super) fn trim(&mut self) -> usize {
        match self.handler {
            Handler::Unknown | Handler::Absent => self.assembly.trim(),
            _ => 0,
        }
    }

    fn keep(&mut self, piece: &[u8]) -> usize {
        if self.result.is_some() {
            return 0;
        }
        match self.make_room(piece) {
            Ok(moved) => {
                self.assembly.push(piece);
                moved + piece.len()
            }
            Err(failure) => {
                self.settle(Err(failure));
                0
            }
        }
    }

    /// Sets memory aside for a piece, or for a part of it and what follows, and charges it first.
    fn make_room(&mut self, piece: &[u8]) -> Result<usize, Failure> {
        let Handler::Waiting(held, bounds) = &self.handler else { return Ok(0) };
        self.assembly.admits(piece, *bounds).map_err(|error| unread(&error))?;
        if self.assembly.room() >= piece.len() {
            return Ok(0);
        }
        let capacity = self.assembly.needs(piece);
        held.receive(capacity, None)?;
        Ok(self.assembly.set_aside(capacity))
    }

    /// The number of bytes that can be read into the buffer directly.
    pub(super) fn room(&mut self) -> usize {
        let wanted = matches!(self.handler, Handler::Waiting(..)) && self.result.is_none();
        let missing = self.missing().filter(|_| wanted).unwrap_or_default();
        if missing == 0 {
            return 0;
        }
        if self.assembly.room() == 0
            && let Err(failure) = self.make_room(&[0])
        {
            self.settle(Err(failure));
        }
        self.assembly.room().min(missing)
    }

    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        self.assembly.buffer()
    }

    fn missing(&self) -> Option<usize> {
        Some(self.assembly.whole()?.saturating_sub(self.assembly.arrived().len()))
    }
}
