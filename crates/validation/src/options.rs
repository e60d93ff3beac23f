//! The settings of a run.

use outrigger_features::{
    Limits,
    golden::{DEFAULT_ATOL, DEFAULT_RTOL, is_close},
};

use crate::memory::Memory;

/// The columns of the output that the run adds.
pub(crate) const SCORE: &str = "score";
pub(crate) const DIGEST: &str = "digest";
pub(crate) const ERROR: &str = "error";

/// The names of the columns that are not features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// The column with the user's id. Consecutive rows with the same id are one request; the id is
    /// the request's `request_id` and `routing_key`.
    pub user: String,
    /// The column with the treatment's id.
    pub treatment: String,
    /// The column with the expected score.
    pub expected: String,
}

/// A score agrees with the expected one if `|score - expected| <= atol + rtol * |expected|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// The absolute tolerance.
    pub atol: f64,
    /// The tolerance relative to the expected score.
    pub rtol: f64,
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The columns that are not features.
    pub reserved: Reserved,
    /// The tolerance of the comparison with expected scores.
    pub tolerance: Tolerance,
    /// The run ends when there are more errors than this.
    pub max_errors: usize,
    /// The most treatments of a request.
    pub max_treatments: usize,
    /// The limits of the memory that it takes.
    pub memory: Memory,
}

/// Columns of the output would have the same name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two columns of the scores would have the name {0:?}")]
pub struct InvalidNames(String);

impl Default for Reserved {
    fn default() -> Self {
        let [user, treatment, expected] = ["user", "treatment", "expected"].map(str::to_owned);
        Self { user, treatment, expected }
    }
}

impl Reserved {
    /// Refuses names that the output's columns could not have at the same time.
    ///
    /// # Errors
    /// A name occurs twice.
    pub fn check(&self) -> Result<(), InvalidNames> {
        let names = [&self.user, &self.treatment, &self.expected, SCORE, DIGEST, ERROR];
        let twice = (1..names.len()).find(|index| names[..*index].contains(&names[*index]));
        twice.map_or(Ok(()), |index| Err(InvalidNames(names[index].to_owned())))
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { atol: DEFAULT_ATOL, rtol: DEFAULT_RTOL }
    }
}

impl Tolerance {
    /// True if the score agrees with the expected one. NaN agrees with nothing, and infinity only
    /// with itself.
    pub(crate) fn accepts(self, score: f64, expected: f64) -> bool {
        is_close(score, expected, (self.atol, self.rtol))
    }
}

impl Default for Options {
    fn default() -> Self {
        let (reserved, tolerance) = (Reserved::default(), Tolerance::default());
        let max_treatments = Limits::default().max_treatments;
        Self { reserved, tolerance, max_errors: 100, max_treatments, memory: Memory::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        assert_eq!(Reserved::default().check(), Ok(()));
        for user in ["treatment", "expected", "score", "digest", "error"] {
            let names = Reserved { user: user.to_owned(), ..Reserved::default() };
            assert_eq!(names.check(), Err(InvalidNames(user.to_owned())));
        }
    }

    #[test]
    fn infinity_agrees_with_itself_only() {
        let tolerance = Tolerance::default();
        let infinity = f64::INFINITY;
        assert!(tolerance.accepts(infinity, infinity));
        for score in [1e300, -infinity, f64::NAN] {
            assert!(!tolerance.accepts(score, infinity), "{score}");
        }
    }

    #[test]
    fn both_tolerances_add_up() {
        let tolerance = Tolerance { atol: 0.5, rtol: 0.25 };
        assert!(tolerance.accepts(3.0, 2.0) && tolerance.accepts(1.0, 2.0));
        assert!(!tolerance.accepts(3.25, 2.0) && !tolerance.accepts(-3.25, -2.0));
        assert!(!tolerance.accepts(1.0, f64::NAN) && !tolerance.accepts(f64::NAN, 1.0));
    }
}
