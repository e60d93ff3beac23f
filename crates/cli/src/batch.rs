//! `outrigger batch`: rows of files in, scores out.

mod compact;
mod diff;
mod listen;
mod log;
mod package;
mod plot;
mod progress;
mod run;
mod text;
mod verify;

use std::path::{Path, PathBuf};

use outrigger_batch::{Control, Error, Status, Store, list};

use crate::exit::{self, Exit, Output};

/// Scores the rows of files with a model on servers of the Open Inference Protocol, with a package in
/// this process or in engines that the job starts, or with servers of language models.
///
/// A job survives the end of its process at any moment: when it is run again, it goes on with the
/// chunks that are not committed. A job is named by the directory of its output, or by the address
/// of it in a store: s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Credentials come
/// from the environment.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Run(Box<run::Arguments>),
    Status(Job),
    List(List),
    Set(Set),
    Cancel(Cancel),
    RetryDead(Box<run::Retry>),
    Diff(diff::Arguments),
    Verify(Box<verify::Arguments>),
    Compact(compact::Arguments),
}

/// Prints the state of a job.
///
/// With --listen, serves the status page of the job until Ctrl-C, also for a job that runs on another
/// machine or is finished.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger batch status scored/")]
pub(crate) struct Job {
    /// The output of the job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    listener: listen::Flags,
}

/// Lists the jobs whose outputs are in a directory, or below an address such as s3://bucket/prefix.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger batch list /data/scored")]
pub(crate) struct List {
    /// The directory or the address.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Format of the list.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Changes settings of a job, also while it runs on another machine.
///
/// The settings are batch_size, concurrency, rows_per_second, hosts (endpoints with commas between
/// them), paused (true or false), and requests_per_minute, tokens_per_minute and tokens_in_flight for
/// language models. An empty value restores that of the job. Workers follow within about a second.
/// Prints the settings that differ from those of the job.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  outrigger batch set scored/ batch_size=512 hosts=a:8001,b:8001"
)]
pub(crate) struct Set {
    /// The output of the job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// The settings.
    #[arg(value_name = "SETTING=VALUE", required = true)]
    settings: Vec<String>,
    /// Format of the settings that are changed then.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Stops the workers of a job. What is committed stays, and the job goes on when it is run again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger batch cancel scored/")]
pub(crate) struct Cancel {
    /// The output of the job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// Format of the settings that are changed then.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
pub(crate) fn run(command: Command) -> Result<(), Exit> {
    match command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Status(job) => status(job),
        Command::List(List { directory, output }) => {
            let jobs = list(&directory).map_err(exit_of)?;
            match output {
                Output::Text => exit::print(text::list(&jobs)),
                Output::Json => exit::print_json(&serde_json::json!(jobs)),
            }
        }
        Command::Set(Set { job, settings, output }) => change(&job, output, |control| {
            settings.iter().try_for_each(|setting| control.set(setting))
        }),
        Command::RetryDead(arguments) => run::retry(*arguments),
        Command::Diff(arguments) => diff::run(arguments),
        Command::Verify(arguments) => verify::run(*arguments),
        Command::Compact(arguments) => compact::run(arguments),
        Command::Cancel(Cancel { job, output }) => change(&job, output, |control| {
            control.cancelled = true;
            Ok(())
        }),
    }
}

/// Prints the state of a job, and serves its page if there is a listener.
fn status(Job { job, output, listener }: Job) -> Result<(), Exit> {
    let store = Store::at(&job).map_err(exit_of)?;
    let status = Status::read(&store).map_err(exit_of)?;
    match output {
        Output::Text => exit::print(text::status(&status, plot::width()))?,
        Output::Json => exit::print_json(&serde_json::json!(status))?,
    }
    let Some(settings) = listener.settings() else { return Ok(()) };
    exit::block_on(async {
        let listener = listen::bind(settings).await?;
        let interrupted = tokio::signal::ctrl_c();
        let ended = listen::beside(Some(listener), (store, None), interrupted).await;
        ended.map_err(Exit::failed)
    })?
}

/// Changes the control object of a job, and prints the settings that are changed then.
fn change(
    job: &Path,
    output: Output,
    change: impl FnMut(&mut Control) -> Result<(), Error>,
) -> Result<(), Exit> {
    let store = Store::at(job).map_err(exit_of)?;
    let control = Control::change(&store, change).map_err(exit_of)?;
    match output {
        Output::Text => exit::print(text::settings(&control)),
        Output::Json => exit::print_json(&serde_json::json!(control)),
    }
}

fn exit_of(error: Error) -> Exit {
    match error {
        Error::Usage(message) => Exit::Usage(message),
        Error::TooManyDead | Error::Cancelled => Exit::Stopped(error.to_string()),
        Error::Interrupted => Exit::Interrupted,
        other => Exit::failed(other),
    }
}
