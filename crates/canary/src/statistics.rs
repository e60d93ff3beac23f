//! What is kept of the requests: counts and sketches, in bounded memory, that
//! can be added up over replicas.

mod arm;
mod comparison;
mod deviation;
mod features;
mod pace;
mod pairs;
pub mod sketch;
mod window;

use std::{collections::BTreeMap, sync::Arc};

use outrigger_core::Arm;
use serde::{Deserialize, Serialize, Serializer};

use crate::{Observation, Pair, Profile, Reference, Share};
pub use arm::ArmStatistics;
pub use comparison::{ComparedCategory, ComparedFeature, Comparison};
pub use deviation::Deviation;
pub use features::Features;
pub(crate) use pace::Pace;
pub use pairs::Pairs;
pub use window::Window;

/// Statistics that can be added up: in any order, in any grouping, and with the
/// same result as when one had seen everything.
pub trait Merge {
    /// Adds what `other` has seen.
    fn merge(&mut self, other: &Self);
}

/// Both arms while the canary had one share of the traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The arm of the tag asked for.
    pub live: ArmStatistics,
    /// The arm on trial.
    pub canary: ArmStatistics,
}

impl Stage {
    /// An arm that takes part in the comparison.
    fn arm_mut(&mut self, arm: Arm) -> Option<&mut ArmStatistics> {
        match arm {
            Arm::Live => Some(&mut self.live),
            Arm::Canary => Some(&mut self.canary),
            Arm::Pinned => None,
        }
    }

    /// Counts a request on that scale.
    pub(crate) fn record(&mut self, reference: &Reference, observation: &Observation) {
        if let Some(arm) = self.arm_mut(observation.arm) {
            arm.record(reference, observation);
        }
    }
}

impl Merge for u64 {
    fn merge(&mut self, other: &Self) {
        *self += other;
    }
}

impl Merge for Stage {
    fn merge(&mut self, other: &Self) {
        self.live.merge(&other.live);
        self.canary.merge(&other.canary);
    }
}

/// Everything the judge knows of a canary. What was written goes on where it was,
/// after a restart or in another replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct Statistics {
    reference: Arc<Reference>,
    #[serde(serialize_with = "as_pairs")]
    stages: BTreeMap<Share, Stage>,
    pairs: Pairs,
}

/// Statistics taken on different scales cannot be added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the statistics were taken with different references")]
pub struct DifferentReference;

impl Statistics {
    /// Nothing seen yet.
    pub fn new(reference: Arc<Reference>) -> Self {
        Self { reference, stages: BTreeMap::new(), pairs: Pairs::default() }
    }

    /// Counts a request that was assigned while the canary had `share`.
    /// Memory grows with the number of different shares.
    pub fn record(&mut self, share: Share, observation: &Observation) {
        if let Some(arm) = arm_of(&mut self.stages, share, observation.arm) {
            arm.record(&self.reference, observation);
        }
    }

    /// Counts the features of a request: for each feature of the profile, the
    /// category that its value is in ([`Feature::category`](crate::Feature::category)).
    pub fn record_features(&mut self, share: Share, arm: Arm, categories: &[usize]) {
        if let Some(arm) = arm_of(&mut self.stages, share, arm) {
            arm.record_features(categories);
        }
    }

    /// Counts a request that both arms answered.
    pub fn record_pair(&mut self, pair: &Pair) {
        self.pairs.record(pair);
    }

    /// Adds what another replica has seen.
    ///
    /// # Errors
    /// When it measured on another scale.
    pub fn merge(&mut self, other: &Self) -> Result<(), DifferentReference> {
        if self.reference != other.reference {
            return Err(DifferentReference);
        }
        for (share, stage) in &other.stages {
            self.stages.entry(*share).or_default().merge(stage);
        }
        self.pairs.merge(&other.pairs);
        Ok(())
    }

    /// The scale.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The arms, by the share that the canary had.
    pub fn stages(&self) -> impl Iterator<Item = (Share, &Stage)> + Clone {
        self.stages.iter().map(|(share, stage)| (*share, stage))
    }

    /// The requests that both arms answered.
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// One arm over all shares.
    pub fn arm(&self, arm: Arm) -> ArmStatistics {
        let mut whole = ArmStatistics::default();
        for stage in self.stages.values() {
            match arm {
                Arm::Live => whole.merge(&stage.live),
                Arm::Canary => whole.merge(&stage.canary),
                Arm::Pinned => {}
            }
        }
        whole
    }

    /// The features of an arm's requests, against the profile of the arm's model.
    pub fn compare(&self, arm: Arm, profile: Arc<Profile>) -> Comparison {
        Comparison::new(profile, self.arm(arm).features().clone())
    }

    /// How many requests live and the canary were assigned.
    pub fn requests(&self) -> (u64, u64) {
        let stages = self.stages.values();
        stages.fold((0, 0), |(live, canary), stage| {
            (live + stage.live.requests(), canary + stage.canary.requests())
        })
    }

    /// What is known when `factor` times as many requests have come, if from now
    /// on the canary does exactly what live has done so far.
    pub(crate) fn forecast(&self, factor: f64) -> Self {
        let mut forecast = self.clone();
        for stage in forecast.stages.values_mut() {
            let live = stage.live.requests().max(1) as f64;
            let to_come = stage.canary.requests() as f64 * (factor - 1.0) / live;
            stage.canary.foresee(&stage.live.scaled(to_come), factor);
            stage.live = stage.live.scaled(factor);
        }
        forecast.pairs = self.pairs.scaled(factor);
        forecast
    }
}

/// An arm that takes part in the comparison, while the canary has `share`.
fn arm_of(
    stages: &mut BTreeMap<Share, Stage>,
    share: Share,
    arm: Arm,
) -> Option<&mut ArmStatistics> {
    (arm != Arm::Pinned).then(|| stages.entry(share).or_default())?.arm_mut(arm)
}

/// Keys that are numbers are not for every format.
fn as_pairs<S: Serializer>(
    stages: &BTreeMap<Share, Stage>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(stages)
}

/// Statistics as they were written, before they are known to be of one trial.
#[derive(Deserialize)]
struct Saved {
    reference: Arc<Reference>,
    stages: Vec<(Share, Stage)>,
    pairs: Pairs,
}

impl TryFrom<Saved> for Statistics {
    type Error = DifferentReference;

    fn try_from(Saved { reference, stages, pairs }: Saved) -> Result<Self, Self::Error> {
        let arms = stages.iter().flat_map(|(_, stage)| [&stage.live, &stage.canary]);
        if arms.into_iter().all(|arm| arm.is_on_scale_of(&reference)) {
            Ok(Self { reference, stages: stages.into_iter().collect(), pairs })
        } else {
            Err(DifferentReference)
        }
    }
}
