//! Open files of the input.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use outrigger_tables::{Format, Limits, Root, Stat, Table, TextFile};

use super::{InputFile, PAGES, Picked};
use crate::{
    Error,
    store::{Address, Object, Patience},
};

/// An open file of the input.
#[derive(Debug)]
pub(super) enum OpenFile {
    Parquet(Table),
    Text(TextFile),
}

impl OpenFile {
    /// Opens a file of the input, and reads it with `patience` if it is in a store that is away.
    ///
    /// # Errors
    /// It cannot be opened, or its footer is not valid.
    pub(super) fn new(path: &Path, format: Format, patience: &Patience) -> Result<Self, Error> {
        let limits = Limits { pages: PAGES * 16, ..Limits::default() };
        let open = match (format, Address::of(path).map_err(refused)?) {
            (Format::Parquet, None) => Table::open(&Root::Any, path, limits).map(Self::Parquet),
            (text, None) => TextFile::open(&Root::Any, path, text, limits).map(Self::Text),
            (format, Some(address)) => {
                let objects = address.objects().map_err(refused)?;
                let object = Object::open(objects, &address.key, patience);
                let object = object.map_err(|failure| refused(format!("{address}: {failure}")))?;
                let object = Arc::new(object);
                match format {
                    Format::Parquet => Table::elsewhere(object, path, limits).map(Self::Parquet),
                    text => TextFile::elsewhere(object, path, text, limits).map(Self::Text),
                }
            }
        };
        open.map_err(refused)
    }

    fn stat(&self) -> io::Result<Stat> {
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
        let Stat { size, modified, tag } = stat;
        Ok(InputFile { size, modified, tag, rows, path, picked: Picked::default(), index: None })
    }

    /// Checks that this is the file that was planned.
    ///
    /// # Errors
    /// It has changed.
    pub(super) fn check(&self, planned: &InputFile) -> Result<(), Error> {
        planned.compare(self.stat())
    }
}

pub(super) fn refused(problem: impl fmt::Display) -> Error {
    Error::usage(format!("input: {problem}"))
}
