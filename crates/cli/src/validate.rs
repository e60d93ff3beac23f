//! `outrigger validate`: runs the server's checks without a server.

use std::{env, path::PathBuf, time::Duration};

use outrigger_tools::{engine::Program, fetch::Source, registry::Progress, validate};

use crate::{
    exit::{self, Exit, Output},
    frameworks,
    package::{Registry, with_progress_bar},
};

/// Runs every check that a server runs before it routes requests to a model.
///
/// Unpacks the package, checks metadata.json against the SavedModel's signature, loads
/// the model in a temporary engine and scores golden.jsonl.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger validate churn/")]
pub(crate) struct Arguments {
    /// HOST/REPOSITORY[:TAG|@DIGEST], oci:DIR[:TAG|@DIGEST], or a directory.
    #[arg(value_name = "REF|DIR", value_parser = Source::parse)]
    source: Source,
    /// tensorflow_model_server to use instead of the local engine.
    #[arg(long, value_name = "BINARY", env = "OUTRIGGER_ENGINE")]
    engine: Option<PathBuf>,
    /// Check the files only, without scores.
    #[arg(long, conflicts_with = "engine")]
    no_engine: bool,
    /// Time limit for loading, and for each golden case.
    #[arg(long, default_value = "5m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    registry: Registry,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    let Arguments { source, engine, no_engine, timeout, registry, output } = arguments;
    let client = registry.client()?;
    let program = if no_engine { None } else { Some(program(engine)?) };
    let progress = Progress::default();
    let validate = validate::validate(
        &client,
        &source,
        (program.as_ref(), &frameworks::KNOWN),
        timeout,
        &progress,
    );
    let report = exit::block_on(with_progress_bar(&progress, validate))??;
    match output {
        Output::Text => exit::print(report.text())?,
        Output::Json => exit::print_json(&serde_json::json!(report))?,
    }
    if report.passed() { Ok(()) } else { Err(Exit::Failed("the model is not valid".to_owned())) }
}

/// The given engine, or this binary's own.
fn program(engine: Option<PathBuf>) -> Result<Program, Exit> {
    Ok(match engine {
        Some(binary) => Program { binary, arguments: Vec::new(), connect: frameworks::connect },
        None => Program {
            binary: env::current_exe().map_err(Exit::failed)?,
            arguments: vec!["engine".to_owned()],
            connect: frameworks::connect,
        },
    })
}
