//! The state of a job, as its output shows it to any machine.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::Serialize;

use crate::{
    Control, Error, Manifest, Progress, Store,
    commit::{self, Commit, WORKERS},
    plan::Plan,
    store::is_address,
};

/// The age of a report after which its worker counts as gone.
const SILENCE: Duration = Duration::from_secs(15);

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The location of its output.
    pub output: PathBuf,
    /// The name of the job.
    pub job: String,
    /// The time of its plan (RFC 3339).
    pub created: String,
    /// The model.
    pub model: String,
    /// The version of the model that the job began with.
    pub version: Option<String>,
    /// The state.
    pub state: State,
    /// The rows of the input.
    pub rows: u64,
    /// The committed rows of the output.
    pub scored: u64,
    /// The committed dead letters.
    pub dead: u64,
    /// The chunks.
    pub chunks: u64,
    /// The chunks that are committed.
    pub committed: u64,
    /// The changes to the job's settings.
    pub control: Control,
    /// The workers that are at work.
    pub workers: Vec<Progress>,
}

/// The state of a job as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Workers are at work.
    Running,
    /// Workers wait: the job is paused.
    Paused,
    /// The job is not finished, and has no worker.
    Stopped,
    /// The manifest is there.
    Finished,
}

impl State {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        }
    }
}

impl Status {
    /// The state of the job in a store.
    ///
    /// # Errors
    /// There is no job, or it cannot be read.
    pub fn read(store: &Store) -> Result<Self, Error> {
        let plan = Plan::read(store)?;
        let root = store.root();
        let plan = plan.ok_or_else(|| Error::usage(format!("{} is not a job", root.display())))?;
        let (control, workers) = (Control::read(store)?, workers(store)?);
        let state = match Manifest::read(store)? {
            Some(_) => State::Finished,
            None if workers.is_empty() => State::Stopped,
            None if control.paused => State::Paused,
            None => State::Running,
        };
        let mut status = Self {
            output: root.to_owned(),
            rows: plan.scoring.rows(),
            chunks: plan.scoring.chunks(),
            job: plan.job,
            created: plan.created,
            model: plan.scoring.model,
            version: plan.scoring.version,
            state,
            scored: 0,
            dead: 0,
            committed: 0,
            control,
            workers,
        };
        let commits = Commit::read_all(store, commit::committed(store)?)?;
        for commit in commits.into_iter().flatten() {
            status.committed += 1;
            status.scored += commit.scored;
            status.dead += commit.dead;
        }
        Ok(status)
    }
}

/// The workers that have reported lately.
fn workers(store: &Store) -> Result<Vec<Progress>, Error> {
    let names = store.list(WORKERS).map_err(|error| Error::store(WORKERS, &error))?;
    let mut workers = Vec::new();
    for name in names {
        let Some(progress) = commit::read::<Progress>(store, &format!("{WORKERS}/{name}"))? else {
            continue;
        };
        let time = humantime::parse_rfc3339(&progress.time).unwrap_or(SystemTime::UNIX_EPOCH);
        let age = SystemTime::now().duration_since(time).unwrap_or_default();
        if age < SILENCE {
            workers.push(progress);
        }
    }
    Ok(workers)
}

/// The states of the jobs whose outputs are in the directory `parent`, or below that address.
///
/// # Errors
/// It does not exist, or a job cannot be read.
pub fn list(parent: &Path) -> Result<Vec<Status>, Error> {
    let failed = |error| Error::store(&parent.display().to_string(), &error);
    if !is_address(parent) {
        fs::metadata(parent).map_err(failed)?;
    }
    let mut jobs = Vec::new();
    for place in Store::at(parent)?.directories().map_err(failed)? {
        if Plan::read(&place)?.is_some() {
            jobs.push(Status::read(&place)?);
        }
    }
    Ok(jobs)
}
