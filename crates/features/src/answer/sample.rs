//! A random score of a call, for statistics.

use outrigger_core::{Failure, Tensor};

use super::output::Outputs;
use crate::{packed::Packed, plan::Plan};

/// A sample of a call's scores for statistics. The scores of one request are correlated,
/// so a request contributes a single one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// The score of a randomly drawn treatment.
    Score(f32),
    /// One of the user's scores is NaN or infinite.
    NotFinite,
    /// The user has no treatments, or did not ask for the score.
    Nothing,
}

impl Sample {
    /// Draws one of the scores, which are little-endian float32, by the given random number.
    pub(super) fn draw(scores: &[u8], random: u64) -> Self {
        let (scores, _) = scores.as_chunks::<4>();
        let drawn = usize::try_from(random).unwrap_or(usize::MAX).checked_rem(scores.len());
        drawn.map_or(Self::Nothing, |row| Self::Score(f32::from_le_bytes(scores[row])))
    }
}

impl Plan {
    /// Draws a score of a user from the engine's outputs by the given random number. `user` is
    /// the user's position in the call.
    ///
    /// # Errors
    /// SCORES_INVALID: an output is missing, or has the wrong shape or type.
    pub fn sample(
        &self,
        packed: &Packed,
        outputs: &[Tensor],
        user: usize,
        random: u64,
    ) -> Result<Sample, Failure> {
        if let Some(raw) = &packed.raw {
            return Ok(raw.sample(self, outputs, random));
        }
        let checked = Outputs::check(self, packed, outputs)?;
        let Some(rows) = packed.users.get(user) else { return Ok(Sample::Nothing) };
        // The output's shape and type are checked already: only a value can fail here.
        let Ok(values) = checked.scores(0, user, rows.kept()) else {
            return Ok(Sample::NotFinite);
        };
        Ok(Sample::draw(&values, random))
    }
}
