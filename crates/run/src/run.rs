//! One run of a model.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::HeaderMap;
use outrigger_core::{ContributionSize, Explanation, Tensor};
use tokio::time::Instant;

use crate::{RunError, StageTimes};

/// A loaded version of a model, in any engine.
///
/// # Guarantees
/// A call ends by its deadline, also when the engine hangs. Dropping the future cancels the
/// call.
pub trait Run: Send + Sync + 'static {
    /// Runs the model once. Returns the outputs that the call names, in that order; if it
    /// names none, all outputs of the signature in any order.
    ///
    /// # Errors
    /// [`RunError`].
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>>;

    /// The size of the contributions that [`Self::explain`] returns for each row.
    ///
    /// # Errors
    /// [`RunError::Unexplained`] if the engine, or this version, has no contributions;
    /// [`RunError::NotServed`].
    fn contributions(&self) -> Result<ContributionSize, RunError> {
        Err(RunError::Unexplained(UNEXPLAINED.to_owned()))
    }

    /// Computes the contributions of the features to the margins of each row, for joined inputs. A
    /// margin is a sum before the model's last transformation. The contributions to it are those of
    /// the columns of all inputs, in the order of the call, and the base value; they add up to the
    /// margin. Of sparse rows they are those of the columns that the model uses in any row, which
    /// the result names. The call's `outputs` are not used.
    ///
    /// # Errors
    /// [`RunError`]; [`RunError::Unexplained`] as [`Self::contributions`].
    fn explain(&self, call: Call) -> BoxFuture<'_, Result<Explanation, RunError>> {
        drop(call);
        Box::pin(std::future::ready(Err(RunError::Unexplained(UNEXPLAINED.to_owned()))))
    }
}

/// The reason of engines that compute no contributions.
pub(crate) const UNEXPLAINED: &str = "the model's engine computes no contributions";

/// One run of a model.
#[derive(Debug, Clone)]
pub struct Call {
    /// The inputs, named as in the model's signature.
    pub inputs: Vec<Tensor>,
    /// Names of the wanted outputs; empty for all.
    pub outputs: Vec<Arc<str>>,
    /// The time at which the caller stops waiting.
    pub deadline: Instant,
    /// Headers to send with the call to an engine elsewhere, such as its trace context.
    pub headers: HeaderMap,
    /// The times of the run's stages, which a model may report. Those of a run that has failed are
    /// incomplete.
    pub stages: StageTimes,
}

impl Call {
    /// A call that has no headers, and does not record the times of stages.
    pub fn new(inputs: Vec<Tensor>, outputs: Vec<Arc<str>>, deadline: Instant) -> Self {
        Self { inputs, outputs, deadline, headers: HeaderMap::new(), stages: StageTimes::default() }
    }
}
