//! The features of an arm's requests against a profile.

use std::sync::Arc;

use super::Features;
use crate::{Entity, Profile};

/// The features of an arm's requests, with the profile of the arm's model.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    profile: Arc<Profile>,
    seen: Features,
}

/// One feature of an arm's requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedFeature {
    /// Its name in metadata.json.
    pub name: String,
    /// The entity that it describes.
    pub entity: Entity,
    /// Requests with this feature recorded.
    pub requests: u64,
    /// Missing, out of vocabulary, then each bin or word.
    pub categories: Vec<ComparedCategory>,
}

/// A category of a feature's values.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCategory {
    /// The category, for example `missing` or `up to 3`.
    pub name: String,
    /// Its share in the profile.
    pub expected: f64,
    /// Its share of the recorded requests.
    pub seen: f64,
}

impl Comparison {
    pub(super) fn new(profile: Arc<Profile>, seen: Features) -> Self {
        Self { profile, seen }
    }

    /// Each feature, in the order of the profile.
    pub fn features(&self) -> impl Iterator<Item = ComparedFeature> {
        self.profile.features().iter().enumerate().map(|(index, feature)| {
            let tally = |category| self.seen.tally(index, category);
            let categories = feature.shares().iter().enumerate();
            let categories = categories.map(|(category, expected)| ComparedCategory {
                name: feature.label(category),
                expected: *expected,
                seen: tally(category).rate(),
            });
            ComparedFeature {
                name: feature.name().to_owned(),
                entity: feature.entity(),
                requests: tally(0).requests,
                categories: categories.collect(),
            }
        })
    }
}
