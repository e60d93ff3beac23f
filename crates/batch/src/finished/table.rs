//! A file of an output as a table.

use std::{ops::Range, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use outrigger_tables::{Batches, Format, Leaf, Limits, Table, TextColumn, TextFile, TextRows};

use super::check;
use crate::{Error, Store, columns::OutputColumn, commit::DataFile, input::PAGES, plan::Scoring};

/// The format of the files of an output.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    Parquet,
    /// JSON Lines with these columns: keys as JSON, and scores in the types of their tensors.
    Lines(Vec<TextColumn>),
}

impl Form {
    /// That of a job's files.
    pub(crate) fn of(scoring: &Scoring) -> Self {
        if scoring.output_format == Format::Parquet {
            return Self::Parquet;
        }
        let keys = scoring.keys.iter().map(|name| TextColumn::of(name, Leaf::Json));
        let scores = scoring.outputs.iter().map(OutputColumn::text);
        Self::Lines(keys.chain(scores).collect())
    }

    /// The columns of JSON Lines; none for Parquet, which states them itself.
    pub(crate) fn columns(&self) -> &[TextColumn] {
        match self {
            Self::Parquet => &[],
            Self::Lines(columns) => columns,
        }
    }

    /// The format.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Parquet => Format::Parquet,
            Self::Lines(_) => Format::Jsonl,
        }
    }
}

/// A file of an output.
#[derive(Debug)]
pub(crate) enum OutputTable {
    Parquet(Table),
    Lines { text: TextFile, rows: u64, columns: Vec<TextColumn>, name: String },
}

/// The rows of some ranges of an [`OutputTable`].
#[derive(Debug)]
pub(crate) enum OutputRows {
    Parquet(Batches),
    Lines { rows: Box<TextRows>, name: String },
}

impl OutputTable {
    /// Opens a file with so many rows, after its content was compared with its hash.
    ///
    /// # Errors
    /// It is missing, has changed, or is not of that format.
    pub(crate) fn open(
        store: &Store,
        form: &Form,
        (file, rows): (&DataFile, u64),
    ) -> Result<Self, Error> {
        check(store, file)?;
        Ok(match form {
            Form::Parquet => Self::Parquet(parquet(store, &file.name)?),
            Form::Lines(columns) => {
                let text = store.text(&file.name, Format::Jsonl, limits())?;
                let (columns, name) = (columns.clone(), file.name.clone());
                Self::Lines { text, rows, columns, name }
            }
        })
    }

    /// The columns, with their types.
    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Self::Parquet(table) => SchemaRef::clone(table.schema()),
            Self::Lines { columns, .. } => {
                let fields = columns.iter().map(TextColumn::field).collect::<Vec<_>>();
                Schema::new(fields).into()
            }
        }
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        match self {
            Self::Parquet(table) => table.rows(),
            Self::Lines { rows, .. } => *rows,
        }
    }

    /// The rows of `ranges`, which are in order and do not overlap, with the columns of these names.
    ///
    /// # Errors
    /// There is no such column, or the file is damaged.
    pub(crate) fn read(&self, ranges: &[Range<u64>], names: &[&str]) -> Result<OutputRows, Error> {
        Ok(match self {
            Self::Parquet(table) => OutputRows::Parquet(table.read(ranges, names)?),
            Self::Lines { text, columns, name, .. } => {
                let columns = columns.iter().filter(|it| names.contains(&it.name.as_str()));
                let columns: Vec<_> = columns.cloned().collect();
                // A file has the rows of a few chunks: they are read from its beginning.
                let rows = text.read(&Arc::default(), ranges, &columns)?;
                OutputRows::Lines { rows: rows.into(), name: name.clone() }
            }
        })
    }
}

impl OutputRows {
    /// The next rows, at most `most`. `None` if none are left.
    ///
    /// # Errors
    /// The file is damaged.
    pub(crate) fn next(&mut self, most: usize) -> Result<Option<RecordBatch>, Error> {
        match self {
            Self::Parquet(batches) => Ok(batches.next(most)?),
            Self::Lines { rows, name } => match rows.next(most)? {
                None => Ok(None),
                Some(batch) => match batch.malformed.first() {
                    None => Ok(Some(batch.rows)),
                    Some((_, fault)) => {
                        Err(Error::failed(format!("{name}: a row cannot be read: {fault}")))
                    }
                },
            },
        }
    }
}

/// Opens a file of Parquet.
///
/// # Errors
/// It is missing, or is not Parquet.
pub(crate) fn parquet(store: &Store, name: &str) -> Result<Table, Error> {
    store.table(name, limits())
}

/// A row that a job has written may be as large as a page of Parquet.
fn limits() -> Limits {
    Limits { row: (PAGES * 16) as usize, pages: PAGES * 16 }
}
