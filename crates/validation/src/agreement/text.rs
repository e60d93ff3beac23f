//! Comparisons as text.

use super::{Agreement, Correlation, Difference};
use crate::options::Tolerance;

impl Agreement {
    /// The comparison, line by line. `names` are those of the expected scores and of the scores, and
    /// `unit` is the word for what [`Difference::row`] counts.
    pub fn lines(&self, tolerance: Tolerance, names: [&str; 2], unit: &str) -> Vec<String> {
        let Self { compared, differing, largest, mean, worst, rank_correlation, .. } = self;
        let (Tolerance { atol, rtol }, expected) = (tolerance, names[0]);
        let mut lines = vec![
            format!(
                "{compared} scores compared: {differing} differ by more than \
                 {atol} + {rtol} x |{expected}|"
            ),
            format!("difference: largest {largest}, mean {mean}"),
        ];
        if rank_correlation.requests > 0 {
            let Correlation { requests, mean, lowest } = rank_correlation;
            lines.push(format!(
                "rank correlation of {requests} requests: mean {mean:.4}, lowest {lowest:.4}"
            ));
        }
        lines.extend(worst.iter().map(|difference| difference.line(names, unit)));
        lines
    }
}

impl Difference {
    fn line(&self, [of_expected, of_score]: [&str; 2], unit: &str) -> String {
        let Self { row, user, treatment, expected, score, .. } = self;
        let ids = [user.as_str(), treatment.as_str()].join(" ");
        let ids = match ids.trim() {
            "" => String::new(),
            ids => format!(" ({ids})"),
        };
        format!("{unit} {row}{ids}: {of_expected} {expected}, {of_score} {score}")
    }
}
