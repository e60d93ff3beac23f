//! Statistics of the requests: counts and sketches, in bounded memory, that can be summed
//! over replicas.

mod arm;
mod comparison;
mod deviation;
mod features;
mod pace;
mod pairs;
pub mod sketch;
mod threshold;
mod window;

use std::{collections::BTreeMap, sync::Arc};

use outrigger_core::Arm;
use serde::{Deserialize, Serialize};

use crate::{Observation, Pair, Profile, Reference, Share};
pub use arm::ArmStatistics;
pub use comparison::{ComparedCategory, ComparedFeature, Comparison};
pub use deviation::Deviation;
pub use features::Features;
pub(crate) use pace::Pace;
pub use pairs::Pairs;
pub(crate) use sketch::Sketch;
pub(crate) use threshold::Threshold;
pub use window::Window;

/// Statistics that can be merged in any order and grouping, with the same result. It is
/// that of a single recorder of all requests, but for the threshold of the latencies,
/// which follows live in each recorder.
pub trait Merge {
    /// Adds the statistics of `other`.
    fn merge(&mut self, other: &Self);
}

/// Statistics of both arms while the canary had one share of the traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The live version, which the requested tag names.
    pub live: ArmStatistics,
    /// The canary.
    pub canary: ArmStatistics,
}

impl Stage {
    /// The statistics of an arm; `None` for requests outside the comparison.
    fn arm_mut(&mut self, arm: Arm) -> Option<&mut ArmStatistics> {
        match arm {
            Arm::Live => Some(&mut self.live),
            Arm::Canary => Some(&mut self.canary),
            Arm::Pinned => None,
        }
    }

    /// Records a request on the scale of `reference`, with this threshold of the latency.
    pub(crate) fn record(
        &mut self,
        reference: &Reference,
        threshold: Threshold,
        observation: &Observation,
    ) {
        if let Some(arm) = self.arm_mut(observation.arm) {
            arm.record(reference, threshold, observation);
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

/// All data that the judge has on a canary. The serialised form lets a restarted process
/// or another replica continue.
///
/// Each replica may have measured live itself and so have its own reference. Statistics
/// are kept apart by reference, as they are by share, and the evidence of all is
/// multiplied: a replica's canary is compared with the same replica's live only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub struct Statistics {
    /// Sorted, without duplicates, never empty.
    scales: Vec<Scale>,
    pairs: Pairs,
}

/// Statistics on the scale of one reference.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    reference: Arc<Reference>,
    threshold: Threshold,
    stages: BTreeMap<Share, Stage>,
}

/// Statistics of both arms on one scale while the canary had one share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured<'s> {
    pub(crate) reference: &'s Reference,
    pub(crate) share: Share,
    pub(crate) stage: &'s Stage,
}

/// The number of score bins differs from that of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the score bins do not match those of the reference")]
pub struct NotOnScale;

impl Statistics {
    /// Empty statistics.
    pub fn new(reference: Arc<Reference>) -> Self {
        let scale = Scale::new(reference, None, BTreeMap::new());
        Self { scales: vec![scale], pairs: Pairs::default() }
    }

    /// Records a request that was assigned while the canary had `share`. Memory grows
    /// with the number of different shares.
    pub fn record(&mut self, share: Share, observation: &Observation) {
        let Scale { reference, threshold, stages } = &mut self.scales[0];
        let Some(arm) = arm_of(stages, share, observation.arm) else { return };
        let is_slow = arm.record(reference, *threshold, observation);
        if let (Arm::Live, Some(is_slow)) = (observation.arm, is_slow) {
            threshold.follow(reference.quantile(), is_slow);
        }
    }

    /// Records the features of a request: for each feature of the profile, the category
    /// of its value ([`Feature::category`](crate::Feature::category)).
    pub fn record_features(&mut self, share: Share, arm: Arm, categories: &[usize]) {
        if let Some(arm) = arm_of(&mut self.scales[0].stages, share, arm) {
            arm.record_features(categories);
        }
    }

    /// Records a request that both arms answered.
    pub fn record_pair(&mut self, pair: &Pair) {
        self.pairs.record(pair);
    }

    /// The reference on whose scale requests are recorded.
    pub fn reference(&self) -> &Reference {
        &self.scales[0].reference
    }

    /// The threshold with which the next request is recorded.
    pub(crate) fn threshold(&self) -> Threshold {
        self.scales[0].threshold
    }

    /// The references of all scales.
    pub(crate) fn references(&self) -> impl Iterator<Item = &Reference> {
        self.scales.iter().map(|scale| &*scale.reference)
    }

    /// Both arms' statistics for each scale and share.
    pub fn stages(&self) -> impl Iterator<Item = (Share, &Stage)> + Clone {
        self.measured().map(|it| (it.share, it.stage))
    }

    pub(crate) fn measured(&self) -> impl Iterator<Item = Measured<'_>> + Clone {
        self.scales.iter().flat_map(|Scale { reference, stages, .. }| {
            stages.iter().map(move |(share, stage)| Measured { reference, share: *share, stage })
        })
    }

    /// Statistics of the requests that both arms answered.
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// The statistics of one arm, summed over shares and scales.
    pub fn arm(&self, arm: Arm) -> ArmStatistics {
        let mut whole = ArmStatistics::default();
        for (_, stage) in self.stages() {
            match arm {
                Arm::Live => whole.merge(&stage.live),
                Arm::Canary => whole.merge(&stage.canary),
                Arm::Pinned => {}
            }
        }
        whole
    }

    /// Compares the features of an arm's requests with the profile of the arm's model.
    pub fn compare(&self, arm: Arm, profile: Arc<Profile>) -> Comparison {
        Comparison::new(profile, self.arm(arm).features().clone())
    }

    /// Requests assigned to live and to the canary.
    pub fn requests(&self) -> (u64, u64) {
        self.stages().fold((0, 0), |(live, canary), (_, stage)| {
            (live + stage.live.requests(), canary + stage.canary.requests())
        })
    }

    /// The expected statistics after `factor` times as many requests, if from now on the
    /// canary does exactly what live has done so far.
    pub(crate) fn forecast(&self, factor: f64) -> Self {
        let mut forecast = self.clone();
        for stage in forecast.scales.iter_mut().flat_map(|scale| scale.stages.values_mut()) {
            let live = stage.live.requests().max(1) as f64;
            let to_come = stage.canary.requests() as f64 * (factor - 1.0) / live;
            stage.canary.extrapolate(&stage.live.scaled(to_come), factor);
            stage.live = stage.live.scaled(factor);
        }
        forecast.pairs = self.pairs.scaled(factor);
        forecast
    }
}

impl Merge for Statistics {
    /// Adds up statistics on equal scales and appends the others. Memory grows with the
    /// number of different scales.
    fn merge(&mut self, other: &Self) {
        let mut scales: Vec<_> =
            self.scales.drain(..).chain(other.scales.iter().cloned()).collect();
        if scales.iter().any(|scale| scale.reference != scales[0].reference) {
            scales.iter_mut().for_each(Scale::refine);
        }
        scales.sort_by(|a, b| a.reference.order(&b.reference));
        self.scales = scales;
        self.scales.dedup_by(|next, first| {
            let same = next.reference == first.reference;
            if same {
                first.add(next);
            }
            same
        });
        self.pairs.merge(&other.pairs);
    }
}

impl Scale {
    /// A scale whose threshold begins at the reference's quantile unless it is given.
    fn new(
        reference: Arc<Reference>,
        threshold: Option<Threshold>,
        stages: BTreeMap<Share, Stage>,
    ) -> Self {
        let threshold = threshold.unwrap_or_else(|| Threshold::new(&reference));
        Self { reference, threshold, stages }
    }

    fn add(&mut self, other: &Self) {
        self.threshold.merge(other.threshold);
        for (share, stage) in &other.stages {
            self.stages.entry(*share).or_default().merge(stage);
        }
    }

    /// Refines the reference to the largest number of score bins, so that its edges
    /// correspond to those of other scales.
    fn refine(&mut self) {
        let Some(refined) = self.reference.refined() else { return };
        for stage in self.stages.values_mut() {
            stage.live.refine(&self.reference);
            stage.canary.refine(&self.reference);
        }
        self.reference = Arc::new(refined);
    }

    fn is_sound(&self) -> bool {
        let mut arms = self.stages.values().flat_map(|stage| [&stage.live, &stage.canary]);
        arms.all(|arm| arm.is_on_scale_of(&self.reference))
    }
}

/// The statistics of an arm while the canary had `share`; `None` for requests outside the
/// comparison.
fn arm_of(
    stages: &mut BTreeMap<Share, Stage>,
    share: Share,
    arm: Arm,
) -> Option<&mut ArmStatistics> {
    (arm != Arm::Pinned).then(|| stages.entry(share).or_default())?.arm_mut(arm)
}

/// The serialised statistics.
#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(flatten)]
    scale: SavedScale,
    /// Statistics of other replicas with references of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<SavedScale>,
    pairs: Pairs,
}

/// A serialised scale.
#[derive(Serialize, Deserialize)]
struct SavedScale {
    reference: Arc<Reference>,
    /// Statistics that an older version saved have none.
    threshold: Option<Threshold>,
    /// A list, because some formats do not allow numbers as map keys.
    stages: Vec<(Share, Stage)>,
}

impl From<Scale> for SavedScale {
    fn from(Scale { reference, threshold, stages }: Scale) -> Self {
        Self { reference, threshold: Some(threshold), stages: stages.into_iter().collect() }
    }
}

impl TryFrom<SavedScale> for Scale {
    type Error = NotOnScale;

    fn try_from(saved: SavedScale) -> Result<Self, NotOnScale> {
        let SavedScale { reference, threshold, stages } = saved;
        let scale = Self::new(reference, threshold, stages.into_iter().collect());
        scale.is_sound().then_some(scale).ok_or(NotOnScale)
    }
}

impl From<Statistics> for Saved {
    fn from(statistics: Statistics) -> Self {
        let mut scales = statistics.scales.into_iter().map(SavedScale::from);
        let scale = scales.next().expect("there is at least one");
        Self { scale, others: scales.collect(), pairs: statistics.pairs }
    }
}

impl TryFrom<Saved> for Statistics {
    type Error = NotOnScale;

    fn try_from(Saved { scale, others, pairs }: Saved) -> Result<Self, NotOnScale> {
        let alone = |scale| Self { scales: vec![scale], pairs: Pairs::default() };
        let mut all = alone(Scale::try_from(scale)?);
        for other in others {
            all.merge(&alone(Scale::try_from(other)?));
        }
        all.pairs = pairs;
        Ok(all)
    }
}
