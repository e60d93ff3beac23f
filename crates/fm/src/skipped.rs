//! Entries that a lenient reading skips.

use std::fmt;

/// Entries of a model's files that were skipped, because they are malformed, occur twice, or are of
/// a leaf that does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The number of entries, in all files.
    pub count: u64,
    /// The fault of the first one, with its file and its number there. None if there are no entries.
    pub first: Option<String>,
}

impl Skipped {
    /// These entries, and behind them those of a further file.
    pub(crate) fn and(self, others: Self) -> Self {
        Self { count: self.count + others.count, first: self.first.or(others.first) }
    }

    /// Bytes held beside the value itself.
    pub(crate) fn memory(&self) -> usize {
        self.first.as_ref().map_or(0, String::capacity)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped entries of the model's files: {}", self.count)?;
        self.first.as_ref().map_or(Ok(()), |first| write!(f, "; of the first one, {first}"))
    }
}
