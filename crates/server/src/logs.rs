//! Structured logs on standard error.

use std::io;

use tracing_subscriber::{EnvFilter, filter::ParseError, fmt};

use crate::{
    audit,
    config::{Log, LogFormat},
};

/// An error in the setup of logs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level cannot be read.
    #[error("log.level cannot be read")]
    Level(#[from] ParseError),
    /// The process has a log subscriber already.
    #[error("the process has a subscriber for logs already")]
    Taken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Sends the process's logs to standard error.
///
/// # Errors
/// The level cannot be read, or the process has a subscriber.
pub(crate) fn start(config: &Log) -> Result<(), Error> {
    let lines = fmt().with_env_filter(filter(&config.level)?).with_writer(io::stderr);
    match config.format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    }
    .map_err(Error::Taken)
}

/// The filter for `level`. It includes the record of changes, unless `level` has a directive for
/// that.
fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::try_new(level)?;
    if level.contains(audit::TARGET) {
        return Ok(filter);
    }
    Ok(filter.add_directive(format!("{}=info", audit::TARGET).parse()?))
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;

    use super::*;

    #[test]
    fn changes_are_recorded_at_every_level_that_does_not_name_them() {
        for (level, recorded, logged) in [
            ("info", true, true),
            ("warn", true, false),
            ("off,outrigger_lifecycle=debug", true, false),
            ("info,outrigger::audit=off", false, true),
        ] {
            let lines = fmt().with_env_filter(filter(level).unwrap()).with_writer(io::sink);
            with_default(lines.finish(), || {
                let audit = tracing::enabled!(target: audit::TARGET, tracing::Level::INFO);
                let other = tracing::enabled!(target: "outrigger_server", tracing::Level::INFO);
                assert_eq!((audit, other), (recorded, logged), "{level}");
            });
        }
    }
}
