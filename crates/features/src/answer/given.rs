//! Outputs as the values of rows.

use std::borrow::Cow;

use outrigger_core::{Failure, Reason, Tensor};

use super::output::{OutputValues, Outputs};
use crate::{
    packed::{Packed, UserRows},
    plan::Plan,
};

/// The values of an output for the rows of a user.
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
        let output = packed.users.first().and_then(|user| user.outputs.first());
        let output = output.copied().unwrap_or_default();
        let one = self.values(packed, outputs, output)?.pop();
        one.ok_or_else(|| Failure::new(Reason::Internal, "the call has no rows"))
    }

    /// The values of the output at a position in metadata.json for each user, in the order of the
    /// requests.
    ///
    /// # Errors
    /// SCORES_INVALID, as [`Self::answer`].
    pub fn values<'t>(
        &'t self,
        packed: &Packed,
        outputs: &'t [Tensor],
        output: usize,
    ) -> Result<Vec<GivenScores<'t>>, Failure> {
        let checked = Outputs::find(self, packed, outputs, [output])?;
        let of = |(index, user): (usize, &UserRows)| {
            let values = checked.values(output, (index, user.kept()), false)?;
            let OutputValues { output, floats, integers } = values;
            Ok(GivenScores { width: output.width, floats, integers })
        };
        packed.users.iter().enumerate().map(of).collect()
    }
}
