//! `outrigger onnx`: the engine for ONNX models.

use std::{path::PathBuf, thread::available_parallelism};

use clap::Args;
use outrigger_onnxruntime::{Error, Options, run as run_engine};

use crate::{engine::log_to_stderr, exit::Exit};

/// Runs the engine for ONNX models: ONNX Runtime, the library of the Python package onnxruntime,
/// behind the Open Inference Protocol on a Unix socket.
///
/// A server calls it by an entry of the kind `onnx` in `engines`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outrigger onnx --onnxruntime=.venv --socket=/run/outrigger/onnx.sock")]
pub(crate) struct Arguments {
    /// The library of ONNX Runtime, its directory, or a virtual environment with onnxruntime
    /// [env: OUTRIGGER_ONNXRUNTIME] [default: active environment, else ./.venv]
    #[arg(long, value_name = "PATH")]
    onnxruntime: Option<PathBuf>,

    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,

    /// Threads that run all models together; 0: one for each CPU of the machine, or of the container's
    /// limit
    #[arg(long, default_value_t = 0)]
    threads: usize,

    /// Largest message in bytes, in either direction
    #[arg(long, value_name = "BYTES", default_value_t = 257 << 20)]
    max_message: usize,
}

/// Runs the engine until a signal stops it.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    log_to_stderr();
    let Arguments { onnxruntime, socket, threads, max_message } = arguments;
    let threads = match threads {
        0 => available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    run_engine(&Options { onnxruntime, socket, threads, max_message }).map_err(
        |error| match error {
            Error::Library(_) => Exit::usage(error),
            _ => Exit::failed(error),
        },
    )
}
