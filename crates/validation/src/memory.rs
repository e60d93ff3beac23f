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

/// The least number of batches among which the memory for requests is divided.
const BATCHES: u64 = 8;

impl Memory {
    /// The limits of a run that takes about `bytes` at most, of which `concurrency` batches are
    /// scored at once: half of them for a parsed row of text, or for the pages and decoded rows of
    /// Parquet, and half for batches of requests, of which one is read, one waits, and the others are
    /// scored. Scores that are written in Parquet take a few MiB more.
    pub fn within(bytes: u64, concurrency: usize) -> Self {
        let part = |of: u64| usize::try_from(bytes / of).unwrap_or(usize::MAX);
        let batches = (concurrency as u64).saturating_add(2).max(BATCHES);
        let reading = Limits { row: part(32), pages: bytes / 8 * 3 };
        let request = part(batches.saturating_mul(2));
        Self { reading, request, batch: request / 2 }
    }
}

/// A request may be as large as a server accepts by default.
impl Default for Memory {
    fn default() -> Self {
        Self { reading: Limits::default(), request: 64 << 20, batch: 32 << 20 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_half_of_the_memory_however_many_are_scored_at_once() {
        const BYTES: u64 = 1 << 30;
        for concurrency in [0, 1, 6, 7, 100, usize::MAX] {
            let Memory { request, batch, .. } = Memory::within(BYTES, concurrency);
            let batches = (concurrency as u64).saturating_add(2);
            assert!(batches.saturating_mul(request as u64) <= BYTES / 2, "{concurrency}");
            assert_eq!(batch, request / 2);
        }
        assert_eq!(Memory::within(BYTES, 1).request as u64, BYTES / 16);
    }
}
