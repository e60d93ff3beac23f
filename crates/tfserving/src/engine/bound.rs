//! Runs requests on one version in the engine.

use std::{fmt, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::Tensor;
use outrigger_run::{self as run, Run, RunError};
use tokio::{sync::Notify, time::Instant};

use super::retries::Retries;
use crate::{Call, Client, Target, client::may_be_of_batch};

/// Runs one version. A failure that suggests a restart of the engine notifies `suspect`, so that
/// the engine is probed at once.
pub(super) struct Bound {
    client: Arc<Client>,
    target: Arc<Target>,
    suspect: Arc<Notify>,
    /// The retries of the model, if the engine batches requests.
    retries: Option<Arc<Retries>>,
}

impl Bound {
    pub(super) fn new(
        client: Arc<Client>,
        target: run::Target,
        suspect: Arc<Notify>,
        retries: Option<Arc<Retries>>,
    ) -> Self {
        let run::Target { id, signature, inputs, outputs, .. } = target;
        let target = Arc::new(Target::new(id, signature, inputs, outputs));
        Self { client, target, suspect, retries }
    }

    /// Makes the call, and once more if it may have failed because of another request in its batch
    /// and there is as much time left as it took.
    async fn predict(&self, call: &mut Call) -> Result<Vec<Tensor>, RunError> {
        let Some(retries) = &self.retries else { return self.client.try_predict(call).await };
        retries.count();
        let start = Instant::now();
        let result = self.client.try_predict(call).await;
        let now = Instant::now();
        let fits = now + (now - start) < call.deadline;
        if !fits || !result.as_ref().is_err_and(may_be_of_batch) {
            return result;
        }
        let Some(_retry) = retries.begin() else { return result };
        self.client.retry_predict(call).await
    }
}

impl Run for Bound {
    fn run(&self, call: run::Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        let run::Call { inputs, outputs, deadline, headers: metadata, .. } = call;
        let target = Arc::clone(&self.target);
        let mut call = Call { target, inputs, outputs, deadline, metadata };
        let run = async move {
            let ran = self.predict(&mut call).await;
            ran.map_err(|error| error.reported(call.inputs, &self.suspect))
        };
        run.boxed()
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("target", &self.target).finish_non_exhaustive()
    }
}
