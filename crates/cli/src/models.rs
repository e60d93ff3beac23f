//! `outrigger models`: what a server has, and why.

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

/// Shows the models of a server, and changes what is loaded.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Example:\n  outrigger models why churn")]
pub(crate) enum Command {
    /// All models, one line a version.
    #[command(after_help = "Example:\n  outrigger models list -o json")]
    List(Server),
    /// One model as the server tells it.
    #[command(after_help = "Example:\n  outrigger models show churn")]
    Show(OneModel),
    /// Why a model is where it is: tags, states, failures, history.
    #[command(after_help = "Example:\n  outrigger models why churn")]
    Why(OneModel),
    /// Brings a version up and waits for it.
    #[command(after_help = "Example:\n  outrigger models load churn:candidate --timeout 10m")]
    Load {
        #[command(flatten)]
        model: OneModel,
        /// How long to wait.
        #[arg(long, default_value = "5m", value_parser = humantime::parse_duration)]
        timeout: Duration,
    },
    /// Takes a version out of the engine; a request for it brings it back.
    #[command(after_help = "Example:\n  outrigger models unload churn --delete")]
    Unload {
        #[command(flatten)]
        model: OneModel,
        /// Off the disk as well.
        #[arg(long)]
        delete: bool,
    },
}

/// Which server, and how to print.
#[derive(Debug, clap::Args)]
pub(crate) struct Server {
    /// The server's admin listener (any gRPC listener will do for reading).
    #[arg(long, env = "OUTRIGGER_ADMIN", default_value = "127.0.0.1:9901")]
    admin: String,
    #[command(flatten)]
    access: access::Options,
    /// How to print the answer.
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
            let served = connect(server).await?.load(model, timeout).await?;
            match output {
                Output::Json => exit::print_json(&message_json("ServedModel", &served)),
                Output::Text => exit::print(format_args!("{} {}\n", served.name, served.digest)),
            }
        }
        Command::Unload { model: OneModel { model, server }, delete } => {
            Ok(connect(server).await?.unload(model, delete).await?)
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
