//! Runs requests on the servers.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use outrigger_core::{Reason, ServableId, Tensor};
use outrigger_oip as oip;
use outrigger_oip_client::{Class, Client, Failure, Request, Status};
use outrigger_run::{Call, RowLayout, Run, RunError};

use crate::{framework::Remote, versions::Versions};

/// One version on the servers.
pub(crate) struct Bound {
    pub(crate) client: Arc<Client>,
    pub(crate) id: ServableId,
    pub(crate) layout: RowLayout,
    pub(crate) versions: Arc<Versions>,
}

impl Bound {
    async fn try_run(&self, call: &Call) -> Result<Vec<Tensor>, RunError> {
        let not_served = || RunError::NotServed { servable: self.id.clone() };
        let version = self.versions.get(&self.id).ok_or_else(not_served)?;
        let request = request(version.remote.clone(), self.layout, call);
        let reply = self.client.infer(&request).await.map_err(|failure| match failure.class {
            Class::TooLarge(cut) => too_large(&request, cut.bytes, failure),
            _ if failure.is_not_served() => not_served(),
            _ => run_error(failure),
        })?;
        if let Some(before) = reply.changed_from {
            let (model, now) = (&request.model, reply.version.as_deref().unwrap_or_default());
            let host = &reply.host;
            tracing::warn!(%host, %model, %before, %now, "another version of the model answers");
        }
        Ok(reply.outputs.into_iter().map(oip::Tensor::into_core).collect())
    }
}

impl Run for Bound {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        Box::pin(async move {
            self.try_run(&call).await.map_err(|error| match error {
                // The client has told the servers' keepers.
                RunError::Unavailable(_) | RunError::NotServed { .. } => {
                    RunError::Unsent { inputs: call.inputs, source: Box::new(error) }
                }
                other => other,
            })
        })
    }
}

fn request(remote: Remote, layout: RowLayout, call: &Call) -> Request {
    let first = call.inputs.first().and_then(|input| input.shape.first());
    let rows = first.and_then(|rows| u64::try_from(*rows).ok());
    Request {
        model: remote.model,
        version: remote.version,
        inputs: call.inputs.iter().cloned().map(Into::into).collect(),
        outputs: call.outputs.clone(),
        // A server that takes fewer rows gets them in parts.
        rows: rows.filter(|_| layout != RowLayout::Unknown),
        row_by_row: remote.row_by_row,
        deadline: call.deadline,
        headers: call.headers.clone(),
    }
}

fn too_large(request: &Request, limit: Option<u64>, failure: Failure) -> RunError {
    let size = request.inputs.iter().map(|tensor| tensor.data.len()).sum();
    match limit.and_then(|limit| usize::try_from(limit).ok()) {
        Some(limit) => RunError::TooLarge { size, limit },
        None => run_error(failure),
    }
}

/// The error of a run for a failure at all hosts that were tried.
pub(crate) fn run_error(failure: Failure) -> RunError {
    let message = failure.message.clone();
    match failure.class {
        _ if failure.is_of_sender() => RunError::of_input(&message),
        Class::Unavailable => RunError::Unavailable(failure.into()),
        Class::Overloaded => RunError::EngineOverloaded { message },
        Class::Timeout => RunError::DeadlineExceeded,
        Class::Ambiguous if failure.status == Status::Invalid => {
            RunError::Answer { reason: Reason::ScoresInvalid, source: failure.into() }
        }
        // A message that was lost with its connection is not sent again: it may have ended the
        // server.
        Class::Lost | Class::Ambiguous | Class::Refused | Class::TooLarge(_) => {
            RunError::Failed { code: failure.status.to_string(), message }
        }
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("id", &self.id).finish_non_exhaustive()
    }
}
