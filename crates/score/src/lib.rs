//! Scores requests with one version of a model.
//!
//! [`Scorer`] takes a request to the model's outputs. Predictions, golden cases, warm-ups and
//! shadow requests all use it, so the same limits apply to all of them and they fetch the same
//! outputs.

mod flight;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
pub use flight::{Cuts, Flight, Outage, Phase, Turns};
use http::HeaderMap;
use outrigger_core::{ContributionSize, Explanation, Failure, ServableId, Tensor};
use outrigger_features::{Arrived, Limits, Packed, Plan};
use outrigger_run::{Call, Engine, RowLayout, Run, RunError, StageTimes, Target};
use tokio::time::Instant;

/// The limits of a request. They may change while versions are served.
pub type SharedLimits = Arc<ArcSwap<Limits>>;

/// A version of a model, bound in its engine. Cheap to clone.
#[derive(Clone)]
pub struct Scorer {
    /// The version's name and number in its engine.
    pub id: ServableId,
    /// The plan that packs requests into tensors.
    pub plan: Arc<Plan>,
    /// The version as its engine runs it.
    pub run: Arc<dyn Run>,
    /// True if its engine batches runs, so that outputs may be wider than asked.
    pub batches: bool,
    /// The limits of a request.
    pub limits: SharedLimits,
    /// The version's calls.
    pub flight: Arc<Flight>,
}

/// The conditions of one score.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// The deadline of the engine's answer.
    pub deadline: Instant,
    /// True if the propensity is fetched, if the model has it.
    pub propensity: bool,
    /// The times of the run's stages.
    pub stages: StageTimes,
}

impl Scorer {
    /// Binds the version `id` in `engine`. The engine need not have loaded it yet.
    pub fn bind(
        engine: &dyn Engine,
        id: ServableId,
        plan: Arc<Plan>,
        limits: SharedLimits,
    ) -> Self {
        let run = engine.bind(target(id.clone(), &plan));
        Self { id, plan, run, batches: engine.batches(), limits, flight: Arc::default() }
    }

    /// The current limits of a request.
    pub fn limits(&self) -> Limits {
        **self.limits.load()
    }

    /// The limits of a table of features. Each row may be a user, so there may be as many users as
    /// treatments, unless the engine's batches are smaller.
    pub fn limits_of_rows(&self) -> Limits {
        let limits = self.limits();
        let rows = if self.batches { limits.max_users } else { limits.max_treatments };
        Limits { max_users: rows, ..limits }
    }

    /// Packs an encoded `PredictRequest`.
    ///
    /// # Errors
    /// The request is malformed, over a limit, or does not fit the model.
    pub fn pack(&self, request: &[u8]) -> Result<Packed, Failure> {
        self.plan.pack(&[request], &self.limits())
    }

    /// As [`Self::pack`], for a request in the form in which it arrived.
    ///
    /// # Errors
    /// As there.
    pub fn pack_arrived(&self, request: &Arrived) -> Result<Packed, Failure> {
        self.plan.pack_arrived(request, &self.limits())
    }

    /// The size of the contributions of each row that the model explains.
    ///
    /// # Errors
    /// CONTRIBUTIONS_UNSUPPORTED: the model, or its engine, has none.
    pub fn contributions(&self) -> Result<ContributionSize, Failure> {
        Ok(self.run.contributions()?)
    }

    /// Computes the contributions of the columns to the margins of a packed call, as
    /// [`Run::explain`] does. Takes the tensors out of `packed`.
    ///
    /// # Errors
    /// As [`Self::contributions`], and the failure of the engine.
    pub async fn explain(&self, packed: &mut Packed, by: Instant) -> Result<Explanation, Failure> {
        let call = Call::new(std::mem::take(&mut packed.tensors), Vec::new(), by);
        Ok(self.run.explain(call).await?)
    }

    /// Runs the model on the tensors, which it takes out of `packed`; if the engine ends before or
    /// during the run, it puts them back. The engine is not called if there is nothing to compute.
    ///
    /// # Errors
    /// The failure of the model or the engine.
    pub async fn score(&self, packed: &mut Packed, by: Instant) -> Result<Vec<Tensor>, Failure> {
        let stages = StageTimes::default();
        let conditions = Conditions { deadline: by, propensity: false, stages };
        self.score_observed(packed, conditions, |_, _| |_: &_| {}).await
    }

    /// As [`Self::score`]. Calls `begin` before a run of the model, with the headers that go to the
    /// engine, and the observer that it returns with the result of the run.
    ///
    /// # Errors
    /// As [`Self::score`].
    pub async fn score_observed<E>(
        &self,
        packed: &mut Packed,
        conditions: Conditions,
        begin: impl FnOnce(&Packed, &mut HeaderMap) -> E,
    ) -> Result<Vec<Tensor>, Failure>
    where
        E: FnOnce(&Result<Vec<Tensor>, Failure>),
    {
        if !packed.needs_engine() {
            return Ok(Vec::new());
        }
        let mut outputs = self.plan.output_names(packed);
        if conditions.propensity {
            let propensity = self.plan.propensity_tensor();
            outputs.extend(propensity.filter(|it| !outputs.contains(it)).cloned());
        }
        let in_flight = self.flight.enter(conditions.deadline).await?;
        let mut headers = HeaderMap::new();
        let end = begin(packed, &mut headers);
        let mut inputs = std::mem::take(&mut packed.tensors);
        if self.batches && packed.treatments == 0 {
            self.plan.fill_empty(&mut inputs);
        }
        let Conditions { deadline, stages, .. } = conditions;
        let call = Call { inputs, outputs, deadline, headers, stages };
        let mut result = in_flight.result_of(self.run.run(call)).await;
        in_flight.end(&result);
        if let Err(RunError::Lost { inputs, .. } | RunError::Unsent { inputs, .. }) = &mut result {
            packed.tensors = std::mem::take(inputs);
        }
        let mut result = result.map_err(Failure::from);
        if let (true, Ok(outputs)) = (self.batches, &mut result) {
            self.plan.trim(packed, outputs);
        }
        end(&result);
        result
    }
}

impl fmt::Debug for Scorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scorer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The target for runs of `id` with requests packed by `plan`.
fn target(id: ServableId, plan: &Plan) -> Target {
    let metadata = plan.metadata();
    Target {
        id,
        signature: Arc::clone(plan.signature()),
        inputs: plan.input_names().cloned().collect(),
        outputs: metadata.outputs.iter().map(|output| Arc::clone(&output.tensor)).collect(),
        layout: layout(plan),
    }
}

fn layout(plan: &Plan) -> RowLayout {
    match (plan.has_lists(), plan.has_joined_rows()) {
        (true, _) => RowLayout::Unknown,
        (false, true) => RowLayout::Joined,
        (false, false) => RowLayout::PerEntity,
    }
}

#[cfg(test)]
mod tests;
