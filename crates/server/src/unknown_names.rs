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

use outrigger_core::{Failure, ModelName, Reason, Selector};
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

/// A model, and the tag or digest of it.
pub(crate) type Name = (ModelName, Selector);

/// The unknown names of one caller.
#[derive(Debug)]
struct Spent {
    /// The names that are being looked up or brought up, each with the number of its requests. Those
    /// without a request are left by requests that ended before that had an outcome.
    pending: HashMap<Name, u32>,
    /// Names that turned out not to exist since `began`.
    absent: u32,
    began: Instant,
}

/// A request for a name that is being looked up.
#[derive(Debug)]
pub(crate) struct Asking {
    names: UnknownNames,
    party: Party,
    name: Name,
    has_outcome: bool,
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

    /// Begins a request of `party` for an unknown name. Further requests for a name that is being
    /// looked up for the same caller cost nothing. `is_awaited`: the name has no outcome yet.
    ///
    /// # Errors
    /// `OVERLOADED` when the budget is spent.
    pub(crate) fn ask(
        &self,
        party: Party,
        name: Name,
        is_awaited: impl Fn(&Name) -> bool,
    ) -> Result<Asking, Failure> {
        let (most, now) = (self.0.most.load(Relaxed), Instant::now());
        let mut callers = self.callers();
        if callers.len() >= CALLERS && !callers.contains_key(&party) {
            callers.retain(|_, spent| !self.is_over(spent, now));
        }
        let is_known = callers.len() < CALLERS || callers.contains_key(&party);
        let party = if is_known { party } else { OTHERS };
        let new = || Spent { pending: HashMap::new(), absent: 0, began: now };
        let spent = callers.entry(party.clone()).or_insert_with(new);
        if now - spent.began >= self.0.window {
            (spent.absent, spent.began) = (0, now);
        }
        if spent.pending.len() >= PENDING as usize || spent.pending.len() >= most as usize {
            spent.pending.retain(|name, requests| *requests > 0 || is_awaited(name));
        }
        let pending = u32::try_from(spent.pending.len()).unwrap_or(u32::MAX);
        let is_spent = pending.saturating_add(spent.absent) >= most || pending >= PENDING;
        if most > 0 && is_spent && !spent.pending.contains_key(&name) {
            metrics::refused(Limit::UnknownNames);
            let message = "this caller has asked for too many models and tags that do not exist";
            let wait = self.0.window.saturating_sub(now - spent.began);
            return Err(Failure::new(Reason::Overloaded, message).retry_after(wait));
        }
        *spent.pending.entry(name.clone()).or_default() += 1;
        drop(callers);
        Ok(Asking { names: self.clone(), party, name, has_outcome: false })
    }

    fn is_over(&self, spent: &Spent, now: Instant) -> bool {
        spent.pending.values().all(|requests| *requests == 0) && now - spent.began >= self.0.window
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<Party, Spent>> {
        self.0.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    /// Ends the request with its result; a name that does not exist counts until the window ends.
    pub(crate) fn end<T>(mut self, result: &Result<T, Failure>) {
        use Reason::{DigestNotFound, ModelLoading, ModelNotFound, TagNotFound};
        self.has_outcome = result.as_ref().err().is_none_or(|it| it.reason != ModelLoading);
        let Err(failure) = result else { return };
        if matches!(failure.reason, ModelNotFound | TagNotFound | DigestNotFound)
            && let Some(spent) = self.names.callers().get_mut(&self.party)
            && spent.pending.get(&self.name) == Some(&1)
        {
            spent.absent += 1;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut callers = self.names.callers();
        let Some(spent) = callers.get_mut(&self.party) else { return };
        if let Some(requests) = spent.pending.get_mut(&self.name) {
            *requests -= 1;
            if *requests == 0 && self.has_outcome {
                spent.pending.remove(&self.name);
            }
        }
        if spent.pending.is_empty() && spent.absent == 0 {
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

    fn name(number: u32) -> Name {
        let latest = Selector::Tag("latest".parse().expect("a valid tag"));
        (format!("model-{number}").parse().expect("a valid name"), latest)
    }

    /// Asks for a name that has an outcome when its requests have ended.
    fn ask(names: &UnknownNames, party: Party, name: Name) -> Result<Asking, Failure> {
        names.ask(party, name, |_| false)
    }

    fn absent() -> Result<(), Failure> {
        Err(Failure::new(Reason::ModelNotFound, "there is none"))
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_do_not_exist_spend_the_budget_until_the_window_ends() {
        let names = UnknownNames::new(Duration::from_secs(30));
        names.set(3);
        for number in 0..3 {
            ask(&names, party(1), name(number)).expect("within the budget").end(&absent());
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        let refused = ask(&names, party(1), name(9)).expect_err("it is spent");
        assert_eq!(refused.reason, Reason::Overloaded);
        assert_eq!(refused.retry_after, Some(Duration::from_secs(20)));
        ask(&names, party(2), name(9)).expect("another caller").end(&absent());
        tokio::time::advance(Duration::from_secs(20)).await;
        drop(ask(&names, party(1), name(9)).expect("the budget is renewed"));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_exist_count_only_while_they_are_looked_up() {
        let names = UnknownNames::new(Duration::from_secs(30));
        names.set(2);
        let mut asking: Vec<_> =
            (0..2).map(|it| ask(&names, party(1), name(it)).unwrap()).collect();
        assert!(ask(&names, party(1), name(2)).is_err());
        asking.push(ask(&names, party(1), name(0)).expect("it is being looked up already"));
        asking.pop().into_iter().for_each(|it| it.end(&Ok(())));
        assert!(ask(&names, party(1), name(2)).is_err(), "both are still looked up");
        asking.pop().into_iter().for_each(|it| it.end(&Ok(())));
        asking.push(ask(&names, party(1), name(2)).expect("one was found"));
        asking.into_iter().for_each(|it| it.end(&Ok(())));
        assert_eq!(names.callers().len(), 0, "nothing is kept of a caller without unknown names");
    }

    #[tokio::test(start_paused = true)]
    async fn names_whose_requests_have_ended_count_until_they_have_an_outcome() {
        let names = UnknownNames::new(Duration::from_secs(30));
        names.set(2);
        let loading = || Err::<(), _>(Failure::new(Reason::ModelLoading, "it is being loaded"));
        for number in 0..2 {
            ask(&names, party(1), name(number)).expect("within the budget").end(&loading());
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(names.ask(party(1), name(2), |_| true).is_err());
        drop(names.ask(party(1), name(2), |it| *it == name(1)).expect("one has been refused"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_callers_is_bounded() {
        let names = UnknownNames::new(Duration::from_secs(30));
        names.set(2);
        for number in 0..10_000_u32 {
            let party = Party::Unknown(Ipv4Addr::from_bits(number + 1).into());
            ask(&names, party, name(1)).into_iter().for_each(|it| it.end(&absent()));
        }
        assert!(names.callers().len() <= CALLERS + 1);
        tokio::time::advance(Duration::from_secs(30)).await;
        drop(ask(&names, party(1), name(9)));
        assert!(names.callers().len() <= 1, "all others are over");
    }
}
