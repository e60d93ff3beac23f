//! `outrigger models`: the models of a server and their states.

mod validate;

use std::time::Duration;

use outrigger_tools::{
    ModelArgument,
    models::{Models, render},
    output::message_json,
};

use crate::{
    access,
    exit::{self, Exit, Output},
};

/// Shows the models of a server, and loads and unloads versions.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Example:\n  outrigger models why churn")]
pub(crate) enum Command {
    /// All models, one line per version.
    #[command(after_help = "Example:\n  outrigger models list -o json")]
    List(Server),
    /// One model with all fields that the server reports.
    #[command(after_help = "Example:\n  outrigger models show churn")]
    Show(OneModel),
    /// Explains a model's state: tags, versions, failures, history.
    #[command(after_help = "Example:\n  outrigger models why churn")]
    Why(OneModel),
    /// Loads a version and waits for it.
    #[command(after_help = "Example:\n  outrigger models load churn:candidate --timeout 10m")]
    Load {
        #[command(flatten)]
        model: OneModel,
        /// Maximum time to wait.
        #[arg(long, default_value = "5m", value_parser = humantime::parse_duration)]
        timeout: Duration,
    },
    /// Scores the rows of a file in the server's directory for validation.
    ///
    /// The server reads the file and writes the scores; paths are relative to its setting
    /// validation.directory.
    #[command(
        after_help = "Example:\n  outrigger models validate churn --input customers.csv --scores scores.csv"
    )]
    Validate(validate::Arguments),
    /// Unloads a version from the engine; a request for it loads it again.
    #[command(after_help = "Example:\n  outrigger models unload churn --delete")]
    Unload {
        #[command(flatten)]
        model: OneModel,
        /// Delete it from the disk as well.
        #[arg(long)]
        delete: bool,
    },
}

/// The server to call, and the output format.
#[derive(Debug, clap::Args)]
pub(crate) struct Server {
    /// Address of the server's admin listener (other gRPC listeners permit reading).
    #[arg(long, env = "OUTRIGGER_ADMIN", default_value = "127.0.0.1:9901")]
    admin: String,
    #[command(flatten)]
    access: access::Options,
    /// Format of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// One model of a server.
#[derive(Debug, clap::Args)]
pub(crate) struct OneModel {
    /// name, name:tag or name@sha256:digest.
    model: ModelArgument,
    #[command(flatten)]
    server: Server,
}

/// Runs the command.
pub(crate) fn run(command: Command) -> Result<(), Exit> {
    exit::block_on(answer(command))?
}

async fn answer(command: Command) -> Result<(), Exit> {
    match command {
        Command::List(server) => list(server).await,
        Command::Show(OneModel { model, server }) => {
            let found = connect(server).await?.get(model).await?;
            exit::print_json(&message_json("Model", &found))
        }
        Command::Why(OneModel { model, server }) => {
            let output = server.output;
            let found = connect(server).await?.get(model).await?;
            match output {
                Output::Json => exit::print_json(&message_json("Model", &found)),
                Output::Text => exit::print(render::why(&found)),
            }
        }
        Command::Load { model: OneModel { model, server }, timeout } => {
            let output = server.output;
            let served = connect_for_change(server).await?.load(model, timeout).await?;
            match output {
                Output::Json => exit::print_json(&message_json("ServedModel", &served)),
                Output::Text => exit::print(format_args!("{} {}\n", served.name, served.digest)),
            }
        }
        Command::Validate(arguments) => validate::run(arguments).await,
        Command::Unload { model: OneModel { model, server }, delete } => {
            Ok(connect_for_change(server).await?.unload(model, delete).await?)
        }
    }
}

async fn list(server: Server) -> Result<(), Exit> {
    let output = server.output;
    let models = connect(server).await?.list().await?;
    match output {
        Output::Text => exit::print(render::list(&models)),
        Output::Json => {
            let models = models.iter().map(|model| message_json("Model", model));
            exit::print_json(&serde_json::Value::from_iter(models))
        }
    }
}

async fn connect(server: Server) -> Result<Models, outrigger_tools::Error> {
    Models::connect(&server.admin, &server.access.into()).await
}

async fn connect_for_change(server: Server) -> Result<Models, Exit> {
    let access = server.access.for_change(&server.admin)?;
    Ok(Models::connect(&server.admin, &access).await?)
}
