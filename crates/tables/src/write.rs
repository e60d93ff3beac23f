//! Writing.

pub(crate) mod batches;
mod csv;
mod jsonl;
pub(crate) mod lines;
mod parquet;

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
};

use crate::{Cell, Column, Error, Format, Root, error::Cause, new_file::NewFile};

/// Writes a file one row at a time. The rows go to a temporary file beside it, which
/// [`Writer::finish`] puts in its place; without that call an earlier file stays as it is.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: NewFile,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Csv(Box<csv::Sink>),
    Jsonl(jsonl::Sink),
    Parquet(Box<parquet::Sink>),
}

/// A file that is being written.
type Output = BufWriter<File>;

impl Writer {
    /// Begins a file with these columns at a path that leads to `root`. An existing file is
    /// replaced if `replace` is true.
    ///
    /// # Errors
    /// A file cannot be created there, something that is not a file has this path, or a file that
    /// must not be replaced.
    pub fn create(
        (root, path, replace): (&Root, &Path, bool),
        format: Format,
        columns: Vec<Column>,
    ) -> Result<Self, Error> {
        let begin = || -> Result<Self, Cause> {
            let file = root.create(path, replace)?;
            let sink = Sink::new(BufWriter::new(file.handle()?), format, columns)?;
            Ok(Self { path: path.to_owned(), file, sink })
        };
        begin().map_err(|cause| Error::new(path, cause))
    }

    /// Writes a row: a value for each column, in their order.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, cells: &[Cell]) -> Result<(), Error> {
        let written = match &mut self.sink {
            Sink::Csv(sink) => sink.write(cells),
            Sink::Jsonl(sink) => sink.write(cells),
            Sink::Parquet(sink) => sink.write(cells),
        };
        written.map_err(|cause| Error::new(&self.path, Cause::of(cause)))
    }

    /// Completes the file and puts it in its place, on disk, in one step.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(self) -> Result<(), Error> {
        let Self { path, file, sink } = self;
        let finish = || -> Result<(), Cause> {
            sink.finish()?;
            Ok(file.finish()?)
        };
        finish().map_err(|cause| Error::new(&path, cause))
    }
}

impl Sink {
    fn new(output: Output, format: Format, columns: Vec<Column>) -> Result<Self, Cause> {
        Ok(match format {
            Format::Csv => Self::Csv(csv::Sink::new(output, &columns).map_err(Cause::of)?.into()),
            Format::Jsonl => Self::Jsonl(jsonl::Sink::new(output, columns)),
            Format::Parquet => {
                Self::Parquet(parquet::Sink::new(output, columns).map_err(Cause::of)?.into())
            }
        })
    }

    /// Writes what is buffered.
    fn finish(self) -> Result<(), Cause> {
        let output = match self {
            Self::Csv(sink) => sink.finish(),
            Self::Jsonl(sink) => Ok(sink.finish()),
            Self::Parquet(sink) => sink.finish(),
        };
        let file = output.map_err(Cause::of)?.into_inner();
        file.map(drop).map_err(|error| error.into_error().into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Kind;

    fn columns() -> Vec<Column> {
        let list = Kind::List(Box::new(Kind::Single));
        [("user", Kind::Text), ("score", list), ("error", Kind::Text)]
            .map(|(name, kind)| Column::new(name, kind))
            .to_vec()
    }

    fn row() -> [Cell; 3] {
        let scores = Cell::List(vec![Cell::Single(0.1), Cell::Absent]);
        [Cell::Text("u,1".to_owned()), scores, Cell::Absent]
    }

    #[test]
    fn a_file_appears_when_it_is_complete() {
        let directory = tempfile::tempdir().expect("a directory");
        for (format, name, expected) in [
            (Format::Csv, "a.csv", "user,score,error\n\"u,1\",\"[0.1,null]\",\n"),
            (Format::Jsonl, "a.jsonl", "{\"user\":\"u,1\",\"score\":[0.1,null]}\n"),
        ] {
            let path = directory.path().join(name);
            fs::write(&path, "before").expect("a file");
            let mut writer =
                Writer::create((&Root::Any, &path, true), format, columns()).expect("created");
            writer.write(&row()).expect("written");
            drop(writer);
            assert_eq!(fs::read_to_string(&path).expect("a file"), "before");
            let mut writer =
                Writer::create((&Root::Any, &path, true), format, columns()).expect("created");
            writer.write(&row()).expect("written");
            writer.finish().expect("finished");
            assert_eq!(fs::read_to_string(&path).expect("a file"), expected);
        }
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 2);
    }

    #[test]
    fn only_a_file_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        for path in [directory.path(), Path::new("/dev/null"), Path::new("/no/such/a.csv")] {
            let refused = Writer::create((&Root::Any, path, true), Format::Csv, columns());
            assert!(refused.is_err(), "{}", path.display());
        }
    }
}
