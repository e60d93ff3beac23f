//! The message of a request while it arrives: the connection writes it, and its handler waits until
//! it is whole.

mod state;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::BytesMut;
use outrigger_core::{Failure, Reason};
use outrigger_proto::raw::unary::{Assembly, Bounds, Payload, Unreadable};

pub(super) use self::state::UNCLAIMED;
use self::state::{Handler, State};
use super::{link::Link, streams::Exceeded};
use crate::held::Held;

/// A message that arrives. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Inbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: u32,
    state: Mutex<State>,
    link: Arc<Link>,
}

impl Inbox {
    /// The message of a stream that begins with this window.
    pub(super) fn new(link: &Arc<Link>, stream: u32, window: i64) -> Self {
        let state = Mutex::new(State::new(window));
        Self(Arc::new(Shared { stream, state, link: Arc::clone(link) }))
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
        self.change(|state| state.claim(held, bounds))?;
        self.claimed();
        std::future::poll_fn(|context| self.change(|state| state.poll(context))).await
    }

    /// Reports to the connection that a handler waits, if one does.
    pub(super) fn claimed(&self) {
        let (is_waiting, is_short) = {
            let state = self.state();
            (state.wanted().is_some(), state.due().is_some())
        };
        if is_waiting {
            self.0.link.claimed(self.0.stream, is_short);
        }
    }

    /// Gives the body up. The rest of it is discarded when it arrives. Returns true if the peer can
    /// end it without an update of its window, as far as is known.
    pub(super) fn give_up(&self) -> bool {
        self.change(State::give_up)
    }

    /// Waits until the peer of a message that was given up cannot send more of it.
    pub(super) fn poll_stuck(&self, context: &mut Context<'_>) -> Poll<()> {
        self.state().poll_stuck(context)
    }

    /// Counts a frame that has begun to arrive.
    ///
    /// # Errors
    /// It exceeds the window of the stream.
    pub(super) fn receive(&self, length: usize) -> Result<(), Exceeded> {
        self.state().receive(length)
    }

    /// Changes the window of the stream.
    pub(super) fn shift(&self, by: i64) {
        self.state().shift(by);
    }

    /// The bytes by which the window of the stream is due to be updated. They count as part of it
    /// from now on.
    pub(super) fn take_due(&self) -> Option<usize> {
        let mut state = self.state();
        let due = state.due()?;
        state.shift(i64::try_from(due).unwrap_or(i64::MAX));
        Some(due)
    }

    /// Adds bytes that have arrived. Returns the number of bytes that were copied.
    pub(super) fn push(&self, piece: &[u8]) -> usize {
        self.change(|state| state.push(piece))
    }

    /// Passes the message's buffer to `read`, with the number of the next bytes, of the `coming`
    /// ones, that have room there. `read` returns how many it appended.
    pub(super) fn read<T>(
        &self,
        coming: usize,
        read: impl FnOnce(&mut BytesMut, usize) -> (usize, T),
    ) -> T {
        self.change(|state| {
            let room = state.room().min(coming);
            read(state.buffer(), room).1
        })
    }

    /// Frees what is set aside beyond the bytes that have arrived, if no handler waits for them.
    /// Returns the number of bytes that were copied.
    pub(super) fn trim(&self) -> usize {
        self.change(State::trim)
    }

    /// Ends the body: no more of it comes.
    pub(super) fn end(&self) {
        self.change(|state| state.settle(Ok(())));
    }

    /// Ends the body before its last byte.
    pub(super) fn break_off(&self) {
        self.change(|state| state.settle(Err(unread(&Unreadable::Cut))));
    }

    /// Called when the request has been accepted by a handler that reads a message.
    pub(super) fn expect(&self) {
        self.change(|state| state.handler = Handler::Absent);
    }

    /// Takes out the bytes that arrived before it was known that h2 gets the body, because its
    /// handler reads no message, or there is none.
    pub(super) fn take(&self, has_handler: bool) -> Assembly {
        self.change(|state| state.leave(has_handler))
    }

    /// True if h2 gets the rest of the body.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.state().is_elsewhere()
    }

    /// Counts bytes that h2 gets.
    pub(super) fn pass(&self, bytes: usize) {
        self.change(|state| state.pass(bytes));
    }

    /// Called when a handler has read every byte that h2 had got.
    pub(super) fn drained(&self) {
        self.change(State::drain);
        self.claimed();
    }

    /// Changes the state, and reports what has changed for the connection.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.count(&self.0.link);
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is used: a panic of its holder leaves a message that is cut off.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.give_up();
        state.count(&self.link);
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
