//! `outrigger validate`: runs the server's checks without a server, and scores the rows of a file.

mod operations;
pub(crate) mod rows;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use outrigger_tools::{
    ModelArgument,
    engine::Program,
    fetch::Source,
    registry::Progress,
    validate::{self, Report},
};

use operations::Operations;

use crate::{
    access,
    exit::{self, Exit, Output},
    frameworks,
    package::{Registry, with_progress_bar},
};

/// Runs every check that a server runs before it routes requests to a model, and scores a file.
///
/// Unpacks the package, checks metadata.json against the model's own interface, loads
/// the model in a temporary engine and scores golden.jsonl. With --profile it reports the time by
/// operation of the graph, from TensorFlow's trace of the runs. With --input it then scores the rows
/// of a file; with --server and --model a model of a running server scores them instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger validate churn/\n  \
                        outrigger validate churn/ --input customers.csv --scores scores.csv\n  \
                        outrigger validate --server localhost:9000 --model churn --input customers.csv")]
pub(crate) struct Arguments {
    /// HOST/REPOSITORY[:TAG][@DIGEST], oci:DIR[:TAG][@DIGEST], or a directory.
    #[arg(value_name = "REF|DIR", value_parser = Source::parse, required_unless_present = "server")]
    source: Option<Source>,
    /// tensorflow_model_server to use instead of the local engine.
    #[arg(long, value_name = "BINARY", env = "OUTRIGGER_ENGINE")]
    engine: Option<PathBuf>,
    /// Report the time of the model's operations, from a trace of its runs in the local engine.
    #[arg(long, conflicts_with_all = ["engine", "no_engine", "server"])]
    profile: bool,
    /// Check the files only, without scores.
    #[arg(long, conflicts_with_all = ["engine", "input"])]
    no_engine: bool,
    /// Check that scores do not depend on padding either, as a server does whose engine batches
    /// requests.
    #[arg(long, conflicts_with_all = ["no_engine", "server"])]
    batching: bool,
    /// Time limit for loading, and for each golden case or other call.
    #[arg(long, default_value = "5m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    registry: Registry,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    rows: rows::RowArguments,
    #[command(flatten)]
    server: Server,
}

/// A running server, which scores the rows.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scoring a file on a server")]
struct Server {
    /// Address of a gRPC listener.
    #[arg(
        long,
        value_name = "ADDRESS",
        requires_all = ["model", "input"],
        conflicts_with_all = ["source", "no_engine"]
    )]
    server: Option<String>,
    /// name, name:tag or name@sha256:digest; requests for a tag may be answered by its canary.
    #[arg(long, requires = "server")]
    model: Option<ModelArgument>,
    /// Column of a CSV file whose cells are text even if they look like numbers; may be given
    /// several times.
    #[arg(long = "text", value_name = "COLUMN", requires = "server")]
    texts: Vec<String>,
    /// PEM file of the certificate authorities that the server's certificate must come
    /// from [default: the system's]
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_CA_FILE")]
    server_ca: Option<PathBuf>,
    #[command(flatten)]
    credentials: access::Credentials,
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    let output = arguments.output;
    let directory = arguments.profile.then(tempfile::tempdir).transpose().map_err(Exit::failed)?;
    let trace = directory.as_ref().map(|directory| directory.path().join("step_stats.json"));
    let report = report(arguments, trace.as_deref())?;
    let operations = trace.as_deref().map(Operations::read).transpose()?.flatten();
    conclude(&report, operations.as_ref(), output)
}

/// Prints a report, and the times of operations if they were taken. Fails if it did not pass.
pub(crate) fn conclude(
    report: &Report,
    operations: Option<&Operations>,
    output: Output,
) -> Result<(), Exit> {
    print(report, operations, output)?;
    let failure = match &report.rows {
        _ if report.passed() => return Ok(()),
        None => "the model is not valid",
        Some(rows) if rows.errors > 0 => "not every row was scored",
        Some(_) => "the scores differ from the expected ones",
    };
    Err(Exit::Failed(failure.to_owned()))
}

fn print(report: &Report, operations: Option<&Operations>, output: Output) -> Result<(), Exit> {
    match (output, operations) {
        (Output::Text, None) => exit::print(report.text()),
        (Output::Text, Some(operations)) => exit::print(format!("{}{operations}", report.text())),
        (Output::Json, operations) => {
            let mut json = serde_json::json!(report);
            if let Some(operations) = operations {
                json["operations"] = serde_json::json!(operations);
            }
            exit::print_json(&json)
        }
    }
}

/// Runs the checks; the local engine writes the times of operations to `trace`.
fn report(arguments: Arguments, trace: Option<&Path>) -> Result<Report, Exit> {
    let Arguments { source, engine, no_engine, batching, timeout, registry, rows, server, .. } =
        arguments;
    let run = rows.run()?;
    let source = match (source, &run) {
        (Some(source), _) => source,
        (None, Some(run)) => return on_server(server, run, timeout),
        // The parser refuses this.
        (None, None) => return Err(Exit::usage("either REF|DIR or --server is needed")),
    };
    let client = registry.client()?;
    let program = if no_engine { None } else { Some(program(engine, batching, trace)?) };
    let progress = Progress::default();
    let rows = run.as_ref().map(rows::Run::rows);
    let engine = (program.as_ref(), &frameworks::KNOWN[..]);
    let validate = validate::validate(&client, &source, engine, rows, timeout, &progress);
    let report = match &run {
        Some(run) => exit::block_on(run.with_progress_bar(validate)),
        None => exit::block_on(with_progress_bar(&progress, validate)),
    };
    Ok(report??)
}

/// Scores the rows with a model of a server.
fn on_server(server: Server, run: &rows::Run, timeout: Duration) -> Result<Report, Exit> {
    let Server { server, model, texts, server_ca, credentials } = server;
    let (Some(address), Some(model)) = (server, model) else {
        return Err(Exit::usage("--server needs --model"));
    };
    let access = credentials.with_authorities(server_ca);
    let server = (address.as_str(), &access);
    let validate = validate::validate_on_server(server, model, run.rows(), texts, timeout);
    Ok(exit::block_on(run.with_progress_bar(validate))??)
}

/// The given engine, or this binary's own, which may trace its runs.
fn program(
    engine: Option<PathBuf>,
    for_batching: bool,
    trace: Option<&Path>,
) -> Result<Program, Exit> {
    let mut program = Program { for_batching, ..frameworks::engine_program(engine)? };
    if let Some(file) = trace {
        program.arguments.push(format!("--step_stats_file={}", file.display()));
        program.passes = operations::PASSES;
    }
    Ok(program)
}
