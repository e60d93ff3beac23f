//! `outrigger batch run`.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    pin::pin,
    time::{Duration, Instant},
};

use outrigger_batch::{
    Environment, Error, Format, Host, Job, MANIFEST, Manifest, MaxErrors, Model, OneOrMore, Part,
    Period, Protocol, Size, Source, Status, Store, Watch,
};
use outrigger_batch_ui::Worker;
use tokio::{runtime::Builder, time::sleep};

use super::{exit_of, listen, log, package::PackageArguments, plot, progress, text};
use crate::{
    exit::{self, Exit, Output},
    progress::{bar, follow},
    signals::Signals,
};

/// The time for a job that is interrupted to give its chunks back.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Scores the rows of Parquet, CSV or JSON Lines files, and writes Parquet or JSON Lines files with
/// their keys and scores.
///
/// The settings come from a job file, from flags, or from both; a flag replaces the key of the file.
/// The input must not change while the job runs. A row that no host scores becomes a dead letter.
/// When the command is repeated, it goes on with what is not committed; several processes may run one
/// job at the same time. SIGTERM and Ctrl-C interrupt it: its chunks are free at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  outrigger batch run job.yaml
  outrigger batch run --input 'rows/*.parquet' --to scored --model churn \\
    --host a:8001 --host b:8001 --map x=features
  outrigger batch run --protocol openai --input lines.jsonl --to answers --host vllm:8000
  outrigger batch run --input rows.parquet --to scored --package churn/")]
pub(crate) struct Arguments {
    /// The job file.
    #[arg(value_name = "JOB.yaml")]
    file: Option<PathBuf>,
    /// Files with rows, or a directory of them; the last part of a path may have * and ?. An object
    /// is s3://bucket/key, gs://bucket/key or az://container/key, a prefix ends with a slash. May be
    /// given several times.
    #[arg(long, value_name = "PATH", required_unless_present = "file")]
    input: Vec<String>,
    /// The format of the input: parquet, csv or jsonl [default: the one that the names of the files
    /// state].
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The directory of the output, or its address such as s3://bucket/prefix.
    #[arg(long, value_name = "DIR", required_unless_present = "file")]
    to: Option<PathBuf>,
    /// The format of the output: parquet or jsonl [default: parquet].
    #[arg(long, value_name = "FORMAT")]
    output_format: Option<Format>,
    /// The model's name on the hosts.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["file", "package", "protocol"])]
    model: Option<String>,
    /// The model's version [default: the one that answers first].
    #[arg(long, value_name = "VERSION")]
    model_version: Option<String>,
    /// host:port or URL of a server with the model; may be given several times. A name stands for all
    /// of its addresses.
    #[arg(long, value_name = "ENDPOINT", required_unless_present_any = ["file", "package"])]
    host: Vec<String>,
    /// An input tensor and the column with its rows, if their names differ; may be given several
    /// times.
    #[arg(long, value_name = "TENSOR=COLUMN", value_parser = pair)]
    map: Vec<(String, String)>,
    /// A column that the output has too; may be given several times [default: all that the model
    /// does not take].
    #[arg(long, value_name = "COLUMN")]
    key: Vec<String>,
    /// The most rows in a request [default: 256].
    #[arg(long, value_name = "N")]
    batch_size: Option<u32>,
    /// The most requests in flight at one host [default: 64].
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// The most rows a second to one host [default: no limit].
    #[arg(long, value_name = "N")]
    rows_per_second: Option<u32>,
    /// The protocol of the hosts: oip, or openai for lines of OpenAI's batches, which name their
    /// models [default: oip].
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// The most requests a minute to one host, with --protocol openai [default: no limit].
    #[arg(long, value_name = "N")]
    requests_per_minute: Option<u32>,
    /// The most tokens a minute at one host, with --protocol openai [default: no limit].
    #[arg(long, value_name = "N")]
    tokens_per_minute: Option<u32>,
    /// Time limit of a request [default: 5m].
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Period>,
    /// The most memory for rows, requests and answers [default: 512MiB].
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// The rows of a chunk, the unit of a commit [default: 100,000, or fewer if rows are large].
    #[arg(long, value_name = "N")]
    chunk_rows: Option<u64>,
    /// The dead rows after which the job stops: a number, or a share such as 1% [default: no
    /// limit].
    #[arg(long, value_name = "N|PERCENT")]
    max_errors: Option<MaxErrors>,
    #[command(flatten)]
    listener: listen::Flags,
    /// The number of this worker, from 0, and how many there are: it prefers its part of the hosts
    /// and chunks.
    #[arg(long, value_name = "INDEX/COUNT", default_value_t)]
    worker: Part,
    /// Format of the summary.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    package: PackageArguments,
}

/// Scores the dead letters of a finished job again, as a job with an output of its own.
///
/// Columns, outputs and model are those of the first job; the model's version may be another.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  outrigger batch retry-dead scored --to scored-2 --host a:8001")]
pub(crate) struct Retry {
    /// The output of the finished job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// The directory of the output, or its address.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// host:port or URL of a server with the model; may be given several times.
    #[arg(long, value_name = "ENDPOINT", required_unless_present = "package")]
    host: Vec<String>,
    /// The most rows in a request [default: 256].
    #[arg(long, value_name = "N")]
    batch_size: Option<u32>,
    /// Time limit of a request [default: 5m].
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Period>,
    #[command(flatten)]
    listener: listen::Flags,
    /// Format of the summary.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    package: PackageArguments,
}

/// A name and a value with an equals sign between them.
fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("{text:?} is not TENSOR=COLUMN"))
}

/// Runs the command.
pub(super) fn run(arguments: Arguments) -> Result<(), Exit> {
    let format = arguments.output;
    let (job, environment) = arguments.job()?;
    finish(job, &environment, format)
}

/// Runs the command `retry-dead`.
pub(super) fn retry(arguments: Retry) -> Result<(), Exit> {
    let Retry { job: first, to, host, batch_size, timeout, listener, output, package } = arguments;
    let hosts = host.iter().map(|host| Host::new(host)).collect();
    let mut job = Job { retry: Some(first), ..Job::new(Vec::new(), to, "", hosts) };
    job.batch_size = batch_size.unwrap_or(job.batch_size);
    job.timeout = timeout.unwrap_or(job.timeout);
    listener.apply(&mut job);
    let environment = package.apply(&mut job)?;
    finish(job, &environment, output)
}

/// Runs a job, and prints its summary.
fn finish(job: Job, environment: &Environment, format: Output) -> Result<(), Exit> {
    let (directory, start) = (job.output.clone(), Instant::now());
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Exit::failed)?;
    let manifest = runtime.block_on(with_progress_bar(job, environment));
    // Threads that wait for the hosts or the disk end with the process.
    runtime.shutdown_background();
    let summary = text::Summary::new(&manifest?, &directory.join(MANIFEST), start.elapsed());
    match format {
        Output::Text => {
            // The history is a record for people: a job without one is finished too.
            let history = Store::at(&directory).and_then(|store| Status::read(&store));
            let history = history.map(|status| status.history);
            let plot = plot::plot(&history.unwrap_or_default(), plot::width());
            exit::print(format_args!("{summary}{plot}"))
        }
        Output::Json => exit::print_json(&serde_json::json!(summary)),
    }
}

/// Runs a job until its end. A signal interrupts it, and a second one ends it at once.
async fn with_progress_bar(job: Job, environment: &Environment) -> Result<Manifest, Exit> {
    let (store, watch) = (Store::at(&job.output).map_err(exit_of)?, Watch::default());
    let listener = match listen::settings_of(&job) {
        Some(settings) => Some(listen::bind(settings).await?),
        None => None,
    };
    let worker = Worker { watch: watch.clone(), model: job.model.name.clone() };
    let bar = bar(progress::BAR);
    let log = RefCell::new(log::Log::default());
    let update = |bar: &indicatif::ProgressBar| match std::io::stderr().is_terminal() {
        true => progress::show(bar, &watch.get(), plot::width()),
        false => {
            let lines = log.borrow_mut().lines(&watch.get(), Instant::now());
            lines.iter().for_each(exit::report);
        }
    };
    let work = outrigger_batch::run_in(environment, job, store.clone(), watch.clone());
    let work = listen::beside(listener, (store, Some(worker)), work);
    let mut work = pin!(follow(&bar, update, work));
    let mut signals = Signals::listen()?;
    tokio::select! {
        done = &mut work => return done.map_err(exit_of),
        () = signals.next() => watch.interrupt(),
    }
    tokio::select! {
        done = work => done.map_err(exit_of),
        () = signals.next() => Err(Exit::Interrupted),
        () = sleep(STOP_LIMIT) => Err(Exit::Interrupted),
    }
}

impl Arguments {
    /// The job of the file and the flags, and its surroundings.
    fn job(self) -> Result<(Job, Environment), Exit> {
        let mut job = match &self.file {
            Some(file) => read(file)?,
            None => {
                let to = self.to.clone().unwrap_or_default();
                Job::new(Vec::new(), to, self.model.as_deref().unwrap_or_default(), Vec::new())
            }
        };
        if !self.input.is_empty() {
            job.input = OneOrMore(self.input);
        }
        if !self.host.is_empty() {
            job.model.package = None;
            job.hosts = OneOrMore(self.host.iter().map(|host| Host::new(host)).collect());
        }
        if let Some(name) = self.model {
            job.model = Model { name, ..job.model };
        }
        job.model.version = self.model_version.or(job.model.version);
        job.output = self.to.unwrap_or(job.output);
        job.format = self.format.or(job.format);
        job.output_format = self.output_format.or(job.output_format);
        let source = |column| Source { columns: vec![column], ..Source::default() };
        let map = self.map.into_iter().map(|(tensor, column)| (tensor, source(column)));
        job.inputs.extend(map.collect::<BTreeMap<_, _>>());
        if !self.key.is_empty() {
            job.keys = Some(self.key);
        }
        job.batch_size = self.batch_size.unwrap_or(job.batch_size);
        job.concurrency = self.concurrency.unwrap_or(job.concurrency);
        job.rows_per_second = self.rows_per_second.or(job.rows_per_second);
        job.protocol = self.protocol.unwrap_or(job.protocol);
        job.requests_per_minute = self.requests_per_minute.or(job.requests_per_minute);
        job.tokens_per_minute = self.tokens_per_minute.or(job.tokens_per_minute);
        job.timeout = self.timeout.unwrap_or(job.timeout);
        job.memory = self.memory.unwrap_or(job.memory);
        job.chunk_rows = self.chunk_rows.or(job.chunk_rows);
        job.max_errors = self.max_errors.or(job.max_errors);
        self.listener.apply(&mut job);
        job.worker = self.worker;
        let environment = self.package.apply(&mut job)?;
        Ok((job, environment))
    }
}

fn read(path: &Path) -> Result<Job, Exit> {
    let named = |error: &dyn std::fmt::Display| Exit::usage(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    Job::read(&text).map_err(|error: Error| named(&error))
}
