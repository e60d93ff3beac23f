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
        LogFormat::Text => {
            let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
            lines.with_ansi(is_terminal).with_writer(|| OneLine(io::stderr())).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    }
    .map_err(Error::Taken)
}

/// The filter for `level`, as in `log.level`. It includes the record of changes, unless `level` has a
/// directive for that.
///
/// # Errors
/// The level cannot be read.
pub fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::try_new(level)?;
    if level.contains(audit::TARGET) {
        return Ok(filter);
    }
    Ok(filter.add_directive(format!("{}=info", audit::TARGET).parse()?))
}

/// Writes each event on one line, with the line breaks inside it escaped: text from a package, a
/// registry or a caller must not look like a line of ours, such as one of the audit log. JSON
/// escapes them itself.
struct OneLine<W>(W);

impl<W: io::Write> io::Write for OneLine<W> {
    /// `event` is a whole event: the subscriber formats one before it writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let inside = event.strip_suffix(b"\n").unwrap_or(event);
        if !inside.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            self.0.write_all(event)?;
            return Ok(event.len());
        }
        let mut escaped = Vec::with_capacity(event.len() + 64);
        for byte in inside {
            match byte {
                b'\n' => escaped.extend(b"\\n"),
                b'\r' => escaped.extend(b"\\r"),
                other => escaped.push(*other),
            }
        }
        escaped.extend(&event[inside.len()..]);
        self.0.write_all(&escaped)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_cannot_forge_a_line_of_the_log() {
        let log = Log::default();
        let writer = log.clone();
        let lines = fmt().with_ansi(false).with_writer(move || OneLine(writer.clone()));
        let forged = "x\r\n2026-01-01T00:00:00Z  INFO outrigger::audit: change outcome=\"OK\"";
        with_default(lines.finish(), || {
            tracing::info!(key = %forged, "read {forged}");
            tracing::info!("next");
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("read x\\r\\n2026") && lines[1].ends_with("next"), "{text}");
    }

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
