//! Writing.

mod csv;
mod jsonl;
mod parquet;

use std::{
    fs::{File, Permissions},
    io::BufWriter,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::{Builder, NamedTempFile};

use crate::{Cell, Column, Error, Format};

/// The permissions of a new file, before those that the process masks are removed.
const MODE: u32 = 0o666;

/// Writes a file one row at a time. The rows go to a temporary file beside it, which
/// [`Writer::finish`] puts in its place; without that call an earlier file stays as it is.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: NamedTempFile,
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
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// A file cannot be created there, or something that is not a file has this path.
    pub fn create(path: &Path, format: Format, columns: Vec<Column>) -> Result<Self, Error> {
        Self::begin(path, format, columns).map_err(|cause| Error::new(path, cause))
    }

    fn begin(path: &Path, format: Format, columns: Vec<Column>) -> Result<Self, String> {
        if path.exists() && !path.is_file() {
            return Err("not a file that could be replaced".to_owned());
        }
        let mut builder = Builder::new();
        builder.prefix(".outrigger-").permissions(Permissions::from_mode(MODE));
        let file = builder.tempfile_in(directory(path)).map_err(|cause| cause.to_string())?;
        let output = BufWriter::new(file.reopen().map_err(|cause| cause.to_string())?);
        let sink = match format {
            Format::Csv => csv::Sink::new(output, &columns).map(Box::new).map(Sink::Csv)?,
            Format::Jsonl => Sink::Jsonl(jsonl::Sink::new(output, columns)),
            Format::Parquet => {
                parquet::Sink::new(output, columns).map(Box::new).map(Sink::Parquet)?
            }
        };
        Ok(Self { path: path.to_owned(), file, sink })
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
        written.map_err(|cause| Error::new(&self.path, cause))
    }

    /// Completes the file and puts it in its place, on disk, in one step.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(self) -> Result<(), Error> {
        let Self { path, file, sink } = self;
        Self::replace(&path, file, sink).map_err(|cause| Error::new(&path, cause))
    }

    fn replace(path: &Path, file: NamedTempFile, sink: Sink) -> Result<(), String> {
        let output = match sink {
            Sink::Csv(sink) => sink.finish(),
            Sink::Jsonl(sink) => Ok(sink.finish()),
            Sink::Parquet(sink) => sink.finish(),
        }?;
        let output = output.into_inner().map_err(|cause| cause.to_string())?;
        let replace = || {
            output.sync_all()?;
            file.persist(path).map_err(|cause| cause.error)?;
            File::open(directory(path))?.sync_all()
        };
        replace().map_err(|cause| cause.to_string())
    }
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
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
            let mut writer = Writer::create(&path, format, columns()).expect("created");
            writer.write(&row()).expect("written");
            drop(writer);
            assert_eq!(fs::read_to_string(&path).expect("a file"), "before");
            let mut writer = Writer::create(&path, format, columns()).expect("created");
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
            let refused = Writer::create(path, Format::Csv, columns());
            assert!(refused.is_err(), "{}", path.display());
        }
    }
}
