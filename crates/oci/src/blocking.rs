//! Runs blocking work on the runtime's blocking threads.

use std::{io, path::PathBuf};

use crate::Error;

/// Runs `work` on a blocking thread. A panic in it is resumed in the caller.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => {
                let source = io::Error::other("the runtime is stopping");
                Err(Error::Io { path: PathBuf::new(), source })
            }
        },
    }
}
