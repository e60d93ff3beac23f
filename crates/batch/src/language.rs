//! Language models: lines of OpenAI's batches as rows, each of which is a request of its own.

mod answer;
mod host;
mod line;
mod quota;

use arrow_array::{Array as _, ArrayRef, cast::AsArray as _};
use http::StatusCode;
use outrigger_oip::{
    DataType, Tensor,
    metadata::{ModelMetadata, TensorMetadata},
};
use outrigger_resilience::Class;
use outrigger_tables::{Leaf, TextColumn};

pub(crate) use self::{host::LanguageHost, line::tokens, quota::Quotas};
use crate::{columns::OutputColumn, input::Rows, job::CUSTOM_ID};

const METHOD: &str = "method";
const URL: &str = "url";
const BODY: &str = "body";
/// The columns of the output, beside the name of the line.
const ID: &str = "id";
const RESPONSE: &str = "response";
const ERROR: &str = "error";

/// The most bytes of an answer.
pub(crate) const MOST_ANSWER: usize = 16 << 20;
/// The rows of a chunk, if the job does not set them: a chunk that ends early is asked for again.
pub(crate) const CHUNK_ROWS: u64 = 1000;

/// True if a host that has answered a line with this status may answer another one when it gets the
/// line again: clients of such servers repeat the line.
pub(crate) fn may_pass(status: StatusCode, class: Class) -> bool {
    let is_passing = matches!(status, StatusCode::CONFLICT | StatusCode::LOCKED);
    let is_of_server = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
    is_passing || is_of_server || matches!(class, Class::Unavailable | Class::Overloaded)
}

/// A line as a model: its columns are the inputs, and those of OpenAI's output the outputs.
pub(crate) fn metadata() -> ModelMetadata {
    let tensor = |name: &&str| TensorMetadata {
        name: (*name).to_owned(),
        datatype: DataType::Bytes.as_str().to_owned(),
        shape: vec![-1],
    };
    ModelMetadata {
        inputs: [CUSTOM_ID, METHOD, URL, BODY].iter().map(tensor).collect(),
        outputs: [ID, RESPONSE, ERROR].iter().map(tensor).collect(),
        ..ModelMetadata::default()
    }
}

/// The columns of lines in files of text.
pub(crate) fn columns() -> Vec<TextColumn> {
    let texts = [CUSTOM_ID, METHOD, URL].map(|name| (name, Leaf::Text));
    texts
        .into_iter()
        .chain([(BODY, Leaf::Json)])
        .map(|(name, leaf)| TextColumn::of(name, leaf))
        .collect()
}

/// Marks the columns of the output whose texts are JSON.
pub(crate) fn mark_json(outputs: &mut [OutputColumn]) {
    for output in outputs {
        output.is_json = [RESPONSE, ERROR].contains(&output.tensor.as_str());
    }
}

/// Checks lines. Those that no host would get an answer for are malformed then.
pub(crate) fn check(rows: &mut Rows) {
    let columns = [CUSTOM_ID, METHOD, URL, BODY].map(|name| rows.table.column_by_name(name));
    let mut malformed = std::mem::take(&mut rows.malformed).into_iter().peekable();
    for row in 0..rows.table.num_rows() {
        let fault = match malformed.next_if(|(at, _)| *at == row) {
            Some((_, fault)) => Err(fault),
            None => line::check(columns.map(|column| text(column?, row))),
        };
        if let Err(fault) = fault {
            rows.malformed.push((row, fault));
        }
    }
}

/// The text of a row, if it has one.
fn text(column: &ArrayRef, row: usize) -> Option<&str> {
    if column.is_null(row) {
        return None;
    }
    match column.as_string_opt::<i32>() {
        Some(texts) => Some(texts.value(row)),
        None => str::from_utf8(column.as_binary_opt::<i32>()?.value(row)).ok(),
    }
}

/// The name of a line among rows, if there is one.
pub(crate) fn custom_id(keys: &arrow_array::RecordBatch, row: usize) -> Option<&str> {
    let column = keys.column_by_name(CUSTOM_ID)?;
    (row < column.len()).then(|| text(column, row)).flatten()
}

/// A tensor with one text.
fn one_text(name: &str, text: &str) -> Tensor {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let data = [&length, text.as_bytes()].concat().into();
    Tensor { name: name.into(), datatype: DataType::Bytes, shape: vec![1], data }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, RecordBatch, StringArray};

    use super::*;

    fn rows(bodies: ArrayRef) -> Rows {
        let count = bodies.len();
        let texts = |text: &str| Arc::new(StringArray::from(vec![text; count])) as ArrayRef;
        let table = RecordBatch::try_from_iter_with_nullable([
            (CUSTOM_ID, texts("a"), true),
            (METHOD, texts("POST"), true),
            (URL, texts("/v1/completions"), true),
            (BODY, bodies, true),
        ]);
        Rows { table: table.expect("a table"), malformed: Vec::new() }
    }

    #[test]
    fn malformed_lines_are_found_and_keep_their_first_fault() {
        let bodies = StringArray::from(vec![Some("{}"), None, Some("[]"), Some("{}"), Some("{")]);
        let mut rows = rows(Arc::new(bodies));
        rows.malformed = vec![(3, "cut".to_owned())];
        check(&mut rows);
        let faults: Vec<_> = rows.malformed.iter().map(|(row, it)| (*row, it.as_str())).collect();
        assert_eq!(faults[..2], [(1, "body: there is none"), (2, "body: it is not an object")]);
        assert_eq!((faults[2], faults[3].0, faults.len()), ((3, "cut"), 4, 4));
    }

    #[test]
    fn failures_that_clients_of_language_models_repeat_may_pass() {
        let may_pass = |status: u16| {
            let status = StatusCode::from_u16(status).expect("a status");
            may_pass(status, outrigger_oip_client::class_of_status(status, ""))
        };
        let repeated = [408, 409, 423, 425, 429, 500, 502, 503, 504, 520, 521, 522, 524, 529];
        assert_eq!(repeated.map(may_pass), [true; 14]);
        assert_eq!([400, 401, 403, 404, 413, 422, 501].map(may_pass), [false; 7]);
    }

    #[test]
    fn texts_may_be_binary() {
        let bodies = BinaryArray::from(vec![&b"{}"[..], b"\xff"]);
        let mut rows = rows(Arc::new(bodies));
        check(&mut rows);
        assert_eq!(rows.malformed, [(1, "body: there is none".to_owned())]);
        assert_eq!([0, 2].map(|row| custom_id(&rows.table, row)), [Some("a"), None]);
    }
}
