//! Admission: limits the predictions in progress and those that wait for a model.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use outrigger_core::{Failure, Reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::metrics::{self, Limit};

/// The limit on predictions in progress. Clones share it.
///
/// Predictions that wait for a model to come up have a limit of their own, so that callers of one
/// slow model do not lock out all others.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    working: Places,
    waiting: Places,
}

/// A number of places that can change.
#[derive(Debug, Clone)]
struct Places {
    free: Arc<Semaphore>,
    all: Arc<AtomicU32>,
}

/// A prediction's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Admission,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Admission {
    pub(crate) fn new(working: u32, waiting: u32) -> Self {
        let places = |count: u32| Places {
            free: Arc::new(Semaphore::new(count as usize)),
            all: Arc::new(count.into()),
        };
        Self { working: places(working), waiting: places(waiting) }
    }

    /// Changes the number of places. Predictions that hold a place which is withdrawn keep it to
    /// their end.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn resize(&self, working: u32, waiting: u32) {
        self.working.resize(working);
        self.waiting.resize(waiting);
    }

    /// Takes a place for a prediction in progress.
    ///
    /// # Errors
    /// `OVERLOADED` when all places are taken.
    pub(crate) fn enter(&self) -> Result<Place, Failure> {
        let full = |_| overloaded(Limit::InFlight, "as many calls as allowed are in flight");
        let permit = self.working.take().map_err(full)?;
        Ok(Place { admission: self.clone(), held: Mutex::new(Some(permit)) })
    }
}

impl Places {
    fn take(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.free).try_acquire_owned()
    }

    fn resize(&self, all: u32) {
        let before = self.all.swap(all, Relaxed);
        self.free.add_permits(all.saturating_sub(before) as usize);
        let mut surplus = before.saturating_sub(all);
        surplus -= self.free.forget_permits(surplus as usize) as u32;
        // Permits in use cannot be revoked, so they are revoked when they are returned.
        let free = Arc::clone(&self.free);
        tokio::spawn(async move {
            free.acquire_many(surplus).await.expect("never closed").forget();
        });
    }
}

impl Place {
    /// Releases the place while it waits for `model`, so that other predictions can use it, then
    /// takes a place again as soon as one is free.
    ///
    /// # Errors
    /// `OVERLOADED` when too many predictions wait already, or the failure of `model`.
    pub(crate) async fn aside<T>(
        &self,
        model: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let full = |_| overloaded(Limit::Waiting, "as many calls as allowed wait for a model");
        let _waiting = self.admission.waiting.take().map_err(full)?;
        self.hold(None);
        let model = model.await?;
        let permit = Arc::clone(&self.admission.working.free).acquire_owned().await;
        self.hold(Some(permit.expect("never closed")));
        Ok(model)
    }

    fn hold(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }
}

fn overloaded(limit: Limit, message: &str) -> Failure {
    metrics::refused(limit);
    Failure::new(Reason::Overloaded, message)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_call_that_waits_for_a_model_leaves_its_place_to_others() {
        let admission = Admission::new(1, 1);
        let slow = admission.enter().unwrap();
        let mut waiting = Box::pin(slow.aside(pending::<Result<(), Failure>>()));
        assert!(futures::poll!(waiting.as_mut()).is_pending());

        let quick = admission.enter().expect("the place is free");
        assert_eq!(admission.enter().unwrap_err().reason, Reason::Overloaded);
        let refused = quick.aside(ready(Ok(()))).await.unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded, "one waits already");
        drop(waiting);
        quick.aside(ready(Ok(()))).await.unwrap();
        assert_eq!(admission.enter().unwrap_err().reason, Reason::Overloaded, "it works again");
        drop(quick);
        drop(admission.enter().expect("both are gone"));
    }

    #[tokio::test]
    async fn a_lower_number_of_places_lets_calls_in_progress_finish() {
        let admission = Admission::new(3, 1);
        let held: Vec<_> = (0..2).map(|_| admission.enter().unwrap()).collect();
        admission.resize(1, 1);
        assert!(admission.enter().is_err(), "two calls hold more than the one place");
        for place in held {
            assert!(admission.enter().is_err());
            drop(place);
            tokio::task::yield_now().await;
        }
        let only = admission.enter().expect("one place is left");
        assert!(admission.enter().is_err());
        drop(only);
    }

    #[tokio::test]
    async fn places_that_are_given_again_pay_for_those_still_to_be_withdrawn() {
        let admission = Admission::new(4, 1);
        let held: Vec<_> = (0..4).map(|_| admission.enter().unwrap()).collect();
        admission.resize(1, 1);
        tokio::task::yield_now().await;
        admission.resize(5, 2);
        tokio::task::yield_now().await;
        let fifth = admission.enter().expect("five places, four of them taken");
        assert!(admission.enter().is_err());
        drop((held, fifth));
        let all: Vec<_> = (0..5).map(|_| admission.enter().unwrap()).collect();
        assert!(admission.enter().is_err());
        let waiting = |place: &Place| place.admission.waiting.free.available_permits();
        assert_eq!(all.iter().map(waiting).max(), Some(2));
    }

    #[tokio::test]
    async fn a_call_whose_model_is_up_waits_for_a_place() {
        let admission = Admission::new(1, 1);
        let slow = admission.enter().unwrap();
        let (up, model) = tokio::sync::oneshot::channel::<()>();
        let mut waiting = Box::pin(slow.aside(async { Ok(model.await.is_ok()) }));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        let other = admission.enter().unwrap();
        up.send(()).unwrap();
        assert!(futures::poll!(waiting.as_mut()).is_pending(), "no place yet");
        drop(other);
        assert!(waiting.await.unwrap());
        assert!(admission.enter().is_err());
    }
}
