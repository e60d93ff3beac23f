//! The room for one answer: a limit of its size, and a charge for the memory that it takes.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use outrigger_budget::Charge;
use outrigger_core::{Failure as Refusal, Reason};
use outrigger_proto::raw::unary::Unreadable;
use outrigger_rpc as rpc;

use crate::{Class, Failure, hosts::CallPlace};

/// The account of one answer's memory, in bytes. It is charged before the memory is taken.
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Charges further memory.
    ///
    /// # Errors
    /// It does not fit, which ends the call. With [`Reason::Overloaded`] it may fit later.
    fn charge(&self, bytes: u64) -> Result<(), Refusal>;

    /// Releases all that was charged: the answer comes again, in another form.
    fn release(&self);
}

impl Ledger for Charge {
    fn charge(&self, bytes: u64) -> Result<(), Refusal> {
        self.grow(bytes)
    }

    fn release(&self) {
        self.shrink(u64::MAX);
    }
}

/// The room for one answer, in whatever form it comes.
pub(crate) struct Room<'a> {
    limit: usize,
    ledger: Option<&'a dyn Ledger>,
    /// The call's place, if it keeps one when its caller gives it up.
    pub(crate) place: Option<CallPlace>,
    /// The reason why the account has refused the answer.
    refusal: Mutex<Option<Refusal>>,
}

impl<'a> Room<'a> {
    /// Room for an answer of at most `limit` bytes, which is charged to `ledger`.
    pub(crate) fn new(limit: usize, ledger: Option<&'a dyn Ledger>) -> Self {
        Self { limit, ledger, place: None, refusal: Mutex::default() }
    }

    /// The same for a call in this place.
    pub(crate) fn for_call(self, place: Option<CallPlace>) -> Self {
        Self { place, ..self }
    }

    /// The most bytes of the answer, also when it is decompressed.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Charges further memory for the answer.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Failure> {
        self.charged(bytes).map_err(|()| self.failure())
    }

    /// Releases what was charged for an answer of another form.
    pub(crate) fn empty(&self) {
        if let Some(ledger) = self.ledger {
            ledger.release();
        }
    }

    fn charged(&self, bytes: u64) -> Result<(), ()> {
        let Some(ledger) = self.ledger else { return Ok(()) };
        ledger.charge(bytes).map_err(|refusal| {
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        })
    }

    /// The failure of a call whose answer was refused. An answer that would not fit alone is not
    /// valid; otherwise others take the room for the moment.
    pub(crate) fn failure(&self) -> Failure {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        match &*refusal {
            Some(refusal) if refusal.reason == Reason::Overloaded => {
                Failure::new(Class::Overloaded, format!("no room for the answer: {refusal}"))
            }
            Some(refusal) => Failure::invalid(refusal),
            None => Failure::invalid("there is no room for it"),
        }
    }
}

impl rpc::Room for Room<'_> {
    fn limit(&self) -> usize {
        self.limit
    }

    fn take(&self, bytes: usize) -> Result<(), Unreadable> {
        self.charged(bytes as u64).map_err(|()| Unreadable::NotAdmitted)
    }
}

#[cfg(test)]
mod tests {
    use outrigger_budget::{Budget, Owner};

    use super::*;

    #[test]
    fn an_answer_is_charged_until_it_is_dropped() {
        let account = Budget::new(1 << 20).answers;
        let charge = account.open(Owner::of(&0));
        let room = Room::new(1 << 30, Some(&charge));
        room.take(1000).expect("room");
        rpc::Room::take(&room, 24).expect("room");
        assert_eq!(account.used(), 1024);
        room.empty();
        assert_eq!(account.used(), 0);
        room.take(10).expect("room");
        drop(charge);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn what_others_hold_is_an_overload_and_what_never_fits_is_not_valid() {
        let account = Budget::new(1 << 20).answers;
        let charges = [0_u8, 1].map(|owner| account.open(Owner::of(&owner)));
        let share = account.limit() / 2;
        let [one, other] = charges.each_ref().map(|charge| Room::new(1 << 30, Some(charge)));
        one.take(share).expect("room");
        let overloaded = other.take(share).expect_err("refused");
        assert_eq!(overloaded.class, Class::Overloaded);
        one.empty();
        let invalid = other.take(share + 1).expect_err("refused");
        assert_eq!((invalid.class, invalid.status), (Class::Ambiguous, crate::Status::Invalid));
    }
}
