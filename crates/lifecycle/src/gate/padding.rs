//! The check that a model's scores do not depend on the padding of a batch.

use outrigger_core::{Failure, Reason, Tensor};
use outrigger_features::{GoldenCase, Packed};

use super::{Gate, refused};

impl Gate<'_> {
    /// Scores a request once more, padded as in a batch with a longer one, if the engine batches
    /// runs. `alone` has the outputs of the request without padding.
    ///
    /// # Errors
    /// GOLDEN_MISMATCH if the scores differ.
    pub(super) async fn check_padded(
        &self,
        what: &str,
        golden: Option<&GoldenCase>,
        packed: &Packed,
        alone: &[Tensor],
    ) -> Result<(), Failure> {
        let plan = &self.scorer.plan;
        if !self.scorer.batches {
            return Ok(());
        }
        let Some(padded) = plan.pad(packed, &self.scorer.limits()) else { return Ok(()) };
        let what = format!("{what}, padded as in a batch with a longer request");
        let outputs = self.score(&what, &padded).await?;
        let response = |outputs: &[Tensor]| {
            plan.response(packed, outputs).map_err(|failure| refused(&what, &failure))
        };
        let (alone, padded) = (response(alone)?, response(&outputs)?);
        plan.compare_padded(golden, &alone, &padded).map_err(|differences| {
            let advice = match plan.takes_treatment_count() {
                true => "the model must leave out the rows beyond its treatment_count",
                false => {
                    "the model depends on the number of rows, so it needs a treatment_count input"
                }
            };
            Failure::new(Reason::GoldenMismatch, format!("{what}: {differences}; {advice}"))
        })
    }
}
