//! `outrigger models validate`: a server scores the rows of a file.

use std::time::Duration;

use outrigger_tools::{
    validate::Report,
    validations::{File, Validations},
};

use super::{OneModel, Server};
use crate::{
    exit::Exit,
    validate::{
        conclude,
        rows::{Settings, file_bar, show},
    },
};

/// A file whose rows the server scores.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: OneModel,
    /// File with rows to score, whose format follows from its name: .csv, .jsonl, .parquet.
    #[arg(long, value_name = "PATH")]
    input: String,
    /// File for the scores, in the same format. It appears when all rows have been read.
    #[arg(long, value_name = "PATH")]
    scores: Option<String>,
    /// Replace an existing file of scores.
    #[arg(long, requires = "scores")]
    overwrite: bool,
    /// Maximum time to wait.
    #[arg(long, default_value = "30m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    settings: Settings,
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> Result<(), Exit> {
    let Arguments { model, input, scores, overwrite, timeout, settings } = arguments;
    let OneModel { model, server: Server { admin, access, output } } = model;
    let options = settings.options()?;
    let file = File { input, scores: scores.unwrap_or_default(), overwrite };
    let access = access.for_change(&admin)?;
    let mut server = Validations::connect(&admin, &access).await?;
    let bar = file_bar();
    let rows = server
        .validate(model, file, &options, timeout, |it| {
            show(&bar, (it.fraction, it.rows, it.errors));
        })
        .await;
    bar.finish_and_clear();
    conclude(&Report { rows: Some(rows?), ..Report::default() }, None, output)
}
