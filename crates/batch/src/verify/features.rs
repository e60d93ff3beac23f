//! The sample as a file of features.

use std::{fs, path::Path, sync::Arc};

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::DataType as ArrowType;
use outrigger_tables::BatchWriter;

use super::Sampled;
use crate::{
    Error,
    columns::{InputTensor, arrow_type},
    plan::Scoring,
};

/// The columns of the file with the name of a row, the id of a treatment, which is not there, and
/// the score of the job.
pub const ROW: &str = "outrigger.row";
/// The column that would have the id of a treatment.
pub const TREATMENT: &str = "outrigger.treatment";
/// The column with the score of the job.
pub const EXPECTED: &str = "outrigger.expected";

/// The score column that is verified: the one with this name, or the only one.
///
/// # Errors
/// There is no such column, there are several, or its values are no numbers.
pub(super) fn score<'a>(scoring: &'a Scoring, name: Option<&str>) -> Result<&'a str, Error> {
    let names = || {
        let names = scoring.outputs.iter().map(|output| output.column.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let output = match (name, &scoring.outputs[..]) {
        (None, [one]) => one,
        (None, _) => {
            return Err(Error::usage(format!("name the score column; the job has {}", names())));
        }
        (Some(name), outputs) => {
            let found = outputs.iter().find(|output| output.column == name);
            found.ok_or_else(|| {
                Error::usage(format!("the job has no score column {name:?}; it has {}", names()))
            })?
        }
    };
    let of = arrow_type(output.datatype);
    let is_number = output.depth == 0 && !matches!(of, ArrowType::Utf8 | ArrowType::Boolean);
    if is_number {
        return Ok(&output.column);
    }
    Err(Error::usage(format!(
        "the score column {:?} has lists, texts or booleans, and a prediction has one number: \
         verify it with the hosts of the job",
        output.column
    )))
}

/// Refuses tensors whose names say that user and treatment have a feature of the same name: a table
/// of features has one column for both.
///
/// # Errors
/// There is such a tensor.
pub(super) fn check(inputs: &[InputTensor]) -> Result<(), Error> {
    let is_of_both = |name: &str| name.starts_with("user.") || name.starts_with("treatment.");
    match inputs.iter().find(|input| is_of_both(&input.name)) {
        None => Ok(()),
        Some(InputTensor { name, .. }) => Err(Error::usage(format!(
            "the input {name:?} is a feature whose name user and treatment share, which a file of \
             features cannot have: verify the job with its hosts"
        ))),
    }
}

/// The names of the features in the columns of the input: that of the tensor for the only column of
/// one, else that of the column. `None` for a column whose name is that of such a tensor.
fn feature<'a>(inputs: &'a [InputTensor], column: &'a str) -> Option<&'a str> {
    let is_only = |input: &&InputTensor| matches!(&input.columns[..], [one] if one == column);
    match inputs.iter().find(is_only) {
        Some(input) => Some(&input.name),
        None => {
            (!inputs.iter().any(|it| it.name == column && it.columns.len() == 1)).then_some(column)
        }
    }
}

/// A file that is being written.
pub(super) struct File<'a> {
    path: &'a Path,
    scoring: &'a Scoring,
    score: &'a str,
    writer: Option<BatchWriter<fs::File>>,
}

impl<'a> File<'a> {
    pub(super) fn new(path: &'a Path, scoring: &'a Scoring, score: &'a str) -> Self {
        Self { path, scoring, score, writer: None }
    }

    fn failed(&self, error: impl std::fmt::Display) -> Error {
        Error::failed(format!("{}: {error}", self.path.display()))
    }

    /// Writes rows.
    pub(super) fn write(&mut self, sampled: &Sampled) -> Result<(), Error> {
        let table = self.table(sampled)?;
        if self.writer.is_none() {
            let file = fs::File::create(self.path).map_err(|error| self.failed(error))?;
            let writer = BatchWriter::new(file, &table.schema());
            self.writer = Some(writer.map_err(|error| self.failed(error))?);
        }
        let written = self.writer.as_mut().map_or(Ok(()), |writer| writer.write(&table));
        written.map_err(|error| self.failed(error))
    }

    fn table(&self, sampled: &Sampled) -> Result<RecordBatch, Error> {
        let file = sampled.file.display();
        let names = sampled.rows.iter().map(|row| format!("{file}:{row}"));
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
        let expected = sampled.output.column_by_name(self.score);
        let expected = expected
            .ok_or_else(|| Error::failed(format!("the output has no column {:?}", self.score)))?;
        let schema = sampled.input.schema();
        let features = schema.fields().iter().zip(sampled.input.columns());
        let features = features.filter_map(|(field, values)| {
            let name = feature(&self.scoring.inputs, field.name())?;
            Some((name.to_owned(), Arc::clone(values), true))
        });
        let head =
            [(ROW.to_owned(), names, false), (EXPECTED.to_owned(), Arc::clone(expected), true)];
        RecordBatch::try_from_iter_with_nullable(head.into_iter().chain(features))
            .map_err(Error::failed)
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let finished = self.writer.take().map_or(Ok(()), |writer| writer.finish().map(drop));
        finished.map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use outrigger_oip::DataType;
    use outrigger_tables::Format;

    use super::*;
    use crate::columns::OutputColumn;

    fn scoring(outputs: &[(&str, DataType, usize)]) -> Scoring {
        let output = |(name, datatype, depth): &(&str, DataType, usize)| OutputColumn {
            column: (*name).to_owned(),
            tensor: (*name).to_owned(),
            datatype: *datatype,
            depth: *depth,
            sizes: Vec::new(),
            is_json: false,
        };
        Scoring {
            format: Format::Parquet,
            types: Vec::new(),
            protocol: Default::default(),
            output_format: Format::Parquet,
            files: Vec::new(),
            model: "m".to_owned(),
            version: None,
            tag: None,
            is_pinned: false,
            row_by_row: false,
            inputs: Vec::new(),
            keys: Vec::new(),
            outputs: outputs.iter().map(output).collect(),
            chunk_rows: 1,
        }
    }

    #[test]
    fn the_score_is_one_number() {
        let one = scoring(&[("s", DataType::Fp32, 0)]);
        assert_eq!(score(&one, None), Ok("s"));
        let several =
            [("s", DataType::Fp32, 0), ("list", DataType::Fp32, 1), ("text", DataType::Bytes, 0)];
        let several = scoring(&several);
        assert_eq!(score(&several, Some("s")), Ok("s"));
        for (name, fault) in [
            (None, "name the score column"),
            (Some("list"), "has lists"),
            (Some("text"), "has lists, texts"),
            (Some("t"), "no score column"),
        ] {
            let error = score(&several, name).expect_err(fault).to_string();
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn features_have_the_names_of_their_tensors() {
        let input = |name: &str, columns: &[&str]| InputTensor {
            name: name.to_owned(),
            datatype: DataType::Fp32,
            row: Vec::new(),
            is_optional: false,
            columns: columns.iter().map(ToString::to_string).collect(),
        };
        let inputs = [input("age", &["years"]), input("x", &["a", "b"])];
        assert_eq!(feature(&inputs, "years"), Some("age"));
        assert_eq!(feature(&inputs, "a"), Some("a"));
        assert_eq!(feature(&inputs, "id"), Some("id"));
        assert_eq!(feature(&inputs, "age"), None, "it would be there twice");
        assert_eq!(check(&inputs), Ok(()));
        let error = check(&[input("user.age", &["age"])]).expect_err("it is of both").to_string();
        assert!(error.contains("user.age"), "{error}");
    }
}
