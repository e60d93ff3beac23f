//! The parts of a worker.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread::{self, JoinHandle},
};

use outrigger_dispatch::{Limits, MaxErrors as Allowed, Settings, Share};
use outrigger_oip_client::Request;

use super::steward::Steward;
use crate::{
    Error, Manifest, Periods,
    columns::output_schema,
    dead::DeadRows,
    history,
    input::{self, PAGES},
    job::{Job, MaxErrors},
    output::Outputs,
    plan::{PLAN, Plan},
    prepare::reference,
    progress::Counts,
    readers::{CALL_BYTES, Readers},
    store::Store,
    work::Work,
};

/// The most chunks that are open at a time, and the memory of one besides its batches: the row group
/// that is being written, and a decoded part of the input.
const MOST_OPEN: u64 = 8;
const OPEN_BYTES: u64 = 16 << 20;
/// The most threads that read.
const MOST_READERS: usize = 4;
/// The last rows that a share of dead ones is of.
const ERROR_SAMPLE: u64 = 1000;

/// The parts of a worker by its memory.
pub(super) struct Layout {
    pub(super) readers: usize,
    /// The chunks that are open at a time.
    pub(super) places: u64,
    /// The bytes for batches.
    pub(super) batches: u64,
}

impl Layout {
    /// The parts within `memory` bytes. The store takes `buffer` bytes for each open chunk.
    pub(super) fn of(memory: u64, buffer: u64) -> Self {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let open = OPEN_BYTES + buffer;
        let places = (memory / 4 / (open + PAGES)).clamp(1, MOST_OPEN);
        let readers = cores.min(MOST_READERS).min(usize::try_from(places).unwrap_or(1));
        let held = places * open + readers as u64 * PAGES;
        Self { readers, places, batches: memory.saturating_sub(held) }
    }

    /// The part of the memory for batches that is kept for the answers of the first one, which have at
    /// most `max_answer` bytes.
    pub(super) fn reserve(&self, max_answer: usize) -> u64 {
        (max_answer as u64 + 2 * CALL_BYTES).min(self.batches / 2)
    }
}

/// The threads of a worker, which work from now on.
pub(super) fn threads(
    count: usize,
    readers: &Arc<Readers>,
    steward: &Arc<Steward>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let watching = Arc::clone(steward);
    let mut threads = vec![spawn("steward".to_owned(), move || watching.run())?];
    for reader in 0..count {
        let readers = Arc::clone(readers);
        threads.push(spawn(format!("reader-{reader}"), move || readers.run())?);
    }
    Ok(threads)
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new().name(name).spawn(work).map_err(Error::failed)
}

/// The state of a job at the start of a worker.
pub(super) enum Begun {
    /// All of it is done.
    Finished(Manifest),
    /// The worker has something to do.
    Start(Box<Start>),
}

/// The parts of a worker that come from the store.
pub(super) struct Start {
    pub(super) outputs: Outputs,
    pub(super) work: Work,
    /// The rows that are committed.
    pub(super) before: u64,
    /// The dead ones of them, if the job has a number of `max_errors`.
    pub(super) dead: Option<DeadRows>,
    /// The request of one row that was scored before, to test hosts with.
    pub(super) reference: Option<Request>,
}

/// Begins to work on the job in a store. Blocks.
///
/// # Errors
/// The store failed, or does not hold what a commit needs.
pub(super) fn begin((plan, job): (&Plan, &Job), store: &Store) -> Result<Begun, Error> {
    if let Some(manifest) = Manifest::read(store)? {
        return Ok(Begun::Finished(manifest));
    }
    store.check_conditions(PLAN).map_err(|error| Error::store(PLAN, &error))?;
    // More histories than there should be are no reason not to work.
    let _ = history::make_room(store);
    let (work, before) = Work::new(plan, store)?;
    let dead = dead_rows(job, store)?;
    let reference = plan.reference.as_ref().map(|file| reference(&plan.scoring, file));
    Ok(Begun::Start(Box::new(Start {
        outputs: outputs(plan, store)?,
        work,
        before,
        dead,
        reference: reference.transpose()?.flatten(),
    })))
}

/// The dead rows that are committed, if the job has a number of `max_errors`. Blocks.
///
/// # Errors
/// There are too many, or the store failed.
pub(super) fn dead_rows(job: &Job, store: &Store) -> Result<Option<DeadRows>, Error> {
    let Some(MaxErrors::Rows(most)) = job.max_errors else { return Ok(None) };
    let mut dead = DeadRows::default();
    dead.refresh(store)?;
    if dead.without(&BTreeSet::new()) > most {
        return Err(Error::TooManyDead);
    }
    Ok(Some(dead))
}

/// Checks the dead rows of a job whose chunks are all committed. A share is that of all its rows
/// then: the last rows of one worker may be too few for a sample. Blocks.
///
/// # Errors
/// There are too many, or the store failed.
pub(super) fn check_dead(job: &Job, plan: &Plan, store: &Store) -> Result<(), Error> {
    let Some(MaxErrors::Share(most)) = job.max_errors else {
        return dead_rows(job, store).map(drop);
    };
    let mut dead = DeadRows::default();
    dead.refresh(store)?;
    match dead.without(&BTreeSet::new()) as f64 > most * plan.scoring.rows() as f64 {
        true => Err(Error::TooManyDead),
        false => Ok(()),
    }
}

/// The output of the plan's chunks.
fn outputs(plan: &Plan, store: &Store) -> Result<Outputs, Error> {
    let scoring = &plan.scoring;
    Ok(Outputs {
        store: store.clone(),
        format: scoring.output_format,
        schema: output_schema(input::key_fields(scoring)?.into_iter(), &scoring.outputs),
        columns: scoring.outputs.clone(),
        version: scoring.version.clone(),
        counts: Counts::default(),
        part: Periods::default().part,
        keeps_parts: AtomicBool::new(true),
        turn: Mutex::default(),
    })
}

/// The limits of each host.
pub(super) fn limits(concurrency: u32, rows_per_second: Option<u32>) -> Limits {
    let max_in_flight = usize::try_from(concurrency).unwrap_or(usize::MAX);
    Limits { max_in_flight, rows_per_second: rows_per_second.map(f64::from) }
}

/// The settings of the dispatcher.
pub(super) fn settings(job: &Job) -> Settings {
    let max_errors = match job.max_errors {
        None => Allowed::default(),
        Some(MaxErrors::Rows(rows)) => Allowed { rows: Some(rows), share: None },
        Some(MaxErrors::Share(most)) => {
            Allowed { rows: None, share: Some(Share { most, of_rows: ERROR_SAMPLE }) }
        }
    };
    let limits = limits(job.concurrency, job.rows_per_second);
    Settings { limits, max_errors, ..Settings::default() }
}
