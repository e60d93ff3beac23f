//! The answer to rows that were given as they are.

use std::borrow::Cow;

use outrigger_core::{Failure, Tensor};

use super::output::{OutputValues, Outputs};
use crate::{packed::Packed, plan::Plan};

/// The values of the output that answers [`GivenRows`](crate::GivenRows), row by row.
#[derive(Debug)]
pub struct GivenScores<'t> {
    /// The number of values of each row.
    pub width: usize,
    /// All values, in little-endian float32.
    pub floats: Cow<'t, [u8]>,
    /// The exact values of an output of integers; empty for other outputs.
    pub integers: Vec<i64>,
}

impl Plan {
    /// The engine's output for rows that [`Self::pack_given`] packed.
    ///
    /// # Errors
    /// SCORES_INVALID, as [`Self::answer`].
    pub fn given_scores<'t>(
        &'t self,
        packed: &Packed,
        outputs: &'t [Tensor],
    ) -> Result<GivenScores<'t>, Failure> {
        let checked = Outputs::check(self, packed, outputs)?;
        let (output, rows) = match &packed.users[..] {
            [user] => (user.outputs.first().copied().unwrap_or_default(), user.kept()),
            _ => (0, 0),
        };
        let OutputValues { output, floats, integers } = checked.values(output, (0, rows), false)?;
        Ok(GivenScores { width: output.width, floats, integers })
    }
}
