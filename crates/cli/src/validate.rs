//! `outrigger validate`: the server's checks, before the server.

use std::{env, path::PathBuf, time::Duration};

use outrigger_tools::{engine::Program, fetch::Source, registry::Progress, validate};

use crate::{
    exit::{self, Exit, Output},
    frameworks,
    package::{Registry, shown},
};

/// Makes every check that a server makes before it routes requests to a model.
///
/// Unpacks the package, checks metadata.json against the SavedModel's
/// signature, loads the model in an engine of its own and scores golden.jsonl.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger validate churn/")]
pub(crate) struct Arguments {
    /// HOST/REPOSITORY[:TAG|@DIGEST], oci:DIR[:TAG|@DIGEST], or a directory.
    #[arg(value_name = "REF|DIR", value_parser = Source::parse)]
    source: Source,
    /// A tensorflow_model_server in place of the local engine.
    #[arg(long, value_name = "BINARY", env = "OUTRIGGER_ENGINE")]
    engine: Option<PathBuf>,
    /// Check the files only; nothing is scored.
    #[arg(long, conflicts_with = "engine")]
    no_engine: bool,
    /// How long loading, and each golden case, may take.
    #[arg(long, default_value = "5m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    registry: Registry,
    /// How to print the report.
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
    let report = exit::block_on(shown(&progress, validate))??;
    match output {
        Output::Text => exit::print(report.text())?,
        Output::Json => exit::print_json(&serde_json::json!(report))?,
    }
    if report.passed() { Ok(()) } else { Err(Exit::Failed("the model is not valid".to_owned())) }
}

/// The engine asked for, else our own.
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
