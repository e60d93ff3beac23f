//! How far the features of an arm's requests are from a profile.

use outrigger_core::Arm;

use super::Statistics;
use crate::Profile;

/// A category of a feature's values whose share is not that of the profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// The feature and the category, as `channel: missing`.
    pub place: String,
    /// The share in the profile.
    pub expected: f64,
    /// The share in the requests that were looked at,
    pub seen: f64,
    /// of which there were so many.
    pub requests: u64,
}

impl Deviation {
    /// The difference of the shares.
    pub fn size(&self) -> f64 {
        (self.seen - self.expected).abs()
    }
}

impl Statistics {
    /// The `most` categories of an arm's requests that are farthest from the
    /// arm's profile, the farthest first; of each feature one.
    pub fn deviations(&self, arm: Arm, profile: &Profile, most: usize) -> Vec<Deviation> {
        let arm = self.arm(arm);
        let farthest = |(index, feature): (usize, &crate::Feature)| {
            let categories = feature.shares().iter().enumerate();
            let deviations = categories.map(|(category, expected)| {
                let seen = arm.features().tally(index, category);
                (category, *expected, seen)
            });
            let size = |(_, expected, seen): &(_, f64, crate::evidence::events::Tally)| {
                (seen.rate() - expected).abs()
            };
            let (category, expected, seen) =
                deviations.max_by(|a, b| size(a).total_cmp(&size(b)))?;
            (seen.requests > 0).then(|| Deviation {
                place: feature.place(category),
                expected,
                seen: seen.rate(),
                requests: seen.requests,
            })
        };
        let mut deviations: Vec<_> =
            profile.features().iter().enumerate().filter_map(farthest).collect();
        deviations.sort_by(|a, b| b.size().total_cmp(&a.size()));
        deviations.truncate(most);
        deviations
    }
}
