//! The files of the input, and the rows that they have.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use arrow_schema::SchemaRef;
use outrigger_tables::{Format, Limits, Root, Table};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A file as it was when the job was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InputFile {
    pub(crate) path: PathBuf,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// The time of its last modification, in nanoseconds since 1970.
    pub(crate) modified: u64,
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
    match Format::of(path) {
        Some(Format::Parquet) => {}
        _ => {
            let path = path.display();
            return Err(Error::usage(format!("input: {path} does not end with .parquet")));
        }
    }
    let limits = Limits { pages: PAGES * 16, ..Limits::default() };
    Table::open(&Root::Any, path, limits).map_err(|error| Error::usage(format!("input: {error}")))
}

/// True if the open file is the one that was planned.
pub(crate) fn is_unchanged(planned: &InputFile, table: &Table) -> bool {
    let found = described(planned.path.clone(), table);
    found.is_ok_and(|found| (found.size, found.modified) == (planned.size, planned.modified))
}

fn described(path: PathBuf, table: &Table) -> Result<InputFile, Error> {
    let stat =
        table.stat().map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
    let modified = stat.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    Ok(InputFile { size: stat.len(), modified, rows: table.rows(), path, picked: Vec::new() })
}

/// The files that a path names, in order. The last part of the path may have `*` and `?`.
fn matching(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let path = Path::new(pattern);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.contains(['*', '?']) || path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let refused =
        |error: std::io::Error| Error::usage(format!("input: {}: {error}", directory.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(refused)? {
        let entry = entry.map_err(refused)?;
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
        let mut file =
            InputFile { path: "a".into(), size: 0, modified: 0, rows: 6, picked: Vec::new() };
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
