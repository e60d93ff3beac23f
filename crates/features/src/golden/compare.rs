//! Comparison of a response with the expected one.

use std::fmt;

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::{PredictResponse, ScoreList, predict_response::Output};

use super::{DEFAULT_ATOL, DEFAULT_RTOL, GoldenCase, Values, is_close};
use crate::plan::Plan;

/// The number of differences listed in a message.
const NAMED: usize = 3;

/// The values of a response that differ from the expected ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// The line of the case in golden.jsonl.
    pub line: usize,
    /// The number of values compared.
    pub compared: usize,
    /// The differences, in the order of the response.
    pub differences: Vec<Difference>,
}

/// The values of a padded request's response that differ from those of the request alone.
#[derive(Debug, Clone, PartialEq)]
pub struct PaddingMismatch {
    /// The number of values compared.
    pub compared: usize,
    /// The differences, in the order of the response; the expected values are those of the request
    /// alone.
    pub differences: Vec<Difference>,
}

/// One value that differs from the expected one.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The value's path in the response: `score`, `scores[3]`, `outputs["risk"][3]`.
    pub place: String,
    /// The expected value; `None` if the response has a value too many.
    pub expected: Option<f64>,
    /// The value in the response; `None` if it is missing.
    pub actual: Option<f64>,
}

impl Mismatch {
    /// The stable reason code of this error.
    pub fn reason(&self) -> Reason {
        Reason::GoldenMismatch
    }
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "golden.jsonl line {}: ", self.line)?;
        list(f, self.compared, &self.differences)
    }
}

impl std::error::Error for PaddingMismatch {}

impl fmt::Display for PaddingMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.compared, &self.differences)
    }
}

/// Writes the number of differences and the first of them.
fn list(f: &mut fmt::Formatter<'_>, compared: usize, differences: &[Difference]) -> fmt::Result {
    let count = differences.len();
    write!(f, "{count} of {compared} values differ")?;
    for (index, difference) in differences.iter().take(NAMED).enumerate() {
        write!(f, "{} {difference}", if index == 0 { ":" } else { "," })?;
    }
    if count > NAMED { f.write_str(", …") } else { Ok(()) }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spell = |value: Option<f64>| value.map_or("none".to_owned(), |value| value.to_string());
        let (expected, actual) = (spell(self.expected), spell(self.actual));
        write!(f, "{} is {actual}, expected {expected}", self.place)
    }
}

impl GoldenCase {
    /// Compares a response with the expected one: `|actual - expected| <= atol + rtol *
    /// |expected|` must hold for every value, and NaN equals nothing. For a model that
    /// draws, only the number of values is compared.
    ///
    /// # Errors
    /// The values that differ.
    pub fn compare(&self, response: &PredictResponse) -> Result<(), Mismatch> {
        let mut comparison = Comparison::within(self.tolerance());
        comparison.score(&self.expected, response);
        for (name, expected) in &self.outputs {
            comparison.output(name, expected, response);
        }
        let Comparison { compared, differences, .. } = comparison;
        match differences.is_empty() {
            true => Ok(()),
            false => Err(Mismatch { line: self.line, compared, differences }),
        }
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance { rtol: self.rtol, atol: self.atol, deterministic: self.deterministic }
    }
}

impl Plan {
    /// Compares the response to a padded request with the one to the same request alone, within the
    /// tolerance of its golden case, if it has one. For a model that draws, only the number of
    /// values is compared.
    ///
    /// # Errors
    /// The values that differ.
    pub fn compare_padded(
        &self,
        golden: Option<&GoldenCase>,
        alone: &PredictResponse,
        padded: &PredictResponse,
    ) -> Result<(), PaddingMismatch> {
        let deterministic = self.deterministic();
        let usual = Tolerance { rtol: DEFAULT_RTOL, atol: DEFAULT_ATOL, deterministic };
        let mut comparison = Comparison::within(golden.map_or(usual, GoldenCase::tolerance));
        match (&alone.output, &alone.score_values) {
            (Some(Output::Score(_)), Some(list)) => {
                comparison.score(&Values::Row(list.exact_values()), padded);
            }
            (Some(Output::Score(score)), None) => {
                comparison.score(&Values::One((*score).into()), padded);
            }
            (Some(Output::Scores(list)), _) => comparison.score(&values(list), padded),
            (None, _) => {}
        }
        for (name, list) in &alone.additional_outputs {
            comparison.output(name, &values(list), padded);
        }
        let Comparison { compared, differences, .. } = comparison;
        match differences.is_empty() {
            true => Ok(()),
            false => Err(PaddingMismatch { compared, differences }),
        }
    }
}

/// The largest difference of two values that are equal.
#[derive(Debug, Clone, Copy)]
struct Tolerance {
    rtol: f64,
    atol: f64,
    /// False if any two values are equal.
    deterministic: bool,
}

struct Comparison {
    tolerance: Tolerance,
    compared: usize,
    differences: Vec<Difference>,
}

impl Tolerance {
    fn admits(self, expected: f64, actual: f64) -> bool {
        !self.deterministic || is_close(actual, expected, (self.atol, self.rtol))
    }
}

impl Comparison {
    fn within(tolerance: Tolerance) -> Self {
        Self { tolerance, compared: 0, differences: Vec::new() }
    }

    /// Compares the score, or scores, of a response.
    fn score(&mut self, expected: &Values, response: &PredictResponse) {
        match (expected, &response.output) {
            (Values::One(expected), Some(Output::Score(_))) => {
                self.value("score".into(), Some(*expected), user_score(response));
            }
            (Values::Row(expected), Some(Output::Score(score))) => {
                let all = response.score_values.as_ref().map(ScoreList::exact_values);
                self.list("score", expected, &all.unwrap_or_else(|| vec![(*score).into()]));
            }
            (Values::Many(_) | Values::Rows { .. }, Some(Output::Scores(list))) => {
                self.matrix("scores", expected, list);
            }
            (expected, found) => {
                self.missing(expected);
                match found {
                    Some(Output::Score(score)) => {
                        self.value("score".into(), None, Some((*score).into()));
                    }
                    Some(Output::Scores(list)) => self.list("scores", &[], &list.exact_scores()),
                    None => {}
                }
            }
        }
    }

    /// Reports expected values of which the response has none.
    fn missing(&mut self, expected: &Values) {
        match expected {
            Values::One(expected) => self.value("score".into(), Some(*expected), None),
            Values::Row(expected) => self.list("score", expected, &[]),
            Values::Many(expected) | Values::Rows { values: expected, .. } => {
                self.list("scores", expected, &[]);
            }
        }
    }

    /// Compares a further output of a response.
    fn output(&mut self, name: &str, expected: &Values, response: &PredictResponse) {
        let place = format!("outputs[{name:?}]");
        let none = ScoreList::default();
        let list = response.additional_outputs.get(name).unwrap_or(&none);
        match expected {
            Values::One(expected) => {
                self.value(place, Some(*expected), list.exact_scores().first().copied());
            }
            Values::Row(expected) => self.list(&place, expected, &list.exact_values()),
            Values::Many(_) | Values::Rows { .. } => self.matrix(&place, expected, list),
        }
    }

    /// Compares the values of treatments.
    fn matrix(&mut self, place: &str, expected: &Values, list: &ScoreList) {
        let (values, width) = match expected {
            Values::Rows { values, width } => (values, *width),
            Values::Many(expected) => return self.list(place, expected, &list.exact_scores()),
            Values::One(_) | Values::Row(_) => return,
        };
        if width != list.columns() {
            self.compared += 1;
            let (expected, actual) = (Some(width as f64), Some(list.columns() as f64));
            let place = format!("the number of columns of {place}");
            return self.differences.push(Difference { place, expected, actual });
        }
        let actual = list.exact_values();
        for index in 0..values.len().max(actual.len()) {
            let place = format!("{place}[{}][{}]", index / width, index % width);
            self.value(place, values.get(index).copied(), actual.get(index).copied());
        }
    }

    fn list(&mut self, place: &str, expected: &[f64], actual: &[f64]) {
        for index in 0..expected.len().max(actual.len()) {
            let (expected, actual) = (expected.get(index), actual.get(index));
            self.value(format!("{place}[{index}]"), expected.copied(), actual.copied());
        }
    }

    fn value(&mut self, place: String, expected: Option<f64>, actual: Option<f64>) {
        self.compared += 1;
        let close = |(expected, actual)| self.tolerance.admits(expected, actual);
        if !expected.zip(actual).is_some_and(close) {
            self.differences.push(Difference { place, expected, actual });
        }
    }
}

/// The values of a list as expected ones.
fn values(list: &ScoreList) -> Values {
    match list.columns() {
        1 => Values::Many(list.exact_values()),
        width => Values::Rows { values: list.exact_values(), width },
    }
}

/// The score of a user, exactly.
fn user_score(response: &PredictResponse) -> Option<f64> {
    match (&response.score_values, &response.output) {
        (Some(list), _) => list.exact_scores().first().copied(),
        (None, Some(Output::Score(score))) => Some((*score).into()),
        _ => None,
    }
}
