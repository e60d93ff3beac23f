//! Structured logs on standard error.

use std::io;

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Log, LogFormat};

/// Logs could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level cannot be read.
    #[error("log.level cannot be read")]
    Level(#[from] tracing_subscriber::filter::ParseError),
    /// The process logs elsewhere already.
    #[error("the process has a subscriber for logs already")]
    Taken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Sends the process's logs to standard error.
///
/// # Errors
/// The level cannot be read, or the process has a subscriber.
pub(crate) fn start(config: &Log) -> Result<(), Error> {
    let filter = EnvFilter::try_new(&config.level)?;
    let lines = fmt().with_env_filter(filter).with_writer(io::stderr);
    match config.format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    }
    .map_err(Error::Taken)
}
