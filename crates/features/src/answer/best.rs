//! The treatment with the highest score.

use outrigger_core::{Failure, Tensor};

use super::output::Outputs;
use crate::{packed::Packed, plan::Plan};

/// The treatment with the highest score; the first one on a tie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// Its position in the request.
    pub position: u32,
    /// Its score.
    pub score: f32,
}

impl Best {
    /// A treatment whose score is given in little-endian bytes.
    pub(super) fn new(position: u32, score: [u8; 4]) -> Self {
        Self { position, score: f32::from_le_bytes(score) }
    }
}

impl Plan {
    /// Returns the best treatment of the user at position `user`; `None` if there are no
    /// treatments, or the request did not ask for the score.
    ///
    /// # Errors
    /// SCORES_INVALID, as [`Plan::answer`].
    pub fn best(
        &self,
        packed: &Packed,
        outputs: &[Tensor],
        user: usize,
    ) -> Result<Option<Best>, Failure> {
        let best = self
            .scores(packed, outputs, user)?
            .into_iter()
            .reduce(|best, next| if next.score > best.score { next } else { best });
        Ok(best)
    }

    /// The score of the treatment at `position` in the request of a call's only user; `None`
    /// if that treatment has no score.
    pub fn score_at(&self, packed: &Packed, outputs: &[Tensor], position: u32) -> Option<f32> {
        let scores = self.scores(packed, outputs, 0).ok()?;
        scores.into_iter().find(|it| it.position == position).map(|it| it.score)
    }

    /// A user's treatments with their scores, in order.
    fn scores(
        &self,
        packed: &Packed,
        outputs: &[Tensor],
        user: usize,
    ) -> Result<Vec<Best>, Failure> {
        if let Some(raw) = &packed.raw {
            return Ok(raw.ranked(self, outputs));
        }
        let checked = Outputs::check(self, packed, outputs)?;
        let Some(rows) = packed.users.get(user) else { return Ok(Vec::new()) };
        let values = checked.scores(0, user, rows.kept())?;
        let (values, _) = values.as_chunks::<4>();
        let scored = rows.positions().into_iter().zip(values);
        Ok(scored.map(|(position, value)| Best::new(position, *value)).collect())
    }
}
