//! The gate: the checks that a version passes before requests are routed to it. The engine's own
//! signature must match metadata.json, and the golden cases, or else a generated request, must be
//! answered correctly. The requests also warm up the model.

mod padding;

use std::time::Duration;

use futures::TryFutureExt as _;
use outrigger_budget::Account;
use outrigger_core::{Failure, Reason, Tensor};
use outrigger_features::{GoldenCase, Packed};
use outrigger_run::Engine;
use outrigger_score::Scorer;
use prost::Message as _;
use tokio::time::{Instant, sleep};

use crate::package::Golden;

/// The number of attempts for an engine that is busy for a moment.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);
/// The number of attempts at a request that the model leaves unanswered. A second one, because a
/// first run may be slow once: it compiles kernels, and reads weights from a cold disk.
const UNANSWERED: u32 = 2;

/// One pass of one version through the gate.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// The version, which the engine serves.
    pub scorer: &'a Scorer,
    /// The deadline of each request.
    pub timeout: Duration,
    /// The memory in which golden cases are parsed, if it is limited.
    pub packages: Option<&'a Account>,
}

impl Gate<'_> {
    /// Sends the version every golden case, or a generated request if there is none.
    ///
    /// # Errors
    /// GOLDEN_MISMATCH or IMAGE_INVALID if the model is at fault, the engine's own reasons if
    /// it is not.
    pub async fn pass(&self, golden: &Golden) -> Result<(), Failure> {
        self.interface().await?;
        if golden.count() == 0 {
            let plan = &self.scorer.plan;
            let request = match self.scorer.batches {
                true => plan.varied_smoke_request(),
                false => plan.smoke_request(),
            };
            return self.answer(&request.encode_to_vec(), None).await;
        }
        let mut cases = golden.read(&self.scorer.plan).await?;
        while let Some(case) = cases.next(self.packages).await? {
            self.answer(&case.request.encode_to_vec(), Some(&case)).await?;
        }
        Ok(())
    }

    async fn interface(&self) -> Result<(), Failure> {
        let Scorer { id, plan, .. } = self.scorer;
        let ask = || self.engine.interface(id, plan.signature(), self.deadline()).err_into();
        let interface =
            patiently(ask).await.map_err(|failure| judged("its signature", &failure))?;
        let checked = plan.metadata().check_interface(&interface);
        checked.map_err(|error| Failure::because(error.reason(), &error))
    }

    /// Sends one request and checks the answer.
    async fn answer(&self, request: &[u8], golden: Option<&GoldenCase>) -> Result<(), Failure> {
        let what = match golden {
            Some(case) => format!("golden.jsonl line {}", case.line),
            None => "a first request".to_owned(),
        };
        let refused = |failure| refused(&what, &failure);
        let packed = self.scorer.pack(request).map_err(refused)?;
        let outputs = self.score(&what, &packed).await?;
        let response = self.scorer.plan.response(&packed, &outputs).map_err(refused)?;
        if let Some(case) = golden {
            let compared = case.compare(&response);
            compared.map_err(|error| Failure::because(error.reason(), &error))?;
        }
        self.check_padded(&what, golden, &packed, &outputs).await
    }

    /// Scores a request. A model that leaves it unanswered while the engine answers other calls is
    /// refused. `what` names the request in failures.
    async fn score(&self, what: &str, packed: &Packed) -> Result<Vec<Tensor>, Failure> {
        let score = || {
            let mut packed = packed.clone();
            async move { self.scorer.score(&mut packed, self.deadline()).await }
        };
        for _ in 0..UNANSWERED {
            match patiently(score).await {
                Err(failure) if failure.reason == Reason::Deadline => {}
                other => return other.map_err(|failure| judged(what, &failure)),
            }
            // An engine that answers nothing proves nothing about the model.
            self.interface().await?;
        }
        let time = self.timeout.as_secs_f64();
        let message = format!(
            "{what}: the model did not answer within {time} s, {UNANSWERED} times in a row, while \
             the engine answered other calls"
        );
        Err(Failure::new(Reason::GoldenMismatch, message))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}

/// Repeats the question to the engine while it is briefly busy.
async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut attempt = 1;
    loop {
        match ask().await {
            Err(failure) if passes(&failure) && attempt < ATTEMPTS => attempt += 1,
            other => return other,
        }
        sleep(PAUSE).await;
    }
}

/// Whether the failure is temporary, so that the engine may answer a moment later.
fn passes(failure: &Failure) -> bool {
    matches!(failure.reason, Reason::EngineUnavailable | Reason::Overloaded)
}

/// The refusal of a version that cannot answer the request called `what`.
fn refused(what: &str, failure: &Failure) -> Failure {
    let message = format!("{what}: {}: {}", failure.reason, failure.message);
    Failure::new(Reason::GoldenMismatch, message)
}

/// Failures of the model refuse the version; other failures say nothing about it. `what` names the
/// question to the engine.
fn judged(what: &str, failure: &Failure) -> Failure {
    let reason = match failure.reason {
        Reason::EngineFailed | Reason::RequestMalformed | Reason::FeatureNotFinite => {
            Reason::GoldenMismatch
        }
        Reason::Deadline => Reason::EngineUnavailable,
        other => other,
    };
    Failure::new(reason, format!("{what}: {}", failure.message))
}
