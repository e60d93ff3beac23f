//! Limits on the memory that reading takes.

/// Limits on the memory that reading a file takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a row of text. A parsed row may take sixteen times as much memory, in
    /// Parquet too.
    pub row: usize,
    /// The most bytes of the pages of a Parquet file that are decompressed at a time: one page and
    /// one dictionary of each column, and the pages of the rows that are decoded together.
    pub pages: u64,
}

impl Limits {
    /// The most bytes of a row in memory.
    pub(crate) fn parsed(&self) -> usize {
        self.row.saturating_mul(16)
    }
}

/// 16 MiB for a row, and 2 GiB for pages.
impl Default for Limits {
    fn default() -> Self {
        Self { row: 16 << 20, pages: 2 << 30 }
    }
}
