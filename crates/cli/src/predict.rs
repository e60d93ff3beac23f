//! `outrigger predict`: sends a request from a file.

use std::{fs, io, time::Duration};

use outrigger_core::without_mark;
use outrigger_tools::{ModelArgument, output, predict};
use serde_json::{Map, Value};

use crate::{
    access,
    exit::{self, Exit, Output},
};

/// Scores one request.
///
/// The request has the JSON form of POST /v1/predict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger predict --model churn request.json")]
pub(crate) struct Arguments {
    /// File with the request; - is standard input.
    request: String,
    /// name, name:tag or name@sha256:digest; replaces that of the request.
    #[arg(long)]
    model: Option<ModelArgument>,
    /// Return only the best K treatments.
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// URL of the server's HTTP listener.
    #[arg(
        long,
        env = "OUTRIGGER_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:9080"
    )]
    url: String,
    #[command(flatten)]
    access: access::Options,
    /// Maximum time to wait for the answer.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Format of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    let request = read(&arguments.request)?;
    let Arguments { model, top_k, url, access, timeout, .. } = arguments;
    let server = (url.as_str(), &access.into());
    let answer = exit::block_on(predict::predict(server, request, model, top_k, timeout))??;
    match arguments.output {
        Output::Json => exit::print_json(&answer),
        Output::Text => exit::print(output::scores(&answer)),
    }
}

fn read(path: &str) -> Result<Map<String, Value>, Exit> {
    let text = match path {
        "-" => io::read_to_string(io::stdin()),
        path => fs::read_to_string(path),
    };
    let text = text.map_err(|error| Exit::Usage(format!("{path}: {error}")))?;
    serde_json::from_slice(without_mark(text.as_bytes()))
        .map_err(|error| Exit::Usage(format!("{path}: {error}")))
}
