//! The parts of a worker.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use outrigger_dispatch::{Limits, MaxErrors as Allowed, Settings, Share};

use super::steward::Steward;
use crate::{
    Error,
    columns::output_schema,
    input::{self, PAGES},
    job::{Job, MaxErrors},
    output::Outputs,
    plan::Plan,
    readers::Readers,
    store::Store,
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
    /// The parts within `memory` bytes.
    pub(super) fn of(memory: u64) -> Self {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let places = (memory / 4 / (OPEN_BYTES + PAGES)).clamp(1, MOST_OPEN);
        let readers = cores.min(MOST_READERS).min(usize::try_from(places).unwrap_or(1));
        let held = places * OPEN_BYTES + readers as u64 * PAGES;
        Self { readers, places, batches: memory.saturating_sub(held) }
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

/// The output of the plan's chunks.
pub(super) fn outputs(plan: &Plan, store: &Store) -> Result<Outputs, Error> {
    let scoring = &plan.scoring;
    Ok(Outputs {
        store: store.clone(),
        format: scoring.output_format,
        schema: output_schema(input::key_fields(scoring)?.into_iter(), &scoring.outputs),
        columns: scoring.outputs.clone(),
        version: scoring.version.clone(),
    })
}

/// The limits of each host.
pub(super) fn limits(concurrency: u32) -> Limits {
    let max_in_flight = usize::try_from(concurrency).unwrap_or(usize::MAX);
    Limits { max_in_flight, rows_per_second: None }
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
    Settings { limits: limits(job.concurrency), max_errors, ..Settings::default() }
}
