//! The output of a finished job, or of its compaction, as other commands read it.

mod table;

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub(crate) use self::table::{Form, OutputRows, OutputTable, parquet};
use crate::{
    Error, Manifest, Store,
    commit::DataFile,
    compact::{self, Compacted},
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
    pub(crate) form: Form,
    /// The files with their numbers of rows, in the order of the rows.
    pub(crate) files: Vec<(DataFile, u64)>,
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
        let (scores, form, files, answer_bytes): (Vec<_>, _, Vec<_>, _) =
            match Compacted::open(store)? {
                Some(compacted) => {
                    let form = compacted.form();
                    let files = compacted.files.into_iter().map(|part| (part.file, part.rows));
                    (compacted.scores, form, files.collect(), compacted.answer_bytes)
                }
                None => {
                    let (plan, manifest) = job(store)?;
                    let form = Form::of(&plan.scoring);
                    let scores = plan.scoring.outputs.into_iter().map(|output| output.column);
                    let files = manifest.chunks.into_iter();
                    let files = files.filter_map(|chunk| Some((chunk.data?, chunk.scored)));
                    (scores.collect(), form, files.collect(), plan.answer_bytes)
                }
            };
        let first =
            files.first().map(|(file, rows)| OutputTable::open(store, &form, (file, *rows)));
        Ok(Self {
            store: store.clone(),
            scores,
            schema: first.transpose()?.map(|table| table.schema()),
            form,
            files,
            batch_rows: batch_rows(answer_bytes),
        })
    }

    /// All rows in their order, with these columns.
    pub(crate) fn rows(&self, columns: Vec<String>) -> Rows {
        Rows {
            store: self.store.clone(),
            form: self.form.clone(),
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

/// Compares the content of a file with its hash.
///
/// # Errors
/// It is missing or was changed.
pub(crate) fn check(store: &Store, file: &DataFile) -> Result<(), Error> {
    copy_checked(store, file, &mut io::sink())
}

/// Writes the content of a file to `to`, and compares it with its hash.
///
/// # Errors
/// It is missing or was changed, or cannot be written.
pub(crate) fn copy_checked(
    store: &Store,
    file: &DataFile,
    to: &mut impl Write,
) -> Result<(), Error> {
    let found = copy(store, &file.name, to)?;
    if found == *file {
        return Ok(());
    }
    let (name, root) = (&file.name, store.root().display());
    Err(Error::failed(format!(
        "{name} in {root} was changed: it has {} bytes with the BLAKE3 hash {}, and {} with {} in the \
         manifest",
        found.bytes, found.blake3, file.bytes, file.blake3
    )))
}

/// The size and the hash of an object.
///
/// # Errors
/// It is missing, or cannot be read.
pub(crate) fn describe(store: &Store, name: &str) -> Result<DataFile, Error> {
    copy(store, name, &mut io::sink())
}

/// Writes the content of an object to `to`. Returns its size and its hash.
///
/// # Errors
/// It is missing, or cannot be read, or not be written.
pub(crate) fn copy(store: &Store, name: &str, to: &mut impl Write) -> Result<DataFile, Error> {
    let missing = || Error::failed(format!("{name} is missing in {}", store.root().display()));
    let content = store.reader(name).map_err(|error| Error::store(name, &error))?;
    let mut content = content.ok_or_else(missing)?;
    let mut hashed = Hashed::new(to);
    io::copy(&mut content, &mut hashed).map_err(|error| Error::store(name, &error))?;
    let (_, bytes, blake3) = hashed.end();
    Ok(DataFile { name: name.to_owned(), bytes, blake3 })
}

/// The rows of an output, a part at a time.
#[derive(Debug)]
pub(crate) struct Rows {
    store: Store,
    form: Form,
    files: std::vec::IntoIter<(DataFile, u64)>,
    columns: Vec<String>,
    batch_rows: usize,
    open: Option<OutputRows>,
}

impl Rows {
    /// The next rows, with the columns in the order of the files.
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
            let Some((file, rows)) = self.files.next() else { return Ok(None) };
            let table = OutputTable::open(&self.store, &self.form, (&file, rows))?;
            let columns: Vec<_> = self.columns.iter().map(String::as_str).collect();
            let all = 0..table.rows();
            self.open = Some(table.read(std::slice::from_ref(&all), &columns)?);
        }
    }
}
