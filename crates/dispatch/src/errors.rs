//! The dead rows that stop a job.

use std::collections::VecDeque;

use crate::settings::MaxErrors;

/// Counts dead rows, also among the last rows.
#[derive(Debug, Clone)]
pub(crate) struct Errors {
    most: MaxErrors,
    dead: u64,
    /// Dead rows that were not settled here.
    elsewhere: u64,
    /// The last rows in the order in which they were settled: runs of rows with the same fate.
    last: VecDeque<(u64, bool)>,
    last_rows: u64,
    last_dead: u64,
}

impl Errors {
    pub(crate) fn new(most: MaxErrors) -> Self {
        Self { most, dead: 0, elsewhere: 0, last: VecDeque::new(), last_rows: 0, last_dead: 0 }
    }

    pub(crate) fn dead(&self) -> u64 {
        self.dead
    }

    /// Counts settled rows. Returns true if there are too many dead ones.
    pub(crate) fn settled(&mut self, rows: u32, is_dead: bool) -> bool {
        let rows = u64::from(rows);
        if is_dead {
            self.dead += rows;
        }
        self.is_over() | self.is_share_over(rows, is_dead)
    }

    /// Sets the number of dead rows that were not settled here. Returns true if there are too many.
    pub(crate) fn elsewhere(&mut self, rows: u64) -> bool {
        self.elsewhere = rows;
        self.is_over()
    }

    fn is_over(&self) -> bool {
        self.most.rows.is_some_and(|most| self.dead.saturating_add(self.elsewhere) > most)
    }

    fn is_share_over(&mut self, rows: u64, is_dead: bool) -> bool {
        let Some(share) = self.most.share else { return false };
        match self.last.back_mut() {
            Some((run, fate)) if *fate == is_dead => *run += rows,
            _ => self.last.push_back((rows, is_dead)),
        }
        self.last_rows += rows;
        self.last_dead += if is_dead { rows } else { 0 };
        self.forget(share.of_rows);
        self.last_rows >= share.of_rows
            && self.last_dead as f64 > share.most * self.last_rows as f64
    }

    /// Keeps this many of the last rows.
    fn forget(&mut self, rows: u64) {
        while self.last_rows > rows {
            let Some((run, is_dead)) = self.last.front_mut() else { return };
            let gone = (*run).min(self.last_rows - rows);
            *run -= gone;
            self.last_rows -= gone;
            self.last_dead -= if *is_dead { gone } else { 0 };
            if *run == 0 {
                self.last.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Share;

    #[test]
    fn more_dead_rows_than_allowed_are_too_many() {
        let mut errors = Errors::new(MaxErrors { rows: Some(2), share: None });
        assert!(!errors.settled(1000, false));
        assert!(!errors.settled(2, true));
        assert!(errors.settled(1, true));
        assert_eq!(errors.dead(), 3);
    }

    #[test]
    fn the_share_is_that_of_the_last_rows() {
        let share = Some(Share { most: 0.1, of_rows: 100 });
        let mut errors = Errors::new(MaxErrors { rows: None, share });
        assert!(!errors.settled(20, true), "no sample yet");
        assert!(!errors.settled(1000, false));
        assert!(!errors.settled(10, true), "a tenth is not more than a tenth");
        assert!(errors.settled(1, true));
        assert!(!errors.settled(100, false));
        assert!(!errors.settled(10, true), "the earlier ones are forgotten");
    }

    #[test]
    fn dead_rows_of_others_count_for_the_number() {
        let mut errors = Errors::new(MaxErrors { rows: Some(5), share: None });
        assert!(!errors.elsewhere(3) && !errors.settled(2, true));
        assert!(errors.elsewhere(4));
        assert!(!errors.elsewhere(3) && errors.settled(1, true));
        assert_eq!(errors.dead(), 3);
    }

    #[test]
    fn without_a_maximum_no_number_is_too_many() {
        let mut errors = Errors::new(MaxErrors::default());
        assert!(!errors.settled(u32::MAX, true));
    }
}
