//! Scores a sample of a finished job again: with other hosts of the protocol here, or from a file
//! with the sample's features by any other means.

mod features;
mod sample;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType as ArrowType, Field, SchemaRef};
use bytesize::ByteSize;
use outrigger_core::Digest;
use outrigger_oip_client::Request;
use serde::Serialize;
use tokio::{task::spawn_blocking, time::Instant};

use self::sample::{Sampled, Sampler};
use crate::{
    Answer, ColumnDifference, Error, Host, Job, Store, Tolerance,
    columns::output_schema,
    commit::Manifest,
    decode::{check, decode},
    diff::{Columns, Comparison, Kind, Sink as _},
    encode::encode,
    finished,
    hosts::Hosts,
    input::Rows,
    job::{Period, Size},
    memory::{Allowance, Memory},
    plan::{Plan, Scoring},
    readers,
};

pub use self::features::{EXPECTED, ROW, TREATMENT};

/// The most rows in a request.
const REQUEST_ROWS: usize = 64;
/// The least limit on the bytes of a request.
const LEAST_MESSAGE: usize = 256 << 20;
/// The bytes for the ranks of scores.
const RANKS: u64 = 16 << 20;
/// The columns that name a row of the sample.
const KEYS: [&str; 2] = ["input.file", "input.row"];

/// The sample of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The most rows.
    pub rows: usize,
    /// The rows are drawn by it.
    pub seed: u64,
}

/// A job whose sample was scored again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The location of the job's output.
    pub output: PathBuf,
    /// The name of the model in the job.
    pub model: String,
    /// The version that has scored the job, if its hosts named one.
    pub version: Option<String>,
    /// The rows of the sample.
    pub rows: u64,
}

impl Verified {
    /// The digest of the model, if the version is one.
    pub fn digest(&self) -> Option<Digest> {
        self.version.as_ref()?.parse().ok()
    }

    /// Compares the versions that have answered now with the one of the job.
    pub fn compare<'a>(&self, answered: impl IntoIterator<Item = &'a str>) -> VersionMatch {
        let mut answered = answered.into_iter().peekable();
        match &self.version {
            Some(version) if answered.peek().is_some() => {
                let is_same = answered.all(|other| other == version);
                if is_same { VersionMatch::Same } else { VersionMatch::Different }
            }
            _ => VersionMatch::Unknown,
        }
    }
}

/// The version of a model now, compared with the one of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionMatch {
    /// They are the same.
    Same,
    /// They are not.
    Different,
    /// One of them is not known.
    Unknown,
}

/// The hosts that score a sample again, and how they are asked.
#[derive(Debug, Clone)]
pub struct Verifiers {
    /// The hosts; one answers for all, the next one is asked if it fails.
    pub hosts: Vec<Host>,
    /// A file in PEM with the authorities of the hosts, those of the system if it is absent.
    pub ca: Option<PathBuf>,
    /// The time limit of a request.
    pub timeout: Period,
    /// The most that an answer takes while it is received and decoded; that of the job if it is
    /// absent.
    pub memory: Option<Size>,
}

/// A sample that hosts have scored again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostVerification {
    /// The job.
    #[serde(flatten)]
    pub job: Verified,
    /// The versions that have answered now.
    pub answered: BTreeSet<String>,
    /// True if some answers named no version.
    pub unversioned: bool,
    /// The comparison of the versions.
    pub version_match: VersionMatch,
    /// The differences of the score columns: `a` is that of the job, `b` the new one.
    pub columns: Vec<ColumnDifference>,
}

impl HostVerification {
    /// True if no score differs by more than the tolerance, and the version is not another one.
    pub fn passed(&self) -> bool {
        self.version_match != VersionMatch::Different
            && self.columns.iter().all(|column| column.differing == 0)
    }
}

/// Writes the sample to a Parquet file, as rows for predictions by features: a column for each
/// feature, [`ROW`] with a name of the row, and [`EXPECTED`] with its value in the column `score`,
/// or in the only score column. Returns what is known about the job. Blocks.
///
/// # Errors
/// The job is not finished, has no such score or features that a file cannot have, its input has
/// changed, or the output is damaged.
pub fn write_features(
    store: &Store,
    sample: Sample,
    score: Option<&str>,
    path: &Path,
) -> Result<Verified, Error> {
    let (plan, mut sampler) = open(store, sample)?;
    features::check(&plan.scoring.inputs)?;
    let score = features::score(&plan.scoring, score)?;
    let mut rows = 0;
    let mut file = features::File::new(path, &plan.scoring, score);
    while let Some(sampled) = sampler.next()? {
        rows += sampled.rows.len() as u64;
        file.write(&sampled)?;
    }
    file.finish()?;
    Ok(verified(store, &plan, rows))
}

/// Scores the sample with these hosts of the Open Inference Protocol, in the way of the job, and
/// compares. `listed` values of each column are named.
///
/// # Errors
/// The job is not finished, its input has changed, the output is damaged, no host scores a request,
/// or the answer for one row is larger than the memory.
///
/// # Panics
/// Outside of a Tokio runtime.
pub async fn verify_on_hosts(
    store: &Store,
    sample: Sample,
    Verifiers { hosts, ca, timeout, memory }: Verifiers,
    (listed, tolerance): (usize, Tolerance),
) -> Result<HostVerification, Error> {
    let (plan, mut sampler) = open(store, sample)?;
    let scoring = &plan.scoring;
    let memory = memory.unwrap_or(Size(plan.memory));
    let job = Job::new(Vec::new(), store.root(), &scoring.model, hosts);
    let job = Job { ca, timeout, memory, ..job };
    let mut scorer = Scorer::new(&job, scoring)?;
    let (columns, keys) = columns(&scorer.schema);
    let mut found = Comparison::new(&columns, keys, (listed, tolerance), RANKS);
    loop {
        let read = spawn_blocking(move || {
            let next = sampler.next();
            next.map(|next| (sampler, next))
        });
        let (returned, sampled) = read.await.map_err(Error::failed)??;
        sampler = returned;
        let Some(sampled) = sampled else { break };
        let mut start = 0;
        while start < sampled.rows.len() {
            let (scored, read) = scorer.score(&sampled, start).await?;
            let written = named(&sampled, start..start + read, &sampled.output)?;
            let again = named(&sampled, start..start + read, &scored)?;
            for (a, b) in columns.rows(&written)?.iter().zip(&columns.rows(&again)?) {
                found.pair(a, b)?;
            }
            start += read;
        }
    }
    let job = verified(store, &plan, found.rows);
    let (answered, unversioned) = (scorer.answered, scorer.unversioned);
    let version_match = match job.compare(answered.iter().map(String::as_str)) {
        VersionMatch::Same if unversioned => VersionMatch::Unknown,
        compared => compared,
    };
    let columns = found.finish()?;
    Ok(HostVerification { job, version_match, answered, unversioned, columns })
}

fn open(store: &Store, sample: Sample) -> Result<(Plan, Sampler), Error> {
    let (plan, Manifest { chunks, .. }) = finished::job(store)?;
    if plan.scoring.protocol.is_language() {
        return Err(Error::usage("the answers of language models are not compared"));
    }
    let sampler = Sampler::new(store, (&plan, chunks), (sample.rows, sample.seed))?;
    Ok((plan, sampler))
}

fn verified(store: &Store, plan: &Plan, rows: u64) -> Verified {
    let Scoring { model, version, .. } = plan.scoring.clone();
    Verified { output: store.root().to_owned(), model, version, rows }
}

/// The columns of a comparison whose scores are those of `schema`.
fn columns(schema: &SchemaRef) -> (Columns, Vec<Field>) {
    let scores = schema.fields().iter().map(|it| (it.name().clone(), Kind::of(it.data_type())));
    let keys = KEYS.map(str::to_owned);
    let types = keys.iter().zip([ArrowType::Utf8, ArrowType::UInt64]);
    let types = types.map(|(name, of)| Field::new(name, of, false)).collect();
    (Columns { keys: keys.into(), scores: scores.collect() }, types)
}

/// The columns of scores, for these of the sampled rows, with the names of the rows.
fn named(
    sampled: &Sampled,
    rows: std::ops::Range<usize>,
    scores: &RecordBatch,
) -> Result<RecordBatch, Error> {
    let scores = match scores.num_rows() == sampled.rows.len() {
        true => scores.slice(rows.start, rows.len()),
        false => scores.clone(),
    };
    let file = sampled.file.to_string_lossy();
    let files: ArrayRef = Arc::new(StringArray::from_iter_values(rows.clone().map(|_| &*file)));
    let numbers: ArrayRef = Arc::new(UInt64Array::from(sampled.rows[rows].to_vec()));
    let names = KEYS.map(str::to_owned).into_iter().zip([files, numbers]);
    let schema = scores.schema();
    let fields = schema.fields().iter().map(|field| field.name().clone());
    // A key of the job may have the name of one of these columns, and is not compared.
    let fields = fields.zip(scores.columns().iter().cloned());
    let fields = fields.filter(|(name, _)| !KEYS.contains(&name.as_str()));
    RecordBatch::try_from_iter(names.chain(fields)).map_err(Error::failed)
}

/// Scores rows in the way of a job.
struct Scorer<'a> {
    hosts: Hosts,
    numbers: Vec<outrigger_dispatch::HostId>,
    scoring: &'a Scoring,
    request: Request,
    timeout: std::time::Duration,
    memory: Memory,
    /// The most rows of a request. There are fewer after an answer that did not fit.
    most_rows: usize,
    schema: SchemaRef,
    answered: BTreeSet<String>,
    unversioned: bool,
}

impl<'a> Scorer<'a> {
    fn new(job: &Job, scoring: &'a Scoring) -> Result<Self, Error> {
        // An answer that is larger than the memory is refused by the memory.
        let memory = usize::try_from(job.memory.0).unwrap_or(usize::MAX);
        let mut hosts = Hosts::new(job, Vec::new(), memory.saturating_mul(2).max(LEAST_MESSAGE));
        let numbers = hosts.set(&hosts.configured(None))?;
        let request = readers::request(scoring);
        let schema = output_schema(std::iter::empty(), &scoring.outputs);
        Ok(Self {
            hosts,
            numbers,
            scoring,
            request,
            timeout: job.timeout.0,
            memory: Memory::new(job.memory.0),
            most_rows: REQUEST_ROWS,
            schema,
            answered: BTreeSet::new(),
            unversioned: false,
        })
    }

    /// Scores the rows from `start` on, as many as one request takes. Returns their number too.
    async fn score(
        &mut self,
        sampled: &Sampled,
        start: usize,
    ) -> Result<(RecordBatch, usize), Error> {
        loop {
            let count = (sampled.rows.len() - start).min(self.most_rows);
            let rows = Rows::from(sampled.input.slice(start, count));
            let encoded = encode(&rows, &self.scoring.inputs);
            if let Some((row, reason)) = encoded.invalid.first() {
                let row = sampled.rows.get(start + *row as usize).copied().unwrap_or_default();
                let file = sampled.file.display();
                let reason = format!("{file}: the row {row} cannot be sent: {reason}");
                return Err(Error::failed(reason));
            }
            let rows = encoded.rows.len();
            let request = Request {
                inputs: encoded.tensors,
                rows: Some(rows as u64),
                ..self.request.clone()
            };
            let Some(reply) = self.send(request, rows).await? else {
                self.most_rows = rows.div_ceil(2);
                continue;
            };
            check(&reply.outputs, &self.scoring.outputs).map_err(Error::failed)?;
            let columns = decode(&reply.outputs, &self.scoring.outputs).map_err(Error::failed)?;
            self.unversioned |= reply.version.is_none();
            self.answered.extend(reply.version);
            let scored = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns);
            return Ok((scored.map_err(Error::failed)?, encoded.read));
        }
    }

    /// The answer of the first host that has one; `None` if that for several rows is larger than the
    /// memory.
    async fn send(&self, mut request: Request, rows: usize) -> Result<Option<Answer>, Error> {
        let mut reason = "there is no host".to_owned();
        for number in &self.numbers {
            let Some(endpoint) = self.hosts.endpoint(*number) else { continue };
            request.deadline = Instant::now() + self.timeout;
            let allowance = Allowance::new(self.memory.open(), true);
            let result = endpoint.infer(&request, &allowance).await;
            let used = allowance.end(result.as_ref().ok().map(Answer::bytes));
            match result {
                _ if used.is_refused && rows > 1 => return Ok(None),
                _ if used.is_refused => {
                    return Err(self.too_large(self.hosts.name(*number), used.peak));
                }
                Ok(answer) => return Ok(Some(answer)),
                Err(failure) => reason = failure.to_string(),
            }
        }
        Err(Error::failed(format!("the sample cannot be scored: {reason}")))
    }

    /// The error of an answer for one row that needs `peak` bytes or more.
    fn too_large(&self, host: &str, peak: u64) -> Error {
        let (peak, limit) = (ByteSize(peak), ByteSize(self.memory.limit()));
        Error::failed(format!(
            "memory: an answer of {host} for one row needs {peak} or more, and the memory is {limit}: \
             verify with more memory"
        ))
    }
}
