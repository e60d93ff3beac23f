//! The values in the rows of a column of lists, which a page of a few bytes may have many of.

use std::{collections::VecDeque, sync::Arc};

use parquet::{
    basic::Encoding,
    column::page::Page,
    errors::{ParquetError, Result},
};

use super::{budget::Budget, levels};

/// Counts the values of a column in a row group, over as many rows as are decoded together.
#[derive(Debug)]
pub(super) struct Rows {
    budget: Arc<Budget>,
    /// The number of bits of a repetition level.
    width: u32,
    batch: usize,
    /// The values of the last rows, and their sum.
    recent: VecDeque<u64>,
    sum: u64,
    /// The values of the row that is being counted.
    current: u64,
    /// The most that were counted together.
    most: u64,
}

impl Rows {
    /// Counts over `batch` rows of a column whose repetition levels are at most `max_level`.
    ///
    /// # Errors
    /// The lists are nested too deeply.
    pub(super) fn new(max_level: i16, batch: usize, budget: &Arc<Budget>) -> Result<Self> {
        let budget = Arc::clone(budget);
        let width = i16::BITS - max_level.leading_zeros();
        if width > u8::BITS {
            return Err(invalid("lists are nested too deeply"));
        }
        Ok(Self { budget, width, batch, recent: VecDeque::new(), sum: 0, current: 0, most: 0 })
    }

    /// Counts the values of a page.
    ///
    /// # Errors
    /// They are more than fit, or the page is not valid.
    pub(super) fn add(&mut self, page: &Page) -> Result<()> {
        let levels = levels_of(page).map_err(invalid)?;
        let (mut most, limit) = (self.most, self.budget.most_values());
        let (width, count) = (self.width, page.num_values().into());
        levels::runs(levels, width, count, |level, length| {
            self.count(level, length);
            most = most.max(self.sum.saturating_add(self.current));
            most <= limit
        })
        .map_err(invalid)?;
        self.budget.replace_values(&mut self.most, most)
    }

    /// Counts values of one level; each of level 0 begins a row.
    fn count(&mut self, level: u8, length: u64) {
        if level > 0 {
            self.current = self.current.saturating_add(length);
            return;
        }
        self.end_row();
        // Further rows of one value each would replace one another.
        for _ in 1..length.min(self.batch as u64) {
            self.current = 1;
            self.end_row();
        }
        self.current = 1;
    }

    fn end_row(&mut self) {
        self.recent.push_back(self.current);
        self.sum = self.sum.saturating_add(self.current);
        while self.recent.len() >= self.batch {
            self.sum -= self.recent.pop_front().unwrap_or_default();
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // Fewer values fit always.
        let _ = self.budget.replace_values(&mut self.most, 0);
    }
}

fn invalid(message: &str) -> ParquetError {
    ParquetError::General(message.to_owned())
}

/// The repetition levels of a page.
fn levels_of(page: &Page) -> std::result::Result<&[u8], &'static str> {
    const SHORT: &str = "a page ends before its levels";
    match page {
        Page::DataPage { buf, rep_level_encoding: Encoding::RLE, .. } => {
            let (length, rest) = buf.split_first_chunk().ok_or(SHORT)?;
            rest.get(..u32::from_le_bytes(*length) as usize).ok_or(SHORT)
        }
        Page::DataPage { .. } => Err("levels of another encoding than RLE are not read"),
        Page::DataPageV2 { buf, rep_levels_byte_len, .. } => {
            buf.get(..*rep_levels_byte_len as usize).ok_or(SHORT)
        }
        Page::DictionaryPage { .. } => Ok(&[]),
    }
}
