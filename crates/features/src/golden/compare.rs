//! Comparison of a response with the expected one.

use std::fmt;

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::{PredictResponse, predict_response::Output};

use super::{GoldenCase, Values};

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
        let (count, all) = (self.differences.len(), self.compared);
        write!(f, "golden.jsonl line {}: {count} of {all} values differ", self.line)?;
        for (index, difference) in self.differences.iter().take(NAMED).enumerate() {
            write!(f, "{} {difference}", if index == 0 { ":" } else { "," })?;
        }
        if count > NAMED { f.write_str(", …") } else { Ok(()) }
    }
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
        let mut comparison = Comparison { case: self, compared: 0, differences: Vec::new() };
        let (one, many) = match &response.output {
            Some(Output::Score(score)) => (Some(*score), None),
            Some(Output::Scores(list)) => (None, Some(list.values.as_slice())),
            None => (None, None),
        };
        match &self.expected {
            Values::One(expected) => comparison.value("score".into(), Some(*expected), one),
            Values::Many(expected) => comparison.list("scores", expected, many.unwrap_or_default()),
        }
        match (&self.expected, one, many) {
            (Values::Many(_), Some(_), _) => comparison.value("score".into(), None, one),
            (Values::One(_), _, Some(scores)) => comparison.list("scores", &[], scores),
            _ => {}
        }
        for (name, expected) in &self.outputs {
            let place = format!("outputs[{name:?}]");
            let actual = response.additional_outputs.get(name);
            let actual = actual.map_or(&[] as &[f32], |list| &list.values);
            match expected {
                Values::Many(expected) => comparison.list(&place, expected, actual),
                Values::One(expected) => {
                    comparison.value(place, Some(*expected), actual.first().copied());
                }
            }
        }
        comparison.finish()
    }

    fn close(&self, expected: f64, actual: f64) -> bool {
        !self.deterministic || (actual - expected).abs() <= self.atol + self.rtol * expected.abs()
    }
}

struct Comparison<'c> {
    case: &'c GoldenCase,
    compared: usize,
    differences: Vec<Difference>,
}

impl Comparison<'_> {
    fn list(&mut self, place: &str, expected: &[f64], actual: &[f32]) {
        for index in 0..expected.len().max(actual.len()) {
            let (expected, actual) = (expected.get(index), actual.get(index));
            self.value(format!("{place}[{index}]"), expected.copied(), actual.copied());
        }
    }

    fn value(&mut self, place: String, expected: Option<f64>, actual: Option<f32>) {
        self.compared += 1;
        let actual = actual.map(f64::from);
        let close = |(expected, actual)| self.case.close(expected, actual);
        if !expected.zip(actual).is_some_and(close) {
            self.differences.push(Difference { place, expected, actual });
        }
    }

    fn finish(self) -> Result<(), Mismatch> {
        let Self { case, compared, differences } = self;
        if differences.is_empty() {
            return Ok(());
        }
        Err(Mismatch { line: case.line, compared, differences })
    }
}
