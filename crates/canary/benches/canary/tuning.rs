//! Thresholds at which the usual judges roll back one in a hundred canaries that
//! are like live.

use outrigger_canary::{Observation, simulation::Effect};

use crate::{
    HORIZON, each,
    judges::{Judge, MannWhitney, SIGNALS, Suspicion, WINDOW, Windows},
    traffic,
};

/// Canaries like live that the thresholds are tuned on.
const CANARIES: u64 = 2000;

/// One in a hundred of them may be rolled back.
const WRONGLY: usize = CANARIES as usize / 100;

/// When a judge rolls back: in so many windows a signal was above its threshold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    thresholds: Suspicion,
    failures: usize,
}

/// The rules of the usual judges.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Thresholds on windows, after the first that fails.
    pub(crate) first_window: Rule,
    /// The same after the fifth, as Flagger's documentation has it
    /// (`threshold: 5`).
    pub(crate) fifth_window: Rule,
    /// Mann & Whitney.
    pub(crate) rank_test: Rule,
}

impl Rules {
    /// Tunes them all on the same canaries.
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
    /// The rule under which each signal has the same part of the false alarms.
    /// `canaries` has the signals of each, window by window.
    fn tuned(canaries: &[Vec<Suspicion>], failures: usize) -> Self {
        let sorted: [Vec<f64>; SIGNALS] = std::array::from_fn(|signal| {
            let windows = canaries.iter().flatten();
            let mut values: Vec<f64> = windows.map(|window| window[signal]).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        });
        // In how many windows of all a signal is as high as in this one.
        let rarity = |window: &Suspicion| {
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

/// A judge at work, by a rule.
pub(crate) struct Running<J> {
    judge: J,
    rule: Rule,
    failed: usize,
}

impl<J: Judge + Default> Running<J> {
    pub(crate) fn new(rule: Rule) -> Self {
        Self { judge: J::default(), rule, failed: 0 }
    }

    /// Whether the canary is rolled back after this request.
    pub(crate) fn rolls_back(&mut self, seen: &Observation) -> bool {
        if let Some(signals) = self.judge.see(seen) {
            let mut thresholds = signals.iter().zip(&self.rule.thresholds);
            self.failed += usize::from(thresholds.any(|(value, threshold)| value > threshold));
        }
        self.failed >= self.rule.failures
    }
}

/// The signals of a canary that is like live, window by window.
fn signals(seed: u64) -> (Vec<Suspicion>, Vec<Suspicion>) {
    // Other canaries than those on which the judges are compared.
    let mut traffic = traffic(Effect::NONE, u64::MAX - seed);
    let (mut windows, mut ranks) = (Windows::default(), MannWhitney::default());
    let (mut of_windows, mut of_ranks) = (Vec::new(), Vec::new());
    while of_windows.len() < (HORIZON / WINDOW) as usize {
        let seen = traffic.request();
        of_windows.extend(windows.see(&seen));
        of_ranks.extend(ranks.see(&seen));
    }
    (of_windows, of_ranks)
}
