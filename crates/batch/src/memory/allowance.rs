//! The memory of one answer, while it is received and decoded.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use outrigger_core::{Failure as Refusal, Reason};
use outrigger_oip_client::Ledger;

use super::Charge;

/// The memory of one answer: that which was charged for it before, and what it needs beside.
#[derive(Debug)]
pub(crate) struct Allowance {
    state: Mutex<State>,
    /// True if it may use the reserve.
    is_first: bool,
}

#[derive(Debug)]
struct State {
    charge: Charge,
    /// The bytes that are in use, and the most that were.
    used: u64,
    peak: u64,
    is_refused: bool,
}

/// The end of an allowance.
#[derive(Debug)]
pub(crate) struct Used {
    /// All that is charged.
    pub(crate) charge: Charge,
    /// The most bytes that were needed at a time, with those that were refused.
    pub(crate) peak: u64,
    /// True if there was no room.
    pub(crate) is_refused: bool,
}

impl Allowance {
    /// An allowance of `charge`, and of more while there is room for it.
    pub(crate) fn new(charge: Charge, is_first: bool) -> Self {
        let state = State { charge, used: 0, peak: 0, is_refused: false };
        Self { state: Mutex::new(state), is_first }
    }

    /// True if it may use the reserve.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Ends the allowance. `answer` is the size of the answer in bytes, which stay charged. Without an
    /// answer all that was charged stays so.
    pub(crate) fn end(&self, answer: Option<u64>) -> Used {
        if let Some(bytes) = answer {
            self.release();
            // An endpoint need not charge what it returns.
            let _ = self.charge(bytes);
        }
        let mut state = self.state();
        let nothing = state.charge.split(0);
        let mut charge = mem::replace(&mut state.charge, nothing);
        if let Some(bytes) = answer {
            charge.shrink(bytes);
        }
        Used { charge, peak: state.peak, is_refused: state.is_refused }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for Allowance {
    fn charge(&self, bytes: u64) -> Result<(), Refusal> {
        let mut state = self.state();
        let used = state.used.saturating_add(bytes);
        state.peak = state.peak.max(used);
        let more = used.saturating_sub(state.charge.bytes());
        if more > 0 && !state.charge.grow(more, self.is_first) {
            state.is_refused = true;
            let message = "the job's memory has no room for it now";
            return Err(Refusal::new(Reason::Overloaded, message.to_owned()));
        }
        state.used = used;
        Ok(())
    }

    fn release(&self) {
        self.state().used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Memory, *};

    #[test]
    fn an_answer_uses_what_was_charged_for_it_first() {
        let memory = Memory::with_reserve(10, 2);
        let allowance = Allowance::new(memory.take(4).expect("room"), false);
        allowance.charge(3).expect("charged before");
        assert_eq!(memory.used().0, 4);
        allowance.charge(3).expect("room");
        assert_eq!(memory.used().0, 6);
        allowance.charge(3).expect_err("the reserve is for others");
        let Used { charge, peak, is_refused } = allowance.end(None);
        assert_eq!((charge.bytes(), peak, is_refused), (6, 9, true));
        let first = Allowance::new(charge, true);
        first.charge(9).expect("with the reserve");
        first.release();
        first.charge(2).expect("in another form");
        let Used { charge, peak, is_refused } = first.end(Some(1));
        assert_eq!((charge.bytes(), peak, is_refused, memory.used().0), (1, 9, false, 1));
    }

    #[test]
    fn an_answer_that_was_not_charged_is_charged_at_its_end() {
        let memory = Memory::new(10);
        let allowance = Allowance::new(memory.open(), false);
        let Used { charge, is_refused, .. } = allowance.end(Some(10));
        assert_eq!((charge.bytes(), is_refused), (10, false));
        assert!(Allowance::new(memory.open(), false).end(Some(1)).is_refused);
    }
}
