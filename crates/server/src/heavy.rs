//! Heavy requests: explanations, states of models and large bodies, whose work takes milliseconds
//! without a wait. They have threads of their own, of a lower priority: they take the processor's
//! time from one another, and from other requests only what those leave.

use std::panic;

use outrigger_core::Failure;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::failure;

/// The threads for heavy requests. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Heavy(Handle);

impl Heavy {
    pub(crate) fn on(runtime: &Handle) -> Self {
        Self(runtime.clone())
    }

    /// Runs work that blocks its thread, on a thread of its own.
    pub(crate) fn begin<W: Future<Output = ()>>(&self, work: impl FnOnce() -> W + Send + 'static) {
        let runtime = self.0.clone();
        self.0.spawn_blocking(move || runtime.block_on(work()));
    }

    /// Runs the work of a request. If the caller goes away, the work ends at its next wait.
    ///
    /// # Errors
    /// Those of the work; `SHUTTING_DOWN` if the server stops meanwhile.
    ///
    /// # Panics
    /// The work panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let done = AbortOnDropHandle::new(self.0.spawn(work)).await;
        done.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => Err(failure::stopping()),
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use outrigger_core::Reason;
    use tokio::{runtime::Runtime, sync::oneshot};

    use super::*;
    use crate::runtimes;

    /// Threads that end with this value, also within another runtime.
    struct Threads(Option<Runtime>);

    impl Threads {
        fn start() -> (Self, Heavy) {
            let runtime = runtimes::lower("heavy", 1).unwrap();
            let heavy = Heavy::on(runtime.handle());
            (Self(Some(runtime)), heavy)
        }
    }

    impl Drop for Threads {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(Runtime::shutdown_background);
        }
    }

    #[tokio::test]
    async fn a_panic_reaches_the_caller() {
        let (_threads, heavy) = Threads::start();
        let work = heavy.run::<()>(async { panic!("heavy") });
        let caught = panic::AssertUnwindSafe(work).catch_unwind().await;
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"heavy"));
    }

    #[tokio::test]
    async fn work_ends_when_its_caller_goes_away() {
        let (_threads, heavy) = Threads::start();
        let (held, ended) = oneshot::channel::<()>();
        let work = heavy.run::<()>(async move {
            let _held = held;
            std::future::pending().await
        });
        let mut work = Box::pin(work);
        assert!(work.as_mut().now_or_never().is_none());
        drop(work);
        assert!(ended.await.is_err());
    }

    #[tokio::test]
    async fn a_server_that_stops_refuses_the_rest() {
        let (threads, heavy) = Threads::start();
        drop(threads);
        let refused = heavy.run(async { Ok(()) }).await.unwrap_err();
        assert_eq!(refused.reason, Reason::ShuttingDown);
    }
}
