//! One run of a model.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::HeaderMap;
use outrigger_core::Tensor;
use tokio::time::Instant;

use crate::RunError;

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
}

/// One run of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The inputs, named as in the model's signature.
    pub inputs: Vec<Tensor>,
    /// Names of the wanted outputs; empty for all.
    pub outputs: Vec<Arc<str>>,
    /// The time at which the caller stops waiting.
    pub deadline: Instant,
    /// Headers to send with the call to an engine elsewhere, such as its trace context.
    pub headers: HeaderMap,
}
