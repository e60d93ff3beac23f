//! `outrigger batch`: rows of files in, scores out.

mod compact;
mod diff;
mod run;
mod text;
mod verify;

use std::path::PathBuf;

use outrigger_batch::{Control, Error, Status, Store, list};

use crate::exit::{self, Exit, Output};

/// Scores the rows of files with a model on hosts of the Open Inference Protocol.
///
/// A job survives the end of its process at any moment: when it is run again, it goes on with the
/// chunks that are not committed. A job is named by the directory of its output.
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
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger batch status scored/")]
pub(crate) struct Job {
    /// The output of the job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Lists the jobs whose outputs are in a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger batch list /data/scored")]
pub(crate) struct List {
    /// The directory.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Format of the list.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Changes settings of a job, also while it runs on another machine.
///
/// The settings are batch_size, concurrency, hosts (endpoints with commas between them) and paused
/// (true or false). An empty value restores that of the job. Workers follow within about a second.
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
}

/// Stops the workers of a job. What is committed stays, and the job goes on when it is run again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger batch cancel scored/")]
pub(crate) struct Cancel {
    /// The output of the job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: Command) -> Result<(), Exit> {
    match command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Status(Job { job, output }) => {
            let status = Status::read(&Store::local(job)).map_err(exit_of)?;
            match output {
                Output::Text => exit::print(text::status(&status)),
                Output::Json => exit::print_json(&serde_json::json!(status)),
            }
        }
        Command::List(List { directory, output }) => {
            let jobs = list(&directory).map_err(exit_of)?;
            match output {
                Output::Text => exit::print(text::list(&jobs)),
                Output::Json => exit::print_json(&serde_json::json!(jobs)),
            }
        }
        Command::Set(Set { job, settings }) => {
            change(job, |control| settings.iter().try_for_each(|setting| control.set(setting)))
        }
        Command::RetryDead(arguments) => run::retry(*arguments),
        Command::Diff(arguments) => diff::run(arguments),
        Command::Verify(arguments) => verify::run(*arguments),
        Command::Compact(arguments) => compact::run(arguments),
        Command::Cancel(Cancel { job }) => change(job, |control| {
            control.cancelled = true;
            Ok(())
        }),
    }
}

/// Changes the control object of a job.
fn change(
    job: PathBuf,
    change: impl FnOnce(&mut Control) -> Result<(), Error>,
) -> Result<(), Exit> {
    let store = Store::local(job);
    let mut control = Status::read(&store).map_err(exit_of)?.control;
    change(&mut control).and_then(|()| control.write(&store)).map_err(exit_of)
}

fn exit_of(error: Error) -> Exit {
    match error {
        Error::Usage(message) => Exit::Usage(message),
        other => Exit::failed(other),
    }
}
