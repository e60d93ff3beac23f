//! Positions in a file from which its rows can be read.

use serde::{Deserialize, Serialize};

/// The bytes between two marks, at least.
const STRIDE: u64 = 8 << 20;

/// Marks in a file: rows with the positions of their first bytes. There is one for every 8 MiB.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    rows: Vec<u64>,
    positions: Vec<u64>,
}

impl Index {
    /// Marks a row, the first one or one that is far enough from the last mark.
    pub(super) fn offer(&mut self, row: u64, position: u64) {
        if self.positions.last().is_none_or(|last| position - last >= STRIDE) {
            self.rows.push(row);
            self.positions.push(position);
        }
    }

    /// The last mark before a row, or at it: the marked row and its position.
    pub(super) fn before(&self, row: u64) -> (u64, u64) {
        let at = self.rows.partition_point(|marked| *marked <= row).saturating_sub(1);
        let mark = self.rows.get(at).zip(self.positions.get(at));
        mark.map_or((0, 0), |(row, position)| (*row, *position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mark_before_a_row_is_found() {
        let mut index = Index::default();
        assert_eq!(index.before(7), (0, 0));
        for (row, position) in [(0, 10), (5, STRIDE), (6, STRIDE + 10), (9, 2 * STRIDE + 20)] {
            index.offer(row, position);
        }
        let marks = [(0, 10), (6, STRIDE + 10), (9, 2 * STRIDE + 20)];
        for (row, mark) in [(0, 0), (5, 0), (6, 1), (8, 1), (9, 2), (1000, 2)] {
            assert_eq!(index.before(row), marks[mark], "row {row}");
        }
    }
}
