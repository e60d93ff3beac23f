//! Runs requests on one version in the engine.

use std::{fmt, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::Tensor;
use outrigger_run::{self as run, Run, RunError};
use tokio::sync::Notify;

use crate::{Call, Client, Target};

/// Runs one version. A failure that suggests a restart of the engine notifies `suspect`, so that
/// the engine is probed at once.
pub(super) struct Bound {
    client: Arc<Client>,
    target: Arc<Target>,
    suspect: Arc<Notify>,
}

impl Bound {
    pub(super) fn new(client: Arc<Client>, target: run::Target, suspect: Arc<Notify>) -> Self {
        let run::Target { id, signature, inputs, outputs } = target;
        Self { client, target: Arc::new(Target::new(id, signature, inputs, outputs)), suspect }
    }
}

impl Run for Bound {
    fn run(&self, call: run::Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        let run::Call { inputs, outputs, deadline, headers: metadata } = call;
        let target = Arc::clone(&self.target);
        let mut call = Call { target, inputs, outputs, deadline, metadata };
        let run = async move {
            match self.client.try_predict(&mut call).await {
                Err(error @ (RunError::Unavailable(_) | RunError::NotServed { .. })) => {
                    self.suspect.notify_one();
                    Err(RunError::Unsent { inputs: call.inputs, source: Box::new(error) })
                }
                Err(error @ RunError::Lost { .. }) => {
                    self.suspect.notify_one();
                    Err(error)
                }
                answer => answer,
            }
        };
        run.boxed()
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("target", &self.target).finish_non_exhaustive()
    }
}
