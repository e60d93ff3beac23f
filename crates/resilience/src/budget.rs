//! The budget of retries of all messages.

use outrigger_core::Moment;

/// The settings of a budget of retries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetSettings {
    /// The retries that each success allows: 0.1 is one for ten successes.
    pub share: f64,
    /// The most retries that successes can have saved.
    pub saved: f64,
    /// The retries a second that are allowed without any success.
    pub floor: f64,
    /// The most retries that the floor can have saved: more than the failures for which a host is
    /// withdrawn and those of its first trials, so that they reach no caller.
    pub burst: f64,
}

/// Bounds the retries of all messages by their successes. When every host fails, each message costs
/// its first attempt and hardly more.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    settings: BudgetSettings,
    earned: f64,
    floor: f64,
    refilled: Moment,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { share: 0.1, saved: 100.0, floor: 1.0, burst: 10.0 }
    }
}

impl RetryBudget {
    /// A budget that begins with the floor.
    pub fn new(settings: BudgetSettings, now: Moment) -> Self {
        Self { settings, earned: 0.0, floor: settings.burst, refilled: now }
    }

    /// Records a success.
    pub fn succeeded(&mut self) {
        self.earned = (self.earned + self.settings.share).min(self.settings.saved);
    }

    /// Takes one retry. Returns false if there is none left.
    pub fn take(&mut self, now: Moment) -> bool {
        let passed = now.since(self.refilled).as_secs_f64();
        self.floor = (self.floor + passed * self.settings.floor).min(self.settings.burst);
        self.refilled = now;
        let source = match self.earned >= 1.0 {
            true => &mut self.earned,
            false => &mut self.floor,
        };
        let is_enough = *source >= 1.0;
        if is_enough {
            *source -= 1.0;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    fn taken(budget: &mut RetryBudget, tries: u32, now: Moment) -> usize {
        (0..tries).filter(|_| budget.take(now)).count()
    }

    #[test]
    fn check_32_without_successes_only_the_floor_is_retried() {
        let mut budget = RetryBudget::new(BudgetSettings::default(), at(0));
        assert_eq!(taken(&mut budget, 1000, at(0)), 10);
        assert_eq!(taken(&mut budget, 1000, at(3)), 3, "one a second");
        assert_eq!(taken(&mut budget, 1000, at(1000)), 10, "the floor saves no more");
    }

    #[test]
    fn check_32_a_tenth_of_the_successes_is_retried() {
        let mut budget = RetryBudget::new(BudgetSettings::default(), at(0));
        assert_eq!(taken(&mut budget, 10, at(0)), 10);
        (0..505).for_each(|_| budget.succeeded());
        assert_eq!(taken(&mut budget, 1000, at(0)), 50);
        (0..100_000).for_each(|_| budget.succeeded());
        assert_eq!(taken(&mut budget, 1000, at(0)), 100, "what is saved is bounded");
    }
}
