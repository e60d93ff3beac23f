//! Comparison of scores with expected ones.

mod responses;
mod text;

use outrigger_core::rank;
use outrigger_tables::Cell;
use serde::Serialize;

use crate::{group::GroupRow, options::Tolerance, text::cut};

/// The most differences that are listed.
const LISTED: usize = 10;

/// The agreement of scores with expected ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// The number of compared scores.
    pub compared: u64,
    /// The number of those outside the tolerance.
    pub differing: u64,
    /// The largest absolute difference; that of NaN is not counted here.
    pub largest: f64,
    /// The mean of the absolute differences, of those that are numbers.
    pub mean: f64,
    /// The largest differences, the largest first; those of NaN before all others.
    pub worst: Vec<Difference>,
    /// The rank correlation within requests.
    pub rank_correlation: Correlation,
    #[serde(skip)]
    sum: f64,
    #[serde(skip)]
    numbers: u64,
}

/// A score that differs from the expected one, by any amount.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The number of the row.
    pub row: u64,
    /// The position of the treatment in a row that is a list.
    pub index: Option<usize>,
    /// The id of the user; empty if it has none.
    pub user: String,
    /// The id of the treatment; empty if it has none.
    pub treatment: String,
    /// The expected score; NaN is null in JSON.
    pub expected: f64,
    /// The model's score.
    pub score: f32,
}

/// Spearman's rank correlation between expected scores and scores, over requests: Pearson's
/// correlation of the ranks, where equal values have the mean of their ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Correlation {
    /// The number of requests for which it is defined: they have at least two compared scores, and
    /// neither all scores nor all expected ones are equal.
    pub requests: u64,
    /// Its mean over these requests; 0 if there are none.
    pub mean: f64,
    /// Its lowest value; 0 if there are none.
    pub lowest: f64,
}

/// A score with the expected one.
type Pair = (f64, f64);

impl Agreement {
    /// Compares the scores of a request's rows; rows without an expected score are not compared.
    /// A row whose expected score cannot be compared gets a failure.
    pub(crate) fn add(&mut self, rows: &mut [GroupRow], scores: &[Cell], tolerance: Tolerance) {
        let mut all = Vec::new();
        for (row, score) in rows.iter_mut().zip(scores) {
            match pairs(&row.expected, score) {
                Ok(pairs) => {
                    for (index, pair) in pairs {
                        self.compare(row, index.filter(|_| row.is_list), pair, tolerance);
                        all.push(pair);
                    }
                }
                Err(message) => {
                    row.failure.get_or_insert_with(|| crate::group::malformed(message));
                }
            }
        }
        if let Some(correlation) = rank::correlation(&all) {
            self.rank_correlation.add(correlation);
        }
    }

    fn compare(
        &mut self,
        row: &GroupRow,
        index: Option<usize>,
        (score, expected): Pair,
        tolerance: Tolerance,
    ) {
        self.compared += 1;
        self.differing += u64::from(!tolerance.accepts(score, expected));
        let size = distance(score, expected);
        if !size.is_nan() {
            self.numbers += 1;
            self.sum += size;
            self.mean = self.sum / self.numbers as f64;
            self.largest = self.largest.max(size);
        }
        let at = self.worst.partition_point(|worst| worst.size().total_cmp(&size).is_ge());
        if at < LISTED && size != 0.0 {
            let (user, treatment) = (cut(row.user.to_string()), cut(treatment(row, index)));
            let (row, score) = (row.number, score as f32);
            self.worst.insert(at, Difference { row, index, user, treatment, expected, score });
            self.worst.truncate(LISTED);
        }
    }
}

/// The text of a row's treatment, or of the one at `index` of a list.
fn treatment(row: &GroupRow, index: Option<usize>) -> String {
    match (&row.treatment, index) {
        (Cell::List(ids), Some(index)) => ids.get(index).map(Cell::to_string).unwrap_or_default(),
        (id, _) => id.to_string(),
    }
}

impl Difference {
    fn size(&self) -> f64 {
        distance(self.score.into(), self.expected)
    }
}

/// The absolute difference of two scores, which is 0 for an infinity and itself.
fn distance(score: f64, expected: f64) -> f64 {
    if score == expected { 0.0 } else { (score - expected).abs() }
}

impl Correlation {
    fn add(&mut self, correlation: f64) {
        self.lowest = if self.requests == 0 { correlation } else { self.lowest.min(correlation) };
        self.requests += 1;
        self.mean += (correlation - self.mean) / self.requests as f64;
    }
}

/// The scores of a row with the expected ones, and their positions. Scores that are missing have no
/// pair.
fn pairs(expected: &Cell, score: &Cell) -> Result<Vec<(Option<usize>, Pair)>, String> {
    let one = std::slice::from_ref;
    let (expected, scores) = match (expected, score) {
        (Cell::Absent, _) | (_, Cell::Absent) => return Ok(Vec::new()),
        (Cell::List(expected), Cell::List(scores)) => (expected.as_slice(), scores.as_slice()),
        (expected, Cell::List(scores)) => (one(expected), scores.as_slice()),
        (expected, score) => (one(expected), one(score)),
    };
    if expected.len() != scores.len() {
        let (expected, scores) = (expected.len(), scores.len());
        return Err(format!("{expected} expected scores, but {scores} scores"));
    }
    let mut pairs = Vec::with_capacity(scores.len());
    for (index, (expected, score)) in expected.iter().zip(scores).enumerate() {
        if !expected.is_absent() {
            let expected = expected.real().ok_or("the expected score is not a number")?;
            pairs.extend(score.real().map(|score| (Some(index), (score, expected))));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { atol: 0.5, rtol: 0.0 };

    fn compared(rows: &[(f64, f32)]) -> Agreement {
        let row = |(number, (expected, _)): (u64, &(f64, f32))| GroupRow {
            number,
            expected: Cell::Real(*expected),
            ..GroupRow::default()
        };
        let mut made: Vec<_> = (1..).zip(rows).map(row).collect();
        let scores: Vec<_> = rows.iter().map(|(_, score)| Cell::Single(*score)).collect();
        let mut agreement = Agreement::default();
        agreement.add(&mut made, &scores, TOLERANCE);
        agreement
    }

    #[test]
    fn differences_are_counted_and_the_largest_listed() {
        let agreement = compared(&[(1.0, 1.0), (1.0, 1.25), (1.0, 3.0), (f64::NAN, 1.0)]);
        assert_eq!((agreement.compared, agreement.differing), (4, 2));
        assert_eq!((agreement.largest, agreement.mean), (2.0, 0.75));
        let rows: Vec<_> = agreement.worst.iter().map(|worst| worst.row).collect();
        assert_eq!(rows, [4, 3, 2]);
        let many: Vec<_> = (0..100).map(|score| (0.0, score as f32)).collect();
        let worst = compared(&many).worst;
        assert_eq!(
            worst.iter().map(|worst| worst.row).collect::<Vec<_>>(),
            (91..=100).rev().collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_infinity_does_not_differ_from_itself() {
        let agreement = compared(&[(f64::INFINITY, f32::INFINITY), (1.0, 1.0)]);
        assert_eq!((agreement.compared, agreement.differing, agreement.mean), (2, 0, 0.0));
        assert_eq!(agreement.worst, []);
    }

    #[test]
    fn ranks_are_compared_within_a_request() {
        let correlation = |rows: &[(f64, f32)]| compared(rows).rank_correlation;
        let same = correlation(&[(1.0, 10.0), (2.0, 20.0), (3.0, 1000.0)]);
        assert_eq!((same.requests, same.mean, same.lowest), (1, 1.0, 1.0));
        assert_eq!(correlation(&[(1.0, 2.0), (2.0, 1.0)]).mean, -1.0);
        // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
        let ties = correlation(&[(1.0, 1.0), (2.0, 2.0), (2.0, 3.0), (3.0, 4.0)]);
        assert!((ties.mean - (4.5_f64 / 5.0).sqrt()).abs() < 1e-12, "{ties:?}");
        for undefined in [&[(1.0, 1.0)][..], &[(1.0, 1.0), (1.0, 2.0)], &[(f64::NAN, 1.0)]] {
            assert_eq!(correlation(undefined), Correlation::default());
        }
    }

    #[test]
    fn lists_are_compared_value_by_value() {
        let list = |values: &[f64]| Cell::List(values.iter().map(|it| Cell::Real(*it)).collect());
        let row = |expected| GroupRow { expected, is_list: true, ..GroupRow::default() };
        let scores = [list(&[1.0, 2.0])];
        let mut agreement = Agreement::default();
        let mut rows = [row(list(&[1.0, 4.0]))];
        agreement.add(&mut rows, &scores, TOLERANCE);
        assert_eq!((agreement.compared, agreement.worst[0].index), (2, Some(1)));
        for wrong in [
            list(&[1.0]),
            Cell::Text("a".to_owned()),
            Cell::List(vec![Cell::Text("a".to_owned()); 2]),
        ] {
            let mut rows = [row(wrong)];
            agreement.add(&mut rows, &scores, TOLERANCE);
            assert!(rows[0].failure.is_some());
        }
        assert_eq!(agreement.compared, 2);
    }
}
