//! The output of a finished job, or of its compaction, as other commands read it.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use outrigger_tables::{Batches, Format, Limits, Table};

use crate::{
    Error, Manifest, Store,
    commit::DataFile,
    compact::{self, Compacted},
    input::PAGES,
    output::hashed::Hashed,
    plan::Plan,
};

/// About the most bytes of the rows that are read at a time, and the most rows.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH_ROWS: u64 = 1024;
/// The bytes of the keys of a row, which are not known before they are read.
const KEY_BYTES: u64 = 64;

/// A finished output.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) store: Store,
    /// The columns with the values of output tensors.
    pub(crate) scores: Vec<String>,
    /// The files, in the order of the rows.
    pub(crate) files: Vec<DataFile>,
    /// The columns of the files; `None` if there are no files.
    pub(crate) schema: Option<SchemaRef>,
    /// The most rows to read at a time.
    batch_rows: usize,
}

impl Finished {
    /// Opens the output in a store, which is that of a job or of a compaction.
    ///
    /// # Errors
    /// There is none, it is not finished, or its first file is damaged.
    pub(crate) fn open(store: &Store) -> Result<Self, Error> {
        let (scores, files, answer_bytes): (Vec<_>, Vec<_>, _) = match Compacted::open(store)? {
            Some(compacted) => {
                let files = compacted.files.into_iter().map(|part| part.file).collect();
                (compacted.scores, files, compacted.answer_bytes)
            }
            None => {
                let (plan, manifest) = job_of_tables(store)?;
                let scores = plan.scoring.outputs.into_iter().map(|output| output.column);
                (scores.collect(), manifest.files().cloned().collect(), plan.answer_bytes)
            }
        };
        let first = files.first().map(|file| table(store, file)).transpose()?;
        Ok(Self {
            store: store.clone(),
            scores,
            schema: first.map(|table| SchemaRef::clone(table.schema())),
            files,
            batch_rows: batch_rows(answer_bytes),
        })
    }

    /// All rows in their order, with these columns.
    pub(crate) fn rows(&self, columns: Vec<String>) -> Rows {
        Rows {
            store: self.store.clone(),
            files: self.files.clone().into_iter(),
            columns,
            batch_rows: self.batch_rows,
            open: None,
        }
    }
}

/// The most rows to read at a time if a row has an answer of so many bytes.
pub(crate) fn batch_rows(answer_bytes: u64) -> usize {
    let rows = (BATCH_BYTES / (answer_bytes + KEY_BYTES)).clamp(1, BATCH_ROWS);
    usize::try_from(rows).unwrap_or(1)
}

/// The plan and the manifest of a finished job with Parquet files.
///
/// # Errors
/// As [`job`], or its files are JSON Lines.
pub(crate) fn job_of_tables(store: &Store) -> Result<(Plan, Manifest), Error> {
    let (plan, manifest) = job(store)?;
    match plan.scoring.output_format {
        Format::Parquet => Ok((plan, manifest)),
        other => {
            let root = store.root().display();
            let message = format!("{root} has files of {other}, and this reads Parquet only");
            Err(Error::usage(message))
        }
    }
}

/// The plan and the manifest of a finished job.
///
/// # Errors
/// There is no job, or it is not finished.
pub(crate) fn job(store: &Store) -> Result<(Plan, Manifest), Error> {
    let root = store.root().display();
    let plan = Plan::read(store)?.ok_or_else(|| match compact::is_compaction(store) {
        Ok(true) => Error::usage(format!("{root} is a compaction: name the output of the job")),
        Ok(false) => Error::usage(format!("{root} is not a job")),
        Err(error) => error,
    })?;
    let manifest = Manifest::read(store)?;
    let manifest =
        manifest.ok_or_else(|| Error::usage(format!("the job {root} is not finished")))?;
    Ok((plan, manifest))
}

/// Opens a file of an output, after its content was compared with its SHA-256.
///
/// # Errors
/// It is missing, has changed, or is not Parquet.
pub(crate) fn table(store: &Store, file: &DataFile) -> Result<Table, Error> {
    check(store, file)?;
    open(store, &file.name)
}

/// Opens a file of an output.
///
/// # Errors
/// It is missing, or is not Parquet.
pub(crate) fn open(store: &Store, name: &str) -> Result<Table, Error> {
    let limits = Limits { pages: PAGES * 16, ..Limits::default() };
    store.table(name, limits)
}

/// Compares the content of a file with its SHA-256.
///
/// # Errors
/// It is missing or was changed.
pub(crate) fn check(store: &Store, file: &DataFile) -> Result<(), Error> {
    let found = describe(store, &file.name)?;
    if found == *file {
        return Ok(());
    }
    let (name, root) = (&file.name, store.root().display());
    Err(Error::failed(format!(
        "{name} in {root} was changed: it has {} bytes with the SHA-256 {}, and {} with {} in the \
         manifest",
        found.bytes, found.sha256, file.bytes, file.sha256
    )))
}

/// The size and the SHA-256 of an object.
///
/// # Errors
/// It is missing, or cannot be read.
pub(crate) fn describe(store: &Store, name: &str) -> Result<DataFile, Error> {
    let missing = || Error::failed(format!("{name} is missing in {}", store.root().display()));
    let content = store.reader(name).map_err(|error| Error::store(name, &error))?;
    let mut content = content.ok_or_else(missing)?;
    let mut hashed = Hashed::new(io::sink());
    io::copy(&mut content, &mut hashed).map_err(|error| Error::store(name, &error))?;
    let (_, bytes, sha256) = hashed.end();
    Ok(DataFile { name: name.to_owned(), bytes, sha256 })
}

/// The rows of an output, a part at a time.
#[derive(Debug)]
pub(crate) struct Rows {
    store: Store,
    files: std::vec::IntoIter<DataFile>,
    columns: Vec<String>,
    batch_rows: usize,
    open: Option<Batches>,
}

impl Rows {
    /// The next rows, in the columns' order of the files.
    ///
    /// # Errors
    /// A file is missing or damaged, or lacks a column.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(rows) = open.next(self.batch_rows)? {
                    return Ok(Some(rows));
                }
                self.open = None;
            }
            let Some(file) = self.files.next() else { return Ok(None) };
            let table = table(&self.store, &file)?;
            let columns: Vec<_> = self.columns.iter().map(String::as_str).collect();
            let all = 0..table.rows();
            self.open = Some(table.read(std::slice::from_ref(&all), &columns)?);
        }
    }
}
