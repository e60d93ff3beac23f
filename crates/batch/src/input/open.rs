//! Open files of the input.

use std::{
    fs::Metadata,
    io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use outrigger_tables::{Format, Limits, Root, Table, TextFile};

use super::{InputFile, PAGES};
use crate::Error;

/// An open file of the input.
#[derive(Debug)]
pub(super) enum OpenFile {
    Parquet(Table),
    Text(TextFile),
}

impl OpenFile {
    /// Opens a file of the input.
    ///
    /// # Errors
    /// It cannot be opened, or its footer is not valid.
    pub(super) fn new(path: &Path, format: Format) -> Result<Self, Error> {
        let limits = Limits { pages: PAGES * 16, ..Limits::default() };
        let open = match format {
            Format::Parquet => Table::open(&Root::Any, path, limits).map(Self::Parquet),
            text => TextFile::open(&Root::Any, path, text, limits).map(Self::Text),
        };
        open.map_err(|error| Error::usage(format!("input: {error}")))
    }

    fn stat(&self) -> io::Result<Metadata> {
        match self {
            Self::Parquet(table) => table.stat(),
            Self::Text(text) => text.stat(),
        }
    }

    /// The file as it is now.
    pub(super) fn planned(&self, path: PathBuf) -> Result<InputFile, Error> {
        let stat =
            self.stat().map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
        let rows = match self {
            Self::Parquet(table) => table.rows(),
            Self::Text(_) => 0,
        };
        let (size, modified) = (stat.len(), modified(&stat));
        Ok(InputFile { size, modified, rows, path, picked: Vec::new(), index: None })
    }

    /// Checks that this is the file that was planned.
    ///
    /// # Errors
    /// It has changed.
    pub(super) fn check(&self, planned: &InputFile) -> Result<(), Error> {
        planned.compare(self.stat())
    }
}

/// The time of the last modification, in nanoseconds since 1970.
pub(super) fn modified(stat: &Metadata) -> u64 {
    let time = stat.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    time.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
