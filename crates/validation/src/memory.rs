//! The memory that a run takes.

use outrigger_tables::Limits;

/// The limits that follow from the memory of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The limits of reading.
    pub reading: Limits,
    /// The most bytes of a request, with the reserved columns of its rows.
    pub request: usize,
    /// The most bytes of the requests of a batch; a larger request is a batch of its own.
    pub batch: usize,
}

impl Memory {
    /// The limits of a run that takes about `bytes` at most: half of them for a parsed row of text,
    /// or for the pages and decoded rows of Parquet, and the rest for five batches of requests, of
    /// which one is read, one waits, and the others are scored.
    pub fn within(bytes: u64) -> Self {
        let part = |of: u64| usize::try_from(bytes / of).unwrap_or(usize::MAX);
        let reading = Limits { row: part(32), pages: bytes / 8 * 3 };
        Self { reading, request: part(16), batch: part(32) }
    }
}

/// A request may be as large as a server accepts by default.
impl Default for Memory {
    fn default() -> Self {
        Self { reading: Limits::default(), request: 64 << 20, batch: 32 << 20 }
    }
}
