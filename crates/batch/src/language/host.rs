//! A host with OpenAI's API.

use futures::future::BoxFuture;
use http::StatusCode;
use outrigger_oip_client::{Client, Failure, Ledger, ModelRef, Request, Status};
use tokio::time::Instant;

use super::{answer::answer, line::Line, metadata};
use crate::{Answer, Description, Endpoint};

/// The path that servers of the API answer without work.
const MODELS: &str = "/v1/models";

/// Sends lines to one host.
#[derive(Debug)]
pub(crate) struct LanguageHost(pub(crate) Client);

impl Endpoint for LanguageHost {
    fn infer<'a>(
        &'a self,
        request: &'a Request,
        ledger: &'a dyn Ledger,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let line = Line::of(request).ok_or_else(Failure::not_sent)?;
            let body = line.body.clone();
            let answered = self.0.post_at(0, (line.url, body), (request.deadline, ledger)).await?;
            answer(&line, &answered).map_err(|mut failure| {
                failure.host = self.0.addresses().next().cloned();
                failure
            })
        })
    }

    fn describe<'a>(
        &'a self,
        _model: ModelRef<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Description, Failure>> {
        let metadata = metadata();
        Box::pin(async move { Ok(Description { metadata, ..Description::default() }) })
    }

    /// True if the host lists its models. One that has no such list, or wants other credentials for
    /// it, is taken for ready: only its answers show more.
    fn is_ready<'a>(
        &'a self,
        _model: ModelRef<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            match self.0.get_at(0, MODELS, deadline).await {
                Ok(_) => Ok(true),
                Err(Failure { status: Status::Http(status), .. }) => {
                    Ok(status != StatusCode::SERVICE_UNAVAILABLE)
                }
                Err(failure) => Err(failure),
            }
        })
    }
}
