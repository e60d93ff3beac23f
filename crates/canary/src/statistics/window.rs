//! Statistics over a sliding window of time.

use std::{collections::VecDeque, time::Duration};

use outrigger_core::Moment;

use super::Merge;

/// Statistics of about the last `slots * slot` of time. The oldest slot is dropped as a
/// whole.
#[derive(Debug, Clone)]
pub struct Window<S> {
    slot: Duration,
    slots: usize,
    kept: VecDeque<(u128, S)>,
}

impl<S: Merge + Default> Window<S> {
    /// A window of `slots` slots, at least one, each of length `slot`.
    pub fn new(slot: Duration, slots: usize) -> Self {
        Self { slot: slot.max(Duration::from_nanos(1)), slots: slots.max(1), kept: VecDeque::new() }
    }

    /// The statistics to which an event at `now` is added. Drops slots that are too old;
    /// a late event goes to the newest slot.
    pub fn at(&mut self, now: Moment) -> &mut S {
        let number = self.number(now);
        self.forget(number);
        if self.kept.back().is_none_or(|(newest, _)| *newest < number) {
            self.kept.push_back((number, S::default()));
        }
        let newest = self.kept.back_mut().expect("one was added if there was none");
        &mut newest.1
    }

    /// The sum of the slots in the window at `now`.
    pub fn total(&self, now: Moment) -> S {
        let oldest = self.oldest(self.number(now));
        let mut total = S::default();
        for (_, slot) in self.kept.iter().filter(|(number, _)| *number >= oldest) {
            total.merge(slot);
        }
        total
    }

    /// The beginning of the window at `now`.
    pub fn since(&self, now: Moment) -> Moment {
        let nanoseconds = self.oldest(self.number(now)) * self.slot.as_nanos();
        Moment::at(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)))
    }

    fn number(&self, now: Moment) -> u128 {
        now.elapsed().as_nanos() / self.slot.as_nanos()
    }

    /// The oldest slot in the window when `number` is the newest.
    fn oldest(&self, number: u128) -> u128 {
        (number + 1).saturating_sub(self.slots as u128)
    }

    fn forget(&mut self, number: u128) {
        let oldest = self.oldest(number);
        while self.kept.front().is_some_and(|(number, _)| *number < oldest) {
            self.kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Count(u32);

    impl Merge for Count {
        fn merge(&mut self, other: &Self) {
            self.0 += other.0;
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    #[test]
    fn old_slots_are_dropped_one_by_one() {
        let mut window = Window::<Count>::new(Duration::from_secs(10), 3);
        for second in [0, 5, 15, 25] {
            window.at(at(second)).0 += 1;
        }
        let seen = [25, 29, 30, 40, 50, 1000].map(|second| window.total(at(second)).0);
        assert_eq!(seen, [4, 4, 2, 1, 0, 0]);
        let since = [25, 29, 30, 1000].map(|second| window.since(at(second)));
        assert_eq!(since, [0, 0, 10, 980].map(at));
    }

    #[test]
    fn memory_is_bounded_by_the_slots() {
        let mut window = Window::<Count>::new(Duration::from_secs(1), 5);
        for second in 0..1000 {
            window.at(at(second)).0 += 1;
        }
        assert_eq!((window.kept.len(), window.total(at(999)).0), (5, 5));
    }

    #[test]
    fn late_events_count_in_the_newest_slot() {
        let mut window = Window::<Count>::new(Duration::from_secs(1), 2);
        window.at(at(9)).0 += 1;
        window.at(at(3)).0 += 1;
        assert_eq!(window.total(at(10)).0, 2);
    }
}
