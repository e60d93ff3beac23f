//! The rows of a file that are scored, if these are not all.

use std::{ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

/// Ranges of rows of a file, in order, without common rows. Their rows have positions from 0 on.
/// Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Range<u64>>", into = "Vec<Range<u64>>")]
pub(crate) struct Picked {
    ranges: Arc<[Range<u64>]>,
    /// The position after the last row of each range.
    ends: Arc<[u64]>,
}

impl From<Vec<Range<u64>>> for Picked {
    fn from(ranges: Vec<Range<u64>>) -> Self {
        let ends = ranges.iter().scan(0_u64, |end, range| {
            *end = end.saturating_add(range.end.saturating_sub(range.start));
            Some(*end)
        });
        Self { ends: ends.collect(), ranges: ranges.into() }
    }
}

impl From<Picked> for Vec<Range<u64>> {
    fn from(picked: Picked) -> Self {
        picked.ranges.to_vec()
    }
}

impl Picked {
    /// True if no ranges are picked: all rows are scored.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The ranges of the file with the rows at these positions. Takes time for these ranges, and the
    /// logarithm of all.
    pub(crate) fn ranges(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        let first = self.ends.partition_point(|end| *end <= positions.start);
        let parts = self.ranges.iter().zip(&*self.ends).skip(first);
        // The position of a range's first row.
        let parts = parts.map(|(range, end)| (range, end - (range.end - range.start)));
        let parts = parts.take_while(|(_, begin)| *begin < positions.end);
        let cut = |(range, begin): (&Range<u64>, u64)| {
            let from = positions.start.max(begin) - begin;
            let to = (positions.end - begin).min(range.end - range.start);
            range.start + from..range.start + to
        };
        parts.map(cut).filter(|range| range.start < range.end).collect()
    }

    /// The number in the file of the row at a position.
    pub(crate) fn row(&self, position: u64) -> Option<u64> {
        let index = self.ends.partition_point(|end| *end <= position);
        let (range, end) = (self.ranges.get(index)?, self.ends.get(index)?);
        Some(range.end - (end - position))
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    /// The same by a look at all rows.
    fn all_rows(ranges: &[Range<u64>]) -> Vec<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    #[test]
    fn positions_are_those_of_the_rows_in_their_order() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..200 {
            let (mut at, mut ranges) = (0, Vec::new());
            for _ in 0..random.random_range(0..8) {
                let start = at + random.random_range(1..4);
                at = start + random.random_range(1..5);
                ranges.push(start..at);
            }
            let (picked, rows) = (Picked::from(ranges.clone()), all_rows(&ranges));
            assert_eq!(picked.rows(), rows.len() as u64);
            for (position, row) in (0..).zip(&rows) {
                assert_eq!(picked.row(position), Some(*row), "{ranges:?} {position}");
            }
            assert_eq!(picked.row(rows.len() as u64), None);
            for from in 0..=rows.len() {
                for to in from..=rows.len() {
                    let found = picked.ranges(from as u64..to as u64);
                    assert_eq!(all_rows(&found), rows[from..to], "{ranges:?} {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn many_scattered_rows_are_found_at_once() {
        // A look at all ranges for each row would be a million times a million steps.
        const ROWS: u64 = 1_000_000;
        let picked = Picked::from((0..ROWS).map(|row| 2 * row..2 * row + 1).collect::<Vec<_>>());
        assert!((0..ROWS).all(|position| picked.row(position) == Some(2 * position)));
        let last = 2 * ROWS - 2..2 * ROWS - 1;
        assert_eq!(picked.ranges(ROWS - 1..ROWS), std::slice::from_ref(&last));
    }

    #[test]
    fn the_json_is_the_list_of_ranges() {
        let ranges = vec![4..5, 7..10];
        let json = serde_json::to_value(&ranges).expect("JSON");
        let picked = Picked::from(ranges);
        assert_eq!(serde_json::to_value(&picked).expect("JSON"), json);
        assert_eq!(serde_json::from_value::<Picked>(json).expect("ranges"), picked);
    }
}
