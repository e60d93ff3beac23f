//! The propensity: the probability with which a model that draws at random chose its answer.

use std::sync::Arc;

use outrigger_core::Tensor;

use super::output::Outputs;
use crate::{
    metadata::{OutputKind, Role},
    packed::Packed,
    plan::Plan,
};

/// The position of the output that is the score.
const SCORE: usize = 0;

impl Plan {
    /// The tensor of the propensities, if the model has one.
    pub fn propensity_tensor(&self) -> Option<&Arc<str>> {
        self.propensity_output().map(|index| &self.metadata.outputs[index].tensor)
    }

    /// The propensity of the model's choice for the user at position `user`: of the treatment
    /// with the highest score, or of the response as a whole. `None` if the model has no such
    /// output, this call did not return it, or its tensors are raw.
    pub fn propensity(&self, packed: &Packed, outputs: &[Tensor], user: usize) -> Option<f32> {
        if packed.is_raw() {
            return None;
        }
        let propensity = self.propensity_output()?;
        let read = |output| {
            let checked = Outputs::find(self, packed, outputs, [output]).ok()?;
            let rows = packed.users.get(user)?;
            checked.values(output, (user, rows.kept()), false).ok()
        };
        let row = match self.metadata.outputs[propensity].kind {
            OutputKind::Single => 0,
            OutputKind::PerTreatment => *read(SCORE)?.best(1).first()?,
        };
        let values = read(propensity)?;
        let (values, _) = values.floats.as_chunks();
        values.get(usize::try_from(row).ok()?).map(|value| f32::from_le_bytes(*value))
    }

    fn propensity_output(&self) -> Option<usize> {
        self.metadata.outputs.iter().position(|output| output.role == Some(Role::Propensity))
    }
}
