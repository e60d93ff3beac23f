//! Common judges, for comparison: thresholds on windows, and a repeated rank test. Both
//! decide at the end of a window.

use outrigger_canary::{Arm, Observation, Outcome};

/// Canary requests per window: one minute at 50 requests a second with a canary share of
/// 0.1.
pub(crate) const WINDOW: u64 = 300;

/// Signals of each judge: errors, latency, scores, non-finite scores.
pub(crate) const SIGNALS: usize = 4;

/// The test statistic of each signal. A signal is suspicious above its own threshold.
pub(crate) type TestStatistics = [f64; SIGNALS];

/// Computes test statistics from a stream of requests.
pub(crate) trait Judge {
    /// Records a request; returns the test statistics at the end of a window.
    fn observe(&mut self, seen: &Observation) -> Option<TestStatistics>;
}

/// Figures of each window alone, as Flagger and Argo Rollouts query them: failures, 95th
/// percentile of the latency, distance of the mean score from its known value, non-finite
/// answers.
#[derive(Default)]
pub(crate) struct Windows {
    requests: u64,
    failed: u64,
    non_finite: u64,
    latencies: Vec<f64>,
    scores: f64,
}

/// The mean of Beta(2, 5).
const MEAN: f64 = 2.0 / 7.0;

impl Judge for Windows {
    fn observe(&mut self, seen: &Observation) -> Option<TestStatistics> {
        if seen.arm != Arm::Canary {
            return None;
        }
        self.requests += 1;
        self.latencies.extend(seen.latency.map(|latency| latency.as_secs_f64()));
        match seen.outcome {
            Outcome::Scored(score) => self.scores += score,
            Outcome::NonFinite => self.non_finite += 1,
            _ => self.failed += 1,
        }
        if self.requests < WINDOW {
            return None;
        }
        let mut window = std::mem::take(self);
        let rank = window.latencies.len() * 95 / 100;
        let (_, slow, _) = window.latencies.select_nth_unstable_by(rank, f64::total_cmp);
        let scored = (window.requests - window.failed - window.non_finite) as f64;
        let distance = (window.scores / scored - MEAN).abs();
        Some([window.failed as f64, *slow, distance, window.non_finite as f64])
    }
}

/// The Mann-Whitney statistic of all requests so far, as Kayenta's judge computes it for
/// each metric: standard normal if the arms are alike.
pub(crate) struct MannWhitney {
    canary: u64,
    errors: [[u64; 2]; 2],
    non_finite: [[u64; 2]; 2],
    latencies: [Vec<u64>; 2],
    scores: [Vec<u64>; 2],
}

/// Values are counted in bins narrow enough that ties do not matter.
const BINS: usize = 1000;

impl Default for MannWhitney {
    fn default() -> Self {
        let bins = || [vec![0; BINS], vec![0; BINS]];
        let (errors, non_finite) = ([[0; 2]; 2], [[0; 2]; 2]);
        Self { canary: 0, errors, non_finite, latencies: bins(), scores: bins() }
    }
}

impl Judge for MannWhitney {
    fn observe(&mut self, seen: &Observation) -> Option<TestStatistics> {
        let arm = usize::from(seen.arm == Arm::Canary);
        self.canary += arm as u64;
        let bin = |place: f64| ((place * BINS as f64) as usize).min(BINS - 1);
        // Logarithmic bins from 1 ms to 1 s.
        if let Some(latency) = seen.latency {
            self.latencies[arm][bin((latency.as_secs_f64().ln() + 6.9) / 6.9)] += 1;
        }
        self.errors[arm][usize::from(seen.outcome == Outcome::Failed)] += 1;
        self.non_finite[arm][usize::from(seen.outcome == Outcome::NonFinite)] += 1;
        if let Outcome::Scored(score) = seen.outcome {
            self.scores[arm][bin((score + 0.5) / 2.0)] += 1;
        }
        if arm == 0 || !self.canary.is_multiple_of(WINDOW) {
            return None;
        }
        Some([
            standardized(&self.errors),
            standardized(&self.latencies),
            standardized(&self.scores).abs(),
            standardized(&self.non_finite),
        ])
    }
}

/// The Mann-Whitney statistic of live's and the canary's histogram over the same bins,
/// standardised and corrected for ties.
fn standardized<H: AsRef<[u64]>>([live, canary]: &[H; 2]) -> f64 {
    let (live, canary) = (live.as_ref(), canary.as_ref());
    let total = |bins: &[u64]| bins.iter().sum::<u64>() as f64;
    let (of_live, of_canary) = (total(live), total(canary));
    let all = of_live + of_canary;
    let (mut statistic, mut below, mut ties) = (0.0, 0.0, 0.0);
    for (live, canary) in live.iter().zip(canary) {
        let (live, canary) = (*live as f64, *canary as f64);
        statistic += canary * (below + live / 2.0);
        below += live;
        ties += (live + canary).powi(3) - (live + canary);
    }
    let variance = of_live * of_canary / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance > 0.0 { (statistic - of_live * of_canary / 2.0) / variance.sqrt() } else { 0.0 }
}
