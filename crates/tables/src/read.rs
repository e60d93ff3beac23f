//! Reading.

pub(crate) mod blob;
pub(crate) mod csv;
pub(crate) mod parquet;
mod text;

use std::path::{Path, PathBuf};

use crate::{
    Cell, Column, Error, Format, LeftOut, Limits, Names, Root, error::Cause, format::partitions,
};

/// One row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// Its position in the file, counted from 1. A header and blank lines are not counted.
    pub number: u64,
    /// The names of its columns, each of which occurs once.
    pub names: Names,
    /// The values, one for each name.
    pub cells: Vec<Cell>,
}

/// A row that cannot be read, although the rows after it can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Its position in the file, counted from 1.
    pub number: u64,
    /// The cause.
    pub message: String,
}

/// A row whose names and cells were read, or the reason why it cannot be read.
type Parsed = Result<(), String>;

/// Reads a file one row at a time.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    /// The last row. Its memory is used again for the next one.
    row: Row,
    source: Source,
    left_out: Vec<LeftOut>,
}

#[derive(Debug)]
enum Source {
    Text(Box<text::Source>),
    Parquet(Box<parquet::Source>),
}

impl Reader {
    /// Opens the file at a path that leads to `root`.
    ///
    /// # Errors
    /// The file cannot be opened, or its header is not valid.
    pub fn open(root: &Root, path: &Path, format: Format, limits: Limits) -> Result<Self, Error> {
        let open = || -> Result<Source, Cause> {
            let file = root.open(path)?;
            Ok(match format {
                Format::Parquet => Source::Parquet(Box::new(parquet::Source::new(file, &limits)?)),
                format => Source::Text(Box::new(text::Source::new(file, format, &limits)?)),
            })
        };
        let source = open().map_err(|cause| Error::new(path, cause))?;
        let mut reader =
            Self { path: path.to_owned(), row: Row::default(), source, left_out: Vec::new() };
        if let Source::Parquet(source) = &reader.source {
            reader.left_out = source.left_out().to_vec();
        }
        let columns = reader.columns();
        let is_column = |name: &&str| {
            columns.is_none_or(|columns| columns.iter().any(|column| *column.name == **name))
        };
        let of_path = partitions(path).filter(|name| !is_column(name));
        let of = "a part of the file's path".to_owned();
        let of_path = of_path.map(|name| LeftOut { name: name.into(), of: of.clone() });
        let of_path: Vec<_> = of_path.collect();
        reader.left_out.extend(of_path);
        Ok(reader)
    }

    /// The columns of all rows; `None` if each row names its own.
    pub fn columns(&self) -> Option<&[Column]> {
        match &self.source {
            Source::Text(source) => source.columns(),
            Source::Parquet(source) => Some(source.columns()),
        }
    }

    /// The columns that are not read: cells have no such type (dates, for example), or directories are
    /// named after their values (`day=2026-11-29`).
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The part of the file that has been read, from 0 to 1, for a progress bar.
    pub fn fraction(&self) -> f64 {
        let (read, size) = match &self.source {
            Source::Text(source) => source.position(),
            Source::Parquet(source) => source.position(),
        };
        if size == 0 { 1.0 } else { (read as f64 / size as f64).min(1.0) }
    }

    /// The next row; `None` at the end. Its cells may be taken out.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub fn read(&mut self) -> Result<Option<Result<&mut Row, Malformed>>, Error> {
        let Self { path, row, source, .. } = self;
        let number = row.number + 1;
        let parsed = match source {
            Source::Text(source) => source.read(row),
            Source::Parquet(source) => source.read(row),
        };
        let parsed = parsed.map_err(|cause| Error::new(path, cause.at_row(number)))?;
        let Some(parsed) = parsed else { return Ok(None) };
        row.number = number;
        Ok(Some(match parsed {
            Ok(()) => Ok(row),
            Err(message) => Err(Malformed { number, message }),
        }))
    }
}

#[cfg(test)]
mod tests;
