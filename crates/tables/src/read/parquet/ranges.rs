//! Ranges of rows of a Parquet file, as arrays of its columns.

mod size;

pub use self::size::bytes_of_rows;

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{RecordBatch, RecordBatchReader as _};
use arrow_schema::{Fields, SchemaRef};
use arrow_select::concat::concat_batches;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, RowSelection,
            RowSelector,
        },
        parquet_to_arrow_field_levels,
    },
    file::metadata::RowGroupMetaData,
};

use super::{Budget, Pages, batch_rows, cause, check_footer, count, unless_damaged};
use crate::{
    Error, Limits, Root,
    error::Cause,
    read::blob::{Blob, ReadAt, Stat},
};

/// A Parquet file whose rows are read in ranges, as arrays of its columns. Unlike
/// [`Reader`](crate::Reader) it reads columns of all types.
#[derive(Debug, Clone)]
pub struct Table {
    path: PathBuf,
    file: Blob,
    metadata: ArrowReaderMetadata,
    limits: Limits,
}

/// The rows of some ranges of a [`Table`].
#[derive(Debug)]
pub struct Batches {
    path: PathBuf,
    decoded: ParquetRecordBatchReader,
    budget: Arc<Budget>,
    schema: SchemaRef,
    /// Rows that were decoded and not taken.
    rest: Option<RecordBatch>,
}

impl Table {
    /// Opens the file at a path that leads to `root`, and reads its footer.
    ///
    /// # Errors
    /// The file cannot be opened, or its footer is not valid.
    pub fn open(root: &Root, path: &Path, limits: Limits) -> Result<Self, Error> {
        let open = || Self::of(root.open(path)?.into(), path, limits);
        unless_damaged(open).map_err(|cause| Error::new(path, cause))
    }

    /// Reads the footer of bytes elsewhere. `path` is their name in errors.
    ///
    /// # Errors
    /// They cannot be read, or the footer is not valid.
    pub fn elsewhere(source: Arc<dyn ReadAt>, path: &Path, limits: Limits) -> Result<Self, Error> {
        let open = || Self::of(Blob::elsewhere(source), path, limits);
        unless_damaged(open).map_err(|cause| Error::new(path, cause))
    }

    pub(super) fn of(file: Blob, path: &Path, limits: Limits) -> Result<Self, Cause> {
        check_footer(&file, &limits)?;
        // Types that only Arrow has, such as dictionaries, are read as those that they stand for.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata =
            ArrowReaderMetadata::load(&file, options).map_err(|error| Cause::of_parquet(&error))?;
        Ok(Self { path: path.to_owned(), file, metadata, limits })
    }

    /// The columns, with their types.
    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        count(self.metadata.metadata())
    }

    /// The size and the identity of the open file's content.
    ///
    /// # Errors
    /// The file system failed.
    pub fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    /// The rows of `ranges`, which are in order and do not overlap, with the columns named in
    /// `columns`, in the order of the file.
    ///
    /// # Errors
    /// A column does not exist or exists twice, or the file is damaged.
    pub fn read(&self, ranges: &[Range<u64>], columns: &[&str]) -> Result<Batches, Error> {
        let read = || {
            let roots = columns.iter().map(|name| self.root(name)).collect::<Result<_, _>>()?;
            self.decoded(ranges, roots, None)
        };
        unless_damaged(read).map_err(|cause| Error::new(&self.path, cause))
    }

    /// The rows of `ranges` with the columns at these positions, of the types in `fields` where they have
    /// several forms.
    pub(super) fn decoded(
        &self,
        ranges: &[Range<u64>],
        roots: Vec<usize>,
        fields: Option<&Fields>,
    ) -> Result<Batches, Cause> {
        let metadata = Arc::clone(self.metadata.metadata());
        let sizes: Vec<_> = metadata.row_groups().iter().map(rows_of).collect();
        let (groups, start) = groups(&sizes, ranges);
        let budget = Arc::new(Budget::new(self.limits.pages));
        let wanted = ranges.iter().map(|range| range.end.saturating_sub(range.start));
        let wanted = wanted.fold(0_u64, u64::saturating_add);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).max(1);
        let batch = batch_rows(&metadata, &self.limits).min(wanted);
        let schema = self.metadata.parquet_schema();
        let mask = ProjectionMask::roots(schema, roots);
        let read = (0..schema.num_columns()).filter(|column| mask.leaf_included(*column));
        let ahead = Blob::ahead(read.count());
        let levels = parquet_to_arrow_field_levels(schema, mask, fields).map_err(Cause::of)?;
        let pages = Pages {
            file: self.file.clone(),
            metadata,
            budget: Arc::clone(&budget),
            groups,
            batch,
            ahead,
        };
        let is_whole = matches!(ranges, [all] if *all == (0..self.rows()));
        let selection = (!is_whole).then(|| selection(start, ranges)).transpose()?;
        let decoded =
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &pages, batch, selection);
        let decoded = decoded.map_err(|error| cause(error, &budget))?;
        let schema = decoded.schema();
        Ok(Batches { path: self.path.clone(), decoded, budget, schema, rest: None })
    }

    /// The position of the column with this name.
    fn root(&self, name: &str) -> Result<usize, Cause> {
        let fields = self.metadata.schema().fields().iter().enumerate();
        let mut found = fields.filter(|(_, field)| field.name() == name).map(|(root, _)| root);
        match (found.next(), found.next()) {
            (Some(root), None) => Ok(root),
            (None, _) => Err(Cause::of(format_args!("there is no column {name:?}"))),
            (Some(_), Some(_)) => Err(Cause::of(format_args!("there are two columns {name:?}"))),
        }
    }
}

impl Batches {
    /// The columns that are read, with their types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows, at most `most`; fewer only at the end of the ranges. `None` if none are left.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub fn next(&mut self, most: usize) -> Result<Option<RecordBatch>, Error> {
        self.next_within(most, u64::MAX)
    }

    /// As [`next`](Self::next), and fewer rows if they would take more than `bytes` of memory. A
    /// single row may take more.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_within(&mut self, most: usize, bytes: u64) -> Result<Option<RecordBatch>, Error> {
        let (mut parts, mut missing, mut room) = (Vec::new(), most.max(1), bytes);
        while missing > 0 {
            let rows = self.decode().map_err(|cause| Error::new(&self.path, cause))?;
            let Some(rows) = rows else { break };
            let (fitting, size) = size::fitting(&rows, missing, room);
            let taken = if parts.is_empty() { fitting.max(1) } else { fitting };
            let is_full = taken < missing.min(rows.num_rows());
            if taken > 0 {
                parts.push(rows.slice(0, taken));
            }
            self.rest =
                (taken < rows.num_rows()).then(|| rows.slice(taken, rows.num_rows() - taken));
            if is_full {
                break;
            }
            missing -= taken;
            room = room.saturating_sub(size);
        }
        match &parts[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => concat_batches(&self.schema, several)
                .map(Some)
                .map_err(|error| Error::new(&self.path, Cause::of(error))),
        }
    }

    /// The rows that are left, or else the next ones of the file.
    pub(super) fn decode(&mut self) -> Result<Option<RecordBatch>, Cause> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        self.budget.begin_batch();
        let Self { decoded, budget, .. } = self;
        unless_damaged(|| decoded.next().transpose().map_err(|error| cause(error, budget)))
    }
}

fn rows_of(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or_default()
}

/// The row groups of the given sizes from the first one with rows of `ranges` to the last one, and
/// the number of the first row of the first group.
fn groups(sizes: &[u64], ranges: &[Range<u64>]) -> (Range<usize>, u64) {
    let first = ranges.first().map_or(0, |range| range.start);
    let end = ranges.last().map_or(0, |range| range.end);
    let (mut start, mut found) = (0_u64, None::<(Range<usize>, u64)>);
    for (group, rows) in sizes.iter().enumerate() {
        let next = start.saturating_add(*rows);
        if next > first && start < end {
            let (groups, start) = found.unwrap_or((group..group, start));
            found = Some((groups.start..group + 1, start));
        }
        start = next;
    }
    found.unwrap_or((0..0, 0))
}

/// Selects the rows of `ranges` from those that begin with number `start`.
fn selection(start: u64, ranges: &[Range<u64>]) -> Result<RowSelection, Cause> {
    let (mut at, mut selectors) = (start, Vec::new());
    let count = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).map_err(Cause::of);
    for range in ranges {
        selectors.push(RowSelector::skip(count(at, range.start)?));
        selectors.push(RowSelector::select(count(range.start, range.end)?));
        at = range.end;
    }
    Ok(RowSelection::from(selectors))
}

#[cfg(test)]
mod tests;
