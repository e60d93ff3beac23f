//! Output and exit codes of commands: 0, 1 for a failure, 64 for a usage or configuration
//! error, 130 after an interrupt. `outrigger diff` uses 1 for a difference and 2 for a failure, and
//! `outrigger batch` 65 for a job that was stopped.

use std::{
    borrow::Cow,
    fmt::Display,
    future::Future,
    io::{self, Write as _},
    process::ExitCode,
};

use outrigger_core::is_unprintable;

/// Exit code after Ctrl-C, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// The reason why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Exit {
    /// A failure: exit code 1.
    Failed(String),
    /// An invalid command line or configuration: exit code 64.
    Usage(String),
    /// A job that was stopped, by a command or because of too many dead rows: exit code 65.
    Stopped(String),
    /// A comparison has found a difference: exit code 1, without a message.
    Different,
    /// A comparison could not be made: exit code 2, as of diff(1).
    NotCompared(String),
    /// Ended by Ctrl-C: exit code 130.
    Interrupted,
}

impl Exit {
    /// A failure with the message of `error`.
    pub(crate) fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A usage error with the message of `error`.
    pub(crate) fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<outrigger_tools::Error> for Exit {
    fn from(error: outrigger_tools::Error) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failed(error) }
    }
}

/// Output format of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs.
    Json,
}

/// Prints text to standard output. A closed pipe is not a failure.
pub(crate) fn print(text: impl Display) -> Result<(), Exit> {
    write(&escaped(&text.to_string(), |it| it.escape_default().to_string()))
}

/// Prints a JSON document.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Exit> {
    write(&escaped(&format!("{value:#}\n"), in_json))
}

/// The escape of a character of the Basic Multilingual Plane.
fn in_json(character: char) -> String {
    format!("\\u{:04x}", u32::from(character))
}

/// Prints a line to standard error.
pub(crate) fn report(line: impl Display) {
    eprintln!("outrigger: {}", escaped(&line.to_string(), |it| it.escape_default().to_string()));
}

fn write(text: &str) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Exit::failed(error)),
        _ => Ok(()),
    }
}

/// Text whose lines have no characters that change what a terminal shows, such as its title or its
/// clipboard: packages, registries, servers and other people's files choose what a command quotes.
fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    let is_escaped = |it| !matches!(it, '\n' | '\t') && is_unprintable(it);
    if !text.contains(is_escaped) {
        return text.into();
    }
    let add = |mut to: String, it| {
        match is_escaped(it) {
            true => to.push_str(&escape(it)),
            false => to.push(it),
        }
        to
    };
    text.chars().fold(String::with_capacity(text.len()), add).into()
}

/// Prints the error to standard error and returns the exit code.
pub(crate) fn code(outcome: Result<(), Exit>) -> ExitCode {
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Exit::Failed(message)) => (message, 1),
        Err(Exit::Usage(message)) => (message, 64),
        Err(Exit::Stopped(message)) => (message, 65),
        Err(Exit::Different) => return ExitCode::from(1),
        Err(Exit::NotCompared(message)) => (message, 2),
        Err(Exit::Interrupted) => ("interrupted".to_owned(), INTERRUPTED),
    };
    report(message);
    ExitCode::from(code)
}

/// Prints the argument parser's message; a request for help is a success.
pub(crate) fn print_clap_error(error: &clap::Error) -> ExitCode {
    // A closed pipe is not a failure.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 64 } else { 0 })
}

/// Runs a command's asynchronous part on the calling thread.
pub(crate) fn block_on<T>(command: impl Future<Output = T>) -> Result<T, Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(Exit::failed)?.block_on(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_changes_nothing_but_its_place() {
        let hostile = "a\tb\n\u{1b}]0;title\u{7}\u{9b}2J\u{202e}\r";
        let shown = escaped(hostile, |it| it.escape_default().to_string());
        assert_eq!(shown, "a\tb\n\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}\\r");
        let json = format!("{:#}", serde_json::json!({ "x": hostile }));
        let shown = escaped(&json, in_json);
        assert!(!shown.contains(|it| it != '\n' && is_unprintable(it)), "{shown:?}");
        let read: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(read["x"], hostile);
        assert!(matches!(escaped("plain é", in_json), Cow::Borrowed("plain é")));
    }
}
