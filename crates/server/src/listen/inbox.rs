//! The message of a request while it arrives: the connection writes it, and its handler waits until
//! it is whole.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::BytesMut;
use futures::task::AtomicWaker;
use outrigger_core::{Failure, Reason};
use outrigger_proto::raw::unary::{Assembly, Bounds, Payload, Unreadable};

use crate::held::Held;

/// While a handler waits before it takes charge of a message, at most this many times the bytes that
/// have arrived are set aside.
const UNCLAIMED: usize = 2;
/// When a handler takes charge of a message of which this much has arrived, its connection checks the
/// windows of all streams: the peer may be waiting for an update.
const MANY: usize = super::STREAM_WINDOW as usize / 4;
/// The window of the connection is updated when this much of it is due.
const DUE: usize = super::CONNECTION_WINDOW as usize / 4;

/// The reports of messages to their connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The bytes that a handler has taken charge of or given up, and for which the connection's window
    /// has not been updated.
    due: AtomicUsize,
    /// The bytes that nobody has taken charge of.
    waiting: AtomicUsize,
    has_claimed: AtomicBool,
    reads: AtomicUsize,
    connection: AtomicWaker,
}

/// A message that arrives. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Inbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    link: Arc<Link>,
}

#[derive(Debug, Default)]
struct State {
    assembly: Assembly,
    handler: Handler,
    result: Option<Result<(), Failure>>,
    waiting: Option<Waker>,
}

/// The handler of a message.
#[derive(Debug, Default)]
enum Handler {
    /// The request has not been accepted.
    #[default]
    Unknown,
    /// It has not asked for the message yet.
    Absent,
    /// It waits for a message within these bounds, which is charged to its call.
    Waiting(Arc<Held>, Bounds),
    /// It has given the message up.
    Gone,
    /// It gets the body from h2.
    Elsewhere,
}

impl Link {
    /// Registers the connection's task.
    pub(super) fn register(&self, waker: &Waker) {
        self.connection.register(waker);
    }

    /// The bytes by which the window of the connection is due to be updated.
    pub(super) fn take_due(&self) -> Option<usize> {
        (self.due.load(Relaxed) >= DUE).then(|| self.due.swap(0, Relaxed))
    }

    /// True if a handler has taken charge, since the last call, of a message of which much had arrived.
    pub(super) fn take_claimed(&self) -> bool {
        self.has_claimed.load(Relaxed) && self.has_claimed.swap(false, Relaxed)
    }

    /// Counts a read of the connection.
    pub(super) fn read(&self) {
        self.reads.fetch_add(1, Relaxed);
    }

    /// The number of reads so far. It wraps, so only a change of it is meaningful.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Relaxed)
    }

    /// The bytes that the peer may not send again yet.
    pub(super) fn outstanding(&self) -> usize {
        self.due.load(Relaxed) + self.waiting.load(Relaxed)
    }

    fn consumed(&self, bytes: usize) {
        self.due.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that waited for a handler as consumed.
    fn released(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Relaxed);
        self.consumed(bytes);
        if bytes >= MANY {
            self.has_claimed.store(true, Relaxed);
        }
        if bytes >= MANY || self.due.load(Relaxed) >= DUE {
            self.connection.wake();
        }
    }
}

impl Inbox {
    pub(super) fn new(link: &Arc<Link>) -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), link: Arc::clone(link) }))
    }

    /// True if only one clone is left.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Waits for the message, which must be within `bounds`. From now on what arrives is charged to
    /// `held` before it is kept.
    ///
    /// # Errors
    /// The body is not exactly one message within the bounds, or there is no room for it.
    pub(super) async fn message(
        &self,
        held: &Arc<Held>,
        bounds: Bounds,
    ) -> Result<Payload, Failure> {
        self.claim(held, bounds)?;
        std::future::poll_fn(|context| self.state().poll(context)).await
    }

    fn claim(&self, held: &Arc<Held>, bounds: Bounds) -> Result<(), Failure> {
        let mut state = self.state();
        state.assembly.check(bounds).map_err(|error| unread(&error))?;
        held.receive(state.assembly.capacity(), None)?;
        state.handler = Handler::Waiting(Arc::clone(held), bounds);
        self.0.link.released(state.assembly.arrived().len());
        Ok(())
    }

    /// Gives the message up. The rest of it is discarded when it arrives.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        let absent = matches!(state.handler, Handler::Unknown | Handler::Absent);
        state.handler = Handler::Gone;
        let given_up = std::mem::take(&mut state.assembly);
        if absent {
            self.0.link.released(given_up.arrived().len());
        }
    }

    /// Adds bytes that have arrived. Returns the number of bytes that were copied.
    pub(super) fn push(&self, piece: &[u8]) -> usize {
        let mut state = self.state();
        match state.handler {
            Handler::Unknown | Handler::Absent => {
                self.0.link.waiting.fetch_add(piece.len(), Relaxed);
                state.keep_unclaimed(piece)
            }
            Handler::Waiting(..) => {
                self.0.link.consumed(piece.len());
                state.keep(piece)
            }
            Handler::Gone | Handler::Elsewhere => {
                self.0.link.consumed(piece.len());
                0
            }
        }
    }

    /// Counts bytes of padding.
    pub(super) fn pad(&self, bytes: usize) {
        self.0.link.consumed(bytes);
    }

    /// Passes the message's buffer to `read`, with the number of the next bytes, of the `coming`
    /// ones, that have room there. `read` returns how many it appended.
    pub(super) fn read<T>(
        &self,
        coming: usize,
        read: impl FnOnce(&mut BytesMut, usize) -> (usize, T),
    ) -> T {
        let mut state = self.state();
        let room = state.room().min(coming);
        let (count, result) = read(state.assembly.buffer(), room);
        self.0.link.consumed(count);
        result
    }

    /// The bytes of the message that are still to come; `None` if that is not known, or they are
    /// not wanted.
    pub(super) fn missing(&self) -> Option<usize> {
        let state = self.state();
        match (&state.handler, &state.result) {
            (Handler::Waiting(..), None) => state.missing(),
            _ => None,
        }
    }

    /// Ends the message: no more of it comes.
    pub(super) fn end(&self) {
        self.state().settle(Ok(()));
    }

    /// Ends the message before its last byte.
    pub(super) fn break_off(&self) {
        self.state().settle(Err(unread(&Unreadable::Cut)));
    }

    /// Called when the request has been accepted by a handler that reads a message.
    pub(super) fn expect(&self) {
        self.state().handler = Handler::Absent;
    }

    /// Takes out the bytes that arrived before it was known that no handler wants them as a message.
    pub(super) fn take(&self) -> Assembly {
        let mut state = self.state();
        state.handler = Handler::Elsewhere;
        let taken = std::mem::take(&mut state.assembly);
        self.0.link.waiting.fetch_sub(taken.arrived().len(), Relaxed);
        taken
    }

    /// True if h2 gets the rest of the body.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.state().handler, Handler::Elsewhere)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is used: a panic of its holder leaves a message that is cut off.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Payload, Failure>> {
        match self.result.take() {
            None => {
                self.waiting
                    .get_or_insert_with(|| context.waker().clone())
                    .clone_from(context.waker());
                Poll::Pending
            }
            Some(Err(failure)) => Poll::Ready(Err(failure)),
            Some(Ok(())) => {
                let whole = std::mem::take(&mut self.assembly).finish();
                Poll::Ready(whole.map_err(|error| unread(&error)))
            }
        }
    }

    /// Records the end, and wakes the handler. Only the first end counts.
    fn settle(&mut self, result: Result<(), Failure>) {
        self.result.get_or_insert(result);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Keeps bytes that nothing is charged for yet. The first ones of a request arrive together with
    /// its headers; it is charged for them when its handler first runs.
    fn keep_unclaimed(&mut self, piece: &[u8]) -> usize {
        let arrived = self.assembly.arrived().len() + piece.len();
        let most = match self.handler {
            Handler::Unknown => usize::MAX,
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
    fn room(&mut self) -> usize {
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

    fn missing(&self) -> Option<usize> {
        Some(self.assembly.whole()?.saturating_sub(self.assembly.arrived().len()))
    }
}

/// The failure of a message that cannot be read.
pub(crate) fn unread(unreadable: &Unreadable) -> Failure {
    let reason = match unreadable {
        Unreadable::TooLarge { .. } => Reason::TooLarge,
        Unreadable::Unsupported => Reason::EncodingUnsupported,
        _ => Reason::RequestMalformed,
    };
    Failure::new(reason, unreadable.to_string())
}
