//! How a command prints and ends: 0, 1 for a failure, 64 for a usage or
//! configuration error, 130 when it was interrupted.

use std::{
    fmt::Display,
    future::Future,
    io::{self, Write as _},
    process::ExitCode,
};

/// The exit code of a command that Ctrl-C has ended, as shells tell it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Exit {
    /// It was not possible: exit code 1.
    Failed(String),
    /// The command line or the configuration is wrong: exit code 64.
    Usage(String),
    /// Ctrl-C has ended it: exit code 130.
    Interrupted,
}

impl Exit {
    /// A failure that says what `error` says.
    pub(crate) fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A usage error that says what `error` says.
    pub(crate) fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<outrigger_tools::Error> for Exit {
    fn from(error: outrigger_tools::Error) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failed(error) }
    }
}

/// How a command prints what it found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Prints what was asked for. A reader that has seen enough is no failure.
pub(crate) fn print(text: impl Display) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Exit::failed(error)),
        _ => Ok(()),
    }
}

/// Prints a JSON document.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Exit> {
    print(format_args!("{value:#}\n"))
}

/// Tells what went wrong on standard error and gives the exit code.
pub(crate) fn code(outcome: Result<(), Exit>) -> ExitCode {
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Exit::Failed(message)) => (message, 1),
        Err(Exit::Usage(message)) => (message, 64),
        Err(Exit::Interrupted) => ("interrupted".to_owned(), INTERRUPTED),
    };
    eprintln!("outrigger: {message}");
    ExitCode::from(code)
}

/// Prints what the argument parser has to say; asking for help is a success.
pub(crate) fn of_clap(error: &clap::Error) -> ExitCode {
    // A closed pipe is the reader's choice.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 64 } else { 0 })
}

/// Runs a command that waits for the network, on the calling thread.
pub(crate) fn block_on<T>(command: impl Future<Output = T>) -> Result<T, Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(Exit::failed)?.block_on(command))
}
