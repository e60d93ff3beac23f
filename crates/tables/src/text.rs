//! Files of text, CSV and JSON Lines, whose rows are read in ranges as arrays of their columns.
//!
//! A file is scanned once. The [`Scan`] has the number of its rows, an [`Index`] of positions from
//! which rows can be read, and the types of its columns, which all rows have decided. A value that
//! the type of its column cannot hold makes its row malformed, and no other.

mod builder;
mod column;
mod found;
mod index;
mod parser;
mod reader;
mod rows;
mod scan;
mod source;
mod values;

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use self::reader::{Reader, Record};
use self::source::Elsewhere;
pub use self::{
    column::{Leaf, Lists, TextColumn, is_json},
    found::Found,
    index::Index,
    rows::{TextBatch, TextRows},
    scan::{Infer, Scan, Seen, Wanted},
    source::Source,
};
use crate::{Error, Format, Limits, ReadAt, Root, Stat, error::Cause};

/// A file of text: CSV or JSON Lines.
#[derive(Debug, Clone)]
pub struct TextFile {
    path: PathBuf,
    source: Arc<dyn Source>,
    format: Format,
    limits: Limits,
}

impl TextFile {
    /// Opens the file at a path that leads to `root`. Nothing is read.
    ///
    /// # Errors
    /// The file cannot be opened, or is of a format that is not text.
    pub fn open(root: &Root, path: &Path, format: Format, limits: Limits) -> Result<Self, Error> {
        let open = || Self::of(Arc::new(root.open(path)?), path, format, limits);
        open().map_err(|cause| Error::new(path, cause))
    }

    /// The file with these bytes elsewhere. They are read in ranges of at most 4 MiB, of which each
    /// reader holds one. `path` is their name in errors. Nothing is read.
    ///
    /// # Errors
    /// The format is not text.
    pub fn elsewhere(
        source: Arc<dyn ReadAt>,
        path: &Path,
        format: Format,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::of(Arc::new(Elsewhere(source)), path, format, limits)
            .map_err(|cause| Error::new(path, cause))
    }

    fn of(
        source: Arc<dyn Source>,
        path: &Path,
        format: Format,
        limits: Limits,
    ) -> Result<Self, Cause> {
        match format {
            Format::Parquet => Err(Cause::of("Parquet is no text")),
            _ => Ok(Self { path: path.to_owned(), source, format, limits }),
        }
    }

    /// The size and the identity of the open file's content.
    ///
    /// # Errors
    /// The file system failed.
    pub fn stat(&self) -> io::Result<Stat> {
        self.source.stat()
    }

    /// Reads all rows once, to count them and to find their columns. Holds one row at a time.
    ///
    /// # Errors
    /// The file cannot be read to its end.
    pub fn scan(&self, wanted: &Wanted) -> Result<Scan, Error> {
        scan::scan(&self.source, self.format, &self.limits, wanted)
            .map_err(|cause| Error::new(&self.path, cause))
    }

    /// The rows of `ranges`, which are in order and do not overlap, with these columns in their
    /// order. `index` is that of the scan. A row of JSON Lines without one of the columns has no
    /// value in it.
    ///
    /// # Errors
    /// The file cannot be read, or is CSV without one of the columns.
    pub fn read(
        &self,
        index: &Arc<Index>,
        ranges: &[Range<u64>],
        columns: &[TextColumn],
    ) -> Result<TextRows, Error> {
        rows::TextRows::new(self, Arc::clone(index), ranges, columns)
            .map_err(|cause| Error::new(&self.path, cause))
    }
}

#[cfg(test)]
mod tests;
