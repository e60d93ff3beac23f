//! Work that blocks, where it may.

use tokio::task::spawn_blocking;

/// Runs `work` on a thread that may block. Panics if it does.
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
                // Only at the end of the runtime, when nobody waits any more.
                Err(_) => std::future::pending().await,
            },
        }
    }
}
