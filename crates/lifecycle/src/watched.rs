//! The backend as requests see it.

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use outrigger_backend::{Backend, Call, Error, ReloadError, ServingConfig, VersionStatus};
use outrigger_core::{Interface, ServableId, ServableName, Tensor};
use tokio::{sync::Notify, time::Instant};

/// Passes calls on, and rings a bell when a prediction fails in a way that hints
/// at an engine that has ended or restarted: it is then looked at at once.
pub(crate) struct Watched {
    inner: Arc<dyn Backend>,
    suspect: Arc<Notify>,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn Backend>, suspect: Arc<Notify>) -> Self {
        Self { inner, suspect }
    }
}

impl Backend for Watched {
    fn predict(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, Error>> {
        let answer = self.inner.predict(call);
        answer
            .inspect(|result| {
                if let Err(Error::Unavailable(_) | Error::NotServed { .. }) = result {
                    self.suspect.notify_one();
                }
            })
            .boxed()
    }

    fn signature<'a>(
        &'a self,
        servable: &'a ServableId,
        signature: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, Error>> {
        self.inner.signature(servable, signature, deadline)
    }

    fn status<'a>(
        &'a self,
        name: &'a ServableName,
    ) -> BoxFuture<'a, Result<Vec<VersionStatus>, Error>> {
        self.inner.status(name)
    }

    fn reload(&self, config: ServingConfig) -> BoxFuture<'_, Result<(), ReloadError>> {
        self.inner.reload(config)
    }
}
