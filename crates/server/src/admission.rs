//! Admission: limits the predictions in progress and those that wait for a model.

use std::sync::{Arc, Mutex, PoisonError};

use outrigger_core::{Failure, Reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limit on predictions in progress. Clones share it.
///
/// Predictions that wait for a model to come up have a limit of their own, so that callers of one
/// slow model do not lock out all others.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    working: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// A prediction's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Admission,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Admission {
    pub(crate) fn new(working: u32, waiting: u32) -> Self {
        let places = |count: u32| Arc::new(Semaphore::new(count as usize));
        Self { working: places(working), waiting: places(waiting) }
    }

    /// Takes a place for a prediction in progress.
    ///
    /// # Errors
    /// `OVERLOADED` when all places are taken.
    pub(crate) fn enter(&self) -> Result<Place, Failure> {
        let full = |_| overloaded("as many calls as allowed are in flight");
        let permit = Arc::clone(&self.working).try_acquire_owned().map_err(full)?;
        Ok(Place { admission: self.clone(), held: Mutex::new(Some(permit)) })
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
        let full = |_| overloaded("as many calls as allowed wait for a model");
        let _waiting = Arc::clone(&self.admission.waiting).try_acquire_owned().map_err(full)?;
        self.hold(None);
        let model = model.await?;
        let permit = Arc::clone(&self.admission.working).acquire_owned().await;
        self.hold(Some(permit.expect("never closed")));
        Ok(model)
    }

    fn hold(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }
}

fn overloaded(message: &str) -> Failure {
    Failure::new(Reason::Overloaded, message)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_model_leaves_the_place_to_others() {
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
    async fn who_comes_back_waits_for_a_place_to_work() {
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
