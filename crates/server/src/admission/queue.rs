//! The queue of predictions that wait for a place.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use outrigger_budget::Lack;
use outrigger_core::{Ticket, Turns};
use tokio::sync::oneshot;

use super::{Back, Full, Gate, Seat, Working};
use crate::caller::{Party, Peer};

/// Predictions that wait, by caller.
#[derive(Debug, Default)]
pub(super) struct Queue {
    turns: Turns<Party, Waiter>,
    /// Callers that were passed over because they hold more memory than their share.
    short: Vec<Party>,
}

/// A prediction in the queue.
#[derive(Debug)]
pub(super) enum Waiter {
    /// It needs a place, a share and memory.
    New { peer: Peer, admit: oneshot::Sender<Seat> },
    /// It has its share and has waited aside. It needs a place, and this much memory.
    Returning { needs: u64, admit: oneshot::Sender<Back> },
}

/// A prediction that waits for a place. Dropping it gives up the wait.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    gate: Arc<Gate>,
    party: Party,
    ticket: Ticket,
    admitted: oneshot::Receiver<T>,
}

impl<T> Waiting<T> {
    /// Waits for the place; `None` only if the queue is gone.
    pub(crate) async fn admitted(&mut self) -> Option<T> {
        (&mut self.admitted).await.ok()
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        if self.gate.queue().turns.remove(&self.party, self.ticket).is_some() {
            self.gate.waiting.fetch_sub(1, SeqCst);
            // It may have kept others waiting for memory that these do not need.
            self.gate.admit_waiting();
        }
    }
}

impl Gate {
    /// Adds a prediction of `party` to the queue. One that returns comes before the others of its
    /// caller.
    pub(super) fn line_up<T>(
        self: &Arc<Self>,
        party: &Party,
        waiter: impl FnOnce(oneshot::Sender<T>) -> Waiter,
    ) -> Waiting<T> {
        let (admit, admitted) = oneshot::channel();
        let mut queue = self.queue();
        let ticket = match waiter(admit) {
            waiter @ Waiter::New { .. } => queue.turns.push(party.clone(), waiter),
            waiter @ Waiter::Returning { .. } => {
                let ticket = queue.turns.push_first(party.clone(), waiter);
                queue.turns.resume(party);
                ticket
            }
        };
        self.waiting.fetch_add(1, SeqCst);
        drop(queue);
        // A place may have become free just before this one was counted as waiting.
        self.admit_waiting();
        Waiting { gate: Arc::clone(self), party: party.clone(), ticket, admitted }
    }

    /// Lets a caller have its turn again, which was at its limit.
    pub(super) fn resume(&self, party: &Party) {
        if self.waiting.load(SeqCst) > 0 {
            self.queue().turns.resume(party);
        }
    }

    /// Lets all callers have their turns again, because limits have changed.
    pub(super) fn resume_all(&self) {
        self.queue().turns.resume_all();
    }

    /// Lets waiting predictions in while there is room.
    pub(super) fn admit_waiting(self: &Arc<Self>) {
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let mut queue = self.queue();
        while let Some(party) = queue.short.pop() {
            queue.turns.resume(&party);
        }
        drop(queue);
        // The place of one that has gone away is given back outside of the lock.
        while let Some(gone) = self.admit_next() {
            drop(gone);
        }
    }

    /// Lets waiting predictions in while there is room, until one has gone away meanwhile.
    fn admit_next(self: &Arc<Self>) -> Option<Gone> {
        let mut queue = self.queue();
        let Queue { turns, short } = &mut *queue;
        loop {
            let (party, waiter) = turns.next()?;
            if !self.working.take() {
                return None;
            }
            let needed = match waiter {
                Waiter::New { peer, .. } => {
                    self.needed(party, peer).map(|(share, reserved)| (Some(share), reserved))
                }
                Waiter::Returning { needs, .. } => self
                    .reserve_again(party, *needs)
                    .map(|reserved| (None, reserved))
                    .map_err(Full::Memory),
            };
            let (share, reserved) = match needed {
                Ok(needed) => needed,
                Err(full) => {
                    self.working.give_back();
                    match full {
                        Full::Memory(Lack::Account) => return None,
                        Full::Memory(Lack::Share) => short.push(party.clone()),
                        Full::Caller => {}
                    }
                    turns.pass_over();
                    continue;
                }
            };
            let working = Working(Arc::clone(self));
            let Some((party, waiter)) = turns.pop() else { return Some(Gone::Working(working)) };
            self.waiting.fetch_sub(1, SeqCst);
            let gone = match (waiter, share) {
                (Waiter::New { admit, .. }, Some(share)) => {
                    admit.send(self.seat(party, working, share, reserved)).err().map(Gone::Seat)
                }
                (Waiter::Returning { admit, .. }, _) => {
                    admit.send(Back { reserved, working }).err().map(Gone::Back)
                }
                (Waiter::New { .. }, None) => Some(Gone::Working(working)),
            };
            if gone.is_some() {
                return gone;
            }
        }
    }
}

/// The place of a prediction that has gone away.
enum Gone {
    Seat(#[allow(dead_code)] Seat),
    Back(#[allow(dead_code)] Back),
    Working(#[allow(dead_code)] Working),
}

#[cfg(test)]
impl Gate {
    /// True if nothing is stored about callers.
    pub(super) fn is_forgotten(&self) -> bool {
        let queue = self.queue();
        queue.turns.is_empty() && queue.short.is_empty() && self.waiting.load(SeqCst) == 0
    }
}
