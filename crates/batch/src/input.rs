//! The files of the input, and the rows that they have.

mod open;
mod paths;
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

use arrow_schema::{FieldRef, SchemaRef};
use outrigger_tables::{Format, Index, Stat, TextColumn};
use serde::{Deserialize, Serialize};

use self::open::{OpenFile, refused, unreadable};
pub(crate) use self::{
    paths::{absolute, check_apart},
    picked::Picked,
    rows::{Reading, Rows},
};
use crate::{
    Error, Job,
    columns::InputTensor,
    plan::Scoring,
    store::{Address, Patience, is_address},
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
        let mut columns: Option<(PathBuf, Format, Option<SchemaRef>)> = None;
        for path in paths {
            let format = given.map_or_else(|| format_of(&path), Ok)?;
            let file = OpenFile::new(&path, format, &Patience::default())?;
            let schema = match &file {
                OpenFile::Parquet(table) => Some(table.schema()),
                OpenFile::Text(_) => None,
            };
            match &columns {
                None => columns = Some((path.clone(), format, schema.cloned())),
                Some((first, other, _)) if *other != format => {
                    let (first, path) = (first.display(), path.display());
                    return Err(Error::usage(format!(
                        "input: {first} is {other} and {path} is {format}: a job has one format"
                    )));
                }
                Some((first, _, expected)) => {
                    let has_same = expected.as_ref().map(|it| it.fields())
                        == schema.map(|schema| schema.fields());
                    if !has_same {
                        let (first, path) = (first.display(), path.display());
                        return Err(Error::usage(format!(
                            "input: {path} has other columns than {first}"
                        )));
                    }
                }
            }
            files.push(file.planned(path)?);
        }
        let (_, format, schema) =
            columns.ok_or_else(|| Error::usage("input: there are no files"))?;
        Ok(Self { files, format, schema, known: Vec::new(), scored: Vec::new() })
    }

    /// The rows and the columns of the files. Text is read as a whole, unless another job has done
    /// so. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or its columns do not match the model or the job.
    pub(crate) fn describe(self, tensors: &[InputTensor], job: &Job) -> Result<Described, Error> {
        match self.schema {
            None => text::describe(self, tensors, job),
            Some(_) if !job.columns.is_empty() => {
                Err(Error::usage("columns: Parquet states the types of its columns"))
            }
            Some(schema) => Ok(Described { files: self.files, schema, columns: Vec::new() }),
        }
    }
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
        let found = found.map(|(_, field)| Arc::clone(field)).or_else(|| text(name));
        found.ok_or_else(|| Error::failed(format!("there is no column {name:?}")))
    };
    scoring.keys.iter().map(field).collect()
}

/// The files that a path or an address names, in order: one, those that match the last part of it
/// with `*` and `?`, or those in a directory.
fn matching(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let path = Path::new(pattern);
    if let Some(address) = Address::of(path).map_err(refused)? {
        return places::objects(pattern, &address);
    }
    if path.is_dir() {
        return places::files(path);
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.contains(['*', '?']) || path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let unreadable = |error: io::Error| unreadable(directory.display(), &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let is_match = entry.file_name().to_str().is_some_and(|found| matches(name, found));
        if is_match && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    if found.is_empty() {
        return Err(Error::usage(format!("input: no file matches {pattern:?}")));
    }
    found.sort_unstable();
    Ok(found)
}

/// True if a name matches a pattern, where `*` stands for any letters and `?` for one. A name that
/// begins with a dot is not matched.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let name: Vec<char> = name.chars().collect();
    // For each number of letters, true if the pattern so far matches them.
    let mut ends = vec![false; name.len() + 1];
    ends[0] = true;
    for letter in pattern.chars() {
        if letter == '*' {
            for end in 1..ends.len() {
                ends[end] |= ends[end - 1];
            }
            continue;
        }
        for end in (1..ends.len()).rev() {
            ends[end] = ends[end - 1] && (letter == '?' || letter == name[end - 1]);
        }
        ends[0] = false;
    }
    ends[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, expected) in [
            ("*.parquet", "a.parquet", true),
            ("*.parquet", "a.parquet.tmp", false),
            ("*.parquet", ".a.parquet", false),
            ("part-??.p*", "part-01.parquet", true),
            ("part-??.p*", "part-1.parquet", false),
            ("*a*b*", "xxaxbx", true),
            ("*a*b*", "xxbxa", false),
            ("?", "数", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

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
        let refused = Input::find(&[path("c.txt").to_string_lossy().into_owned()], None);
        assert!(matches!(refused, Err(Error::Usage(message)) if message.contains("c.txt")));
    }
}
