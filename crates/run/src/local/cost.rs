//! The time that a row takes, and the number of rows of a part that follows from it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The time that a part of a call is to take. Shorter parts would cost more than they gain; by
/// longer ones other calls would have to wait longer.
const PART: Duration = Duration::from_micros(500);

/// Rows of a part as long as nothing is known about the model.
const UNKNOWN: usize = 64;

/// The number of rows of a part is a multiple of this, because kernels take as many at once.
const BLOCK: usize = 16;

/// Upper limit of the parts of a call, which bounds the memory for them.
const MOST_PARTS: usize = 1024;

/// An estimate of the time that a row of a model takes.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// Nanoseconds of a row; 0 as long as none has been recorded.
    per_row: AtomicU64,
}

impl Cost {
    /// Records the duration of a run of `rows` rows.
    pub(super) fn record(&self, rows: usize, took: Duration) {
        let Some(rows) = u64::try_from(rows).ok().filter(|rows| *rows > 0) else { return };
        let sample = (nanoseconds(took) / rows).max(1);
        // A concurrent update may be lost; an estimate tolerates that.
        let next = match self.per_row.load(Relaxed) {
            0 => sample,
            before => (before - before / 4).saturating_add(sample / 4).max(1),
        };
        self.per_row.store(next, Relaxed);
    }

    /// The number of rows of each part but the last, for a call of `rows` rows. A call of no more
    /// rows is not worth being divided.
    pub(super) fn rows_of_part(&self, rows: usize) -> usize {
        let parts = match self.per_row.load(Relaxed) {
            0 => rows / UNKNOWN,
            per_row => {
                let all = per_row.saturating_mul(u64::try_from(rows).unwrap_or(u64::MAX));
                usize::try_from(all / nanoseconds(PART)).unwrap_or(MOST_PARTS)
            }
        };
        rows.div_ceil(parts.clamp(1, MOST_PARTS)).next_multiple_of(BLOCK)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_take_about_the_same_time_whatever_the_model() {
        for (per_row, rows) in [(Duration::from_micros(1), 512), (PART / 40, 48), (PART * 9, 16)] {
            let cost = Cost::default();
            cost.record(1000, per_row * 1000);
            assert_eq!(cost.rows_of_part(10_000), rows, "{per_row:?}");
        }
    }

    #[test]
    fn a_call_without_enough_work_for_two_parts_is_one() {
        let cost = Cost::default();
        assert!(cost.rows_of_part(2 * UNKNOWN - 1) >= 2 * UNKNOWN - 1);
        assert_eq!(cost.rows_of_part(2 * UNKNOWN), UNKNOWN);
        cost.record(1, PART / 100);
        assert!(cost.rows_of_part(199) >= 199);
        assert_eq!(cost.rows_of_part(200), 112);
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let cost = Cost::default();
        cost.record(1, Duration::MAX);
        assert_eq!(cost.rows_of_part(1 << 24), (1 << 24) / MOST_PARTS);
        assert_eq!(cost.rows_of_part(0), 0);
    }

    #[test]
    fn an_estimate_follows_the_runs() {
        let cost = Cost::default();
        cost.record(0, PART);
        assert_eq!(cost.rows_of_part(6400), UNKNOWN, "no rows say nothing");
        cost.record(1, PART);
        (0..50).for_each(|_| cost.record(100, PART));
        let rows = cost.rows_of_part(6400);
        assert!((96..=112).contains(&rows), "{rows}");
    }
}
