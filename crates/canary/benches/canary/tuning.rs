//! Tunes the thresholds of the common judges so that they roll back one in a hundred
//! canaries that are like live.

use outrigger_canary::{Observation, simulation::Effect};

use crate::{
    HORIZON, each,
    judges::{Judge, MannWhitney, SIGNALS, TestStatistics, WINDOW, Windows},
    traffic,
};

/// Canaries like live on which the thresholds are tuned.
const CANARIES: u64 = 2000;

/// Canaries, one in a hundred, that a tuned judge may roll back wrongly.
const WRONGLY: usize = CANARIES as usize / 100;

/// The condition for a rollback: in `failures` windows some signal was above its
/// threshold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    thresholds: TestStatistics,
    failures: usize,
}

/// The rules of the common judges.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Thresholds on windows; rolls back after the first failed window.
    pub(crate) first_window: Rule,
    /// The same after the fifth failed window, as in Flagger's documentation (`threshold:
    /// 5`).
    pub(crate) fifth_window: Rule,
    /// The repeated Mann-Whitney test.
    pub(crate) rank_test: Rule,
}

impl Rules {
    /// Tunes all rules on the same canaries.
    pub(crate) fn tuned() -> Self {
        let (windows, ranks): (Vec<_>, Vec<_>) = each(CANARIES, signals).into_iter().unzip();
        Self {
            first_window: Rule::tuned(&windows, 1),
            fifth_window: Rule::tuned(&windows, 5),
            rank_test: Rule::tuned(&ranks, 1),
        }
    }
}

impl Rule {
    /// The rule that gives each signal an equal part of the false alarms. `canaries`
    /// holds each canary's test statistics, window by window.
    fn tuned(canaries: &[Vec<TestStatistics>], failures: usize) -> Self {
        let sorted: [Vec<f64>; SIGNALS] = std::array::from_fn(|signal| {
            let windows = canaries.iter().flatten();
            let mut values: Vec<f64> = windows.map(|window| window[signal]).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        });
        // The number of all windows in which a signal is at least as high as in this one;
        // the rarest signal counts.
        let rarity = |window: &TestStatistics| {
            let signals = window.iter().zip(&sorted);
            let rarities =
                signals.map(|(value, all)| all.len() - all.partition_point(|x| x < value));
            rarities.min().unwrap_or(usize::MAX)
        };
        let decisive = canaries.iter().map(|windows| {
            let mut rarities: Vec<usize> = windows.iter().map(rarity).collect();
            rarities.sort_unstable();
            rarities[failures - 1]
        });
        let mut decisive: Vec<usize> = decisive.collect();
        decisive.sort_unstable();
        let rare = decisive[WRONGLY];
        let thresholds = std::array::from_fn(|signal| sorted[signal][sorted[signal].len() - rare]);
        Self { thresholds, failures }
    }
}

/// A judge that applies a rule.
pub(crate) struct Running<J> {
    judge: J,
    rule: Rule,
    failed: usize,
}

impl<J: Judge + Default> Running<J> {
    pub(crate) fn new(rule: Rule) -> Self {
        Self { judge: J::default(), rule, failed: 0 }
    }

    /// True if the canary is rolled back after this request.
    pub(crate) fn rolls_back(&mut self, seen: &Observation) -> bool {
        if let Some(signals) = self.judge.observe(seen) {
            let mut thresholds = signals.iter().zip(&self.rule.thresholds);
            self.failed += usize::from(thresholds.any(|(value, threshold)| value > threshold));
        }
        self.failed >= self.rule.failures
    }
}

/// The test statistics of a canary like live, window by window.
fn signals(seed: u64) -> (Vec<TestStatistics>, Vec<TestStatistics>) {
    // Seeds differ from those on which the judges are compared.
    let mut traffic = traffic(Effect::NONE, u64::MAX - seed);
    let (mut windows, mut ranks) = (Windows::default(), MannWhitney::default());
    let (mut of_windows, mut of_ranks) = (Vec::new(), Vec::new());
    while of_windows.len() < (HORIZON / WINDOW) as usize {
        let seen = traffic.request();
        of_windows.extend(windows.observe(&seen));
        of_ranks.extend(ranks.observe(&seen));
    }
    (of_windows, of_ranks)
}
