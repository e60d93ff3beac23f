//! The gate: the checks that a version passes before requests are routed to it. The engine's own
//! signature must match metadata.json, and the golden cases, or else a generated request, must be
//! answered correctly. The requests also warm up the model.

use std::{sync::Arc, time::Duration};

use outrigger_core::{Failure, Reason, ServableId, Tensor};
use outrigger_features::{GoldenCase, Limits, Packed, Plan};
use outrigger_run::{Engine, Run, RunError};
use prost::Message as _;
use tokio::time::{Instant, sleep};

use crate::call::{call, target};

/// The number of attempts for an engine that is busy for a moment.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);

/// One pass of one version through the gate.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// The version in the engine: [`Engine::bind`] of the plan's target.
    pub run: &'a dyn Run,
    /// The version, which the engine serves.
    pub id: &'a ServableId,
    /// The plan made from its files.
    pub plan: &'a Plan,
    /// The deadline of each request.
    pub timeout: Duration,
}

impl Gate<'_> {
    /// Sends the version every golden case, or a generated request if there is none.
    ///
    /// # Errors
    /// GOLDEN_MISMATCH or IMAGE_INVALID if the model is at fault, the engine's own reasons if
    /// it is not.
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
            let asked = self.engine.interface(self.id, self.plan.signature(), self.deadline());
            match asked.await {
                Err(error) if passes(&error) && attempt < ATTEMPTS => attempt += 1,
                other => break other.map_err(|error| judged("its signature", &error))?,
            }
            sleep(PAUSE).await;
        };
        let checked = self.plan.metadata().check_interface(&interface);
        checked.map_err(|error| Failure::because(error.reason(), &error))
    }

    /// Sends one request and checks the answer.
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
        let mut call = call(self.plan, packed, self.deadline());
        let mut attempt = 1;
        loop {
            match self.run.run(call.clone()).await {
                Err(error) if passes(&error) && attempt < ATTEMPTS => attempt += 1,
                other => return other.map_err(|error| judged(what, &error)),
            }
            sleep(PAUSE).await;
            call.deadline = self.deadline();
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}

/// Binds the version `id` in `engine`, for requests packed by `plan`.
pub fn bind(engine: &dyn Engine, id: &ServableId, plan: &Plan) -> Arc<dyn Run> {
    engine.bind(target(id, plan))
}

/// Whether the error is temporary, so that the engine may answer a moment later.
fn passes(error: &RunError) -> bool {
    matches!(error.reason(), Reason::EngineUnavailable | Reason::Overloaded)
}

/// Failures of the model refuse the version; other failures say nothing about it.
fn judged(what: &str, error: &RunError) -> Failure {
    let failure = Failure::because(error.reason(), error);
    let reason = match failure.reason {
        Reason::EngineFailed => Reason::GoldenMismatch,
        Reason::Deadline => Reason::EngineUnavailable,
        other => other,
    };
    Failure::new(reason, format!("{what}: {}", failure.message))
}
