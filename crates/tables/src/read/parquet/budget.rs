//! The memory of decompressed pages and decoded lists.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parquet::errors::{ParquetError, Result};

/// The memory of a decoded value of a list, with its levels.
pub(super) const VALUE: u64 = 32;

/// The memory that a file's pages may take.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// The dictionaries and current pages of all columns, in bytes.
    held: AtomicU64,
    /// The pages before them of which the texts of the current batch are parts, in bytes.
    earlier: AtomicU64,
    /// The most values of the lists in as many rows as are decoded together, of all columns.
    values: AtomicU64,
    exceeded: AtomicBool,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        let (held, earlier, values) = Default::default();
        Self { limit, held, earlier, values, exceeded: AtomicBool::new(false) }
    }

    /// True if something was refused.
    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Relaxed)
    }

    /// The most values of lists in the rows that are decoded together.
    pub(super) fn most_values(&self) -> u64 {
        self.limit / VALUE
    }

    /// Begins a batch of rows; the one before has been dropped.
    pub(super) fn begin_batch(&self) {
        self.earlier.store(0, Relaxed);
    }

    /// Refuses a page that does not fit, before it is decompressed.
    ///
    /// # Errors
    /// It would not fit.
    pub(super) fn check(&self, page: u64) -> Result<()> {
        let taken = self.held.load(Relaxed).saturating_add(self.earlier.load(Relaxed));
        if taken.saturating_add(page) <= self.limit {
            return Ok(());
        }
        let limit = self.limit;
        Err(self.refusal(format!(
            "its pages take more than {limit} bytes at a time: write smaller pages or fewer columns"
        )))
    }

    /// Counts a page of a column in place of the one before, whose texts may be in use.
    ///
    /// # Errors
    /// It does not fit.
    pub(super) fn replace(&self, page: &mut u64, by: u64, is_text: bool) -> Result<()> {
        self.release(*page, is_text);
        self.held.fetch_add(by, Relaxed);
        *page = by;
        self.check(0)
    }

    /// Releases a page, whose texts may be in use.
    pub(super) fn release(&self, page: u64, is_text: bool) {
        self.held.fetch_sub(page, Relaxed);
        if is_text {
            self.earlier.fetch_add(page, Relaxed);
        }
    }

    /// Counts `by` values of lists in place of `values`.
    ///
    /// # Errors
    /// They do not fit.
    pub(super) fn replace_values(&self, values: &mut u64, by: u64) -> Result<()> {
        let before = std::mem::replace(values, by);
        self.values.fetch_sub(before, Relaxed);
        if self.values.fetch_add(by, Relaxed).saturating_add(by) <= self.most_values() {
            return Ok(());
        }
        let most = self.most_values();
        Err(self.refusal(format!(
            "the lists of the rows that are decoded together have more than {most} values"
        )))
    }

    fn refusal(&self, message: String) -> ParquetError {
        self.exceeded.store(true, Relaxed);
        ParquetError::General(message)
    }
}
