//! The files of the input, and the rows that they have.

mod places;

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_schema::SchemaRef;
use outrigger_tables::{Format, Limits, Root, Stat, Table};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    store::{Address, Object, Patience},
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
    /// The number of rows to score.
    pub(crate) rows: u64,
    /// The ranges of these rows in the file; none if all of its rows are scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) picked: Vec<Range<u64>>,
}

impl InputFile {
    /// The ranges of the file that have the rows at these positions among those to score.
    pub(crate) fn ranges(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        if self.picked.is_empty() {
            return vec![positions];
        }
        let (mut before, mut ranges) = (0, Vec::new());
        for range in &self.picked {
            let next = before + (range.end - range.start);
            let (from, to) = (positions.start.max(before), positions.end.min(next));
            if from < to {
                ranges.push(range.start + from - before..range.start + to - before);
            }
            before = next;
        }
        ranges
    }

    /// True if another description is that of the same content.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.size, self.modified, &self.tag) == (other.size, other.modified, &other.tag)
    }

    /// The number in the file of the row at a position among those to score.
    pub(crate) fn row(&self, position: u64) -> u64 {
        self.ranges(position..position + 1).first().map_or(position, |range| range.start)
    }
}

/// The files of a job, in order, and their columns.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) files: Vec<InputFile>,
    pub(crate) schema: SchemaRef,
}

/// The memory for the pages of one open file, in bytes.
pub(crate) const PAGES: u64 = 16 << 20;

impl Input {
    /// Finds the files and reads their footers.
    ///
    /// # Errors
    /// There are none, one cannot be read, or they have different columns.
    pub(crate) fn find(patterns: &[String]) -> Result<Self, Error> {
        let mut paths = Vec::new();
        for pattern in patterns {
            paths.extend(matching(pattern)?);
        }
        Self::of(paths)
    }

    /// The rows of these files that `picked` names by the file.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn picked(picked: BTreeMap<PathBuf, Vec<Range<u64>>>) -> Result<Self, Error> {
        let mut input = Self::of(picked.keys().cloned().collect())?;
        for (file, ranges) in input.files.iter_mut().zip(picked.into_values()) {
            file.rows = ranges.iter().map(|range| range.end - range.start).sum();
            file.picked = ranges;
        }
        Ok(input)
    }

    fn of(paths: Vec<PathBuf>) -> Result<Self, Error> {
        let mut files = Vec::with_capacity(paths.len());
        let mut columns: Option<(PathBuf, SchemaRef)> = None;
        for path in paths {
            let table = open(&path)?;
            match &columns {
                None => columns = Some((path.clone(), table.schema().clone())),
                Some((_, schema)) if schema.fields() == table.schema().fields() => {}
                Some((first, _)) => {
                    let (first, path) = (first.display(), path.display());
                    return Err(Error::usage(format!(
                        "input: {path} has other columns than {first}"
                    )));
                }
            }
            files.push(described(path, &table)?);
        }
        let (_, schema) = columns.ok_or_else(|| Error::usage("input: there are no files"))?;
        Ok(Self { files, schema })
    }
}

/// Opens a file of the input.
///
/// # Errors
/// It cannot be opened, or is not of a known format.
pub(crate) fn open(path: &Path) -> Result<Table, Error> {
    open_within(path, &Patience::default())
}

/// Opens a file of the input, and reads it with `patience` if it is in a store that is away.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_within(path: &Path, patience: &Patience) -> Result<Table, Error> {
    match Format::of(path) {
        Some(Format::Parquet) => {}
        _ => {
            let path = path.display();
            return Err(Error::usage(format!("input: {path} does not end with .parquet")));
        }
    }
    let limits = Limits { pages: PAGES * 16, ..Limits::default() };
    let table = match Address::of(path).map_err(refused)? {
        None => Table::open(&Root::Any, path, limits),
        Some(address) => {
            let objects = address.objects().map_err(refused)?;
            let object = Object::open(objects, &address.key, patience);
            let object = object.map_err(|failure| refused(format!("{address}: {failure}")))?;
            Table::elsewhere(Arc::new(object), path, limits)
        }
    };
    table.map_err(refused)
}

fn refused(problem: impl std::fmt::Display) -> Error {
    Error::usage(format!("input: {problem}"))
}

/// True if the open file is the one that was planned.
pub(crate) fn is_unchanged(planned: &InputFile, table: &Table) -> bool {
    described(planned.path.clone(), table).is_ok_and(|found| found.is_same(planned))
}

fn described(path: PathBuf, table: &Table) -> Result<InputFile, Error> {
    let stat =
        table.stat().map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
    let Stat { size, modified, tag } = stat;
    Ok(InputFile { size, modified, tag, rows: table.rows(), path, picked: Vec::new() })
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
    let unreadable =
        |error: std::io::Error| Error::usage(format!("input: {}: {error}", directory.display()));
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
        let picked = Vec::new();
        let mut file =
            InputFile { path: "a".into(), size: 0, modified: 0, tag: None, rows: 6, picked };
        assert_eq!(file.ranges(2..5), std::slice::from_ref(&(2..5)));
        assert_eq!(file.row(3), 3);
        file.picked = vec![4..5, 7..10, 20..22];
        assert_eq!(file.ranges(0..6), file.picked);
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
        let refused = Input::find(&[path("c.txt").to_string_lossy().into_owned()]);
        assert!(matches!(refused, Err(Error::Usage(message)) if message.contains("c.txt")));
    }
}
