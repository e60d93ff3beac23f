//! Runs requests on one version in the process.

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{ServableId, Tensor};
use outrigger_rpc::Share;
use outrigger_run::{Call, Run, RunError};
use tokio::sync::Notify;

use crate::client::Client;

/// Runs one version. A failure that suggests a restart of the process notifies `suspect`, so that it
/// is looked at at once.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) client: Arc<Client>,
    pub(crate) id: ServableId,
    pub(crate) share: Share,
    pub(crate) suspect: Arc<Notify>,
}

impl Run for Bound {
    fn run(&self, mut call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        let run = async move {
            let ran = self.client.run((&self.id, &self.share), &mut call).await;
            ran.map_err(|error| error.reported(call.inputs, &self.suspect))
        };
        run.boxed()
    }
}
