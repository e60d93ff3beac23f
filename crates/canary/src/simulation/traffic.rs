//! Traffic that is generated or resampled from a log.

use std::{sync::Arc, time::Duration};

use outrigger_core::Arm;

use super::{
    Random,
    drift::{Drift, Drifting},
    seconds,
};
use crate::{Observation, Outcome, Share};

/// The source of live's requests.
#[derive(Debug, Clone)]
pub enum Live {
    /// Generated: log-normal latency, scores from Beta(2, 5).
    Generated(Generated),
    /// Drawn at random, with replacement, from live's logged requests; not empty.
    Logged(Arc<[Observation]>),
}

/// Parameters of generated requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Generated {
    /// Share of requests that fail.
    pub error_rate: f64,
    /// Median latency.
    pub latency: Duration,
    /// Standard deviation of the latency's logarithm.
    pub sigma: f64,
}

impl Default for Generated {
    fn default() -> Self {
        Self { error_rate: 0.01, latency: Duration::from_millis(20), sigma: 0.5 }
    }
}

impl Live {
    fn observe(&self, arm: Arm, random: &mut Random) -> Observation {
        match self {
            Self::Generated(generated) => generated.observe(arm, random),
            Self::Logged(seen) => Observation { arm, ..seen[random.below(seen.len())] },
        }
    }

    /// Mean and standard deviation of the scores.
    fn scores(&self) -> (f64, f64) {
        let Self::Logged(seen) = self else { return (2.0 / 7.0, (5.0f64 / 196.0).sqrt()) };
        let scores = seen.iter().filter_map(|seen| match seen.outcome {
            Outcome::Scored(score) => Some(score),
            _ => None,
        });
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for score in scores {
            count += 1.0;
            sum += score;
            squares += score * score;
        }
        let mean = if count > 0.0 { sum / count } else { 0.0 };
        (mean, (squares / f64::max(count, 1.0) - mean * mean).max(0.0).sqrt())
    }
}

impl Generated {
    fn observe(&self, arm: Arm, random: &mut Random) -> Observation {
        let seconds = self.latency.as_secs_f64() * (self.sigma * random.normal()).exp();
        let outcome = if random.happens(self.error_rate) {
            Outcome::Failed
        } else {
            Outcome::Scored(random.beta_2_5())
        };
        let latency = Some(Duration::from_nanos((seconds * 1e9) as u64));
        Observation { arm, latency, outcome }
    }
}

/// The canary's difference from live.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// Share of the requests answered by live that the canary fails.
    pub errors: f64,
    /// Factor on live's latency.
    pub latency: f64,
    /// Shift of the scores, in standard deviations.
    pub shift: f64,
    /// True if all scores are the mean of live's.
    pub constant: bool,
    /// Share of answers that are not finite.
    pub non_finite: f64,
}

impl Effect {
    /// No difference from live.
    pub const NONE: Self =
        Self { errors: 0.0, latency: 1.0, shift: 0.0, constant: false, non_finite: 0.0 };
}

/// Requests that are split between the arms at random.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// The canary's share.
    pub share: Share,
    live: Live,
    effect: Effect,
    drifting: Drifting,
    random: Random,
    mean: f64,
    deviation: f64,
}

impl Traffic {
    /// Traffic from a seed.
    pub fn new(share: Share, live: Live, effect: Effect, seed: u64) -> Self {
        let (mean, deviation) = live.scores();
        let drifting = Drifting::new(Drift::Steady);
        Self { share, live, effect, drifting, random: Random::new(seed), mean, deviation }
    }

    /// The same traffic with another seed.
    pub fn with_seed(&self, seed: u64) -> Self {
        let drifting = Drifting::new(self.drifting.drift);
        Self { drifting, random: Random::new(seed), ..self.clone() }
    }

    /// The same traffic with another canary.
    pub fn with_effect(&self, effect: Effect) -> Self {
        Self { effect, ..self.clone() }
    }

    /// The same traffic with a drift of the latency of both arms.
    pub fn with_drift(&self, drift: Drift) -> Self {
        Self { drifting: Drifting::new(drift), ..self.clone() }
    }

    /// Requests of live before the trial.
    pub fn before(&mut self, requests: usize) -> Vec<Observation> {
        let before = (0..requests).map(|_| {
            let factor = self.drifting.before(&mut self.random);
            slowed(self.live.observe(Arm::Live, &mut self.random), factor)
        });
        before.collect()
    }

    /// The next request, of either arm.
    pub fn request(&mut self) -> Observation {
        let factor = self.drifting.factor(&mut self.random);
        let observation = self.undisturbed();
        slowed(observation, factor)
    }

    /// The next request as it is without a drift.
    fn undisturbed(&mut self) -> Observation {
        let is_canary = self.random.happens(self.share.probability());
        self.of_arm(if is_canary { Arm::Canary } else { Arm::Live })
    }

    /// The next request of this arm; `is_split`: the traffic is split by now.
    pub(super) fn request_of(&mut self, arm: Arm, is_split: bool) -> Observation {
        let factor = match is_split {
            true => self.drifting.factor(&mut self.random),
            false => self.drifting.before(&mut self.random),
        };
        let observation = self.of_arm(arm);
        slowed(observation, factor)
    }

    /// The next request of this arm, without a drift.
    fn of_arm(&mut self, arm: Arm) -> Observation {
        let observation = self.live.observe(arm, &mut self.random);
        if arm == Arm::Canary { self.changed(observation) } else { observation }
    }

    fn changed(&mut self, mut observation: Observation) -> Observation {
        let effect = self.effect;
        observation = slowed(observation, effect.latency);
        if observation.outcome != Outcome::Failed && self.random.happens(effect.errors) {
            observation.outcome = Outcome::Failed;
        }
        if let Outcome::Scored(score) = observation.outcome {
            observation.outcome = if self.random.happens(effect.non_finite) {
                Outcome::NonFinite
            } else if effect.constant {
                Outcome::Scored(self.mean)
            } else {
                Outcome::Scored(score + effect.shift * self.deviation)
            };
        }
        observation
    }
}

/// The request with a latency multiplied by `factor`.
fn slowed(seen: Observation, factor: f64) -> Observation {
    let slower = |latency: Duration| seconds(latency.as_secs_f64() * factor);
    Observation { latency: seen.latency.map(slower), ..seen }
}
