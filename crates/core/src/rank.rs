//! Ranks of values, and their correlation.

/// Spearman's rank correlation of the two values of each pair: Pearson's correlation of the ranks,
/// where equal values have the mean of their ranks (C. Spearman, "The Proof and Measurement of
/// Association between Two Things", American Journal of Psychology 15, 1904; with ties as in M. G.
/// Kendall, "Rank Correlation Methods", 1948, chapter 3).
///
/// `None` if it is not defined: with a NaN, fewer than two pairs, or when all values of one side
/// are equal.
pub fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let first = ranks(pairs.iter().map(|(first, _)| *first).collect())?;
    let second = ranks(pairs.iter().map(|(_, second)| *second).collect())?;
    let mut sums = Sums::new(pairs.len() as u64);
    first.iter().for_each(|rank| sums.add_first(*rank));
    first.iter().zip(&second).for_each(|(first, second)| sums.add(*first, *second));
    sums.correlation()
}

/// The sums that a rank correlation is made of, for callers that have the ranks one by one.
#[derive(Debug, Clone, Copy)]
pub struct Sums {
    /// The mean rank.
    mean: f64,
    first: f64,
    second: f64,
    both: f64,
}

impl Sums {
    /// The sums of `count` pairs, before the first.
    pub fn new(count: u64) -> Self {
        Self { mean: (count as f64 + 1.0) / 2.0, first: 0.0, second: 0.0, both: 0.0 }
    }

    /// Adds the first rank of a pair.
    pub fn add_first(&mut self, rank: f64) {
        self.first += (rank - self.mean).powi(2);
    }

    /// Adds a pair, whose first rank is added by itself too.
    pub fn add(&mut self, first: f64, second: f64) {
        self.second += (second - self.mean).powi(2);
        self.both += (first - self.mean) * (second - self.mean);
    }

    /// The correlation; `None` if all ranks of one side are equal.
    pub fn correlation(&self) -> Option<f64> {
        let spread = (self.first * self.second).sqrt();
        (spread > 0.0).then(|| self.both / spread)
    }
}

/// The rank of each value, from 1; equal values have the mean of their ranks. `None` with a NaN.
fn ranks(values: Vec<f64>) -> Option<Vec<f64>> {
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|left, right| values[*left].total_cmp(&values[*right]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|left, right| values[*left] == values[*right]) {
        let rank = mean_rank(before, equal.len() as u64);
        equal.iter().for_each(|index| ranks[*index] = rank);
        before += equal.len() as u64;
    }
    Some(ranks)
}

/// The rank of `count` equal values, which follow `before` smaller ones.
pub fn mean_rank(before: u64, count: u64) -> f64 {
    before as f64 + (count as f64 + 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_have_the_mean_of_their_ranks() {
        assert_eq!(correlation(&[(1.0, 10.0), (2.0, 20.0), (3.0, 1000.0)]), Some(1.0));
        assert_eq!(correlation(&[(1.0, 2.0), (2.0, 1.0)]), Some(-1.0));
        // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
        let ties = correlation(&[(1.0, 1.0), (2.0, 2.0), (2.0, 3.0), (3.0, 4.0)]);
        assert!((ties.expect("defined") - (4.5_f64 / 5.0).sqrt()).abs() < 1e-12, "{ties:?}");
    }

    #[test]
    fn it_is_not_defined_without_two_different_values() {
        for pairs in [&[(1.0, 1.0)][..], &[(1.0, 1.0), (1.0, 2.0)], &[(f64::NAN, 1.0)], &[]] {
            assert_eq!(correlation(pairs), None);
        }
    }
}
