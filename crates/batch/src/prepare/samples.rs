//! The rows that a job is tried with before it begins.

use std::{ops::Range, sync::Arc};

use bytesize::ByteSize;
use outrigger_oip::Tensor;

use crate::{
    Error,
    encode::{Encoded, encode},
    endpoint::bytes_of,
    input::{InputFile, Reading, Rows},
    memory::{Charge, Memory},
    plan::Scoring,
    readers::{COPIES, batch_bytes, batch_rows},
    store::Patience,
};

/// The most rows of the first request.
const FIRST_ROWS: u64 = 64;
/// The places of the input after these whose first valid row is tried alone, and the rows that are
/// looked at in each of them.
const PLACES: u64 = 16;
const PLACE_ROWS: u64 = 64;
/// The rows of the first request that are tried alone.
const ROWS_ALONE: u64 = 8;

/// Rows that are tried together.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) tensors: Vec<Tensor>,
    /// The number of rows.
    pub(super) count: u64,
    /// The bytes of all tensors.
    pub(super) bytes: u64,
    /// The file and the number of the first row.
    pub(super) first: InputFile,
    /// The number of the file and the positions of the rows there; `None` for rows of another job.
    pub(super) place: Option<(usize, Range<u64>)>,
    /// The memory of the tensors, which requests in flight hold too; `None` after the rows were given
    /// up.
    pub(super) charge: Option<Arc<Charge>>,
}

impl Sample {
    /// Gives the rows up: they are not sent again.
    pub(super) fn give_up(&mut self) {
        (self.tensors, self.charge) = (Vec::new(), None);
    }
}

/// Finds rows: the first ones of the input together, then single ones. If another job has scored
/// rows, these are next. The others are spread over the input, and the last ones are among the first
/// rows again.
#[derive(Debug)]
pub(super) struct Samples {
    scoring: Scoring,
    memory: Memory,
    places: std::vec::IntoIter<Place>,
    /// The reason why the last rows that cannot be sent cannot be.
    pub(super) invalid: Option<String>,
}

/// A place of the input where rows are looked for.
#[derive(Debug, Clone)]
enum Place {
    /// All valid ones of these rows of a file.
    All(usize, Range<u64>),
    /// The first valid one of them.
    One(usize, Range<u64>),
    /// A row that another job has scored.
    Scored(Box<InputFile>),
}

impl Samples {
    /// The samples of a job whose requests have at most `most` rows, and whose rows are held to
    /// `memory`. Another job has scored the rows `scored`.
    pub(super) fn new(
        (scoring, memory): (Scoring, Memory),
        most: u32,
        scored: Vec<InputFile>,
    ) -> Self {
        let places = places(&scoring, most, scored);
        Self { scoring, memory, places: places.into_iter(), invalid: None }
    }

    /// The next rows; `None` if there are no more, or no memory for those that are left. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or has changed, or a row is larger than the memory.
    pub(super) fn next(&mut self) -> Result<Option<Sample>, Error> {
        while let Some(place) = self.places.next() {
            let sample = match place {
                Place::All(file, rows) => self.sample((file, rows), false)?,
                Place::One(file, rows) => self.sample((file, rows), true)?,
                // The job does not need this file, which may be gone.
                Place::Scored(file) => self.scored(&file).unwrap_or_default(),
            };
            if sample.is_some() {
                return Ok(sample);
            }
        }
        Ok(None)
    }

    fn scored(&mut self, file: &InputFile) -> Result<Option<Sample>, Error> {
        let rows = self.read(file, 0..1)?;
        Ok(self.encoded(&rows, file, 0)?.map(|(_, sample)| sample))
    }

    fn sample(
        &mut self,
        (number, positions): (usize, Range<u64>),
        is_alone: bool,
    ) -> Result<Option<Sample>, Error> {
        let Some(file) = self.scoring.files.get(number).cloned() else { return Ok(None) };
        let rows = self.read(&file, positions.clone())?;
        let count = rows.table.num_rows();
        let (step, starts) = if is_alone { (1, count) } else { (count, 1) };
        for start in 0..starts {
            let position = positions.start + start as u64;
            if let Some((read, sample)) = self.encoded(&rows.slice(start, step), &file, position)? {
                let place = Some((number, position..position + read));
                return Ok(Some(Sample { place, ..sample }));
            }
        }
        Ok(None)
    }

    /// These rows of a file; fewer if it has no more, or if they would take too much memory.
    fn read(&self, file: &InputFile, positions: Range<u64>) -> Result<Rows, Error> {
        let count = usize::try_from(positions.end - positions.start).map_err(Error::failed)?;
        let mut reading = Reading::new(&self.scoring, file, positions, &Patience::default())?;
        let rows = reading.next_within(count, batch_bytes(&self.memory))?;
        rows.ok_or_else(|| Error::failed(format!("{} ends early", file.path.display())))
    }

    /// The valid rows of those from `position` on, and the number of rows that were read for them.
    /// They are the first ones that do not take too much memory. `None` if there is no valid row, or
    /// no memory beside the rows that are tried.
    ///
    /// # Errors
    /// A single row is larger than the memory.
    fn encoded(
        &mut self,
        rows: &Rows,
        file: &InputFile,
        position: u64,
    ) -> Result<Option<(u64, Sample)>, Error> {
        let most = batch_bytes(&self.memory);
        let mut encoded = encode(rows, &self.scoring.inputs);
        while let [first, _, ..] = encoded.rows[..]
            && bytes_of(&encoded.tensors) > most
        {
            let share = encoded.read as u64 * most / bytes_of(&encoded.tensors);
            let fewer = usize::try_from(share).unwrap_or(usize::MAX);
            let fewer = fewer.clamp(first as usize + 1, encoded.read - 1);
            encoded = encode(&rows.slice(0, fewer), &self.scoring.inputs);
        }
        let Encoded { tensors, rows, invalid, read } = encoded;
        let Some(first) = rows.first() else {
            self.invalid = invalid.into_iter().next().map(|(_, reason)| reason);
            return Ok(None);
        };
        let bytes = bytes_of(&tensors);
        let first = file.with_row(file.row(position + u64::from(*first)));
        if COPIES.saturating_mul(bytes) > self.memory.limit() {
            return Err(self.too_large(&first, bytes));
        }
        let mut charge = self.memory.open();
        if !charge.grow(COPIES * bytes, true) {
            return Ok(None);
        }
        let (count, charge) = (rows.len() as u64, Some(charge.into()));
        let sample = Sample { tensors, count, bytes, first, place: None, charge };
        Ok(Some((read as u64, sample)))
    }

    /// The error of a row that is larger than the memory.
    fn too_large(&self, row: &InputFile, bytes: u64) -> Error {
        let (number, path) = (row.row(0), row.path.display());
        let (bytes, limit) = (ByteSize(bytes), ByteSize(self.memory.limit()));
        Error::usage(format!(
            "memory: the row {number} of {path} takes {bytes}, twice while it is sent, and {limit} \
             of the job's memory are for rows, requests and answers: run the job with more memory"
        ))
    }
}

/// The places where rows are looked for, in order.
fn places(scoring: &Scoring, most: u32, scored: Vec<InputFile>) -> Vec<Place> {
    let first = scoring.files.iter().position(|file| file.rows > 0);
    let Some((file, rows)) = first.map(|file| (file, scoring.files[file].rows)) else {
        return Vec::new();
    };
    let most = u64::from(batch_rows(scoring, most)).min(FIRST_ROWS);
    let first = rows.min(most);
    let mut places = vec![Place::All(file, 0..first)];
    places.extend(scored.into_iter().map(|file| Place::Scored(file.into())));
    let rest = first..scoring.rows();
    let others = spread(&rest, PLACES).filter_map(|rows| located(scoring, &rows));
    places.extend(others.map(|(file, rows)| Place::One(file, rows)));
    if first > 1 {
        let alone = spread(&(0..first), ROWS_ALONE);
        places.extend(alone.map(|rows| Place::One(file, rows.start..rows.start + 1)));
    }
    places
}

/// At most `most` parts of `all` at even distances, each with at most [`PLACE_ROWS`] rows.
fn spread(all: &Range<u64>, most: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { start, end } = *all;
    let step = (end - start).div_ceil(most).max(1);
    let starts = (0..most).map(move |place| start.saturating_add(place.saturating_mul(step)));
    starts
        .filter(move |from| *from < end)
        .map(move |from| from..end.min(from + step.min(PLACE_ROWS)))
}

/// The file of the first of these rows of the whole input, and the positions there of those that it
/// has.
fn located(scoring: &Scoring, rows: &Range<u64>) -> Option<(usize, Range<u64>)> {
    let mut before = 0;
    for (number, file) in scoring.files.iter().enumerate() {
        let end = before + file.rows;
        if rows.start < end {
            return Some((number, rows.start - before..rows.end.min(end) - before));
        }
        before = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_over_the_input() {
        let of = |all: Range<u64>, most| spread(&all, most).collect::<Vec<_>>();
        assert_eq!(of(0..0, 8), []);
        assert_eq!(of(64..67, 8), [64..65, 65..66, 66..67]);
        assert_eq!(of(64..164, 4), [64..89, 89..114, 114..139, 139..164]);
        assert_eq!(of(0..4000, 2), [0..64, 2000..2064]);
        let last = of(64..u64::MAX, 16).pop().expect("a place");
        assert!(last.start > u64::MAX / 16 * 14 && last.end - last.start == PLACE_ROWS);
    }
}
