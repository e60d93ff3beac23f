//! Rows in temporary files, divided by their keys.

use std::{
    fs::File,
    hash::{DefaultHasher, Hasher as _},
    io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _},
};

use super::layout::Row;
use crate::Error;

/// The files that the rows of an output are divided among.
pub(super) const PARTS: usize = 32;

/// The rows of an output in files without names, which end with the process.
#[derive(Debug)]
pub(super) struct Parts {
    /// The number of divisions before: each has another hash.
    level: u32,
    files: Vec<Option<BufWriter<File>>>,
}

impl Parts {
    pub(super) fn new(level: u32) -> Self {
        Self { level, files: (0..PARTS).map(|_| None).collect() }
    }

    /// Appends a row to the file of its key.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn put(&mut self, key: &[u8], scores: &[u8]) -> Result<(), Error> {
        let mut hasher = DefaultHasher::new();
        hasher.write_u32(self.level);
        hasher.write(key);
        let part = (hasher.finish() % PARTS as u64) as usize;
        write(&mut self.files[part], key, scores).map_err(|error| failed(&error))
    }

    /// The rows of each file, in the order in which they were put there.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn rows(self) -> Result<Vec<Spilled>, Error> {
        let rows = |file: Option<BufWriter<File>>| -> io::Result<Spilled> {
            let Some(file) = file else { return Ok(Spilled(None)) };
            let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.rewind()?;
            Ok(Spilled(Some(BufReader::new(file))))
        };
        self.files.into_iter().map(rows).collect::<io::Result<_>>().map_err(|error| failed(&error))
    }
}

/// The failure of a temporary file.
pub(super) fn failed(error: &io::Error) -> Error {
    let directory = std::env::temp_dir();
    Error::failed(format!("temporary files in {}: {error}", directory.display()))
}

fn write(file: &mut Option<BufWriter<File>>, key: &[u8], scores: &[u8]) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        none => none.insert(BufWriter::new(tempfile::tempfile()?)),
    };
    for part in [key, scores] {
        file.write_all(&(part.len() as u64).to_le_bytes())?;
    }
    file.write_all(key)?;
    file.write_all(scores)
}

/// Rows of a file.
#[derive(Debug)]
pub(super) struct Spilled(Option<BufReader<File>>);

impl Spilled {
    fn read(&mut self) -> io::Result<Option<Row>> {
        let Some(file) = &mut self.0 else { return Ok(None) };
        let mut lengths = [[0; 8]; 2];
        match file.read_exact(lengths.as_flattened_mut()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.0 = None;
                return Ok(None);
            }
            read => read?,
        }
        let mut part = |length: [u8; 8]| {
            let length = usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?;
            let mut bytes = vec![0; length];
            file.read_exact(&mut bytes)?;
            Ok::<_, io::Error>(bytes.into_boxed_slice())
        };
        let (key, scores) = (part(lengths[0])?, part(lengths[1])?);
        Ok(Some(Row { key, scores }))
    }
}

impl Iterator for Spilled {
    type Item = Result<Row, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().map_err(|error| failed(&error)).transpose()
    }
}
