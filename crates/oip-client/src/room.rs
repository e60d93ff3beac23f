//! The room for one answer: a limit of its size, and a charge for the memory that it takes.

use std::sync::{Mutex, PoisonError};

use outrigger_budget::Charge;
use outrigger_core::{Failure as Refusal, Reason};
use outrigger_proto::raw::unary::Unreadable;
use outrigger_rpc as rpc;

use crate::{Class, Failure};

/// The room for one answer, in whatever form it comes. The charge is released with it.
#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    charge: Option<Charge>,
    /// The reason why the account has refused the answer.
    refusal: Mutex<Option<Refusal>>,
}

impl Room {
    /// Room for an answer of at most `limit` bytes, which is charged to `charge`.
    pub(crate) fn new(limit: usize, charge: Option<Charge>) -> Self {
        Self { limit, charge, refusal: Mutex::default() }
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
        if let Some(charge) = &self.charge {
            charge.shrink(u64::MAX);
        }
    }

    fn charged(&self, bytes: u64) -> Result<(), ()> {
        let Some(charge) = &self.charge else { return Ok(()) };
        charge.grow(bytes).map_err(|refusal| {
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

impl rpc::Room for Room {
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
        let room = Room::new(1 << 30, Some(account.open(Owner::of(&0))));
        room.take(1000).expect("room");
        rpc::Room::take(&room, 24).expect("room");
        assert_eq!(account.used(), 1024);
        room.empty();
        assert_eq!(account.used(), 0);
        room.take(10).expect("room");
        drop(room);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn what_others_hold_is_an_overload_and_what_never_fits_is_not_valid() {
        let account = Budget::new(1 << 20).answers;
        let open = |owner: u8| Room::new(1 << 30, Some(account.open(Owner::of(&owner))));
        let share = account.limit() / 2;
        let (one, other) = (open(0), open(1));
        one.take(share).expect("room");
        let overloaded = other.take(share).expect_err("refused");
        assert_eq!(overloaded.class, Class::Overloaded);
        drop(one);
        let invalid = other.take(share + 1).expect_err("refused");
        assert_eq!((invalid.class, invalid.status), (Class::Ambiguous, crate::Status::Invalid));
    }
}
