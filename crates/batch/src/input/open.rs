//! Open files of the input.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use outrigger_tables::{Format, Limits, Root, Stat, Table, TextFile, may_pass};

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
    /// It cannot be opened, or its footer is not valid. It is an error of the settings unless the file
    /// may be read later.
    pub(super) fn new(path: &Path, format: Format, patience: &Patience) -> Result<Self, Error> {
        let limits = Limits { pages: PAGES * 16, ..Limits::default() };
        let open = match (format, Address::of(path).map_err(refused)?) {
            (Format::Parquet, None) => Table::open(&Root::Any, path, limits).map(Self::Parquet),
            (text, None) => TextFile::open(&Root::Any, path, text, limits).map(Self::Text),
            (format, Some(address)) => {
                let objects = address.objects().map_err(refused)?;
                let object = Object::open(objects, &address.key, patience);
                let object = object.map_err(|failure| unreadable(&address, &failure.into()))?;
                let object = Arc::new(object);
                match format {
                    Format::Parquet => Table::elsewhere(object, path, limits).map(Self::Parquet),
                    text => TextFile::elsewhere(object, path, text, limits).map(Self::Text),
                }
            }
        };
        open.map_err(of_table)
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

/// An error of the settings, about the input.
pub(super) fn refused(problem: impl fmt::Display) -> Error {
    Error::usage(format!("input: {problem}"))
}

/// The error of a place of the input. It is one of the settings unless it may pass.
pub(super) fn unreadable(place: impl fmt::Display, error: &io::Error) -> Error {
    Error::of_settings(format_args!("input: {place}: {error}"), may_pass(error))
}

/// The error of a file of the input, as that of a place.
pub(super) fn of_table(error: outrigger_tables::Error) -> Error {
    Error::of_settings(format_args!("input: {error}"), error.may_pass)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn only_what_somebody_must_change_is_an_error_of_the_settings() {
        let of_store = |failure: Failure| unreadable("s3://b/a", &failure.into());
        let away = of_store(Failure::Away("no connection".to_owned()));
        let message = "input: s3://b/a: the store does not answer: no connection";
        assert_eq!(away, Error::Failed(message.to_owned()));
        let refused = of_store(Failure::Refused("403 Forbidden (ExpiredToken)".to_owned()));
        assert!(matches!(refused, Error::Failed(_)), "{refused}");
        for failure in [Failure::Absent, Failure::Other("301 Moved Permanently".to_owned())] {
            assert!(matches!(of_store(failure), Error::Usage(_)));
        }
        let absent = OpenFile::new(Path::new("none"), Format::Csv, &Patience::default());
        assert!(matches!(absent, Err(Error::Usage(message)) if message.contains("none")));
    }
}
