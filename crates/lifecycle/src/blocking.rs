//! Runs blocking work on threads where it may block.

use tokio::task::spawn_blocking;

/// Runs `work` on a thread where it may block. Panics if `work` panics.
pub(crate) fn blocking<T, F>(work: F) -> impl Future<Output = T> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let task = spawn_blocking(work);
    async {
        match task.await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The task is cancelled only when the runtime ends, and then no caller waits.
                Err(_) => std::future::pending().await,
            },
        }
    }
}
