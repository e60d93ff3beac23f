//! golden.jsonl: recorded requests and the scores expected for them.
//!
//! One case per line:
//! `{"request": <JSON form>, "expected": {"scores": [0.1, 0.2]}, "rtol": 1e-4, "atol": 1e-5}`.
//! `expected` has `scores`, or `score` for a `single` output, and may have
//! `outputs`: further outputs by name. A list stands in place of a number for all columns
//! of an output with several. Blank lines are skipped.

mod compare;

use std::{
    collections::BTreeMap,
    io::{BufRead, Read as _},
};

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::PredictRequest;
use serde_json::Value;

use crate::{
    json,
    metadata::OutputKind,
    plan::Plan,
    reader::{self, Node, Object, Wrong},
};
pub use compare::{Difference, Mismatch, PaddingMismatch};

/// The relative tolerance of a case without `rtol`.
pub const DEFAULT_RTOL: f64 = 1e-4;

/// The most bytes of a case. Its parsed form takes up to sixteen times as much memory.
pub const MAX_GOLDEN_CASE: usize = 4 << 20;

/// The absolute tolerance of a case without `atol`.
pub const DEFAULT_ATOL: f64 = 1e-5;

/// True if a score agrees with the expected one: it differs by at most `atol` + `rtol` x |expected|.
/// NaN agrees with nothing, and infinity only with itself.
pub fn is_close(score: f64, expected: f64, (atol, rtol): (f64, f64)) -> bool {
    let within = atol + rtol * expected.abs();
    score == expected || expected.is_finite() && (score - expected).abs() <= within
}

/// One recorded request with the expected response.
#[derive(Debug, Clone, PartialEq)]
pub struct GoldenCase {
    /// The case's line in the file, counted from 1.
    pub line: usize,
    /// The request; `model` may be unset.
    pub request: PredictRequest,
    /// The expected scores, or score.
    pub expected: Values,
    /// Expected further outputs, by name.
    pub outputs: BTreeMap<String, Values>,
    /// Tolerance relative to the expected value.
    pub rtol: f64,
    /// Absolute tolerance, added to the relative one.
    pub atol: f64,
    /// Whether values are compared; if not, only their number is.
    deterministic: bool,
}

/// The expected values of one output.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// The score of a `single` output.
    One(f64),
    /// All columns of a `single` output.
    Row(Vec<f64>),
    /// One score per treatment, in the order of the response.
    Many(Vec<f64>),
    /// All columns of each treatment.
    Rows {
        /// Row-major.
        values: Vec<f64>,
        /// The number of columns.
        width: usize,
    },
}

/// An error in a golden.jsonl, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("golden.jsonl line {line}: {message}")]
pub struct GoldenError {
    /// The line, counted from 1.
    pub line: usize,
    /// The description of the error, with the JSON path if there is one.
    pub message: String,
}

impl GoldenError {
    /// The stable reason code of this error.
    pub fn reason(&self) -> Reason {
        Reason::ImageInvalid
    }
}

/// Reads a golden.jsonl one case at a time: a file may hold far more than memory does.
#[derive(Debug)]
pub struct GoldenCases<R> {
    source: R,
    line: usize,
    text: Vec<u8>,
}

impl<R: BufRead> GoldenCases<R> {
    /// Reads from the start of a golden.jsonl.
    pub fn new(source: R) -> Self {
        Self { source, line: 0, text: Vec::new() }
    }

    /// The next case, for the model of `plan`; `None` at the end. After an error there is no next
    /// one.
    ///
    /// # Errors
    /// The file cannot be read, or the line is longer than [`MAX_GOLDEN_CASE`] or not a case for
    /// the model.
    pub fn next(&mut self, plan: &Plan) -> Result<Option<GoldenCase>, GoldenError> {
        loop {
            self.line += 1;
            self.text.clear();
            let mut line = self.source.by_ref().take(MAX_GOLDEN_CASE as u64 + 1);
            let read = line.read_until(b'\n', &mut self.text);
            let error = |message| GoldenError { line: self.line, message };
            let read = read.map_err(|cause| error(format!("it cannot be read: {cause}")))?;
            if read == 0 {
                return Ok(None);
            }
            self.text.pop_if(|last| *last == b'\n');
            if self.text.len() > MAX_GOLDEN_CASE {
                return Err(error(format!("a case has more than {MAX_GOLDEN_CASE} bytes")));
            }
            if !self.text.trim_ascii().is_empty() {
                return plan.golden_case(&self.text, self.line).map(Some);
            }
        }
    }
}

impl Plan {
    fn golden_case(&self, text: &[u8], line: usize) -> Result<GoldenCase, GoldenError> {
        let error = |message| GoldenError { line, message };
        let value =
            reader::parse(text).map_err(|cause| error(format!("not valid JSON: {cause}")))?;
        self.read_case(&Node::root(&value), line).map_err(error)
    }

    fn read_case(&self, node: &Node<'_>, line: usize) -> Result<GoldenCase, String> {
        let expectation = read_expectation(node, self).map_err(|Wrong { path, message }| {
            if path.is_empty() { message } else { format!("{path}: {message}") }
        })?;
        let request =
            json::read_request(self, &expectation.request).map_err(|failure| failure.message)?;
        Ok(GoldenCase {
            line,
            request,
            expected: expectation.expected,
            outputs: expectation.outputs,
            rtol: expectation.rtol,
            atol: expectation.atol,
            deterministic: self.deterministic(),
        })
    }
}

/// A case whose request is not parsed yet.
struct Expectation<'a> {
    request: Node<'a>,
    expected: Values,
    outputs: BTreeMap<String, Values>,
    rtol: f64,
    atol: f64,
}

fn read_expectation<'a>(node: &Node<'a>, plan: &Plan) -> Result<Expectation<'a>, Wrong> {
    let case = node.object()?;
    case.only(&["request", "expected", "rtol", "atol"])?;
    let expected = case.required("expected")?.object()?;
    expected.only(&["score", "scores", "outputs"])?;
    let outputs = expected.optional("outputs").map(|node| read_outputs(&node, plan)).transpose()?;
    Ok(Expectation {
        request: case.required("request")?,
        expected: read_scores(&expected)?,
        outputs: outputs.unwrap_or_default(),
        rtol: read_tolerance(&case, "rtol", DEFAULT_RTOL)?,
        atol: read_tolerance(&case, "atol", DEFAULT_ATOL)?,
    })
}

fn read_scores(expected: &Object<'_>) -> Result<Values, Wrong> {
    match (expected.optional("score"), expected.optional("scores")) {
        (Some(score), None) => read_single(&score),
        (None, Some(scores)) => read_many(&scores),
        _ => Err(expected.error("one of score and scores is needed")),
    }
}

fn read_outputs(node: &Node<'_>, plan: &Plan) -> Result<BTreeMap<String, Values>, Wrong> {
    let object = node.object()?;
    let is_single = |name: &str| {
        let mut outputs = plan.metadata.outputs.iter();
        outputs.any(|output| *output.name == *name && output.kind == OutputKind::Single)
    };
    let names = object.map.keys();
    names
        .map(|name| {
            let node = object.required(name)?;
            let single = is_single(name) || !node.value.is_array();
            let values = if single { read_single(&node)? } else { read_many(&node)? };
            Ok((name.clone(), values))
        })
        .collect()
}

/// The score of a user, or all columns.
fn read_single(node: &Node<'_>) -> Result<Values, Wrong> {
    match node.value {
        Value::Array(_) => read_numbers(node).map(Values::Row),
        _ => read_number(node).map(Values::One),
    }
}

/// The score of each treatment, or all columns of each.
fn read_many(node: &Node<'_>) -> Result<Values, Wrong> {
    let rows = node.array()?;
    let Some(Value::Array(first)) = rows.first().map(|row| row.value) else {
        return read_numbers(node).map(Values::Many);
    };
    let (width, mut values) = (first.len(), Vec::new());
    for row in &rows {
        let columns = read_numbers(row)?;
        if columns.len() != width {
            let found = columns.len();
            return Err(row.error(format!("has {found} columns, the row before it {width}")));
        }
        values.extend(columns);
    }
    Ok(Values::Rows { values, width })
}

fn read_numbers(node: &Node<'_>) -> Result<Vec<f64>, Wrong> {
    node.array()?.iter().map(read_number).collect()
}

fn read_number(node: &Node<'_>) -> Result<f64, Wrong> {
    node.value.as_f64().ok_or_else(|| node.expected("a number"))
}

fn read_tolerance(case: &Object<'_>, key: &str, default: f64) -> Result<f64, Wrong> {
    let Some(node) = case.optional(key) else { return Ok(default) };
    let value = read_number(&node)?;
    if value >= 0.0 { Ok(value) } else { Err(node.error("must not be negative")) }
}

#[cfg(test)]
mod tests;
