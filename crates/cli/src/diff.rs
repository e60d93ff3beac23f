//! `outrigger diff`: compares two packages.

use std::{path::PathBuf, time::Duration};

use outrigger_tools::{
    diff::{self, Outcome, Report, Settings},
    fetch::Source,
    registry::Progress,
};
use outrigger_validation::Tolerance;

use crate::{
    exit::{self, Exit, Output},
    frameworks,
    package::{Registry, with_progress_bar},
    validate::rows::{InputArguments, Run},
};

/// Compares two packages: features, signature, size, and the scores of both models.
///
/// Both models score the golden cases of both packages and, with --input, the rows of a file; the
/// scores of A are the expected ones. The exit code is that of diff(1): 0 if nothing differs, 1 if
/// something does, 2 if the comparison failed or was not complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Where no score was compared, images with different digests differ.

Example:
  outrigger diff registry.example/team/churn:latest churn/
  outrigger diff churn-1/ churn-2/ --input customers.csv --rtol 0.01")]
pub(crate) struct Arguments {
    /// HOST/REPOSITORY[:TAG][@DIGEST], oci:DIR[:TAG][@DIGEST], or a directory.
    #[arg(value_name = "REF|DIR")]
    a: String,
    /// The package that it is compared with.
    #[arg(value_name = "REF|DIR")]
    b: String,
    /// tensorflow_model_server to use instead of the local engine.
    #[arg(long, value_name = "BINARY", env = "OUTRIGGER_ENGINE")]
    engine: Option<PathBuf>,
    /// Compare the files only, without scores.
    #[arg(long, conflicts_with_all = ["engine", "input"])]
    no_engine: bool,
    /// Time limit for loading, and for each call.
    #[arg(long, default_value = "5m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    registry: Registry,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    input: InputArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    let (output, tolerance) = (arguments.output, arguments.input.tolerance());
    let report = report(arguments, tolerance).map_err(not_compared)?;
    let printed = match output {
        Output::Text => exit::print(report.text(tolerance)),
        Output::Json => exit::print_json(&serde_json::json!(report)),
    };
    printed.map_err(not_compared)?;
    match report.outcome() {
        Outcome::Same => Ok(()),
        Outcome::Different => Err(Exit::Different),
        Outcome::Incomplete => {
            Err(Exit::NotCompared("not everything was scored by a model".to_owned()))
        }
    }
}

/// A failure has an exit code of its own here, also that a file is not there.
fn not_compared(exit: Exit) -> Exit {
    match exit {
        Exit::Failed(message) | Exit::Usage(message) => Exit::NotCompared(message),
        other => other,
    }
}

fn report(arguments: Arguments, tolerance: Tolerance) -> Result<Report, Exit> {
    let Arguments { a, b, engine, no_engine, timeout, registry, input, .. } = arguments;
    let sources = [Source::parse(&a)?, Source::parse(&b)?];
    let run = input.run(None)?;
    let client = registry.client()?;
    let program = if no_engine { None } else { Some(frameworks::engine_program(engine)?) };
    let settings = Settings {
        engine: program.as_ref(),
        frameworks: &frameworks::KNOWN,
        timeout,
        tolerance,
        rows: run.as_ref().map(Run::rows),
    };
    let progress = Progress::default();
    let compare = diff::diff(&client, sources.each_ref(), settings, &progress);
    let report = match &run {
        Some(run) => exit::block_on(run.with_progress_bar(compare)),
        None => exit::block_on(with_progress_bar(&progress, compare)),
    };
    Ok(report??)
}
