//! The features of the requests against the training profile.

use std::sync::Arc;

use outrigger_core::Arm;

use super::{Difference, Needed, Test};
use crate::{
    Profile, Statistics,
    evidence::{Side, bound, events::Tally, proportion::log_evidence},
};

/// The largest difference, over all features and categories, between a category's share
/// and its share in the profile. The canary's requests are compared with the canary's own
/// profile, because each model has its own.
#[derive(Debug)]
pub(super) struct Skew {
    pub(super) profile: Arc<Profile>,
}

/// A category of a feature's values, with its expected share and its counts.
struct Category {
    feature: usize,
    index: usize,
    expected: f64,
    seen: Tally,
}

impl Category {
    /// The log evidence that the category's share exceeds, or falls short of, the
    /// profile's by more than `difference`.
    fn evidence(&self, side: Side, difference: f64) -> f64 {
        let null = self.expected + difference;
        let against = |refuted| if refuted { f64::INFINITY } else { f64::NEG_INFINITY };
        match side {
            // A null share outside 0 to 1 is impossible and so is rejected; a null share
            // of 0 or 1 is rejected by a single observation against it.
            Side::More if null <= 0.0 => against(null < 0.0 || self.seen.events > 0),
            Side::Less if null >= 1.0 => against(null > 1.0 || self.seen.non_events() > 0),
            Side::More if null >= 1.0 => against(false),
            Side::Less if null <= 0.0 => against(false),
            _ => log_evidence([(self.seen, null)].into_iter(), side),
        }
    }

    fn difference(&self) -> f64 {
        self.seen.rate() - self.expected
    }
}

impl Skew {
    fn categories(&self, statistics: &Statistics) -> Vec<Category> {
        let canary = statistics.arm(Arm::Canary);
        let features = self.profile.features().iter().enumerate();
        let categories = features.flat_map(|(feature, profile)| {
            profile
                .shares()
                .iter()
                .enumerate()
                .map(move |(index, expected)| (feature, index, *expected))
        });
        let seen = |feature, index| canary.features().tally(feature, index);
        categories
            .map(|(feature, index, expected)| Category {
                feature,
                index,
                expected,
                seen: seen(feature, index),
            })
            .collect()
    }
}

/// Bonferroni correction for the categories and two sides, added to the threshold.
fn bonferroni(categories: &[Category]) -> f64 {
    (2.0 * categories.len() as f64).ln()
}

impl Test for Skew {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        let categories = self.categories(statistics);
        let needed = needed + bonferroni(&categories);
        categories.iter().any(|category| {
            category.evidence(Side::More, tolerance) >= needed
                || category.evidence(Side::Less, -tolerance) >= needed
        })
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        self.categories(statistics).iter().all(|category| {
            category.evidence(Side::Less, margin) >= needed
                && category.evidence(Side::More, -margin) >= needed
        })
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let categories = self.categories(statistics);
        let for_harm = needed.harm + bonferroni(&categories);
        let (mut lower, mut upper) = (0.0, 0.0);
        for category in &categories {
            for side in [Side::More, Side::Less] {
                let here = side.sign() * category.difference();
                let beyond = |null| category.evidence(side, side.sign() * null);
                let within = |null| category.evidence(side.other(), side.sign() * null);
                if beyond(lower) >= for_harm {
                    lower = bound(lower, here, for_harm, beyond);
                }
                if within(upper) < needed.harmless {
                    upper = bound(1.0, here, needed.harmless, within);
                }
            }
        }
        let worst =
            categories.iter().max_by(|a, b| a.difference().abs().total_cmp(&b.difference().abs()));
        let Some(worst) = worst else { return Difference::default() };
        let feature = &self.profile.features()[worst.feature];
        Difference {
            live: worst.expected,
            canary: worst.seen.rate(),
            estimate: worst.difference().abs(),
            lower,
            upper,
            detail: Some(feature.place(worst.index)),
        }
    }
}
