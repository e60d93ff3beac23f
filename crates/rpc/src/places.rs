//! Places for calls in flight, which a call keeps until the server has ended it.
//!
//! A server works on a call although its caller has given it up. So the call counts until its answer
//! begins, or its connection ends.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use futures::FutureExt as _;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// The places for calls in flight at one server.
#[derive(Debug, Clone)]
pub struct Places {
    all: Arc<Semaphore>,
    most_of_one: usize,
}

/// The places that the calls of one version may take: half of all, so that no version takes the
/// server from the others. Clones share them.
#[derive(Debug, Clone)]
pub struct Share {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    most: usize,
    /// The calls that were given up and are not over.
    given_up: Arc<AtomicUsize>,
}

/// The place of one call.
#[derive(Debug)]
pub struct Place {
    _permits: [OwnedSemaphorePermit; 2],
    given_up: Arc<AtomicUsize>,
    is_given_up: bool,
}

/// Something that a call holds until the server has ended it.
pub trait Held: Send + Unpin + 'static {
    /// Records that the caller does not wait any more.
    fn give_up(&mut self);
}

/// A call that goes on if it is dropped before its end, and holds `H` until then.
pub struct Kept<F: Future<Output: Send> + Send + Unpin + 'static, H: Held>(Option<(F, H)>);

/// The reason why a call has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// This number of calls has all places of the version. Their callers have given them up.
    GivenUp(usize),
    /// There was none until the deadline.
    Late,
}

impl Places {
    /// At most `most` places.
    pub fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(most)), most_of_one: most.div_ceil(2) }
    }

    /// The share of one version.
    pub fn share(&self) -> Share {
        Share {
            all: Arc::clone(&self.all),
            own: Arc::new(Semaphore::new(self.most_of_one)),
            most: self.most_of_one,
            given_up: Arc::default(),
        }
    }
}

impl Share {
    /// Waits for a place, in order of arrival.
    ///
    /// # Errors
    /// There is none until the deadline, or all have calls that were given up.
    pub async fn enter(&self, deadline: Instant) -> Result<Place, NoPlace> {
        let given_up = self.given_up.load(Relaxed);
        if given_up >= self.most {
            return Err(NoPlace::GivenUp(given_up));
        }
        let both = async {
            let own = Arc::clone(&self.own).acquire_owned().await;
            (own.expect("never closed"), Arc::clone(&self.all).acquire_owned().await)
        };
        let (own, all) = timeout_at(deadline, both).await.map_err(|_| NoPlace::Late)?;
        let _permits = [own, all.expect("never closed")];
        Ok(Place { _permits, given_up: Arc::clone(&self.given_up), is_given_up: false })
    }
}

impl Held for Place {
    fn give_up(&mut self) {
        self.is_given_up = true;
        self.given_up.fetch_add(1, Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_given_up {
            self.given_up.fetch_sub(1, Relaxed);
        }
    }
}

impl<F: Future<Output: Send> + Send + Unpin + 'static, H: Held> Kept<F, H> {
    /// Keeps `call`.
    pub fn new(call: F, held: H) -> Self {
        Self(Some((call, held)))
    }
}

impl<F: Future<Output: Send> + Send + Unpin + 'static, H: Held> Future for Kept<F, H> {
    /// The result of the call, and what it held.
    type Output = (F::Output, H);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (call, _) = self.0.as_mut().expect("it is not polled after its end");
        let result = std::task::ready!(call.poll_unpin(context));
        let (_, held) = self.0.take().expect("it was there");
        Poll::Ready((result, held))
    }
}

impl<F: Future<Output: Send> + Send + Unpin + 'static, H: Held> Drop for Kept<F, H> {
    fn drop(&mut self) {
        let Some((call, mut held)) = self.0.take() else { return };
        // Without a runtime, the process ends.
        if let Ok(runtime) = Handle::try_current() {
            held.give_up();
            runtime.spawn(async move {
                drop(call.await);
                drop(held);
            });
        }
    }
}
