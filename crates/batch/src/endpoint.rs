//! The ends of requests: servers of the protocol, and engines of the job itself.

use std::{collections::BTreeSet, fmt, time::Duration};

use futures::future::BoxFuture;
use outrigger_oip::{Tensor, metadata::ModelMetadata};
use outrigger_oip_client::{Client, Failure, Ledger, ModelRef, Request};
use tokio::time::Instant;

/// Answers the requests of one host. What follows from an answer or a failure is decided elsewhere.
pub trait Endpoint: fmt::Debug + Send + Sync + 'static {
    /// Runs the model once. Ends by the request's deadline, and ends the work if it is dropped. The
    /// memory of an answer that comes from elsewhere is charged to `ledger` before it is taken.
    ///
    /// # Errors
    /// The failure, whose class decides about the rows.
    fn infer<'a>(
        &'a self,
        request: &'a Request,
        ledger: &'a dyn Ledger,
    ) -> BoxFuture<'a, Result<Answer, Failure>>;

    /// The description of the model.
    ///
    /// # Errors
    /// The model is not there, or no answer came.
    fn describe<'a>(
        &'a self,
        model: ModelRef<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Description, Failure>>;

    /// True if the host reports the model to be ready.
    ///
    /// # Errors
    /// No answer came, or one that does not say.
    fn is_ready<'a>(
        &'a self,
        model: ModelRef<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<bool, Failure>>;
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The outputs, in the order of the request; all of them if it names none. Each has the rows of
    /// the request.
    pub outputs: Vec<Tensor>,
    /// The version that answered, if the host names one.
    pub version: Option<String>,
    /// The tokens, for language models.
    pub usage: Usage,
}

impl Answer {
    /// The bytes of the outputs.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_of(&self.outputs)
    }
}

/// The bytes of tensors.
pub(crate) fn bytes_of(tensors: &[Tensor]) -> u64 {
    tensors.iter().map(|tensor| tensor.data.len() as u64).sum()
}

/// The tokens that an answer of a language model has taken, and what its host says about further
/// ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The tokens of the prompt and of the answer, if the host counts them.
    pub tokens: Option<u64>,
    /// The pause before the next request that the host asks for.
    pub pause: Option<Duration>,
}

/// A model as a host describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Description {
    /// The tensors. Hosts may leave all of them out.
    pub metadata: ModelMetadata,
    /// The inputs that a request may leave out, and whose values may be absent in some rows: with
    /// the input [`outrigger_oip::presence`] of BOOL.
    pub optional: BTreeSet<String>,
}

impl Endpoint for Client {
    fn infer<'a>(
        &'a self,
        request: &'a Request,
        ledger: &'a dyn Ledger,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let reply = self.infer_at(0, request, Some(ledger)).await?;
            let (outputs, version) = (reply.outputs, reply.version);
            Ok(Answer { outputs, version, usage: Usage::default() })
        })
    }

    fn describe<'a>(
        &'a self,
        model: ModelRef<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Description, Failure>> {
        Box::pin(async move {
            let metadata = self.metadata(0, model, deadline).await?;
            Ok(Description { metadata, optional: BTreeSet::new() })
        })
    }

    fn is_ready<'a>(
        &'a self,
        model: ModelRef<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(Self::is_ready(self, 0, model, deadline))
    }
}
