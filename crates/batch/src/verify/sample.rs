//! A sample of the scored rows of a finished job, with what the job has read and written for them.

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
};

use arrow_array::RecordBatch;
use rand::{SeedableRng as _, rngs::StdRng, seq::index};

use crate::{
    Commit, Error, Store,
    finished::{Form, OutputRows, OutputTable, batch_rows},
    input::{InputFile, Reading},
    plan::{Chunk, Plan, Scoring},
    retry,
};

/// Scored rows, in the order of the output.
#[derive(Debug)]
pub(super) struct Sampled {
    /// The file of the input.
    pub(super) file: PathBuf,
    /// The numbers of the rows in it.
    pub(super) rows: Vec<u64>,
    /// The columns of the input.
    pub(super) input: RecordBatch,
    /// The score columns of the output.
    pub(super) output: RecordBatch,
}

/// Reads a sample, a part at a time. Blocks.
#[derive(Debug)]
pub(super) struct Sampler {
    store: Store,
    scoring: Scoring,
    /// The chunks with rows of the sample, and which of their scored rows these are.
    chunks: VecDeque<(Chunk, Commit, Vec<u64>)>,
    batch_rows: usize,
    open: Option<Open>,
}

/// A chunk that is being read.
#[derive(Debug)]
struct Open {
    file: PathBuf,
    rows: VecDeque<u64>,
    input: Reading,
    output: OutputRows,
}

impl Sampler {
    /// At most `rows` scored rows of a job, which `seed` decides.
    ///
    /// # Errors
    /// The job has no scored rows, or the sample none.
    pub(super) fn new(
        store: &Store,
        (plan, commits): (&Plan, Vec<Commit>),
        (rows, seed): (usize, u64),
    ) -> Result<Self, Error> {
        let scored: u64 = commits.iter().map(|commit| commit.scored).sum();
        let scored = usize::try_from(scored).map_err(Error::failed)?;
        if scored == 0 || rows == 0 {
            return Err(Error::usage("the job has no scored rows, or the sample none"));
        }
        let mut picked =
            index::sample(&mut StdRng::seed_from_u64(seed), scored, rows.min(scored)).into_vec();
        picked.sort_unstable();
        let mut picked = picked.into_iter().map(|row| row as u64).peekable();
        let (mut before, mut chunks) = (0, VecDeque::new());
        for (chunk, commit) in plan.scoring.rows_of(commits.iter()).zip(commits.iter().cloned()) {
            let end = before + commit.scored;
            let of_chunk = std::iter::from_fn(|| picked.next_if(|row| *row < end));
            let of_chunk: Vec<_> = of_chunk.map(|row| row - before).collect();
            if !of_chunk.is_empty() {
                chunks.push_back((chunk, commit, of_chunk));
            }
            before = end;
        }
        let scoring = plan.scoring.clone();
        let batch_rows = batch_rows(plan.answer_bytes);
        Ok(Self { store: store.clone(), scoring, chunks, batch_rows, open: None })
    }

    /// The next rows of the sample.
    ///
    /// # Errors
    /// The input has changed, or a file of the output is missing or was changed.
    pub(super) fn next(&mut self) -> Result<Option<Sampled>, Error> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(sampled) = open.next(self.batch_rows)? {
                    return Ok(Some(sampled));
                }
                self.open = None;
            }
            let Some((chunk, commit, rows)) = self.chunks.pop_front() else { return Ok(None) };
            self.open = Some(self.open(&chunk, &commit, &rows)?);
        }
    }

    fn open(&self, chunk: &Chunk, commit: &Commit, rows: &[u64]) -> Result<Open, Error> {
        let file = self.scoring.files.get(chunk.file);
        let file = file.ok_or_else(|| Error::failed("the plan has no such file"))?;
        let dead = self.dead(commit)?;
        let numbers = input_rows(chunk, file, &dead, rows);
        let input = Reading::whole(&self.scoring, file, &retry::ranges(&numbers))?;
        let data = commit.data.as_ref();
        let data = data.ok_or_else(|| Error::failed("a commit with scored rows has no file"))?;
        let form = Form::of(&self.scoring);
        let table = OutputTable::open(&self.store, &form, (data, commit.scored))?;
        let scores = self.scoring.outputs.iter().map(|output| output.column.as_str());
        let output = table.read(&retry::ranges(rows), &scores.collect::<Vec<_>>())?;
        Ok(Open { file: file.path.clone(), rows: numbers.into(), input, output })
    }

    /// The numbers of the rows of the file that are dead letters.
    fn dead(&self, commit: &Commit) -> Result<BTreeSet<u64>, Error> {
        let Some(file) = &commit.dead_letters else { return Ok(BTreeSet::new()) };
        let rows = retry::dead_rows_of(&self.store, file)?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}

/// The numbers in the file of the input of the scored rows of a chunk with these positions among
/// all that are scored.
fn input_rows(chunk: &Chunk, file: &InputFile, dead: &BTreeSet<u64>, scored: &[u64]) -> Vec<u64> {
    if dead.is_empty() {
        return scored.iter().map(|row| file.row(chunk.rows.start + row)).collect();
    }
    let ranges = file.ranges(chunk.rows.clone()).into_iter().flatten();
    let alive = (0..).zip(ranges.filter(|row| !dead.contains(row)));
    let mut wanted = scored.iter().peekable();
    alive.filter_map(|(at, row)| wanted.next_if(|wanted| **wanted == at).map(|_| row)).collect()
}

impl Open {
    fn next(&mut self, most: usize) -> Result<Option<Sampled>, Error> {
        let (input, output) = (self.input.next(most)?, self.output.next(most)?);
        // Rows that were scored are not malformed.
        let input = input.map(|rows| rows.table);
        match (input, output) {
            (None, None) => Ok(None),
            (Some(input), Some(output)) if input.num_rows() == output.num_rows() => {
                let rows = self.rows.drain(..input.num_rows().min(self.rows.len())).collect();
                Ok(Some(Sampled { file: self.file.clone(), rows, input, output }))
            }
            _ => {
                let file = self.file.display();
                Err(Error::failed(format!("{file} and the output have other rows than planned")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_rows_are_passed_over() {
        let chunk = Chunk { number: 0, file: 0, rows: 10..20 };
        let mut file = InputFile {
            rows: 100,
            path: "a".into(),
            size: 0,
            modified: 0,
            tag: None,
            picked: Default::default(),
            index: None,
        };
        let dead = |rows: &[u64]| rows.iter().copied().collect();
        assert_eq!(input_rows(&chunk, &file, &dead(&[]), &[0, 9]), [10, 19]);
        assert_eq!(input_rows(&chunk, &file, &dead(&[10, 12]), &[0, 1, 7]), [11, 13, 19]);
        file.picked = vec![100..115, 200..300].into();
        assert_eq!(input_rows(&chunk, &file, &dead(&[111]), &[0, 1, 4]), [110, 112, 200]);
    }
}
