//! The budget of each caller for names that do not exist.
//!
//! Each unknown name costs a look-up in a registry, and while it is looked up it takes a place that
//! all callers share. So a caller that asks for many of them is refused before it takes the places
//! of others.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_core::{Failure, Reason};
use tokio::time::Instant;

use crate::{
    caller::Party,
    metrics::{self, Limit},
};

/// The number of callers whose unknown names are counted. All further ones share one budget.
const CALLERS: usize = 4096;
/// The most names of one caller that are looked up at the same time: half of the places for all.
const PENDING: u32 = 128;
const OTHERS: Party = Party::Unknown(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

/// The unknown names that callers ask for. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct UnknownNames(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: AtomicU32,
    window: Duration,
    callers: Mutex<HashMap<Party, Spent>>,
}

/// The unknown names of one caller.
#[derive(Debug)]
struct Spent {
    pending: u32,
    /// Names that turned out not to exist since `began`.
    absent: u32,
    began: Instant,
}

/// A request for a name that is being looked up.
#[derive(Debug)]
pub(crate) struct Asking {
    names: UnknownNames,
    party: Party,
}

impl UnknownNames {
    /// Budgets that are renewed after each `window`. Without [`Self::set`] they have no limit.
    pub(crate) fn new(window: Duration) -> Self {
        Self(Arc::new(Inner { most: 0.into(), window, callers: Mutex::default() }))
    }

    /// Sets the budget of each caller; 0 means no limit.
    pub(crate) fn set(&self, most: u32) {
        self.0.most.store(most, Relaxed);
    }

    /// Begins a request of `party` for an unknown name.
    ///
    /// # Errors
    /// `OVERLOADED` when the budget is spent.
    pub(crate) fn ask(&self, party: Party) -> Result<Asking, Failure> {
        let (most, now) = (self.0.most.load(Relaxed), Instant::now());
        let mut callers = self.callers();
        if callers.len() >= CALLERS && !callers.contains_key(&party) {
            callers.retain(|_, spent| !self.is_over(spent, now));
        }
        let is_known = callers.len() < CALLERS || callers.contains_key(&party);
        let party = if is_known { party } else { OTHERS };
        let new = || Spent { pending: 0, absent: 0, began: now };
        let spent = callers.entry(party.clone()).or_insert_with(new);
        if now - spent.began >= self.0.window {
            (spent.absent, spent.began) = (0, now);
        }
        let is_spent = spent.pending.saturating_add(spent.absent) >= most;
        if most > 0 && (is_spent || spent.pending >= PENDING) {
            metrics::refused(Limit::UnknownNames);
            let message = "this caller has asked for too many models and tags that do not exist";
            let wait = self.0.window.saturating_sub(now - spent.began);
            return Err(Failure::new(Reason::Overloaded, message).retry_after(wait));
        }
        spent.pending += 1;
        drop(callers);
        Ok(Asking { names: self.clone(), party })
    }

    fn is_over(&self, spent: &Spent, now: Instant) -> bool {
        spent.pending == 0 && now - spent.began >= self.0.window
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<Party, Spent>> {
        self.0.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    /// Ends the request with its result; a name that does not exist counts until the window ends.
    pub(crate) fn end<T>(self, result: &Result<T, Failure>) {
        use Reason::{DigestNotFound, ModelNotFound, TagNotFound};
        let Err(failure) = result else { return };
        if matches!(failure.reason, ModelNotFound | TagNotFound | DigestNotFound)
            && let Some(spent) = self.names.callers().get_mut(&self.party)
        {
            spent.absent += 1;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut callers = self.names.callers();
        let Some(spent) = callers.get_mut(&self.party) else { return };
        spent.pending -= 1;
        if spent.pending == 0 && spent.absent == 0 {
            callers.remove(&self.party);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(last: u8) -> Party {
        Party::Unknown(Ipv4Addr::new(10, 0, 0, last).into())
    }

    fn absent() -> Result<(), Failure> {
        Err(Failure::new(Reason::ModelNotFound, "there is none"))
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_do_not_exist_spend_the_budget_until_the_window_ends() {
        let names = UnknownNames::new(Duration::from_secs(30));
        names.set(3);
        for _ in 0..3 {
            names.ask(party(1)).expect("within the budget").end(&absent());
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        let refused = names.ask(party(1)).expect_err("it is spent");
        assert_eq!(refused.reason, Reason::Overloaded);
        assert_eq!(refused.retry_after, Some(Duration::from_secs(20)));
        names.ask(party(2)).expect("another caller").end(&absent());
        tokio::time::advance(Duration::from_secs(20)).await;
        drop(names.ask(party(1)).expect("the budget is renewed"));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_exist_count_only_while_they_are_looked_up() {
        let names = UnknownNames::new(Duration::from_secs(30));
        names.set(2);
        let mut asking: Vec<_> = (0..2).map(|_| names.ask(party(1)).unwrap()).collect();
        assert!(names.ask(party(1)).is_err());
        asking.pop().into_iter().for_each(|it| it.end(&Ok(())));
        asking.push(names.ask(party(1)).expect("one was found"));
        drop(asking);
        assert_eq!(names.callers().len(), 0, "nothing is kept of a caller without unknown names");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_callers_is_bounded() {
        let names = UnknownNames::new(Duration::from_secs(30));
        names.set(2);
        for number in 0..10_000_u32 {
            let party = Party::Unknown(Ipv4Addr::from_bits(number + 1).into());
            names.ask(party).into_iter().for_each(|it| it.end(&absent()));
        }
        assert!(names.callers().len() <= CALLERS + 1);
        tokio::time::advance(Duration::from_secs(30)).await;
        drop(names.ask(party(1)));
        assert!(names.callers().len() <= 1, "all others are over");
    }
}
