//! The state of a job, as its output shows it to any machine.

mod reports;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

pub(crate) use self::reports::Reports;
use crate::{
    Control, Error, History, Letter, Manifest, Progress, Run, Store,
    commit::{self, Commit},
    history,
    letters::Letters,
    plan::Plan,
    store::is_address,
};

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
    /// The committed rows of the output, with those in parts of chunks.
    pub scored: u64,
    /// The committed dead letters, with those in parts of chunks.
    pub dead: u64,
    /// The chunks.
    pub chunks: u64,
    /// The chunks that are committed.
    pub committed: u64,
    /// The changes to the job's settings.
    pub control: Control,
    /// The workers that are at work.
    pub workers: Vec<Progress>,
    /// The rows that were done in each step of time, by all workers.
    pub history: History,
    /// The last runs of workers, those that have ended included.
    pub runs: Vec<Run>,
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
        Reader::new(store.clone()).read()
    }
}

/// Reads the state of a job again and again. Of the commits only new ones are read.
#[derive(Debug)]
pub struct Reader {
    store: Store,
    plan: Option<Planned>,
    reports: Reports,
    committed: BTreeSet<u64>,
    scored: u64,
    dead: u64,
    /// The parts of chunks that are not committed, by their chunks and first rows.
    parts: BTreeMap<(u64, u64), Commit>,
    letters: Letters,
    is_finished: bool,
}

/// The part of a plan that the state has.
#[derive(Debug)]
struct Planned {
    job: String,
    created: String,
    model: String,
    version: Option<String>,
    rows: u64,
    chunks: u64,
}

impl Reader {
    /// Reads the job in a store. Blocks from now on.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            plan: None,
            reports: Reports::default(),
            committed: BTreeSet::new(),
            scored: 0,
            dead: 0,
            parts: BTreeMap::new(),
            letters: Letters::default(),
            is_finished: false,
        }
    }

    /// The store of the job.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The state now.
    ///
    /// # Errors
    /// There is no job, or it cannot be read.
    pub fn read(&mut self) -> Result<Status, Error> {
        self.find_plan()?;
        let workers = self.reports.read(&self.store)?;
        let control = Control::read(&self.store)?;
        self.find_commits()?;
        let (history, runs) = history::read(&self.store)?;
        let plan = self.plan.as_ref().ok_or_else(|| Error::failed("there is no plan"))?;
        let state = match (self.is_finished, workers.is_empty(), control.paused) {
            (true, _, _) => State::Finished,
            (false, true, _) => State::Stopped,
            (false, false, true) => State::Paused,
            (false, false, false) => State::Running,
        };
        Ok(Status {
            output: self.store.root().to_owned(),
            job: plan.job.clone(),
            created: plan.created.clone(),
            model: plan.model.clone(),
            version: plan.version.clone(),
            state,
            rows: plan.rows,
            scored: self.scored + self.in_parts(|part| part.scored),
            dead: self.dead + self.in_parts(|part| part.dead),
            chunks: plan.chunks,
            committed: self.committed.len() as u64,
            control,
            workers,
            history,
            runs,
        })
    }

    /// The first dead letters of the chunks that were committed when the state was read last.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn letters(&mut self) -> Result<&[Letter], Error> {
        self.letters.read(&self.store)
    }

    /// Reads the plan, which never changes.
    fn find_plan(&mut self) -> Result<(), Error> {
        if self.plan.is_some() {
            return Ok(());
        }
        let plan = Plan::read(&self.store)?;
        let root = self.store.root().display();
        let plan = plan.ok_or_else(|| Error::usage(format!("{root} is not a job")))?;
        let (rows, chunks) = (plan.scoring.rows(), plan.scoring.chunks());
        let Plan { job, created, scoring, .. } = plan;
        let (model, version) = (scoring.model, scoring.version);
        self.plan = Some(Planned { job, created, model, version, rows, chunks });
        Ok(())
    }

    /// Reads the commits that are new: those of the manifest if it is there.
    fn find_commits(&mut self) -> Result<(), Error> {
        if self.is_finished {
            return Ok(());
        }
        if let Some(manifest) = Manifest::read(&self.store)? {
            let known = std::mem::take(&mut self.committed);
            let new = manifest.chunks.iter().filter(|commit| !known.contains(&commit.chunk));
            new.for_each(|commit| self.add(commit));
            self.committed.extend(known);
            self.parts.clear();
            self.is_finished = true;
            return Ok(());
        }
        let chunks = commit::committed(&self.store)?;
        let new = chunks.into_iter().filter(|chunk| !self.committed.contains(chunk));
        for commit in Commit::read_all(&self.store, new)?.into_iter().flatten() {
            commit.with_files().iter().for_each(|commit| self.add(commit));
        }
        self.find_parts()
    }

    /// Reads the parts that are new, of chunks that are not committed.
    fn find_parts(&mut self) -> Result<(), Error> {
        self.parts.retain(|(chunk, _), _| !self.committed.contains(chunk));
        for (chunk, start) in commit::parts(&self.store)? {
            let is_known =
                self.committed.contains(&chunk) || self.parts.contains_key(&(chunk, start));
            if is_known {
                continue;
            }
            if let Some(part) = Commit::read_part(&self.store, chunk, start)? {
                self.parts.insert((chunk, start), part);
            }
        }
        Ok(())
    }

    /// The sum over the parts that follow each other from the first row of their chunk on.
    fn in_parts(&self, of: fn(&Commit) -> u64) -> u64 {
        let mut sum = 0;
        let mut next = (0, 0);
        for ((chunk, start), part) in &self.parts {
            if *start == 0 {
                next = (*chunk, 0);
            }
            if next == (*chunk, *start) {
                sum += of(part);
                next.1 += part.rows;
            }
        }
        sum
    }

    fn add(&mut self, commit: &Commit) {
        self.committed.insert(commit.chunk);
        self.scored += commit.scored;
        self.dead += commit.dead;
        if let Some(file) = &commit.dead_letters {
            self.letters.add(&file.name);
        }
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use outrigger_tables::Format;
    use serde_json::Value;

    use super::*;
    use crate::{
        commit::DataFile,
        input::InputFile,
        plan::Scoring,
        progress::{HostProgress, LastFailure},
    };

    /// A job of two chunks of two rows.
    fn planned(store: &Store) -> Plan {
        let file = InputFile {
            path: "a".into(),
            size: 1,
            modified: 2,
            tag: None,
            rows: 4,
            picked: Default::default(),
            index: None,
        };
        let scoring = Scoring {
            files: vec![file],
            format: Format::Parquet,
            types: Vec::new(),
            protocol: Default::default(),
            output_format: Format::Parquet,
            model: "m".to_owned(),
            version: Some("3".to_owned()),
            tag: None,
            is_pinned: false,
            row_by_row: false,
            inputs: Vec::new(),
            keys: Vec::new(),
            outputs: Vec::new(),
            chunk_rows: 2,
        };
        Plan::new(scoring, 1).expect("a plan").write(store).expect("written")
    }

    /// Commits a chunk whose second row is dead.
    fn commit(chunk: u64, store: &Store) {
        let name = format!("dead/{chunk}-a.jsonl");
        let letter = Letter {
            file: "a".into(),
            row: 2 * chunk + 1,
            death: crate::Death::invalid("no value".to_owned()),
        };
        let line = serde_json::to_vec(&letter).expect("JSON");
        store.replace(&name, &line).expect("written");
        let dead = DataFile { name, bytes: line.len() as u64, blake3: String::new() };
        let commit = Commit {
            chunk,
            start: 0,
            attempt: "a".to_owned(),
            rows: 2,
            scored: 1,
            dead: 1,
            data: None,
            dead_letters: Some(dead),
            version: None,
            hosts: Default::default(),
            time: String::new(),
            parts: Vec::new(),
        };
        assert_eq!(commit.write(store), Ok(true));
    }

    #[test]
    fn a_reader_follows_a_job_to_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        let mut reader = Reader::new(store.clone());
        assert!(matches!(reader.read(), Err(Error::Usage(_))), "there is no plan");
        let plan = planned(&store);
        let status = reader.read().expect("read");
        assert_eq!((status.state, status.rows, status.committed), (State::Stopped, 4, 0));
        assert_eq!(reader.letters().expect("read"), []);
        commit(1, &store);
        let rows = |reader: &mut Reader| {
            let status = reader.read().expect("read");
            let letters = reader.letters().expect("read").iter().map(|letter| letter.row).collect();
            (status.state, status.scored, status.dead, letters)
        };
        let expected = (State::Stopped, 1, 1, vec![3]);
        assert_eq!(rows(&mut reader), expected);
        assert_eq!(rows(&mut reader), expected, "no commit counts twice");
        commit(0, &store);
        Manifest::write(&plan, &store).expect("written");
        assert_eq!(rows(&mut reader), (State::Finished, 2, 2, vec![3, 1]));
        let (status, other) = (reader.read(), Status::read(&store));
        assert_eq!(status, other);
    }

    #[test]
    fn the_json_has_the_documented_keys() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        planned(&store);
        let mut status = Status::read(&store).expect("read");
        let failure = LastFailure { time: String::new(), message: String::new() };
        let host = HostProgress { last_failure: Some(failure), ..HostProgress::default() };
        status.workers = vec![Progress { hosts: vec![host], ..Progress::default() }];
        status.runs = vec![Run::default()];
        let json = serde_json::to_value(&status).expect("JSON");
        for (part, expected) in [
            (
                &json,
                "output job created model version state rows scored dead chunks committed control \
                 workers history runs",
            ),
            (&json["control"], "paused cancelled"),
            (&json["history"], "from to step_seconds rows"),
            (&json["runs"][0], "worker from to rows"),
            (
                &json["workers"][0],
                "worker time rows before elsewhere lost resumed read scored dead reasons committed \
                 committed_chunks open_chunks open_rows rows_per_second elsewhere_per_second memory memory_peak memory_limit blocked_seconds is_paused \
                 is_store_away hosts unresolved",
            ),
            (
                &json["workers"][0]["hosts"][0],
                "host limit bound in_flight breaker rows_per_second round_trip_ms rows calls failed \
                 tokens ends last_failure health",
            ),
            (&json["workers"][0]["hosts"][0]["last_failure"], "time message"),
        ] {
            let keys: BTreeSet<_> = part.as_object().into_iter().flat_map(|it| it.keys()).collect();
            let keys: Vec<_> = keys.into_iter().map(String::as_str).collect();
            let mut expected: Vec<_> = expected.split_whitespace().collect();
            expected.sort_unstable();
            assert_eq!(keys, expected);
        }
        assert_eq!(json["state"], Value::from("stopped"));
    }
}
