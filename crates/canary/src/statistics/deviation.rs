//! The features' largest deviations from a profile.

use outrigger_core::Arm;

use super::Statistics;
use crate::Profile;

/// A category of a feature's values whose share differs from the profile's.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// The feature and the category, for example `channel: missing`.
    pub place: String,
    /// The share in the profile.
    pub expected: f64,
    /// The share in the recorded requests.
    pub seen: f64,
    /// The number of recorded requests.
    pub requests: u64,
}

impl Deviation {
    /// The absolute difference of the shares.
    pub fn size(&self) -> f64 {
        (self.seen - self.expected).abs()
    }
}

impl Statistics {
    /// The `most` largest deviations of an arm's requests from the arm's profile, largest
    /// first, at most one per feature.
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
