//! The rows and columns of a `ScoreList`.

use crate::outrigger::v1::ScoreList;

impl ScoreList {
    /// The number of columns: the values of each treatment.
    pub fn columns(&self) -> usize {
        self.width.max(1) as usize
    }

    /// All values, row-major. Those of an output of integers are exact up to 2^53.
    pub fn exact_values(&self) -> Vec<f64> {
        match self.integers.as_slice() {
            [] => self.values.iter().copied().map(f64::from).collect(),
            integers => integers.iter().map(|integer| *integer as f64).collect(),
        }
    }

    /// The scores, one per treatment: the values of the column that is the score.
    pub fn scores(&self) -> impl Iterator<Item = f32> {
        let column = self.score_column as usize;
        self.values.iter().copied().skip(column).step_by(self.columns())
    }

    /// As [`Self::scores`], with those of an output of integers exact up to 2^53.
    pub fn exact_scores(&self) -> Vec<f64> {
        let column = self.score_column as usize;
        self.exact_values().into_iter().skip(column).step_by(self.columns()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_the_values_of_one_column() {
        let narrow = ScoreList { values: vec![1.0, 2.0], ..ScoreList::default() };
        assert_eq!((narrow.columns(), narrow.exact_scores()), (1, vec![1.0, 2.0]));
        let wide = ScoreList {
            values: vec![1.0, 2.0, 3.0, 4.0],
            integers: vec![1, 2, 3, (1 << 24) + 1],
            width: 2,
            score_column: 1,
            ..ScoreList::default()
        };
        assert_eq!(wide.columns(), 2);
        assert_eq!(wide.scores().collect::<Vec<_>>(), [2.0, 4.0]);
        assert_eq!(wide.exact_scores(), [2.0, 16_777_217.0]);
        assert_eq!(wide.exact_values(), [1.0, 2.0, 3.0, 16_777_217.0]);
    }
}
