//! The files of the input, and the rows that they have.

mod open;
mod paths;
mod pattern;
mod picked;
mod places;
mod rows;
mod text;

use std::{
    collections::BTreeMap,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_schema::{FieldRef, Schema, SchemaRef};
use outrigger_tables::{Format, Index, Stat, TextColumn, partitions};
use serde::{Deserialize, Serialize};

use self::{
    open::{OpenFile, refused},
    pattern::matching,
};
pub(crate) use self::{
    paths::{absolute, check_apart},
    picked::Picked,
    rows::{Reading, Rows},
};
use crate::{
    Error, Job,
    columns::InputTensor,
    plan::Scoring,
    store::{Patience, is_address},
};

/// A file as it was when the job was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InputFile {
    pub(crate) path: PathBuf,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// The time of its last modification, in nanoseconds since 1970.
    pub(crate) modified: u64,
    /// The ETag of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
    /// The number of rows to score; 0 for text until it is scanned.
    pub(crate) rows: u64,
    /// The ranges of these rows in the file; none if all of its rows are scored.
    #[serde(default, skip_serializing_if = "Picked::is_empty")]
    pub(crate) picked: Picked,
    /// The positions of rows in a file of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<Arc<Index>>,
}

impl InputFile {
    /// True if both are the same rows of the same file.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // A plan may have a path from the directory in which the job was planned.
        let is_path = self.path == other.path
            || std::path::absolute(&self.path).is_ok_and(|path| path == other.path);
        self.is_unchanged(other) && is_path && self.picked == other.picked
    }

    /// True if the file has the same size, time and ETag.
    pub(crate) fn is_unchanged(&self, other: &Self) -> bool {
        (self.size, self.modified, &self.tag) == (other.size, other.modified, &other.tag)
    }

    /// Checks that the path still leads to the file that was planned. That of an object is compared
    /// when it is opened.
    ///
    /// # Errors
    /// It does not.
    fn check(&self) -> Result<(), Error> {
        match is_address(&self.path) {
            true => Ok(()),
            false => self.compare(fs::metadata(&self.path).map(|found| Stat::of(&found))),
        }
    }

    fn compare(&self, stat: io::Result<Stat>) -> Result<(), Error> {
        let path = self.path.display();
        let Stat { size, modified, tag } =
            stat.map_err(|error| Error::failed(format!("{path}: {error}")))?;
        match (size, modified, &tag) == (self.size, self.modified, &self.tag) {
            true => Ok(()),
            false => Err(Error::failed(format!("{path} has changed since the job was planned"))),
        }
    }

    /// The ranges of the file that have the rows at these positions among those to score.
    pub(crate) fn ranges(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        if self.picked.is_empty() {
            return vec![positions];
        }
        self.picked.ranges(positions)
    }

    /// The file with one of its rows, by the row's number in the file.
    pub(crate) fn with_row(&self, row: u64) -> Self {
        let picked: Vec<_> = std::iter::once(row..row + 1).collect();
        Self { rows: 1, picked: picked.into(), ..self.clone() }
    }

    /// The number in the file of the row at a position among those to score.
    pub(crate) fn row(&self, position: u64) -> u64 {
        self.picked.row(position).unwrap_or(position)
    }
}

/// The files of a job, in order.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) files: Vec<InputFile>,
    pub(crate) format: Format,
    /// The columns of Parquet; text is not read before the model is known.
    schema: Option<SchemaRef>,
    /// The columns that not all files of Parquet have, each with a file that lacks it.
    partial: BTreeMap<String, PathBuf>,
    /// The columns of text whose types another job has found.
    known: Vec<TextColumn>,
    /// Rows that another job has scored, each as its file, to be tried if the input's are at fault.
    pub(crate) scored: Vec<InputFile>,
}

/// The files of a job with their rows and columns.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) files: Vec<InputFile>,
    pub(crate) schema: SchemaRef,
    /// The columns of text.
    pub(crate) columns: Vec<TextColumn>,
}

/// The memory for the pages of one open file, or for the rows of text that are decoded together, in
/// bytes.
pub(crate) const PAGES: u64 = 16 << 20;

impl Input {
    /// Finds the files, and reads the footers of Parquet. Their format is that of their names if
    /// `format` is `None`.
    ///
    /// # Errors
    /// There are none, one cannot be read, or they have different columns or formats.
    pub(crate) fn find(patterns: &[String], format: Option<Format>) -> Result<Self, Error> {
        let mut paths = Vec::new();
        for pattern in patterns {
            paths.extend(matching(pattern)?);
        }
        Self::of(paths, format)
    }

    /// The rows of files of another job that `picked` names by the file.
    ///
    /// # Errors
    /// As [`find`](Self::find), or a file has changed.
    pub(crate) fn picked(
        picked: BTreeMap<PathBuf, Vec<Range<u64>>>,
        first: &Scoring,
    ) -> Result<Self, Error> {
        let mut input = Self::of(picked.keys().cloned().collect(), Some(first.format))?;
        for (file, ranges) in input.files.iter_mut().zip(picked.into_values()) {
            let planned = first.files.iter().find(|planned| planned.path == file.path);
            let planned = planned.filter(|planned| planned.is_unchanged(file));
            let planned = planned.ok_or_else(|| {
                let path = file.path.display();
                Error::usage(format!("retry: {path} has changed since the first job"))
            })?;
            file.picked = ranges.into();
            file.rows = file.picked.rows();
            file.index.clone_from(&planned.index);
        }
        input.known.clone_from(&first.types);
        Ok(input)
    }

    /// The input, whose columns of text with these names have these types.
    #[must_use]
    pub(crate) fn with_types(mut self, types: Vec<TextColumn>) -> Self {
        self.known = types;
        self
    }

    fn of(paths: Vec<PathBuf>, given: Option<Format>) -> Result<Self, Error> {
        let mut files = Vec::with_capacity(paths.len());
        let (mut first, mut partial) = (None::<(PathBuf, Format)>, BTreeMap::new());
        let mut common: Option<SchemaRef> = None;
        for path in paths {
            let format = given.map_or_else(|| format_of(&path), Ok)?;
            let file = OpenFile::new(&path, format, &Patience::default())?;
            let schema = match &file {
                OpenFile::Parquet(table) => Some(table.schema()),
                OpenFile::Text(_) => None,
            };
            match &first {
                None => {
                    (first, common) = (Some((path.clone(), format)), schema.cloned());
                }
                Some((first, other)) if *other != format => {
                    let (first, path) = (first.display(), path.display());
                    return Err(Error::usage(format!(
                        "input: {first} is {other} and {path} is {format}: a job has one format"
                    )));
                }
                Some((first, _)) => {
                    if let (Some(expected), Some(schema)) = (&common, schema) {
                        check_types((first, expected), (&path, schema))?;
                        partial.extend(missing(expected, (&path, schema)));
                        partial.extend(missing(schema, (first, expected)));
                    }
                }
            }
            files.push(file.planned(path)?);
        }
        let (_, format) = first.ok_or_else(|| Error::usage("input: there are no files"))?;
        Ok(Self { files, format, schema: common, partial, known: Vec::new(), scored: Vec::new() })
    }

    /// The rows and the columns of the files. Text is read as a whole, unless another job has done
    /// so. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or its columns do not match the model or the job.
    pub(crate) fn describe(self, tensors: &[InputTensor], job: &Job) -> Result<Described, Error> {
        let described = self.described(tensors, job)?;
        let lacks = |name: &&str| described.schema.field_with_name(name).is_err();
        let columns = tensors.iter().flat_map(|tensor| &tensor.columns);
        let used: Vec<_> =
            columns.chain(job.keys.iter().flatten()).map(String::as_str).filter(lacks).collect();
        let partition = |file: &InputFile| {
            let name = partitions(&file.path).find(|name| used.contains(name));
            name.map(|name| (name.to_owned(), file.path.display().to_string()))
        };
        match described.files.iter().find_map(partition) {
            None => Ok(described),
            Some((name, path)) => Err(Error::usage(format!(
                "input: {path}: {name:?} is a part of the path and no column of the file: parts of \
                 paths are not read, so write it as a column"
            ))),
        }
    }

    fn described(self, tensors: &[InputTensor], job: &Job) -> Result<Described, Error> {
        match self.schema {
            None => text::describe(self, tensors, job),
            Some(_) if !job.columns.is_empty() => {
                Err(Error::usage("columns: Parquet states the types of its columns"))
            }
            Some(schema) => {
                let keys = job.keys.iter().flatten();
                let used = tensors.iter().flat_map(|tensor| &tensor.columns).chain(keys);
                let partial = used.filter_map(|name| self.partial.get_key_value(name)).next();
                if let Some((name, path)) = partial {
                    return Err(lacking(path, name));
                }
                let fields = schema.fields().iter();
                let fields = fields.filter(|field| !self.partial.contains_key(field.name()));
                let schema = Schema::new(fields.cloned().collect::<Vec<_>>());
                Ok(Described { files: self.files, schema: schema.into(), columns: Vec::new() })
            }
        }
    }
}

/// The error of a file without a column that is used.
fn lacking(path: &Path, name: &str) -> Error {
    let path = path.display();
    Error::usage(format!("input: {path} has no column {name:?}, which other files have"))
}

/// A file, and its columns.
type Columns<'a> = (&'a Path, &'a Schema);

/// Checks that columns of one name have one type in both files. Their order may differ, and absent
/// values may be allowed in one of them.
///
/// # Errors
/// The types of a column differ.
fn check_types((first, expected): Columns<'_>, (path, schema): Columns<'_>) -> Result<(), Error> {
    for field in schema.fields() {
        let Ok(other) = expected.field_with_name(field.name()) else { continue };
        let name = field.name();
        let of = field.data_type();
        let other = other.data_type();
        if of != other {
            let first = first.display();
            let path = path.display();
            return Err(Error::usage(format!(
                "input: the column {name:?} is {other} in {first} and {of} in {path}"
            )));
        }
    }
    Ok(())
}

/// The columns that a file lacks, with the file.
fn missing<'a>(
    expected: &'a Schema,
    (path, schema): Columns<'a>,
) -> impl Iterator<Item = (String, PathBuf)> {
    let fields = expected.fields().iter().map(|field| field.name());
    let lacking = fields.filter(|name| schema.field_with_name(name).is_err());
    lacking.map(|name| (name.clone(), path.to_owned()))
}

/// The format that a file's name states.
fn format_of(path: &Path) -> Result<Format, Error> {
    Format::of(path).ok_or_else(|| {
        let (path, endings) = (path.display(), Format::endings());
        Error::usage(format!(
            "input: {path} does not end with one of {endings}: state its format. Files that are \
             compressed as a whole are not read"
        ))
    })
}

/// The columns of the input that the output has too.
///
/// # Errors
/// A file of Parquet cannot be read.
pub(crate) fn key_fields(scoring: &Scoring) -> Result<Vec<FieldRef>, Error> {
    let text = |name: &String| {
        let column = scoring.types.iter().find(|column| column.name == *name);
        column.map(|column| FieldRef::new(column.field()))
    };
    let schema = match (scoring.format, scoring.files.first()) {
        (Format::Parquet, Some(file)) => {
            match OpenFile::new(&file.path, scoring.format, &Patience::default())? {
                OpenFile::Parquet(table) => Some(Arc::clone(table.schema())),
                OpenFile::Text(_) => None,
            }
        }
        _ => None,
    };
    let field = |name: &String| {
        let found = schema.as_ref().and_then(|schema| schema.fields().find(name));
        // Another file may have absent values.
        let found =
            found.map(|(_, field)| FieldRef::new(field.as_ref().clone().with_nullable(true)));
        let found = found.or_else(|| text(name));
        found.ok_or_else(|| Error::failed(format!("there is no column {name:?}")))
    };
    scoring.keys.iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
    use outrigger_oip::DataType;
    use outrigger_tables::BatchWriter;

    use super::*;

    #[test]
    fn positions_are_those_of_the_picked_rows() {
        let mut file = InputFile {
            path: "a".into(),
            size: 0,
            modified: 0,
            tag: None,
            rows: 6,
            picked: Picked::default(),
            index: None,
        };
        assert_eq!(file.ranges(2..5), std::slice::from_ref(&(2..5)));
        assert_eq!(file.row(3), 3);
        let ranges = vec![4..5, 7..10, 20..22];
        file.picked = ranges.clone().into();
        assert_eq!(file.ranges(0..6), ranges);
        assert_eq!(file.ranges(2..5), [8..10, 20..21]);
        assert_eq!(file.ranges(1..4), std::slice::from_ref(&(7..10)));
        assert_eq!([0, 1, 3, 5].map(|position| file.row(position)), [4, 7, 9, 21]);
    }

    #[test]
    fn files_are_found_in_order_and_none_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["b.parquet", "a.parquet", "c.txt"] {
            fs::write(path(name), "").expect("a file");
        }
        let pattern = path("*.parquet").to_string_lossy().into_owned();
        assert_eq!(matching(&pattern), Ok(vec![path("a.parquet"), path("b.parquet")]));
        assert!(matching(&path("*.csv").to_string_lossy()).is_err());
        for name in ["day=1/a.csv", "day=2/b.csv", ".day=3/c.csv", "day=4.csv"] {
            fs::create_dir_all(path(name).parent().expect("a parent")).expect("a directory");
            fs::write(path(name), "").expect("a file");
        }
        let pattern = path("d*=?/*.csv").to_string_lossy().into_owned();
        assert_eq!(matching(&pattern), Ok(vec![path("day=1/a.csv"), path("day=2/b.csv")]));
        let refused = Input::find(&[path("c.txt").to_string_lossy().into_owned()], None);
        assert!(matches!(refused, Err(Error::Usage(message)) if message.contains("c.txt")));
    }

    fn parquet(path: &Path, columns: &[(&str, ArrayRef, bool)]) {
        let rows = RecordBatch::try_from_iter_with_nullable(columns.iter().cloned());
        let rows = rows.expect("a table");
        let file = fs::File::create(path).expect("a file");
        let mut writer = BatchWriter::new(file, &rows.schema()).expect("a writer");
        writer.write(&rows).expect("written");
        writer.finish().expect("finished");
    }

    #[test]
    fn files_are_one_dataset_if_the_columns_that_count_are_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let numbers: ArrayRef = Arc::new(Float32Array::from(vec![1.0]));
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let path = |name: &str| directory.path().join(name);
        let pattern = path("*.parquet").to_string_lossy().into_owned();
        let described = |second: &[(&str, ArrayRef, bool)], setting: &str| {
            let first = [("id", ids.clone(), false), ("x", numbers.clone(), true)];
            parquet(&path("a.parquet"), &first);
            parquet(&path("b.parquet"), second);
            let job = Job::read(&format!("input: a\noutput: o\nmodel: m\nhosts: h\n{setting}"));
            let tensor = InputTensor {
                name: "x".to_owned(),
                datatype: DataType::Fp32,
                row: Vec::new(),
                columns: vec!["x".to_owned()],
                is_optional: true,
            };
            let input = Input::find(std::slice::from_ref(&pattern), None)?;
            let described = input.describe(&[tensor], &job.expect("a job"))?;
            Ok::<_, Error>(described.schema.fields().iter().map(|it| it.name().clone()).collect())
        };
        let x = || ("x", numbers.clone(), false);
        let id = || ("id", ids.clone(), true);
        let more = || ("more", ids.clone(), true);
        assert_eq!(described(&[x(), id()], ""), Ok(vec!["id".to_owned(), "x".to_owned()]));
        assert_eq!(described(&[more(), x()], ""), Ok(vec!["x".to_owned()]));
        for (second, setting, fault) in [
            (vec![id()], "", "b.parquet has no column \"x\""),
            (vec![x(), more()], "keys: [more]", "a.parquet has no column \"more\""),
            (vec![("x", ids.clone(), true)], "", "the column \"x\" is Float32 in"),
        ] {
            let refused = described(&second, setting).expect_err(fault).to_string();
            assert!(refused.contains(fault), "{refused}");
        }
    }

    #[test]
    fn a_part_of_the_path_is_no_column() {
        let directory = tempfile::tempdir().expect("a directory");
        let partition = directory.path().join("x=1");
        fs::create_dir(&partition).expect("a directory");
        let numbers: ArrayRef = Arc::new(Float32Array::from(vec![1.0]));
        parquet(&partition.join("a.parquet"), &[("id", numbers, true)]);
        let pattern = directory.path().join("*/*.parquet").to_string_lossy().into_owned();
        let described = |name: &str| {
            let tensor = InputTensor {
                name: name.to_owned(),
                datatype: DataType::Fp32,
                row: Vec::new(),
                columns: vec![name.to_owned()],
                is_optional: true,
            };
            let job = Job::read("input: a\noutput: o\nmodel: m\nhosts: h\n").expect("a job");
            Input::find(std::slice::from_ref(&pattern), None)?.describe(&[tensor], &job)
        };
        let refused = described("x").expect_err("it would be absent").to_string();
        assert!(refused.contains("\"x\" is a part of the path"), "{refused}");
        assert!(described("y").is_ok() && described("id").is_ok());
    }
}
