//! The dead letters of a finished job as the input of another one.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::PathBuf,
};

use serde::Deserialize;

use crate::{
    Error, Job, Manifest, Output, Source, Store,
    columns::{InputTensor, OutputColumn},
    commit::DataFile,
    finished,
    input::{Input, InputFile},
    plan::Scoring,
};

/// The most rows of the first job that are tried if the dead letters are still at fault.
const SCORED_ROWS: usize = 4;

/// The part of a dead letter that finds its row.
#[derive(Debug, Deserialize)]
struct Letter {
    file: PathBuf,
    row: u64,
}

/// The job over the dead letters of the one in `store`, and its input. The settings of the columns
/// that `job` leaves out are those of the first job; the model's version may be another.
///
/// # Errors
/// The first job is not finished or has no dead letters, or its input has changed.
pub(crate) fn retried(job: Job, store: &Store) -> Result<(Job, Input), Error> {
    let root = store.root().display();
    let (plan, manifest) = finished::job(store).map_err(|error| error.about("retry"))?;
    let rows = dead_rows(&manifest, store)?;
    if rows.is_empty() {
        return Err(Error::usage(format!("retry: the job {root} has no dead letters")));
    }
    let scored = scored_rows(&plan.scoring, &manifest, &rows);
    let picked = rows.into_iter().map(|(file, rows)| (file, ranges(&rows))).collect();
    let mut input = Input::picked(picked, &plan.scoring)?;
    input.scored = scored;
    Ok((completed(job, plan.scoring), input))
}

/// A few rows that the job has scored, each as its file. They are from files with dead letters, where
/// these have some.
fn scored_rows(
    scoring: &Scoring,
    manifest: &Manifest,
    dead: &BTreeMap<PathBuf, Vec<u64>>,
) -> Vec<InputFile> {
    let chunks = scoring.rows_of(manifest.chunks.iter().filter(|commit| commit.scored > 0));
    let chunks = chunks.filter_map(|chunk| Some((scoring.files.get(chunk.file)?, chunk.rows)));
    let (of_dead, others): (Vec<_>, Vec<_>) =
        chunks.partition(|(file, _)| dead.contains_key(&file.path));
    let chunks = if of_dead.is_empty() { others } else { of_dead };
    let step = chunks.len().div_ceil(SCORED_ROWS).max(1);
    let scored = |(file, positions): (&InputFile, Range<u64>)| {
        let dead: BTreeSet<_> = dead.get(&file.path).into_iter().flatten().collect();
        let mut rows = file.ranges(positions).into_iter().flatten();
        rows.find(|row| !dead.contains(row)).map(|row| file.with_row(row))
    };
    chunks.into_iter().step_by(step).filter_map(scored).collect()
}

/// The dead rows of each file.
fn dead_rows(manifest: &Manifest, store: &Store) -> Result<BTreeMap<PathBuf, Vec<u64>>, Error> {
    let mut rows: BTreeMap<PathBuf, Vec<u64>> = BTreeMap::new();
    for letters in manifest.dead_letters() {
        for (file, row) in dead_rows_of(store, letters)? {
            rows.entry(file).or_default().push(row);
        }
    }
    Ok(rows)
}

/// The rows of a file of dead letters: their files, and their numbers there.
///
/// # Errors
/// It cannot be read.
pub(crate) fn dead_rows_of(
    store: &Store,
    letters: &DataFile,
) -> Result<Vec<(PathBuf, u64)>, Error> {
    let name = &letters.name;
    let content = store.read(name).map_err(|error| Error::store(name, &error))?;
    let content = content.ok_or_else(|| Error::failed(format!("{name} was removed")))?;
    let row = |line| {
        let letter = serde_json::from_slice(line);
        let Letter { file, row } =
            letter.map_err(|error| Error::failed(format!("{name}: {error}")))?;
        Ok((file, row))
    };
    content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(row).collect()
}

/// Row numbers as ranges, in order.
pub(crate) fn ranges(rows: &[u64]) -> Vec<Range<u64>> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for row in rows {
        match ranges.last_mut() {
            Some(last) if last.end >= row => last.end = last.end.max(row + 1),
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

/// The job with the settings of the first one where it has none.
fn completed(mut job: Job, first: Scoring) -> Job {
    job.protocol = first.protocol;
    if job.inputs.is_empty() {
        let source = |input: InputTensor| {
            let InputTensor { name, datatype, row, columns, .. } = input;
            (name, Source { columns, datatype: Some(datatype), shape: Some(row) })
        };
        job.inputs = first.inputs.into_iter().map(source).collect();
    }
    job.keys.get_or_insert(first.keys);
    job.format = Some(first.format);
    job.output_format.get_or_insert(first.output_format);
    if job.outputs.is_empty() {
        let output = |it: OutputColumn| (it.column, Output::of(&it.tensor));
        job.outputs = first.outputs.into_iter().map(output).collect();
    }
    if job.model.name.is_empty() {
        (job.model.name, job.model.row_by_row) = (first.model, first.row_by_row);
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_ranges() {
        assert_eq!(ranges(&[7, 3, 4, 9, 8]), [3..5, 7..10]);
        assert_eq!(ranges(&[1, 1]), std::slice::from_ref(&(1..2)));
        assert_eq!(ranges(&[]), []);
    }
}
