//! A run over one file.

use std::{path::PathBuf, pin::pin, sync::Arc};

use futures::{Stream, StreamExt as _, stream};
use outrigger_core::{Failure, Reason};
use outrigger_tables::{Cell, Column, Format, Kind, Reader, Root, Writer};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    agreement::Agreement,
    answer,
    batch::{Batch, Batching},
    features::Features,
    group::{Group, GroupRow, fail_all},
    grouping::Grouping,
    options::{DIGEST, ERROR, Options, Reserved, SCORE},
    predictor::{Answer, Predictor},
    progress::Progress,
    refused::Sent,
    report::Report,
};

/// The batches that are read ahead.
const AHEAD: usize = 1;
/// The most errors that are listed.
const MAX_LISTED: usize = 1000;

/// The files of a run.
#[derive(Debug, Clone)]
pub struct Files {
    /// The directory that the paths lead to.
    pub root: Root,
    /// The file with the rows.
    pub input: PathBuf,
    /// The format of both files.
    pub format: Format,
    /// The file that gets the scores, if any. It is replaced when the run is complete.
    pub scores: Option<PathBuf>,
    /// True if an existing file of scores may be replaced.
    pub overwrite: bool,
}

/// The reason why a run ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input cannot be read.
    #[error(transparent)]
    Input(outrigger_tables::Error),
    /// The scores cannot be written.
    #[error(transparent)]
    Scores(outrigger_tables::Error),
    /// The requests cannot be scored.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Scores the rows of a file with `predictor`, whose model has these features.
///
/// # Errors
/// A file cannot be read or written, or the predictor failed for a reason that is not a request's.
pub async fn run(
    files: &Files,
    (predictor, features): (&impl Predictor, Features),
    options: &Options,
    progress: &Progress,
) -> Result<Report, Error> {
    let Files { root, input, format, overwrite, .. } = files;
    let reader =
        Reader::open(root, input, *format, options.memory.reading).map_err(Error::Input)?;
    let (is_written, columns) = columns(reader.columns(), &options.reserved);
    let create = |path: &PathBuf| Writer::create((root, path, *overwrite), *format, columns);
    let writer = files.scores.as_ref().map(create).transpose().map_err(Error::Scores)?;
    let agreement = features.deterministic().then(Agreement::default);
    let report = Report { tolerance: options.tolerance, ..Report::default() };
    let mut run = Run { is_written, writer, options, report, agreement };
    let mut grouping = Grouping::new(features, options, reader.columns());
    grouping.check_left_out(reader.left_out())?;
    if let Some(columns) = reader.columns() {
        grouping.take_columns(&columns.iter().map(|column| Arc::clone(&column.name)).collect());
        grouping.check_features()?;
    }
    let (batches, reading) = read(reader, grouping, (predictor.batching(), options.memory.batch));
    {
        let mut scored = pin!(scored(batches, predictor));
        while let Some(batch) = scored.next().await {
            let (batch, answers) = batch?;
            let fraction = batch.fraction;
            run.take(batch, answers)?;
            progress.set(fraction, run.report.rows, run.report.errors);
            if run.report.errors > options.max_errors as u64 {
                run.report.stopped = true;
                break;
            }
        }
    }
    let read = reading.await;
    let read = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    let grouping = read.map_err(Error::Input)?;
    grouping.check_features()?;
    run.report.ignored = grouping.ignored.into_iter().collect();
    run.finish()
}

/// The batches with the answers to their requests, in order.
fn scored(
    mut batches: mpsc::Receiver<Batch>,
    predictor: &impl Predictor,
) -> impl Stream<Item = Result<(Batch, Vec<Answer>), Failure>> {
    let batches = stream::poll_fn(move |context| batches.poll_recv(context));
    batches.map(move |batch| score(batch, predictor)).buffered(predictor.concurrency())
}

async fn score(batch: Batch, predictor: &impl Predictor) -> Result<(Batch, Vec<Answer>), Failure> {
    let answers = match batch.requests() {
        requests if requests.is_empty() => Vec::new(),
        requests => predictor.predict(&requests).await?,
    };
    Ok((batch, answers))
}

/// The columns of the scores: those of the reserved ones that the input has, which are marked, and
/// those of the run.
fn columns(input: Option<&[Column]>, reserved: &Reserved) -> ([bool; 3], Vec<Column>) {
    let found = [&reserved.user, &reserved.treatment, &reserved.expected].map(|name| match input {
        Some(input) => input.iter().find(|column| *column.name == **name).cloned(),
        None => Some(Column::new(name.as_str(), Kind::Text)),
    });
    let is_written = found.each_ref().map(Option::is_some);
    let mut columns: Vec<_> = found.into_iter().flatten().collect();
    let has_lists = columns.iter().any(|column| matches!(column.kind, Kind::List(_)));
    let score = if has_lists { Kind::List(Box::new(Kind::Single)) } else { Kind::Single };
    columns.push(Column::new(SCORE, score));
    columns.extend([DIGEST, ERROR].map(|name| Column::new(name, Kind::Text)));
    (is_written, columns)
}

/// The result of reading: what was found in the columns.
type Reading = JoinHandle<Result<Grouping, outrigger_tables::Error>>;

/// Reads batches on a thread that may block. It ends when the receiver is dropped.
fn read(
    mut reader: Reader,
    mut grouping: Grouping,
    (batching, max_bytes): (Batching, usize),
) -> (mpsc::Receiver<Batch>, Reading) {
    let (sender, batches) = mpsc::channel(AHEAD);
    let reading = tokio::task::spawn_blocking(move || {
        let (mut batch, mut full) = (Batch::default(), Vec::new());
        loop {
            let mut add = |group: Group| {
                if !batch.has_room(&group, &batching, max_bytes) {
                    full.push(std::mem::take(&mut batch));
                }
                batch.add(group);
            };
            let row = reader.read()?;
            let is_end = row.is_none();
            match row {
                Some(row) => grouping.add(row, &mut add),
                None => grouping.close(&mut add),
            }
            if is_end {
                full.push(std::mem::take(&mut batch));
            }
            for mut batch in full.drain(..) {
                batch.fraction = reader.fraction();
                if sender.blocking_send(batch).is_err() {
                    return Ok(grouping);
                }
            }
            if is_end {
                return Ok(grouping);
            }
        }
    });
    (batches, reading)
}

/// The state of a run.
struct Run<'a> {
    /// The reserved columns that are written.
    is_written: [bool; 3],
    writer: Option<Writer>,
    options: &'a Options,
    report: Report,
    agreement: Option<Agreement>,
}

impl Run<'_> {
    /// Takes a batch with the answers to its requests.
    fn take(&mut self, batch: Batch, answers: Vec<Answer>) -> Result<(), Error> {
        let mut answers = answers.into_iter();
        for group in batch.groups {
            let is_sent = group.is_sent();
            let Group { mut rows, treatments, request } = group;
            let (mut scores, mut digest) = (vec![Cell::Absent; rows.len()], Cell::Absent);
            if is_sent {
                let missing = || Err(Failure::new(Reason::ScoresInvalid, "there is no answer"));
                match self.score(&mut rows, treatments, answers.next().unwrap_or_else(missing)) {
                    Ok(scored) => (scores, digest) = scored,
                    Err(failure) => fail_all(&mut rows, &failure),
                }
            }
            let sent = Sent::new(&request);
            for (row, score) in rows.into_iter().zip(scores) {
                self.write(row, score, digest.clone(), &sent)?;
            }
        }
        Ok(())
    }

    /// The scores of rows, and the digest of the model.
    fn score(
        &mut self,
        rows: &mut [GroupRow],
        treatments: usize,
        answer: Answer,
    ) -> Result<(Vec<Cell>, Cell), Failure> {
        self.report.requests += 1;
        let response = answer?;
        let scores = answer::scores(rows, treatments, &response)?;
        let digest = response.model.unwrap_or_default().digest;
        *self.report.digests.entry(digest.clone()).or_default() += 1;
        if let Some(agreement) = &mut self.agreement {
            agreement.add(rows, &scores, self.options.tolerance);
        }
        Ok((scores, Cell::Text(digest)))
    }

    fn write(
        &mut self,
        row: GroupRow,
        score: Cell,
        digest: Cell,
        sent: &Sent<'_>,
    ) -> Result<(), Error> {
        let GroupRow { number, user, treatment, expected, failure, shares_failure, .. } = row;
        self.report.rows += 1;
        match &failure {
            None => self.report.scored += 1,
            Some(_) if shares_failure => {}
            Some(failure) => {
                let listed = self.options.max_errors.saturating_add(1).min(MAX_LISTED);
                self.report.add_error(number, failure, sent, listed);
            }
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let reserved = self.is_written.into_iter().zip([user, treatment, expected]);
        let reserved = reserved.filter_map(|(is_written, cell)| is_written.then_some(cell));
        let error = failure.map_or(Cell::Absent, |failure| Cell::Text(failure.to_string()));
        let cells: Vec<_> = reserved.chain([score, digest, error]).collect();
        writer.write(&cells).map_err(Error::Scores)
    }

    fn finish(mut self) -> Result<Report, Error> {
        if let Some(writer) = self.writer
            && !self.report.stopped
        {
            writer.finish().map_err(Error::Scores)?;
        }
        self.report.agreement = self.agreement.filter(|agreement| agreement.compared > 0);
        Ok(self.report)
    }
}

#[cfg(test)]
mod tests;
