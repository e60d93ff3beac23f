//! The gate: what a version must show before requests may have it. The engine's
//! own signature must fit metadata.json, and the golden cases, or else a made-up
//! request, must be answered as they should. That also warms the model.

use std::{sync::Arc, time::Duration};

use outrigger_backend::{Backend, Error, Target};
use outrigger_core::{Failure, Reason, ServableId, Tensor};
use outrigger_features::{GoldenCase, Limits, Packed, Plan};
use prost::Message as _;
use tokio::time::{Instant, sleep};

use crate::call::{call, target};

/// An engine that is busy for a moment is asked so many times.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);

/// One passage of one version through the gate.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    /// The engine.
    pub backend: &'a dyn Backend,
    /// The version, which the engine serves.
    pub id: &'a ServableId,
    /// What its files say.
    pub plan: &'a Plan,
    /// Deadline of each request.
    pub timeout: Duration,
}

impl Gate<'_> {
    /// Shows the version every golden case, or a made-up request when there is
    /// none.
    ///
    /// # Errors
    /// GOLDEN_MISMATCH or IMAGE_INVALID when the model is at fault, the engine's
    /// own reasons when it is not.
    pub async fn pass(&self, golden: &[GoldenCase]) -> Result<(), Failure> {
        self.interface().await?;
        if golden.is_empty() {
            return self.answer(&self.plan.smoke_request().encode_to_vec(), None).await;
        }
        for case in golden {
            self.answer(&case.request.encode_to_vec(), Some(case)).await?;
        }
        Ok(())
    }

    async fn interface(&self) -> Result<(), Failure> {
        let mut attempt = 1;
        let interface = loop {
            let asked = self.backend.signature(self.id, self.plan.signature(), self.deadline());
            match asked.await {
                Err(error) if passes(&error) && attempt < ATTEMPTS => attempt += 1,
                other => break other.map_err(|error| judged("its signature", &error))?,
            }
            sleep(PAUSE).await;
        };
        let checked = self.plan.metadata().check_interface(&interface);
        checked.map_err(|error| Failure::because(error.reason(), &error))
    }

    /// Sends one request and looks at what comes back.
    async fn answer(&self, request: &[u8], golden: Option<&GoldenCase>) -> Result<(), Failure> {
        let what = match golden {
            Some(case) => format!("golden.jsonl line {}", case.line),
            None => "a first request".to_owned(),
        };
        let refused = |failure: Failure| {
            let message = format!("{what}: {}: {}", failure.reason, failure.message);
            Failure::new(Reason::GoldenMismatch, message)
        };
        let mut packed = self.plan.pack(&[request], &Limits::default()).map_err(refused)?;
        let outputs = match packed.needs_engine() {
            true => self.predict(&mut packed, &what).await?,
            false => Vec::new(),
        };
        let response = self.plan.response(&packed, &outputs).map_err(refused)?;
        let Some(case) = golden else { return Ok(()) };
        case.compare(&response).map_err(|error| Failure::because(error.reason(), &error))
    }

    async fn predict(&self, packed: &mut Packed, what: &str) -> Result<Vec<Tensor>, Failure> {
        let mut call = call(&self.target(), self.plan, packed, self.deadline());
        let mut attempt = 1;
        loop {
            match self.backend.predict(call.clone()).await {
                Err(error) if passes(&error) && attempt < ATTEMPTS => attempt += 1,
                other => return other.map_err(|error| judged(what, &error)),
            }
            sleep(PAUSE).await;
            call.deadline = self.deadline();
        }
    }

    pub(crate) fn target(&self) -> Arc<Target> {
        target(self.id, self.plan)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}

/// Whether the engine may answer a moment later.
fn passes(error: &Error) -> bool {
    matches!(error.reason(), Reason::EngineUnavailable | Reason::Overloaded)
}

/// The model's own failures are the model's; the others say nothing about it.
fn judged(what: &str, error: &Error) -> Failure {
    let failure = Failure::because(error.reason(), error);
    let reason = match failure.reason {
        Reason::EngineFailed => Reason::GoldenMismatch,
        Reason::Deadline => Reason::EngineUnavailable,
        other => other,
    };
    Failure::new(reason, format!("{what}: {}", failure.message))
}
